"""A map of words: points with names that hide no other where there is room."""

import math
from collections.abc import Sequence

import numpy as np

from unmask.reports.charts.labeled_points import LABEL_FONT_SIZE, draw_labeled_points
from unmask.reports.charts.svg import SOFT_TEXT_COLOR, svg_document
from unmask.reports.markup import tag
from unmask.word_vectors.projection import Points

_MARGIN = 48.0


def render_word_map(words: Sequence[str], points: Points, caption: str) -> str:
    """Draw words at points, as an SVG document whose size grows with the number of words."""
    width = float(min(max(720, round(100 * math.sqrt(len(words)))), 4000))
    height = float(round(0.75 * width))
    places = _scale_to_page(points, width, height)
    drawn = draw_labeled_points(words, places, width, height)
    foot = [tag("text", caption, x=12, y=f"{height - 12:g}", fill=SOFT_TEXT_COLOR)]
    return svg_document(
        f"{len(words)} words: {caption}",
        width,
        height,
        *drawn,
        *(foot if caption else []),
        font_size=LABEL_FONT_SIZE,
    )


def _scale_to_page(points: Points, width: float, height: float) -> Points:
    """Scale points to the page with one scale for both axes; y points up."""
    low, high = points.min(0), points.max(0)
    room = np.array([width, height]) - 2 * _MARGIN
    extent = np.maximum(high - low, 1e-12)
    scale = float((room / extent).min()) if (high > low).any() else 0.0
    middle = (points - (low + high) / 2) * scale * np.array([1, -1])
    return middle + np.array([width, height]) / 2
