"""Arrays that are written to disk piece by piece, as .npy files."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from tokenize import TokenError
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import DTypeLike

from unmask.files import atomic_path, parser_errors_as_value_error


@contextmanager
def npy_appender(
    path: Path, element_type: DTypeLike, *width: int
) -> Generator[Callable[[np.ndarray], None]]:
    """Yield a function that appends rows to an array; at the end, the file at `path` is complete.

    Args:
        path: the file, replaced if it exists.
        element_type: element type, to which rows are converted.
        width: number of columns. None: the array has one dimension.
    """
    dtype = np.dtype(element_type)
    n_rows = 0
    with atomic_path(path) as beside, beside.open("w+b") as file:

        def append(rows: np.ndarray) -> None:
            nonlocal n_rows
            _write_numbers(file, rows.astype(dtype))
            n_rows += len(rows)

        _write_header(file, dtype, (0, *width))
        yield append
        file.seek(0)
        _write_header(file, dtype, (n_rows, *width))


def write_npy(path: Path, array: np.ndarray) -> None:
    """Write an array as `np.save` does; the caller makes the file atomic.

    Raises:
        OSError: it cannot be written. `np.save` does not say why: "8 requested and 0 written".
    """
    with path.open("wb") as file:
        _write_header(file, array.dtype, array.shape)
        _write_numbers(file, array)


def open_npy(path: Path, n_dimensions: int = 1) -> np.ndarray:
    """Map the numbers of a .npy file into memory; nothing in it is unpickled.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is truncated, damaged, or of other things than numbers.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file")
    with path.open("rb") as file:
        if file.read(6) != b"\x93NUMPY":  # np.load would also take an archive or a pickle
            raise ValueError(f"{path}: truncated or damaged: not an array of NumPy")
    with parser_errors_as_value_error(
        f"{path}: truncated or damaged", TypeError, SyntaxError, TokenError, KeyError
    ):
        found = np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
    if found.ndim != n_dimensions or found.dtype.kind not in "iuf":
        raise ValueError(
            f"{path}: must be numbers of {n_dimensions} axes, got {found.dtype} {found.shape}"
        )
    return found


def _write_numbers(file: BinaryIO, array: np.ndarray) -> None:
    file.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


def _write_header(file: BinaryIO, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
    """Write the head of the file; it is as long for any number of rows, by numpy's own spaces."""
    head: dict[str, Any] = {"descr": dtype.str, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, head)
    file.flush()
