"""Pictures on a terminal: half blocks of color, or characters of gray.

A cell of a terminal is about twice as high as wide: a half block shows two pixels, one above the
other, and a character of gray their mean. What is not drawn of a picture is left blank.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, UInt8

from unmask.images.preprocessing import resize_pixels

GRAYS = ".:-=+*#%@"
"""Characters from black to white on a dark terminal; none is blank, which is what is not drawn."""
GAP = 2
"""Columns between pictures in a row."""


@dataclass(frozen=True, kw_only=True, eq=False)
class PatchView:
    """A picture, of which some patches are drawn."""

    title: str
    pixels: UInt8[np.ndarray, "h w c"]
    drawn: Bool[np.ndarray, "rows columns"]
    """Which patches are."""

    def fitted(self, width: int) -> "PatchView":
        """Return it at most `width` pixels wide, each patch a square of whole pixels.

        Where there are more patches than that, a patch is a pixel.
        """
        rows, columns = self.drawn.shape
        side = max(min(width // columns, self.pixels.shape[1] // columns), 1)
        size = rows * side, columns * side
        pixels = resize_pixels(self.pixels, size, "bilinear")
        return PatchView(title=self.title, pixels=pixels, drawn=self.drawn)

    def drawn_pixels(self) -> Bool[np.ndarray, "h w"]:
        """Return which pixels are drawn."""
        height, width, _ = self.pixels.shape
        rows, columns = self.drawn.shape
        return self.drawn.repeat(height // rows, 0).repeat(width // columns, 1)

    def with_alpha(self) -> UInt8[np.ndarray, "h w 4"]:
        """Return the pixels in color and with transparency: what is not drawn is transparent."""
        color = np.broadcast_to(self.pixels, (*self.pixels.shape[:2], 3))
        alpha = np.where(self.drawn_pixels(), 255, 0).astype(np.uint8)
        return np.concatenate((color, alpha[:, :, None]), -1)


Cell = tuple[str, str]
"""A character and its style, in rich's words; "": that of the terminal."""


def view_rows(
    views: Sequence[PatchView], width: int, *, color: bool = True
) -> Iterator[list[list[Cell]]]:
    """Yield rows of views that fit a terminal, each as lines of cells, the titles first."""
    n = min(len(views), max((width + GAP) // (_MIN_WIDTH + GAP), 1))
    space = (width + GAP) // n - GAP
    fitted = [view.fitted(space) for view in views]
    for first in range(0, len(fitted), n):
        some = fitted[first : first + n]
        columns = [_titled(view, color=color) for view in some]
        yield [_join(lines) for lines in zip(*columns, strict=True)]


_MIN_WIDTH = 24
"""Columns below which fewer pictures stand in a row."""


def _titled(view: PatchView, *, color: bool) -> list[list[Cell]]:
    width = view.pixels.shape[1]
    title: list[Cell] = [(view.title[:width].ljust(width), "bold")]
    return [title, *(_half_blocks(view) if color else _gray_lines(view))]


def _join(parts: Sequence[list[Cell]]) -> list[Cell]:
    joined = list(parts[0])
    for part in parts[1:]:
        joined += [(" " * GAP, ""), *part]
    return joined


def _paired(view: PatchView) -> tuple[UInt8[np.ndarray, "n 2 w 3"], Bool[np.ndarray, "n 2 w"]]:
    """Return the color of pixels, and whether they are drawn, two rows at a time."""
    height, width, _ = view.pixels.shape
    color = np.zeros((height + height % 2, width, 3), np.uint8)
    drawn = np.zeros((height + height % 2, width), bool)
    color[:height], drawn[:height] = view.pixels, view.drawn_pixels()
    return color.reshape(-1, 2, width, 3), drawn.reshape(-1, 2, width)


def _half_blocks(view: PatchView) -> list[list[Cell]]:
    color, drawn = _paired(view)

    def cell(row: int, column: int) -> Cell:
        upper, lower = (
            "#{:02x}{:02x}{:02x}".format(*color[row, i, column]) if drawn[row, i, column] else ""
            for i in (0, 1)
        )
        if upper and lower:
            return "▀", f"{upper} on {lower}"
        return ("▀", upper) if upper else ("▄", lower) if lower else (" ", "")

    n, _, width, _ = color.shape
    return [[cell(row, column) for column in range(width)] for row in range(n)]


def _gray_lines(view: PatchView) -> list[list[Cell]]:
    color, drawn = _paired(view)
    light = (color.astype(np.float64).mean(-1) * drawn).sum(1) / np.maximum(drawn.sum(1), 1)
    level = np.minimum(light / 256 * len(GRAYS), len(GRAYS) - 1).astype(int)
    signs = np.where(drawn.any(1), np.array(list(GRAYS))[level], " ")
    return [[("".join(row), "")] for row in signs.tolist()]
