"""HTML as a value: text is escaped because it is a `str`, and markup is never one."""

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass

# Elements without an end tag (HTML standard, section 13.1.2).
VOID_ELEMENTS = frozenset({"meta", "link", "br", "img"})
# Control characters, lone surrogates and what is no character have no place in a document (XML 1.0,
# production 2); what turns the direction of all that follows has none in a word. That one was there
# is shown.
FORBIDDEN_CHARACTERS = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)


@dataclass(frozen=True)
class Html:
    """Markup that is already safe to put into a page."""

    source: str


HtmlContent = Html | str
AttributeValue = str | int | float | bool | None
EMPTY_HTML = Html("")


def escape_html(text: str) -> str:
    """Return `text` such that it stays text in an element and in a quoted attribute."""
    return html.escape(FORBIDDEN_CHARACTERS.sub("\N{REPLACEMENT CHARACTER}", text))


def join_html(*parts: HtmlContent) -> Html:
    """Concatenate parts; those of type `str` are escaped."""
    return Html("".join(p.source if isinstance(p, Html) else escape_html(p) for p in parts))


def tag(name: str, /, *children: HtmlContent, **attributes: AttributeValue) -> Html:
    """Build an element.

    `class_` is written `class`, `aria_label` is written `aria-label`; True is written without a
    value, None and False are left out.
    """
    written = "".join(_attribute(key, value) for key, value in attributes.items())
    end = "" if name in VOID_ELEMENTS else f"</{name}>"
    return Html(f"<{name}{written}>{join_html(*children).source}{end}")


def html_table(
    column_names: Sequence[str],
    rows: Sequence[Sequence[HtmlContent]],
    title: str,
    footer: Sequence[str] = (),
    *,
    class_: str = "numbers",
    show_title: bool = True,
) -> Html:
    """Build a table whose first column has row headers; it scrolls if wider than the page."""
    head = tag("tr", *(tag("th", name, scope="col") for name in column_names))
    body = [_table_row(row) for row in rows]
    return scrollable(
        tag(
            "table",
            tag("caption", title) if show_title else EMPTY_HTML,
            tag("thead", head),
            tag("tbody", *body),
            tag("tfoot", _table_row(footer)) if footer else EMPTY_HTML,
            class_=class_,
        ),
        title,
    )


def section(name: str, title: str, summary: str, *content: HtmlContent) -> Html:
    """Build a part of the page: its name and a summary in the margin, its content beside."""
    heading = tag("h2", title, id=f"{name}-title")
    beside = tag("header", heading, tag("p", summary) if summary else EMPTY_HTML)
    return tag("section", beside, tag("div", *content), id=name, aria_labelledby=f"{name}-title")


def scrollable(content: Html, label: str) -> Html:
    """Wrap wide content in a scroll container that the keyboard reaches (WCAG 2.2, 2.1.1)."""
    return tag("div", content, class_="scroll", tabindex=0, role="region", aria_label=label)


def share_bar(fraction: float) -> Html:
    """Draw a bar of a fraction of the width, hidden from screen readers."""
    width = f"width:{min(max(fraction, 0.0), 1.0):.2%}"
    return tag("i", tag("i", style=width), aria_hidden="true")


_PNG = re.compile("[A-Za-z0-9+/]+={0,2}")


def png_image(png: str, alt: str) -> Html:
    """Show a PNG file in Base64; what is none is left out."""
    if not _PNG.fullmatch(png):
        return EMPTY_HTML
    return tag("img", src=f"data:image/png;base64,{png}", alt=alt)


def _table_row(cells: Sequence[HtmlContent]) -> Html:
    first = tag("th", cells[0], scope="row", dir="auto")
    return tag("tr", first, *(tag("td", cell) for cell in cells[1:]))


def _attribute(key: str, value: AttributeValue) -> str:
    name = key.rstrip("_").replace("_", "-")
    if value is None or value is False:
        return ""
    return f" {name}" if value is True else f' {name}="{escape_html(str(value))}"'
