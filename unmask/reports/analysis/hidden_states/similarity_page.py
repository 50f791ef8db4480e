"""The page and tables of similarity: layers beside layers, and the change of weights."""

from collections.abc import Iterator

import numpy as np
from jaxtyping import Float

from unmask.analysis.hidden_states.similarity import SimilarityFindings
from unmask.output import escape_markdown, markdown_table
from unmask.reports.analysis.layout import PageOpening, analysis_page, draw_curves, link
from unmask.reports.formatting import format_percent
from unmask.reports.markup import EMPTY_HTML, Html, html_table, join_html, scrollable, section, tag

_CKA_URL = "https://arxiv.org/abs/1905.00414"


def format_similarity_markdown(findings: SimilarityFindings) -> str:
    """Format the findings as a Markdown page: equal layers, all pairs, and weights."""
    title = f"{escape_markdown(findings.model)} beside {escape_markdown(findings.other)}"
    lines = [f"# {title}", "", describe_words(findings), ""]
    lines += [*markdown_table(*similarity_table(findings), right_align=True), ""]
    lines += [f"{sentence}\n" for sentence in result_sentences(findings)]
    for name, matrix in (("CKA", findings.to_other.cka), ("SVCCA", findings.to_other.svcca)):
        lines += [f"{name}, rows are layers of the model, columns of the other:", ""]
        lines += [*markdown_table(*_matrix_table(matrix), right_align=True), ""]
    if findings.changes:
        lines += [*markdown_table(*change_table(findings), right_align=True), ""]
    return "\n".join(lines).rstrip() + "\n"


def describe_words(findings: SimilarityFindings) -> str:
    """Say on which words layers were compared."""
    return (
        f"Hidden states of {findings.n_words:,} words of {findings.n_sentences:,} sentences. Layer "
        "0 is the input of the first layer."
    )


def result_sentences(findings: SimilarityFindings) -> Iterator[str]:
    """Yield which layer moved most."""
    cka = findings.to_other.cka
    if cka.shape[0] == cka.shape[1]:
        least = int(cka.diagonal().argmin())
        yield f"The layer that differs most is {least}, with a CKA of {cka[least, least]:.3f}."
    if findings.changes:
        most = max(findings.changes, key=lambda one: one.change)
        yield f"The weights that moved most are of {most.part}, by {format_percent(most.change)}."


def similarity_table(findings: SimilarityFindings) -> tuple[list[str], list[list[str]]]:
    """Return a row for each layer that both have: similarity to it, and to random weights."""
    n = min(findings.to_other.cka.shape)
    titles = ["layer", "CKA", "SVCCA"]
    random = findings.to_random
    rows = [
        [str(i), f"{findings.to_other.cka[i, i]:.3f}", f"{findings.to_other.svcca[i, i]:.3f}"]
        for i in range(n)
    ]
    if random is not None:
        titles += ["CKA, random weights", "SVCCA, random weights"]
        for i, row in enumerate(rows):
            row += [f"{random.cka[i, i]:.3f}", f"{random.svcca[i, i]:.3f}"]
    return titles, rows


def change_table(findings: SimilarityFindings) -> tuple[list[str], list[list[str]]]:
    """Return the relative change of weights of each part."""
    rows = [[one.part, format_percent(one.change, 2)] for one in findings.changes]
    return ["weights of", "relative change"], rows


def render_similarity_page(findings: SimilarityFindings, written: str) -> str:
    """Return the page as one HTML document that loads nothing.

    Args:
        findings: of two models.
        written: when it was written.
    """
    opening = PageOpening(
        "Similarity",
        findings.model,
        " ".join([describe_words(findings), *result_sentences(findings)]),
        [
            ("Beside", findings.other),
            ("Data", findings.data),
            ("Method", link("Kornblith et al. 2019", _CKA_URL)),
        ],
    )
    sections = [
        ("layers", "Layers", _layers_section(findings)),
        ("pairs", "All pairs", _pairs_section(findings)),
        ("weights", "Weights", _weights_section(findings)),
    ]
    return analysis_page(opening, sections, written)


def _layers_section(findings: SimilarityFindings) -> Html:
    named = {f"CKA to {findings.other}": findings.to_other.cka}
    if findings.to_random is not None:
        named["CKA to random weights"] = findings.to_random.cka
    curves = {
        name: [(float(i), float(x)) for i, x in enumerate(matrix.diagonal())]
        for name, matrix in named.items()
    }
    return section(
        "layers",
        "Layers",
        "Each layer beside the same layer of the other: 1, if one is a rotation of the other.",
        draw_curves("Similarity", "of equal layers", "layer", curves),
        html_table(*similarity_table(findings), "Equal layers"),
    )


def _pairs_section(findings: SimilarityFindings) -> Html:
    drawn = [
        join_html(tag("h3", f"{name}, {findings.model} × {findings.other}"), _matrix(matrix, name))
        for name, matrix in (("CKA", findings.to_other.cka), ("SVCCA", findings.to_other.svcca))
    ]
    return section("pairs", "All pairs", "Rows are layers of the model.", *drawn)


def _matrix(matrix: Float[np.ndarray, "l k"], name: str) -> Html:
    names = ["layer", *map(str, range(matrix.shape[1]))]
    head = tag("tr", *(tag("th", name, scope="col") for name in names))
    rows = [
        tag(
            "tr",
            tag("th", str(i), scope="row"),
            *(tag("td", f"{x:.2f}", style=f"--share:{x:.3f}", class_="right") for x in row),
        )
        for i, row in enumerate(matrix.tolist())
    ]
    table = tag("table", tag("thead", head), tag("tbody", *rows), class_="confusion")
    return scrollable(table, f"{name} of all pairs of layers")


def _matrix_table(matrix: Float[np.ndarray, "l k"]) -> tuple[list[str], list[list[str]]]:
    rows = [[str(i), *(f"{x:.3f}" for x in row)] for i, row in enumerate(matrix.tolist())]
    return ["layer", *(str(i) for i in range(matrix.shape[1]))], rows


def _weights_section(findings: SimilarityFindings) -> Html:
    if not findings.changes:
        return EMPTY_HTML
    return section(
        "weights",
        "Weights",
        "The norm of the difference by the norm of the other's weights, of those of one name and "
        "shape.",
        html_table(*change_table(findings), "Relative change"),
    )
