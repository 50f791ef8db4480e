"""Figures for a page: SVG lines that stretch to any width, and HTML labels that do not.

The drawing area is `WIDE` × `HIGH` units without a fixed aspect; strokes keep their width
(`non-scaling-stroke`), and a point is a stroke of no length with round ends. Labels stand at
percentages across and pixels down, where the height is fixed, so that text stays readable on a
phone. Lines carry their names at their right end instead of a legend.
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

from unmask.serving.axis import Axis, Values, linear, logarithmic, tick
from unmask.serving.markup import EMPTY, Html, join, tag
from unmask.serving.words import NARROW, Number, plain, power, rounded, short

WIDE, HIGH = 2000, 1000  # units of the drawing area; one is finer than a pixel
POINTS = 500  # of a raw curve that are drawn; half as many of a smoothed one
DOTS = 60  # most points that are marked one by one
TALL, LOW = 264, 132  # pixels: a figure across the page, and one of several in a row
LINE, GAP = 16, 3  # pixels: a line of a label, and what keeps it from the next label
LETTER = 0.8  # of the width of a zero (the unit `ch`): a letter of a name, on average

Kind = Literal["noisy", "exact", "measured"]


@dataclass(frozen=True, kw_only=True)
class Curve:
    """Numbers along steps: noisy ones are smoothed, exact ones not, measured ones marked."""

    name: str
    steps: Values
    values: Values
    color: int = 1
    kind: Kind = "noisy"


@dataclass(frozen=True)
class Level:
    """A horizontal line to compare with: what a simple method reaches."""

    name: str
    value: float


@dataclass(frozen=True, kw_only=True)
class Figure:
    """Curves over one axis of steps."""

    title: str
    curves: tuple[Curve, ...]
    says: str = ""  # what is measured, in a few words
    unit: str = ""
    levels: tuple[Level, ...] = ()
    events: tuple[int, ...] = ()  # steps marked by a dotted line
    zero: bool = False  # the axis begins at zero
    tall: bool = False
    steep: bool = False  # where values span orders of magnitude, the axis is logarithmic


@dataclass(frozen=True, kw_only=True)
class _Trace:
    """A curve ready to be drawn: raw values faint, where the line is an average of them."""

    curve: Curve
    raw: tuple[Float[np.ndarray, "r"], Float[np.ndarray, "r"]] | None
    line: tuple[Float[np.ndarray, "l"], Float[np.ndarray, "l"]]

    @property
    def end(self) -> float:
        return float(self.line[1][np.isfinite(self.line[1])][-1])


@dataclass(frozen=True, kw_only=True)
class _Label:
    """A name and a number at the right end of a line, `top` pixels below the top of the area."""

    name: str
    number: str
    color: str
    height: int
    top: float


@dataclass(frozen=True, kw_only=True)
class _Plan:
    """A figure with its axes laid."""

    figure: Figure
    exponent: int
    traces: tuple[_Trace, ...]
    across: Axis
    down: Axis
    height: int
    labels: tuple[_Label, ...]

    @property
    def numbers(self) -> list[str]:
        """The labels of the vertical axis; only the topmost has the unit."""
        sign = "%" if self.figure.unit == "%" else ""
        ticks = self.down.ticks
        return [tick(t, self.down, sign if t == ticks[-1] else "") for t in ticks]


def smooth(values: Values, half: int) -> Values:
    """Average over `half` neighbors on either side, nearer ones more; only finite ones count.

    Two passes of a plain mean, so that a spike becomes a bump and not a box. At the left end the
    window shrinks on both sides, so that the fast fall in which a run begins is not flattened; at
    the right end on the far side only, so that the last value is an average.
    """
    once = half // 2
    return _mean(_mean(values, half - once), once)


def _mean(values: Values, half: int) -> Values:
    n = len(values)
    finite = np.isfinite(values)
    sums = np.concatenate([[0.0], np.cumsum(np.where(finite, values, 0.0))])
    counts = np.concatenate([[0], np.cumsum(finite)])
    middle = np.arange(n)
    reach = np.minimum(middle, half)
    first, last = middle - reach, np.minimum(middle + reach + 1, n)
    count = counts[last] - counts[first]
    return np.where(count > 0, (sums[last] - sums[first]) / np.maximum(count, 1), math.nan)


def half_window(n: int) -> int:
    """Return how many neighbors on either side to average over: light, and none on short runs."""
    return max(n // 60, 1) if n >= 40 else 0


def thin(
    steps: Values, values: Values, points: int = POINTS
) -> tuple[Float[np.ndarray, "k"], Float[np.ndarray, "k"]]:
    """Keep the least and the greatest value of each of `points / 2` stretches: no spike is lost."""
    n = len(values)
    if n <= points:
        return steps, values
    kept: list[int] = []
    edges = np.linspace(0, n, points // 2 + 1).astype(int).tolist()
    for start, end in itertools.pairwise(edges):
        piece = values[start:end]
        if np.isfinite(piece).any():
            kept += sorted({start + int(np.nanargmin(piece)), start + int(np.nanargmax(piece))})
        else:
            kept.append(start)
    return steps[kept], values[kept]


def draw(figures: Iterable[Figure]) -> list[Html]:
    """Draw figures with common margins, so that their axes align; without finite values, none."""
    plans = [plan for figure in figures if (plan := _plan(figure)) is not None]
    drawn: list[Html] = []
    for plan in plans:
        row = [p for p in plans if p.figure.tall == plan.figure.tall]
        left = max(len(text) for p in row for text in p.numbers) + 1.0
        right = max(_width(label) for p in row for label in p.labels)
        drawn.append(_figure(plan, left, max(right, 5.0) + 2.0))
    return drawn


def _plan(figure: Figure) -> _Plan | None:
    figure, exponent = _scaled(figure)
    traces = tuple(_trace(c) for c in figure.curves if np.isfinite(c.values).any())
    if not traces:
        return None
    down = _down(figure, traces)
    height, labels = _labels(figure, traces, down)
    return _Plan(
        figure=figure,
        exponent=exponent,
        traces=traces,
        across=_across(traces),
        down=down,
        height=height,
        labels=labels,
    )


def _scaled(figure: Figure) -> tuple[Figure, int]:
    """Give very small numbers (learning rates) in units of a power of ten."""
    finite = np.concatenate([c.values[np.isfinite(c.values)] for c in figure.curves] or [[]])
    top = float(np.abs(finite).max()) if len(finite) else 0.0
    if not 0 < top < 0.01 or figure.steep:
        return figure, 0
    exponent = math.floor(math.log10(top) + 1e-9)
    by = 10.0**-exponent
    curves = tuple(dataclasses.replace(c, values=c.values * by) for c in figure.curves)
    levels = tuple(Level(level.name, level.value * by) for level in figure.levels)
    return dataclasses.replace(figure, curves=curves, levels=levels), exponent


def _trace(curve: Curve) -> _Trace:
    n = len(curve.values)
    half = half_window(n) if curve.kind == "noisy" else 0
    if not half:
        return _Trace(curve=curve, raw=None, line=thin(curve.steps, curve.values, POINTS // 2))
    kept = np.unique(np.linspace(0, n - 1, min(n, POINTS // 2)).round().astype(int))
    line = curve.steps[kept], smooth(curve.values, half)[kept]
    return _Trace(curve=curve, raw=thin(curve.steps, curve.values), line=line)


def _across(traces: Sequence[_Trace]) -> Axis:
    low = min(float(t.line[0][0]) for t in traces)
    high = max(float(t.line[0][-1]) for t in traces)
    return linear(0.0 if low < 0.25 * high or low == high else low, high, 5, snug=True)


def _down(figure: Figure, traces: Sequence[_Trace]) -> Axis:
    """Lay the vertical axis: all of every line, and of the raw values all but rare spikes."""
    levels = np.array([level.value for level in figure.levels])
    lines = np.concatenate([t.line[1] for t in traces] + [levels])
    raw = np.concatenate([t.raw[1] for t in traces if t.raw is not None] or [lines])
    lines, raw = lines[np.isfinite(lines)], raw[np.isfinite(raw)]
    everything = np.concatenate([lines, raw])
    low, high = float(everything.min()), float(everything.max())
    if figure.steep and low > 0 and high > 30 * float(np.median(everything)):
        return logarithmic(low, high)
    usual = np.concatenate([lines, np.quantile(raw, (0.005, 0.995))])
    least, most = float(usual.min()), float(usual.max())
    if most > least:
        low, high = max(low, 1.5 * least - 0.5 * most), min(high, 1.5 * most - 0.5 * least)
    return linear(min(low, 0.0) if figure.zero else low, high, 5 if figure.tall else 3)


def _labels(figure: Figure, traces: Sequence[_Trace], down: Axis) -> tuple[int, tuple[_Label, ...]]:
    """Label lines at their right ends; return also the height that this needs."""
    alone = len(traces) == 1 and not figure.levels  # the title names it
    ends = [(t.curve.name, t.end, f"c{t.curve.color}") for t in traces]
    ends += [(level.name, level.value, "soft") for level in figure.levels]
    size = LINE if alone else 2 * LINE + GAP
    height = max(TALL if figure.tall else LOW, size * len(ends))
    sign = f"{NARROW}%" if figure.unit == "%" else ""
    labels = [
        _Label(
            name="" if alone else name,
            number=f"{short(value) if abs(value) >= 1e6 else rounded(value)}{sign}",
            color=color,
            height=size,
            top=height * (1 - down.share(value)) - size / 2,
        )
        for name, value, color in ends
    ]
    return height, tuple(_apart(labels, height + LINE / 4))


def _apart(labels: Sequence[_Label], bottom: float) -> list[_Label]:
    """Push labels down until none overlaps the one above it, then up from the bottom."""
    ordered = sorted(labels, key=lambda label: label.top)
    tops = [label.top for label in ordered]
    for i in range(1, len(tops)):
        tops[i] = max(tops[i], tops[i - 1] + ordered[i - 1].height)
    for i in reversed(range(len(tops))):
        tops[i] = min(tops[i], bottom - ordered[i].height)
        bottom = tops[i]
    return [dataclasses.replace(o, top=top) for o, top in zip(ordered, tops, strict=True)]


def _width(label: _Label) -> float:
    return max(float(len(label.number)), LETTER * len(label.name) + 0.5)


def _figure(plan: _Plan, left: float, right: float) -> Html:
    figure = plan.figure
    area = tag(
        "div",
        _svg(plan),
        *_ticks(plan),
        *(_end(label) for label in plan.labels),
        class_="plot",
        role="img",
        aria_label=_spoken(plan),
        style=f"height:{plan.height}px;margin-left:{left:.3g}ch;margin-right:{right:.3g}ch",
    )
    says = tag("span", _says(figure, plan.exponent))
    return tag(
        "figure",
        tag("figcaption", tag("b", figure.title), " ", says),
        tag("div", area, class_="frame", data_plot=_data(plan)),
        _remark(plan),
        class_="wide" if figure.tall else None,
    )


def _svg(plan: _Plan) -> Html:
    figure, across, down = plan.figure, plan.across, plan.down
    lines = {
        "grid": [f"M0 {_y(down, t)}H{WIDE}" for t in down.ticks],
        "event": [f"M{_x(across, e)} 0V{HIGH}" for e in figure.events],
        "level": [f"M0 {_y(down, level.value)}H{WIDE}" for level in figure.levels],
    }
    strokes = [_stroke("".join(paths), name) for name, paths in lines.items() if paths]
    strokes += [
        _stroke(_path(*t.raw, across, down), f"raw c{t.curve.color}")
        for t in plan.traces
        if t.raw is not None
    ]
    for t in plan.traces:
        color = f"c{t.curve.color}"
        measured = t.curve.kind == "measured"
        strokes.append(
            _stroke(_path(*t.line, across, down), f"line {color}{' measured' if measured else ''}")
        )
        if np.isfinite(t.line[1]).sum() == 1 or (measured and len(t.line[0]) <= DOTS):
            strokes.append(_stroke(_dots(*t.line, across, down), f"dot {color}"))
    return tag(
        "svg",
        *strokes,
        viewBox=f"0 0 {WIDE} {HIGH}",
        preserveAspectRatio="none",
        aria_hidden="true",
    )


def _stroke(path: str, class_: str) -> Html:
    return tag("path", d=path, class_=class_)


def _path(steps: Values, values: Values, across: Axis, down: Axis) -> str:
    """Write a line, broken where a value is not finite."""
    xs = np.rint(across.place(steps) * WIDE).astype(int)
    pieces: list[str] = []
    drawing = False
    for x, place in zip(xs, down.place(values), strict=True):
        if finite := math.isfinite(place):
            pieces.append(f"{'' if drawing else 'M'}{x} {round(HIGH * (1 - place))}")
        drawing = finite
    return " ".join(pieces)


def _dots(steps: Values, values: Values, across: Axis, down: Axis) -> str:
    pairs = zip(steps, values, strict=True)
    return "".join(f"M{_x(across, s)} {_y(down, v)}h0" for s, v in pairs if math.isfinite(v))


def _x(axis: Axis, value: Number) -> int:
    return round(WIDE * axis.share(value))


def _y(axis: Axis, value: Number) -> int:
    return round(HIGH * (1 - axis.share(value)))


def _ticks(plan: _Plan) -> list[Html]:
    across, down = plan.across, plan.down
    left = [
        tag("span", text, class_="y", style=f"top:{1 - down.share(t):.2%}")
        for t, text in zip(down.ticks, plan.numbers, strict=True)
    ]
    below = [
        tag(
            "span",
            tick(t, across, ""),
            tag("i", "step" if t == 1 else "steps") if t == across.ticks[-1] else EMPTY,
            class_="x",
            style=f"left:{across.share(t):.2%}",
        )
        for t in across.ticks
    ]
    return left + below


def _end(label: _Label) -> Html:
    name = join(tag("br"), label.name) if label.name else EMPTY
    number = tag("b", label.number)
    return tag("span", number, name, class_=f"end {label.color}", style=f"top:{label.top:.0f}px")


def _says(figure: Figure, exponent: int) -> str:
    unit = "" if figure.unit == "%" else figure.unit
    return ", ".join(part for part in (figure.says, _unit(unit, exponent)) if part)


def _unit(unit: str, exponent: int) -> str:
    return f"{f'×{NARROW}{power(exponent)}' if exponent else ''} {unit}".strip()


def _spoken(plan: _Plan) -> str:
    """Say what a figure shows, for those who do not see it."""
    factor = f" times ten to the power {plan.exponent}" if plan.exponent else ""

    def say(value: float) -> str:
        return f"{plain(value)}{factor} {plan.figure.unit}".strip()

    parts: list[str] = []
    for t in plan.traces:
        finite = np.isfinite(t.line[1])
        steps, values = t.line[0][finite], t.line[1][finite]
        start = f"from {say(float(values[0]))} at step {steps[0]:,.0f} to "
        last = f"{say(float(values[-1]))} at step {steps[-1]:,.0f}"
        parts.append(f"{t.curve.name} {start if len(values) > 1 else ''}{last}")
    parts += [f"{level.name} {say(level.value)}" for level in plan.figure.levels]
    return f"{plan.figure.title}: {'; '.join(parts)}."


def _data(plan: _Plan) -> str:
    """Write what the pointer reads out, four digits each."""

    def four_digits(values: Values) -> list[float | None]:
        return [float(f"{v:.4g}") if math.isfinite(v) else None for v in values]

    curves = [
        {
            "n": t.curve.name,
            "c": t.curve.color,
            "x": [int(s) for s in t.line[0]],
            "y": four_digits(t.line[1]),
        }
        for t in plan.traces
    ]
    data = {
        "x": [plan.across.low, plan.across.high],
        "u": _unit(plan.figure.unit, plan.exponent),
        "s": curves,
    }
    return json.dumps(data, separators=(",", ":"))


def _remark(plan: _Plan) -> Html:
    """Own up to what is not drawn."""
    values = np.concatenate([t.curve.values for t in plan.traces])
    values = values[np.isfinite(values)]
    above, below = int((values > plan.down.high).sum()), int((values < plan.down.low).sum())
    said = [f"{above:,} above (highest {plain(float(values.max()))})"] if above else []
    said += [f"{below:,} below (lowest {plain(float(values.min()))})"] if below else []
    text = f"Logged values outside the axis: {', '.join(said)}."
    return tag("p", text, class_="remark") if said else EMPTY
