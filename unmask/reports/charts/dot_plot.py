"""A dot plot: a row for each name, a column with an axis of its own for each quantity."""

from collections.abc import Mapping, Sequence

import numpy as np

from unmask.reports.charts.axis import format_tick, linear_axis
from unmask.reports.charts.svg import (
    GRID_COLOR,
    MEAN_COLOR,
    POINT_COLOR,
    SOFT_TEXT_COLOR,
    svg_document,
)
from unmask.reports.markup import Html, tag

CHARACTER_WIDTH, PLOT_WIDTH, COLUMN_GAP = 8, 150, 44
"""Units: a letter of a row's name, a column, the gap between two."""
TOP_MARGIN, ROW_HEIGHT, BOTTOM_MARGIN = 44, 26, 34


def draw_dot_plot(
    title: str, row_names: Sequence[str], columns: Mapping[str, Sequence[Sequence[float]]]
) -> str:
    """Draw a dot for each value and a stroke for the mean of a row; returns an SVG document.

    Args:
        title: what is shown.
        row_names: the names of the rows.
        columns: by name, for each row its values; none where nothing is known.
    """
    left = CHARACTER_WIDTH * max(map(len, row_names)) + COLUMN_GAP
    names = [
        tag("text", name, x=left - COLUMN_GAP, y=_row_center(i) + 4, text_anchor="end")
        for i, name in enumerate(row_names)
    ]
    each = [
        _draw_column(name, left + i * (PLOT_WIDTH + COLUMN_GAP), values)
        for i, (name, values) in enumerate(columns.items())
    ]
    width = left + len(columns) * (PLOT_WIDTH + COLUMN_GAP)
    height = TOP_MARGIN + ROW_HEIGHT * len(row_names) + BOTTOM_MARGIN
    return svg_document(title, width, height, *names, *each, font_size=13)


def _row_center(row: int) -> float:
    return TOP_MARGIN + ROW_HEIGHT * (row + 0.5)


def _draw_column(name: str, left: int, values: Sequence[Sequence[float]]) -> Html:
    found = [value for one in values for value in one]
    axis = linear_axis(min(found, default=0.0), max(found, default=1.0), 3)

    def x(value: float) -> float:
        return round(left + PLOT_WIDTH * axis.position(value), 1)

    bottom = _row_center(len(values) - 1) + ROW_HEIGHT / 2
    parts = [tag("text", name, x=left + PLOT_WIDTH / 2, y=TOP_MARGIN - 18, text_anchor="middle")]
    for at in axis.ticks:
        parts.append(tag("path", d=f"M{x(at)} {TOP_MARGIN}V{bottom}", stroke=GRID_COLOR))
        text = format_tick(at, axis, "")
        parts.append(
            tag("text", text, x=x(at), y=bottom + 16, text_anchor="middle", fill=SOFT_TEXT_COLOR)
        )
    for i, one in enumerate(values):
        y = _row_center(i)
        parts += [tag("circle", cx=x(v), cy=y, r=3.5, fill=POINT_COLOR, opacity=0.45) for v in one]
        if one:
            mean = x(float(np.mean(one)))
            line = f"M{mean} {y - 8}V{y + 8}"
            parts.append(tag("path", d=line, stroke=MEAN_COLOR, stroke_width=2))
    return tag("g", *parts)
