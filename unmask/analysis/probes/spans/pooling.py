"""Vectors of spans: self-attentive pooling over the tokens of each.

Tenney et al. 2019, arXiv:1905.06316, appendix C.
"""

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn


@dataclass(frozen=True, eq=False)
class SpanTokens:
    """The tokens of one span of each row, one row's after another's."""

    tokens: Float[Tensor, "l t d"]
    """Of one layer (l = 1), or of the layers that a scalar mix weighs."""
    lengths: Int[Tensor, "n"]
    """Tokens of each row, at least one."""

    @cached_property
    def row_of_token(self) -> Int[Tensor, "t"]:
        """Row of each token."""
        return torch.arange(len(self.lengths)).repeat_interleave(self.lengths)

    def select(self, rows: Int[Tensor, "m"]) -> "SpanTokens":
        """Return some of the rows."""
        starts = (self.lengths.cumsum(0) - self.lengths)[rows]
        lengths = self.lengths[rows]
        return SpanTokens(self.tokens[:, ranges(starts, lengths)], lengths)


def ranges(starts: Int[Tensor, "n"], lengths: Int[Tensor, "n"]) -> Int[Tensor, "t"]:
    """Return start, start + 1, ... of each row, one row after another.

    Example:
        >>> ranges(torch.tensor([5, 1]), torch.tensor([2, 3])).tolist()
        [5, 6, 1, 2, 3]
    """
    before = lengths.cumsum(0) - lengths
    return torch.arange(int(lengths.sum())) + (starts - before).repeat_interleave(lengths)


@dataclass(frozen=True, eq=False)
class SpanFeatures:
    """What a probe of spans reads; indexed as a tensor of layers, rows and numbers."""

    spans: tuple[SpanTokens, ...]
    """Of each row: its span, or both of its spans."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """Layers, rows and width of a token's vector."""
        n_layers, _, width = self.spans[0].tokens.shape
        return n_layers, len(self.spans[0].lengths), width

    def __len__(self) -> int:
        return len(self.spans[0].tokens)

    def __getitem__(self, key: tuple[slice, slice | Tensor]) -> "SpanFeatures":
        """Return some of the layers, and of the rows."""
        layers, rows = key
        chosen = torch.arange(self.shape[1])[rows]
        return SpanFeatures(
            tuple(SpanTokens(one.tokens[layers], one.lengths).select(chosen) for one in self.spans)
        )


RowFeatures = Float[Tensor, "l n d"] | SpanFeatures
"""Features of the rows that a probe labels: a vector in each layer, or the tokens of spans."""


class SpanPooling(nn.Module):
    """r = Σ_i a_i e_i of the tokens i of a span, where e = A h + b and a = softmax(W e)."""

    def __init__(self, width: int, projection_size: int) -> None:
        super().__init__()
        self.projection = nn.Linear(width, projection_size)
        self.attention = nn.Linear(projection_size, 1, bias=False)

    def forward(
        self, vectors: Float[Tensor, "t d"], row_of_token: Int[Tensor, "t"], n: int
    ) -> Float[Tensor, "n p"]:
        """Return the vector of each of n rows."""
        # As the weights of a row sum to 1, the projection of the sum is the sum of projections,
        # and W b, equal for all tokens, changes no weight: n rows are projected, not t tokens.
        query = self.attention.weight @ self.projection.weight
        scores = (vectors @ query.mT)[:, 0]
        highest = torch.full((n,), -torch.inf, dtype=scores.dtype)
        highest = highest.scatter_reduce(0, row_of_token, scores.detach(), "amax")
        shares = (scores - highest[row_of_token]).exp()
        sums = torch.zeros(n, dtype=scores.dtype).index_add(0, row_of_token, shares)
        weights = shares / sums[row_of_token]
        pooled = torch.zeros(n, vectors.shape[1], dtype=vectors.dtype).index_add(
            0, row_of_token, weights[:, None] * vectors
        )
        return self.projection(pooled)
