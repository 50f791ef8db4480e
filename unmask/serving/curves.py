"""The curves of a run: which numbers of its log are drawn together, and against what."""

import math
from collections.abc import Iterable, Sequence

import numpy as np

from unmask.serving.markup import EMPTY, Html, section, table, tag
from unmask.serving.plot import Curve, Figure, Kind, Level, draw, half_window
from unmask.serving.record import Record, Series
from unmask.serving.scores import is_share
from unmask.serving.words import NOTHING, Number, percent, plain, readable

COUNTS = ("tokens", "asked", "skipped")  # columns that count, and need no curve
MOST_ROWS = 12  # of the table of a run's steps


def draw_curves(record: Record) -> Html:
    """Draw all that was logged, measured and timed, against steps."""
    drawn = draw([_loss(record), _accuracy(record), *_small(record)])
    if not drawn:
        return EMPTY
    half = half_window(len(record.training.steps))
    said = (
        [f"Faint: every logged step. Line: weighted mean over {2 * half + 1:,} of them."]
        if half
        else []
    )
    said += ["Points: measured on held-out text."] if len(record.evaluation.steps) else []
    notes = tag("div", *(tag("p", note) for note in _notes(record)), class_="remark notes")
    figures = tag("div", *drawn, class_="figures")
    return section("curves", "Curves", " ".join(said), figures, notes, _milestones(record))


def _loss(record: Record) -> Figure:
    parts = record.training.parts("parts.")
    several = len(parts) > 1
    name, color = ("sum", 0) if several else ("training", 1)
    curves = _curve(record.training, "loss", name, color)
    for i, part in enumerate(parts if several else ()):
        curves += _curve(record.training, f"parts.{part}", readable(part), i % 5 + 1)
    return Figure(
        title="Loss",
        unit="nats",
        curves=(*curves, *_held_out(record, "loss", parts)),
        levels=_levels(record, "loss", parts),
        tall=True,
    )


def _accuracy(record: Record) -> Figure:
    parts = record.training.parts("accuracy.") or record.training.parts("parts.")
    several = len(parts) > 1
    curves: list[Curve] = []
    for i, part in enumerate(parts):
        name = readable(part) if several else "training"
        curves += _curve(record.training, f"accuracy.{part}", name, i % 5 + 1, 100)
    alone = f"{readable(parts[0])} accuracy" if len(parts) == 1 else "accuracy"
    return Figure(
        title=alone.capitalize(),
        says="how much of what was asked the model got right",
        unit="%",
        curves=(*curves, *_held_out(record, "accuracy", parts, 100)),
        levels=_levels(record, "accuracy", parts, 100),
        zero=True,
        tall=True,
    )


def _small(record: Record) -> Iterable[Figure]:
    train, clock = record.training, record.timing
    of_peak = "of the fastest matrix product"
    yield Figure(
        title="Learning rate", curves=_curve(train, "rate", "rate", kind="exact"), zero=True
    )
    norm = _curve(train, "gradient_norm", "norm")
    yield Figure(title="Gradient norm", says="before clipping", curves=norm, zero=True, steep=True)
    for title, says, unit, column, factor in (
        ("Speed", "", "tokens a second", "tokens_per_second", 1),
        ("Share of peak", of_peak, "%", "matmul_share", 100),
    ):
        curves = _curve(clock, column, title.lower(), 1, factor)
        events = record.resumed
        yield Figure(title=title, says=says, unit=unit, curves=curves, events=events, zero=True)
    for column in record.evaluation.columns:
        if not column.endswith(("loss", "accuracy", *COUNTS)):
            factor, unit = (100, "%") if is_share(column) else (1, "")
            curves = _curve(record.evaluation, column, "held out", 2, factor, "measured")
            title = readable(column).capitalize()
            yield Figure(title=title, says="held out", unit=unit, curves=curves)


def _held_out(
    record: Record, metric: str, parts: Sequence[str], factor: Number = 1
) -> tuple[Curve, ...]:
    several = len(parts) > 1
    curves: tuple[Curve, ...] = ()
    for column in record.measured(metric):
        part = column.removesuffix(metric).removesuffix("_") or "sum"
        name = f"{readable(part)}, held out" if several else "held out"
        # The color of its part where there are several, one of its own beside a single curve.
        color = (parts.index(part) % 5 + 1 if part in parts else 0) if several else 2
        curves += _curve(record.evaluation, column, name, color, factor, "measured")
    return curves


def _levels(
    record: Record, metric: str, parts: Sequence[str], factor: Number = 1
) -> tuple[Level, ...]:
    names = dict.fromkeys([metric, *(f"{part}_{metric}" for part in parts)])
    names |= dict.fromkeys(record.measured(metric))
    return tuple(
        Level(method, factor * value)
        for name in names
        for method, value in record.baselines.get(name, {}).items()
        if math.isfinite(value)
    )


def _curve(
    source: Series,
    column: str,
    name: str,
    color: int = 1,
    factor: Number = 1,
    kind: Kind = "noisy",
) -> tuple[Curve, ...]:
    """Make a curve of a column, if it holds any number."""
    if column not in source:
        return ()
    values = factor * source.columns[column]
    if kind == "noisy":  # a gap is where a number was not finite, not where none is ever logged
        return (Curve(name=name, steps=source.steps, values=values, color=color),)
    kept = np.isfinite(values)
    steps, values = source.steps[kept], values[kept]
    return (Curve(name=name, steps=steps, values=values, color=color, kind=kind),)


def _notes(record: Record) -> list[str]:
    notes = list(record.notes)
    if n := int(record.training.greatest("skipped") or 0):
        steps = "One step was" if n == 1 else f"{n:,} steps were"
        notes.append(f"{steps} skipped because the loss or the gradient was not finite.")
    if record.resumed:
        times = "once" if len(record.resumed) == 1 else f"{len(record.resumed)} times"
        after = ", ".join(f"{step:,}" for step in record.resumed[:8])
        more = ", …" if len(record.resumed) > 8 else ""
        notes.append(f"Resumed {times} (dotted), first logged again at step {after}{more}.")
    return notes


def _milestones(record: Record) -> Html:
    """Tabulate a dozen steps, for those who want numbers and have no pointer."""
    held_out = len(record.evaluation.steps) > 1
    source = record.evaluation if held_out else record.training
    n = len(source.steps)
    if n < 2:
        return EMPTY
    chosen = [int(i) for i in np.unique(np.linspace(0, n - 1, MOST_ROWS).round())]
    columns = [c for c in source.columns if c in source and not c.endswith(COUNTS)]
    rows = [
        [f"{source.steps[i]:,.0f}", *(_cell(c, float(source.columns[c][i])) for c in columns)]
        for i in chosen
    ]
    names = [readable(c.removeprefix("parts.")) for c in columns]
    title = f"{len(chosen)} steps as a table" + (", held-out text" if held_out else "")
    body = table(["step", *names], rows, title, titled=False)
    return tag("details", tag("summary", title), body)


def _cell(column: str, value: float) -> str:
    if not math.isfinite(value):
        return NOTHING
    return percent(value) if is_share(column) else plain(value)
