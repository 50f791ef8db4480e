"""The curves of a run: which numbers of its log are drawn together, and against what."""

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from unmask.serving.markup import EMPTY, Html, join, section, table, tag
from unmask.serving.plot import Curve, Figure, Kind, Level, draw, half_window
from unmask.serving.record import Record, Series
from unmask.serving.tasks import first_large, is_share, metric_name
from unmask.serving.words import NOTHING, Number, percent, plain, readable

COUNTS = ("tokens", "asked", "skipped")  # columns that count, and need no curve
FEWEST = 4  # points of a curve that is drawn; fewer are told sooner by a table
OF_SETS = "subset_accuracy"  # of whole sets of labels; learning counts labels one by one
MOST_ROWS = 12  # of the table of a run's steps


def draw_curves(record: Record) -> Html:
    """Draw all that was logged, measured and timed, against steps."""
    figures = [f for f in _figures(record) if any(_long(c) for c in f.curves)]
    drawn = draw(figures)
    milestones = _milestones(record, folded=bool(drawn))
    if not drawn and milestones == EMPTY:
        return EMPTY
    half = half_window(len(record.training.steps)) if drawn else 0
    said = (
        [f"Faint: every logged step. Line: weighted mean over {2 * half + 1:,} of them."]
        if half
        else []
    )
    if any(curve.kind == "measured" for figure in figures for curve in figure.curves):
        said.append("Points: measured on held-out text.")
    notes = tag("div", *(tag("p", note) for note in _notes(record)), class_="remark notes")
    plots = tag("div", *drawn, class_="figures") if drawn else EMPTY
    return section("curves", "Curves", " ".join(said), plots, notes, milestones)


def _figures(record: Record) -> Iterable[Figure]:
    yield _loss(record)
    if not _comparable(record):
        curves = _curve(record.evaluation, "loss", "held out", 2, kind="measured")
        yield Figure(title="Held-out loss", unit=_unit(record), curves=curves, tall=True)
    yield _accuracy(record)
    yield from _small(record)


def _long(curve: Curve) -> bool:
    return int(np.isfinite(curve.values).sum()) >= FEWEST


def _numbers(record: Record) -> bool:
    """Say whether numbers are learned: they have no right answers, but a squared error."""
    return record.does == "regress" and not record.training.parts("accuracy.")


def _unit(record: Record) -> str:
    return "squared error" if _numbers(record) else "nats"


def _comparable(record: Record) -> bool:
    """Say whether what is learned is measured alike on held-out text.

    It is not where labels are weighted, numbers are scaled, labels stand in a chain, or other
    questions are learned too.
    """
    recipe = record.part("recipe")
    options = recipe.get("options")
    chained = isinstance(options, Mapping) and options.get("head") == "recurrent"
    several = len(record.training.parts("parts.")) > 1
    odd = recipe.get("class_weights") or _numbers(record) or chained or several
    return not (record.finetuned and odd)


def _loss(record: Record) -> Figure:
    parts = record.training.parts("parts.")
    several = len(parts) > 1
    name, color = ("sum", 0) if several else ("training", 1)
    curves = _curve(record.training, "loss", name, color)
    for i, part in enumerate(parts if several else ()):
        curves += _curve(record.training, f"parts.{part}", readable(part), i % 5 + 1)
    return Figure(
        title="Loss",
        says=_says_loss(record),
        unit=_unit(record),
        curves=(*curves, *(_held_out(record, "loss", parts) if _comparable(record) else ())),
        levels=_levels(record, "loss", parts),
        tall=True,
    )


def _says_loss(record: Record) -> str:
    if record.finetuned and record.part("recipe").get("class_weights"):
        return "in training, weighted by label"
    return "in training, of numbers with a deviation of 1" if _numbers(record) else ""


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
        drawn = _counts(column) or column.endswith(("loss", "accuracy"))
        if column == OF_SETS or not drawn:
            share = is_share(column)
            factor, unit = (100, "%") if share else (1, "")
            curves = _curve(record.evaluation, column, "held out", 2, factor, "measured")
            title = first_large(metric_name(column))
            yield Figure(title=title, says="held out", unit=unit, curves=curves, zero=share)


def _held_out(
    record: Record, metric: str, parts: Sequence[str], factor: Number = 1
) -> tuple[Curve, ...]:
    several = len(parts) > 1
    curves: tuple[Curve, ...] = ()
    for column in record.measured(metric):
        if column == OF_SETS:
            continue
        part = column.removesuffix(metric).removesuffix("_") or ("sum" if metric == "loss" else "")
        name = f"{readable(part)}, held out" if several and part else "held out"
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


def _milestones(record: Record, *, folded: bool) -> Html:
    """Tabulate a dozen steps, for those who want numbers and have no pointer.

    Folded away are the last figures where curves show them; otherwise all there is is shown.
    """
    if not folded:
        both = (("In training", record.training), ("On held-out text", record.evaluation))
        return join(*(_steps(source, title, titled=True) for title, source in both))
    held_out = len(record.evaluation.steps) > 1
    source = record.evaluation if held_out else record.training
    if len(source.steps) < 2:
        return EMPTY
    title = f"{min(len(source.steps), MOST_ROWS)} steps as a table"
    title += ", held-out text" if held_out else ""
    return tag("details", tag("summary", title), _steps(source, title, titled=False))


def _steps(source: Series, title: str, *, titled: bool) -> Html:
    n = len(source.steps)
    columns = [c for c in source.columns if c in source and not _counts(c)]
    if len(source.parts("parts.")) == 1:  # it is the loss
        columns = [c for c in columns if not c.startswith("parts.")]
    if not columns:
        return EMPTY
    chosen = [int(i) for i in np.unique(np.linspace(0, n - 1, min(n, MOST_ROWS)).round())]
    rows = [
        [f"{source.steps[i]:,.0f}", *(_cell(c, float(source.columns[c][i])) for c in columns)]
        for i in chosen
    ]
    return table(["step", *map(_column, columns)], rows, title, titled=titled)


def _counts(column: str) -> bool:
    """Say whether a column counts: `masked_asked` does, `masked` does not."""
    return readable(column).split()[-1] in COUNTS


def _column(name: str) -> str:
    """Name a column of a table: `accuracy.masked` is masked accuracy."""
    metric, dot, part = name.partition(".")
    return metric_name(f"{part}_{metric}" if dot and metric != "parts" else part or name)


def _cell(column: str, value: float) -> str:
    if not math.isfinite(value):
        return NOTHING
    return percent(value) if is_share(column) else plain(value)
