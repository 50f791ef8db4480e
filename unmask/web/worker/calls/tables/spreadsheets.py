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
MAX_ROWS = 2**20
"""As spreadsheet programs have at most."""
MAX_CELLS = 20_000_000
_MAX_MEMBER_BYTES, _BOMB_SIZE, _BOMB_RATIO = 2**30, 2**24, 250
"""Of a member unpacked: at most, and from where it must not be so many times as large as packed."""
_OLD_MARK = b"\xd0\xcf\x11\xe0"
"""With which .xls files begin, and .xlsx files with a password."""
_ODS = "{urn:oasis:names:tc:opendocument:xmlns:%s:1.0}%s"
_ODS_TABLE, _ODS_ROW, _ODS_NAME = (
    _ODS % ("table", name) for name in ("table", "table-row", "name")
)
_ODS_CELLS = (_ODS % ("table", "table-cell"), _ODS % ("table", "covered-table-cell"))
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
        _check_members(archive)
        is_ods = "content.xml" in (names := archive.namelist())
        if not is_ods and "xl/workbook.xml" not in names:
            raise ValueError("no spreadsheet that is read here: save it as .xlsx or CSV UTF-8")
        return (_read_ods if is_ods else _read_xlsx)(archive, sheet)


def _check_members(archive: zipfile.ZipFile) -> None:
    for one in archive.infolist():
        if one.file_size > min(_MAX_MEMBER_BYTES, max(_BOMB_SIZE, _BOMB_RATIO * one.compress_size)):
            raise ValueError(
                f"{one.filename:.100} unpacks to {one.file_size:,} bytes, from "
                f"{one.compress_size:,}, as no table does"
            )


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
    """Read the rows of the chosen sheet, and the names of all, without holding the document."""
    found: dict[str, list[list[str]]] = {}
    chosen, n = sheet, 0
    with archive.open("content.xml") as file:
        rows = list[list[str]]()
        for event, element in ElementTree.iterparse(file, ("start", "end")):
            if element.tag == _ODS_TABLE and event == "start":
                rows = found.setdefault(element.get(_ODS_NAME, ""), [])
            elif element.tag == _ODS_ROW and event == "end":
                if chosen is None or rows is found.get(chosen):
                    rows += (new := [*_full_rows(_ods_row(element))])
                    n = _check_cells(n + sum(map(len, new)))
                element.clear()
            elif element.tag == _ODS_TABLE and chosen is None and len(rows) > 1:
                chosen = element.get(_ODS_NAME, "")
    if chosen is None:
        raise ValueError("no sheet has a row below its first")
    (name,) = _order(chosen, tuple(found))
    return Spreadsheet(found[name], name, tuple(found))


def _ods_row(element: ElementTree.Element) -> Iterator[list[str]]:
    """Yield a row as often as it is repeated."""
    row = list[str]()
    for cell in element:
        if cell.tag in _ODS_CELLS:
            value = _ods_value(cell)
            times = int(cell.get(_ODS % ("table", "number-columns-repeated"), "1"))
            if value and len(row) + times > MAX_COLUMNS:
                raise ValueError(f"more than {MAX_COLUMNS:,} columns")
            row += [value] * min(times, MAX_COLUMNS - len(row))
    times = int(element.get(_ODS % ("table", "number-rows-repeated"), "1")) if any(row) else 1
    if times > MAX_ROWS:
        raise ValueError(f"a row is repeated more than {MAX_ROWS:,} times")
    yield from repeat(row, times)


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
        n = _check_cells(n + len(row))
        if row:
            yield row


def _check_cells(n: int) -> int:
    if n > MAX_CELLS:
        raise ValueError(f"more than {MAX_CELLS:,} cells")
    return n
