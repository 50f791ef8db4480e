"""`rewrite_table`, `leave_out_rows`, `guess_encoding`: tables of other programs, written as CSV."""

import csv
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from unmask.config import from_dict
from unmask.files import parser_errors_as_value_error, write_atomically
from unmask.tasks.readers.tables import read_table
from unmask.text.formats.delimited import csv_rows
from unmask.text.lines import LINE_END, EncodingErrors
from unmask.web.worker.calls.tables import encodings
from unmask.web.worker.calls.tables.guessed_task import is_missing
from unmask.web.worker.calls.tables.spreadsheets import (
    header_row,
    is_spreadsheet,
    read_spreadsheet,
)

_SIGNS = ";\t,|"
_END = re.compile(r"(-(utf8|complete)(-\d+)?)+$")
"""Of a name, where a table was written anew."""
_HEAD_CHARACTERS = 20_000
"""From the beginning of a table, by which it is seen what separates its columns."""


@dataclass(frozen=True, kw_only=True)
class _RewriteTableArguments:
    file: str
    encoding: str | None = None
    """None: it is guessed."""
    sheet: str | None = None
    """Of a spreadsheet. None: the first that looks like a table."""
    header: int | None = None
    """Row that names the columns, from 1. None: it is guessed."""
    languages: Sequence[str] = ()
    """Of the reader, the most preferred first."""


def rewrite_table(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Write a table as a spreadsheet program saved it as CSV in UTF-8, beside it.

    The file is a spreadsheet, or delimited by what its first row has most of: semicolons (where
    the comma is in numbers), tabs, commas or vertical bars. What is above the header is left out,
    and rows and columns without a value; a column without a name gets its number.

    Returns:
        "name", "bytes": of the file that was written; "encoding", "separator": as they were found,
        null of a spreadsheet; "sheet", "sheets": of a spreadsheet; "header".

    Raises:
        ValueError: the bytes are in another encoding, the quotes of a field do not end, or there is
            no such row.
    """
    given = from_dict(_RewriteTableArguments, arguments)
    path = Path(given.file)
    facts: dict[str, Any] = {"encoding": None, "separator": None, "sheet": None, "sheets": []}
    if is_spreadsheet(path):
        rows, facts["sheet"], facts["sheets"] = read_spreadsheet(path, given.sheet)
    else:
        data = path.read_bytes()
        facts["encoding"] = given.encoding or encodings.guess_encoding(data, given.languages)
        with parser_errors_as_value_error(path.name):
            text = encodings.decode(data, facts["encoding"]).removeprefix("\ufeff")
        signs = _SIGNS if path.suffix.lower() != ".txt" else ";\t"  # others may be of the text
        facts["separator"], rows = _rows(text, signs, path.name)
    at = header_row(rows) if given.header is None else given.header - 1
    if not 0 <= at < len(rows):
        raise ValueError(f"{path.name}: row {at + 1:,} is not one of its {len(rows):,}")
    return _write(path, "utf8", _table(rows[at:])) | facts | {"header": at + 1}


def _rows(text: str, signs: str, name: str) -> tuple[str, list[list[str]]]:
    """Read a delimited table; return what separates its columns too.

    A first line "sep=;", as Excel reads it, names the sign.
    """
    first, _, rest = text.partition("\n")
    if first.lower().startswith("sep=") and len(first.strip()) == len("sep=;"):
        sign, text = first[4], f"\n{rest}"
    else:
        head = "".join(text[:_HEAD_CHARACTERS].split('"')[::2])  # what is not within quotes
        line = next((one for one in head.splitlines() if one.strip()), "")
        sign = max(signs, key=line.count)
    lines = enumerate(LINE_END.split(text), 1)
    return sign, [fields for _, fields in csv_rows(lines, name, delimiter=sign)]


def _table(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    """Return rows without those and columns that are empty; the first names the columns."""
    full = sorted({i for row in rows for i, one in enumerate(row) if one.strip()})
    table = [[row[i] if i < len(row) else "" for i in full] for row in rows]
    names = [
        " ".join(name.split()) or f"column{i + 1}" for i, name in zip(full, table[0], strict=True)
    ]
    return [names, *(row for row in table[1:] if any(map(str.strip, row)))]


def _write(path: Path, end: str, rows: Sequence[Sequence[object]]) -> dict[str, Any]:
    """Write rows beside a file, under a name that no other rows have."""
    written = io.StringIO()
    csv.writer(written, lineterminator="\n").writerows(rows)
    data = written.getvalue().encode("utf-8")
    stem = _END.sub("", path.stem)
    for number in count(1):
        made = path.with_name(f"{stem}-{end}{'' if number == 1 else f'-{number}'}.csv")
        if not made.exists():
            write_atomically(made, data)
        elif made.read_bytes() != data:
            continue
        return {"name": made.name, "bytes": len(data)}
    raise AssertionError


@dataclass(frozen=True, kw_only=True)
class _LeaveOutRowsArguments:
    file: str
    needed: Sequence[str]
    """Columns that must have a value."""
    columns: Sequence[str] = ()
    """Names of all columns, of a file without a header."""
    encoding_errors: EncodingErrors = "strict"


def leave_out_rows(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Write a table without the rows that lack a value, as CSV beside it; return its name.

    Raises:
        ValueError: there is no such column, or no row has all values.
    """
    given = from_dict(_LeaveOutRowsArguments, arguments)
    path = Path(given.file)
    table = read_table(path, header=tuple(given.columns), encoding_errors=given.encoding_errors)
    needed = [table.column(name) for name in given.needed]
    full = [
        fields
        for i, (_, fields) in enumerate(table.rows)
        if not any(is_missing(column[i]) for column in needed)
    ]
    if not full:
        raise ValueError(f"{path.name}: no row has a value in {' and '.join(given.needed)}")
    made = _write(path, "complete", [table.columns, *full])
    return made | {"left_out": len(table) - len(full)}


@dataclass(frozen=True, kw_only=True)
class _GuessEncodingArguments:
    file: str
    languages: Sequence[str] = ()


def guess_encoding(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the encoding that a file is probably in."""
    given = from_dict(_GuessEncodingArguments, arguments)
    with Path(given.file).open("rb") as file:
        sample = file.read(encodings.SAMPLE_BYTES)
    return {"encoding": encodings.guess_encoding(sample, given.languages)}
