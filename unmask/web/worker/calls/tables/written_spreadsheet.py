"""Rows -> a spreadsheet of one sheet (.xlsx, Office Open XML, ECMA-376)."""

import re
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from xml.sax.saxutils import escape

MAX_ROWS = 1_048_576
"""Of a sheet (Excel's specifications and limits)."""
_MAX_CHARACTERS = 32_767
"""Of a cell (the same)."""
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that no XML file can have."""
_HEAD = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'
_OPEN = "http://schemas.openxmlformats.org"
_MAIN, _RELATIONS = f"{_OPEN}/spreadsheetml/2006/main", f"{_OPEN}/package/2006/relationships"
_DOCUMENT = f"{_OPEN}/officeDocument/2006/relationships"
_TYPE = "application/vnd.openxmlformats-officedocument.spreadsheetml"
_PARTS = {
    "[Content_Types].xml": f'<Types xmlns="{_OPEN}/package/2006/content-types">'
    '<Default Extension="rels" '
    'ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
    f'<Override PartName="/xl/workbook.xml" ContentType="{_TYPE}.sheet.main+xml"/>'
    f'<Override PartName="/xl/worksheets/sheet1.xml" ContentType="{_TYPE}.worksheet+xml"/></Types>',
    "_rels/.rels": f'<Relationships xmlns="{_RELATIONS}"><Relationship Id="rId1" '
    f'Type="{_DOCUMENT}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
    "xl/workbook.xml": f'<workbook xmlns="{_MAIN}" xmlns:r="{_DOCUMENT}"><sheets>'
    '<sheet name="Predictions" sheetId="1" r:id="rId1"/></sheets></workbook>',
    "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{_RELATIONS}"><Relationship Id="rId1" '
    f'Type="{_DOCUMENT}/worksheet" Target="worksheets/sheet1.xml"/></Relationships>',
}


def write_spreadsheet(path: Path, rows: Sequence[Sequence[object]]) -> None:
    """Write rows; numbers stay numbers, what a cell cannot hold of a text is cut.

    Raises:
        ValueError: a sheet cannot have so many rows.
    """
    if len(rows) > MAX_ROWS:
        raise ValueError(f"a sheet has at most {MAX_ROWS:,} rows, got {len(rows):,}")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in _PARTS.items():
            archive.writestr(name, _HEAD + text)
        with archive.open("xl/worksheets/sheet1.xml", "w") as file:
            for text in _sheet(rows):
                file.write(text.encode("utf-8"))


def _sheet(rows: Sequence[Sequence[object]]) -> Iterator[str]:
    yield f'{_HEAD}<worksheet xmlns="{_MAIN}"><sheetData>'
    for row in rows:
        yield f"<row>{''.join(map(_cell, row))}</row>"
    yield "</sheetData></worksheet>"


def _cell(value: object) -> str:
    if value is None or value == "":
        return "<c/>"
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"<c><v>{value!r}</v></c>"
    text = escape(_FORBIDDEN.sub("\ufffd", str(value))[:_MAX_CHARACTERS])
    return f'<c t="inlineStr"><is><t xml:space="preserve">{text}</t></is></c>'
