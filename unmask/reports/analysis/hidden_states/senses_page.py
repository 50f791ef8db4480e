"""The page and tables of senses: accuracy by layer, and neighbors of occurrences."""

from collections.abc import Iterator

from unmask.analysis.hidden_states.senses.findings import SensesFindings
from unmask.analysis.hidden_states.senses.neighbors import Occurrence
from unmask.output import escape_markdown, markdown_table
from unmask.reports.analysis.behavior.accuracies import format_accuracy_interval, points
from unmask.reports.analysis.layout import PageOpening, analysis_page, draw_curves, link
from unmask.reports.markup import EMPTY_HTML, Html, HtmlContent, html_table, section, tag

_WIC = ("Pilehvar and Camacho-Collados 2019", "https://arxiv.org/abs/1808.09121")
_PSEUDO_WORDS = ("Schütze 1998", "https://aclanthology.org/J98-1004/")
_TITLES = {
    "trained": "trained weights",
    "whitened": "trained weights, whitened",
    "random": "random weights",
}


def format_senses_markdown(findings: SensesFindings) -> str:
    """Format the findings as a Markdown page."""
    lines = [f"# Senses, {escape_markdown(findings.model)}", ""]
    lines += [escape_markdown(describe_pairs(findings)), ""]
    lines += [f"{sentence}\n" for sentence in result_sentences(findings)]
    lines += [*markdown_table(*senses_table(findings), right_align=True), ""]
    for one in findings.neighbors:
        lines += [f"{escape_markdown(_text(one.occurrence))}:", ""]
        lines += [f"- {x:.3f} {escape_markdown(_text(other))}" for other, x in one.same_word]
        words = ", ".join(f"{word} ({x:.3f})" for word, x in one.other_words)
        lines += [f"- other words: {escape_markdown(words)}", ""]
    return "\n".join(lines).rstrip() + "\n"


def describe_pairs(findings: SensesFindings) -> str:
    """Say which pairs were scored, and how."""
    kind = (
        "pairs of occurrences of pseudo-words (two words of a text taken for one; one sense is one "
        "word)"
        if findings.are_pseudo_words
        else "pairs of occurrences of a word"
    )
    text = (
        f"{findings.n_scored:,} {kind} of {findings.data}: the same sense if the cosine of both "
        f"vectors is at a threshold or above, chosen on {findings.n_train:,} others by layer. "
        "Layer 0 is the input of the first layer."
    )
    if findings.n_skipped:
        text += f" Left out as longer than the model's positions: {findings.n_skipped:,}."
    return text


def result_sentences(findings: SensesFindings) -> Iterator[str]:
    """Yield the accuracy of the layer that is best on the training pairs, and of baselines."""
    for name in findings.networks:
        best = findings.best(name)
        yield (
            f"{_TITLES[name].capitalize()}: {format_accuracy_interval(best.scored)} % of pairs are "
            f"right by layer {best.layer}, the best on the training pairs."
        )
    others = format_accuracy_interval(findings.other_words.scored)
    yield (
        f"Static vectors of the other words: {others} %; the more frequent answer: "
        f"{points(findings.majority)} %."
    )


def senses_table(findings: SensesFindings) -> tuple[list[str], list[list[str]]]:
    """Return a row for each layer: accuracy by network, and threshold and cosines of the first."""
    titles = ["layer", *(_TITLES[name] for name in findings.networks)]
    titles += ["threshold", "cosine, one sense", "two senses"]
    rows: list[list[str]] = []
    for layers in zip(*findings.networks.values(), strict=True):
        first = layers[0]
        numbers = (first.threshold, first.same_cosine, first.different_cosine)
        rows.append(
            [
                str(first.layer),
                *(format_accuracy_interval(one.scored) for one in layers),
                *(f"{x:.3f}" for x in numbers),
            ]
        )
    return titles, rows


def render_senses_page(findings: SensesFindings, written: str) -> str:
    """Return the page as one HTML document that loads nothing.

    Args:
        findings: of a model.
        written: when it was written.
    """
    opening = PageOpening(
        "Senses of pseudo-words" if findings.are_pseudo_words else "Senses",
        findings.model,
        " ".join(result_sentences(findings)),
        [
            ("Data", findings.data),
            ("Method", link(*(_PSEUDO_WORDS if findings.are_pseudo_words else _WIC))),
        ],
    )
    sections = [
        ("layers", "Layers", _layers_section(findings)),
        ("neighbors", "Neighbors", _neighbors_section(findings)),
    ]
    return analysis_page(opening, sections, written)


def _layers_section(findings: SensesFindings) -> Html:
    curves = {
        _TITLES[name]: [(float(one.layer), one.scored.accuracy) for one in layers]
        for name, layers in findings.networks.items()
    }
    depth = float(len(next(iter(curves.values()))) - 1)
    other = findings.other_words.scored.accuracy
    curves["static vectors of the other words"] = [(0.0, other), (depth, other)]
    return section(
        "layers",
        "Layers",
        describe_pairs(findings),
        draw_curves("Accuracy", "one sense or two", "layer", curves),
        html_table(*senses_table(findings), "Accuracy by layer, in percent"),
    )


def _neighbors_section(findings: SensesFindings) -> Html:
    if not findings.neighbors:
        return EMPTY_HTML
    place = f" in {findings.corpus}" if findings.corpus else ""
    rows: list[list[HtmlContent]] = []
    for one in findings.neighbors:
        same = [tag("li", f"{x:.3f} ", _marked(other)) for other, x in one.same_word]
        others = ", ".join(f"{word} {x:.3f}" for word, x in one.other_words)
        rows.append([_marked(one.occurrence), tag("ul", *same), others])
    return section(
        "neighbors",
        "Neighbors",
        f"Occurrences of a word{place}, the nearest occurrences of it in other sentences, and the "
        f"nearest other words, by the cosine of layer {findings.best('trained').layer}.",
        html_table(["occurrence", "nearest of the same word", "nearest other words"], rows,
                   "Neighbors of occurrences"),
    )  # fmt: skip


def _marked(one: Occurrence) -> Html:
    return tag("span", f"{one.before} ", tag("b", one.word), f" {one.after}", class_="sentence")


def _text(one: Occurrence) -> str:
    return f"{one.before} [{one.word}] {one.after}".strip()
