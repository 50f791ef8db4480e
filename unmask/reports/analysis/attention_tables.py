"""Tables of the analysis of attention: rows for Markdown, a terminal and a page."""

from collections.abc import Iterator, Sequence

from unmask.analysis.attention.findings import AttentionFindings, NetworkAttention
from unmask.analysis.attention.statistics import STATISTICS, mean_by_layer
from unmask.analysis.attention.syntax import ALL_RELATIONS, SIGNIFICANCE, RelationScore
from unmask.output import escape_markdown, markdown_table
from unmask.reports.formatting import format_percent

STATISTIC_TITLES = {
    "entropy": "entropy, nats",
    "special": "special tokens",
    "separator": "separator",
    "first": "first token",
    "itself": "itself",
    "previous": "previous word",
    "following": "next word",
}
PARSER_TITLES = {
    "attention": "attention",
    "attention_and_vectors": "attention and word vectors",
    "offset": "best offset",
}
NETWORK_TITLES = {"trained": "trained weights", "random": "random weights"}


def format_attention_markdown(findings: AttentionFindings) -> str:
    """Format the findings as a Markdown page: relations, parsers and statistics by layer."""
    lines = [f"# Attention of {escape_markdown(findings.model)}", "", describe_sentences(findings)]
    lines += ["", *markdown_table(*relation_table(findings), right_align=True)]
    lines += ["", *(f"{sentence}\n" for sentence in result_sentences(findings))]
    if any(one.parser for one in findings.networks):
        lines += [*markdown_table(*parser_table(findings), right_align=True), ""]
    for network in findings.networks:
        lines += [f"Attention from a word by layer, {NETWORK_TITLES[network.name]}:", ""]
        lines += [*markdown_table(*layer_table(network), right_align=True), ""]
    return "\n".join(lines).rstrip() + "\n"


def describe_sentences(findings: AttentionFindings) -> str:
    """Say on which sentences heads were chosen and scored."""
    text = (
        f"Heads and offsets were chosen on {findings.n_train:,} sentences and scored on "
        f"{findings.n_test:,} others."
    )
    if findings.n_skipped:
        text += f" {findings.n_skipped:,} are longer than the model's positions and left out."
    return text


def result_sentences(findings: AttentionFindings) -> Iterator[str]:
    """Yield what the relations say, in a sentence for each network."""
    for network in findings.networks:
        scored = [one for one in network.syntax.best if one.relation != ALL_RELATIONS]
        higher = sum(one.accuracy > one.offset_accuracy for one in scored)
        alone = sum(one.p_value < SIGNIFICANCE for one in scored)
        yield (
            f"With {NETWORK_TITLES[network.name]} the chosen head is better than the chosen offset "
            f"at {higher} of {len(scored)} relations; at {alone} of them the difference is "
            f"significant at {SIGNIFICANCE} by itself, and at {network.syntax.n_above_offset} "
            "after Holm's correction for the number of relations (exact McNemar tests)."
        )


def relation_table(findings: AttentionFindings) -> tuple[list[str], list[list[str]]]:
    """Return a row for each relation: the head of each network, and the best offset.

    The direction is → where the dependent attends to its head, and ← where the head attends.
    """
    titles = ["relation", "words"]
    for network in findings.networks:
        titles += [f"head, {network.name}", f"accuracy, {network.name}"]
    titles += ["best offset", "its accuracy"]
    rows: list[list[str]] = []
    for found in zip(*(network.syntax.best for network in findings.networks), strict=True):
        row = [found[0].relation, f"{found[0].n_words:,}"]
        for one in found:
            row += [name_head(one), format_accuracy(one)]
        rows.append([*row, f"{found[0].offset:+d}", _points(found[0].offset_accuracy)])
    return titles, rows


def name_head(score: RelationScore) -> str:
    """Return the head with its direction."""
    return f"{score.head} {'→' if score.direction == 'dependent to head' else '←'}"


def format_accuracy(score: RelationScore) -> str:
    """Return the accuracy in points; a star if it is significantly above the offset."""
    return _points(score.accuracy) + (" *" if score.beats_offset else "")


def parser_table(findings: AttentionFindings) -> tuple[list[str], list[list[str]]]:
    """Return the attachment scores of the parsers."""
    networks = [one for one in findings.networks if one.parser is not None]
    rows = [
        [title, *(_points(float(vars(one.parser)[name])) for one in networks)]
        for name, title in PARSER_TITLES.items()
    ]
    return ["UAS", *(NETWORK_TITLES[one.name] for one in networks)], rows


def layer_table(network: NetworkAttention) -> tuple[list[str], list[list[str]]]:
    """Return the mean statistics of the heads of each layer."""
    columns = {name: mean_by_layer(network.statistics, name) for name in STATISTICS}
    layers = list(columns["entropy"])
    rows = [
        [str(layer), *(format_statistic(name, columns[name][layer]) for name in STATISTICS)]
        for layer in layers
    ]
    return ["layer", *(STATISTIC_TITLES[name] for name in STATISTICS)], rows


def head_table(network: NetworkAttention) -> tuple[list[str], list[list[str]]]:
    """Return the statistics of each head."""
    rows: Sequence[list[str]] = [
        [str(one.head), *(format_statistic(name, float(vars(one)[name])) for name in STATISTICS)]
        for one in network.statistics
    ]
    return ["head", *(STATISTIC_TITLES[name] for name in STATISTICS)], list(rows)


def format_statistic(name: str, value: float) -> str:
    """Format one of `STATISTICS`: entropies as numbers, shares in percent."""
    return f"{value:.2f}" if name == "entropy" else format_percent(value)


def _points(fraction: float) -> str:
    return f"{100 * fraction:.1f}"
