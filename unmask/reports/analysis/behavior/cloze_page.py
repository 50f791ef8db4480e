"""The page of the analysis of blanks: accuracy by task or relation."""

from unmask import __version__
from unmask.analysis.behavior.cloze_scores import ClozeFindings
from unmask.reports.analysis.behavior.accuracies import (
    draw_accuracies,
    draw_legend,
)
from unmask.reports.analysis.behavior.cloze_tables import (
    CLOZE_TITLES,
    cloze_groups,
    cloze_sentences,
    cloze_table,
    describe_texts,
)
from unmask.reports.markup import Html, HtmlContent, html_table, section, tag
from unmask.reports.page import html_page

_FACTS_PAPER = ("Petroni et al. 2019", "https://arxiv.org/abs/1909.01066")
_CHOICES_PAPER = ("Talmor et al. 2020", "https://arxiv.org/abs/1912.13283")


def render_cloze_page(findings: ClozeFindings, written: str) -> str:
    """Return the page as one HTML document that loads nothing.

    Args:
        findings: of a network, its control and a baseline.
        written: when it was written.
    """
    title = "Relations" if findings.are_facts else "Tasks"
    return html_page(
        f"Blanks, {findings.model}",
        [("groups", title)],
        [_opening(findings), _groups_section(findings, title)],
        f"written {written}",
        version=__version__,
        assets=("behavior.css",),
    )


def _opening(findings: ClozeFindings) -> Html:
    name, url = _FACTS_PAPER if findings.are_facts else _CHOICES_PAPER
    byline = [("Data", findings.data), ("Method", tag("a", name, href=url))]
    return tag(
        "div",
        tag("p", "Facts in blanks" if findings.are_facts else "Choices in blanks", class_="kicker"),
        tag("h1", findings.model, class_="long" if len(findings.model) > 40 else None),
        tag("p", " ".join(cloze_sentences(findings)), class_="standfirst"),
        tag(
            "dl",
            *(tag("div", tag("dt", name), tag("dd", value)) for name, value in byline),
            class_="byline",
        ),
        class_="opening",
    )


def _groups_section(findings: ClozeFindings, title: str) -> Html:
    names = [CLOZE_TITLES[one.name] for one in findings.accuracies]
    titles, rows = cloze_table(findings)
    chances = [*findings.chance, findings.overall_chance]
    drawn: list[list[HtmlContent]] = [
        [row[0], draw_accuracies(dict(zip(names, group, strict=True)), chance), *row[1:]]
        for row, group, chance in zip(rows, cloze_groups(findings), chances, strict=True)
    ]
    return section(
        "groups",
        title,
        describe_texts(findings),
        html_table(
            [titles[0], "0 to 100 %", *titles[1:]], drawn, f"Accuracy by {titles[0]}, in percent"
        ),
        draw_legend(names),
    )
