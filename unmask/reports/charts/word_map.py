"""A picture of words: two dimensions of their vectors, each word with a name that can be read."""

import math
import sys
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast, get_args

import numpy as np
from jaxtyping import Float

from unmask.config import check_number_arguments
from unmask.files import write_atomically
from unmask.inference.load_word_vectors import load_word_vectors
from unmask.output import OutputStream, print_line
from unmask.reports.markup import EMPTY_HTML, Html, tag
from unmask.text.lines import is_blank, read_lines
from unmask.word_vectors.keyed_vectors import KeyedVectors

ProjectionMethod = Literal["pca", "tsne"]
"""Principal components, or t-SNE (van der Maaten and Hinton 2008)."""

MAX_WORDS = 2000
"""Words of a picture; more could not be read."""

N_DEFAULT_WORDS = 100
"""Words that are drawn where none is named."""

_LETTER_WIDTH, _LINE_HEIGHT, _FONT_SIZE = (
    7.0,
    15.0,
    12,
)  # pixels of a letter on average, of a line, of the font
_DOT_RADIUS, _MARGIN = 3.0, 48.0
_TEXT_COLOR, _CAPTION_COLOR, _LEADER_COLOR, _DOT_COLOR, _BACKGROUND_COLOR = (
    "#1d1c1a",
    "#615d56",
    "#b9b3a7",
    "#1b5e9e",
    "#fffefb",
)

MapPoints = Float[np.ndarray, "n 2"]
LabelBoxes = Float[np.ndarray, "n 4"]


@check_number_arguments
def draw_word_map(
    word_vectors: str | Path | KeyedVectors,
    words: Sequence[str] = (),
    *,
    out: str | Path,
    file: str | Path | None = None,
    method: ProjectionMethod = "pca",
    seed: int = 0,
    limit: int | None = None,
    terminal: OutputStream | None = sys.stderr,
) -> tuple[str, ...]:
    """Draw words in two dimensions as an SVG file; returns the words that are drawn.

    Vectors are taken at length 1, as cosines do.

    Args:
        word_vectors: word vectors, or their file.
        words: those to draw.
        out: the file to write (.svg).
        file: a file with more of them, one a line; those that are not known are left out, and said.
            Without words and file, the first 100 words are drawn.
        method: "pca", which keeps directions, or "tsne", which keeps neighbors.
        seed: of t-SNE.
        limit: only the first `limit` words of the space are read.
        terminal: where it says what was left out. None: nowhere.

    Raises:
        FileNotFoundError: a file or folder is missing.
        ValueError: a word is not known, or there are too few or too many words.
    """
    if method not in get_args(ProjectionMethod):
        raise ValueError(
            f"method must be one of {list(get_args(ProjectionMethod))}, got {method!r}"
        )
    if not 0 <= seed < 2**32:
        raise ValueError(f"seed must be from 0 to 2^32 - 1, got {seed}")
    if not Path(out).parent.is_dir():
        raise FileNotFoundError(f"{out}: there is no folder {Path(out).parent}")
    if Path(out).exists() and not Path(out).is_file():  # renaming would put a file in its place
        raise ValueError(f"{out}: is a folder or a device; name a file")
    if Path(out).suffix.lower() != ".svg":
        raise ValueError(f"{out}: pictures are drawn as SVG; name a file that ends in .svg")
    listed = [] if file is None else _read_words(Path(file))
    word_vectors = load_word_vectors(word_vectors, limit=limit)
    for word in words:
        word_vectors.row(word)
    unknown = [word for word in listed if word not in word_vectors]
    chosen = [*words, *(word for word in listed if word in word_vectors)]
    shown = (
        tuple(dict.fromkeys(chosen)) if words or listed else word_vectors.words[:N_DEFAULT_WORDS]
    )
    if unknown and terminal is not None:
        more = ", ..." if len(unknown) > 5 else ""
        print_line(
            f"{file}: {len(unknown):,} of {len(listed):,} words are not known: "
            f"{', '.join(unknown[:5])}{more}",
            terminal,
        )
    if not 3 <= len(shown) <= MAX_WORDS:
        raise ValueError(f"a picture shows 3 to {MAX_WORDS:,} words, got {len(shown):,}")
    vectors = np.stack([word_vectors.vectors[word_vectors.row(word)] for word in shown])
    points, says = _project(vectors, method, seed)
    write_atomically(Path(out), render_word_map(shown, points, says))
    return shown


def render_word_map(words: Sequence[str], points: MapPoints, caption: str) -> str:
    """Draw words at points, as an SVG document with as much room as so many words need."""
    width = float(min(max(720, round(100 * math.sqrt(len(words)))), 4000))
    height = float(round(0.75 * width))
    places = _scale_to_page(points, width, height)
    labels = _place_labels(words, places, width, height)
    lines = [
        tag(
            "path",
            d=f"M{x:.1f} {y:.1f}L{_nearest_point(label, x, y)}",
            stroke=_LEADER_COLOR,
            stroke_width=0.7,
        )
        for label, (x, y) in zip(labels, places, strict=True)
        if label.has_leader
    ]
    dots = [
        tag("circle", cx=f"{x:.1f}", cy=f"{y:.1f}", r=_DOT_RADIUS, fill=_DOT_COLOR)
        for x, y in places
    ]
    names = [_draw_word(label, x) for label, (x, _) in zip(labels, places, strict=True)]
    return tag(
        "svg",
        tag("title", f"{len(words)} words: {caption}"),
        tag("rect", width=f"{width:g}", height=f"{height:g}", fill=_BACKGROUND_COLOR),
        *lines,
        *dots,
        *names,
        tag("text", caption, x=12, y=f"{height - 12:g}", fill=_CAPTION_COLOR)
        if caption
        else EMPTY_HTML,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {width:g} {height:g}",
        font_family="system-ui, sans-serif",
        font_size=_FONT_SIZE,
        fill=_TEXT_COLOR,
    ).source


@dataclass(frozen=True)
class _WordLabel:
    """A word in its box; `has_leader` by a line to its dot where the dot is not beside it."""

    word: str
    left: float
    top: float
    width: float
    has_leader: bool


def _read_words(path: Path) -> list[str]:
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file")
    found = [line.strip() for _, line, _ in read_lines(path, 2**16) if not is_blank(line)]
    if not found:
        raise ValueError(f"{path}: no word in it")
    return found


def _project(
    vectors: Float[np.ndarray, "n d"], method: ProjectionMethod, seed: int
) -> tuple[MapPoints, str]:
    """Return two dimensions, and what they are."""
    wide = vectors.astype(np.float64)
    wide /= np.maximum(np.abs(wide).max(1, keepdims=True), 1e-300)
    wide /= np.maximum(np.linalg.norm(wide, axis=1, keepdims=True), 1e-300)
    centered = wide - wide.mean(0)
    points, share = _principal_components(centered)
    if method == "tsne":
        made = _tsne(centered, points, seed)
        return made, "t-SNE of vectors of length 1: near words are neighbors, far ones say little"
    says = f"two principal components of vectors of length 1: {share:.0f} % of the variance"
    return points, says


def _principal_components(vectors: Float[np.ndarray, "n d"]) -> tuple[MapPoints, float]:
    """Return principal components, and the share of the variance in percent."""
    left, sizes, _ = np.linalg.svd(vectors, full_matrices=False)
    sizes = np.append(sizes, 0.0)[:2]  # vectors may have one number
    points = np.zeros((len(vectors), 2))
    found = left[:, :2] * sizes[: left[:, :2].shape[1]]
    found *= np.where(found[np.abs(found).argmax(0), np.arange(found.shape[1])] < 0, -1, 1)
    points[:, : found.shape[1]] = found
    whole = float((vectors**2).sum())
    share = 100 * float((sizes**2).sum()) / whole if whole else 0.0
    return points, share


def _tsne(vectors: Float[np.ndarray, "n d"], initial_points: MapPoints, seed: int) -> MapPoints:
    from sklearn import manifold

    made = cast("Any", manifold).TSNE(
        perplexity=min(30.0, (len(vectors) - 1) / 3),
        init=(initial_points / max(float(initial_points[:, 0].std()), 1e-300) * 1e-4).astype(
            np.float32
        ),
        random_state=seed,
    )
    return np.asarray(made.fit_transform(vectors), dtype=np.float64)


def _scale_to_page(points: MapPoints, width: float, height: float) -> MapPoints:
    """Fit points into a page with the same scale both ways; y goes up."""
    low, high = points.min(0), points.max(0)
    room = np.array([width, height]) - 2 * _MARGIN
    extent = np.maximum(high - low, 1e-12)
    scale = float((room / extent).min()) if (high > low).any() else 0.0
    middle = (points - (low + high) / 2) * scale * np.array([1, -1])
    return middle + np.array([width, height]) / 2


def _place_labels(
    words: Sequence[str], places: MapPoints, width: float, height: float
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
    """Estimate how wide a word is drawn, in pixels."""
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
    """Write a word from the side where its dot is: fonts differ in how wide they are."""
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
