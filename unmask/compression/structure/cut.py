"""Cut: the rows and columns of a sublayer's weights that belong to heads or columns that stay."""

from collections.abc import Mapping, Sequence

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
    for name in [name for name in weights if name.startswith(prefix)]:
        if (found := _heads_dimension(name.removeprefix(prefix))) is not None:
            dimension, of_keys, per_head = found
            kept = key_value_heads if of_keys else heads
            index = _spread(kept, d_head if per_head else 1)
            weights[name] = weights[name].index_select(dimension, index)


def zero_heads(
    weights: Mapping[str, Tensor], prefix: str, groups: Sequence[int], n_groups: int
) -> None:
    """Set the matrices of some groups of heads of an attention sublayer to zero, in place.

    Args:
        weights: of a model, by name.
        prefix: of the sublayer's names.
        groups: the groups, of heads that share keys and values.
        n_groups: groups of the sublayer; keys and values that all heads share stay.
    """
    for name in [name for name in weights if name.startswith(prefix)]:
        found, weight = _heads_dimension(name.removeprefix(prefix)), weights[name]
        if found is None or weight.ndim != 2 or weight.shape[found[0]] % n_groups:
            continue
        dimension, of_keys, per_head = found
        if per_head and not (of_keys and weight.shape[0] < n_groups):
            size = weight.shape[dimension] // n_groups
            weight.index_fill_(dimension, _spread(groups, size).to(weight.device), 0.0)


def expand_heads(
    weights: dict[str, Tensor],
    prefix: str,
    heads: tuple[Sequence[int], int],
    key_value_heads: tuple[Sequence[int], int],
    d_head: int,
) -> None:
    """Undo `cut_heads` with zeros for what was removed, in place; no map is in two factors.

    Args:
        weights: of a model, by name.
        prefix: of the sublayer's names.
        heads: query heads that are there, and how many there shall be.
        key_value_heads: the same of key and value heads.
        d_head: size of a head.
    """
    for name in [name for name in weights if name.startswith(prefix)]:
        if (found := _heads_dimension(name.removeprefix(prefix))) is not None:
            dimension, of_keys, per_head = found
            kept, n = key_value_heads if of_keys else heads
            size = d_head if per_head else 1
            weights[name] = _with_zeros(weights[name], dimension, _spread(kept, size), n * size)


def cut_columns(weights: dict[str, Tensor], prefix: str, kept: Sequence[int]) -> None:
    """Keep some columns in all weights of a feed-forward sublayer, in place."""
    for name in [name for name in weights if name.startswith(prefix)]:
        if (dimension := _columns_dimension(name.removeprefix(prefix))) is not None:
            weights[name] = weights[name].index_select(dimension, torch.tensor(list(kept)))


def expand_columns(weights: dict[str, Tensor], prefix: str, n: int) -> None:
    """Add columns of zeros up to n to all weights of a feed-forward sublayer, in place."""
    for name in [name for name in weights if name.startswith(prefix)]:
        if (dimension := _columns_dimension(name.removeprefix(prefix))) is not None:
            x = weights[name]
            weights[name] = _with_zeros(x, dimension, torch.arange(x.shape[dimension]), n)


def _heads_dimension(tail: str) -> tuple[int, bool, bool] | None:
    """Return which dimension of a parameter of attention is that of its heads; None: it has none.

    And whether they are those of keys and values, and whether each has d_head numbers.
    """
    if tail in _HEAD_VECTORS:
        return _HEAD_VECTORS[tail], False, False
    part, factor, parameter = _split(tail)
    if part in _HEAD_ROWS | _KEY_VALUE_ROWS and factor != "narrow":
        return 0, part in _KEY_VALUE_ROWS, True
    if part == "o" and parameter == "weight" and factor != "widen":
        return 1, False, True
    return None


def _columns_dimension(tail: str) -> int | None:
    """Return which dimension of a parameter of a feed-forward layer is that of its columns."""
    part, factor, parameter = _split(tail)
    if part in ("up", "gate") and factor != "narrow":
        return 0
    return 1 if part == "down" and parameter == "weight" and factor != "widen" else None


def _split(tail: str) -> tuple[str, str, str]:
    """Return the map of a parameter's name, its factor if it is in two, and the parameter."""
    part, _, parameter = tail.rpartition(".")
    whole, _, factor = part.rpartition(".")
    if factor in ("narrow", "widen"):
        return whole, factor, parameter
    return part, "", parameter


def _spread(heads: Sequence[int], d_head: int) -> Tensor:
    """Return the rows of some heads."""
    return (torch.tensor(list(heads))[:, None] * d_head + torch.arange(d_head)).flatten()


def _with_zeros(x: Tensor, dimension: int, index: Tensor, size: int) -> Tensor:
    """Return x with zeros at all other indices of a dimension."""
    shape = list(x.shape)
    shape[dimension] = size
    return torch.zeros(shape, dtype=x.dtype).index_copy(dimension, index, x.detach())
