"""Points with names that hide no other where there is room."""

import math
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from unmask.reports.charts.svg import LEADER_COLOR, POINT_COLOR
from unmask.reports.markup import Html, tag

LABEL_FONT_SIZE = 12
_LETTER_WIDTH, _LINE_HEIGHT = 7.0, 15.0
"""Pixels: a letter on average, a line."""
_DOT_RADIUS = 3.0

LabelBoxes = Float[np.ndarray, "n 4"]
Places = Float[np.ndarray, "n 2"]


def draw_labeled_points(
    words: Sequence[str], places: Places, width: float, height: float
) -> list[Html]:
    """Draw a dot at each place of a page, in pixels, and its name beside it or at a line."""
    labels = _place_labels(words, places, width, height)
    lines = [
        tag(
            "path",
            d=f"M{x:.1f} {y:.1f}L{_nearest_point(label, x, y)}",
            stroke=LEADER_COLOR,
            stroke_width=0.7,
        )
        for label, (x, y) in zip(labels, places, strict=True)
        if label.has_leader
    ]
    dots = [
        tag("circle", cx=f"{x:.1f}", cy=f"{y:.1f}", r=_DOT_RADIUS, fill=POINT_COLOR)
        for x, y in places
    ]
    names = [_draw_word(label, x) for label, (x, _) in zip(labels, places, strict=True)]
    return [*lines, *dots, *names]


@dataclass(frozen=True)
class _WordLabel:
    """A word in its box; `has_leader` by a line to its dot where the dot is not beside it."""

    word: str
    left: float
    top: float
    width: float
    has_leader: bool


def _place_labels(
    words: Sequence[str], places: Places, width: float, height: float
) -> list[_WordLabel]:
    """Put each word beside its dot, where it hides no other; else near it, with a line."""
    dots = np.concatenate([places - _DOT_RADIUS, places + _DOT_RADIUS], axis=1)
    taken = np.concatenate([dots, np.zeros((len(words), 4))])
    frame = np.array([4.0, 4.0, width - 4, height - 2 * _LINE_HEIGHT])
    made: list[_WordLabel] = []
    for i, (word, place) in enumerate(zip(words, places, strict=True)):
        long = _text_width(word)
        boxes, led = _candidate_boxes(place, long)
        others = np.delete(taken[: len(words) + i], i, axis=0)
        cost = _overlap_areas(boxes, others).sum(1) + 100 * _overflow(boxes, frame)
        at = int(cost.argmin())  # the first of the best: the nearest to the dot
        taken[len(words) + i] = boxes[at]
        left, top = boxes[at, :2]
        left = min(max(left, 4.0), max(width - 4 - long, 4.0))
        top = min(max(top, 4.0), height - 2 * _LINE_HEIGHT)
        made.append(_WordLabel(word, float(left), float(top), long, bool(led[at])))
    return made


def _text_width(word: str) -> float:
    """Estimate the width of a word in pixels."""
    n_columns = sum(
        2.0 if unicodedata.east_asian_width(c) in "WF" else 0.0 if unicodedata.combining(c) else 1.0
        for c in word
    )
    return _LETTER_WIDTH * n_columns + 2


def _candidate_boxes(place: Float[np.ndarray, "2"], width: float) -> tuple[LabelBoxes, np.ndarray]:
    """Return boxes about a dot, the better ones first, and which of them need a line."""
    x, y = place
    gap, half = _DOT_RADIUS + 1, _LINE_HEIGHT / 2
    corners = [
        (x + gap, y - half),
        (x - gap - width, y - half),
        (x - width / 2, y - gap - _LINE_HEIGHT),
        (x - width / 2, y + gap),
        (x + gap, y - _LINE_HEIGHT),
        (x + gap, y),
        (x - gap - width, y - _LINE_HEIGHT),
        (x - gap - width, y),
    ]
    beside = len(corners)
    for away in (14, 24, 36, 50, 66, 84, 104, 128, 156, 190, 230):
        for step in range(24):
            angle = 2 * math.pi * step / 24
            dx, dy = math.cos(angle), math.sin(angle)
            corners.append((x + dx * (away + width / 2) - width / 2, y + dy * away - half))
    left_top = np.array(corners)
    led = np.arange(len(corners)) >= beside
    return np.concatenate([left_top, left_top + np.array((width, _LINE_HEIGHT))], axis=1), led


def _overlap_areas(boxes: LabelBoxes, others: Float[np.ndarray, "m 4"]) -> Float[np.ndarray, "n m"]:
    """Return by how many square pixels boxes overlap others."""
    low = np.maximum(boxes[:, None, :2], others[None, :, :2])
    high = np.minimum(boxes[:, None, 2:], others[None, :, 2:])
    return np.maximum(high - low, 0).prod(2)


def _overflow(boxes: LabelBoxes, frame: Float[np.ndarray, "4"]) -> Float[np.ndarray, "n"]:
    """Return by how many pixels boxes leave a frame."""
    low = np.maximum(frame[:2] - boxes[:, :2], 0).sum(1)
    return low + np.maximum(boxes[:, 2:] - frame[2:], 0).sum(1)


def _draw_word(label: _WordLabel, x: float) -> Html:
    """Anchor a word at the side of its dot, as fonts differ in width."""
    right = label.left + label.width
    at, anchor = (label.left + right) / 2, "middle"
    if label.left >= x:
        at, anchor = label.left, None
    elif right <= x:
        at, anchor = right, "end"
    return tag("text", label.word, x=f"{at:.1f}", y=f"{label.top + 11.5:.1f}", text_anchor=anchor)


def _nearest_point(label: _WordLabel, x: float, y: float) -> str:
    """Return the point of a label's box nearest to a dot."""
    near_x = min(max(x, label.left), label.left + label.width)
    near_y = min(max(y, label.top + 2), label.top + _LINE_HEIGHT - 2)
    return f"{near_x:.1f} {near_y:.1f}"
