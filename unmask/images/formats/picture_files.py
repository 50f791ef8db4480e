"""Pictures that are files: of a folder, or of a .zip archive.

Nothing is unpacked to disk. What an archive says of its members is compared with its own size, and
with limits, before any of them is read.
"""

import logging
import os
import stat
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Protocol, runtime_checkable

from unmask.files import parser_errors_as_value_error
from unmask.images.records import MAX_ENCODED_BYTES, PICTURE_SUFFIXES, ImageData, ImageRecord
from unmask.text.documents import files_in_folder
from unmask.text.formats.records import format_names

_log = logging.getLogger(__name__)

_IGNORED_PARTS = ("__MACOSX", "Thumbs.db", "desktop.ini")
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""Others may ask for gigabytes of memory to unpack a byte."""
_ZIP_ERRORS = (zipfile.BadZipFile, zipfile.LargeZipFile, RuntimeError, OSError)


@runtime_checkable
class PictureFiles(Protocol):
    """Files in which pictures are looked up by name."""

    def names(self) -> Iterable[str]:
        """Return the names of all files, with `/` between folders, sorted."""
        ...

    def __contains__(self, name: str) -> bool: ...

    def location(self, name: str) -> str:
        """Return where a file is, for messages."""
        ...

    def read(self, name: str) -> bytes:
        """Read a file.

        Raises:
            FileNotFoundError: there is none of this name.
            ValueError: it is too large or damaged, or the name leads elsewhere.
        """
        ...


class FolderFiles:
    """The files of a folder and of those in it, but for hidden ones."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def names(self) -> list[str]:
        """Return the names of all files."""
        found = [path.relative_to(self.folder) for path in files_in_folder(self.folder)]
        return [path.as_posix() for path in found if not set(path.parts) & {*_IGNORED_PARTS}]

    def __contains__(self, name: str) -> bool:
        return is_plain_name(name) and (self.folder / name).is_file()

    def location(self, name: str) -> str:
        """Return the path of a file."""
        return str(self.folder / name)

    def read(self, name: str) -> bytes:
        """Read a file.

        Raises:
            FileNotFoundError: there is none of this name.
            ValueError: it is too large, or the name leads out of the folder.
        """
        if not is_plain_name(name):
            raise ValueError(f"{self.folder}: {name!r} must be the name of a file within it")
        return read_picture_file(self.folder / name)


class ZipFiles:
    """The members of a .zip archive that are files, but for hidden ones.

    May be sent to another process, and used after a fork: each process opens the archive by itself.

    Raises:
        ValueError: it is damaged, or a member is encrypted, packed by an unusual method, a link,
            there twice, too large, or has a name that leads out of the archive.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._archive, self._process = open_archive(path), os.getpid()
        self._members = _checked_members(self._archive, path)

    def __reduce__(self) -> tuple[type["ZipFiles"], tuple[Path]]:
        return ZipFiles, (self.path,)

    def names(self) -> list[str]:
        """Return the names of all members."""
        return sorted(self._members)

    def __contains__(self, name: str) -> bool:
        return name in self._members

    def location(self, name: str) -> str:
        """Return where a member is: the archive and its name there."""
        return f"{self.path}: {name}"

    def read(self, name: str) -> bytes:
        """Read a member.

        Raises:
            FileNotFoundError: there is none of this name.
            ValueError: it is damaged.
        """
        if name not in self._members:
            raise FileNotFoundError(f"{self.path}: no member {name!r}")
        if self._process != os.getpid():  # processes would move each other's place in the file
            self._archive, self._process = open_archive(self.path), os.getpid()
        info = self._members[name]
        with (
            parser_errors_as_value_error(f"{self.location(name)}: damaged", *_ZIP_ERRORS),
            self._archive.open(info) as member,
        ):
            data = member.read(info.file_size + 1)
        if len(data) != info.file_size:
            raise ValueError(
                f"{self.location(name)}: damaged: it has {len(data):,} bytes, declared "
                f"{info.file_size:,}"
            )
        return data


def open_archive(path: Path) -> zipfile.ZipFile:
    """Open a .zip archive, or an .npz file, which is one.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is damaged, or something else.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file")
    with parser_errors_as_value_error(f"{path}: damaged, or not a zip archive", *_ZIP_ERRORS):
        return zipfile.ZipFile(path)


def check_member(info: zipfile.ZipInfo, path: Path) -> None:
    """Check what an archive says of a member.

    Raises:
        ValueError: it is encrypted, packed by an unusual method, a link, or has a name that leads
            out of the archive.
    """
    where = f"{path}: {info.filename}"
    if not is_plain_name(info.filename):
        raise ValueError(f"{path}: member {info.filename!r} leads out of the archive")
    if stat.S_ISLNK(info.external_attr >> 16):
        raise ValueError(f"{where}: a link, which is not followed")
    if info.flag_bits & 1:
        raise ValueError(f"{where}: encrypted")
    if info.compress_type not in _METHODS:
        raise ValueError(
            f"{where}: packed by method {info.compress_type}; read are 0 (stored) and 8 (deflate)"
        )


def _checked_members(archive: zipfile.ZipFile, path: Path) -> dict[str, zipfile.ZipInfo]:
    members: dict[str, zipfile.ZipInfo] = {}
    for info in archive.infolist():
        if info.is_dir() or _is_ignored(info.filename):
            continue
        check_member(info, path)
        if info.filename in members:
            raise ValueError(f"{path}: two members are called {info.filename!r}")
        if info.file_size > MAX_ENCODED_BYTES:
            raise ValueError(
                f"{path}: {info.filename}: declares {info.file_size:,} bytes, of which at most "
                f"{MAX_ENCODED_BYTES:,} are read"
            )
        members[info.filename] = info
    packed, size = sum(one.compress_size for one in members.values()), path.stat().st_size
    if packed > size:
        raise ValueError(
            f"{path}: its members declare {packed:,} packed bytes, but it has {size:,}: "
            "they overlap, or it is truncated"
        )
    return members


def _is_ignored(name: str) -> bool:
    parts = PurePosixPath(name).parts
    return any((part.startswith(".") and part != "..") or part in _IGNORED_PARTS for part in parts)


def is_plain_name(name: str) -> bool:
    """Return whether a name is one of a file within a folder, wherever the folder is."""
    path = PurePosixPath(name)
    drive = name[:1].isalpha() and name[1:2] == ":"
    return bool(path.parts) and not (
        path.is_absolute() or ".." in path.parts or "\0" in name or drive
    )


def read_picture_file(path: Path) -> bytes:
    """Read a file that is a picture.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it has more than `MAX_ENCODED_BYTES` bytes, or is no file.
    """
    if not path.is_file():
        if path.exists():
            raise ValueError(f"{path}: must be a file, not a folder or a device")
        raise FileNotFoundError(f"{path}: no such file")
    if (size := path.stat().st_size) > MAX_ENCODED_BYTES:
        raise ValueError(
            f"{path}: has {size:,} bytes, of which at most {MAX_ENCODED_BYTES:,} are read"
        )
    return path.read_bytes()


def picture_names(files: PictureFiles, location: object, known: Sequence[str] = ()) -> list[str]:
    """List the files that are pictures, and name the others in a warning of the log.

    Args:
        files: a folder or an archive.
        location: where it is, for messages.
        known: names of files that are known to be something else.

    Raises:
        FileNotFoundError: there are no pictures.
    """
    names = [*files.names()]
    found = [name for name in names if is_picture_name(name)]
    others = [name for name in names if not is_picture_name(name) and name not in known]
    if not found:
        raise FileNotFoundError(
            f"{location}: no picture in it ({', '.join(PICTURE_SUFFIXES)}); found: "
            f"{format_names(others)}"
        )
    if others:
        _log.warning(
            "%s: files that are no pictures are not read: %s", location, format_names(others)
        )
    return found


def is_picture_name(name: str) -> bool:
    """Return whether a file's name ends as a picture's."""
    return PurePosixPath(name).suffix.lower() in PICTURE_SUFFIXES


def labeled_by_folder(
    files: PictureFiles, names: Sequence[str], *, skip_wrapper: bool
) -> Iterator[ImageRecord]:
    """Yield a record for each picture, whose label is the first folder of its name.

    As torchvision's `ImageFolder` reads them; a picture in no folder has no label.

    Args:
        files: a folder or an archive.
        names: of the pictures.
        skip_wrapper: a folder that holds everything, and in it pictures in several folders only, is
            no label: archives are often made of one folder.
    """
    at = 1 if skip_wrapper and _is_wrapped(names) else 0
    for name in names:
        folders = PurePosixPath(name).parts[:-1]
        yield ImageRecord(
            location=files.location(name),
            name=name,
            load=loader_of(files, name),
            label=folders[at] if len(folders) > at else None,
        )


def loader_of(files: PictureFiles, name: str) -> Callable[[], ImageData]:
    """Return the function that reads a file."""
    return partial(files.read, name)


def _is_wrapped(names: Sequence[str]) -> bool:
    folders = [PurePosixPath(name).parts[:-1] for name in names]
    return (
        all(len(parts) > 1 for parts in folders)
        and len({parts[0] for parts in folders}) == 1
        and len({parts[1] for parts in folders}) > 1
    )
