"""Files and folders that are whole or absent: written beside, flushed to disk, renamed.

Whatever the instant at which the process is killed, the power fails or the disk is full, a path
written here is what it was before or what it should become. What an interrupted write leaves behind
is hidden (`.NAME.….part`), never has the name that was asked for, and is removed by `sweep`.
"""

import errno
import hashlib
import os
import secrets
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def write_whole(path: Path, data: bytes | str) -> None:
    """Write a file (a string as UTF-8), replacing the one that is there.

    Raises:
        OSError: it cannot be written, for instance because the disk is full; what was there is
            still there.
    """
    with whole(path) as beside:
        beside.write_bytes(data.encode() if isinstance(data, str) else data)


@contextmanager
def whole(path: Path) -> Generator[Path]:
    """Give a temporary path beside `path` for the body to make a file or folder at; then rename it.

    If the body raises, the temporary is removed and `path` is untouched. A file replaces the file
    that is there; a folder replaces nothing but an empty folder. The folder that holds `path` must
    exist.

    Raises:
        FileExistsError: `path` is a folder with something in it, a device or a pipe.
        OSError: it cannot be written, for instance because the disk is full.
    """
    if path.is_dir() and any(path.iterdir()):
        raise FileExistsError(f"{path} is there already, a folder with files in it")
    if path.exists() and not path.is_dir() and not path.is_file():
        raise FileExistsError(f"{path} is a device or a pipe, which no file takes the place of")
    # The name is drawn anew each time, so that two processes that write the same path do not mix
    # their bytes. It holds only the beginning of the asked name: a name may be as long as the file
    # system allows.
    beside = path.parent / f".{path.name[:40]}.{secrets.token_hex(6)}.part"
    try:
        yield beside
        _flush(beside)
        os.replace(beside, path)
        _flush_one(path.parent)
    except OSError as error:
        if error.errno in _FULL and error.filename is None:  # a failed write does not say where
            raise OSError(error.errno, error.strerror, str(path.parent)) from error
        raise
    finally:
        _remove(beside)


def move_into(beside: Path, folder: Path, last: str) -> None:
    """Move the files of one folder into another that holds more, each whole, `last` at the end.

    With the file `last` the other folder is what it should become; until then it is not.
    """
    for path in sorted(beside.iterdir(), key=lambda p: (p.name == last, p.name)):
        _flush_one(path)
        os.replace(path, folder / path.name)
    beside.rmdir()


def sweep(folder: Path) -> None:
    """Remove what interrupted writes left directly in `folder`, to which nobody else may write."""
    for left in folder.glob(".*." + "[0-9a-f]" * 12 + ".part"):
        _remove(left)


def sha256(path: Path) -> str:
    """Compute the SHA-256 of a file, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _flush(path: Path) -> None:
    """Wait until a file, or a folder with all that is in it, is on the disk."""
    for parent, _, names in os.walk(path):  # of a file: nothing
        for name in names:
            _flush_one(Path(parent, name))
        if Path(parent) != path:
            _flush_one(Path(parent))
    _flush_one(path)


def _flush_one(path: Path) -> None:
    if path.is_symlink():
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
