"""The numbers of an objective that a page may change, and the changes that set them."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Literal, cast

from unmask.config import to_dict
from unmask.options import option_docs

Number = float | int | bool
Kind = Literal["share", "number", "integer", "boolean"]
_OF_TRAINING = frozenset(
    ("alpha", "epochs", "exponent", "min_learning_rate", "seed", "segment_id", "subsample", "x_max")
)
"""Numbers that nothing of what is read or asked depends on."""
_WRAPPERS = frozenset(("objective",))
"""Parts whose keys are those of the objective around them."""
_SHARES = ("rate", "probability", "fraction", "_p", "share")


@dataclass(frozen=True, kw_only=True)
class ObjectiveSetting:
    """A number or a switch of an objective."""

    key: str
    """Dotted path; places of a list are numbers: noises.1.rate."""
    kind: Kind
    value: Number
    low: Number
    high: Number
    step: Number
    help: str


def objective_settings(objective: object) -> list[ObjectiveSetting]:
    """List the settings of an objective; those of a mixture's parts are left out."""
    return [_setting(key, part, name) for key, part, name in _walk(objective, ())]


def setting_changes(objective: object, values: Mapping[str, Any]) -> list[str]:
    """Return changes, as `unmask hide --set` takes them, that give an objective some settings.

    A list is written as a whole, with the setting in its place.

    Raises:
        ValueError: the objective has no such setting.
    """
    known = {one.key: one for one in objective_settings(objective)}
    whole: dict[str, Any] = {}
    changes: list[str] = []
    for key, value in values.items():
        if key not in known:
            raise ValueError(f"settings: no {key!r}; there are {', '.join(known) or 'none'}")
        if not isinstance(value, bool | int | float):
            raise ValueError(f"settings: {key} must be a number, got {value!r}")
        name, _, rest = key.partition(".")
        place = rest.split(".")
        if not place[0].isdigit():
            changes.append(f"{key}={_inline(value)}")
            continue
        if name not in whole:
            whole[name] = to_dict(_owner_of(objective, name))[name]
        whole[name][int(place[0])][place[1]] = value
    return changes + [f"{name}={_inline(one)}" for name, one in whole.items()]


def _walk(part: Any, path: tuple[str, ...]) -> Iterator[tuple[str, Any, str]]:
    """Iterate over (dotted path, dataclass, field) of each number in nested dataclasses."""
    for one in fields(part):
        value = getattr(part, one.name)
        inner = path if one.name in _WRAPPERS else (*path, one.name)
        if is_dataclass(value):
            yield from _walk(value, inner)
        elif isinstance(value, tuple) and not path:
            for i, item in enumerate(cast("tuple[Any, ...]", value)):
                if is_dataclass(item):
                    yield from _walk(item, (*inner, str(i)))
        elif isinstance(value, bool | int | float) and one.name not in _OF_TRAINING:
            yield ".".join(inner), part, one.name


def _setting(key: str, part: Any, name: str) -> ObjectiveSetting:
    value = getattr(part, name)
    help_text = " ".join(option_docs(type(part)).get(name, "").split())
    kind, low, high, step = _range_of(name, value)
    return ObjectiveSetting(
        key=key, kind=kind, value=value, low=low, high=high, step=step, help=help_text
    )


def _range_of(name: str, value: Number) -> tuple[Kind, Number, Number, Number]:
    """Return the kind of a setting, its least and greatest value and a step of a slider."""
    if isinstance(value, bool):
        return "boolean", 0, 1, 1
    if name.endswith(_SHARES) and 0 <= value <= 1:
        return "share", 0.05 if name == "rate" else 0, 1, 0.05
    if isinstance(value, int):
        return "integer", 1, max(10, 2 * value), 1
    return "number", 1, max(10, 2 * round(value)), 0.5


def _owner_of(objective: Any, name: str) -> Any:
    """Return the objective that has a field: this one or one that it contains."""
    while not hasattr(objective, name):
        objective = objective.objective
    return objective


def _inline(value: Any) -> str:
    """Write a value as TOML on one line."""
    if isinstance(value, Mapping):
        items = cast("Mapping[str, Any]", value).items()
        return f"{{{', '.join(f'{k} = {_inline(v)}' for k, v in items if v is not None)}}}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return f"[{', '.join(map(_inline, cast('Sequence[Any]', value)))}]"
    return json.dumps(value, ensure_ascii=False)
