"""Transformer-XL's relative positions, which extend over a memory."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from unmask.batch import Batch
from unmask.model.layers.feed_forward import AttentionDimensions, Dropout
from unmask.model.positions.module import (
    AttentionProjections,
    PositionLayer,
    PositionModule,
    PositionSpec,
)
from unmask.objectives.features import Recurrence


@dataclass(frozen=True)
class TransformerXLPositions(PositionSpec):
    """Relative positions of Transformer-XL, with separate biases for content and distance.

    Dai et al. 2019, arXiv:1901.02860, section 3.3: the score of a query q with a key k at a
    distance is (q + u) k + (q + v) W r, where r are sinusoids of the distance, u and v vectors of
    each head.
    """

    clamp_length: int | None = None
    """Larger distances are clamped to this one (released code, `clamp_len`). None: no clamping."""
    relative_segments: bool = False
    """Relative segment encodings: to each score is added that of the query with one of two vectors,
    for keys of the same segment and of another (Yang et al. 2019, arXiv:1906.08237, section
    2.5)."""
    max_positions: int = 512
    """Maximum text length in pretraining; distances have no limit."""

    in_scores: ClassVar[bool] = True
    adds_bias: ClassVar[bool] = True

    def flops(self, dimensions: AttentionDimensions, length: int) -> float:
        """Count the FLOPs of distances per layer and token: the scores of all of them."""
        return 2.0 * length * dimensions.n_heads * dimensions.d_head

    @property
    def has_relative_segments(self) -> bool:
        """Whether scores depend on whether two tokens have the same segment."""
        return self.relative_segments

    def build(self, dimensions: AttentionDimensions) -> PositionModule:
        """Build the module that computes the sinusoids; the weights are in the layers."""
        return TransformerXLPositionsModule(self, dimensions)


class TransformerXLPositionState(NamedTuple):
    """Sinusoids of all distances, largest first, and which pairs have different segments."""

    sinusoids: Float[Tensor, "way n d"]
    """Sinusoids for forward rows and, if there are any, for reversed rows."""
    backward: Bool[Tensor, "b"] | None
    other_segment: Bool[Tensor, "b t s"] | None


class TransformerXLPositionsModule(PositionModule):
    """Computes the sinusoids of distances."""

    supports_memory = True
    needs_all_keys = True

    def __init__(self, scheme: TransformerXLPositions, dimensions: AttentionDimensions) -> None:
        super().__init__()
        self.scheme, self.sizes = scheme, dimensions
        self.dropout = Dropout(dimensions.dropout)

    def position_state(
        self, x: Float[Tensor, "b t d"], n_keys: int, batch: Batch | None = None
    ) -> TransformerXLPositionState:
        """Return sinusoids [way n d] of the distances from the first key to the last query.

        Sines first, then cosines, as in the released code; n = keys, or keys + t - 1 where keys may
        follow their query. Dropout applies to them, too (released code).
        """
        t, width = x.shape[1], self.sizes.d_model
        causal = batch is not None and batch.visibility.causal
        away = torch.arange(n_keys - 1, -1 if causal else -t, -1, device=x.device).float()
        if self.scheme.clamp_length is not None:
            away = away.clamp(-self.scheme.clamp_length, self.scheme.clamp_length)
        speed = 10_000.0 ** -(torch.arange(0, width, 2, device=x.device).float() / width)
        angle = away[:, None] * speed
        recurrence = None if batch is None else batch.feature(Recurrence)
        sines, backward = [angle.sin()], None if recurrence is None else recurrence.reversed_rows
        if backward is not None:
            sines.append(-sines[0])
        table = torch.stack([torch.cat((sine, angle.cos()), -1) for sine in sines]).to(x.dtype)
        other_segment = None
        if self.scheme.relative_segments and batch is not None and batch.segments is not None:
            behind = nn.functional.pad(batch.segments, (n_keys - t, 0))  # segment 0, in the memory
            other_segment = behind[:, n_keys - t :, None] != behind[:, None, :]
        return TransformerXLPositionState(self.dropout(table), backward, other_segment)

    def for_layer(self, i: int, heads: Sequence[int] | None = None) -> PositionLayer:
        """Return the layer that scores queries with distances."""
        n_heads = self.sizes.n_heads if heads is None else len(heads)
        return TransformerXLPositionsLayer(self.scheme, self.sizes, n_heads)


class TransformerXLPositionsLayer(PositionLayer):
    """The biases of content and distance, and the projection of distances."""

    def __init__(
        self, scheme: TransformerXLPositions, dimensions: AttentionDimensions, n_heads: int
    ) -> None:
        super().__init__()
        h, e = n_heads, dimensions.d_head
        self.r = nn.Linear(dimensions.d_model, h * e, bias=False)
        self.u, self.v = (nn.Parameter(torch.empty(h, e)) for _ in range(2))
        self.w = nn.Parameter(torch.empty(h, e)) if scheme.relative_segments else None
        self.segments = nn.Parameter(torch.empty(2, h, e)) if scheme.relative_segments else None
        """Vectors for keys of the same segment, and of another."""

    def initialize_parameters(self) -> None:
        """Fill the vectors from N(0, 0.02) (released code, `init_std`)."""
        for own in (self.u, self.v, self.w, self.segments):
            if own is not None:
                nn.init.normal_(own, std=0.02)

    def query(
        self, q: Float[Tensor, "b h t e"], position_state: TransformerXLPositionState
    ) -> Tensor:
        """Return queries with the content bias."""
        return q + self.u[:, None]

    def bias(
        self,
        q: Float[Tensor, "b h t e"],
        k: Float[Tensor, "b g s e"],
        position_state: TransformerXLPositionState,
        attention: AttentionProjections,
    ) -> Tensor:
        """Return the scores with distances, and with segments [b h t s]."""
        keys, r = k.shape[2], attention.split_heads(self.r(position_state.sinusoids))  # [way h n e]
        if position_state.backward is not None:
            r = r[position_state.backward.long()]
        bias = relative_shift((q + (self.v - self.u)[:, None]) @ r.mT, keys)
        if (
            position_state.other_segment is not None
            and self.segments is not None
            and self.w is not None
        ):
            scores = (q + (self.w - self.u)[:, None]) @ self.segments.movedim(0, -1)  # [b h t 2]
            same_score, other_score = scores.split(1, -1)
            bias = bias + torch.where(
                position_state.other_segment[:, None], other_score, same_score
            )
        return bias * attention.scale


def relative_shift(scores: Float[Tensor, "b h t n"], n_keys: int) -> Float[Tensor, "b h t s"]:
    """Select each pair's score from those with all distances, largest first, without a lookup.

    Query i, the last but t - 1 - i of the keys, has its score with key j in column t - 1 - i + j.
    Reshaped to rows that are one shorter, those columns are aligned (Dai et al. 2019, appendix B).
    Pairs whose distance is missing get some other score; they must be masked.
    """
    t, n = scores.shape[2:]  # [b h t n]
    if n == n_keys:  # the last query's last column would be beyond the end of a row
        scores, n = nn.functional.pad(scores, (1, 0)), n + 1
        return scores.flatten(2)[..., t : t + t * n_keys].unflatten(2, (t, n_keys))
    return scores.flatten(2)[..., t - 1 : t - 1 + t * (n - 1)].unflatten(2, (t, n - 1))[
        ..., :n_keys
    ]
