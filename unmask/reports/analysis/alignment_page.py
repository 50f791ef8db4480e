"""The page and tables of cross-attention as word alignment."""

from collections.abc import Iterator

from unmask import __version__
from unmask.analysis.attention.alignment import STEPS, AlignmentFindings, NetworkAlignment
from unmask.output import escape_markdown, markdown_table
from unmask.reports.analysis.attention_tables import NETWORK_TITLES
from unmask.reports.markup import Html, html_table, join_html, section, tag
from unmask.reports.page import html_page


def alignment_sentences(findings: AlignmentFindings) -> Iterator[str]:
    """Yield what was measured."""
    n_words = findings.networks[0].test.n_words
    yield (
        f"Heads were chosen on {findings.n_train:,} pairs of sentences and scored on "
        f"{findings.n_test:,} others, at {n_words:,} target words that the dictionary links."
    )


def alignment_table(findings: AlignmentFindings) -> tuple[list[str], list[list[str]]]:
    """Return the error rate of the chosen head of each network, and of the diagonal."""
    rows = [
        [NETWORK_TITLES[one.name], str(one.head), one.step, _points(one.error_rate)]
        for one in findings.networks
    ]
    diagonal = findings.networks[0].test.diagonal
    return ["alignment by", "head", "step", "error rate"], [
        *rows,
        ["the diagonal", "", "", _points(diagonal)],
    ]


def format_alignment_markdown(findings: AlignmentFindings) -> str:
    """Format the findings as a Markdown page."""
    lines = [f"# Cross-attention of {escape_markdown(findings.model)}", ""]
    lines += [*alignment_sentences(findings), ""]
    lines += markdown_table(*alignment_table(findings), right_align=True)
    for network in findings.networks:
        lines += ["", f"Error rate of each head, {NETWORK_TITLES[network.name]}:", ""]
        lines += markdown_table(*_head_table(network), right_align=True)
    return "\n".join(lines) + "\n"


def render_alignment_page(findings: AlignmentFindings, written: str) -> str:
    """Return the page as one HTML document that loads nothing."""
    tables = [
        html_table(*_head_table(one), f"Error rate of each head, {NETWORK_TITLES[one.name]}")
        for one in findings.networks
    ]
    return html_page(
        f"Cross-attention of {findings.model}",
        [("alignment", "Alignment"), ("heads", "Heads")],
        [
            _opening(findings),
            section(
                "alignment",
                "Alignment",
                "1 - (|A ∩ S| + |A ∩ P|) / (|A| + |S|): A links a target word to the source word "
                "with the most attention; the dictionary gives the sure (S) and possible (P) "
                "links.",
                html_table(*alignment_table(findings), "Alignment error rate, percent"),
            ),
            section(
                "heads",
                "Heads",
                "Of the step that predicts a word, and of the step that reads it.",
                join_html(*tables),
            ),
        ],
        f"written {written}",
        version=__version__,
        assets=("attention.css",),
    )


def _opening(findings: AlignmentFindings) -> Html:
    return tag(
        "div",
        tag("p", "Cross-attention", class_="kicker"),
        tag("h1", findings.model, class_="long" if len(findings.model) > 40 else None),
        tag("p", " ".join(alignment_sentences(findings)), class_="standfirst"),
        class_="opening",
    )


def _head_table(network: NetworkAlignment) -> tuple[list[str], list[list[str]]]:
    rates = network.test.error_rates
    rows = [
        [str(head), *(_points(rates[step][k]) for step in STEPS)]
        for k, head in enumerate(network.test.heads)
    ]
    return ["head", *STEPS], rows


def _points(fraction: float) -> str:
    return f"{100 * fraction:.1f}"
