"""The format of saved files of plain data: unmask.json, suite.json, study.json, shards.json, ..."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unmask.files import read_json_object

FORMAT = 2
"""The format in which files are written, and the only one that is read."""


def read_saved(path: Path) -> dict[str, Any]:
    """Read a file of plain data that says its format.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is no JSON object, or of another format.
    """
    return check_format(read_json_object(path), path)


def check_format(facts: Mapping[str, Any], where: Path | str) -> dict[str, Any]:
    """Return what a file says; a file that says no format is read as of this one.

    Raises:
        ValueError: it is of another format.
    """
    found = facts.get("format", FORMAT)
    if found != FORMAT or isinstance(found, bool):
        raise ValueError(
            f"{where}: format {found!r} is not read: this version of Unmask reads {FORMAT}"
        )
    return dict(facts)


def write_record(plain: Mapping[str, Any]) -> dict[str, Any]:
    """Return plain data that is in a file of another library's, with its format."""
    return {"format": FORMAT, **plain}


def read_record(record: Any, where: str) -> Any:
    """Return plain data of `write_record` without its format.

    Raises:
        ValueError: it is of another format.
    """
    if not isinstance(record, Mapping):
        return record
    return {key: value for key, value in check_format(record, where).items() if key != "format"}
