"""The page of captions: scores, and pictures with the attention of each word."""

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float, UInt8

from unmask import __version__
from unmask.evaluation.captions import CaptionEvaluation, DescribedPicture
from unmask.images.drawing import to_png_text
from unmask.reports.analysis.layout import plain_opening
from unmask.reports.markup import html_table, section, tag
from unmask.reports.page import html_page
from unmask.reports.report_data import Picture
from unmask.reports.samples import picture_article

N_SHOWN = 10
"""Pictures of a page: half of them the worst, the rest from all over the order."""
MAX_WORDS = 16
METRIC_NAMES = {
    "bleu1": "BLEU-1", "bleu2": "BLEU-2", "bleu3": "BLEU-3", "bleu4": "BLEU-4", "cider": "CIDEr",
    "cider_d": "CIDEr-D", "meteor": "METEOR", "distinct_captions": "different captions, share",
    "vocabulary": "different words", "mean_length": "words of a caption, mean",
}  # fmt: skip
WordMaps = Sequence[tuple[str, Float[np.ndarray, "rows columns"]]]
"""Words and the attention by which each was predicted."""


def shown_pictures(evaluation: CaptionEvaluation) -> list[DescribedPicture]:
    """Choose the pictures of a page, the worst first: half the worst, the rest evenly spaced."""
    order = sorted(evaluation.pictures, key=lambda one: one.cider_d)
    worst, rest = order[: N_SHOWN // 2], order[N_SHOWN // 2 :]
    n = min(N_SHOWN - len(worst), len(rest))
    spaced = np.unique(np.linspace(0, len(rest) - 1, n).round().astype(int)) if n else []
    return [*worst, *(rest[i] for i in spaced)]


def render_captions_page(
    model: str, evaluation: CaptionEvaluation, attention: Callable[[DescribedPicture], WordMaps]
) -> str:
    """Return the page as one HTML document that loads nothing."""
    rows = [
        [METRIC_NAMES.get(name, name), f"{value:.4g}"] for name, value in evaluation.metrics.items()
    ]
    samples = [_sample(one, attention(one)) for one in shown_pictures(evaluation)]
    n = len(evaluation.pictures)
    return html_page(
        f"Captions of {model}",
        [("scores", "Scores"), ("samples", "Pictures")],
        [
            plain_opening("Captions", model),
            section(
                "scores",
                "Scores",
                f"Captions of {n:,} pictures beside those of people.",
                html_table(["metric", "value"], rows, "Agreement and diversity"),
            ),
            section(
                "samples",
                "Pictures",
                "Those whose captions agree least with people's come first. Brightness is the "
                "attention of the last layer, the mean of its heads, while a word was predicted.",
                tag("div", *map(picture_article, samples), class_="pictures"),
            ),
        ],
        f"{n:,} pictures",
        version=__version__,
    )


def _sample(one: DescribedPicture, words: WordMaps) -> Picture:
    panels = [("picture", to_png_text(one.pixels))]
    panels += [(word, to_png_text(lit(one.pixels, grid))) for word, grid in words[:MAX_WORDS]]
    lines = (
        one.caption,
        f"CIDEr-D {one.cider_d:.3f}",
        *(f"Person: {text}" for text in one.references),
    )
    return Picture(name=one.name, panels=tuple(panels), lines=lines)


def lit(
    pixels: UInt8[np.ndarray, "h w c"], grid: Float[np.ndarray, "rows columns"]
) -> UInt8[np.ndarray, "h w c"]:
    """Darken a picture where there is little attention: a quarter of its light is left at none."""
    height, width, _ = pixels.shape
    rows = np.arange(height) * grid.shape[0] // height
    columns = np.arange(width) * grid.shape[1] // width
    light = grid[rows][:, columns] / max(float(grid.max()), 1e-12)
    return np.rint(pixels * (0.25 + 0.75 * light[:, :, None])).astype(np.uint8)
