"""Delimited tables: CSV (RFC 4180) and TSV (IANA's `text/tab-separated-values`)."""

import csv
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from unmask.text.formats import records
from unmask.text.formats.decompress import compression_suffix
from unmask.text.formats.records import TextRecord, check_column, format_names, read_whole_lines
from unmask.text.lines import BlankLines, EncodingErrors, is_blank

DelimitedRow = tuple[int, list[str]]
"""The line at which a row begins, from 1, and its fields."""

_MAX_FIELDS = 2**16  # fields of a row of .tsv
_UNCLOSED = "a quote opens a field that never ends"
_GOES_ON = (
    "a field goes on after its closing quote; a quote within a quoted field must be doubled: "
    '"say ""hi"""'
)
_DELIMITERS = {";": "semicolons", "\t": "tabs", "|": "vertical bars", ",": "commas"}
_HINTS = {
    ".csv": "a field that holds a comma must be quoted",
    ".tsv": "no field can hold a tab or a line end; .csv can",
}


class DelimitedFile(NamedTuple):
    """A table's columns and its rows, which are read as they are asked for."""

    columns: tuple[str, ...]
    header_line: int
    """The line of the header, from 1; 0 where the columns were given or the file is empty."""
    rows: Iterator[DelimitedRow]


def read_delimited(
    path: Path,
    header: Sequence[str] = (),
    encoding_errors: EncodingErrors = "strict",
    blank_lines: BlankLines | None = None,
) -> DelimitedFile:
    """Read a .csv or .tsv file, also a compressed one. Blank lines between rows are skipped.

    .csv: a field that begins with a quote ends with one; within, a quote is doubled, and commas and
    line ends are characters. In other fields a quote is a character. .tsv: a row is a line, and
    quotes are characters, as in GLUE's files.

    Args:
        path: the file.
        header: names of the columns of a file whose first row does not name them.
        encoding_errors: as of `unmask.text.lines.read_lines`.
        blank_lines: to which the lines that are skipped are added, as rows are read.

    Raises:
        ValueError: a row has not as many fields as there are columns, another delimiter separates
            them, or quotes do not match.
    """
    blank_lines = blank_lines or BlankLines()
    rows = (
        _tsv_rows(path, encoding_errors, blank_lines)
        if _table_suffix(path) == ".tsv"
        else csv_rows(read_whole_lines(path, encoding_errors), path, blank_lines)
    )
    line, columns = (0, header) if header else next(rows, (0, ()))
    check_delimiter(path, columns)
    return DelimitedFile(tuple(columns), line, _checked_rows(path, tuple(columns), rows))


def read_delimited_column(
    path: Path,
    column: str,
    encoding_errors: EncodingErrors = "strict",
    blank_lines: BlankLines | None = None,
) -> Iterator[TextRecord]:
    """Read one column of a .csv or .tsv file with a header.

    With `blank_lines`, empty texts are yielded, too, and lines that are no record added to it.

    Raises:
        ValueError: the header lacks the column, or as of `read_delimited`.
    """
    file = read_delimited(path, (), encoding_errors, blank_lines)
    if not file.columns:
        return
    check_column(f"{path}:{file.header_line}", column, file.columns)
    at = file.columns.index(column)
    for number, fields in file.rows:
        if fields[at] or blank_lines is not None:
            yield number, fields[at]


def format_field_count(n: int) -> str:
    """Write "1 field" or "5 fields"."""
    return f"{n} field" + "s" * (n != 1)


def _table_suffix(path: Path) -> str:
    inner = path if compression_suffix(path) is None else path.with_suffix("")
    return inner.suffix.lower()


def _checked_rows(
    path: Path, columns: tuple[str, ...], rows: Iterator[DelimitedRow]
) -> Iterator[DelimitedRow]:
    for number, fields in rows:
        if len(fields) != len(columns):
            check_delimiter(path, fields)
            raise ValueError(
                f"{path}:{number}: {format_field_count(len(fields))}, but there are "
                f"{len(columns)} columns ({format_names(columns)}): "
                f"{_HINTS.get(_table_suffix(path), _HINTS['.csv'])}"
            )
        yield number, fields


def _tsv_rows(
    path: Path, encoding_errors: EncodingErrors, blank_lines: BlankLines
) -> Iterator[DelimitedRow]:
    for number, line in read_whole_lines(path, encoding_errors):
        if is_blank(line):
            blank_lines.add(number)
        else:
            yield number, line.split("\t", _MAX_FIELDS)


def csv_rows(
    lines: Iterable[TextRecord],
    where: object,
    blank_lines: BlankLines | None = None,
    delimiter: str = ",",
) -> Iterator[DelimitedRow]:
    """Split numbered lines without their ends into rows; a quoted field continues over lines.

    Args:
        lines: of the file.
        where: its name, for messages.
        blank_lines: to which lines that are skipped are added.
        delimiter: the character between fields.

    Raises:
        ValueError: quotes do not match.
    """
    begin, number, size, line = 0, 0, 0, ""

    def read() -> Iterator[str]:
        nonlocal begin, number, size, line
        for number, line in lines:
            begin, size = begin or number, size + len(line) + 1
            if size > records.MAX_RECORD_CHARACTERS:
                raise csv.Error(_UNCLOSED)
            yield f"{line}\n"

    csv.field_size_limit(2**31 - 1)  # of all fields of the process: `size` limits them here
    rows = csv.reader(read(), delimiter=delimiter, strict=True)
    try:
        for fields in rows:
            if begin != number or not is_blank(line):
                yield begin, fields
            elif blank_lines is not None:
                blank_lines.add(number)
            begin = size = 0
    except csv.Error as error:
        is_unclosed = str(error) in (_UNCLOSED, "unexpected end of data")
        raise ValueError(f"{where}:{begin}: {_UNCLOSED if is_unclosed else _GOES_ON}") from None


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
    own = "\t" if _table_suffix(path) == ".tsv" else ","
    for mark, said in _DELIMITERS.items():
        if mark != own and mark in header[0]:
            ending = {",": ".csv", "\t": ".tsv"}.get(mark)
            fitting = (
                f"name it {ending}" if ending else "write it with commas, or with tabs as .tsv"
            )
            raise ValueError(
                f"{path}: columns are parted by {said} in {format_names(header)}, "
                f"not by {_DELIMITERS[own]}: {fitting}"
            )
