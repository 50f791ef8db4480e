"""The page of the analysis of saliency: texts with shaded words, scores and curves."""

from collections.abc import Sequence

from unmask.analysis.saliency.faithfulness import FRACTIONS
from unmask.analysis.saliency.findings import ExplainedText, SaliencyFindings
from unmask.reports.analysis.layout import PageOpening, analysis_page, draw_curves, link
from unmask.reports.analysis.saliency.tables import (
    BASELINE_TITLES,
    METHOD_TITLES,
    curve_table,
    describe_decision,
    describe_texts,
    method_table,
    result_sentences,
)
from unmask.reports.markup import EMPTY_HTML, Html, html_table, join_html, section, tag

_ERASER_URL = "https://arxiv.org/abs/1911.03429"


def render_saliency_page(findings: SaliencyFindings, written: str) -> str:
    """Return the page as one HTML document that loads nothing.

    Args:
        findings: of a model.
        written: when it was written.
    """
    opening = PageOpening(
        "Saliency",
        findings.model,
        " ".join([describe_texts(findings), *result_sentences(findings)]),
        [
            ("Data", findings.data or "given texts"),
            ("Measure", link("DeYoung et al. 2020", _ERASER_URL)),
        ],
    )
    sections = [
        ("texts", "Texts", _texts_section(findings)),
        ("methods", "Methods", _methods_section(findings)),
        ("curves", "Curves", _curves_section(findings)),
    ]
    return analysis_page(opening, sections, written)


def _texts_section(findings: SaliencyFindings) -> Html:
    if not findings.shown:
        return EMPTY_HTML
    return section(
        "texts",
        "Texts",
        "Blue words speak for what is predicted, orange ones against it; the strongest of each row "
        "is darkest. Random has no meaning.",
        *(_draw_text(text) for text in findings.shown),
    )


def _draw_text(text: ExplainedText) -> Html:
    rows = [
        join_html(tag("dt", METHOD_TITLES[method]), tag("dd", _shaded_words(text, values)))
        for method, values in text.attributions.items()
    ]
    return tag(
        "figure",
        tag("figcaption", tag("b", describe_decision(text))),
        tag("dl", *rows),
        class_="explained",
    )


def _shaded_words(text: ExplainedText, values: Sequence[float]) -> Html:
    largest = max(map(abs, values), default=0.0) or 1.0
    parts: list[Html | str] = []
    for label, word in zip(text.labels, text.word_of_label, strict=True):
        if word < 0:
            parts += [tag("span", label, class_="special"), " "]
            continue
        value = values[word]
        parts.append(
            tag(
                "span", label, class_="for" if value >= 0 else "against",
                style=f"--share:{abs(value) / largest:.3f}", title=f"{value:.3g}",
            )
        )  # fmt: skip
        parts.append(" ")
    return join_html(*parts)


def _methods_section(findings: SaliencyFindings) -> Html:
    return section(
        "methods",
        "Methods",
        "Comprehensiveness is what the probability loses without the words that a method names "
        "first, sufficiency what it loses with only those. Averaged over fractions of the words.",
        html_table(*method_table(findings), "Area over the perturbation curve"),
        tag(
            "p",
            "Beside each: the 95 % interval of the difference from random words, over texts; a "
            f"star, if it excludes zero. Removed words have the embedding of "
            f"{BASELINE_TITLES[findings.baseline]}. ρ: Spearman's correlation with what the method "
            "attributes to the words in the same network with random weights.",
            class_="remark",
        ),
    )


def _curves_section(findings: SaliencyFindings) -> Html:
    drawn: list[Html] = []
    tables: list[Html] = []
    for name, subtitle in (
        ("comprehensiveness", "higher is better"),
        ("sufficiency", "lower is better"),
    ):
        curves = {
            METHOD_TITLES[one.method]: [
                (100 * x, y) for x, y in zip(FRACTIONS, vars(one)[name], strict=True)
            ]
            for one in findings.methods
        }
        drawn.append(draw_curves(name.capitalize(), subtitle, "% of the words", curves))
        tables.append(html_table(*curve_table(findings, name), name.capitalize()))
    return section(
        "curves",
        "Curves",
        "By the fraction of words that are removed, or kept.",
        tag("div", *drawn, class_="figures"),
        *tables,
    )
