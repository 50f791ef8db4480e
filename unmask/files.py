"""Files and folders that are whole or absent: written beside, flushed to disk, renamed.

Whatever the instant at which the process is killed, the power fails or the disk is full, a path
written here is what it was before or what it should become. What an interrupted write leaves behind
is hidden (`.NAME.….part`), never has the name that was asked for, and is removed by
`remove_partial_files`.
"""

import errno
import filecmp
import hashlib
import json
import lzma
import os
import re
import secrets
import shutil
import struct
import sys
import zlib
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

MAX_FILE_BYTES = 2**29
"""Bytes of a file that is understood only whole, as JSON and TOML are."""
LOCK_FILE = ".lock"
"""Of a run folder: whoever trains in it holds a lock on this file."""
MAX_NESTING = 200
"""Lists and tables within each other: what is deeper is hostile, and cannot even be printed."""
MAX_JSON_VALUES = 2**23
"""Values in a file of JSON, each of which takes up to 80 times its length."""

PARSER_ERRORS: tuple[type[Exception], ...] = (
    ValueError, RecursionError, MemoryError, OverflowError, EOFError,
    struct.error, zlib.error, lzma.LZMAError,
)  # fmt: skip
"""What parsers raise of files that are damaged or hostile. `TypeError`, `KeyError` and the like are
none: they are bugs, or a reader takes what it has not looked at."""

_PARTIAL_NAME = re.compile(r"\..*\.[0-9a-f]{12}\.part", re.DOTALL)
_DISK_FULL_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


@contextmanager
def parser_errors_as_value_error(
    path: object, *extra_errors: type[BaseException]
) -> Generator[None]:
    """Make a ValueError that names the file of what a parser raises in the body.

    The body is a call of a parser, and nothing of our own: what our code raises is a bug.

    Args:
        path: of the file, or where in a file one is.
        extra_errors: what this parser raises besides `PARSER_ERRORS`.

    Raises:
        ValueError: the parser raised something.
    """
    try:
        yield
    except (*PARSER_ERRORS, *extra_errors) as error:
        why = " ".join(str(error).split())
        if isinstance(error, ValueError) and str(path) in why:
            raise
        if isinstance(error, RecursionError):
            why = "nested too deeply"
        raise ValueError(f"{path}: {_shorten(why) or type(error).__name__}") from None


def parse_json(data: str | bytes, decode: Callable[[str], Any] = json.loads) -> Any:
    """Parse JSON, of which nothing can be raised but ValueError.

    Args:
        data: the text.
        decode: what parses it.

    Raises:
        ValueError: it is not JSON, not UTF-8, nested deeper than `MAX_NESTING`, or has too many
            values.
    """
    text = data.decode("utf-8") if isinstance(data, bytes) else data
    nested = text.count("[") + text.count("{")
    if nested + text.count(",") > MAX_JSON_VALUES:
        raise ValueError(f"more than {MAX_JSON_VALUES:,} values in JSON")
    try:
        value = decode(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if nested > MAX_NESTING:
        check_nesting(value)
    return value


def check_nesting(value: Any) -> None:
    """Check that lists and tables are not nested deeper than `MAX_NESTING`.

    Raises:
        ValueError: they are.
    """
    level = [value]
    for _ in range(MAX_NESTING + 1):
        held = [one for one in level if isinstance(one, dict | list)]
        if not held:
            return
        level = [x for one in held for x in (one.values() if isinstance(one, dict) else one)]
    raise ValueError("nested too deeply")


def read_bytes(path: Path) -> bytes:
    """Read a file that is understood only whole.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it has more than `MAX_FILE_BYTES` bytes.
    """
    if not path.is_file():
        what = " is a folder or a device, not a file" if path.exists() else ": no such file"
        raise FileNotFoundError(f"{path}{what}")
    if (size := path.stat().st_size) > MAX_FILE_BYTES:
        raise ValueError(
            f"{path}: has {size:,} bytes, of which at most {MAX_FILE_BYTES:,} are read"
        )
    return path.read_bytes()


def read_json(path: Path) -> Any:
    """Read a file of JSON.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is not JSON, or too large; the file is named.
    """
    data = read_bytes(path)
    with parser_errors_as_value_error(f"{path}: not JSON"):
        return parse_json(data)


def read_json_object(path: Path) -> dict[str, Any]:
    """Read a file that holds an object of JSON.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is not JSON, or something else than an object; the file is named.
    """
    value = read_json(path)
    if not isinstance(value, dict):
        raise ValueError(f"{path}: must be a JSON object, got {type(value).__name__}")
    return cast("dict[str, Any]", value)


def _shorten(text: str) -> str:
    return text if len(text) <= 300 else f"{text[:297]}..."


def encode_utf8(text: str) -> bytes:
    r"""Encode text of ours as UTF-8, in which names of files are.

    On Linux a name may be no UTF-8: what is none of it is a lone surrogate, and is there as
    `\udce9`. Of JSON that is the same string, which names the file when it is read.
    """
    return text.encode("utf-8", "backslashreplace")


def write_atomically(path: Path, data: bytes | str) -> None:
    """Write a file (a string as by `encode_utf8`), replacing the one that is there.

    Raises:
        OSError: it cannot be written, for instance because the disk is full; what was there is
            still there.
    """
    with atomic_path(path) as beside:
        beside.write_bytes(encode_utf8(data) if isinstance(data, str) else data)


@contextmanager
def atomic_path(path: Path) -> Generator[Path]:
    """Give a temporary path beside `path` for the body to make a file or folder at; then rename it.

    If the body raises, the temporary is removed and `path` is untouched. A file replaces the file
    that is there; a folder replaces nothing but an empty folder. The folder that holds `path` must
    exist.

    Raises:
        FileExistsError: `path` is a folder with something in it, also one that another writer has
            made meanwhile, a device or a pipe.
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
        _flush_tree(beside)
        _rename_into_place(beside, path)
        _flush_path(path.parent)
    except OSError as error:
        if (
            error.errno in _DISK_FULL_ERRORS and error.filename is None
        ):  # a failed write does not say where
            raise OSError(error.errno, error.strerror, str(path.parent)) from error
        raise
    finally:
        _remove(beside)


def _rename_into_place(temporary: Path, path: Path) -> None:
    """Give a temporary path its name, unless a folder has got it meanwhile.

    Raises:
        FileExistsError: one has.
    """
    try:
        os.replace(temporary, path)
    except OSError:
        if path.is_dir() and any(path.iterdir()):
            raise FileExistsError(
                f"{path}: another writer has made it meanwhile; it is left as it is"
            ) from None
        raise


def merge_folder(source: Path, folder: Path, last_name: str) -> None:
    """Move the contents of one folder into another that holds more, `last_name` at the end.

    With the file `last_name` the other folder is what it should become; an earlier one is removed
    first. So it is never beside files of two writings, and if the process is killed anywhere, the
    same call with the same `source`, made anew, ends the work. Where all is there already, nothing
    is touched.
    """
    if not _is_contained(source, folder):
        _flush_tree(source)
        (folder / last_name).unlink(missing_ok=True)
        _flush_path(folder)
        for path in sorted(source.iterdir(), key=lambda p: (p.name == last_name, p.name)):
            if path.name == last_name:
                _flush_path(folder)
            _replace(path, folder / path.name)
        _flush_path(folder)
    _remove(source)


def _is_contained(source: Path, folder: Path) -> bool:
    """Return whether a folder holds all files of another, byte for byte."""
    for path in source.rglob("*"):
        there = folder / path.relative_to(source)
        if path.is_file() and not (there.is_file() and filecmp.cmp(path, there, shallow=False)):
            return False
    return True


def _replace(path: Path, destination: Path) -> None:
    """Rename a path; a folder that has the name, which no renaming replaces, is put aside first."""
    if destination.is_dir() and not destination.is_symlink():
        aside = destination.parent / f".{destination.name[:40]}.{secrets.token_hex(6)}.part"
        os.replace(destination, aside)
        os.replace(path, destination)
        _remove(aside)
    else:
        os.replace(path, destination)


def remove_partial_files(folder: Path) -> None:
    """Remove what interrupted writes left directly in `folder`, to which nobody else may write."""
    for left in folder.iterdir():
        if _PARTIAL_NAME.fullmatch(left.name):
            _remove(left)


def is_empty_folder(folder: Path, *, but_for: str | None = None) -> bool:
    """Return whether a folder is empty, but for what interrupted writes left in it.

    And for one that is named `but_for`.
    """
    return all(
        path.name == but_for or _PARTIAL_NAME.fullmatch(path.name) for path in folder.iterdir()
    )


def sha256(path: Path) -> str:
    """Compute the SHA-256 of a file, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def file_record(path: Path) -> dict[str, Any]:
    """Return the size and checksum of a file, as plain data."""
    return {"size": path.stat().st_size, "checksum": file_checksum(path)}


def check_file_record(path: Path, record: Mapping[str, Any], advice: str) -> None:
    """Compare a file with what `file_record` said of it.

    Raises:
        FileNotFoundError: it is missing.
        ValueError: it is another one; `advice` says what can be done.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path}: missing, though it was written")
    if (size := path.stat().st_size) != record.get("size"):
        raise ValueError(
            f"{path}: truncated or damaged: it has {size:,} bytes, not {record.get('size'):,}; "
            f"{advice}"
        )
    if file_checksum(path) != record.get("checksum"):
        raise ValueError(f"{path}: damaged: it is not as it was written; {advice}")


_BLOCK = 4096
"""Bytes that `checksum` sums up as one."""
_PIECE = 256 * _BLOCK
"""Bytes of a file that are in memory at once for its checksum."""


def checksum(data: memoryview, initial: int = 0) -> int:
    """Compute a checksum of bytes that finds damage at the speed of memory.

    The CRC-32 of the sums of 64-bit numbers of each block of 4,096 bytes, and of the rest: any one
    flipped bit changes it, and so does nearly everything that happens to a file by chance; nothing
    that is done on purpose is found. 4 ms for 100 MB, where SHA-256 takes 58 and CRC-32 alone 32.

    Args:
        data: the bytes.
        initial: the checksum of what precedes them.
    """
    import numpy as np  # here, since whoever only reads text does without it

    bytes_ = np.asarray(data)
    n = len(bytes_) // _BLOCK * _BLOCK
    sums = bytes_[:n].view("<u8").reshape(-1, _BLOCK // 8).sum(1, dtype=np.uint64)
    return zlib.crc32(bytes_[n:].tobytes(), zlib.crc32(sums.astype("<u8").tobytes(), initial))


def file_checksum(path: Path) -> str:
    """Compute the `checksum` of a file, in hexadecimal digits.

    Read by pieces: pages of a file that is mapped as a whole count as memory of the process.
    """
    result = checksum(memoryview(b""))
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            result = checksum(memoryview(piece), result)
    return f"{result:08x}"


def _flush_tree(path: Path) -> None:
    """Wait until a file, or a folder with all that is in it, is on the disk."""
    for parent, _, names in os.walk(path):  # of a file: nothing
        for name in names:
            _flush_path(Path(parent, name))
        if Path(parent) != path:
            _flush_path(Path(parent))
    _flush_path(path)


def _flush_path(path: Path) -> None:
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


@contextmanager
def lock_run_folder(folder: Path, *, wait: bool = False) -> Generator[None]:
    """Lock a run folder against training by other processes, until this process ends.

    Args:
        folder: the run folder.
        wait: whether to wait for other processes.

    Raises:
        ValueError: another process has the lock.
    """
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    with (folder / LOCK_FILE).open("wb") as file:
        try:
            # A record lock: unlike flock's, it does not live on in worker processes when this one
            # is killed.
            fcntl.lockf(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            raise ValueError(f"{folder}: another process is training in this folder") from None
        except OSError as error:
            if error.errno not in (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS):
                raise  # some file systems have no locks
        yield


def lock_holder(folder: Path) -> int | None:
    """Return the process that holds the lock of a folder, without taking it; None: there is none.

    A lock that this process holds is not seen.
    """
    try:
        import fcntl
    except ImportError:  # Windows
        return None
    is_apple = sys.platform == "darwin"
    # The C struct flock: l_type, l_whence, l_start, l_len, l_pid; Apple's begins with l_start.
    layout = "qqihh" if is_apple else "hhqqi4x"
    asked = (0, 0, 0, fcntl.F_WRLCK, os.SEEK_SET) if is_apple else (fcntl.F_WRLCK, 0, 0, 0, 0)
    try:
        with (folder / LOCK_FILE).open("r+b") as file:
            answer = fcntl.fcntl(file, fcntl.F_GETLK, struct.pack(layout, *asked))
    except OSError:  # no such file, or a file system without locks
        return None
    fields = struct.unpack(layout, answer)
    kind, pid = (fields[3], fields[2]) if is_apple else (fields[0], fields[4])
    return None if kind == fcntl.F_UNLCK else pid
