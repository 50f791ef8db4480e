"""A form of `pretrain` as a recipe file."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from unmask.config import parse_change, read_toml
from unmask.jobs.options.pretrain import PretrainOptions
from unmask.training.config import Recipe
from unmask.web.commands.arguments import command_arguments, parse_command, shown_command

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
        name: of the file, for the command.

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
    changes, kept_changes = _split_changes(given.pop("changes", []))
    model = given.get("model")
    keys: dict[str, Any] = {}
    if model is not None:
        keys = read_toml(Path(model)) if model.endswith(".toml") else {"model": model}
    keys_of_recipe = {one.name for one in fields(Recipe)} | {"compression"}
    in_recipe = {n: v for n, v in given.items() if n in keys_of_recipe - _KEPT_FLAGS - {"model"}}
    options = PretrainOptions(out="", **in_recipe)
    for one in (*changes, options.recipe_keys()):
        keys = _joined(keys, one)
    rest = {n: v for n, v in given.items() if n not in in_recipe} | {"model": name}
    if kept_changes:
        rest["changes"] = kept_changes
    command = shown_command(command_arguments("pretrain", rest))
    shown = _CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", command)
    return f"# {shown}\n" + "".join(f"{line}\n" for line in _toml_lines(keys))


def _split_changes(changes: list[str]) -> tuple[list[dict[str, Any]], list[str]]:
    """Return changes as plain data; and those that TOML has no value for, and later ones."""
    plain = [parse_change(one) for one in changes]
    n = next((i for i, one in enumerate(plain) if not _is_writable(one)), len(plain))
    return plain[:n], changes[n:]


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
        if isinstance(value, Mapping):
            if isinstance(old, str) and key != "objective":
                old = {"kind": old}
            is_other = (
                "kind" in value and isinstance(old, Mapping) and old.get("kind") != value["kind"]
            )
            value = _joined(old if isinstance(old, Mapping) and not is_other else {}, value)
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
