"""Scores of fine-tuning: their means and spreads over seeds, and how a page shows them."""

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from unmask.finetuning.metrics import METRICS
from unmask.serving.axis import Axis, linear, tick
from unmask.serving.calibration import draw_calibration
from unmask.serving.markup import EMPTY, Html, join, scrolling, section, table, tag
from unmask.serving.record import Comparison, Confusion, Mistake, Trial, number
from unmask.serving.words import MINUS, NARROW, NOTHING, cut, duration, percent, plain, readable

SHARES = ("accuracy", "f1", "exact_match", "precision", "recall")  # metrics read as percent
# The page stays one that opens at once: what is longer is cut, and says so.
MOST_SEEDS, MOST_LABELS, MOST_CONFUSIONS, MOST_MISTAKES = 30, 12, 15, 25
MOST_CHARACTERS, MOST_TRIALS, MOST_NAME = 400, 50, 32


@dataclass(frozen=True)
class Group:
    """The scores of one arm, one for each seed."""

    name: str
    values: tuple[float, ...]


def is_share(metric: str) -> bool:
    """Say whether a metric is read as percent."""
    return any(share in metric.lower().replace(" ", "_") for share in SHARES)


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


def draw_scores(results: Comparison | None) -> Html:
    """Show what fine-tuning gave: each seed, what is taken for what, and what goes wrong."""
    if results is None or not (found := splits(results)):
        return EMPTY
    several = any(len(group.values) > 1 for _, groups in found for group in groups)
    says = "Each dot is one seed, the bar their mean; ± is the standard deviation over seeds."
    return section(
        "task",
        "Fine-tuning",
        f"{results.task}. {says if several else ''}".strip(),
        _verdict(results),
        _panels(results),
        _seeds(results),
        _confusions(results.confusion),
        draw_calibration(results.calibration),
        _mistakes(results.errors),
        _tried(results.metric, results.search),
    )


def _verdict(results: Comparison) -> Html:
    """Say what the first arm gains over the second, and what answering without reading gives."""
    usual = "Always answering the most frequent label gives "
    said = [_gain(results)]
    if results.chance is not None:
        said.append(join(usual, score(results.metric, number(results.chance)), "."))
    said = [sentence for sentence in said if sentence != EMPTY]
    return tag("p", join(*said), class_="verdict") if said else EMPTY


def _gain(results: Comparison) -> Html:
    """Compare the first two arms seed by seed, if they have the same number of seeds."""
    if len(results.arms) < 2:
        return EMPTY
    ours, theirs = results.arms[:2]
    split = "test" if ours.test and theirs.test else "dev"
    one, other = (ours.test, theirs.test) if split == "test" else (ours.dev, theirs.dev)
    both = [(number(a), number(b)) for a, b in zip(one, other, strict=False)]
    pairs = [(a, b) for a, b in both if a is not None and b is not None]
    if not pairs or len(one) != len(other):
        return EMPTY
    gain = statistics.fmean(a - b for a, b in pairs)
    size = f"{100 * gain:+.1f} points" if is_share(results.metric) else f"{gain:+.3g}"
    higher = sum(a > b for a, b in pairs)
    seeds = f"higher in {higher} of {len(pairs)} seeds. " if len(pairs) > 1 else "one seed only. "
    what = f" {split} {readable(results.metric)} for {ours.name} over {theirs.name}, "
    return join(tag("b", size.replace("-", MINUS)), what, seeds)


def _panels(results: Comparison) -> Html:
    """Draw every seed of every arm, dev beside test on the same axis."""
    factor = 100.0 if is_share(results.metric) else 1.0
    scaled = [
        (split, [Group(g.name, tuple(factor * v for v in g.values)) for g in groups])
        for split, groups in splits(results)
    ]
    axis = _shared_axis(group for _, groups in scaled for group in groups)
    figures = [_panel(results.metric, split, groups, axis, factor) for split, groups in scaled]
    return tag("div", *figures, class_="panels")


def _seeds(results: Comparison) -> Html:
    """Tabulate the score of every seed."""
    columns = [
        (f"{arm.name}, {split}", arm.dev if split == "dev" else arm.test)
        for split, _ in splits(results)
        for arm in results.arms
    ]
    n = max(len(values) for _, values in columns)
    rows = [
        [
            str(i + 1),
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
    title = f"{readable(results.metric).capitalize()} of every seed"
    shown = table(["seed", *(name for name, _ in columns)], rows, title, foot)
    return join(shown, tag("p", " ".join(said), class_="remark") if said else EMPTY)


def _confusions(confusion: Confusion | None) -> Html:
    """Show what is taken for what: all of it for few labels, the commonest for many."""
    if confusion is None:
        return EMPTY
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
        tag("caption", "Confusion matrix"),
        tag("thead", tag("tr", tag("th", "truth ↓ predicted →", scope="col"), *names)),
        tag("tbody", *body),
        class_="confusion",
    )
    remark = tag("p", "Shaded by the share of the row.", class_="remark")
    return join(scrolling(drawn, "Confusion matrix"), remark)


def _mistakes(errors: Sequence[Mistake]) -> Html:
    """List texts that the model got wrong."""
    if not errors:
        return EMPTY
    names = ["text", "truth", "predicted", "probability", "of the truth"]
    rows = [
        [
            cut(e.text, MOST_CHARACTERS),
            e.truth,
            e.predicted,
            _likely(e.probability),
            _likely(e.truth_probability),
        ]
        for e in errors[:MOST_MISTAKES]
    ]
    while len(names) > 3 and not any(row[-1] for row in rows):
        names, rows = names[:-1], [row[:-1] for row in rows]
    title = "What it gets wrong"
    if len(errors) > len(rows):
        title += f": {len(rows)} of {len(errors):,}"
    return table(names, rows, title, class_="prose")


def _tried(metric: str, trials: Sequence[Trial]) -> Html:
    """List the rates and batch sizes that were tried, in order; the best is marked."""
    if not trials:
        return EMPTY
    known = [one.score for one in trials if one.score is not None]
    fewer = metric in METRICS and not METRICS[metric].higher
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
    names = ["trial", "rate", "batch", f"dev {readable(metric)}", "time"]
    return table(names, rows, title)


def _finite(values: Sequence[float | None]) -> tuple[float, ...]:
    return tuple(v for v in map(number, values) if v is not None)


def _panel(metric: str, split: str, groups: Sequence[Group], axis: Axis, factor: float) -> Html:
    def write(values: Sequence[float]) -> str:
        return mean(metric, [value / factor for value in values])

    caption = tag("figcaption", tag("b", f"{split.capitalize()} {readable(metric)}"))
    return tag("figure", caption, _strip(groups, axis, "%" if is_share(metric) else "", write))


def _shared_axis(groups: Iterable[Group]) -> Axis:
    """Lay one axis over the scores of all groups."""
    values = [v for g in groups for v in g.values]
    low, high = min(values), max(values)
    return linear(low - 0.05 * (high - low), high + 0.05 * (high - low), 5)


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
        tag("caption", "Confusion matrix"),
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
