"""The training curves of a run: the columns of its log in each chart."""

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from unmask.reports.charts.line_chart import (
    Curve,
    CurveKind,
    LineChart,
    ReferenceLine,
    draw_charts,
    half_window,
)
from unmask.reports.formatting import (
    MISSING_VALUE,
    RealNumber,
    format_number,
    format_percent,
    humanize_name,
)
from unmask.reports.markup import EMPTY_HTML, Html, html_table, join_html, section, tag
from unmask.reports.report_data import LogSeries, ReportData
from unmask.reports.task_wording import (
    capitalize_first,
    is_percent_metric,
    metric_name,
    task_wording,
)

COUNT_COLUMNS = ("tokens", "asked", "skipped")  # columns that count, and need no curve
MIN_POINTS = 4  # minimum number of points of a curve; a table is clearer for fewer
SUBSET_ACCURACY = "subset_accuracy"  # of whole sets of labels; learning counts labels one by one
MAX_TABLE_ROWS = 12  # of the table of a run's steps


def draw_curves(record: ReportData) -> Html:
    """Draw all that was logged, measured and timed, against steps."""
    figures = [f for f in _charts(record) if any(_is_long_enough(c) for c in f.curves)]
    drawn = draw_charts(figures)
    milestones = _step_tables(record, is_folded=bool(drawn))
    if not drawn and milestones == EMPTY_HTML:
        return EMPTY_HTML
    half = half_window(len(record.training_log.steps)) if drawn else 0
    notes_on_lines = (
        [f"Faint: every logged step. Line: weighted mean over {2 * half + 1:,} of them."]
        if half
        else []
    )
    if any(curve.kind == "measured" for figure in figures for curve in figure.curves):
        notes_on_lines.append("Points: measured on held-out data.")
    notes = tag("div", *(tag("p", note) for note in _notes(record)), class_="remark notes")
    plots = tag("div", *drawn, class_="figures") if drawn else EMPTY_HTML
    return section("curves", "Curves", " ".join(notes_on_lines), plots, notes, milestones)


def _charts(record: ReportData) -> Iterable[LineChart]:
    yield _loss_chart(record)
    if not _is_comparable_on_dev(record):
        curves = _curve_of_column(record.evaluation_log, "loss", "held out", 2, kind="measured")
        yield LineChart(
            title="Held-out loss", unit=_loss_unit(record), curves=curves, is_large=True
        )
    yield _accuracy_chart(record)
    yield from _small_charts(record)


def _is_long_enough(curve: Curve) -> bool:
    return int(np.isfinite(curve.values).sum()) >= MIN_POINTS


def _loss_unit(record: ReportData) -> str:
    """Return the unit of the loss: nats also for numbers that are predicted as words."""
    counts_targets = bool(record.training_log.suffixes_after("accuracy."))
    if record.is_preference_run:
        return ""  # squares, log-odds or advantages
    if record.predicts_numbers:
        return "error of a number"
    return "nats" if counts_targets else task_wording(record).loss_unit


def _is_regression(record: ReportData) -> bool:
    """Return whether numbers are learned by squared error; they are scaled in training."""
    return _loss_unit(record) == "squared error"


def _is_comparable_on_dev(record: ReportData) -> bool:
    """Return whether training and held-out loss are comparable.

    They are not with class weights, scaled numbers, a CRF, or further training objectives.
    """
    recipe = record.record_section("recipe")
    options = recipe.get("task_options")
    chained = isinstance(options, Mapping) and options.get("head") == "recurrent"
    several = len(record.training_log.suffixes_after("parts.")) > 1
    odd = recipe.get("class_weights") or _is_regression(record) or chained or several
    return not (record.is_finetuning and odd)


def _loss_chart(record: ReportData) -> LineChart:
    parts = record.training_log.suffixes_after("parts.")
    several = len(parts) > 1
    name, color = ("sum", 0) if several else ("training", 1)
    curves = _curve_of_column(record.training_log, "loss", name, color)
    for i, part in enumerate(parts if several else ()):
        curves += _curve_of_column(
            record.training_log, f"parts.{part}", humanize_name(part), i % 5 + 1
        )
    return LineChart(
        title="Loss",
        subtitle=_loss_note(record),
        unit=_loss_unit(record),
        curves=(
            *curves,
            *(_dev_curves(record, "loss", parts) if _is_comparable_on_dev(record) else ()),
        ),
        reference_lines=_baseline_lines(record, "loss", parts),
        is_large=True,
    )


def _loss_note(record: ReportData) -> str:
    if record.is_finetuning and record.record_section("recipe").get("class_weights"):
        return "in training, weighted by label"
    return "in training, of numbers with a deviation of 1" if _is_regression(record) else ""


def _accuracy_chart(record: ReportData) -> LineChart:
    parts = record.training_log.suffixes_after("accuracy.") or record.training_log.suffixes_after(
        "parts."
    )
    several = len(parts) > 1
    curves: list[Curve] = []
    for i, part in enumerate(parts):
        name = humanize_name(part) if several else "training"
        curves += _curve_of_column(record.training_log, f"accuracy.{part}", name, i % 5 + 1, 100)
    alone = f"{humanize_name(parts[0])} accuracy" if len(parts) == 1 else "accuracy"
    return LineChart(
        title=alone.capitalize(),
        subtitle="fraction of targets predicted correctly",
        unit="%",
        curves=(*curves, *_dev_curves(record, "accuracy", parts, 100)),
        reference_lines=_baseline_lines(record, "accuracy", parts, 100),
        starts_at_zero=True,
        is_large=True,
    )


def _small_charts(record: ReportData) -> Iterable[LineChart]:
    train, clock = record.training_log, record.timing_log
    of_peak = "of the fastest matrix product"
    yield LineChart(
        title="Learning rate",
        curves=_curve_of_column(train, "rate", "rate", kind="exact"),
        starts_at_zero=True,
    )
    norm = _curve_of_column(train, "gradient_norm", "norm")
    yield LineChart(
        title="Gradient norm",
        subtitle="before clipping",
        curves=norm,
        starts_at_zero=True,
        allows_log_scale=True,
    )
    for title, says, unit, column, factor in (
        ("Speed", "", "tokens a second", "tokens_per_second", 1),
        ("Share of peak", of_peak, "%", "matmul_share", 100),
    ):
        curves = _curve_of_column(clock, column, title.lower(), 1, factor)
        events = record.resumed_steps
        yield LineChart(
            title=title,
            subtitle=says,
            unit=unit,
            curves=curves,
            marked_steps=events,
            starts_at_zero=True,
        )
    measures = train.suffixes_after("measures.")
    for name in measures:
        held_out = _curve_of_column(record.evaluation_log, name, "held out", 2, kind="measured")
        own = _curve_of_column(train, f"measures.{name}", "training")
        yield LineChart(title=capitalize_first(metric_name(name)), curves=(*own, *held_out))
    for column in record.evaluation_log.columns:
        drawn = _is_count(column) or column.endswith(("loss", "accuracy")) or column in measures
        if column == SUBSET_ACCURACY or not drawn:
            share = is_percent_metric(column)
            factor, unit = (100, "%") if share else (1, "")
            curves = _curve_of_column(
                record.evaluation_log, column, "held out", 2, factor, "measured"
            )
            title = capitalize_first(metric_name(column))
            yield LineChart(
                title=title, subtitle="held out", unit=unit, curves=curves, starts_at_zero=share
            )


def _dev_curves(
    record: ReportData, metric: str, loss_terms: Sequence[str], scale: RealNumber = 1
) -> tuple[Curve, ...]:
    several = len(loss_terms) > 1
    curves: tuple[Curve, ...] = ()
    for column in record.evaluation_columns(metric):
        if column == SUBSET_ACCURACY:
            continue
        part = column.removesuffix(metric).removesuffix("_") or ("sum" if metric == "loss" else "")
        name = f"{humanize_name(part)}, held out" if several and part else "held out"
        # The color of its part where there are several, one of its own beside a single curve.
        color = (loss_terms.index(part) % 5 + 1 if part in loss_terms else 0) if several else 2
        curves += _curve_of_column(record.evaluation_log, column, name, color, scale, "measured")
    return curves


def _baseline_lines(
    record: ReportData, metric: str, loss_terms: Sequence[str], scale: RealNumber = 1
) -> tuple[ReferenceLine, ...]:
    names = dict.fromkeys([metric, *(f"{part}_{metric}" for part in loss_terms)])
    names |= dict.fromkeys(record.evaluation_columns(metric))
    return tuple(
        ReferenceLine(method, scale * value)
        for name in names
        for method, value in record.baselines.get(name, {}).items()
        if math.isfinite(value)
    )


def _curve_of_column(
    source: LogSeries,
    column: str,
    name: str,
    color: int = 1,
    scale: RealNumber = 1,
    kind: CurveKind = "noisy",
) -> tuple[Curve, ...]:
    """Make a curve of a column, if it holds any number."""
    if column not in source:
        return ()
    values = scale * source.columns[column]
    if kind == "noisy":  # a gap is where a number was not finite, not where none is ever logged
        return (Curve(name=name, steps=source.steps, values=values, color=color),)
    is_finite = np.isfinite(values)
    steps, values = source.steps[is_finite], values[is_finite]
    return (Curve(name=name, steps=steps, values=values, color=color, kind=kind),)


def _notes(record: ReportData) -> list[str]:
    notes = list(record.notes)
    if n := int(record.training_log.maximum("skipped") or 0):
        steps = "One step was" if n == 1 else f"{n:,} steps were"
        notes.append(f"{steps} skipped because the loss or the gradient was not finite.")
    if record.resumed_steps:
        times = "once" if len(record.resumed_steps) == 1 else f"{len(record.resumed_steps)} times"
        after = ", ".join(f"{step:,}" for step in record.resumed_steps[:8])
        more = ", …" if len(record.resumed_steps) > 8 else ""
        notes.append(f"Resumed {times} (dotted), first logged again at step {after}{more}.")
    return notes


def _step_tables(record: ReportData, *, is_folded: bool) -> Html:
    """Tabulate a dozen steps, for those who want numbers and have no pointer.

    Folded away are the last figures where curves show them; otherwise all there is is shown.
    """
    if not is_folded:
        both = (("In training", record.training_log), ("On held-out data", record.evaluation_log))
        return join_html(*(_step_table(source, title, show_title=True) for title, source in both))
    held_out = len(record.evaluation_log.steps) > 1
    source = record.evaluation_log if held_out else record.training_log
    if len(source.steps) < 2:
        return EMPTY_HTML
    title = f"{min(len(source.steps), MAX_TABLE_ROWS)} steps as a table"
    title += ", held-out data" if held_out else ""
    return tag("details", tag("summary", title), _step_table(source, title, show_title=False))


def _step_table(source: LogSeries, title: str, *, show_title: bool) -> Html:
    n = len(source.steps)
    columns = [c for c in source.columns if c in source and not _is_count(c)]
    if len(source.suffixes_after("parts.")) == 1:  # it is the loss
        columns = [c for c in columns if not c.startswith("parts.")]
    if not columns:
        return EMPTY_HTML
    chosen = [int(i) for i in np.unique(np.linspace(0, n - 1, min(n, MAX_TABLE_ROWS)).round())]
    rows = [
        [
            f"{source.steps[i]:,.0f}",
            *(_format_cell(c, float(source.columns[c][i])) for c in columns),
        ]
        for i in chosen
    ]
    return html_table(["step", *map(_column_title, columns)], rows, title, show_title=show_title)


def _is_count(column: str) -> bool:
    """Return whether a column is a count: `masked_asked` is, `masked` is not."""
    return humanize_name(column).split()[-1] in COUNT_COLUMNS


def _column_title(name: str) -> str:
    """Name a column of a table: `accuracy.masked` is masked accuracy, `measures.kl` is that."""
    kind, dot, part = name.partition(".")
    alone = kind in ("parts", "measures")
    return metric_name(f"{part}_{kind}" if dot and not alone else part or name)


def _format_cell(column: str, value: float) -> str:
    if not math.isfinite(value):
        return MISSING_VALUE
    return format_percent(value) if is_percent_metric(column) else format_number(value)
