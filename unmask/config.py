"""Frozen dataclasses <-> plain data (JSON, TOML).

Unknown keys are errors; `kind` names the member of a union.
"""

import ast
import dataclasses
import difflib
import functools
import importlib
import inspect
import json
import keyword
import math
import re
import tomllib
import types
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import (
    Any,
    Literal,
    ParamSpec,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from unmask.files import check_nesting, parser_errors_as_value_error, read_bytes

DataT = TypeVar("DataT")
ReturnT = TypeVar("ReturnT")
Parameters = ParamSpec("Parameters")


class OpenUnion(ABC):
    """A base of dataclasses, any of which plain data may name by `kind`.

    In place of a union that lists them all: a table names those that are read, and the modules that
    define them, which are imported when one is named.
    """

    @classmethod
    @abstractmethod
    def kind_modules(cls) -> Mapping[str, str]:
        """Return the classes that plain data may name, each with the module that defines it."""


MAX_LEARNING_RATE = 1e3
"""Of any learning rate: the largest that are published, gradient descent's, are some tens."""


def to_dict(value: Any) -> Any:
    """Turn a dataclass into dicts, lists and scalars.

    Every dataclass is written with its class's name under `kind`.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: to_dict(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return {"kind": type(value).__name__} | fields
    if isinstance(value, tuple | list):
        return [to_dict(v) for v in value]
    if isinstance(value, frozenset):
        return sorted(value)
    if isinstance(value, Mapping):
        return {k: to_dict(v) for k, v in value.items()}
    return value


def to_expression(value: Any) -> str:
    """Write plain data as an expression: LearnedPositions(max_positions=512).

    `parse_expression` reads it. A word has no quotes where possible, a table without a kind is
    dict(a=1).
    """
    if isinstance(value, Mapping):
        inside = ", ".join(f"{k}={to_expression(v)}" for k, v in value.items() if k != "kind")
        return f"{value.get('kind', 'dict')}({inside})"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(to_expression, value))}]"
    if value is None or isinstance(value, bool):
        return {None: "none", True: "true", False: "false"}[value]
    if isinstance(value, float):
        short = f"{value:.10g}"
        return short if float(short) == value else repr(value)
    if isinstance(value, str):
        plain = (
            value.isidentifier() and value not in _KEYWORD_VALUES and not keyword.iskeyword(value)
        )
        return value if plain else json.dumps(value, ensure_ascii=False)
    return str(value)


_KEYWORD_VALUES = {
    "none": None, "None": None, "true": True, "True": True, "false": False, "False": False,
    "inf": math.inf, "nan": math.nan,
}  # fmt: skip


_EXPRESSION_EXAMPLE = "a value such as Kind(name=1, other=[2, none])"


def parse_expression(text: str) -> Any:
    """Read what `written` writes; nothing is called.

    Raises:
        ValueError: it is something else.
    """
    try:
        return _evaluate_literal(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, RecursionError, MemoryError):
        raise ValueError(f"must be {_EXPRESSION_EXAMPLE}, got {text!r:.200}") from None


def _evaluate_literal(node: ast.expr) -> Any:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.args:
        inside = {
            one.arg: _evaluate_literal(one.value) for one in node.keywords if one.arg is not None
        }
        if len(inside) == len(node.keywords):
            return inside if node.func.id == "dict" else {"kind": node.func.id} | inside
    if isinstance(node, ast.List | ast.Tuple):
        return [_evaluate_literal(one) for one in node.elts]
    if isinstance(node, ast.Name):
        return _KEYWORD_VALUES.get(node.id, node.id)
    if isinstance(node, ast.Constant) and isinstance(node.value, str | int | float):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        number = _evaluate_literal(node.operand)
        if isinstance(number, int | float):
            return -number
    raise ValueError(f"must be {_EXPRESSION_EXAMPLE}, got {ast.unparse(node)!r:.200}")


def from_dict(target_type: type[DataT], data: Any, where: str = "") -> DataT:
    """Build a `target_type` from plain data, checking every key and value against its annotations.

    Raises:
        ValueError: an unknown key, a missing key, or a value of the wrong type, with its place
            (`position.kind`) and what is allowed there.
    """
    return _parse(target_type, data, where)


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is not UTF-8 or not TOML.
    """
    data = read_bytes(path)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8 ({error.reason} at byte {error.start})") from None
    return parse_toml(text, path)


def parse_toml(text: str, where: object) -> dict[str, Any]:
    """Parse TOML.

    Raises:
        ValueError: it is not TOML, or is nested too deeply; with where it is.
    """
    with parser_errors_as_value_error(f"{where}: not TOML"):
        found = tomllib.loads(text)
        check_nesting(found)  # of dotted keys, too
    return found


def read_dataclass(target_type: type[DataT], path: Path) -> DataT:
    """Read a dataclass from a TOML file; its `name` is the file's if it does not say one.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is not TOML, or a key or value is not what it should be.
    """
    plain = read_toml(path)
    try:
        return from_dict(target_type, {"name": path.stem} | plain)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def check_value(target_type: Any, data: Any, where: str) -> None:
    """Check that plain data can be read as a type, of a field for instance: `float | None`.

    Raises:
        ValueError: as of `from_dict`.
    """
    _parse(target_type, data, where)


def fits_64_bits(number: int | float) -> bool:
    """Return whether a number can be a 64-bit signed integer, as every option can that counts."""
    return -(2**63) <= number < 2**63


def check_word(name: str, value: object, words: Any) -> None:
    """Check that a value is one of a Literal's.

    Raises:
        ValueError: it is not.

    >>> check_word("direction", "up", Literal["up", "down"])
    """
    if value not in get_args(words):
        raise ValueError(f"{name} must be one of {list(get_args(words))}, got {value!r}")


def check_number_fields(value: Any) -> None:
    """Check a dataclass's fields that are annotated as numbers; call it in `__post_init__`.

    Raises:
        ValueError: a field holds something else than its annotation says, or a whole number beyond
            64 bits.
    """
    _check_numbers(type(value), vars(value))


def check_number_arguments(
    function: Callable[Parameters, ReturnT],
) -> Callable[Parameters, ReturnT]:
    """Decorate a function so that arguments annotated as numbers are checked before it runs.

    The function then raises ValueError as `check_number_fields` does.
    """
    parameters = inspect.signature(function).parameters
    names = [n for n, p in parameters.items() if p.kind is p.POSITIONAL_OR_KEYWORD]

    @functools.wraps(function)
    def checked(*args: Parameters.args, **kwargs: Parameters.kwargs) -> ReturnT:
        _check_numbers(function, dict(zip(names, args, strict=False)) | kwargs)
        return function(*args, **kwargs)

    return checked


def _check_numbers(annotated: Callable[..., Any], values: Mapping[str, Any]) -> None:
    for name, annotation in _number_annotations(annotated).items():
        if name in values:
            check_value(annotation, values[name], name)


@functools.cache
def _number_annotations(annotated: Callable[..., Any]) -> dict[str, Any]:
    """Return the annotations that allow a number, alone or beside others: `int | None`."""
    return {
        name: annotation
        for name, annotation in get_type_hints(annotated).items()
        if {annotation, *get_args(annotation)} & {int, float}
    }


def set_value(value: DataT, path: str, new_value: Any) -> DataT:
    """Return `value` with the field at the dotted path `path` replaced by plain data.

    `--set architecture.d_model=256` does this.

    Raises:
        ValueError: the path names no field, or the value does not fit it.
    """
    plain = to_dict(value)
    head, here = path.split("."), plain
    for i, key in enumerate(head):
        if not isinstance(here, dict) or key not in here:
            known = [k for k in here if k != "kind"] if isinstance(here, dict) else []
            raise ValueError(unknown_key_message(".".join(head[: i + 1]), known))
        if i < len(head) - 1:
            here = here[key]
    here[head[-1]] = new_value
    return from_dict(type(value), plain)


def unknown_key_message(key: str, known: Iterable[str]) -> str:
    """Say that a key is unknown, with the nearest known one first."""
    names, last = sorted(known), key.rsplit(".", 1)[-1]
    hint = near_hint(last, names, _KEYS_ELSEWHERE.get(last), cutoff=0.5)
    return f"unknown key {key!r}{hint} (known: {', '.join(names) or 'none'})"


def near_hint(
    name: str, known: Iterable[str], preferred: str | None = None, cutoff: float = 0.6
) -> str:
    """Return the end of a message that names the nearest of known names; empty: none is near."""
    names = list(known)
    near = difflib.get_close_matches(name, names, 1, cutoff)
    near = [preferred] if preferred in names else near
    return f"; did you mean {near[0]!r}?" if near else ""


_KEYS_ELSEWHERE = {
    "r": "rank", "lora_rank": "rank", "lora_alpha": "alpha", "lora_dropout": "dropout",
    "lr": "learning_rate", "max_lr": "learning_rate", "hidden_size": "d_model", "n_embd": "d_model",
    "dim": "d_model", "num_hidden_layers": "n_layers", "n_layer": "n_layers",
    "num_layers": "n_layers", "num_attention_heads": "n_heads", "n_head": "n_heads",
    "num_key_value_heads": "n_kv_heads", "intermediate_size": "d_ff", "n_inner": "d_ff",
    "block_size": "sequence_length", "max_seq_length": "sequence_length", "w_bits": "bits",
    "group_size": "group",
}  # fmt: skip
"""What keys of other libraries are called here."""


def _parse(target_type: Any, data: Any, where: str) -> Any:
    origin, args = get_origin(target_type), get_args(target_type)
    if target_type is Any:
        return data
    if origin in (Union, types.UnionType):
        return _parse_union(args, data, where)
    if origin is Literal:
        if data is None and "none" in args:
            return "none"  # on a command line it is also the word for no value
        check_word(where, data, target_type)
        return data
    if dataclasses.is_dataclass(target_type):
        return _parse_dataclass(target_type, data, where)
    if isinstance(target_type, type) and issubclass(target_type, OpenUnion):
        return _parse_open_union(target_type.kind_modules(), data, where)
    return _parse_plain(target_type, origin, args, data, where)


def _parse_union(args: tuple[Any, ...], data: Any, where: str) -> Any:
    if data is None and type(None) in args:
        return None
    named = {k.__name__: k for k in args if isinstance(k, type) and dataclasses.is_dataclass(k)}
    if isinstance(data, Mapping) and named:
        if len(named) == 1 and "kind" not in data:
            return _parse(next(iter(named.values())), data, where)
        if data.get("kind") not in [*named]:  # it may be a list, which has no hash
            at = f"{where}.kind".lstrip(".")
            raise ValueError(f"{at} must be one of {sorted(named)}, got {data.get('kind')!r}")
        return _parse(named[data["kind"]], data, where)
    errors: list[str] = []
    for kind in args:
        if kind is type(None) or dataclasses.is_dataclass(kind):
            continue
        try:
            return _parse(kind, data, where)
        except ValueError as error:
            errors.append(str(error))
    if named:
        errors.append(f"{where} must be a table with kind one of {sorted(named)}, got {data!r}")
    raise ValueError(errors[0] if errors else f"{where} must not be {data!r}")


def _parse_open_union(modules: Mapping[str, str], data: Any, where: str) -> Any:
    if not isinstance(data, Mapping):
        raise ValueError(
            f"{where} must be a table with kind one of {sorted(modules)}, got {data!r}"
        )
    kind = data.get("kind")
    if not isinstance(kind, str) or kind not in modules:
        at = f"{where}.kind".lstrip(".")
        raise ValueError(f"{at} must be one of {sorted(modules)}, got {kind!r}")
    return _parse(getattr(importlib.import_module(modules[kind]), kind), data, where)


def _parse_dataclass(target_type: Any, data: Any, where: str) -> Any:
    if not isinstance(data, Mapping):
        raise ValueError(f"{where or target_type.__name__} must be a table, got {data!r}")
    fields = {f.name: f for f in dataclasses.fields(target_type) if f.init}
    for key in data:
        if key not in fields and key != "kind":
            raise ValueError(unknown_key_message(f"{where}.{key}".lstrip("."), fields))
    if data.get("kind", target_type.__name__) != target_type.__name__:
        at = f"{where}.kind".lstrip(".")
        raise ValueError(f"{at} must be {target_type.__name__!r}, got {data['kind']!r}")
    required = {
        n for n, f in fields.items()
        if f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
    }  # fmt: skip
    if missing := sorted(required - set(data)):
        if not where and target_type.__name__.startswith("_"):  # a name for this program alone
            raise ValueError(f"{', '.join(missing)} must be given (keys: {', '.join(fields)})")
        raise ValueError(f"{where or target_type.__name__} lacks {', '.join(missing)}")
    hints = get_type_hints(target_type)
    return target_type(
        **{
            k: _parse_part(hints[k], v, f"{where}.{k}".lstrip("."))
            for k, v in data.items()
            if k != "kind"
        }
    )


def _parse_part(target_type: Any, data: Any, where: str) -> Any:
    """Read a part of something, and say which it is where that is wrong by itself."""
    try:
        return _parse(target_type, data, where)
    except ValueError as error:
        raise ValueError(str(error) if where in str(error) else f"{where}: {error}") from None


def _parse_plain(
    target_type: Any, origin: Any, args: tuple[Any, ...], data: Any, where: str
) -> Any:
    container = list if origin is Sequence else origin or target_type
    if container in (tuple, list, frozenset):
        if not isinstance(data, list | tuple | frozenset):
            raise ValueError(f"{where} must be a list, got {data!r}")
        if container is tuple and args and args[-1] is not Ellipsis:
            if len(data) != len(args):
                raise ValueError(f"{where} must have {len(args)} items, got {len(data)}")
            return tuple(
                _parse_part(a, v, f"{where}[{i}]")
                for i, (a, v) in enumerate(zip(args, data, strict=True))
            )
        item = args[0] if args else Any
        return container(_parse_part(item, v, f"{where}[{i}]") for i, v in enumerate(data))
    if (isinstance(container, type) and issubclass(container, Mapping)) or container is Mapping:
        if not isinstance(data, Mapping):
            raise ValueError(f"{where} must be a table, got {data!r}")
        return {
            k: _parse_part(args[1] if args else Any, v, f"{where}.{k}") for k, v in data.items()
        }
    if target_type in (int, float) and isinstance(data, int) and not isinstance(data, bool):
        if not fits_64_bits(data):
            raise ValueError(
                f"{where} must be a number of at most 64 bits, got one of {data.bit_length()} bits"
            )
        return target_type(data)
    if not isinstance(data, target_type) or (target_type is int and isinstance(data, bool)):
        raise ValueError(f"{where} must be {target_type.__name__}, got {data!r}")
    return data


def parse_change(change: str) -> dict[str, Any]:
    """Turn `schedule.warmup=0.1` into {"schedule": {"warmup": 0.1}}.

    The value is read as TOML (numbers, `true`, lists, inline tables), or as `unmask show` writes
    it: `LearnedPositions(length=512)`, `[none, 64]`. `none` is None, and anything else a string.

    Raises:
        ValueError: there is no `=`, or nothing before it.
    """
    key, equals, text = change.partition("=")
    path = [part.strip() for part in key.split(".")]
    if not equals or not all(path):
        raise ValueError("must be key=value or key.key=value")
    value: Any = _parse_toml_value(text.strip())
    for part in reversed(path):
        value = {part: value}
    return value


_ARGUMENT_SEPARATOR = re.compile(r",(?=\s*\w+=)")
"""Between fields: a value, such as the words of a prompt, may hold a comma."""


def parse_variant(kinds: Mapping[str, type[DataT]], text: str, option: str) -> DataT:
    """Return a value of one of some dataclasses: "lora", or "lora:rank=4,alpha=8".

    A list is written with plus signs: "lora:target_modules=attention.query+attention.value".

    Raises:
        ValueError: there is no such class, or it has no such field, with the option's name.
    """
    word, _, rest = text.partition(":")
    if word not in kinds:
        raise ValueError(f"{option} must be one of {', '.join(kinds)}, got {word!r}")
    kind = kinds[word]
    lists = {f.name for f in dataclasses.fields(cast(Any, kind)) if "tuple" in str(f.type)}
    plain: dict[str, Any] = {}
    for part in _ARGUMENT_SEPARATOR.split(rest) if rest else ():
        try:
            plain |= parse_change(part)
        except ValueError:
            raise ValueError(
                f"{option} must be a word, or word:name=value,name=value, got {text!r}"
            ) from None
    plain |= {k: str(plain[k]).split("+") for k in lists & set(plain)}
    try:
        return from_dict(kind, plain, word)
    except ValueError as error:
        raise ValueError(f"{option}: {text}: {error}") from None


def _parse_toml_value(text: str) -> Any:
    if text == "none":
        return None
    try:
        read = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):  # no TOML, or an integer of thousands of digits
        return _parse_shown_value(text)
    return read["value"] if set(read) == {"value"} else text


def _parse_shown_value(text: str) -> Any:
    """Read a list or a value with a kind, as `unmask show` writes it; all else is a string."""
    if not (text.startswith("[") or re.fullmatch(r"[A-Za-z]\w*\(.*\)", text, re.DOTALL)):
        return text
    try:
        return parse_expression(text)
    except ValueError:
        return text
