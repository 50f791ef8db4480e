"""Accuracies of groups as marks on a scale from 0 to 100 percent, with intervals of the first."""

from collections.abc import Mapping, Sequence

from unmask.analysis.behavior.accuracy import GroupAccuracy
from unmask.reports.charts.svg import (
    GRID_COLOR,
    MEAN_COLOR,
    POINT_COLOR,
    SOFT_TEXT_COLOR,
    svg_document,
)
from unmask.reports.markup import Html, tag

_COLORS = (POINT_COLOR, MEAN_COLOR, "#4d7c2a")
_CHARACTER_WIDTH, _SCALE_WIDTH, _ROW_HEIGHT, _MARGIN, _TOP = 8, 400, 24, 14, 70
_TICKS = (0, 25, 50, 75, 100)


def draw_accuracy_plot(
    title: str,
    names: Sequence[str],
    groups: Sequence[Sequence[GroupAccuracy]],
    chances: Sequence[float],
) -> str:
    """Draw a row for each group; returns an SVG document.

    Args:
        title: what is shown.
        names: of the model, then its controls.
        groups: for each row, the accuracy of each of them.
        chances: the accuracy of guessing of each row.
    """
    rows = [group[0].name.replace("_", " ") for group in groups]
    left = 2 * _MARGIN + _CHARACTER_WIDTH * max(map(len, rows), default=0)
    bottom = _TOP + _ROW_HEIGHT * len(rows)

    def x(fraction: float) -> float:
        return round(left + _SCALE_WIDTH * fraction, 1)

    parts = [tag("text", title, x=_MARGIN, y=22, font_weight="bold")]
    parts += _draw_legend(dict(zip(names, _COLORS, strict=False)))
    for tick in _TICKS:
        at = x(tick / 100)
        parts.append(tag("path", d=f"M{at} {_TOP}V{bottom}", stroke=GRID_COLOR))
        parts.append(
            tag("text", f"{tick}", x=at, y=bottom + 18, text_anchor="middle", fill=SOFT_TEXT_COLOR)
        )
    for i, (name, group, chance) in enumerate(zip(rows, groups, chances, strict=True)):
        y = _TOP + _ROW_HEIGHT * (i + 0.5)
        parts.append(tag("text", name, x=left - _MARGIN, y=y + 4, text_anchor="end"))
        line = f"M{x(chance)} {y - 9}V{y + 9}"
        parts.append(tag("path", d=line, stroke=SOFT_TEXT_COLOR, stroke_dasharray="3 3"))
        interval = f"M{x(group[0].low)} {y}H{x(group[0].high)}"
        parts.append(tag("path", d=interval, stroke=_COLORS[0], stroke_width=3, opacity=0.5))
        parts += [
            tag("circle", cx=x(one.accuracy), cy=y, r=4, fill=color)
            for one, color in zip(group, _COLORS, strict=False)
        ]
    width = max(left + _SCALE_WIDTH + 2 * _MARGIN, 2 * _MARGIN + _CHARACTER_WIDTH * len(title))
    return svg_document(title, max(width, _legend_width(names)), bottom + 34, *parts, font_size=13)


def _draw_legend(colors: Mapping[str, str]) -> list[Html]:
    parts: list[Html] = []
    for i, (name, color) in enumerate(colors.items()):
        left = _legend_width([*colors][:i])
        parts.append(tag("circle", cx=left + 6, cy=46, r=4, fill=color))
        parts.append(tag("text", name, x=left + 16, y=50))
    return parts


def _legend_width(names: Sequence[str]) -> int:
    return _MARGIN + sum(_CHARACTER_WIDTH * len(name) + 36 for name in names)
