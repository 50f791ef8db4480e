"""Delimited tables: CSV (RFC 4180) and TSV (IANA's `text/tab-separated-values`)."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from unmask.text.formats import records
from unmask.text.formats.decompress import compression_suffix
from unmask.text.formats.records import TextRecord, check_column, format_names, read_whole_lines
from unmask.text.lines import BlankLines, EncodingErrors, is_blank

DelimitedRow = tuple[int, list[str]]
"""The line at which a row begins, from 1, and its fields."""

_MAX_FIELDS = 2**16  # fields of a row
_WITHIN_QUOTES = re.compile('([^"]*+(?:""[^"]*+)*+)("?)')
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
    tabs = _table_suffix(path) == ".tsv"
    rows = (_tsv_rows if tabs else _csv_rows)(path, encoding_errors, blank_lines or BlankLines())
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


def _csv_rows(
    path: Path, encoding_errors: EncodingErrors, blank_lines: BlankLines
) -> Iterator[DelimitedRow]:
    """Split lines at commas; a quoted field continues over lines."""
    begin, size, fields = 0, 0, list[str]()
    held = bytearray()  # no list of lines: a hundred million empty ones would not fit
    for number, line in read_whole_lines(path, encoding_errors):
        at = 0
        if begin:
            at = _read_quoted(line, 0, held, fields, f"{path}:{begin}")
        elif is_blank(line):
            blank_lines.add(number)
            continue
        else:
            begin, size, fields = number, 0, []
        while 0 <= at <= len(line) and len(fields) <= _MAX_FIELDS:
            if line.startswith('"', at):
                at = _read_quoted(line, at + 1, held, fields, f"{path}:{begin}")
            else:
                end = line.find(",", at)
                end = len(line) if end < 0 else end
                fields.append(line[at:end])
                at = end + 1
        size += len(line) + 1
        if at >= 0:
            yield begin, fields
            begin = 0
        elif size > records.MAX_RECORD_CHARACTERS:
            break
    if begin:
        raise ValueError(f"{path}:{begin}: a quote opens a field that never ends")


def _read_quoted(line: str, at: int, held: bytearray, fields: list[str], where: str) -> int:
    """Read on within quotes; return where the next field begins, -1 where the line ends first."""
    found = _WITHIN_QUOTES.match(line, at)
    assert found is not None  # it matches nothing, too
    if not found[2]:
        held += found[1].encode() + b"\n"
        return -1
    after = found.end()
    if after < len(line) and line[after] != ",":
        raise ValueError(
            f"{where}: field {len(fields) + 1} goes on after its closing quote; a quote within a "
            'quoted field must be doubled: "say ""hi"""'
        )
    text = found[1]
    if held:
        text = held.decode() + text
        held.clear()
    fields.append(text.replace('""', '"'))
    return after + 1


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
