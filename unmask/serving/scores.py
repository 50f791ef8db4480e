"""Scores of fine-tuning: their means and spreads over seeds, and how a page shows them."""

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from unmask.serving.axis import Axis, linear, tick
from unmask.serving.calibration import draw_calibration
from unmask.serving.markup import EMPTY, Content, Html, join, scrolling, section, table, tag
from unmask.serving.record import Comparison, Confusion, Found, Mistake, Record, Trial, number
from unmask.serving.tasks import first_large, is_share, metric_name, words
from unmask.serving.words import MINUS, NARROW, NOTHING, cut, duration, percent, plain
from unmask.tasks.metrics.metric import METRICS

# The page stays one that opens at once: what is longer is cut, and says so.
MOST_SEEDS, MOST_LABELS, MOST_CONFUSIONS, MOST_MISTAKES = 30, 12, 15, 25
MOST_CHARACTERS, MOST_TRIALS, MOST_NAME, MOST_COUNTED = 400, 50, 32, 100
SAYS_SEEDS = "Each dot is one seed, the bar their mean; ± is the standard deviation over seeds."
SAYS_TRUST = "Of answers given with some confidence, that share should be right: the dashed line."


@dataclass(frozen=True)
class Group:
    """The scores of one arm, one for each seed."""

    name: str
    values: tuple[float, ...]


def score(metric: str, value: float | None) -> str:
    """Write one score."""
    if value is None:
        return NOTHING
    return percent(value) if is_share(metric) else plain(value)


def mean(metric: str, values: Sequence[float]) -> str:
    """Write mean ± standard deviation (of a sample: divided by n - 1), or the one value."""
    middle = statistics.fmean(values)
    if len(values) < 2:
        return score(metric, middle)
    spread = statistics.stdev(values)
    if not is_share(metric):
        return f"{plain(middle)} ± {plain(spread, 2)}"
    after = 1 if spread >= 0.001 or spread == 0 else 2
    return f"{100 * middle:.{after}f} ± {100 * spread:.{after}f}{NARROW}%".replace("-", MINUS)


def splits(results: Comparison) -> list[tuple[str, list[Group]]]:
    """Return dev and test, as far as there are scores, with the finite scores of each arm."""
    found: list[tuple[str, list[Group]]] = []
    for split in ("dev", "test"):
        arms = [(arm.name, arm.dev if split == "dev" else arm.test) for arm in results.arms]
        groups = [Group(name, _finite(values)) for name, values in arms]
        if groups := [group for group in groups if group.values]:
            found.append((split, groups))
    return found


def draw_results(record: Record) -> Iterable[tuple[str, str, Html]]:
    """Draw what fine-tuning gave: mistakes first, then what is taken for what, trust, and seeds."""
    results = record.results
    if results is None or not splits(results):
        return
    called = words(record)
    drawn = (
        ("errors", "Errors", _says_errors(record, results), _mistakes(results.errors)),
        ("confusions", "Confusions", "", _confusions(results, called.asked)),
        ("calibration", "Calibration", SAYS_TRUST, draw_calibration(results, called.decided)),
        ("scores", "Scores", SAYS_SEEDS if _several(results) else "", _scores(record, results)),
        ("search", "Search", "", _tried(results.metric, results.search)),
    )
    for name, title, says, content in drawn:
        if content != EMPTY:
            yield name, title, section(name, title, says, content)


def _says_errors(record: Record, results: Comparison) -> str:
    """Say how many answers are wrong, which of them are shown, and whose they are."""
    called, shown = words(record), len(results.errors[:MOST_MISTAKES])
    seed = record.part("best").get("seed")
    whose = f" The model is that of seed {seed}, the best." if _several(results) else ""
    if results.wrong is None:
        return f"Some that are wrong. {called.order}{whose}"
    asked = _asked(record, results)
    of = f" of {asked:,}" if asked else ""
    more = f"; {shown} are shown" if shown < results.wrong else ""
    wrong = f"{called.wrong} on the dev file: {results.wrong:,}{of} {called.asked}{more}."
    return f"{wrong} {called.order}{whose}"


def _asked(record: Record, results: Comparison) -> int:
    """Count what was asked of the dev file: its words where these have labels, else its rows."""
    if results.confusion is not None:
        return sum(map(sum, results.confusion.counts))
    dev = record.part("data").get("dev")
    rows = number(dev.get("rows")) if isinstance(dev, Mapping) else None
    return 0 if rows is None or record.does == "tag" else int(rows)


def _several(results: Comparison) -> bool:
    """Say whether there is more than one seed."""
    return any(len(scores) > 1 for arm in results.arms for scores in (arm.dev, arm.test))


def gain(results: Comparison) -> str:
    """Compare the first two arms seed by seed, if they have the same number of seeds."""
    if len(results.arms) < 2:
        return ""
    ours, theirs = results.arms[:2]
    split = "test" if ours.test and theirs.test else "dev"
    one, other = (ours.test, theirs.test) if split == "test" else (ours.dev, theirs.dev)
    both = [(number(a), number(b)) for a, b in zip(one, other, strict=False)]
    pairs = [(a, b) for a, b in both if a is not None and b is not None]
    if not pairs or len(one) != len(other):
        return ""
    more = statistics.fmean(a - b for a, b in pairs)
    size = f"{100 * more:+.1f} points" if is_share(results.metric) else f"{more:+.3g}"
    higher = sum(a > b for a, b in pairs)
    seeds = f"higher in {higher} of {len(pairs)} seeds" if len(pairs) > 1 else "one seed only"
    metric = metric_name(results.metric)
    return f"{size} {split} {metric} for {ours.name} over {theirs.name}, {seeds}.".replace(
        "-", MINUS, size.startswith("-")
    )


def _scores(record: Record, results: Comparison) -> Html:
    """Show every seed; of one seed what stands nowhere else: several starts, on dev and test."""
    if _several(results):
        return join(
            _panels(results), _seeds(results, int(number(record.part("recipe").get("seed")) or 0))
        )
    if len(results.arms) < 2 or len(splits(results)) < 2:
        return EMPTY
    names = ["", *(split for split, _ in splits(results))]
    rows = [
        [arm.name, *(mean(results.metric, _finite(v)) for v in (arm.dev, arm.test) if _finite(v))]
        for arm in results.arms
    ]
    return table(names, rows, first_large(metric_name(results.metric)))


def _panels(results: Comparison) -> Html:
    """Draw every seed of every arm, dev beside test on the same axis."""
    factor = 100.0 if is_share(results.metric) else 1.0
    scaled = [
        (split, [Group(g.name, tuple(factor * v for v in g.values)) for g in groups])
        for split, groups in splits(results)
    ]
    most = factor if is_share(results.metric) else math.inf
    axis = _shared_axis([group for _, groups in scaled for group in groups], most)
    figures = [_panel(results.metric, split, groups, axis, factor) for split, groups in scaled]
    return tag("div", *figures, class_="panels")


def _seeds(results: Comparison, first: int) -> Html:
    """Tabulate the score of every seed; they are counted from the first, as in the terminal."""
    columns = [
        (f"{arm.name}, {split}", arm.dev if split == "dev" else arm.test)
        for split, _ in splits(results)
        for arm in results.arms
    ]
    n = max(len(values) for _, values in columns)
    rows = [
        [
            str(first + i),
            *(score(results.metric, number(v[i]) if i < len(v) else None) for _, v in columns),
        ]
        for i in range(min(n, MOST_SEEDS))
    ]
    finite = [_finite(values) for _, values in columns]
    foot = ["mean", *(mean(results.metric, values) if values else NOTHING for values in finite)]
    missing = sum(len(values) for _, values in columns) - sum(map(len, finite))
    said = [f"{n - MOST_SEEDS} more seeds are in results.json."] if n > MOST_SEEDS else []
    if missing:
        scores = "One score is" if missing == 1 else f"{missing:,} scores are"
        said.append(f"{scores} no number ({NOTHING}), and not in the means.")
    title = f"{first_large(metric_name(results.metric))} of every seed"
    shown = table(["seed", *(name for name, _ in columns)], rows, title, foot)
    return join(shown, tag("p", " ".join(said), class_="remark") if said else EMPTY)


def _confusions(results: Comparison, asked: str) -> Html:
    """Show what is taken for what: all of it for few labels, the commonest for many."""
    confusion = results.confusion
    if confusion is None:
        return _found(results.found, asked)
    labels, counts = confusion.labels, confusion.counts
    if len(labels) > MOST_LABELS:
        return join(_heat(confusion), _commonest(confusion))
    names = [tag("th", label, scope="col") for label in labels]
    body = [
        tag(
            "tr",
            tag("th", label, scope="row"),
            *(_shaded(count, sum(row), i == j) for j, count in enumerate(row)),
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
    return join(scrolling(drawn, "Confusion matrix"), remark)


def _found(found: Sequence[Found], asked: str) -> Html:
    """Tabulate for each label where it was right and wrong: a confusion matrix each, of two."""
    names = ["label", f"{asked} it holds of", "found", "missed", "said wrongly"]
    rows = [
        [
            one.label,
            *(f"{n:,}" for n in (one.found + one.missed, one.found, one.missed, one.invented)),
        ]
        for one in found[:MOST_COUNTED]
    ]
    title = "Each label"
    if len(found) > len(rows):
        title += f": {len(rows)} of {len(found):,}"
    return table(names, rows, title) if rows else EMPTY


def _mistakes(errors: Sequence[Mistake]) -> Html:
    """List texts that the model got wrong."""
    if not errors:
        return EMPTY
    names = ["text", "truth", "predicted", "probability", "of the truth"]
    rows: list[list[Content]] = [
        [
            _marked(e),
            e.truth or NOTHING,
            e.predicted or NOTHING,
            _likely(e.probability),
            _likely(e.truth_probability),
        ]
        for e in errors[:MOST_MISTAKES]
    ]
    while len(names) > 3 and not any(row[-1] for row in rows):
        names, rows = names[:-1], [row[:-1] for row in rows]
    return table(names, rows, "Errors", class_="mistakes", titled=False)


def _marked(mistake: Mistake) -> Content:
    """Write the text of a mistake, and mark what it is about."""
    if mistake.marked is None:
        return cut(mistake.text, MOST_CHARACTERS)
    begin, end = mistake.marked
    text = mistake.text
    return join(text[:begin], tag("mark", text[begin:end]), text[end:])


def _tried(metric: str, trials: Sequence[Trial]) -> Html:
    """List the rates and batch sizes that were tried, in order; the best is marked."""
    if not trials:
        return EMPTY
    known = [one.score for one in trials if one.score is not None]
    fewer = metric in METRICS and not METRICS[metric].higher_is_better
    best = None if not known else (min if fewer else max)(known)
    chosen = next((one.number for one in trials if one.score == best), None)
    rows = [
        [
            f"{one.number}{' ← best' if one.number == chosen else ''}",
            f"{one.rate:.2e}",
            str(one.batch),
            "diverged" if one.score is None else score(metric, one.score),
            duration(one.seconds),
        ]
        for one in trials[:MOST_TRIALS]
    ]
    title = "What was tried first"
    if len(trials) > len(rows):
        title += f": {len(rows)} of {len(trials):,} trials"
    names = ["trial", "rate", "batch", f"dev {metric_name(metric)}", "time"]
    return table(names, rows, title, titled=len(trials) > len(rows))


def _finite(values: Sequence[float | None]) -> tuple[float, ...]:
    return tuple(v for v in map(number, values) if v is not None)


def _panel(metric: str, split: str, groups: Sequence[Group], axis: Axis, factor: float) -> Html:
    def write(values: Sequence[float]) -> str:
        return mean(metric, [value / factor for value in values])

    caption = tag("figcaption", tag("b", f"{split.capitalize()} {metric_name(metric)}"))
    return tag("figure", caption, _strip(groups, axis, "%" if is_share(metric) else "", write))


def _shared_axis(groups: Sequence[Group], most: float) -> Axis:
    """Lay one axis over the scores of all groups, none of which can be above `most`."""
    values = [v for g in groups for v in g.values]
    low, high = min(values), max(values)
    margin = 0.05 * ((high - low) or abs(high))
    return linear(max(low - margin, 0.0) if low >= 0 else low - margin, min(high + margin, most), 5)


def _strip(
    groups: Sequence[Group], axis: Axis, unit: str, write: Callable[[Sequence[float]], str]
) -> Html:
    """Draw a dot for every seed and a bar at their mean, one row for each group."""
    rows = [_row(g, axis, i % 5 + 1, write(g.values)) for i, g in enumerate(groups) if g.values]
    ticks = [
        tag(
            "span",
            tick(t, axis, unit if t == axis.ticks[-1] else ""),
            style=f"left:{axis.share(t):.2%}",
        )
        for t in axis.ticks
    ]
    return tag("div", *rows, tag("div", *ticks, class_="scale", aria_hidden="true"), class_="strip")


def _row(group: Group, axis: Axis, color: int, summary: str) -> Html:
    mean = sum(group.values) / len(group.values)
    dots = [
        # Seeds that agree would hide each other: every other one a little higher or lower.
        tag("i", style=f"left:{axis.share(v):.2%};top:{50 + 16 * (i % 3 - 1)}%")
        for i, v in enumerate(group.values)
    ]
    bar = tag("u", style=f"left:{axis.share(mean):.2%}")
    spoken = f"{group.name}: {summary}, {len(group.values)} seeds"
    return tag(
        "div",
        tag("span", group.name),
        tag("b", summary),
        tag("div", bar, *dots, class_="track", role="img", aria_label=spoken),
        class_=f"row c{color}",
    )


def _heat(confusion: Confusion) -> Html:
    """Draw a matrix of many labels in colors alone; a cell's numbers are under the pointer."""
    labels = confusion.labels
    body = [
        tag(
            "tr",
            tag("th", _short(label), scope="row"),
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
    return join(scrolling(drawn, "Confusion matrix"), tag("p", remark, class_="remark"))


def _short(label: str) -> str:
    return label if len(label) <= MOST_NAME else f"{label[: MOST_NAME - 1]}…"


def _commonest(confusion: Confusion) -> Html:
    labels = confusion.labels
    pairs = [
        (count, labels[i], labels[j])
        for i, row in enumerate(confusion.counts)
        for j, count in enumerate(row)
        if i != j and count
    ]
    pairs.sort(key=lambda pair: -pair[0])
    rows = [[truth, given, f"{count:,}"] for count, truth, given in pairs[:MOST_CONFUSIONS]]
    title = f"The commonest confusions of {len(labels)} labels"
    return table(["truth", "predicted", "times"], rows, title, class_="names") if rows else EMPTY


def _shaded(count: int, total: int, right: bool) -> Html:
    share = count / total if total else 0.0
    kind = "right" if right else "wrong"
    return tag("td", f"{count:,}", style=f"--share:{share:.3f}", class_=kind)


def _likely(probability: float | None) -> str:
    known = number(probability)
    return "" if known is None else percent(known)
