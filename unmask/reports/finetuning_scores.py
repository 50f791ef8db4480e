"""Scores of fine-tuning: their means and spreads over seeds, and how a page shows them."""

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from unmask.reports.charts.axis import Axis, format_tick, linear_axis
from unmask.reports.charts.reliability_diagram import draw_reliability_diagram
from unmask.reports.formatting import (
    MINUS_SIGN,
    MISSING_VALUE,
    NARROW_SPACE,
    format_number,
    format_percent,
    format_seconds,
    truncate_text,
)
from unmask.reports.markup import (
    EMPTY_HTML,
    Html,
    HtmlContent,
    html_table,
    join_html,
    png_image,
    scrollable,
    section,
    tag,
)
from unmask.reports.report_data import (
    ConfusionMatrix,
    ErrorExample,
    FinetuningResults,
    LabelCounts,
    ReportData,
    SearchTrialRecord,
)
from unmask.reports.task_wording import (
    SPLIT_NAMES,
    capitalize_first,
    is_percent_metric,
    metric_name,
    score_label,
    task_wording,
)
from unmask.tasks.metrics.metric import METRICS
from unmask.training.log import finite_number

# The page stays one that opens at once: what is longer is cut, and says so.
MAX_SEEDS, MAX_MATRIX_LABELS, MAX_CONFUSIONS, MAX_ERRORS = 30, 12, 15, 25
MAX_ERROR_CHARACTERS, MAX_TRIALS, MAX_LABEL_CHARACTERS, MAX_COUNTED_LABELS = 400, 50, 32, 100
SEEDS_NOTE = "Each dot is one seed, the bar their mean; ± is the standard deviation over seeds."
CALIBRATION_NOTE = (
    "Of answers given with some confidence, that share should be right: the dashed line."
)


@dataclass(frozen=True)
class ScoreGroup:
    """The scores of one arm, one for each seed."""

    name: str
    values: tuple[float, ...]


def format_score(metric: str, value: float | None) -> str:
    """Write one score."""
    if value is None:
        return MISSING_VALUE
    return format_percent(value) if is_percent_metric(metric) else format_number(value)


def format_mean(metric: str, values: Sequence[float]) -> str:
    """Write mean ± standard deviation (of a sample: divided by n - 1), or the one value."""
    middle = statistics.fmean(values)
    if len(values) < 2:
        return format_score(metric, middle)
    spread = statistics.stdev(values)
    if not is_percent_metric(metric):
        return f"{format_number(middle)} ± {format_number(spread, 2)}"
    after = 1 if spread >= 0.001 or spread == 0 else 2
    return f"{100 * middle:.{after}f} ± {100 * spread:.{after}f}{NARROW_SPACE}%".replace(
        "-", MINUS_SIGN
    )


def scores_by_split(results: FinetuningResults) -> list[tuple[str, list[ScoreGroup]]]:
    """Return dev and test, as far as there are scores, with the finite scores of each arm."""
    found: list[tuple[str, list[ScoreGroup]]] = []
    for split in ("dev", "test"):
        arms = [(arm.name, arm.dev if split == "dev" else arm.test) for arm in results.arms]
        groups = [ScoreGroup(name, _finite_values(values)) for name, values in arms]
        if groups := [group for group in groups if group.values]:
            found.append((split, groups))
    return found


def draw_results(record: ReportData) -> Iterable[tuple[str, str, Html]]:
    """Draw what fine-tuning gave: mistakes first, then what is taken for what, trust, and seeds."""
    results = record.results
    if results is None or not scores_by_split(results):
        return
    wording = task_wording(record)
    drawn = (
        ("errors", "Errors", _errors_summary(record, results), _error_table(results.errors)),
        ("confusions", "Confusions", "", _confusion_section(results, wording.answered_unit)),
        (
            "calibration",
            "Calibration",
            CALIBRATION_NOTE,
            draw_reliability_diagram(results, wording.decision_unit),
        ),
        (
            "scores",
            "Scores",
            SEEDS_NOTE if _has_several_seeds(results) else "",
            _scores_section(record, results),
        ),
        ("search", "Search", "", _trial_table(results.metric, results.search)),
    )
    for name, title, summary, content in drawn:
        if content != EMPTY_HTML:
            yield name, title, section(name, title, summary, content)


def _errors_summary(record: ReportData, results: FinetuningResults) -> str:
    """Describe the errors: their number, which are shown, and the run they are from."""
    wording, shown = task_wording(record), len(results.errors[:MAX_ERRORS])
    seed = record.record_section("best").get("seed")
    whose = f" The model is that of seed {seed}, the best." if _has_several_seeds(results) else ""
    if results.wrong is None:
        return f"Some that are wrong. {wording.order_note}{whose}"
    n_answers = _count_answers(record, results)
    of = f" of {n_answers:,}" if n_answers else ""
    more = f"; {shown} are shown" if shown < results.wrong else ""
    wrong = f"{results.wrong:,}{of} {wording.answered_unit}{more}"
    return f"{wording.wrong_heading} on the held-out examples: {wrong}. {wording.order_note}{whose}"


def _count_answers(record: ReportData, results: FinetuningResults) -> int:
    """Count the answers on the dev file: its rows, or its labeled words; 0 if unknown."""
    if results.confusion is not None:
        return sum(map(sum, results.confusion.counts))
    dev = record.record_section("data").get("dev")
    rows = finite_number(dev.get("rows")) if isinstance(dev, Mapping) else None
    return 0 if rows is None or not task_wording(record).one_answer_per_row else int(rows)


def _has_several_seeds(results: FinetuningResults) -> bool:
    """Return whether there is more than one seed."""
    return any(len(scores) > 1 for arm in results.arms for scores in (arm.dev, arm.test))


def format_gain(results: FinetuningResults) -> str:
    """Compare the first two arms seed by seed, if they have the same number of seeds."""
    if len(results.arms) < 2:
        return ""
    ours, theirs = results.arms[:2]
    split = "test" if ours.test and theirs.test else "dev"
    one, other = (ours.test, theirs.test) if split == "test" else (ours.dev, theirs.dev)
    both = [(finite_number(a), finite_number(b)) for a, b in zip(one, other, strict=False)]
    pairs = [(a, b) for a, b in both if a is not None and b is not None]
    if not pairs or len(one) != len(other):
        return ""
    more = statistics.fmean(a - b for a, b in pairs)
    size = f"{100 * more:+.1f} points" if is_percent_metric(results.metric) else f"{more:+.3g}"
    higher = sum(a > b for a, b in pairs)
    seeds = f"higher in {higher} of {len(pairs)} seeds" if len(pairs) > 1 else "one seed only"
    metric = f"{metric_name(results.metric)}, {SPLIT_NAMES.get(split, split)}"
    return f"{size} {metric}, for {ours.name} over {theirs.name}, {seeds}.".replace(
        "-", MINUS_SIGN, size.startswith("-")
    )


def _scores_section(record: ReportData, results: FinetuningResults) -> Html:
    """Tabulate the scores of each seed, or of one seed what no other section shows."""
    if _has_several_seeds(results):
        return join_html(
            _seed_panels(results),
            _seed_table(
                results, int(finite_number(record.record_section("recipe").get("seed")) or 0)
            ),
        )
    if len(results.arms) < 2 or len(scores_by_split(results)) < 2:
        return EMPTY_HTML
    names = ["", *(SPLIT_NAMES.get(split, split) for split, _ in scores_by_split(results))]
    rows = [
        [
            arm.name,
            *(
                format_mean(results.metric, _finite_values(v))
                for v in (arm.dev, arm.test)
                if _finite_values(v)
            ),
        ]
        for arm in results.arms
    ]
    return html_table(names, rows, capitalize_first(metric_name(results.metric)))


def _seed_panels(results: FinetuningResults) -> Html:
    """Draw every seed of every arm, dev beside test on the same axis."""
    factor = 100.0 if is_percent_metric(results.metric) else 1.0
    scaled = [
        (split, [ScoreGroup(g.name, tuple(factor * v for v in g.values)) for g in groups])
        for split, groups in scores_by_split(results)
    ]
    most = factor if is_percent_metric(results.metric) else math.inf
    axis = _shared_axis([group for _, groups in scaled for group in groups], most)
    figures = [_seed_panel(results.metric, split, groups, axis, factor) for split, groups in scaled]
    return tag("div", *figures, class_="panels")


def _seed_table(results: FinetuningResults, first_seed: int) -> Html:
    """Tabulate the score of every seed; they are counted from the first, as in the terminal."""
    columns = [
        (f"{arm.name}, {SPLIT_NAMES.get(split, split)}", arm.dev if split == "dev" else arm.test)
        for split, _ in scores_by_split(results)
        for arm in results.arms
    ]
    n = max(len(values) for _, values in columns)
    rows = [
        [
            str(first_seed + i),
            *(
                format_score(results.metric, finite_number(v[i]) if i < len(v) else None)
                for _, v in columns
            ),
        ]
        for i in range(min(n, MAX_SEEDS))
    ]
    finite = [_finite_values(values) for _, values in columns]
    foot = [
        "mean",
        *(format_mean(results.metric, values) if values else MISSING_VALUE for values in finite),
    ]
    missing = sum(len(values) for _, values in columns) - sum(map(len, finite))
    remarks = [f"{n - MAX_SEEDS} more seeds are in results.json."] if n > MAX_SEEDS else []
    if missing:
        scores = "One score is" if missing == 1 else f"{missing:,} scores are"
        remarks.append(f"{scores} no number ({MISSING_VALUE}), and not in the means.")
    title = f"{capitalize_first(metric_name(results.metric))} of every seed"
    shown = html_table(["seed", *(name for name, _ in columns)], rows, title, foot)
    return join_html(shown, tag("p", " ".join(remarks), class_="remark") if remarks else EMPTY_HTML)


def _confusion_section(results: FinetuningResults, answered_unit: str) -> Html:
    """Show what is taken for what: all of it for few labels, the commonest for many."""
    confusion = results.confusion
    if confusion is None:
        return _label_count_table(results.found, answered_unit)
    labels, counts = confusion.labels, confusion.counts
    if len(labels) > MAX_MATRIX_LABELS:
        return join_html(_heat_map(confusion), _most_frequent_confusions(confusion))
    names = [tag("th", label, scope="col") for label in labels]
    body = [
        tag(
            "tr",
            tag("th", label, scope="row"),
            *(_shaded_cell(count, sum(row), i == j) for j, count in enumerate(row)),
        )
        for i, (label, row) in enumerate(zip(labels, counts, strict=True))
    ]
    drawn = tag(
        "table",
        tag("thead", tag("tr", tag("th", "truth ↓ predicted →", scope="col"), *names)),
        tag("tbody", *body),
        class_="confusion",
    )
    remark = tag("p", "Shaded by the share of the row.", class_="remark")
    return join_html(scrollable(drawn, "Confusion matrix"), remark)


def _label_count_table(label_counts: Sequence[LabelCounts], answered_unit: str) -> Html:
    """Tabulate for each label where it was right and wrong: a confusion matrix each, of two."""
    names = ["label", f"{answered_unit} it holds of", "found", "missed", "said wrongly"]
    rows = [
        [
            one.label,
            *(f"{n:,}" for n in (one.found + one.missed, one.found, one.missed, one.invented)),
        ]
        for one in label_counts[:MAX_COUNTED_LABELS]
    ]
    title = "Each label"
    if len(label_counts) > len(rows):
        title += f": {len(rows)} of {len(label_counts):,}"
    return html_table(names, rows, title) if rows else EMPTY_HTML


def _error_table(errors: Sequence[ErrorExample]) -> Html:
    """List texts or pictures that the model got wrong."""
    if not errors:
        return EMPTY_HTML
    if errors[0].picture is not None:
        return _error_gallery(errors)
    names = ["text", "truth", "predicted", "probability", "of the truth"]
    rows: list[list[HtmlContent]] = [
        [
            _highlighted_text(e),
            e.truth or MISSING_VALUE,
            e.predicted or MISSING_VALUE,
            _format_probability(e.probability),
            _format_probability(e.truth_probability),
        ]
        for e in errors[:MAX_ERRORS]
    ]
    while len(names) > 3 and not any(row[-1] for row in rows):
        names, rows = names[:-1], [row[:-1] for row in rows]
    return html_table(names, rows, "Errors", class_="mistakes", show_title=False)


def _error_gallery(errors: Sequence[ErrorExample]) -> Html:
    """Show pictures that the model got wrong, with what they are and what they were taken for."""
    shown = [
        tag(
            "figure",
            png_image(one.picture or "", one.text),
            tag(
                "figcaption",
                tag("b", truncate_text(one.truth, MAX_LABEL_CHARACTERS), title=one.truth),
                _with_share(one.truth_probability),
                tag("br"),
                f"not {truncate_text(one.predicted, MAX_LABEL_CHARACTERS)}",
                _with_share(one.probability),
                title=one.text,
            ),
        )
        for one in errors[:MAX_ERRORS]
    ]
    return tag("div", *shown, class_="gallery")


def _with_share(probability: float | None) -> str:
    shown = _format_probability(probability)
    return f" {shown}" if shown else ""


def _highlighted_text(error: ErrorExample) -> HtmlContent:
    """Write the text of a mistake, and mark what it is about."""
    if error.marked is None:
        return truncate_text(error.text, MAX_ERROR_CHARACTERS)
    begin, end = error.marked
    text = error.text
    return join_html(text[:begin], tag("mark", text[begin:end]), text[end:])


def _trial_table(metric: str, trials: Sequence[SearchTrialRecord]) -> Html:
    """List the rates and batch sizes that were tried, in order; the best is marked."""
    if not trials:
        return EMPTY_HTML
    known = [one.score for one in trials if one.score is not None]
    fewer = metric in METRICS and not METRICS[metric].higher_is_better
    best = None if not known else (min if fewer else max)(known)
    chosen = next((one.number for one in trials if one.score == best), None)
    rows = [
        [
            f"{one.number}{' ← best' if one.number == chosen else ''}",
            f"{one.rate:.2e}",
            str(one.batch),
            "diverged" if one.score is None else format_score(metric, one.score),
            format_seconds(one.seconds),
        ]
        for one in trials[:MAX_TRIALS]
    ]
    title = "What was tried first"
    if len(trials) > len(rows):
        title += f": {len(rows)} of {len(trials):,} trials"
    names = ["trial", "rate", "batch", f"{metric_name(metric)}, held out", "time"]
    return html_table(names, rows, title, show_title=len(trials) > len(rows))


def _finite_values(values: Sequence[float | None]) -> tuple[float, ...]:
    return tuple(v for v in map(finite_number, values) if v is not None)


def _seed_panel(
    metric: str, split: str, groups: Sequence[ScoreGroup], axis: Axis, scale: float
) -> Html:
    def write(values: Sequence[float]) -> str:
        return format_mean(metric, [value / scale for value in values])

    caption = tag("figcaption", tag("b", score_label("", split, metric)))
    return tag(
        "figure",
        caption,
        _strip_plot(groups, axis, "%" if is_percent_metric(metric) else "", write),
    )


def _shared_axis(groups: Sequence[ScoreGroup], maximum: float) -> Axis:
    """Lay one axis over the scores of all groups, none of which can be above `maximum`."""
    values = [v for g in groups for v in g.values]
    low, high = min(values), max(values)
    margin = 0.05 * ((high - low) or abs(high))
    return linear_axis(
        max(low - margin, 0.0) if low >= 0 else low - margin, min(high + margin, maximum), 5
    )


def _strip_plot(
    groups: Sequence[ScoreGroup],
    axis: Axis,
    unit: str,
    format_values: Callable[[Sequence[float]], str],
) -> Html:
    """Draw a dot for every seed and a bar at their mean, one row for each group."""
    rows = [
        _strip_row(g, axis, i % 5 + 1, format_values(g.values))
        for i, g in enumerate(groups)
        if g.values
    ]
    ticks = [
        tag(
            "span",
            format_tick(t, axis, unit if t == axis.ticks[-1] else ""),
            style=f"left:{axis.position(t):.2%}",
        )
        for t in axis.ticks
    ]
    return tag("div", *rows, tag("div", *ticks, class_="scale", aria_hidden="true"), class_="strip")


def _strip_row(group: ScoreGroup, axis: Axis, color: int, summary: str) -> Html:
    mean = sum(group.values) / len(group.values)
    dots = [
        # Seeds that agree would hide each other: every other one a little higher or lower.
        tag("i", style=f"left:{axis.position(v):.2%};top:{50 + 16 * (i % 3 - 1)}%")
        for i, v in enumerate(group.values)
    ]
    bar = tag("u", style=f"left:{axis.position(mean):.2%}")
    spoken = f"{group.name}: {summary}, {len(group.values)} seeds"
    return tag(
        "div",
        tag("span", group.name),
        tag("b", summary),
        tag("div", bar, *dots, class_="track", role="img", aria_label=spoken),
        class_=f"row c{color}",
    )


def _heat_map(confusion: ConfusionMatrix) -> Html:
    """Draw a matrix of many labels in colors alone; a cell's numbers are under the pointer."""
    labels = confusion.labels
    body = [
        tag(
            "tr",
            tag("th", _short_label(label), scope="row"),
            *(
                tag(
                    "td",
                    title=f"{label} → {labels[j]}: {count:,}" if count else None,
                    style=f"--share:{count / max(sum(row), 1):.3f}" if count else None,
                    class_="right" if i == j else "wrong",
                )
                for j, count in enumerate(row)
            ),
        )
        for i, (label, row) in enumerate(zip(labels, confusion.counts, strict=True))
    ]
    drawn = tag(
        "table",
        tag("tbody", *body),
        class_="confusion heat",
    )
    remark = (
        "Rows are the truth, columns what was predicted, in the order of the rows; shaded by the "
        "share of the row."
    )
    return join_html(scrollable(drawn, "Confusion matrix"), tag("p", remark, class_="remark"))


def _short_label(label: str) -> str:
    return label if len(label) <= MAX_LABEL_CHARACTERS else f"{label[: MAX_LABEL_CHARACTERS - 1]}…"


def _most_frequent_confusions(confusion: ConfusionMatrix) -> Html:
    labels = confusion.labels
    pairs = [
        (count, labels[i], labels[j])
        for i, row in enumerate(confusion.counts)
        for j, count in enumerate(row)
        if i != j and count
    ]
    pairs.sort(key=lambda pair: -pair[0])
    rows = [[truth, given, f"{count:,}"] for count, truth, given in pairs[:MAX_CONFUSIONS]]
    title = f"The commonest confusions of {len(labels)} labels"
    return (
        html_table(["truth", "predicted", "times"], rows, title, class_="names")
        if rows
        else EMPTY_HTML
    )


def _shaded_cell(count: int, total: int, is_correct: bool) -> Html:
    share = count / total if total else 0.0
    kind = "right" if is_correct else "wrong"
    return tag("td", f"{count:,}", style=f"--share:{share:.3f}", class_=kind)


def _format_probability(probability: float | None) -> str:
    known = finite_number(probability)
    return "" if known is None else format_percent(known)
