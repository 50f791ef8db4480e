"""Class names of integer labels in Parquet files of the Hub.

The datasets library writes a column of labels as numbers, and their names into the file's metadata
(huggingface.co/docs/datasets/about_dataset_features).
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from unmask.files import parse_json
from unmask.text.formats.records import describe_value, format_error

_METADATA_KEY = b"huggingface"
_LIST_TYPES = ("Sequence", "List", "LargeList")
_UNKNOWN_CLASS = -1


def class_names(metadata: Mapping[bytes, bytes] | None, path: Path) -> dict[str, tuple[str, ...]]:
    """Read the class names of each column of class numbers, or of lists of them.

    Raises:
        ValueError: the metadata are damaged.
    """
    if not metadata or _METADATA_KEY not in metadata:
        return {}
    try:
        features = parse_json(metadata[_METADATA_KEY])["info"]["features"]
        return {
            name: names for name, kind in features.items() if (names := _names_of_feature(kind))
        }
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise ValueError(
            f"{path}: its metadata {_METADATA_KEY.decode()!r} are damaged: {format_error(error)}"
        ) from None


def _names_of_feature(feature: Any) -> tuple[str, ...]:
    if isinstance(feature, list):
        feature = cast("list[Any]", feature)[0]
    elif isinstance(feature, dict) and cast("dict[str, Any]", feature).get("_type") in _LIST_TYPES:
        feature = cast("dict[str, Any]", feature)["feature"]
    fields = cast("dict[str, Any]", feature)
    return tuple(str(n) for n in fields["names"]) if fields.get("_type") == "ClassLabel" else ()


def replace_class_numbers(
    value: object, names: Sequence[str], column: str, location: str
) -> object:
    """Replace class numbers by class names, also within lists; None where it is unknown.

    Raises:
        ValueError: there is no such class.
    """
    if isinstance(value, list):
        return [
            replace_class_numbers(item, names, column, location)
            for item in cast("list[object]", value)
        ]
    if value is None or value == _UNKNOWN_CLASS:
        return None
    if not isinstance(value, int) or not 0 <= value < len(names):
        raise ValueError(
            f"{location}: {column!r} must be a class from 0 to {len(names) - 1}, got "
            f"{describe_value(value)}"
        )
    return names[value]
