"""The page and tables of contextuality: similarities of words by layer."""

from collections.abc import Iterator, Sequence

from unmask.analysis.hidden_states.contextuality import ContextualityFindings, LayerContextuality
from unmask.output import escape_markdown, markdown_table
from unmask.reports.analysis.layout import PageOpening, analysis_page, draw_curves, link
from unmask.reports.markup import Html, html_table, section, tag

_URL = "https://arxiv.org/abs/1909.00512"
_TITLES = {
    "trained": "trained weights",
    "whitened": "trained weights, whitened",
    "random": "random weights",
}


def format_contextuality_markdown(findings: ContextualityFindings) -> str:
    """Format the findings as a Markdown page: a table for each network."""
    lines = [f"# Contextuality of {escape_markdown(findings.model)}", "", describe_words(findings)]
    lines += ["", *(f"{sentence}\n" for sentence in result_sentences(findings))]
    for name, layers in findings.networks.items():
        lines += [f"By layer, {_TITLES[name]}:", ""]
        lines += [*markdown_table(*layer_table(layers), right_align=True), ""]
    return "\n".join(lines).rstrip() + "\n"


def describe_words(findings: ContextualityFindings) -> str:
    """Say what was measured."""
    return (
        f"{findings.n_words:,} words of {findings.n_sentences:,} sentences; {findings.n_types:,} "
        "different words are in enough of them. Layer 0 is the input of the first layer."
    )


def result_sentences(findings: ContextualityFindings) -> Iterator[str]:
    """Yield where words depend on their sentence most."""
    for name, layers in findings.networks.items():
        least = min(layers, key=lambda one: one.adjusted[0])
        yield (
            f"With {_TITLES[name]}, occurrences of a word are least alike in layer {least.layer} "
            f"(self-similarity {least.adjusted[0]:.3f} above that of any two words)."
        )


def contextuality_table(findings: ContextualityFindings) -> tuple[list[str], list[list[str]]]:
    """Return a row for each layer and network, for a terminal."""
    rows = [
        [name, *row] for name, layers in findings.networks.items() for row in layer_table(layers)[1]
    ]
    return ["network", *layer_table(findings.networks["trained"])[0]], rows


def layer_table(layers: Sequence[LayerContextuality]) -> tuple[list[str], list[list[str]]]:
    """Return a row for each layer: the anisotropy, and measures less what any words have."""
    titles = ["layer", "anisotropy", "self-similarity", "intra-sentence", "first direction"]
    rows = [
        [str(one.layer), f"{one.anisotropy:.3f}", *(f"{x:.3f}" for x in one.adjusted)]
        for one in layers
    ]
    return titles, rows


def render_contextuality_page(findings: ContextualityFindings, written: str) -> str:
    """Return the page as one HTML document that loads nothing.

    Args:
        findings: of a model.
        written: when it was written.
    """
    opening = PageOpening(
        "Contextuality",
        findings.model,
        " ".join([describe_words(findings), *result_sentences(findings)]),
        [("Data", findings.data), ("Method", link("Ethayarajh 2019", _URL))],
    )
    return analysis_page(opening, [("layers", "Layers", _layers_section(findings))], written)


def _layers_section(findings: ContextualityFindings) -> Html:
    drawn = [
        draw_curves("Anisotropy", "mean cosine of any two words", "layer", _curves(findings, None)),
        draw_curves(
            "Self-similarity", "of occurrences of a word, less anisotropy", "layer",
            _curves(findings, 0),
        ),
        draw_curves(
            "Intra-sentence similarity", "of a word and its sentence, less anisotropy", "layer",
            _curves(findings, 1),
        ),
    ]  # fmt: skip
    tables = [
        html_table(*layer_table(layers), f"By layer, {_TITLES[name]}")
        for name, layers in findings.networks.items()
    ]
    return section(
        "layers",
        "Layers",
        "Cosines of hidden states. Low self-similarity: the vector of a word depends on its "
        "sentence. First direction: the variance of a word's occurrences that one direction "
        "explains, less that of any words.",
        tag("div", *drawn, class_="figures"),
        *tables,
    )


def _curves(
    findings: ContextualityFindings, measure: int | None
) -> dict[str, list[tuple[float, float]]]:
    return {
        _TITLES[name]: [
            (float(one.layer), one.anisotropy if measure is None else one.adjusted[measure])
            for one in layers
        ]
        for name, layers in findings.networks.items()
    }
