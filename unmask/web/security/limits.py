"""How much may be sent: sizes of files and archives, and the number of open streams."""

import shutil
import weakref
import zipfile
from dataclasses import dataclass
from pathlib import Path

from unmask.files import parser_errors_as_value_error

_FREE_BYTES = 1 << 28
"""Bytes of the disk that uploads leave free."""


class TooMuchError(ValueError):
    """More was sent, or asked for, than is allowed."""

    def __init__(self, line: str, status: int = 413) -> None:
        super().__init__(line)
        self.status = status


@dataclass(frozen=True, kw_only=True)
class UploadLimits:
    """How much may be uploaded."""

    file_bytes: int
    """Of a file, and of what an archive holds."""
    files: int = 1000
    """Number of uploaded files."""

    def check_size(self, n_bytes: int) -> None:
        """Check the size of a file.

        Raises:
            TooMuchError: it is too large.
        """
        if n_bytes > self.file_bytes:
            allowed = f"{self.file_bytes / 2**30:.3g} GiB"
            raise TooMuchError(f"the file has more than the allowed {allowed} (--max-upload)")

    def check_room(self, folder: Path, n_bytes: int) -> None:
        """Check that a disk has room and a folder not too many files.

        Raises:
            TooMuchError: there is none.
        """
        if sum(1 for _ in folder.iterdir()) >= self.files:
            raise TooMuchError(f"there are {self.files:,} uploaded files already; delete some")
        free = shutil.disk_usage(folder).free - _FREE_BYTES
        if n_bytes > free:
            raise TooMuchError(
                f"the disk has {max(free, 0) / 2**20:,.0f} MiB for uploads", status=507
            )

    def check_archive(self, path: Path) -> None:
        """Check what a zip archive would take unpacked; nothing is unpacked.

        Raises:
            TooMuchError: it would be too much.
            ValueError: it is damaged.
        """
        if path.suffix.lower() != ".zip" and not zipfile.is_zipfile(path):
            return
        with (
            parser_errors_as_value_error(path.name, zipfile.BadZipFile),
            zipfile.ZipFile(path) as archive,
        ):
            total = sum(one.file_size for one in archive.infolist())
        if total > self.file_bytes:
            raise TooMuchError(f"{path.name} would unpack to {total / 2**30:,.1f} GiB")


class StreamLimit:
    """Counts open streams."""

    def __init__(self, most: int = 64) -> None:
        self._most = most
        self._open: weakref.WeakSet[object] = weakref.WeakSet()

    def add(self, stream: object) -> None:
        """Count a stream until it is removed, or nobody holds it.

        Raises:
            TooMuchError: too many are open.
        """
        if len(self._open) >= self._most:
            raise TooMuchError(
                f"{self._most} streams are open already; close other pages", status=503
            )
        self._open.add(stream)

    def remove(self, stream: object) -> None:
        """Count a stream no more."""
        self._open.discard(stream)
