"""The page and tables of the logit lens: agreement by layer, and texts layer by layer."""

from collections.abc import Iterator

from unmask.analysis.hidden_states.lens import LensFindings, LensView, NetworkLens, PositionView
from unmask.output import escape_markdown, markdown_table
from unmask.reports.analysis.attention_tables import NETWORK_TITLES
from unmask.reports.analysis.layout import PageOpening, analysis_page, draw_curves
from unmask.reports.formatting import format_percent
from unmask.reports.markup import EMPTY_HTML, Html, html_table, join_html, scrollable, section, tag

_MEASURES = {
    "agreement": "agrees with the last",
    "probability": "its probability of the last's",
    "reciprocal_rank": "1 / rank of the last's",
    "divergence": "KL from the last, nats",
    "accuracy": "right",
    "loss": "loss, nats",
}
_SHARES = ("agreement", "probability", "accuracy")
_MAX_POSITIONS = 40
"""Positions of a text that the page shows; the data file has all."""


def format_lens_markdown(findings: LensFindings) -> str:
    """Format the findings as a Markdown page: measures by layer, and the views of texts."""
    lines = [f"# Logit lens of {escape_markdown(findings.model)}", "", describe_positions(findings)]
    lines += ["", *(f"{sentence}\n" for sentence in result_sentences(findings))]
    for network in findings.networks:
        if network.layers:
            lines += [f"By layer, {NETWORK_TITLES[network.name]}:", ""]
            lines += [*markdown_table(*layer_table(network), right_align=True), ""]
    for view in findings.networks[0].views:
        lines += [escape_markdown(view.text), ""]
        lines += [*markdown_table(*view_table(view)), ""]
    return "\n".join(lines).rstrip() + "\n"


def describe_positions(findings: LensFindings) -> str:
    """Say what was predicted."""
    text = f"{findings.n_texts:,} texts, {findings.n_positions:,} {findings.predicts}."
    if findings.n_skipped:
        text += f" {findings.n_skipped:,} are longer than the model's positions and left out."
    return text


def result_sentences(findings: LensFindings) -> Iterator[str]:
    """Yield how early a network predicts what it does in the end."""
    for network in findings.networks:
        if network.layers:
            shares = ", ".join(format_percent(one.agreement) for one in network.layers[:-1])
            yield (
                f"With {NETWORK_TITLES[network.name]}, the layers before the last would predict "
                f"the same as it at {shares} of the positions."
            )


def lens_table(findings: LensFindings) -> tuple[list[str], list[list[str]]]:
    """Return a row for each layer and network, for a terminal; of given texts, their views."""
    titles = ["network", *layer_table(findings.networks[0])[0]]
    rows = [
        [network.name, *row] for network in findings.networks for row in layer_table(network)[1]
    ]
    if rows:
        return titles, rows
    titles = ["text", "read", "layer", "tokens", "rank"]
    for view in findings.networks[0].views:
        for position in view.positions:
            for i, layer in enumerate(position.layers):
                rows.append(
                    [view.text, position.read, str(i), " ".join(layer.tokens), f"{layer.rank:,}"]
                )
    return titles, rows


def layer_table(network: NetworkLens) -> tuple[list[str], list[list[str]]]:
    """Return a row for each layer; 0 is the input of the first."""
    rows = [
        [
            str(one.layer),
            *(
                format_percent(vars(one)[name]) if name in _SHARES else f"{vars(one)[name]:.3f}"
                for name in _MEASURES
            ),
        ]
        for one in network.layers
    ]
    return ["layer", *_MEASURES.values()], rows


def view_table(view: LensView) -> tuple[list[str], list[list[str]]]:
    """Return the first token of each layer at each position; of one position, all of its tokens."""
    if len(view.positions) == 1:
        (one,) = view.positions
        rows = [
            [
                str(i),
                ", ".join(
                    f"{token} {format_percent(p)}"
                    for token, p in zip(layer.tokens, layer.probabilities, strict=True)
                ),
                f"{layer.rank:,}",
            ]
            for i, layer in enumerate(one.layers)
        ]
        return ["layer", "most probable tokens", "rank of the last's"], rows
    n_layers = len(view.positions[0].layers)
    rows = [[str(i), *(one.layers[i].tokens[0] for one in view.positions)] for i in range(n_layers)]
    return ["layer", *(one.read for one in view.positions)], rows


def render_lens_page(findings: LensFindings, written: str) -> str:
    """Return the page as one HTML document that loads nothing.

    Args:
        findings: of a network and, beside it, its control.
        written: when it was written.
    """
    opening = PageOpening(
        "Logit lens",
        findings.model,
        " ".join([describe_positions(findings), *result_sentences(findings)]),
        [("Data", findings.data or "given texts"), ("Method", "nostalgebraist 2020")],
    )
    sections = [
        ("texts", "Texts", _texts_section(findings)),
        ("layers", "Layers", _layers_section(findings)),
    ]
    return analysis_page(opening, sections, written)


def _texts_section(findings: LensFindings) -> Html:
    views = findings.networks[0].views
    if not views:
        return EMPTY_HTML
    return section(
        "texts",
        "Texts",
        "The most probable token of each layer, if the head of tokens read that layer; darker: "
        "more probable; blue where it is that of the last layer. Under the pointer: more tokens, "
        "and the rank of what the last layer predicts.",
        *(_draw_view(view) for view in views),
    )


def _draw_view(view: LensView) -> Html:
    positions = view.positions[:_MAX_POSITIONS]
    n_layers = len(positions[0].layers)
    if len(positions) == 1:
        return join_html(
            tag("h3", view.text),
            html_table(*view_table(view), view.text, class_="plain", show_title=False),
        )
    head = tag(
        "tr",
        tag("th", "layer", scope="col"),
        *(tag("th", tag("span", one.read), scope="col") for one in positions),
    )
    rows = [
        tag("tr", tag("th", str(i), scope="row"), *(_cell(one, i) for one in positions))
        for i in reversed(range(n_layers))
    ]
    table = tag("table", tag("thead", head), tag("tbody", *rows), class_="confusion shades lens")
    return join_html(tag("h3", view.text), scrollable(table, f"Layers of: {view.text}"))


def _cell(position: PositionView, layer: int) -> Html:
    one = position.layers[layer]
    more = ", ".join(
        f"{token} {format_percent(p)}"
        for token, p in zip(one.tokens, one.probabilities, strict=True)
    )
    is_last = one.tokens[0] == position.layers[-1].tokens[0]
    return tag(
        "td", one.tokens[0], title=f"{more}; rank of the last's: {one.rank:,}",
        style=f"--share:{one.probabilities[0]:.3f}", class_="right" if is_last else None,
    )  # fmt: skip


def _layers_section(findings: LensFindings) -> Html:
    networks = [one for one in findings.networks if one.layers]
    if not networks:
        return EMPTY_HTML
    curves = {
        NETWORK_TITLES[one.name]: [(float(x.layer), x.agreement) for x in one.layers]
        for one in networks
    }
    losses = {
        NETWORK_TITLES[one.name]: [(float(x.layer), x.loss) for x in one.layers] for one in networks
    }
    tables = [
        html_table(*layer_table(one), f"By layer, {NETWORK_TITLES[one.name]}") for one in networks
    ]
    drawn = [
        draw_curves(
            "Agreement", "share of positions that the last layer predicts so", "layer", curves
        ),
        draw_curves("Loss", "nats of the right token", "layer", losses),
    ]
    return section(
        "layers",
        "Layers",
        "Layer 0 is the input of the first. The final norm and the head of tokens are applied to "
        "every layer as to the last.",
        tag("div", *drawn, class_="figures"),
        *tables,
    )
