"""A curve plot: panels with a curve of means and a dot for each value, as one SVG document."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from unmask.reports.charts.axis import Axis, format_tick, linear_axis
from unmask.reports.charts.svg import (
    GRID_COLOR,
    MEAN_COLOR,
    POINT_COLOR,
    SOFT_TEXT_COLOR,
    svg_document,
)
from unmask.reports.formatting import RealNumber
from unmask.reports.markup import Html, tag

_COLORS = (
    POINT_COLOR, MEAN_COLOR, "#4d7c2a", "#7a4f9e", "#b0862b", "#2a8a8c", "#a33f72", "#5b5b5b",
)  # fmt: skip
_PANEL_WIDTH, _PANEL_HEIGHT, _LEFT, _TOP, _GAP = 330, 210, 52, 46, 78
_LEGEND_HEIGHT, _BOTTOM, _CHARACTER_WIDTH = 26, 52, 8
"""Units of the picture; a letter of a name is at most `_CHARACTER_WIDTH` wide."""

CurvePoints = Mapping[float, Sequence[float]]
"""By its place on the horizontal axis, the values of one point."""


@dataclass(frozen=True, kw_only=True)
class CurvePanel:
    """Curves over the same axes, and a level to compare with."""

    title: str
    curves: Mapping[str, CurvePoints]
    level_name: str
    level: Sequence[float] = ()
    """Values whose mean is the level. Empty: there is none yet."""


def draw_curve_plot(title: str, x_name: str, panels: Sequence[CurvePanel]) -> str:
    """Draw panels beside each other; curves of one name have one color. Returns an SVG document."""
    names = list(dict.fromkeys(name for panel in panels for name in panel.curves))
    colors = {name: _COLORS[i % len(_COLORS)] for i, name in enumerate(names)}
    level_name = panels[0].level_name if panels else ""
    drawn = [
        _draw_panel(panel, x_name, colors, _LEFT + i * (_PANEL_WIDTH + _GAP))
        for i, panel in enumerate(panels)
    ]
    width = max(_LEFT + len(panels) * (_PANEL_WIDTH + _GAP), _legend_width([*names, level_name]))
    height = _TOP + _PANEL_HEIGHT + _BOTTOM + _LEGEND_HEIGHT
    legend = _draw_legend(colors, level_name, height - _LEGEND_HEIGHT / 2)
    return svg_document(title, width, height, *drawn, *legend, font_size=13)


def _draw_panel(panel: CurvePanel, x_name: str, colors: Mapping[str, str], left: int) -> Html:
    points = [p for curve in panel.curves.values() for p in curve.items() if p[1]]
    values = [v for _, some in points for v in some] + list(panel.level)
    places = [x for x, _ in points] or [0.0, 1.0]
    across = linear_axis(min(places), max(places))
    down = linear_axis(min(values, default=0.0), max(values, default=1.0))

    def x(value: float) -> float:
        return round(left + _PANEL_WIDTH * across.position(value), 1)

    def y(value: float) -> float:
        return round(_TOP + _PANEL_HEIGHT * (1 - down.position(value)), 1)

    middle, bottom = left + _PANEL_WIDTH / 2, _TOP + _PANEL_HEIGHT
    parts = [
        tag("text", panel.title, x=middle, y=_TOP - 18, text_anchor="middle"),
        tag("text", x_name, x=middle, y=bottom + 38, text_anchor="middle", fill=SOFT_TEXT_COLOR),
        *(_tick_label(t, across, x(t), bottom + 17, "middle") for t in across.ticks),
    ]
    for t in down.ticks:
        parts.append(tag("path", d=f"M{left} {y(t)}h{_PANEL_WIDTH}", stroke=GRID_COLOR))
        parts.append(_tick_label(t, down, left - 8, y(t) + 4, "end"))
    if panel.level:
        path = f"M{left} {y(float(np.mean(panel.level)))}h{_PANEL_WIDTH}"
        parts.append(tag("path", d=path, stroke=SOFT_TEXT_COLOR, stroke_dasharray="5 4"))
    for name, curve in panel.curves.items():
        known = [(x(at), some) for at, some in sorted(curve.items()) if some]
        means = " ".join(f"{at},{y(float(np.mean(some)))}" for at, some in known)
        parts.append(
            tag("polyline", points=means, stroke=colors[name], fill="none", stroke_width=2)
        )
        parts += [
            tag("circle", cx=at, cy=y(v), r=3, fill=colors[name], opacity=0.45)
            for at, some in known
            for v in some
        ]
    return tag("g", *parts)


def _tick_label(value: float, axis: Axis, x: RealNumber, y: RealNumber, anchor: str) -> Html:
    text = format_tick(value, axis, "")
    return tag("text", text, x=x, y=y, text_anchor=anchor, fill=SOFT_TEXT_COLOR)


def _legend_width(names: Sequence[str]) -> int:
    return _LEFT + sum(_CHARACTER_WIDTH * len(name) + 50 for name in names)


def _draw_legend(colors: Mapping[str, str], level_name: str, y: RealNumber) -> list[Html]:
    parts: list[Html] = []
    entries: list[tuple[str, str, str | None]] = [
        (name, color, None) for name, color in colors.items()
    ]
    entries.append((level_name, SOFT_TEXT_COLOR, "5 4"))
    for i, (name, color, dashes) in enumerate(entries):
        left = _legend_width([*colors][:i])
        parts.append(
            tag("path", d=f"M{left} {y}h24", stroke=color, stroke_width=2, stroke_dasharray=dashes)
        )
        parts.append(tag("text", name, x=left + 32, y=y + 4))
    return parts
