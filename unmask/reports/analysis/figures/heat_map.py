"""A heat map: a shade, and a text, for each row and column."""

from collections.abc import Sequence
from dataclasses import dataclass

from unmask.reports.charts.svg import MEAN_COLOR, POINT_COLOR, svg_document
from unmask.reports.markup import Html, tag

_CHARACTER_WIDTH, _ROW_HEIGHT, _LEAST_WIDTH, _MARGIN = 8, 24, 34, 14
_TITLE_HEIGHT, _SLANT = 34, 0.71
"""Units; column names are turned by 45 degrees, of which the sine is 0.71."""
_MAX_CHARACTERS = 28
_DARK = 0.6
"""The shade on which a text is white."""


@dataclass(frozen=True)
class HeatCell:
    """A field of a heat map."""

    shade: float
    """From -1 to 1; negative ones have another color."""
    text: str = ""


def draw_heat_map(
    title: str,
    row_names: Sequence[str],
    column_names: Sequence[str],
    cells: Sequence[Sequence[HeatCell]],
) -> str:
    """Draw a field for each row and column; returns an SVG document.

    Long names and texts are cut.

    Args:
        title: what is shown.
        row_names: from the top.
        column_names: from the left.
        cells: for each row, one for each column.
    """
    rows, columns = ([_cut(name) for name in names] for names in (row_names, column_names))
    texts = [_cut(cell.text) for row in cells for cell in row]
    width = max(_LEAST_WIDTH, _CHARACTER_WIDTH * max(map(len, texts), default=0) + 8)
    left = _MARGIN + _CHARACTER_WIDTH * max(map(len, rows), default=0) + 8
    named = int(_SLANT * _CHARACTER_WIDTH * max(map(len, columns), default=0))
    top = _TITLE_HEIGHT + named + 12
    parts = [tag("text", title, x=_MARGIN, y=22, font_weight="bold")]
    for i, name in enumerate(columns):
        x, y = left + width * (i + 0.5), top - 8
        parts.append(tag("text", name, x=x, y=y, transform=f"rotate(-45 {x} {y})"))
    for i, (name, row) in enumerate(zip(rows, cells, strict=True)):
        y = top + _ROW_HEIGHT * i
        parts.append(tag("text", name, x=left - 8, y=y + 16, text_anchor="end"))
        parts += [_draw_cell(cell, left + width * k, y, width) for k, cell in enumerate(row)]
    right = left + width * len(columns) + named + _MARGIN
    full = max(right, _MARGIN * 2 + _CHARACTER_WIDTH * len(title))
    height = top + _ROW_HEIGHT * len(rows) + _MARGIN
    return svg_document(title, full, height, *parts, font_size=13)


def _draw_cell(cell: HeatCell, x: int, y: int, width: int) -> Html:
    shade = max(-1.0, min(1.0, cell.shade))
    field = tag(
        "rect", x=x, y=y, width=width - 2, height=_ROW_HEIGHT - 2,
        fill=POINT_COLOR if shade >= 0 else MEAN_COLOR, fill_opacity=f"{max(abs(shade), 0.03):.3f}",
    )  # fmt: skip
    if not cell.text:
        return field
    color = "#ffffff" if abs(shade) > _DARK else None
    middle = x + width / 2 - 1
    text = tag("text", _cut(cell.text), x=middle, y=y + 16, text_anchor="middle", fill=color)
    return tag("g", field, text)


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_CHARACTERS else f"{text[: _MAX_CHARACTERS - 1]}…"
