"""Tables of the analysis of blanks: rows for Markdown, a terminal and a page."""

from collections.abc import Iterator, Sequence

from unmask.analysis.behavior.accuracy import GroupAccuracy
from unmask.analysis.behavior.cloze_scores import ClozeFindings
from unmask.output import escape_markdown, markdown_table
from unmask.reports.analysis.behavior.accuracies import format_accuracy_interval, points
from unmask.reports.formatting import MISSING_VALUE, format_percent

CLOZE_TITLES = {
    "trained": "trained weights",
    "random": "random weights",
    "frequent": "most frequent answer",
}


def format_cloze_markdown(findings: ClozeFindings) -> str:
    """Format the findings as a Markdown page."""
    lines = [f"# Blanks, {escape_markdown(findings.model)}", ""]
    lines += [escape_markdown(describe_texts(findings)), ""]
    lines += [f"{sentence}\n" for sentence in cloze_sentences(findings)]
    lines += markdown_table(*cloze_table(findings), right_align=True)
    return "\n".join(lines).rstrip() + "\n"


def describe_texts(findings: ClozeFindings) -> str:
    """Say which texts were scored, and how."""
    text = f"{findings.n_items:,} of {findings.n_in_data:,} texts of {findings.data}."
    if findings.are_facts:
        text += (
            " Answers are the objects of the relation that are one token; "
            f"{findings.n_several_tokens:,} facts whose object is not are left out."
        )
    elif findings.n_several_tokens:
        text += (
            f" {findings.n_several_tokens:,} have an answer of several tokens, whose "
            "log-probabilities are added up."
        )
    if findings.n_too_long:
        text += f" Left out as longer than the model's positions: {findings.n_too_long:,}."
    return (
        f"{text} Accuracy is the share of texts whose most likely answer is right; k answers that "
        "tie count 1/k."
    )


def cloze_sentences(findings: ClozeFindings) -> Iterator[str]:
    """Yield the accuracy of the network, its control and the baseline."""
    kind = "relations" if findings.are_facts else "tasks"
    for one in findings.accuracies:
        above = sum(
            group.low > chance for group, chance in zip(one.by_group, findings.chance, strict=True)
        )
        text = (
            f"{CLOZE_TITLES[one.name].capitalize()}: {format_percent(one.overall.accuracy)} (95 % "
            f"interval {points(one.overall.low)} to {points(one.overall.high)}; chance "
            f"{points(findings.overall_chance)}), mean of {len(one.by_group)} {kind} "
            f"{format_percent(one.group_mean)}; {kind} above chance: {above}"
        )
        if one.first_mean is not None:
            text += f"; the right answer is first of all tokens in {format_percent(one.first_mean)}"
        yield f"{text}."


def cloze_table(findings: ClozeFindings) -> tuple[list[str], list[list[str]]]:
    """Return a row for each task or relation, for their mean and for all texts."""
    accuracies = findings.accuracies
    titles = ["relation" if findings.are_facts else "task", "texts", "chance"]
    titles += [CLOZE_TITLES[one.name] for one in accuracies]
    titles.append("first of all tokens")
    firsts = accuracies[0].first_by_group
    rows: list[list[str]] = []
    for i, group in enumerate(cloze_groups(findings)[:-1]):
        first = MISSING_VALUE if firsts is None else points(firsts[i].accuracy)
        rows.append(_row(group[0].name, group, findings.chance[i], first))
    mean = accuracies[0].first_mean
    rows.append(
        _row(
            "all",
            cloze_groups(findings)[-1],
            findings.overall_chance,
            MISSING_VALUE if mean is None else points(mean),
        )
    )
    return titles, rows


def cloze_groups(findings: ClozeFindings) -> list[tuple[GroupAccuracy, ...]]:
    """Return the accuracies of each group, and those of all texts."""
    groups = list(zip(*(one.by_group for one in findings.accuracies), strict=True))
    return [*groups, tuple(one.overall for one in findings.accuracies)]


def _row(name: str, group: Sequence[GroupAccuracy], chance: float, first: str) -> list[str]:
    """Return a row: the network's accuracy with its interval, others without."""
    return [
        name.replace("_", " "),
        f"{group[0].n_items:,}",
        points(chance),
        format_accuracy_interval(group[0]),
        *(points(one.accuracy) for one in group[1:]),
        first,
    ]
