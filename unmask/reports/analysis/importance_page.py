"""The page and tables of importance: what a model loses without some of its heads."""

from collections.abc import Iterator

from unmask.analysis.attention.importance import ImportanceFindings, LayerHeads
from unmask.output import escape_markdown, markdown_table
from unmask.reports.analysis.layout import PageOpening, analysis_page, draw_curves, link
from unmask.reports.markup import Html, html_table, scrollable, section, tag

_URL = "https://arxiv.org/abs/1905.10650"
_NOTICEABLE = 0.01
"""Nats by which a loss is more than the whole model's."""


def importance_sentences(findings: ImportanceFindings) -> Iterator[str]:
    """Yield how many heads help, how many can go, and whether importance finds them."""
    n = findings.n_heads
    yield (
        f"Without one of them, the loss ({findings.loss:.3f} nats) rises by more than "
        f"{_NOTICEABLE:g} at {_count_above(findings, 'increases')} of {n} heads."
    )
    alone = [bool((one.without_others < _NOTICEABLE).any()) for one in findings.layers]
    yield (
        f"In {sum(alone)} of {len(alone)} layers, keeping the best head alone costs less than "
        f"{_NOTICEABLE:g}."
    )
    middle = len(findings.fractions) // 2
    losses = ", ".join(
        f"{x[middle]:.3f} {'at' if name == 'random' else 'by'} {name}"
        for name, x in findings.curves.items()
    )
    yield f"Without {100 * findings.fractions[middle]:.0f} % of the heads the loss is {losses}."
    yield (
        f"Importance and the rise of the loss have a rank correlation of "
        f"{findings.correlation:.2f} over heads."
    )


def _count_above(findings: ImportanceFindings, name: str) -> int:
    return sum(int((getattr(one, name) > _NOTICEABLE).sum()) for one in findings.layers)


def heads_table(findings: ImportanceFindings) -> tuple[list[str], list[list[str]]]:
    """Return a row for each head."""
    titles = ["layer", "head", "importance", "loss without it", "loss with it alone"]
    rows = [
        [one.name, str(i + 1), f"{a:.3f}", f"{b:+.3f}", f"{c:+.3f}"]
        for one in findings.layers
        for i, (a, b, c) in enumerate(
            zip(one.importance, one.increases, one.without_others, strict=True)
        )
    ]
    return titles, rows


def curves_table(findings: ImportanceFindings) -> tuple[list[str], list[list[str]]]:
    """Return a row for each fraction of removed heads."""
    names = list(findings.curves)
    rows = [
        [f"{100 * f:.0f} %", *(f"{findings.curves[name][i]:.3f}" for name in names)]
        for i, f in enumerate(findings.fractions)
    ]
    return ["removed", *names], rows


def describe_texts(findings: ImportanceFindings) -> str:
    """Say what was measured."""
    return (
        f"{findings.n_heads} heads of {len(findings.layers)} attention layers, on "
        f"{findings.n_texts:,} texts; heads that share keys and values count as one."
    )


def format_importance_markdown(findings: ImportanceFindings) -> str:
    """Format the findings as a Markdown page."""
    lines = [f"# Importance of the heads of {escape_markdown(findings.model)}", ""]
    lines += [describe_texts(findings), "", *importance_sentences(findings), ""]
    lines += ["Loss in nats, by the order in which heads are removed:", ""]
    lines += [*markdown_table(*curves_table(findings), right_align=True), ""]
    lines += ["Each head, and the change of the loss:", ""]
    lines += markdown_table(*heads_table(findings), right_align=True)
    return "\n".join(lines).rstrip() + "\n"


def render_importance_page(findings: ImportanceFindings, written: str) -> str:
    """Return the page as one HTML document that loads nothing.

    Args:
        findings: of a model.
        written: when it was written.
    """
    opening = PageOpening(
        "Importance of heads",
        findings.model,
        " ".join([describe_texts(findings), *importance_sentences(findings)]),
        [("Data", findings.data), ("Method", link("Michel et al. 2019", _URL))],
    )
    sections = [
        ("orders", "Orders", _orders_section(findings)),
        ("heads", "Heads", _heads_section(findings)),
    ]
    return analysis_page(opening, sections, written)


def _orders_section(findings: ImportanceFindings) -> Html:
    curves = {
        name: [(100 * f, x) for f, x in zip(findings.fractions, losses, strict=True)]
        for name, losses in findings.curves.items()
    }
    return section(
        "orders",
        "Heads removed together",
        "Loss without the first heads of an order: by importance (the expected gradient of a "
        "mask), by magnitude of their matrices, and at random.",
        tag(
            "div",
            draw_curves("Loss", "nats of a target", "% of the heads removed", curves),
            class_="figures",
        ),
        html_table(*curves_table(findings), "Loss by the share of heads that is removed"),
    )


def _heads_section(findings: ImportanceFindings) -> Html:
    most = max(len(one.importance) for one in findings.layers)
    head = tag(
        "tr",
        tag("th", "layer", scope="col"),
        *(tag("th", tag("span", str(i + 1)), scope="col") for i in range(most)),
    )
    body = [_shades(one) for one in findings.layers]
    drawn = tag("table", tag("thead", head), tag("tbody", *body), class_="confusion shades")
    return section(
        "heads",
        "Heads one by one",
        "Importance of each head, shaded; its numbers are under the pointer. Then the change of "
        "the loss without this head alone, and with it as the only one of its layer.",
        scrollable(drawn, "Importance of each head"),
        html_table(*heads_table(findings), "Each head"),
    )


def _shades(layer: LayerHeads) -> Html:
    largest = max(float(layer.importance.max()), 1e-12)
    cells = (
        tag(
            "td", f"{x:.2f}", class_="right", style=f"--share:{float(x) / largest:.3f}",
            title=f"{layer.name}, head {i + 1}: {float(x):.3f}, loss {float(rise):+.3f}",
        )
        for i, (x, rise) in enumerate(zip(layer.importance, layer.increases, strict=True))
    )  # fmt: skip
    return tag("tr", tag("th", layer.name, scope="row"), *cells)
