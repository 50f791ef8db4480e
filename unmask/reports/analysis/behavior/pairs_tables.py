"""Tables of the analysis of minimal pairs: rows for Markdown, a terminal and a page."""

from collections.abc import Iterator, Sequence

from unmask.analysis.behavior.accuracy import GroupAccuracy
from unmask.analysis.behavior.pair_scores import PairAccuracies, PairFindings
from unmask.output import escape_markdown, markdown_table
from unmask.reports.analysis.behavior.accuracies import format_accuracy_interval, points
from unmask.reports.formatting import format_percent

ACCURACY_TITLES = {
    "trained": "trained weights",
    "random": "random weights",
    "fewer_tokens": "fewer tokens",
}
CHANCE = 0.5


def format_pairs_markdown(findings: PairFindings) -> str:
    """Format the findings as a Markdown page: phenomena and paradigms."""
    lines = [f"# Minimal pairs, {escape_markdown(findings.model)}", ""]
    lines += [escape_markdown(describe_pairs(findings)), ""]
    lines += [f"{sentence}\n" for sentence in pair_sentences(findings)]
    lines += [*markdown_table(*phenomenon_table(findings), right_align=True), ""]
    lines += [*markdown_table(*paradigm_table(findings), right_align=True), ""]
    return "\n".join(lines).rstrip() + "\n"


def describe_pairs(findings: PairFindings) -> str:
    """Say which pairs were scored, and how."""
    of_context = {
        None: "",
        "targets": " of a sentence after its context, which both sentences share",
        "contexts": " of one sentence after two contexts",
    }[findings.compared]
    return (
        f"{findings.n_pairs:,} of {findings.n_pairs_in_data:,} pairs of {findings.data}, by "
        f"{findings.likelihood}{of_context}; a pair is right if the good sentence has more, and "
        "half right if both have as much."
    )


def pair_sentences(findings: PairFindings) -> Iterator[str]:
    """Yield the overall accuracy of the network, its control and the baseline."""
    for one in findings.accuracies:
        above = sum(group.low > CHANCE for group in one.by_paradigm)
        below = sum(group.high < CHANCE for group in one.by_paradigm)
        overall = one.overall
        yield (
            f"{ACCURACY_TITLES[one.name].capitalize()}: {format_percent(overall.accuracy)} of "
            f"pairs (95 % interval {points(overall.low)} to {points(overall.high)}), mean of "
            f"{len(one.by_paradigm)} paradigms {format_percent(one.paradigm_mean)}; "
            f"above chance: {above}, below: {below}."
        )


def phenomenon_table(findings: PairFindings) -> tuple[list[str], list[list[str]]]:
    """Return a row for each phenomenon, and for all pairs."""
    rows = [
        _row(group[0].name.replace("_", " "), group)
        for group in zip(*(one.by_phenomenon for one in findings.accuracies), strict=True)
    ]
    rows.append(_row("all", [one.overall for one in findings.accuracies]))
    return _titles("phenomenon", findings.accuracies), rows


def paradigm_table(findings: PairFindings) -> tuple[list[str], list[list[str]]]:
    """Return a row for each paradigm."""
    rows = [
        _row(group[0].name.replace("_", " "), group)
        for group in zip(*(one.by_paradigm for one in findings.accuracies), strict=True)
    ]
    return _titles("paradigm", findings.accuracies), rows


def _titles(first: str, accuracies: Sequence[PairAccuracies]) -> list[str]:
    return [first, "pairs", "ties", *(ACCURACY_TITLES[one.name] for one in accuracies)]


def _row(name: str, group: Sequence[GroupAccuracy]) -> list[str]:
    """Return a row: the network's accuracy with its interval, others without."""
    first, *others = group
    return [
        name,
        f"{first.n_items:,}",
        f"{first.n_ties:,}",
        format_accuracy_interval(first),
        *(
            points(one.accuracy) if one is group[-1] else format_accuracy_interval(one)
            for one in others
        ),
    ]
