"""The page and tables of judgments: correlations with human preferences by file."""

import math
from collections.abc import Iterator

from unmask.analysis.behavior.judgments import Correlation, JudgmentFindings
from unmask.output import escape_markdown, markdown_table
from unmask.reports.analysis.behavior.pairs_tables import ACCURACY_TITLES
from unmask.reports.analysis.layout import PageOpening, analysis_page
from unmask.reports.formatting import MISSING_VALUE
from unmask.reports.markup import Html, HtmlContent, html_table, section

_N_SHOWN = 12
"""Items with the largest preference for either text."""


def format_judgments_markdown(findings: JudgmentFindings) -> str:
    """Format the findings as a Markdown page."""
    lines = [f"# Judgments, {escape_markdown(findings.model)}", ""]
    lines += [escape_markdown(describe_judgments(findings)), ""]
    lines += [f"{escape_markdown(sentence)}\n" for sentence in judgment_sentences(findings)]
    lines += markdown_table(*correlation_table(findings), right_align=True)
    return "\n".join(lines).rstrip() + "\n"


def describe_judgments(findings: JudgmentFindings) -> str:
    """Say what was compared, and how."""
    return (
        f"{len(findings.judgments):,} pairs of texts of {findings.data}: the preference for the "
        f"first text by {findings.likelihood} beside that of people. Spearman's correlation is of "
        "log-odds, Pearson's of p(first) / (p(first) + p(second)); with 95 % intervals."
    )


def judgment_sentences(findings: JudgmentFindings) -> Iterator[str]:
    """Yield the rank correlations of the network, its control and the baseline."""
    for one in findings.networks:
        found = ", ".join(f"{_format(group.spearman)} on {group.name}" for group in one.groups)
        yield f"{ACCURACY_TITLES[one.name].capitalize()}: Spearman's correlation {found}."


def correlation_table(findings: JudgmentFindings) -> tuple[list[str], list[list[str]]]:
    """Return a row for each file and network."""
    rows = [
        [
            group.name.replace("_", " "),
            f"{group.n_items:,}",
            ACCURACY_TITLES[one.name],
            _format(group.spearman),
            _format(group.pearson),
        ]
        for groups in zip(*(one.groups for one in findings.networks), strict=True)
        for one, group in zip(findings.networks, groups, strict=True)
    ]
    return ["data", "items", "weights", "Spearman", "Pearson"], rows


def render_judgments_page(findings: JudgmentFindings, written: str) -> str:
    """Return the page as one HTML document that loads nothing.

    Args:
        findings: of a network, its control and a baseline.
        written: when it was written.
    """
    opening = PageOpening(
        "Judgments",
        findings.model,
        " ".join(judgment_sentences(findings)),
        [("Data", findings.data), ("Likelihood", findings.likelihood)],
    )
    sections = [
        ("correlations", "Correlations", _correlations_section(findings)),
        ("items", "Items", _items_section(findings)),
    ]
    return analysis_page(opening, sections, written)


def _correlations_section(findings: JudgmentFindings) -> Html:
    return section(
        "correlations",
        "Correlations",
        describe_judgments(findings),
        html_table(*correlation_table(findings), "Correlation with human preferences"),
    )


def _items_section(findings: JudgmentFindings) -> Html:
    preferences = findings.networks[0].preferences
    order = sorted(range(len(preferences)), key=lambda i: -abs(float(preferences[i])))[:_N_SHOWN]
    rows: list[list[HtmlContent]] = [
        [
            findings.judgments[i].texts.good,
            findings.judgments[i].texts.bad,
            f"{findings.judgments[i].rating:.2f}",
            f"{preferences[i]:+.1f}".replace("-", "\N{MINUS SIGN}"),
        ]
        for i in order
    ]
    return section(
        "items",
        "Items",
        "Items with the strongest preferences of the trained weights.",
        html_table(["first", "second", "people", "log-odds, nats"], rows, "Items"),
    )


def _format(one: Correlation) -> str:
    if math.isnan(one.value):
        return MISSING_VALUE
    text = f"{one.value:.3f} ({one.low:.3f} to {one.high:.3f})"
    return text.replace("-", "\N{MINUS SIGN}")
