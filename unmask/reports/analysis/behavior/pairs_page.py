"""The page of the analysis of minimal pairs: phenomena, paradigms, errors."""

from collections.abc import Iterator, Sequence

from unmask import __version__
from unmask.analysis.behavior.accuracy import GroupAccuracy
from unmask.analysis.behavior.pair_scores import PairFindings
from unmask.reports.analysis.behavior.accuracies import draw_accuracies, draw_legend
from unmask.reports.analysis.behavior.pairs_tables import (
    ACCURACY_TITLES,
    CHANCE,
    describe_pairs,
    pair_sentences,
    paradigm_table,
    phenomenon_table,
)
from unmask.reports.formatting import format_percent
from unmask.reports.markup import EMPTY_HTML, Html, HtmlContent, html_table, section, tag
from unmask.reports.page import html_page

_PAPER_URL = "https://arxiv.org/abs/1912.00582"


def render_pairs_page(findings: PairFindings, written: str) -> str:
    """Return the page as one HTML document that loads nothing.

    Args:
        findings: of a network, its control and a baseline.
        written: when it was written.
    """
    sections = [one for one in _sections(findings) if one[2] != EMPTY_HTML]
    return html_page(
        f"Minimal pairs, {findings.model}",
        [(name, title) for name, title, _ in sections],
        [_opening(findings), *(content for _, _, content in sections)],
        f"written {written}",
        version=__version__,
        assets=("behavior.css",),
    )


def _sections(findings: PairFindings) -> Iterator[tuple[str, str, Html]]:
    yield "phenomena", "Phenomena", _phenomena_section(findings)
    yield "paradigms", "Paradigms", _paradigms_section(findings)
    yield "errors", "Errors", _errors_section(findings)


def _opening(findings: PairFindings) -> Html:
    paper = tag("a", "Warstadt et al. 2020", href=_PAPER_URL)
    byline = [("Data", findings.data), ("Likelihood", findings.likelihood), ("Method", paper)]
    return tag(
        "div",
        tag("p", "Minimal pairs", class_="kicker"),
        tag("h1", findings.model, class_="long" if len(findings.model) > 40 else None),
        tag("p", " ".join(pair_sentences(findings)), class_="standfirst"),
        tag(
            "dl",
            *(tag("div", tag("dt", name), tag("dd", value)) for name, value in byline),
            class_="byline",
        ),
        class_="opening",
    )


def _phenomena_section(findings: PairFindings) -> Html:
    groups = [
        *zip(*(one.by_phenomenon for one in findings.accuracies), strict=True),
        tuple(one.overall for one in findings.accuracies),
    ]
    return section(
        "phenomena",
        "Phenomena",
        describe_pairs(findings),
        _drawn_table(findings, *phenomenon_table(findings), groups),
        draw_legend([ACCURACY_TITLES[one.name] for one in findings.accuracies]),
    )


def _paradigms_section(findings: PairFindings) -> Html:
    groups = list(zip(*(one.by_paradigm for one in findings.accuracies), strict=True))
    return section(
        "paradigms",
        "Paradigms",
        "Pairs of one paradigm are made from one template, so an interval of a phenomenon or of "
        "all pairs says what other pairs of the same templates would give.",
        _drawn_table(findings, *paradigm_table(findings), groups),
    )


def _drawn_table(
    findings: PairFindings,
    titles: list[str],
    rows: list[list[str]],
    groups: Sequence[Sequence[GroupAccuracy]],
) -> Html:
    """Return a table with a scale in the second column of each row."""
    names = [ACCURACY_TITLES[one.name] for one in findings.accuracies]
    drawn: list[list[HtmlContent]] = [
        [row[0], draw_accuracies(dict(zip(names, group, strict=True)), CHANCE), *row[1:]]
        for row, group in zip(rows, groups, strict=True)
    ]
    return html_table(
        [titles[0], "0 to 100 %", *titles[1:]], drawn, f"Accuracy by {titles[0]}, in percent"
    )


def _errors_section(findings: PairFindings) -> Html:
    if not findings.errors:
        return EMPTY_HTML
    rows: list[list[HtmlContent]] = [
        [
            one.pair.paradigm.replace("_", " "),
            _sentence(one.pair.good_context, one.pair.good),
            _sentence(one.pair.bad_context, one.pair.bad),
            f"{one.margin:.1f}".replace("-", "\N{MINUS SIGN}"),
        ]
        for one in findings.errors
    ]
    rate = format_percent(1 - findings.accuracies[0].overall.accuracy)
    return section(
        "errors",
        "Errors",
        f"{rate} of pairs are wrong. Here are those with the largest margin of the bad sentence, "
        "one of a paradigm at most.",
        html_table(
            ["paradigm", "good sentence", "bad sentence", "nats"], rows, "Pairs with a wrong answer"
        ),
    )


def _sentence(context: str, sentence: str) -> Html:
    parts: list[HtmlContent] = [f"{context} ", tag("b", sentence)] if context else [sentence]
    return tag("span", *parts, class_="sentence")
