"""The names of the classes that whole numbers stand for, which Parquet files of the Hub carry.

The datasets library writes a column of labels as numbers, and their names into the file's metadata
(huggingface.co/docs/datasets/about_dataset_features).
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from unmask.files import parsed
from unmask.text.records import named, one_line

_KEY = b"huggingface"
_LISTS = ("Sequence", "List", "LargeList")
_UNKNOWN = -1


def class_names(metadata: Mapping[bytes, bytes] | None, path: Path) -> dict[str, tuple[str, ...]]:
    """Read the names of the classes of each column that has some, or lists of some.

    Raises:
        ValueError: the metadata are damaged.
    """
    if not metadata or _KEY not in metadata:
        return {}
    try:
        features = parsed(metadata[_KEY])["info"]["features"]
        return {name: names for name, kind in features.items() if (names := _names(kind))}
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise ValueError(
            f"{path}: its metadata {_KEY.decode()!r} are damaged: {one_line(error)}"
        ) from None


def _names(kind: Any) -> tuple[str, ...]:
    if isinstance(kind, list):
        kind = cast("list[Any]", kind)[0]
    elif isinstance(kind, dict) and cast("dict[str, Any]", kind).get("_type") in _LISTS:
        kind = cast("dict[str, Any]", kind)["feature"]
    fields = cast("dict[str, Any]", kind)
    return tuple(str(n) for n in fields["names"]) if fields.get("_type") == "ClassLabel" else ()


def with_names(value: object, names: Sequence[str], column: str, where: str) -> object:
    """Put the name of a class in place of its number, also within lists; None where it is unknown.

    Raises:
        ValueError: there is no such class.
    """
    if isinstance(value, list):
        return [with_names(one, names, column, where) for one in cast("list[object]", value)]
    if value is None or value == _UNKNOWN:
        return None
    if not isinstance(value, int) or not 0 <= value < len(names):
        raise ValueError(
            f"{where}: {column!r} must be a class from 0 to {len(names) - 1}, got {named(value)}"
        )
    return names[value]
