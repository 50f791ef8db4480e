"""The page of the analysis of reading times: what surprisal adds to each measure."""

from unmask import __version__
from unmask.analysis.behavior.reading_scores import ReadingFindings
from unmask.reports.analysis.behavior.reading_tables import (
    PREDICTOR_TITLES,
    describe_words,
    effect_table,
    reading_sentences,
)
from unmask.reports.formatting import format_percent
from unmask.reports.markup import Html, html_table, section, share_bar, tag
from unmask.reports.page import html_page

_PAPER_URL = "https://doi.org/10.3758/s13428-023-02261-8"


def render_reading_page(findings: ReadingFindings, written: str) -> str:
    """Return the page as one HTML document that loads nothing.

    Args:
        findings: of a network and its control.
        written: when it was written.
    """
    return html_page(
        f"Reading times, {findings.model}",
        [("measures", "Measures")],
        [_opening(findings), _measures_section(findings)],
        f"written {written}",
        version=__version__,
        assets=("behavior.css",),
    )


def _opening(findings: ReadingFindings) -> Html:
    paper = tag("a", "de Varda et al. 2023", href=_PAPER_URL)
    byline = [("Data", findings.data), ("Readers", paper)]
    return tag(
        "div",
        tag("p", "Reading times", class_="kicker"),
        tag("h1", findings.model, class_="long" if len(findings.model) > 40 else None),
        tag("p", " ".join(reading_sentences(findings)), class_="standfirst"),
        tag(
            "dl",
            *(tag("div", tag("dt", name), tag("dd", value)) for name, value in byline),
            class_="byline",
        ),
        class_="opening",
    )


def _measures_section(findings: ReadingFindings) -> Html:
    """Draw the share of the rest that surprisal explains, the largest as the whole width."""
    groups = list(zip(*(one.effects for one in findings.networks), strict=True))
    largest = max(one.partial_r2 for group in groups for one in group) or 1.0
    drawn: list[Html] = []
    for group in groups:
        bars = [
            tag(
                "li",
                PREDICTOR_TITLES[network.name],
                tag("b", format_percent(one.partial_r2, 2)),
                share_bar(one.partial_r2 / largest),
            )
            for network, one in zip(findings.networks, group, strict=True)
        ]
        drawn += [tag("h3", group[0].measure), tag("ul", *bars, class_="bars")]
    return section(
        "measures",
        "Measures",
        describe_words(findings),
        tag(
            "p", "Share that each predictor explains of what the baseline leaves.", class_="remark"
        ),
        *drawn,
        html_table(*effect_table(findings), "Linear models of each measure"),
    )
