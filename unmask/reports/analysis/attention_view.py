"""The attention view: for a text, what each word attends to, by layer and head."""

import base64
import json
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from unmask.analysis.attention.findings import AttentionView, NetworkAttention
from unmask.reports.analysis.attention_tables import NETWORK_TITLES
from unmask.reports.markup import EMPTY_HTML, Html, section, tag

DENSE_WORDS = 96
"""Up to this many words, all weights of a map are on the page."""
KEPT_WEIGHTS = 24
"""Largest weights of each row that are on the page, of longer texts."""
_LEVELS = 255
"""A weight is a byte: its steps are 0.4 percent."""


def draw_attention_view(networks: Sequence[NetworkAttention]) -> Html:
    """Draw the maps of all texts of all networks; the script of the page shows one at a time."""
    if not any(network.views for network in networks):
        return EMPTY_HTML
    data = [
        {
            "network": NETWORK_TITLES[network.name],
            "heads": [str(one.head) for one in network.statistics],
            "texts": [_encode_view(view) for view in network.views],
        }
        for network in networks
    ]
    # no text can end the element: < is written as an escape of JSON
    source = json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    return section(
        "view",
        "Attention view",
        "Word by word: attention to a word is the sum over its tokens, from a word the mean. Point "
        "at a word, tap it, or move with the arrow keys.",
        tag(
            "noscript",
            tag("p", "The view of single texts needs this page's own script.", class_="remark"),
        ),
        tag(
            "div",
            tag("div", class_="choices"),
            tag("div", class_="heads", role="group", aria_label="Heads"),
            tag("p", class_="remark says", aria_live="polite"),
            tag("p", class_="words", tabindex=0, role="group", aria_label="Words of the text"),
            tag("canvas", class_="map", role="img", aria_label="Map of the head"),
            tag("p", class_="remark corner"),
            class_="attention-view",
            hidden=True,
        ),
        tag("script", Html(source), type="application/json", id="attention-data"),
    )


def _encode_view(view: AttentionView) -> dict[str, object]:
    """Return a text and its maps: bytes, for each head and row, of weights and of columns."""
    kept = 0 if len(view.labels) <= DENSE_WORDS else KEPT_WEIGHTS
    return {
        "labels": view.labels,
        "special": [int(x) for x in view.is_special],
        "kept": kept,
        "maps": base64.b64encode(encode_maps(view.maps, kept)).decode(),
    }


def encode_maps(maps: Float[np.ndarray, "k g g"], kept: int) -> bytes:
    """Return weights as bytes, row by row.

    Args:
        maps: weights of each head.
        kept: number of largest weights of each row, with the columns after all weights, two bytes
            each, the lower first. 0: all weights, without columns.
    """
    levels = np.rint(np.clip(maps, 0, 1) * _LEVELS).astype(np.uint8)
    if not kept:
        return levels.tobytes()
    columns = np.argsort(-maps, axis=-1, kind="stable")[:, :, :kept]
    weights = np.take_along_axis(levels, columns, -1)
    return weights.tobytes() + columns.astype("<u2").tobytes()
