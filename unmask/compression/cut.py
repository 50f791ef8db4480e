"""Cut: the rows and columns of a sublayer's weights that belong to heads or columns that stay."""

from collections.abc import Sequence

import torch
from torch import Tensor

_HEAD_ROWS = frozenset({"q", "gate", "wide.q", "wide.k", "wide.v", "place.q", "place.k", "place.r"})
"""Linear maps whose outputs are those of the heads."""
_KEY_VALUE_ROWS = frozenset({"k", "v"})
_HEAD_VECTORS = {"place.u": 0, "place.v": 0, "place.w": 0, "place.segments": 1}
"""Parameters with a dimension of heads, and which it is."""


def cut_heads(
    weights: dict[str, Tensor],
    prefix: str,
    heads: Sequence[int],
    key_value_heads: Sequence[int],
    d_head: int,
) -> None:
    """Keep some heads in all weights of an attention sublayer, in place.

    Args:
        weights: of a model, by name.
        prefix: of the sublayer's names.
        heads: query heads that stay.
        key_value_heads: key and value heads that stay.
        d_head: size of a head.
    """
    rows, shared_rows = (_spread(x, d_head) for x in (heads, key_value_heads))
    for name in [name for name in weights if name.startswith(prefix)]:
        tail = name.removeprefix(prefix)
        if tail in _HEAD_VECTORS:
            index = torch.tensor(list(heads))
            weights[name] = weights[name].index_select(_HEAD_VECTORS[tail], index)
            continue
        part, _, parameter = tail.rpartition(".")
        part, factor = part.removesuffix(".narrow").removesuffix(".widen"), part.rpartition(".")[2]
        if part in _HEAD_ROWS and factor != "narrow":
            weights[name] = weights[name][rows]
        elif part in _KEY_VALUE_ROWS and factor != "narrow":
            weights[name] = weights[name][shared_rows]
        elif part == "o" and parameter == "weight" and factor != "widen":
            weights[name] = weights[name][:, rows]


def cut_columns(weights: dict[str, Tensor], prefix: str, kept: Sequence[int]) -> None:
    """Keep some columns in all weights of a feed-forward sublayer, in place."""
    index = torch.tensor(list(kept))
    for name in [name for name in weights if name.startswith(prefix)]:
        part, _, parameter = name.removeprefix(prefix).rpartition(".")
        part, factor = part.removesuffix(".narrow").removesuffix(".widen"), part.rpartition(".")[2]
        if part in ("up", "gate") and factor != "narrow":
            weights[name] = weights[name][index]
        elif part == "down" and parameter == "weight" and factor != "widen":
            weights[name] = weights[name][:, index]


def _spread(heads: Sequence[int], d_head: int) -> Tensor:
    """Return the rows of some heads."""
    return (torch.tensor(list(heads))[:, None] * d_head + torch.arange(d_head)).flatten()
