"""A form of `pretrain` as a recipe file."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from unmask.config import parse_change, read_toml
from unmask.jobs.options.pretrain import PretrainOptions
from unmask.training.config import Recipe
from unmask.web.commands.arguments import (
    FieldError,
    command_arguments,
    parse_command,
    shown_command,
)

_KEPT_FLAGS = frozenset(("teacher", "distill"))
"""Options that are no keys of a recipe alone: a teacher's tokenizer is also the model's."""
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_CONTROL = re.compile(r"[\0-\x1f\x7f]")


def recipe_toml(values: Mapping[str, Any], name: str = "recipe.toml") -> str:
    """Return the recipe file that makes the same run, given as the model of `unmask pretrain`.

    It is a difference to the preset. Its first line is the command with what no recipe holds: the
    folder, the device, a length in minutes.

    Args:
        values: those of the form of `pretrain`.
        name: of the file, for the command; it ends in .toml.

    Raises:
        FieldError: a value is not allowed, or the model is missing.
        ValueError: the model is a recipe file that is none.

    >>> print(recipe_toml({"model": "bert-mini", "data": ["a.txt"], "steps": 100, "threads": 2}))
    # unmask pretrain recipe.toml --threads 2
    model = "bert-mini"
    data = ["a.txt"]
    steps = 100
    <BLANKLINE>
    """
    _, given = parse_command(command_arguments("pretrain", values))
    model = given.get("model")
    if model is None:
        raise FieldError("model", "missing argument 'MODEL'")
    keys = read_toml(Path(model)) if model.endswith(".toml") else {"model": model}
    keys, kept_changes = _with_changes(keys, given.pop("changes", []))
    # What is changed by the command's --set stays an option there, too: the option counts.
    kept = {"model", *_KEPT_FLAGS, *(key for one in kept_changes for key in parse_change(one))}
    names = {one.name for one in fields(Recipe)} - kept
    in_recipe = {name: value for name, value in given.items() if name in names}
    try:
        keys = _joined(keys, PretrainOptions(out="", **in_recipe).recipe_keys())
    except ValueError as error:  # of the methods of compression, which are read here
        raise FieldError("compression", f"{error}") from None
    rest = {n: v for n, v in given.items() if n not in in_recipe}
    rest |= {"model": name, "changes": kept_changes}
    command = shown_command(command_arguments("pretrain", rest))
    shown = _CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", command)
    return f"# {shown}\n" + "".join(f"{line}\n" for line in _toml_lines(keys))


def _with_changes(
    keys: Mapping[str, Any], changes: Sequence[str]
) -> tuple[dict[str, Any], list[str]]:
    """Return keys after changes; and the changes from the first that has no place in them."""
    result = dict(keys)
    for i, one in enumerate(changes):
        change = parse_change(one)
        if not _is_writable(change) or not _can_join(result, change):
            return result, [*changes[i:]]
        result = _joined(result, change)
    return result, []


def _can_join(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    """Return whether two differences are one, whatever the preset has."""
    for key, value in second.items():
        old = first.get(key)
        if isinstance(value, Mapping) and isinstance(old, Mapping):
            if ("kind" in value and "kind" not in old) or not _can_join(old, value):
                return False
        elif key == "objective" and isinstance(old, str) and isinstance(value, Mapping):
            return False
    return True


def _is_writable(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(map(_is_writable, value.values()))
    if isinstance(value, list):
        return all(map(_is_writable, value))
    return isinstance(value, bool | int | float | str)


def _joined(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Return a difference that does what two do one after another."""
    result = dict(first)
    for key, value in second.items():
        old = result.get(key)
        old = {"kind": old} if isinstance(old, str) else old
        if isinstance(value, Mapping) and isinstance(old, Mapping):
            change: Mapping[str, Any] = value
            kind = old.get("kind")
            value = _joined(old, change) if change.get("kind", kind) == kind else change
        result[key] = value
    return result


def _toml_lines(table: Mapping[str, Any], place: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield the lines of a table: its values, then the tables in it."""
    inside = {key: one for key, one in table.items() if isinstance(one, Mapping)}
    values = {key: one for key, one in table.items() if key not in inside and one is not None}
    if place and (values or not inside):
        yield ""
        yield f"[{'.'.join(map(_key, place))}]"
    for key, value in values.items():
        yield f"{_key(key)} = {_value(value)}"
    for key, value in inside.items():
        yield from _toml_lines(value, (*place, key))


def _key(key: str) -> str:
    return key if _BARE_KEY.fullmatch(key) else _string(key)


def _string(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _value(value: Any) -> str:
    """Return a value on one line."""
    if isinstance(value, Mapping):
        inside = (f"{_key(k)} = {_value(v)}" for k, v in value.items() if v is not None)
        return f"{{ {', '.join(inside)} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, str):
        return _string(value)
    return str(value).lower() if isinstance(value, bool) else str(value)
