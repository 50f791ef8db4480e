"""Explanation of an objective on a picture: what is seen, and what is asked (`unmask hide`)."""

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING

from unmask import __version__
from unmask.images.drawing import to_png_text
from unmask.images.terminal import Cell, PatchView, view_rows
from unmask.output import safe_line, to_safe_json
from unmask.reports.analysis.layout import plain_opening
from unmask.reports.markup import join_html, section, tag
from unmask.reports.page import html_page
from unmask.reports.report_data import Picture
from unmask.reports.samples import picture_article

if TYPE_CHECKING:
    from rich.text import Text

_MARGIN = 15


@dataclass(frozen=True, kw_only=True)
class PictureExplanation:
    """A picture for a person's eyes: all of it, what the model sees, and what it is asked."""

    name: str
    views: tuple[PatchView, ...]
    """The picture, what is seen of it, what is asked, and, of trained weights, what they make."""
    hidden: tuple[tuple[int, ...], ...]
    """Which patches are hidden, 0 or 1, row by row."""
    patch_size: int
    loss_terms: tuple[str, ...]
    notes: tuple[tuple[str, str], ...]
    """Names and sentences: inputs, targets, attention."""

    def to_json(self) -> str:
        """Write all but the pixels as a line of JSON."""
        return to_safe_json(
            {
                "picture": self.name,
                "patch_size": self.patch_size,
                "hidden": self.hidden,
                "asks": self.loss_terms,
                "notes": dict(self.notes),
            }
        )

    def lines(self, width: int = 80, *, color: bool = False) -> Iterator[list[Cell]]:
        """Lay it out for a terminal: lines of texts and their styles."""
        for row in view_rows(self.views, width, color=color):
            yield from row
            yield []
        for name, text in self.notes:
            shown = name
            for line in textwrap.wrap(safe_line(text), max(width - _MARGIN, 20)):
                yield [(f"{shown:{_MARGIN}}", "bold"), (line, "")]
                shown = ""

    def to_text(self, width: int = 80) -> str:
        """Lay it out without color: light is a character from `.` to `@`."""
        return "\n".join("".join(t for t, _ in line).rstrip() for line in self.lines(width))

    def to_rich(self, width: int = 80) -> "Text":
        """Lay it out in color, for a console of rich's; what is hidden is left blank."""
        from rich.text import Text

        lines = (Text.assemble(*line) for line in self.lines(width, color=True))
        return Text("\n", no_wrap=True, overflow="ignore").join(lines)

    def to_html(self, model: str) -> str:
        """Return a page that loads nothing."""
        title = f"A picture as {PurePath(model).name} reads it"
        panels = tuple((view.title, to_png_text(view.with_alpha())) for view in self.views)
        picture = picture_article(Picture(name=self.name, panels=panels))
        notes = [join_html(tag("dt", name), tag("dd", text)) for name, text in self.notes]
        content = [
            plain_opening("What is hidden", title),
            section(
                "picture",
                "Picture",
                "What is seen, and what is asked: hidden patches are drawn at random.",
                tag("div", picture, class_="pictures one"),
            ),
            section("objective", "Objective", "", tag("dl", *notes, class_="parts")),
        ]
        links = [("picture", "Picture"), ("objective", "Objective")]
        return html_page(title, links, content, self.name, version=__version__)
