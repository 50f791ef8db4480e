"""Spreadsheets -> rows of texts: .xlsx (Office Open XML, ECMA-376) and .ods (OpenDocument 1.3)."""

import zipfile
import zlib
from collections.abc import Iterator
from itertools import repeat
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from unmask.files import parser_errors_as_value_error

_SUFFIXES = (".xlsx", ".xlsm", ".xls", ".ods", ".numbers")
MAX_COLUMNS = 1_000
MAX_CELLS = 20_000_000
_OLD_MARK = b"\xd0\xcf\x11\xe0"
"""With which .xls files begin, and .xlsx files with a password."""
_ODS = "{urn:oasis:names:tc:opendocument:xmlns:%s:1.0}%s"
_RELATION = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}id"


class Spreadsheet(NamedTuple):
    """The rows of one sheet."""

    rows: list[list[str]]
    sheet: str
    sheets: tuple[str, ...]
    """The names of all."""


def is_spreadsheet(path: Path) -> bool:
    """Return whether a file is a spreadsheet, whatever its name."""
    if path.suffix.lower() in _SUFFIXES:
        return True
    with path.open("rb") as file:
        if file.read(4) == _OLD_MARK:
            return True
    try:
        with zipfile.ZipFile(path) as archive:
            return {"xl/workbook.xml", "content.xml"} & {*archive.namelist()} != set()
    except (zipfile.BadZipFile, OSError):
        return False


def read_spreadsheet(path: Path, sheet: str | None = None) -> Spreadsheet:
    """Read one sheet: the one that is named, or the first with a row below the header.

    Raises:
        ValueError: it is damaged, too wide, or of an old or protected format; or there is no such
            sheet.
    """
    with path.open("rb") as file:
        if file.read(4) == _OLD_MARK:
            raise ValueError(
                f"{path.name}: an old .xls file, or one with a password: save it as .xlsx or CSV "
                "UTF-8, without a password"
            )
    damaged = (zipfile.BadZipFile, zlib.error, ElementTree.ParseError, LookupError, EOFError)
    with (
        parser_errors_as_value_error(path.name, *damaged, NotImplementedError, RuntimeError),
        zipfile.ZipFile(path) as archive,
    ):
        is_ods = "content.xml" in (names := archive.namelist())
        if not is_ods and "xl/workbook.xml" not in names:
            raise ValueError("no spreadsheet that is read here: save it as .xlsx or CSV UTF-8")
        return (_read_ods if is_ods else _read_xlsx)(archive, sheet)


def _read_xlsx(archive: zipfile.ZipFile, sheet: str | None) -> Spreadsheet:
    members = _xlsx_sheets(archive)
    shared = [*_shared_strings(archive)]
    for name in _order(sheet, tuple(members)):
        rows = [*_full_rows(_xlsx_rows(archive, members[name], shared))]
        if len(rows) > 1 or sheet is not None:
            return Spreadsheet(rows, name, tuple(members))
    raise ValueError("no sheet has a row below its first")


def _order(sheet: str | None, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the sheets to look at: all, or the one that is named."""
    if sheet is None:
        return names
    if sheet not in names:
        raise ValueError(f"no sheet {sheet!r:.100}; there are {', '.join(names):.200}")
    return (sheet,)


def _xlsx_sheets(archive: zipfile.ZipFile) -> dict[str, str]:
    """Return the member of each sheet by its name, in the order of their tabs."""
    relations = ElementTree.fromstring(archive.read("xl/_rels/workbook.xml.rels"))
    targets = {one.get("Id"): one.get("Target", "") for one in relations}
    found: dict[str, str] = {}
    for one in ElementTree.fromstring(archive.read("xl/workbook.xml")).iter():
        if _local(one) == "sheet":
            target = targets.get(one.get(_RELATION), "")
            member = target.lstrip("/") if target.startswith("/") else f"xl/{target}"
            if "worksheets/" in member:  # not a sheet of a chart
                found[one.get("name", "")] = member
    return found


def _local(element: ElementTree.Element) -> str:
    return element.tag.rpartition("}")[2]


def _shared_strings(archive: zipfile.ZipFile) -> Iterator[str]:
    """Yield the strings that cells refer to; what is said of their pronunciation is left out."""
    if "xl/sharedStrings.xml" not in archive.namelist():
        return
    with archive.open("xl/sharedStrings.xml") as file:
        for _, element in ElementTree.iterparse(file):
            if _local(element) == "si":
                yield _text_of(element)
                element.clear()


def _text_of(element: ElementTree.Element) -> str:
    """Return the text of a string, of runs of several formats as of one."""
    parts = list[str]()
    for child in element:
        if _local(child) == "t":
            parts.append(child.text or "")
        elif _local(child) == "r":
            parts += [one.text or "" for one in child if _local(one) == "t"]
    return "".join(parts)


def _xlsx_rows(archive: zipfile.ZipFile, member: str, shared: list[str]) -> Iterator[list[str]]:
    with archive.open(member) as file:
        for _, element in ElementTree.iterparse(file):
            if _local(element) != "row":
                continue
            row = list[str]()
            for cell in element:
                at = _column(cell.get("r", ""), len(row))
                row += [""] * (at - len(row))
                row.append(_xlsx_value(cell, shared))
            yield row
            element.clear()


def _column(reference: str, following: int) -> int:
    """Return the index of a cell's column: 27 of "AB3"; without a reference the following one."""
    at = 0
    for letter in reference.rstrip("0123456789"):
        at = 26 * at + ord(letter.upper()) - ord("A") + 1
    if at > MAX_COLUMNS:
        raise ValueError(f"cell {reference}: more than {MAX_COLUMNS:,} columns")
    return max(at - 1, following) if at else following


def _xlsx_value(cell: ElementTree.Element, shared: list[str]) -> str:
    kind = cell.get("t", "n")
    values = {_local(one): one for one in cell}
    if kind == "inlineStr":
        return _text_of(values["is"]) if "is" in values else ""
    value = (values["v"].text or "") if "v" in values else ""
    if kind == "s":
        return shared[int(value)] if value else ""
    if kind == "b":
        return {"1": "true", "0": "false"}.get(value, value)
    return value.removesuffix(".0") if kind == "n" else value


def _read_ods(archive: zipfile.ZipFile, sheet: str | None) -> Spreadsheet:
    root = ElementTree.fromstring(archive.read("content.xml"))
    tables = {
        one.get(_ODS % ("table", "name"), ""): one for one in root.iter(_ODS % ("table", "table"))
    }
    for name in _order(sheet, tuple(tables)):
        rows = [*_full_rows(_ods_rows(tables[name]))]
        if len(rows) > 1 or sheet is not None:
            return Spreadsheet(rows, name, tuple(tables))
    raise ValueError("no sheet has a row below its first")


def _ods_rows(table: ElementTree.Element) -> Iterator[list[str]]:
    cells = (_ODS % ("table", "table-cell"), _ODS % ("table", "covered-table-cell"))
    for element in table.iter(_ODS % ("table", "table-row")):
        row = list[str]()
        for cell in element:
            if cell.tag in cells:
                value = _ods_value(cell)
                times = int(cell.get(_ODS % ("table", "number-columns-repeated"), "1"))
                if value and len(row) + times > MAX_COLUMNS:
                    raise ValueError(f"more than {MAX_COLUMNS:,} columns")
                row += [value] * min(times, MAX_COLUMNS - len(row))
        times = int(element.get(_ODS % ("table", "number-rows-repeated"), "1"))
        yield from repeat(row, times if any(row) else 1)


def _ods_value(cell: ElementTree.Element) -> str:
    if cell.get(_ODS % ("office", "value-type")) == "float":
        return cell.get(_ODS % ("office", "value"), "").removesuffix(".0")
    return "\n".join("".join(one.itertext()) for one in cell.iter(_ODS % ("text", "p")))


def _full_rows(rows: Iterator[list[str]]) -> Iterator[list[str]]:
    """Yield the rows with a value, without the empty cells at their ends."""
    n = 0
    for row in rows:
        while row and not row[-1].strip():
            row = row[:-1]
        n += len(row)
        if n > MAX_CELLS:
            raise ValueError(f"more than {MAX_CELLS:,} cells")
        if row:
            yield row
