"""Spreadsheets -> rows of texts, by python-calamine: .xlsx, .xlsm, .xlsb, .xls, .ods.

Two cells can span a billion, for which calamine ends its process. So it runs in another, of bounded
memory and time, whose program is this file: nothing of the library is imported here.
"""

import io
import json
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

_SUFFIXES = (".xlsx", ".xlsm", ".xlsb", ".xls", ".ods", ".numbers")
_MARKS = (b"PK\3\4", b"PK\5\6", b"\xd0\xcf\x11\xe0")
"""With which zip archives begin, and old .xls files."""
MAX_COLUMNS = 1_000
MAX_CHARACTERS = 2**28
_MAX_SECONDS, _MAX_BYTES = 60, 2**30
_MAX_MEMBER_BYTES, _BOMB_SIZE, _BOMB_RATIO = 2**30, 2**24, 250
"""Of a member unpacked: at most, and from where it must not be so many times as large as packed."""
_OPEN = "http://schemas.openxmlformats.org"
_UNREAD = "damaged, too large, or no spreadsheet: save it as .xlsx or CSV UTF-8"
_PARTS = {
    "content.xml": ("META-INF/manifest.xml", "<manifest/>"),
    "xl/workbook.xml": (
        "_rels/.rels",
        f'<Relationships xmlns="{_OPEN}/package/2006/relationships"><Relationship Id="r" '
        f'Type="{_OPEN}/officeDocument/2006/relationships/officeDocument" '
        'Target="xl/workbook.xml"/></Relationships>',
    ),
}
"""What some programs leave out, and what it belongs to."""
_MAX_CELL = 32_767
"""Characters (Excel's specifications and limits)."""
_HEAD_ROWS = 200
"""By which the header is found."""


class Spreadsheet(NamedTuple):
    """The rows of one sheet, from its first: empty ones, too."""

    rows: list[list[str]]
    sheet: str
    sheets: tuple[str, ...]
    """The names of all."""


def is_spreadsheet(path: Path) -> bool:
    """Return whether a file is a spreadsheet, whatever its name."""
    with path.open("rb") as file:
        return path.suffix.lower() in _SUFFIXES or file.read(4) in _MARKS


def read_spreadsheet(path: Path, sheet: str | None = None) -> Spreadsheet:
    """Read one sheet: the one that is named, or the first that is seen and looks like a table.

    Dates are ISO 8601, numbers as short as they are exact to 15 digits, errors empty, formulas what
    they gave last; cells that are merged downwards have their value each.

    Raises:
        ValueError: it is damaged, too large or protected; or there is no such sheet.
    """
    with path.open("rb") as file:
        try:
            done = subprocess.run(
                [sys.executable, "-P", __file__, json.dumps(sheet)], stdin=file, check=False,
                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=_MAX_SECONDS,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise ValueError(f"{path.name}: it takes more than {_MAX_SECONDS} seconds") from None
    if done.returncode:
        raise ValueError(f"{path.name}: {_UNREAD}")
    answer = json.loads(done.stdout)
    if "problem" in answer:
        raise ValueError(f"{path.name}: {answer['problem']}")
    return Spreadsheet(answer["rows"], answer["sheet"], tuple(answer["sheets"]))


def write_spreadsheet(path: Path, rows: Iterable[Sequence[object]]) -> None:
    """Write rows as .xlsx; numbers stay numbers, what a cell cannot hold of a text is cut."""
    import xlsxwriter

    options = {"constant_memory": True, "nan_inf_to_errors": True}
    with xlsxwriter.Workbook(str(path), options) as book:
        sheet = book.add_worksheet("Predictions")
        for i, row in enumerate(rows):
            for j, value in enumerate(row):
                if isinstance(value, int | float) and not isinstance(value, bool):
                    sheet.write_number(i, j, value)
                else:
                    sheet.write_string(i, j, "" if value is None else str(value)[:_MAX_CELL])


def header_row(rows: Sequence[Sequence[str]]) -> int:
    """Return the index of the row that names the columns: titles above it fill fewer cells.

    It is the first with at least two thirds of the cells of a usual row.
    """
    counts = [sum(map(bool, map(str.strip, row))) for row in rows[:_HEAD_ROWS]]
    usual = median([n for n in counts if n] or [0])
    return next((i for i, n in enumerate(counts) if n and 3 * n >= 2 * usual), 0)


def _read(file: io.BytesIO, sheet: str | None) -> dict[str, Any]:
    import python_calamine as calamine

    _check_archive(file)
    book = calamine.load_workbook(file)
    facts = [x for x in book.sheets_metadata if x.typ == calamine.SheetTypeEnum.WorkSheet]
    names = [x.name for x in facts]
    if sheet is not None and sheet not in names:
        raise ValueError(f"no sheet {sheet!r:.100}; there are {', '.join(names):.200}")
    seen = [x.name for x in facts if x.visible == calamine.SheetVisibleEnum.Visible] or names
    tables = {name: _texts(book.get_sheet_by_name(name)) for name in ([sheet] if sheet else seen)}
    if sheet is None:
        sizes = {name: _size(rows) for name, rows in tables.items()}
        if not any(n > 1 for _, n in sizes.values()):
            raise ValueError("no sheet has a row below its first")
        largest = max(sizes.values())
        sheet = next(
            name for name, (columns, n) in sizes.items()
            if columns >= min(largest[0], 2) and n > 1 and 10 * n >= largest[1]
        )  # fmt: skip
    return {"rows": tables[sheet], "sheet": sheet, "sheets": names}


def _size(rows: Sequence[Sequence[str]]) -> tuple[int, int]:
    """Return 2 for a table, 1 for one column; and the number of rows from the header on."""
    table = [row for row in rows[header_row(rows) :] if any(row)]
    return min(2, max((sum(map(bool, row)) for row in table[:_HEAD_ROWS]), default=0)), len(table)


def _texts(sheet: Any) -> list[list[str]]:
    cells = sheet.to_python(skip_empty_area=False)
    for (top, left), (bottom, _) in sheet.merged_cell_ranges or ():
        for row in cells[top + 1 : bottom + 1]:
            row[left] = cells[top][left]
    rows, n = list[list[str]](), 0
    for row in cells:
        texts = [_text(value) for value in row]
        while texts and not texts[-1].strip():
            texts.pop()
        n += sum(map(len, texts))
        if len(texts) > MAX_COLUMNS or n > MAX_CHARACTERS:
            raise ValueError(f"more than {MAX_COLUMNS:,} columns or {MAX_CHARACTERS:,} characters")
        rows.append(texts)
    return rows


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < 2**53 else f"{value:.15g}"
    text = str(value)
    return text.removesuffix(" 00:00:00") if hasattr(value, "year") else text


def _check_archive(file: io.BytesIO) -> None:
    """Check what the members unpack to, and add those that calamine needs."""
    if not zipfile.is_zipfile(file):
        return
    with zipfile.ZipFile(file, "a") as archive:
        for member in archive.infolist():
            size, packed = member.file_size, member.compress_size
            if size > min(_MAX_MEMBER_BYTES, max(_BOMB_SIZE, _BOMB_RATIO * packed)):
                raise ValueError(
                    f"{member.filename:.100} unpacks to {size:,} bytes, from {packed:,}, as no "
                    "table does"
                )
        names = {*archive.namelist()}
        for name, (needed, text) in _PARTS.items():
            if name in names and needed not in names:
                archive.writestr(needed, text)
    file.seek(0)


def _main() -> None:
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (_MAX_BYTES, _MAX_BYTES))
    except (ImportError, ValueError):  # no Unix; or less is allowed already
        pass
    try:
        answer = _read(io.BytesIO(sys.stdin.buffer.read()), json.loads(sys.argv[1]))
    except ImportError:
        answer = {"problem": "needs python-calamine: pip install 'unmask[serve]'"}
    except Exception as error:
        why = " ".join(str(error).split())[:300]
        kinds = {"PasswordError": "it has a password: save it without", "CalamineError": _UNREAD}
        answer = {"problem": kinds.get(type(error).__name__, why)}
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    _main()
