"""Blocks of remote files on disk: at most so many bytes, shared by processes, whole or absent.

A block is a file of its bytes and their checksum. It is written beside and renamed, so that no
reader sees a part of it, and one that a failing disk has changed counts as absent. Which was not
read for the longest time is told by the times of the files. The sum of all sizes is kept in a file
and changed, as the blocks are, under a lock, before a block is written: at no time are there more
bytes than the limit, whatever the number of processes.
"""

import os
import secrets
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from unmask.files import checksum, lock_run_folder

_CHECKSUM_BYTES = 4
_TOTAL_FILE = "bytes"
_VERIFIED_FILE = "verified"
_KEPT_SHARE = 0.9
"""Of the limit, that is left when blocks are removed."""
_TOUCH_SECONDS = 60.0
"""Seconds after which a further reading is recorded."""
_THREAD_LOCK = threading.Lock()
"""Of all caches of this process: locks of files keep out other processes only."""


class BlockCache:
    """Blocks by the key of their file and their number."""

    def __init__(self, folder: Path, limit: int) -> None:
        self.folder, self.limit = folder, limit
        self._verified: dict[Path, float] = {}
        folder.mkdir(parents=True, exist_ok=True)
        with self._locked():
            self._write_total(self._remove_oldest(self.limit))

    def read(self, key: str, number: int, start: int, end: int) -> bytes | None:
        """Read bytes of a block; None: it is not there, or damaged.

        At the first time that this process reads a block, it is compared with its checksum.
        """
        path = self._path(key, number)
        try:
            descriptor = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            self._verified.pop(path, None)
            return None
        try:
            if path not in self._verified and not _is_intact(descriptor):
                return None
            data = os.pread(descriptor, end - start, start)
        finally:
            os.close(descriptor)
        now = time.monotonic()
        if now - self._verified.get(path, -_TOUCH_SECONDS) >= _TOUCH_SECONDS:
            self._verified[path] = now
            with suppress(FileNotFoundError):
                os.utime(path)
        return data if len(data) == end - start else None

    def has(self, key: str, number: int) -> bool:
        """Return whether a block is there, intact or not."""
        return self._path(key, number).exists()

    def write(self, key: str, number: int, data: bytes) -> None:
        """Write a block, and remove others where there is no room.

        Raises:
            OSError: it cannot be written, for instance because the disk is full.
        """
        path, size = self._path(key, number), len(data) + _CHECKSUM_BYTES
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.parent / f".{path.name}.{secrets.token_hex(6)}.part"
        with self._locked():
            total = self._read_total() + size
            if total > self.limit:
                total = self._remove_oldest(int(self.limit * _KEPT_SHARE) - size) + size
            self._write_total(total)
            try:
                with beside.open("wb") as file:
                    file.write(data)
                    file.write(checksum(memoryview(data)).to_bytes(_CHECKSUM_BYTES, "little"))
                os.replace(beside, path)
            finally:
                beside.unlink(missing_ok=True)

    def is_verified(self, key: str) -> bool:
        """Return whether all blocks of a file were once compared with the file's digest."""
        return (self.folder / key / _VERIFIED_FILE).exists()

    def mark_verified(self, key: str) -> None:
        """Remember that all blocks of a file have the file's digest."""
        with suppress(OSError):  # is found out again
            (self.folder / key / _VERIFIED_FILE).touch()

    def total(self) -> int:
        """Return the bytes of all blocks."""
        with self._locked():
            return self._sum()

    def _sum(self) -> int:
        return sum(size for _, size, _ in self._files())

    def _path(self, key: str, number: int) -> Path:
        return self.folder / key / f"{number:08d}"

    @contextmanager
    def _locked(self) -> Generator[None]:
        """Keep out other threads, and other processes."""
        with _THREAD_LOCK, lock_run_folder(self.folder, wait=True):
            yield

    def _read_total(self) -> int:
        try:
            return int((self.folder / _TOTAL_FILE).read_text())
        except (FileNotFoundError, ValueError):  # ValueError: the machine stopped meanwhile
            return self._sum()

    def _write_total(self, total: int) -> None:
        (self.folder / _TOTAL_FILE).write_text(str(total))

    def _remove_oldest(self, wanted: int) -> int:
        """Remove what was not read for the longest time; return how many bytes are left."""
        files = sorted(self._files())
        total = sum(size for _, size, _ in files)
        for _, size, path in files:
            # Who holds the lock writes: what is begun is of a process that was killed.
            if total > wanted or path.suffix == ".part":
                path.unlink(missing_ok=True)
                total -= size
        return total

    def _files(self) -> list[tuple[float, int, Path]]:
        """List the time of the last use, the size and the path of each block."""
        found: list[tuple[float, int, Path]] = []
        for folder in os.scandir(self.folder):
            if not folder.is_dir():
                continue
            for entry in os.scandir(folder.path):
                with suppress(FileNotFoundError):
                    facts = entry.stat()
                    found.append((facts.st_mtime, facts.st_size, Path(entry.path)))
        return found


def _is_intact(descriptor: int) -> bool:
    size = os.fstat(descriptor).st_size - _CHECKSUM_BYTES
    if size < 0:
        return False
    data = os.pread(descriptor, size + _CHECKSUM_BYTES, 0)
    expected = int.from_bytes(data[size:], "little")
    return checksum(memoryview(data)[:size]) == expected
