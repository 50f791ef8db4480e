"""The page of the analysis of attention: relations, parsers, statistics, clusters, maps."""

from collections.abc import Iterator, Sequence

import numpy as np

from unmask import __version__
from unmask.analysis.attention.clusters import HeadClusters
from unmask.analysis.attention.findings import AttentionFindings, NetworkAttention
from unmask.analysis.attention.syntax import DIRECTIONS, SyntaxScores
from unmask.reports.analysis.attention_tables import (
    NETWORK_TITLES,
    describe_sentences,
    head_table,
    layer_table,
    parser_table,
    relation_table,
    result_sentences,
)
from unmask.reports.analysis.attention_view import draw_attention_view
from unmask.reports.markup import EMPTY_HTML, Html, html_table, join_html, scrollable, section, tag
from unmask.reports.page import html_page

_SIZE, _MARGIN = 480, 34
"""Units of the drawing of clusters."""
_N_COLORS = 6
_PAPER_URL = "https://arxiv.org/abs/1906.04341"


def render_attention_page(findings: AttentionFindings, written: str) -> str:
    """Return the page as one HTML document that loads nothing.

    Args:
        findings: of a network and, beside it, its control.
        written: when it was written.
    """
    sections = [one for one in _sections(findings) if one[2] != EMPTY_HTML]
    return html_page(
        f"Attention of {findings.model}",
        [(name, title) for name, title, _ in sections],
        [_opening(findings), *(content for _, _, content in sections)],
        f"written {written}",
        version=__version__,
        assets=("attention.css", "attention.js"),
    )


def _sections(findings: AttentionFindings) -> Iterator[tuple[str, str, Html]]:
    networks = findings.networks
    yield "view", "View", draw_attention_view(networks)
    yield "relations", "Relations", _relations_section(findings)
    yield "parsers", "Parsers", _parsers_section(findings)
    yield "statistics", "Statistics", _statistics_section(networks)
    yield "clusters", "Clusters", _clusters_section(networks)


def _opening(findings: AttentionFindings) -> Html:
    says = " ".join([describe_sentences(findings), *result_sentences(findings)])
    paper = tag("a", "Clark et al. 2019", href=_PAPER_URL)
    byline = [("Data", findings.data), ("Method", paper)]
    return tag(
        "div",
        tag("p", "Attention heads", class_="kicker"),
        tag("h1", findings.model, class_="long" if len(findings.model) > 40 else None),
        tag("p", says, class_="standfirst"),
        tag(
            "dl",
            *(tag("div", tag("dt", name), tag("dd", value)) for name, value in byline),
            class_="byline",
        ),
        class_="opening",
    )


def _relations_section(findings: AttentionFindings) -> Html:
    titles, rows = relation_table(findings)
    maps = [
        join_html(
            tag("h3", f"Heads × relations, {NETWORK_TITLES[one.name]}"), _relation_map(one.syntax)
        )
        for one in findings.networks
    ]
    return section(
        "relations",
        "Relations",
        "Share of words whose head in the tree is the word with the most attention: → of the "
        "dependent, ← of the head. A star: significantly above the best offset.",
        html_table(titles, rows, "The best head of each relation"),
        *maps,
        tag(
            "p",
            "Shaded by accuracy on the test sentences, in the better direction of each head.",
            class_="remark",
        ),
    )


def _relation_map(syntax: SyntaxScores) -> Html:
    """Draw accuracies as a table of shades; a cell's numbers are under the pointer."""
    head = tag(
        "tr",
        tag("th", "head", scope="col"),
        *(tag("th", tag("span", name), scope="col") for name in syntax.relations),
    )
    better, accuracies = syntax.accuracies.argmax(0), syntax.accuracies.max(0)  # [k r]
    body = [
        tag(
            "tr",
            tag("th", str(name), scope="row"),
            *(
                _shade(float(accuracies[k, r]), f"{name}, {relation}, {DIRECTIONS[better[k, r]]}")
                for r, relation in enumerate(syntax.relations)
            ),
        )
        for k, name in enumerate(syntax.heads)
    ]
    drawn = tag("table", tag("thead", head), tag("tbody", *body), class_="confusion shades")
    return scrollable(drawn, "Accuracy of each head at each relation")


def _shade(accuracy: float, title: str) -> Html:
    return tag(
        "td", f"{100 * accuracy:.0f}", title=f"{title}: {100 * accuracy:.1f}",
        style=f"--share:{accuracy:.3f}", class_="right",
    )  # fmt: skip


def _parsers_section(findings: AttentionFindings) -> Html:
    scored = [one.parser for one in findings.networks if one.parser is not None]
    if not scored:
        return EMPTY_HTML
    titles, rows = parser_table(findings)
    return section(
        "parsers",
        "Parsers",
        "p(i | j) ∝ exp(Σ w a_ij + u a_ji) over heads: a parser that only weighs attention. With "
        "word vectors, weights depend on the static vectors of both words.",
        html_table(titles, rows, f"Unlabeled attachment score of {scored[0].n_words:,} words"),
    )


def _statistics_section(networks: Sequence[NetworkAttention]) -> Html:
    tables = [
        html_table(*layer_table(one), f"Means by layer, {NETWORK_TITLES[one.name]}")
        for one in networks
    ]
    folded = [
        tag(
            "details",
            tag("summary", f"Each head, {NETWORK_TITLES[one.name]}"),
            html_table(*head_table(one), "Each head", show_title=False),
        )
        for one in networks
    ]
    return section(
        "statistics",
        "Statistics",
        "What a word's attention is on: shares, and the entropy over tokens.",
        *tables,
        *folded,
    )


def _clusters_section(networks: Sequence[NetworkAttention]) -> Html:
    figures = [
        tag(
            "figure",
            tag("figcaption", tag("b", NETWORK_TITLES[one.name]), _distances(one.clusters)),
            _cluster_map(one.clusters),
        )
        for one in networks
    ]
    return section(
        "clusters",
        "Clusters",
        "Heads by the Jensen-Shannon divergence of their attention, in two dimensions "
        "(multidimensional scaling); colored by hierarchical clustering.",
        tag("div", *figures, class_="figures"),
    )


def _distances(clusters: HeadClusters) -> Html:
    text = (
        f"mean divergence {clusters.within_layers:.3f} nats within layers, "
        f"{clusters.between_layers:.3f} between"
    )
    return tag("span", text)


def _cluster_map(clusters: HeadClusters) -> Html:
    low, high = clusters.positions.min(0), clusters.positions.max(0)
    extent = float(np.max(high - low)) or 1.0
    places = (clusters.positions - (low + high) / 2) / extent * (_SIZE - 2 * _MARGIN) + _SIZE / 2
    marks = [
        tag(
            "g",
            tag("title", f"head {name}, cluster {cluster}"),
            tag("circle", cx=f"{x:.1f}", cy=f"{y:.1f}", r=5),
            tag("text", str(name), x=f"{x + 8:.1f}", y=f"{y + 4:.1f}"),
            class_=f"c{cluster % _N_COLORS}",
        )
        for name, (x, y), cluster in zip(
            clusters.heads, places.tolist(), clusters.clusters.tolist(), strict=True
        )
    ]
    spoken = ", ".join(
        f"{n}: cluster {c}" for n, c in zip(clusters.heads, clusters.clusters.tolist(), strict=True)
    )
    return tag(
        "svg", *marks, viewBox=f"0 0 {_SIZE} {_SIZE}", class_="head-map", role="img",
        aria_label=spoken,
    )  # fmt: skip
