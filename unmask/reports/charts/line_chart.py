"""Figures for a page: SVG lines that stretch to any width, and HTML labels that do not.

The drawing area is `AREA_WIDTH` × `AREA_HEIGHT` units without a fixed aspect; strokes keep their
width (`non-scaling-stroke`), and a point is a stroke of no length with round ends. Labels are
positioned by percentage horizontally and by pixel vertically, as the height is fixed, so that text
stays readable on a phone. Each line has its name at its right end; there is no legend.
"""

import dataclasses
import itertools
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float

from unmask.reports.charts.axis import Axis, AxisValues, format_tick, linear_axis, logarithmic_axis
from unmask.reports.formatting import (
    NARROW_SPACE,
    RealNumber,
    format_number,
    format_power_of_ten,
    format_rounded,
    format_si,
)
from unmask.reports.markup import EMPTY_HTML, Html, join_html, tag

AREA_WIDTH, AREA_HEIGHT = 2000, 1000  # units of the drawing area; one is finer than a pixel
MAX_POINTS = 500  # points of a raw curve; half as many of a smoothed one
MAX_MARKED_POINTS = 60  # most points that are marked one by one
LARGE_HEIGHT, SMALL_HEIGHT = (
    264,
    132,
)  # pixels: a figure across the page, and one of several in a row
LABEL_LINE_HEIGHT, LABEL_GAP = (
    16,
    3,
)  # pixels: a line of a label, and what keeps it from the next label
LETTER_WIDTH = 0.8  # of the width of a zero (the unit `ch`): a letter of a name, on average

CurveKind = Literal["noisy", "exact", "measured"]


@dataclass(frozen=True, kw_only=True)
class Curve:
    """Numbers along steps: noisy ones are smoothed, exact ones not, measured ones marked."""

    name: str
    steps: AxisValues
    values: AxisValues
    color: int = 1
    kind: CurveKind = "noisy"


@dataclass(frozen=True)
class ReferenceLine:
    """A horizontal line to compare with: what a simple method reaches."""

    name: str
    value: float


@dataclass(frozen=True, kw_only=True)
class LineChart:
    """Curves over one axis of whole numbers: steps, or what `x_name` says."""

    title: str
    curves: tuple[Curve, ...]
    x_name: str = "step"
    subtitle: str = ""  # what is measured, in a few words
    unit: str = ""
    reference_lines: tuple[ReferenceLine, ...] = ()
    marked_steps: tuple[int, ...] = ()  # steps marked by a dotted line
    starts_at_zero: bool = False  # the axis begins at zero
    is_large: bool = False
    allows_log_scale: bool = False  # where values span orders of magnitude, the axis is logarithmic


@dataclass(frozen=True, kw_only=True)
class _DrawnCurve:
    """A curve ready to be drawn: raw values faint, where the line is an average of them."""

    curve: Curve
    raw: tuple[Float[np.ndarray, "r"], Float[np.ndarray, "r"]] | None
    line: tuple[Float[np.ndarray, "l"], Float[np.ndarray, "l"]]

    @property
    def last_value(self) -> float:
        return float(self.line[1][np.isfinite(self.line[1])][-1])


@dataclass(frozen=True, kw_only=True)
class _EndLabel:
    """A name and a number at the right end of a line, `top` pixels below the top of the area."""

    name: str
    value_text: str
    color: str
    height: int
    top: float


@dataclass(frozen=True, kw_only=True)
class _ChartLayout:
    """A figure with its axes laid."""

    chart: LineChart
    exponent: int
    drawn_curves: tuple[_DrawnCurve, ...]
    x_axis: Axis
    y_axis: Axis
    height: int
    labels: tuple[_EndLabel, ...]

    @property
    def tick_texts(self) -> list[str]:
        """The labels of the vertical axis; only the topmost has the unit."""
        sign = "%" if self.chart.unit == "%" else ""
        ticks = self.y_axis.ticks
        return [format_tick(t, self.y_axis, sign if t == ticks[-1] else "") for t in ticks]


def smooth(values: AxisValues, half_width: int) -> AxisValues:
    """Average over `half_width` neighbors on either side, nearer ones more; only finite ones count.

    Two passes of a plain mean, so that a spike becomes a bump and not a box. At the left end the
    window shrinks on both sides, so that the fast fall in which a run begins is not flattened; at
    the right end on the far side only, so that the last value is an average.
    """
    once = half_width // 2
    return _moving_average(_moving_average(values, half_width - once), once)


def _moving_average(values: AxisValues, half_width: int) -> AxisValues:
    n = len(values)
    finite = np.isfinite(values)
    sums = np.concatenate([[0.0], np.cumsum(np.where(finite, values, 0.0))])
    counts = np.concatenate([[0], np.cumsum(finite)])
    middle = np.arange(n)
    reach = np.minimum(middle, half_width)
    first, last = middle - reach, np.minimum(middle + reach + 1, n)
    count = counts[last] - counts[first]
    return np.where(count > 0, (sums[last] - sums[first]) / np.maximum(count, 1), math.nan)


def half_window(n: int) -> int:
    """Return how many neighbors on either side to average over: light, and none on short runs."""
    return max(n // 60, 1) if n >= 40 else 0


def downsample(
    steps: AxisValues, values: AxisValues, max_points: int = MAX_POINTS
) -> tuple[Float[np.ndarray, "k"], Float[np.ndarray, "k"]]:
    """Keep the least and the greatest value of each of `max_points / 2` pieces, so every spike."""
    n = len(values)
    if n <= max_points:
        return steps, values
    indices: list[int] = []
    edges = np.linspace(0, n, max_points // 2 + 1).astype(int).tolist()
    for start, end in itertools.pairwise(edges):
        piece = values[start:end]
        if np.isfinite(piece).any():
            indices += sorted({start + int(np.nanargmin(piece)), start + int(np.nanargmax(piece))})
        else:
            indices.append(start)
    return steps[indices], values[indices]


def draw_charts(charts: Iterable[LineChart]) -> list[Html]:
    """Draw figures with common margins, so that their axes align; without finite values, none."""
    plans = [plan for figure in charts if (plan := _lay_out(figure)) is not None]
    drawn: list[Html] = []
    for plan in plans:
        row = [p for p in plans if p.chart.is_large == plan.chart.is_large]
        left = max(len(text) for p in row for text in p.tick_texts) + 1.0
        right = max(_label_width(label) for p in row for label in p.labels)
        drawn.append(_draw_chart(plan, left, max(right, 5.0) + 2.0))
    return drawn


def _lay_out(chart: LineChart) -> _ChartLayout | None:
    chart, exponent = _scale_small_values(chart)
    traces = tuple(_prepare_curve(c) for c in chart.curves if np.isfinite(c.values).any())
    if not traces:
        return None
    down = _y_axis(chart, traces)
    height, labels = _end_labels(chart, traces, down)
    return _ChartLayout(
        chart=chart,
        exponent=exponent,
        drawn_curves=traces,
        x_axis=_x_axis(traces),
        y_axis=down,
        height=height,
        labels=labels,
    )


def _scale_small_values(chart: LineChart) -> tuple[LineChart, int]:
    """Return very small numbers (learning rates) in units of a power of ten."""
    finite = np.concatenate([c.values[np.isfinite(c.values)] for c in chart.curves] or [[]])
    top = float(np.abs(finite).max()) if len(finite) else 0.0
    if not 0 < top < 0.01 or chart.allows_log_scale:
        return chart, 0
    exponent = math.floor(math.log10(top) + 1e-9)
    by = 10.0**-exponent
    curves = tuple(dataclasses.replace(c, values=c.values * by) for c in chart.curves)
    levels = tuple(ReferenceLine(level.name, level.value * by) for level in chart.reference_lines)
    return dataclasses.replace(chart, curves=curves, reference_lines=levels), exponent


def _prepare_curve(curve: Curve) -> _DrawnCurve:
    n = len(curve.values)
    half = half_window(n) if curve.kind == "noisy" else 0
    if not half:
        return _DrawnCurve(
            curve=curve, raw=None, line=downsample(curve.steps, curve.values, MAX_POINTS // 2)
        )
    indices = np.unique(np.linspace(0, n - 1, min(n, MAX_POINTS // 2)).round().astype(int))
    line = curve.steps[indices], smooth(curve.values, half)[indices]
    return _DrawnCurve(curve=curve, raw=downsample(curve.steps, curve.values), line=line)


def _x_axis(drawn_curves: Sequence[_DrawnCurve]) -> Axis:
    low = min(float(t.line[0][0]) for t in drawn_curves)
    high = max(float(t.line[0][-1]) for t in drawn_curves)
    start = 0.0 if low < 0.25 * high or low == high else low
    axis = linear_axis(start, high, 5, trim_to_data=True)
    whole = tuple(t for t in axis.ticks if math.isclose(t, round(t)))
    return dataclasses.replace(axis, ticks=whole or axis.ticks)


def _y_axis(chart: LineChart, drawn_curves: Sequence[_DrawnCurve]) -> Axis:
    """Lay the vertical axis: all of every line, and of the raw values all but rare spikes."""
    levels = np.array([level.value for level in chart.reference_lines])
    lines = np.concatenate([t.line[1] for t in drawn_curves] + [levels])
    raw = np.concatenate([t.raw[1] for t in drawn_curves if t.raw is not None] or [lines])
    lines, raw = lines[np.isfinite(lines)], raw[np.isfinite(raw)]
    everything = np.concatenate([lines, raw])
    low, high = float(everything.min()), float(everything.max())
    if chart.allows_log_scale and low > 0 and high > 30 * float(np.median(everything)):
        return logarithmic_axis(low, high)
    usual = np.concatenate([lines, np.quantile(raw, (0.005, 0.995))])
    least, most = float(usual.min()), float(usual.max())
    if most > least:
        low, high = max(low, 1.5 * least - 0.5 * most), min(high, 1.5 * most - 0.5 * least)
    return linear_axis(
        min(low, 0.0) if chart.starts_at_zero else low, high, 5 if chart.is_large else 3
    )


def _end_labels(
    chart: LineChart, drawn_curves: Sequence[_DrawnCurve], y_axis: Axis
) -> tuple[int, tuple[_EndLabel, ...]]:
    """Label lines at their right ends; return also the height that this needs."""
    alone = len(drawn_curves) == 1 and not chart.reference_lines  # the title names it
    ends = [(t.curve.name, t.last_value, f"c{t.curve.color}") for t in drawn_curves]
    ends += [(level.name, level.value, "soft") for level in chart.reference_lines]
    size = LABEL_LINE_HEIGHT if alone else 2 * LABEL_LINE_HEIGHT + LABEL_GAP
    height = max(LARGE_HEIGHT if chart.is_large else SMALL_HEIGHT, size * len(ends))
    sign = f"{NARROW_SPACE}%" if chart.unit == "%" else ""
    labels = [
        _EndLabel(
            name="" if alone else name,
            value_text=f"{format_si(value) if abs(value) >= 1e6 else format_rounded(value)}{sign}",
            color=color,
            height=size,
            top=height * (1 - y_axis.position(value)) - size / 2,
        )
        for name, value, color in ends
    ]
    return height, tuple(_separate_labels(labels, height + LABEL_LINE_HEIGHT / 4))


def _separate_labels(labels: Sequence[_EndLabel], bottom: float) -> list[_EndLabel]:
    """Push labels down until none overlaps the one above it, then up from the bottom."""
    ordered = sorted(labels, key=lambda label: label.top)
    tops = [label.top for label in ordered]
    for i in range(1, len(tops)):
        tops[i] = max(tops[i], tops[i - 1] + ordered[i - 1].height)
    for i in reversed(range(len(tops))):
        tops[i] = min(tops[i], bottom - ordered[i].height)
        bottom = tops[i]
    return [dataclasses.replace(o, top=top) for o, top in zip(ordered, tops, strict=True)]


def _label_width(label: _EndLabel) -> float:
    return max(float(len(label.value_text)), LETTER_WIDTH * len(label.name) + 0.5)


def _draw_chart(layout: _ChartLayout, left_margin: float, right_margin: float) -> Html:
    figure = layout.chart
    area = tag(
        "div",
        _svg(layout),
        *_draw_ticks(layout),
        *(_draw_end_label(label) for label in layout.labels),
        class_="plot",
        role="img",
        aria_label=_text_alternative(layout),
        style=f"height:{layout.height}px;margin-left:{left_margin:.3g}ch;margin-right:{right_margin:.3g}ch",
    )
    says = tag("span", _subtitle(figure, layout.exponent))
    return tag(
        "figure",
        tag("figcaption", tag("b", figure.title), " ", says),
        tag("div", area, class_="frame", data_plot=_pointer_data(layout)),
        _outliers_note(layout),
        class_="wide" if figure.is_large else None,
    )


def _svg(layout: _ChartLayout) -> Html:
    figure, across, down = layout.chart, layout.x_axis, layout.y_axis
    lines = {
        "grid": [f"M0 {_y_coordinate(down, t)}H{AREA_WIDTH}" for t in down.ticks],
        "event": [f"M{_x_coordinate(across, e)} 0V{AREA_HEIGHT}" for e in figure.marked_steps],
        "level": [
            f"M0 {_y_coordinate(down, level.value)}H{AREA_WIDTH}"
            for level in figure.reference_lines
        ],
    }
    strokes = [_stroke("".join(paths), name) for name, paths in lines.items() if paths]
    strokes += [
        _stroke(_path(*t.raw, across, down), f"raw c{t.curve.color}")
        for t in layout.drawn_curves
        if t.raw is not None
    ]
    for t in layout.drawn_curves:
        color = f"c{t.curve.color}"
        measured = t.curve.kind == "measured"
        strokes.append(
            _stroke(_path(*t.line, across, down), f"line {color}{' measured' if measured else ''}")
        )
        if np.isfinite(t.line[1]).sum() == 1 or (measured and len(t.line[0]) <= MAX_MARKED_POINTS):
            strokes.append(_stroke(_dots(*t.line, across, down), f"dot {color}"))
    return tag(
        "svg",
        *strokes,
        viewBox=f"0 0 {AREA_WIDTH} {AREA_HEIGHT}",
        preserveAspectRatio="none",
        aria_hidden="true",
    )


def _stroke(path: str, class_: str) -> Html:
    return tag("path", d=path, class_=class_)


def _path(steps: AxisValues, values: AxisValues, x_axis: Axis, y_axis: Axis) -> str:
    """Write a line, broken where a value is not finite."""
    xs = np.rint(x_axis.positions(steps) * AREA_WIDTH).astype(int)
    pieces: list[str] = []
    drawing = False
    for x, place in zip(xs, y_axis.positions(values), strict=True):
        if finite := math.isfinite(place):
            pieces.append(f"{'' if drawing else 'M'}{x} {round(AREA_HEIGHT * (1 - place))}")
        drawing = finite
    return " ".join(pieces)


def _dots(steps: AxisValues, values: AxisValues, x_axis: Axis, y_axis: Axis) -> str:
    pairs = zip(steps, values, strict=True)
    return "".join(
        f"M{_x_coordinate(x_axis, s)} {_y_coordinate(y_axis, v)}h0"
        for s, v in pairs
        if math.isfinite(v)
    )


def _x_coordinate(axis: Axis, value: RealNumber) -> int:
    return round(AREA_WIDTH * axis.position(value))


def _y_coordinate(axis: Axis, value: RealNumber) -> int:
    return round(AREA_HEIGHT * (1 - axis.position(value)))


def _draw_ticks(layout: _ChartLayout) -> list[Html]:
    across, down = layout.x_axis, layout.y_axis
    left = [
        tag("span", text, class_="y", style=f"top:{1 - down.position(t):.2%}")
        for t, text in zip(down.ticks, layout.tick_texts, strict=True)
    ]
    below = [
        tag(
            "span",
            format_tick(t, across, ""),
            tag("i", layout.chart.x_name + ("" if t == 1 else "s"))
            if t == across.ticks[-1]
            else EMPTY_HTML,
            class_="x",
            style=f"left:{across.position(t):.2%}",
        )
        for t in across.ticks
    ]
    return left + below


def _draw_end_label(label: _EndLabel) -> Html:
    name = join_html(tag("br"), label.name) if label.name else EMPTY_HTML
    number = tag("b", label.value_text)
    return tag("span", number, name, class_=f"end {label.color}", style=f"top:{label.top:.0f}px")


def _subtitle(chart: LineChart, exponent: int) -> str:
    unit = "" if chart.unit == "%" else chart.unit
    return ", ".join(part for part in (chart.subtitle, _format_unit(unit, exponent)) if part)


def _format_unit(unit: str, exponent: int) -> str:
    return f"{f'×{NARROW_SPACE}{format_power_of_ten(exponent)}' if exponent else ''} {unit}".strip()


def _text_alternative(layout: _ChartLayout) -> str:
    """Describe a figure for screen readers."""
    factor = f" times ten to the power {layout.exponent}" if layout.exponent else ""

    def say(value: float) -> str:
        return f"{format_number(value)}{factor} {layout.chart.unit}".strip()

    parts: list[str] = []
    name = layout.chart.x_name
    for t in layout.drawn_curves:
        finite = np.isfinite(t.line[1])
        steps, values = t.line[0][finite], t.line[1][finite]
        start = f"from {say(float(values[0]))} at {name} {steps[0]:,.0f} to "
        last = f"{say(float(values[-1]))} at {name} {steps[-1]:,.0f}"
        parts.append(f"{t.curve.name} {start if len(values) > 1 else ''}{last}")
    parts += [f"{level.name} {say(level.value)}" for level in layout.chart.reference_lines]
    return f"{layout.chart.title}: {'; '.join(parts)}."


def _pointer_data(layout: _ChartLayout) -> str:
    """Write what the pointer reads out, four digits each."""

    def four_digits(values: AxisValues) -> list[float | None]:
        return [float(f"{v:.4g}") if math.isfinite(v) else None for v in values]

    curves = [
        {
            "n": t.curve.name,
            "c": t.curve.color,
            "x": [int(s) for s in t.line[0]],
            "y": four_digits(t.line[1]),
        }
        for t in layout.drawn_curves
    ]
    data = {
        "x": [layout.x_axis.low, layout.x_axis.high],
        "k": layout.chart.x_name,
        "u": _format_unit(layout.chart.unit, layout.exponent),
        "s": curves,
    }
    return json.dumps(data, separators=(",", ":"))


def _outliers_note(layout: _ChartLayout) -> Html:
    """Return a note on what is not drawn."""
    values = np.concatenate([t.curve.values for t in layout.drawn_curves])
    values = values[np.isfinite(values)]
    above, below = int((values > layout.y_axis.high).sum()), int((values < layout.y_axis.low).sum())
    said = [f"{above:,} above (highest {format_number(float(values.max()))})"] if above else []
    said += [f"{below:,} below (lowest {format_number(float(values.min()))})"] if below else []
    text = f"Logged values outside the axis: {', '.join(said)}."
    return tag("p", text, class_="remark") if said else EMPTY_HTML
