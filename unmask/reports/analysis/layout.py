"""What pages of analyses share: the opening, and curves over fractions or layers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from unmask import __version__
from unmask.reports.markup import EMPTY_HTML, Html, tag
from unmask.reports.page import html_page

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 420, 260, 46, 14, 12, 32
"""Units of a drawing; text is 13 of them high, so that it can be read on a phone."""
_N_TICKS = 4


@dataclass(frozen=True)
class PageOpening:
    """What a page begins with."""

    kicker: str
    title: str
    says: str
    byline: Sequence[tuple[str, Html | str]]


def link(title: str, url: str) -> Html:
    """Link to a paper."""
    return tag("a", title, href=url)


def plain_opening(kicker: str, title: str) -> Html:
    """Return the opening of a page that has no more to say."""
    heading = tag("h1", title, class_="long" if len(title) > 40 else None)
    return tag("div", tag("p", kicker, class_="kicker"), heading, class_="opening")


def analysis_page(
    opening: PageOpening, sections: Sequence[tuple[str, str, Html]], written: str
) -> str:
    """Return a page as one HTML document that loads nothing; empty sections are left out.

    Args:
        opening: of the page.
        sections: id, title and content of each.
        written: when it was written.
    """
    kept = [one for one in sections if one[2] != EMPTY_HTML]
    is_long = len(opening.title) > 40
    entries = (tag("div", tag("dt", name), tag("dd", value)) for name, value in opening.byline)
    head = tag(
        "div",
        tag("p", opening.kicker, class_="kicker"),
        tag("h1", opening.title, class_="long" if is_long else None),
        tag("p", opening.says, class_="standfirst"),
        tag("dl", *entries, class_="byline"),
        class_="opening",
    )
    return html_page(
        f"{opening.kicker} of {opening.title}",
        [(name, title) for name, title, _ in kept],
        [head, *(content for _, _, content in kept)],
        f"written {written}",
        version=__version__,
        assets=("attention.css", "analysis.css"),
    )


def draw_curves(
    title: str, subtitle: str, x_name: str, curves: Mapping[str, Sequence[tuple[float, float]]]
) -> Html:
    """Draw curves of a few points each as a figure, with their names below.

    Args:
        title: of the figure.
        subtitle: what is measured.
        x_name: name of the horizontal axis.
        curves: by name, (x, y) of each point.
    """
    points = [point for curve in curves.values() for point in curve]
    xs, ys = [x for x, _ in points], [y for _, y in points]
    left, right = min(xs), max(xs)
    low, high = min(*ys, 0.0), max(*ys, 0.0)
    across = (_WIDTH - _LEFT - _RIGHT) / ((right - left) or 1.0)
    down = (_HEIGHT - _TOP - _BOTTOM) / ((high - low) or 1.0)

    def place(x: float, y: float) -> tuple[str, str]:
        return f"{_LEFT + (x - left) * across:.1f}", f"{_TOP + (high - y) * down:.1f}"

    ticks = [low + i * (high - low) / _N_TICKS for i in range(_N_TICKS + 1)]
    rules = [
        tag("path", d=f"M{_LEFT} {place(left, y)[1]}H{_WIDTH - _RIGHT}", class_="rule")
        for y in ticks
    ]
    numbers = [
        tag("text", f"{y:z.2f}", x=_LEFT - 6, y=float(place(left, y)[1]) + 4, text_anchor="end")
        for y in ticks
    ]
    below = [
        tag("text", f"{x:g}", x=place(x, low)[0], y=_HEIGHT - 12, text_anchor="middle")
        for x in _spread(sorted(set(xs)))
    ]
    lines: list[Html] = []
    for i, curve in enumerate(curves.values(), 1):
        path = "L".join(" ".join(place(x, y)) for x, y in curve)
        dots = [tag("circle", cx=place(x, y)[0], cy=place(x, y)[1], r=3) for x, y in curve]
        lines.append(tag("g", tag("path", d=f"M{path}"), *dots, class_=_color(i)))
    spoken = "; ".join(
        f"{name}: " + ", ".join(f"{y:.3g} at {x:g}" for x, y in curve)
        for name, curve in curves.items()
    )
    key = [tag("li", name, class_=_color(i)) for i, name in enumerate(curves, 1)]
    return tag(
        "figure",
        tag("figcaption", tag("b", title), tag("span", subtitle)),
        tag(
            "svg", *rules, *numbers, *below, *lines,
            viewBox=f"0 0 {_WIDTH} {_HEIGHT}", class_="few-points", role="img",
            aria_label=f"{title}. {spoken}",
        ),
        tag("p", x_name, class_="remark axis"),
        tag("ul", *key, class_="key"),
    )  # fmt: skip


def _spread(xs: Sequence[float]) -> list[float]:
    """Return those of the places on an axis whose labels do not run into each other."""
    least = (xs[-1] - xs[0]) / 12
    kept: list[float] = []
    for x in xs:
        if not kept or x - kept[-1] >= least:
            kept.append(x)
    return kept


def _color(i: int) -> str:
    return f"c{i % 6}"
