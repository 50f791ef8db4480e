"""Recorded sizes and checksums of a model's files, compared when a run is loaded.

They are in `unmask.json` under "files". Tensors have a checksum in the header of their file
(`unmask.checkpoints.tensors`), so that they are read once, not twice.
"""

from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any, cast

from unmask.files import check_file_record, file_record, read_json

RUN_FILE, FILES_KEY = "unmask.json", "files"
_USER_EDITED = ("README.md",)
_TENSOR_SUFFIXES = (".safetensors", ".bin")
"""Files of which only the size is compared: they may be large, and are checked on reading."""


def record_files(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the size and checksum of each file below a folder, except README.md."""
    return {
        path.relative_to(folder).as_posix(): file_record(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in _USER_EDITED
    }


def check_recorded_files(folder: Path) -> None:
    """Compare a model's files with those recorded by its run, if there is a record.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a file has changed, or the record is invalid.
    """
    for name, file in _recorded_files(folder).items():
        if not name.endswith(_TENSOR_SUFFIXES):
            check_file_record(folder / name, file, _changed_advice(folder, name))
        elif not (folder / name).is_file():
            raise FileNotFoundError(f"{folder / name}: missing, though recorded by the run")
        elif (size := (folder / name).stat().st_size) != file.get("size"):
            raise ValueError(
                f"{folder / name}: truncated or damaged: it has {size:,} bytes, not the "
                f"{file.get('size'):,} recorded"
            )


def check_recorded_file(folder: Path, name: str) -> None:
    """Compare one file with its record, if there is one.

    Raises:
        FileNotFoundError: it is missing.
        ValueError: it has changed.
    """
    if (file := _recorded_files(folder).get(name)) is not None:
        check_file_record(folder / name, file, _changed_advice(folder, name))


def _changed_advice(folder: Path, name: str) -> str:
    return (
        f"if it was changed on purpose, remove {name!r} from {FILES_KEY!r} in {folder / RUN_FILE}"
    )


def _recorded_files(folder: Path) -> dict[str, Mapping[str, Any]]:
    """Return the recorded files of a run; empty if the folder has no record.

    Raises:
        ValueError: the record has other content than files with sizes and checksums.
    """
    path = folder / RUN_FILE
    try:
        facts = read_json(path) if path.is_file() else None
    except ValueError:  # reported by the reader of the other facts
        return {}
    recorded = facts.get(FILES_KEY) if isinstance(facts, dict) else None
    if recorded is None:
        return {}
    if not isinstance(recorded, dict):
        raise ValueError(f"{path}: {FILES_KEY} must be a table, got {recorded!r:.40}")
    table = cast("dict[str, object]", recorded)
    for name, file in table.items():
        inside = not PurePosixPath(name).is_absolute() and ".." not in PurePosixPath(name).parts
        if not inside or not isinstance(file, dict) or not isinstance(file.get("size"), int):
            raise ValueError(f"{path}: {FILES_KEY}.{name!r:.60} must have a size and a checksum")
    return cast("dict[str, Mapping[str, Any]]", table)
