"""A scatter plot: a named point for each of several things, by two quantities."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from unmask.reports.charts.axis import Axis, format_tick, linear_axis
from unmask.reports.charts.labeled_points import LABEL_FONT_SIZE, draw_labeled_points
from unmask.reports.charts.svg import GRID_COLOR, MEAN_COLOR, SOFT_TEXT_COLOR, svg_document
from unmask.reports.markup import Html, tag

WIDTH, HEIGHT = 900.0, 560.0
LEFT, TOP, RIGHT, BOTTOM = 64.0, 44.0, 24.0, 56.0
"""Pixels: the page and its margins around the plot."""


@dataclass(frozen=True, kw_only=True)
class ScatterPoint:
    """A point with its name."""

    name: str
    x: float
    y: float
    is_joined: bool = False
    """Whether it is on the line that joins points in the order of x."""


def draw_scatter(title: str, x_name: str, y_name: str, points: Sequence[ScatterPoint]) -> str:
    """Draw named points, and a line through those that are joined; returns an SVG document."""
    x_axis = linear_axis(min([0.0, *(p.x for p in points)]), max([1.0, *(p.x for p in points)]))
    y_axis = linear_axis(
        min((p.y for p in points), default=0.0), max((p.y for p in points), default=1.0)
    )

    def place(point: ScatterPoint) -> tuple[float, float]:
        return _x(x_axis.position(point.x)), _y(y_axis.position(point.y))

    parts = [*_grid(x_axis, y_axis), *_axis_names(x_name, y_name)]
    joined = [place(p) for p in sorted(points, key=lambda p: (p.x, p.y)) if p.is_joined]
    if len(joined) > 1:
        path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in joined)
        parts.append(tag("path", d=path, stroke=MEAN_COLOR, stroke_width=1.5, fill="none"))
    if points:
        places = np.array([place(p) for p in points], dtype=np.float64)
        parts += draw_labeled_points([p.name for p in points], places, WIDTH, HEIGHT - BOTTOM)
    return svg_document(title, WIDTH, HEIGHT, *parts, font_size=LABEL_FONT_SIZE)


def _x(position: float) -> float:
    return LEFT + position * (WIDTH - LEFT - RIGHT)


def _y(position: float) -> float:
    return HEIGHT - BOTTOM - position * (HEIGHT - TOP - BOTTOM)


def _grid(x_axis: Axis, y_axis: Axis) -> list[Html]:
    """Draw a line and a number at each tick of both axes."""
    parts: list[Html] = []
    for tick in x_axis.ticks:
        x = _x(x_axis.position(tick))
        text = format_tick(tick, x_axis, "")
        parts += [
            tag("path", d=f"M{x:.1f} {TOP}V{HEIGHT - BOTTOM}", stroke=GRID_COLOR),
            tag("text", text, x=f"{x:.1f}", y=HEIGHT - BOTTOM + 18, text_anchor="middle",
                fill=SOFT_TEXT_COLOR),
        ]  # fmt: skip
    for tick in y_axis.ticks:
        y = _y(y_axis.position(tick))
        text = format_tick(tick, y_axis, "")
        parts += [
            tag("path", d=f"M{LEFT} {y:.1f}H{WIDTH - RIGHT}", stroke=GRID_COLOR),
            tag("text", text, x=LEFT - 8, y=f"{y + 4:.1f}", text_anchor="end",
                fill=SOFT_TEXT_COLOR),
        ]  # fmt: skip
    return parts


def _axis_names(x_name: str, y_name: str) -> list[Html]:
    middle = (LEFT + WIDTH - RIGHT) / 2
    return [
        tag("text", x_name, x=middle, y=HEIGHT - 14, text_anchor="middle"),
        tag("text", y_name, x=8, y=TOP - 18),
    ]
