"""Pictures that are arrays already: IDX files (MNIST and its like) and .npz archives of NumPy.

Rows are read one by one; of the declared sizes nothing is allocated before the file was seen to
have as much.
"""

import math
import re
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from tokenize import TokenError
from typing import Any, cast

import numpy as np
from jaxtyping import UInt8

from unmask.files import parser_errors_as_value_error
from unmask.images.formats.picture_files import check_member, open_archive
from unmask.images.records import (
    MAX_ENCODED_BYTES,
    ImageColumns,
    ImageRecord,
    check_no_columns,
)
from unmask.text.formats.decompress import compression_suffix, read_decompressed

MAX_LABEL_BYTES = 2**28
"""Bytes that the labels of an array of pictures may have."""

_IDX_NAME = re.compile(r"(.*)images([-.])idx([34])-ubyte(\.gz)?")
_IDX_UINT8 = 8  # the code of unsigned bytes in an IDX file's magic number
_IMAGES, _LABELS = ("images", "image", "x", "data"), ("labels", "label", "y", "targets")
_NPY_ERRORS = (
    TypeError, SyntaxError, TokenError, KeyError, OSError, RuntimeError, zipfile.BadZipFile,
)  # fmt: skip


def is_idx_name(name: str) -> bool:
    """Return whether a file's name is one of pictures in an IDX file."""
    return _IDX_NAME.fullmatch(name) is not None


def read_idx(path: Path, columns: ImageColumns) -> Iterator[ImageRecord]:
    """Yield the pictures of an IDX file: `NAME-images-idx3-ubyte`, also with .gz.

    The format is that of LeCun's MNIST: a magic number 0 0 8 n, n sizes of 32 bits, most
    significant byte first, and the pixels row by row. Labels are read from
    `NAME-labels-idx1-ubyte` in the same folder, if it is there.

    Args:
        path: the file of the pictures.
        columns: none, since there are none.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: a file is of other things, or has more or less bytes than it declares.
    """
    check_no_columns(columns, path)
    shape, rows = _read_idx_rows(path, (3, 4))
    labels: list[int] | None = None
    if (beside := _idx_labels(path)) is not None:
        (n,), values = _read_idx_rows(beside, (1,))
        if n != shape[0]:
            raise ValueError(f"{beside}: {n:,} labels, but {path.name} has {shape[0]:,} pictures")
        labels = [int(value) for value in values]
    return _array_records(path, rows, None if labels is None else [str(one) for one in labels])


def read_npz(path: Path, columns: ImageColumns) -> Iterator[ImageRecord]:
    """Yield the pictures of an .npz file: uint8 [n h w], [n h w 1] or [n h w 3], and their labels.

    Arrays are `images` and `labels`, or `x` and `y`, or those that `columns` names. Nothing is
    unpickled.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: there are no such arrays, they are of other types or shapes, or the file is
            damaged.
    """
    if columns.captions or columns.where:
        raise ValueError(
            f"{path}: arrays of .npz have no captions and no other columns to choose by"
        )
    members = _npz_members(path)
    name = _array_name(path, members, columns.image, _IMAGES)
    if name is None:
        raise ValueError(
            f"{path}: which array holds the pictures? None is called 'images', only "
            f"{', '.join(map(repr, members)) or 'none'}; name it (image of ImageColumns; "
            "pictures.columns.image of a recipe)"
        )
    label = _array_name(path, members, columns.label, _LABELS)
    labels = None if label is None else _read_npz_labels(path, label)
    shape, rows = _read_npz_rows(path, name)
    if labels is not None and len(labels) != shape[0]:
        raise ValueError(
            f"{path}: {len(labels):,} labels in {label!r}, but {shape[0]:,} pictures in {name!r}"
        )
    return _array_records(path, rows, labels)


def _array_records(
    path: Path, rows: Iterator[UInt8[np.ndarray, "..."]], labels: Sequence[str] | None
) -> Iterator[ImageRecord]:
    for i, row in enumerate(rows):
        yield ImageRecord(
            location=f"{path}:{i + 1}",
            name=str(i + 1),
            load=_holding(row),
            label=None if labels is None else labels[i],
        )


def _holding(row: UInt8[np.ndarray, "..."]) -> Callable[[], UInt8[np.ndarray, "..."]]:
    return lambda: row


# IDX


def _idx_labels(path: Path) -> Path | None:
    """Find the file of the labels of a file of pictures; None if there is none."""
    found = _IDX_NAME.fullmatch(path.name)
    if found is None:
        raise ValueError(f"{path}: the name must be one like train-images-idx3-ubyte or .gz")
    start, joint = found[1], found[2]
    names = [f"{start}labels{joint}idx1-ubyte{ending}" for ending in (found[4] or "", "", ".gz")]
    return next((path.parent / name for name in names if (path.parent / name).is_file()), None)


def _read_idx_rows(
    path: Path, n_axes: tuple[int, ...]
) -> tuple[tuple[int, ...], Iterator[UInt8[np.ndarray, "..."]]]:
    """Read the shape, and the rows as they are asked for."""
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file")
    data = _Bytes(path)
    magic = data.read(4)
    if len(magic) < 4 or magic[:3] != bytes((0, 0, _IDX_UINT8)) or magic[3] not in n_axes:
        data.close()
        raise ValueError(
            f"{path}: not an IDX file of unsigned bytes with "
            f"{' or '.join(map(str, n_axes))} axes: it begins with {magic!r}"
        )
    sizes = data.read(4 * magic[3])
    shape = tuple(int(size) for size in np.frombuffer(sizes[: len(sizes) // 4 * 4], ">u4"))
    row_bytes = math.prod(shape[1:])
    actual = path.stat().st_size if compression_suffix(path) is None else None
    declared = 4 + 4 * magic[3] + math.prod(shape)
    if len(shape) < magic[3] or actual not in (None, declared) or row_bytes > MAX_ENCODED_BYTES:
        data.close()
        raise ValueError(
            f"{path}: truncated or damaged: declares {declared:,} bytes (shape {shape}), has "
            f"{actual or path.stat().st_size:,}"
        )
    if not math.prod(shape):
        data.close()
        raise ValueError(f"{path}: it holds nothing: its shape is {shape}")
    return shape, _idx_rows(path, data, shape, row_bytes)


def _idx_rows(
    path: Path, data: "_Bytes", shape: tuple[int, ...], row_bytes: int
) -> Iterator[UInt8[np.ndarray, "..."]]:
    with closing(data):
        for i in range(shape[0]):
            row = data.read(row_bytes)
            if len(row) < row_bytes:
                raise ValueError(f"{path}: truncated: it ends within row {i + 1} of {shape[0]:,}")
            yield np.frombuffer(row, np.uint8).reshape(shape[1:])
        if data.read(1):
            raise ValueError(f"{path}: damaged: it goes on after its {shape[0]:,} rows")


class _Bytes:
    """The bytes of a file, decompressed, as many as are asked for at a time."""

    def __init__(self, path: Path) -> None:
        self._parts = read_decompressed(path)
        self._held = bytearray()

    def read(self, n: int) -> bytes:
        """Read `n` bytes, or what is left."""
        while len(self._held) < n and (part := next(self._parts, None)) is not None:
            self._held += part
        taken = bytes(self._held[:n])
        del self._held[:n]
        return taken

    def close(self) -> None:
        """Close the file."""
        close = getattr(self._parts, "close", None)
        if close is not None:
            close()


# NumPy


def _npz_members(path: Path) -> list[str]:
    """List the arrays of an .npz file."""
    with open_archive(path) as archive:
        for info in archive.infolist():
            check_member(info, path)
        return [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]


def _array_name(
    path: Path, members: Sequence[str], given: str | None, usual: Sequence[str]
) -> str | None:
    if given is None:
        return next((name for name in usual if name in members), None)
    if given not in members:
        raise ValueError(f"{path}: no array {given!r}, only {', '.join(map(repr, members))}")
    return given


def _read_header(path: Path, name: str, member: Any, size: int) -> tuple[tuple[int, ...], Any]:
    """Read shape and type of an array, and compare them with its size.

    Raises:
        ValueError: they disagree, or it is of objects or stored column by column.
    """
    where = f"{path}: array {name!r}"
    with parser_errors_as_value_error(f"{where}: damaged", *_NPY_ERRORS):
        version = np.lib.format.read_magic(member)
        if version not in ((1, 0), (2, 0)):
            raise ValueError(f"version {version} of .npy is not read")
        read = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }[version]
        shape, by_columns, dtype = read(member)
    declared = member.tell() + math.prod(shape) * dtype.itemsize
    if dtype.hasobject or (by_columns and len(shape) > 1):
        kind = "objects" if dtype.hasobject else "an array stored column by column (Fortran order)"
        raise ValueError(f"{where}: holds {kind}, which are not read")
    if declared != size:
        raise ValueError(
            f"{where}: truncated or damaged: {dtype} {shape} takes {declared:,} bytes, it has "
            f"{size:,}"
        )
    return shape, dtype


def _open_array(archive: zipfile.ZipFile, path: Path, name: str) -> zipfile.ZipExtFile:
    with parser_errors_as_value_error(f"{path}: array {name!r}: damaged", *_NPY_ERRORS):
        return cast("zipfile.ZipExtFile", archive.open(f"{name}.npy"))


def _read_npz_labels(path: Path, name: str) -> list[str]:
    with open_archive(path) as archive:
        info = archive.getinfo(f"{name}.npy")
        with _open_array(archive, path, name) as member:
            shape, dtype = _read_header(path, name, member, info.file_size)
            flat = len(shape) == 1 or (len(shape) == 2 and shape[1] == 1)
            if not flat or dtype.kind not in "iuU" or info.file_size > MAX_LABEL_BYTES:
                raise ValueError(
                    f"{path}: array {name!r}: labels must be whole numbers or strings [n], got "
                    f"{dtype} {shape}"
                )
            with parser_errors_as_value_error(f"{path}: array {name!r}: damaged", *_NPY_ERRORS):
                data = member.read()
    return [str(value) for value in np.frombuffer(data, dtype).tolist()]


def _read_npz_rows(
    path: Path, name: str
) -> tuple[tuple[int, ...], Iterator[UInt8[np.ndarray, "..."]]]:
    with open_archive(path) as archive:
        info = archive.getinfo(f"{name}.npy")
        with _open_array(archive, path, name) as member:
            shape, dtype = _read_header(path, name, member, info.file_size)
    if dtype != np.uint8 or len(shape) not in (3, 4) or not math.prod(shape):
        raise ValueError(
            f"{path}: array {name!r}: pictures must be uint8 [n h w], [n h w 1] or [n h w 3], got "
            f"{dtype} {shape}"
        )
    return shape, _npz_rows(path, name, shape)


def _npz_rows(path: Path, name: str, shape: tuple[int, ...]) -> Iterator[UInt8[np.ndarray, "..."]]:
    row_bytes = math.prod(shape[1:])
    with open_archive(path) as archive, _open_array(archive, path, name) as member:
        _read_header(path, name, member, archive.getinfo(f"{name}.npy").file_size)
        for _ in range(shape[0]):
            with parser_errors_as_value_error(f"{path}: array {name!r}: damaged", *_NPY_ERRORS):
                data = member.read(row_bytes)
                if len(data) < row_bytes:
                    raise EOFError("it ends too early")
            yield np.frombuffer(data, np.uint8).reshape(shape[1:])
