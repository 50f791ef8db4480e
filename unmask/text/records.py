"""Files of records (JSONL, CSV, TSV, Parquet) -> one column of text, record by record."""

import json
import re
import reprlib
import tempfile
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from unmask.files import PARSER_ERRORS, parse_json
from unmask.text.decompress import compression_suffix, read_decompressed, require_module
from unmask.text.lines import REPLACE_HINT, EncodingErrors, is_blank, read_lines, replace_nul

if TYPE_CHECKING:
    import pyarrow

MAX_RECORD_CHARACTERS = 2**27
"""Characters that a record may have: unlike a line of plain text it is understood only whole."""

TextRecord = tuple[int, str]
"""The line at which a record begins (its row, where there are no lines), from 1, and its text."""

_QUOTED_FIELD = re.compile('"([^"]*+(?:""[^"]*+)*+)"')
_PLAIN_FIELD = re.compile('[^",]*+')
_SURROGATE = re.compile("[\ud800-\udfff]")
_PARQUET_BUFFER_BYTES = 2**20  # bytes of a Parquet column read at a time
_SHORT_REPR = reprlib.Repr()
_SHORT_REPR.maxstring = _SHORT_REPR.maxother = 60
_MAX_FIELDS = 2**16  # fields of a row of a table
_LONG_JSON_CHARACTERS = 2**22
_MAX_JSON_VALUES = 2**20  # values in a JSON object of more than that many characters
_JSON_STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"')
_DELIMITERS = {";": "semicolons", "\t": "tabs", "|": "vertical bars", ",": "commas"}
_BOMB_SIZE, _BOMB_RATIO = 2**30, 250  # as of compressed files: no text shrinks so much
_PARQUET_ROWS = 32  # rows of Parquet decoded at a time: few, since each may be long
_PARQUET_BATCH_BYTES = 2**26  # bytes of them, where they are longer than most


def read_jsonl(
    path: Path, column: str, encoding_errors: EncodingErrors = "strict", *, keep_blank: bool = False
) -> Iterator[TextRecord]:
    """Read one JSON object a line; empty texts only with `keep_blank`.

    Raises:
        ValueError: a line is no JSON object, has no such column, or its text is no text.
    """
    for number, fields in read_json_rows(path, encoding_errors):
        where = f"{path}:{number}"
        if column not in fields:
            check_column(where, column, list(fields))
        text = check_text(fields[column], where, column, encoding_errors)
        if text or keep_blank:
            yield number, text


def read_json_rows(
    path: Path, encoding_errors: EncodingErrors
) -> Iterator[tuple[int, dict[str, object]]]:
    """Yield the objects of a file that holds one a line, and their lines.

    Raises:
        ValueError: a line is no JSON object, is nested too deeply, or has too many values.
    """
    for number, line in read_whole_lines(path, encoding_errors):
        if is_blank(line):
            continue
        where = f"{path}:{number}"
        record = _parse_json_line(line, where)
        if not isinstance(record, dict):
            raise ValueError(
                f"{where}: a line of .jsonl must be an object, got {describe_value(record)}"
            )
        yield number, cast(dict[str, object], record)


def read_csv(
    path: Path, column: str, encoding_errors: EncodingErrors = "strict", *, keep_blank: bool = False
) -> Iterator[TextRecord]:
    """Read comma-separated values as RFC 4180 has them, with a header.

    A field with commas, quotes or line ends is quoted, each quote in it doubled.

    Raises:
        ValueError: the header lacks the column, a row has not as many fields as the header, or
            quotes do not match.
    """
    rows = _csv_rows(path, encoding_errors)
    yield from _read_table(
        path, column, rows, "a field that holds a comma must be quoted", keep_blank
    )


def read_tsv(
    path: Path, column: str, encoding_errors: EncodingErrors = "strict", *, keep_blank: bool = False
) -> Iterator[TextRecord]:
    """Read tab-separated values as IANA's `text/tab-separated-values` has them.

    There is a header, a row is a line, and quotes are plain characters (as in GLUE's files).

    Raises:
        ValueError: the header lacks the column, or a row has not as many fields as the header.
    """
    rows = (
        (n, line.split("\t", _MAX_FIELDS))
        for n, line in read_whole_lines(path, encoding_errors)
        if not is_blank(line)
    )
    hint = "no field can hold a tab or a line end; .csv can"
    yield from _read_table(path, column, rows, hint, keep_blank)


def read_parquet(
    path: Path, column: str, encoding_errors: EncodingErrors = "strict", *, keep_blank: bool = False
) -> Iterator[TextRecord]:
    """Read one column of a Parquet file, a few rows at a time.

    Raises:
        ValueError: the file is damaged, has no such column, or the column is no text.
        ImportError: pyarrow is not installed.
    """
    require_module("pyarrow", "reading .parquet")
    if compression_suffix(path) is None:
        yield from _read_parquet(path, path, column, encoding_errors, keep_blank)
        return
    with tempfile.TemporaryFile() as file:  # Parquet is read from its end
        for data in read_decompressed(path):
            file.write(data)
        file.seek(0)
        yield from _read_parquet(path, file, column, encoding_errors, keep_blank)


def check_text(value: object, where: str, column: str, encoding_errors: EncodingErrors) -> str:
    """Check that the value of a column is text; nothing (null) is empty text.

    Raises:
        ValueError: it is something else, or holds NULs or lone surrogates and `encoding_errors` is
            "strict".
    """
    if value is None:
        return ""
    if not isinstance(value, str):
        raise ValueError(f"{where}: {column!r} must be text, got {describe_value(value)}")
    if "\0" in value:
        value = replace_nul(value, where, encoding_errors)
    if not value.isascii():
        value = _without_surrogates(value, where, encoding_errors)
    return value


def _without_surrogates(text: str, where: str, encoding_errors: EncodingErrors) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        if encoding_errors == "replace":
            return _SURROGATE.sub("\ufffd", text)
        found = f"\\u{ord(text[error.start]):04x}"
        raise ValueError(
            f"{where}: a lone surrogate ({found}), which is no character {REPLACE_HINT}"
        ) from error
    return text


def read_whole_lines(path: Path, encoding_errors: EncodingErrors) -> Iterator[TextRecord]:
    """Yield the lines of a file of which each is understood only whole, numbered from 1.

    Raises:
        ValueError: one has more than `MAX_RECORD_CHARACTERS` characters, or as of `read_lines`.
    """
    for number, line, goes_on in read_lines(path, MAX_RECORD_CHARACTERS, encoding_errors):
        if goes_on:
            raise ValueError(
                f"{path}:{number}: a record of more than {MAX_RECORD_CHARACTERS} characters; "
                "cut it into several, or write it as .txt"
            )
        yield number, line


def _parse_json_line(line: str, where: str) -> object:
    if len(line) > _LONG_JSON_CHARACTERS:
        structure = _JSON_STRING.sub("", line)
        if (
            sum(map(structure.count, ",[{")) > _MAX_JSON_VALUES
        ):  # each takes up to 80 times its length
            raise ValueError(f"{where}: a JSON object of more than {_MAX_JSON_VALUES} values")
        del structure
    try:
        return parse_json(line)
    except json.JSONDecodeError as error:
        raise ValueError(
            f"{where}: malformed JSON: {error.msg} at character {error.colno} of the line; "
            ".jsonl holds one whole object a line"
        ) from error
    except ValueError as error:  # nested too deeply, or an integer of thousands of digits
        raise ValueError(f"{where}: malformed JSON: {format_error(error)}") from error


def _read_table(
    path: Path, column: str, rows: Iterator[tuple[int, list[str]]], hint: str, keep_blank: bool
) -> Iterator[TextRecord]:
    number, header = next(rows, (0, [column]))  # an empty file has no rows either
    check_delimiter(path, header)
    check_column(f"{path}:{number}", column, header)
    at = header.index(column)
    for number, fields in rows:
        if len(fields) != len(header):
            raise ValueError(
                f"{path}:{number}: {len(fields)} fields where the header has {len(header)} "
                f"({format_names(header)}): {hint}"
            )
        if fields[at] or keep_blank:
            yield number, fields[at]


def _csv_rows(path: Path, encoding_errors: EncodingErrors) -> Iterator[tuple[int, list[str]]]:
    """Join the lines of a row: quotes come in pairs, so after an odd number of them it goes on."""
    begin, held = 0, bytearray()  # no list of lines: a hundred million empty ones would not fit
    for number, line in read_whole_lines(path, encoding_errors):
        odd = line.count('"') % 2
        if not begin and not odd:
            if not is_blank(line):
                yield number, _parse_csv_row(line, f"{path}:{number}")
            continue
        if not begin:
            begin, held = number, bytearray(line.encode())
            continue
        held += b"\n" + line.encode()
        if odd:
            yield begin, _parse_csv_row(held.decode(), f"{path}:{begin}")
            begin = 0
        elif len(held) > MAX_RECORD_CHARACTERS:
            break
    if begin:
        raise ValueError(f"{path}:{begin}: a quote opens a field that never ends")


def _parse_csv_row(row: str, where: str) -> list[str]:
    fields: list[str] = []
    at = 0
    while True:
        if quoted := _QUOTED_FIELD.match(row, at):
            fields.append(quoted[1].replace('""', '"'))
            at = quoted.end()
        else:
            end = _PLAIN_FIELD.match(row, at)
            assert end is not None  # it matches nothing, too
            fields.append(end[0])
            at = end.end()
        if at == len(row) or len(fields) > _MAX_FIELDS:
            return fields
        if row[at] != ",":
            raise ValueError(
                f"{where}: a quote in the middle of field {len(fields)}; "
                'a field with quotes must be quoted itself, with each quote doubled: "say ""hi"""'
            )
        at += 1


def _read_parquet(
    path: Path,
    file: Path | BinaryIO,
    column: str,
    encoding_errors: EncodingErrors,
    keep_blank: bool,
) -> Iterator[TextRecord]:
    import pyarrow
    from pyarrow import parquet

    with arrow_errors(path):
        opened = parquet.ParquetFile(file, pre_buffer=False, buffer_size=_PARQUET_BUFFER_BYTES)
    with opened:
        with arrow_errors(path):
            schema = opened.schema_arrow
        kind, budget = _text_type(path, column, schema), ExpansionBudget(path)
        with arrow_errors(path):
            at_once = _rows_per_batch(opened, file, column)
        rows, number = opened.iter_batches(at_once, columns=[column]), 0
        while True:
            with arrow_errors(path):
                batch = next(rows, None)
            if batch is None:
                return
            values = batch.column(column)
            if pyarrow.types.is_dictionary(kind):
                values = values.dictionary_decode()
            # As bytes: Arrow does not check that strings are UTF-8.
            for value in values.cast(pyarrow.large_binary()):
                number += 1
                data = value.as_py()
                budget.spend(0 if data is None else len(data))
                text = _decode_utf8(data, f"{path}:{number}", column, encoding_errors)
                if text or keep_blank:
                    yield number, text


def _rows_per_batch(parquet_file: Any, file: Path | BinaryIO, column: str) -> int:
    """Say how many rows are decoded together: few, where a file says a long value in many rows.

    Values of a dictionary stand once in the file, and in each row in memory.
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
    return max(1, min(_PARQUET_ROWS, _PARQUET_BATCH_BYTES // longest))


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
    if not (types.is_string(plain) or types.is_large_string(plain) or types.is_null(plain)):
        raise ValueError(f"{path}: column {column!r} must be text, got {kind}")
    return kind


def _decode_utf8(
    value: bytes | None, where: str, column: str, encoding_errors: EncodingErrors
) -> str:
    try:
        text = None if value is None else value.decode("utf-8", encoding_errors)
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{where}: invalid UTF-8 at byte offset {error.start} of {column!r} ({error.reason}); "
            f"convert it to UTF-8 {REPLACE_HINT}"
        ) from error
    return check_text(text, where, column, encoding_errors)


class ExpansionBudget:
    """Bytes that may be made of a file: a value that is stored once may stand in many rows.

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


def check_delimiter(path: Path, header: Sequence[str]) -> None:
    """Say by what the columns of a table are parted if that is not what its name says.

    Args:
        path: of the file.
        header: its first row, or a row that has too few fields.

    Raises:
        ValueError: it is one field, which holds another delimiter.
    """
    if len(header) != 1:
        return
    inner = path if compression_suffix(path) is None else path.with_suffix("")
    own = "\t" if inner.suffix.lower() == ".tsv" else ","
    for mark, said in _DELIMITERS.items():
        if mark != own and mark in header[0]:
            ending = {",": ".csv", "\t": ".tsv"}.get(mark)
            fitting = (
                f"name it {ending}" if ending else "write it with commas, or with tabs as .tsv"
            )
            raise ValueError(
                f"{path}: columns are parted by {said} in {_SHORT_REPR.repr(header[0])}, "
                f"not by {_DELIMITERS[own]}: {fitting}"
            )


def check_column(where: object, column: str, columns: Sequence[str]) -> None:
    """Check that there is exactly one column of this name.

    Raises:
        ValueError: there is none, or there are several.
    """
    if column not in columns:
        raise ValueError(
            f"{where}: no column {column!r}, only {format_names(columns)}; "
            "name the one that holds the text with --text"
        )
    if columns.count(column) > 1:
        raise ValueError(f"{where}: several columns {column!r} ({format_names(columns)})")


def format_names(names: Iterable[str]) -> str:
    """Write names for a message, the first twenty of them."""
    shown = [_SHORT_REPR.repr(name) for name in names]
    more = f" and {len(shown) - 20} more" if len(shown) > 20 else ""
    return ", ".join(shown[:20]) + more or "none"


def describe_value(value: object) -> str:
    """Write a value and its type for a message, in few words however large it is."""
    return f"{type(value).__name__} {_SHORT_REPR.repr(value)}"


def format_error(error: Exception) -> str:
    """Write another library's error for a message of one line."""
    text = " ".join(str(error).split())
    return text if len(text) <= 300 else f"{text[:297]}..."
