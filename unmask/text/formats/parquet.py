"""Parquet: one column of text, and what all readers of Parquet share."""

import codecs
import tempfile
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from unmask.files import PARSER_ERRORS
from unmask.text.formats.decompress import compression_suffix, read_decompressed, require_module
from unmask.text.formats.records import (
    TextInPieces,
    TextRecord,
    check_column,
    check_text,
    format_error,
)
from unmask.text.lines import REPLACE_HINT, BlankLines, EncodingErrors

if TYPE_CHECKING:
    import pyarrow

_BUFFER_BYTES = 2**20  # bytes of a column read at a time
_BOMB_SIZE, _BOMB_RATIO = 2**30, 250  # as of compressed files: no text shrinks so much
_ROWS = 32  # rows decoded at a time: few, since each may be long
_LARGE_BATCH_BYTES = 2**24
_PIECE_BYTES = 2**20  # bytes of a value decoded at a time
_BATCH_BYTES = 2**26  # bytes of them, where they are longer than most


def read_parquet(
    path: Path,
    column: str,
    encoding_errors: EncodingErrors = "strict",
    blank_lines: BlankLines | None = None,
) -> Iterator[TextRecord]:
    """Read one column of a Parquet file, a few rows at a time.

    With `blank_lines`, empty texts are yielded, too.

    Raises:
        ValueError: the file is damaged, has no such column, or the column is no text.
        ImportError: pyarrow is not installed.
    """
    for number, pieces in read_parquet_in_pieces(path, column, encoding_errors):
        text = "".join(pieces)
        if text or blank_lines is not None:
            yield number, text


def read_parquet_in_pieces(
    path: Path, column: str, encoding_errors: EncodingErrors = "strict"
) -> Iterator[TextInPieces]:
    """Read as `read_parquet`, empty texts, too, and a long text in pieces.

    Raises:
        ValueError: see there; of a long text as late as its piece is read.
        ImportError: see there.
    """
    with seekable_parquet(path) as file:
        import pyarrow
        from pyarrow import parquet

        with arrow_errors(path):
            opened = parquet.ParquetFile(file, pre_buffer=False, buffer_size=_BUFFER_BYTES)
            schema = opened.schema_arrow
        kind, budget, number = _text_type(path, column, schema), ExpansionBudget(path), 0
        with arrow_errors(path):
            at_once = rows_per_batch(opened, file, column)
        for batch in read_batches(path, opened, [column], at_once):
            values = batch.column(column)
            if values.nbytes > _LARGE_BATCH_BYTES:
                pyarrow.default_memory_pool().release_unused()  # three times as many
            if pyarrow.types.is_dictionary(kind):
                values = values.dictionary_decode()
            # As bytes: Arrow does not check that strings are UTF-8.
            for data in _views(values.cast(pyarrow.large_binary())):
                number += 1
                budget.spend(len(data))
                where = f"{path}:{number}"
                yield number, _decode_utf8(data, where, column, encoding_errors)


@contextmanager
def seekable_parquet(path: Path) -> Generator[Path | BinaryIO, None, None]:
    """Give a file's path, or the temporary file to which a compressed one is unpacked.

    Parquet is read from its end.

    Raises:
        ImportError: pyarrow is not installed.
    """
    require_module("pyarrow", "reading .parquet")
    if compression_suffix(path) is None:
        yield path
        return
    with tempfile.TemporaryFile() as file:
        for data in read_decompressed(path):
            file.write(data)
        file.seek(0)
        yield file


def read_batches(
    path: Path, parquet_file: Any, columns: Sequence[str] | None, n_rows: int
) -> Iterator[Any]:
    """Yield `n_rows` rows of some columns, or of all, at a time.

    Raises:
        ValueError: the file is damaged.
    """
    batches = parquet_file.iter_batches(n_rows, columns=None if columns is None else list(columns))
    while True:
        with arrow_errors(path):
            batch = next(batches, None)
        if batch is None:
            return
        yield batch


def rows_per_batch(parquet_file: Any, file: Path | BinaryIO, column: str) -> int:
    """Return how many rows are decoded together: few, where a file says a long value in many rows.

    Values of a dictionary are once in the file, and in each row in memory.

    Args:
        parquet_file: the file, opened by Arrow.
        file: where it is.
        column: Parquet path of the column; one within a struct is "image.bytes".

    Raises:
        ValueError: the file says what no Parquet file can (within `arrow_errors`).
    """
    at = [parquet_file.schema.column(i).path for i in range(len(parquet_file.schema))].index(column)
    longest = 1
    with file.open("rb") if isinstance(file, Path) else nullcontext(file) as read:
        for i in range(parquet_file.metadata.num_row_groups):
            chunk = parquet_file.metadata.row_group(i).column(at)
            longest = max(longest, chunk.total_uncompressed_size // max(1, chunk.num_values))
            if chunk.has_dictionary_page:
                read.seek(chunk.dictionary_page_offset)
                longest = max(longest, _page_size(read.read(16)))
    return max(1, min(_ROWS, _BATCH_BYTES // longest))


def _page_size(header: bytes) -> int:
    """Return the bytes of a page, unpacked: the second field of its header.

    In Thrift's compact form the first two are each a byte that says "the next field, an int32", and
    a zigzag varint.
    """
    values: list[int] = []
    header, at = header.ljust(32, b"\0"), 0  # so that it ends
    while len(values) < 2:
        if header[at] != 0x15:
            raise ValueError("a page of the dictionary begins with no header")
        value = shift = 0
        while True:
            at += 1
            value |= (header[at] & 0x7F) << shift
            shift += 7
            if not header[at] & 0x80:
                break
        at += 1
        values.append(value >> 1)
    return values[1]


def _text_type(path: Path, column: str, schema: "pyarrow.Schema") -> "pyarrow.DataType":
    from pyarrow import types

    check_column(path, column, schema.names)
    kind = schema.field(column).type
    plain = kind.value_type if types.is_dictionary(kind) else kind
    of_text = types.is_string, types.is_large_string, types.is_string_view, types.is_null
    if not any(fits(plain) for fits in of_text):
        raise ValueError(f"{path}: column {column!r} must be text, got {kind}")
    return kind


def _views(values: Any) -> Iterator[memoryview]:
    """Yield the values of an array of large binary without a copy; nothing (null) is empty."""
    _, offsets, data = values.buffers()
    ends = memoryview(offsets).cast("B").cast("q")[values.offset :][: len(values) + 1].tolist()
    view = memoryview(b"" if data is None else data)
    for valid, (start, end) in zip(values.is_valid().to_pylist(), pairwise(ends), strict=True):
        yield view[start:end] if valid else view[:0]


def _decode_utf8(
    value: memoryview, where: str, column: str, encoding_errors: EncodingErrors
) -> Iterator[str]:
    decoder, end = codecs.getincrementaldecoder("utf-8")(encoding_errors), 0
    while end < len(value):
        part = value[end : end + _PIECE_BYTES]
        end += len(part)
        try:
            text = decoder.decode(part, end == len(value))
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{where}: invalid UTF-8 at byte offset {end - len(error.object) + error.start} of "
                f"{column!r} ({error.reason}); convert it to UTF-8 {REPLACE_HINT}"
            ) from error
        yield check_text(text, where, column, encoding_errors)


class ExpansionBudget:
    """Bytes that may be made of a file: a value that is stored once may be in many rows.

    Args:
        path: of the file.
        min_bytes: so many may be made of any file.
    """

    def __init__(self, path: Path, min_bytes: int = _BOMB_SIZE) -> None:
        self.path = path
        self.max_bytes = max(min_bytes, _BOMB_RATIO * path.stat().st_size)
        self.spent_bytes = 0

    def spend(self, n_bytes: int) -> None:
        """Count bytes that are made.

        Raises:
            ValueError: there are too many.
        """
        self.spent_bytes += n_bytes
        if self.spent_bytes > self.max_bytes:
            raise ValueError(
                f"{self.path}: expands more than {_BOMB_RATIO} times, to over {self.max_bytes:,} "
                "bytes, as no text does: it repeats a long value"
            )


@contextmanager
def arrow_errors(path: Path) -> Generator[None, None, None]:
    """Make a ValueError that names the file of what Arrow raises of damaged or odd data."""
    import pyarrow

    try:
        yield
    except (FileNotFoundError, PermissionError):
        raise
    except (pyarrow.ArrowException, OSError, *PARSER_ERRORS, KeyError, TypeError) as error:
        raise ValueError(f"{path}: damaged, or not Parquet: {format_error(error)}") from error
