"""Biases of attention scores by distance, alone or with learned position embeddings."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from unmask.batch import Batch
from unmask.model.layers.feed_forward import AttentionDimensions
from unmask.model.positions.learned import LearnedPositions, LearnedPositionsModule
from unmask.model.positions.module import (
    PositionLayer,
    PositionModule,
    PositionSpec,
    SelectedHeads,
)


@dataclass(frozen=True)
class RelativePositionBias(PositionSpec):
    """A bias of the scores for each head and bucket of distances.

    Raffel et al. 2020, section 2.1.
    """

    n_buckets: int = 32
    max_distance: int = 128
    """Distance from which on all distances share the last bucket."""
    causal: bool = False

    in_scores: ClassVar[bool] = True
    adds_bias: ClassVar[bool] = True
    has_head_biases: ClassVar[bool] = True

    def __post_init__(self) -> None:
        # Half of the buckets of a direction are exact: at least one, and all below max_distance.
        directions = 1 if self.causal else 2
        exact = self.n_buckets // (2 * directions)
        if not 0 < exact < self.max_distance:
            raise ValueError(
                f"n_buckets must be at least {2 * directions}, and max_distance above "
                f"n_buckets // {2 * directions}, got {self.n_buckets} and {self.max_distance}"
            )

    def with_causal(self, causal: bool) -> "RelativePositionBias":
        """Return the scheme for a causal or a bidirectional stack."""
        return replace(self, causal=causal)

    def build(self, dimensions: AttentionDimensions) -> PositionModule:
        """Build the table [buckets h]."""
        return RelativePositionBiasModule(self, dimensions)


class RelativePositionBiasModule(PositionModule):
    """Looks up the bias of each pair of positions.

    Half of the buckets are exact, the other half logarithmic.
    """

    supports_memory = True
    needs_all_keys = True

    def __init__(self, scheme: RelativePositionBias, dimensions: AttentionDimensions) -> None:
        super().__init__()
        self.scheme = scheme
        self.table = nn.Embedding(scheme.n_buckets, dimensions.n_heads)

    def bucket(self, distance: Int[Tensor, "t s"]) -> Int[Tensor, "t s"]:
        """Return the bucket of each distance key - query.

        `_relative_position_bucket` in Mesh TensorFlow's T5.
        """
        n, first = self.scheme.n_buckets, torch.zeros_like(distance)
        if self.scheme.causal:
            distance = (-distance).clamp(min=0)
        else:
            n //= 2
            first = (distance > 0).long() * n
            distance = distance.abs()
        exact = n // 2
        ratio = torch.log(distance.float().clamp(min=1) / exact) / math.log(
            self.scheme.max_distance / exact
        )
        far = exact + (ratio * (n - exact)).long()
        return first + torch.where(distance < exact, distance, far.clamp(max=n - 1))

    def position_state(
        self, x: Float[Tensor, "b t d"], n_keys: int, batch: Batch | None = None
    ) -> Tensor:
        """Look up [1 h t s]."""
        return _bias_per_head(self.table, self.bucket(_key_distances(x, n_keys)))

    def for_layer(self, i: int, heads: Sequence[int] | None = None) -> PositionLayer:
        """Return the part in layer i, which selects the biases of its heads."""
        return PositionLayer() if heads is None else SelectedHeads(heads)


def _key_distances(x: Float[Tensor, "b t d"], n_keys: int) -> Int[Tensor, "t s"]:
    """Return the distances of `n_keys` columns from the columns x, the last of them."""
    column = torch.arange(n_keys, device=x.device)
    return column[None, :] - column[n_keys - x.shape[1] :, None]


def _bias_per_head(table: nn.Embedding, bucket: Int[Tensor, "t s"]) -> Float[Tensor, "1 h t s"]:
    return table(bucket).permute(2, 0, 1)[None].contiguous()


@dataclass(frozen=True)
class LearnedPositionsAndRelativeBias(PositionSpec):
    """Position embeddings, and a bias of the scores for each head and bucket of distances.

    Small distances have one bucket each, up to a quarter of all buckets; the others are logarithmic
    (released code of Meng et al. 2021, `relative_position_bucket`; the boundaries differ from
    T5's).
    """

    max_positions: int = 512
    """Length of the longest text."""
    n_buckets: int = 32
    """Number of buckets, half of them on each side; one is unused (released code)."""
    max_distance: int = 128
    """Approximate distance from which on all distances share the last bucket."""

    in_scores: ClassVar[bool] = True
    adds_bias: ClassVar[bool] = True
    has_head_biases: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.n_buckets < 4 or self.n_buckets % 2:
            raise ValueError(f"n_buckets must be even and at least 4, got {self.n_buckets}")
        if self.max_distance <= self.n_buckets // 4 + 1:
            raise ValueError(
                f"max_distance must be above {self.n_buckets // 4 + 1} (a quarter of n_buckets, "
                f"and 1), got {self.max_distance}"
            )

    def build(self, dimensions: AttentionDimensions) -> PositionModule:
        """Build the tables of positions [max_positions d_embed] and distances [n_buckets h]."""
        return LearnedPositionsAndRelativeBiasModule(self, dimensions)


class LearnedPositionsAndRelativeBiasModule(PositionModule):
    """Looks up the embedding of each position, and the bias of each pair of positions."""

    needs_all_keys = True

    def __init__(
        self, scheme: LearnedPositionsAndRelativeBias, dimensions: AttentionDimensions
    ) -> None:
        super().__init__()
        self.scheme = scheme
        self.absolute = LearnedPositionsModule(LearnedPositions(scheme.max_positions), dimensions)
        self.table = nn.Embedding(scheme.n_buckets, dimensions.n_heads)

    def embed(self, position_ids: Int[Tensor, "b t"]) -> Tensor:
        """Look up the position embeddings [b t d]."""
        return self.absolute.embed(position_ids)

    def bucket(self, distance: Int[Tensor, "t s"]) -> Int[Tensor, "t s"]:
        """Return the bucket of each distance key - query, from 0 for the farthest key before.

        A longer row has several texts, so its larger distances are not visible.
        """
        farthest = distance.new_tensor(self.scheme.max_positions - 1)
        return self._signed_bucket(distance.clamp(-farthest, farthest)) + self._signed_bucket(
            farthest
        )

    def _signed_bucket(self, distance: Int[Tensor, "*n"]) -> Int[Tensor, "*n"]:
        last, exact = self.scheme.n_buckets // 2 - 1, self.scheme.n_buckets // 4
        return logarithmic_buckets(distance, exact, last - exact, self.scheme.max_distance).clamp(
            -last, last
        )

    def position_state(
        self, x: Float[Tensor, "b t d"], n_keys: int, batch: Batch | None = None
    ) -> Tensor:
        """Look up [1 h t s]; columns of the row serve as positions, with the same distances."""
        return _bias_per_head(self.table, self.bucket(_key_distances(x, n_keys)))

    def for_layer(self, i: int, heads: Sequence[int] | None = None) -> PositionLayer:
        """Return the part in layer i, which selects the biases of its heads."""
        return PositionLayer() if heads is None else SelectedHeads(heads)

    def share_embeddings(self, other: "LearnedPositionsAndRelativeBiasModule") -> None:
        """Share the position embeddings; each stack has biases of its own."""
        self.absolute.share_embeddings(other.absolute)


@dataclass(frozen=True)
class LearnedPositionsAndT5Bias(PositionSpec):
    """Position embeddings, and T5's bias of the scores for each head and bucket of distances.

    MPNet's (Song et al. 2020, arXiv:2004.09297, section 3.1 and the released code).
    """

    max_positions: int = 512
    """Length of the longest text."""
    offset: int = 0
    """As in `LearnedPositions`."""
    n_buckets: int = 32
    max_distance: int = 128
    """As in `RelativePositionBias`."""

    in_scores: ClassVar[bool] = True
    adds_bias: ClassVar[bool] = True
    has_head_biases: ClassVar[bool] = True

    def with_padding_id(self, padding_id: int) -> "LearnedPositionsAndT5Bias":
        """Return the scheme for another padding id, if positions are counted from it."""
        return replace(self, offset=padding_id + 1) if self.offset else self

    def build(self, dimensions: AttentionDimensions) -> PositionModule:
        """Build the tables [offset + max_positions d_embed] and [n_buckets h]."""
        return LearnedPositionsAndT5BiasModule(self, dimensions)


class LearnedPositionsAndT5BiasModule(RelativePositionBiasModule):
    """Looks up the embedding of each position, and the bias of each pair of positions."""

    supports_memory = False

    def __init__(self, scheme: LearnedPositionsAndT5Bias, dimensions: AttentionDimensions) -> None:
        super().__init__(RelativePositionBias(scheme.n_buckets, scheme.max_distance), dimensions)
        learned = LearnedPositions(scheme.max_positions, scheme.offset)
        self.absolute = LearnedPositionsModule(learned, dimensions)

    def embed(self, position_ids: Int[Tensor, "b t"]) -> Tensor:
        """Look up the position embeddings [b t d]."""
        return self.absolute.embed(position_ids)

    def share_embeddings(self, other: "LearnedPositionsAndT5BiasModule") -> None:
        """Share the position embeddings; each stack has biases of its own."""
        self.absolute.share_embeddings(other.absolute)


def logarithmic_buckets(
    distance: Int[Tensor, "*n"], n_exact: int, n_logarithmic: int, max_distance: int
) -> Int[Tensor, "*n"]:
    """Return the bucket of each distance: itself up to `n_exact`, then logarithmic ones.

    Bucket `n_exact` + `n_logarithmic` ends at `max_distance` - 1; larger distances have larger
    bucket numbers.
    """
    ratio = torch.log(distance.abs().clamp(min=n_exact) / n_exact)
    # in the tensor's own precision, in which the last ratio must not exceed 1
    max_ratio = torch.log(ratio.new_tensor((max_distance - 1) / n_exact))
    beyond = torch.ceil(ratio / max_ratio * n_logarithmic).long() + n_exact
    return torch.where(distance.abs() <= n_exact, distance, beyond * distance.sign())
