"""What a run says of the files of its model: their sizes and checksums, compared when it opens.

They are in `unmask.json` under "files". Tensors are left to the checksum in the header of their own
file (`unmask.checkpoints.tensors`): they are read once, not twice.
"""

from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any, cast

from unmask.files import check_file_record, file_record, read_json

RUN_FILE, FILES_KEY = "unmask.json", "files"
_USER_EDITED = ("README.md",)
_TENSOR_SUFFIXES = (".safetensors", ".bin")
"""Of these only the size is compared here: they may be large, and whoever reads them looks."""


def record_files(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the size and checksum of each file below a folder, but for its README.md."""
    return {
        path.relative_to(folder).as_posix(): file_record(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in _USER_EDITED
    }


def check_recorded_files(folder: Path) -> None:
    """Compare a model's files with what its run says that it wrote, if it says so.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a file is another one, or the run does not say what it should.
    """
    for name, file in _recorded_files(folder).items():
        if not name.endswith(_TENSOR_SUFFIXES):
            check_file_record(folder / name, file, _changed_advice(folder, name))
        elif not (folder / name).is_file():
            raise FileNotFoundError(f"{folder / name}: missing, though the run has written it")
        elif (size := (folder / name).stat().st_size) != file.get("size"):
            raise ValueError(
                f"{folder / name}: truncated or damaged: it has {size:,} bytes, not the "
                f"{file.get('size'):,} that were written"
            )


def check_recorded_file(folder: Path, name: str) -> None:
    """Compare one file with what its run says that it wrote, if it says so.

    Raises:
        FileNotFoundError: it is missing.
        ValueError: it is another one.
    """
    if (file := _recorded_files(folder).get(name)) is not None:
        check_file_record(folder / name, file, _changed_advice(folder, name))


def _changed_advice(folder: Path, name: str) -> str:
    return (
        f"where it was changed on purpose, take {name!r} out of {FILES_KEY!r} in "
        f"{folder / RUN_FILE}"
    )


def _recorded_files(folder: Path) -> dict[str, Mapping[str, Any]]:
    """Return what the run in a folder says of its model's files; nothing, if it is no such run.

    Raises:
        ValueError: it says something else than files with sizes and checksums.
    """
    path = folder / RUN_FILE
    try:
        facts = read_json(path) if path.is_file() else None
    except ValueError:  # whoever needs what else it says names it
        return {}
    found = facts.get(FILES_KEY) if isinstance(facts, dict) else None
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise ValueError(f"{path}: {FILES_KEY} must be a table, got {found!r:.40}")
    table = cast("dict[str, object]", found)
    for name, file in table.items():
        inside = not PurePosixPath(name).is_absolute() and ".." not in PurePosixPath(name).parts
        if not inside or not isinstance(file, dict) or not isinstance(file.get("size"), int):
            raise ValueError(
                f"{path}: {FILES_KEY}.{name!r:.60} is no file with a size and a checksum"
            )
    return cast("dict[str, Mapping[str, Any]]", table)
