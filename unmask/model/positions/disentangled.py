"""DeBERTa's disentangled attention: scores of content and of relative positions."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from unmask.batch import Batch
from unmask.model.layers.feed_forward import AttentionDimensions, Dropout, Norm
from unmask.model.positions.learned import LearnedPositions, LearnedPositionsModule
from unmask.model.positions.module import (
    AttentionProjections,
    PositionLayer,
    PositionModule,
    PositionSpec,
)
from unmask.model.positions.relative_bias import logarithmic_buckets

DisentangledTerm = Literal["content_to_position", "position_to_content"]


@dataclass(frozen=True)
class DisentangledAttention(PositionSpec):
    """Content and position have separate vectors (DeBERTa).

    He et al. 2021, arXiv:2006.03654, section 3.1: the content-to-content score is extended by a
    content-to-position term (the query's content with the embedding of its distance to the key) and
    a position-to-content term (that distance with the key's content). The sum is also divided by
    the square root of the number of all terms.

    Deviates: position to content uses the row of the distance query - key, like content to
    position; equation 4 has key - query. The released code and weights deviate in the same way.
    """

    max_distance: int = 512
    """k of equation 3: larger distances share a row."""
    max_positions: int = 512
    """Maximum text length in pretraining; distances have no limit."""
    terms: tuple[DisentangledTerm, ...] = ("content_to_position", "position_to_content")
    n_buckets: int | None = None
    """Rows on either side. The first half have one distance each, the others cover logarithmic
    ranges up to `max_distance` (second version, released code, `make_log_bucket_position`). None:
    `max_distance`, one row for each distance."""
    share_projections: bool = False
    """Whether distances share the projections of contents (section 5.3)."""
    distance_norm: bool | Norm = False
    """Norm of the distance embeddings: the architecture's (second version, released code), or this
    one."""
    symmetric: bool = False
    """Whether both sides have equally many distances, in 2 n - 1 rows, n = `n_buckets_per_side`
    (LTG-BERT, released code). If not, there is one more row, for distances of -n and below."""
    absolute_positions: bool = False
    """Whether position embeddings are also added to token embeddings, as in BERT."""

    in_scores: ClassVar[bool] = True
    adds_bias: ClassVar[bool] = True

    def __post_init__(self) -> None:
        allowed = ("content_to_position", "position_to_content")
        if not self.terms or len({*self.terms}) < len(self.terms):
            raise ValueError(f"terms must be one or both of {allowed}, got {self.terms}")
        if self.n_buckets is not None and not 4 <= self.n_buckets < 2 * self.max_distance - 2:
            raise ValueError(
                f"n_buckets must be at least 4 and below {2 * self.max_distance - 2} "
                f"(2 * max_distance - 2), got {self.n_buckets}"
            )

    @property
    def n_buckets_per_side(self) -> int:
        """Rows of the table on either side of distance 0."""
        return self.n_buckets or self.max_distance

    def n_rows_used(self, length: int) -> int:
        """Return the maximum number of rows that texts of a length use."""
        exact = self.n_buckets is None or length <= self.n_buckets // 2
        return min(self.n_buckets_per_side, length) if exact else self.n_buckets_per_side

    def flops(self, dimensions: AttentionDimensions, length: int) -> float:
        """Count the FLOPs of the terms per layer and token: the scores of all distances."""
        return (
            4.0
            * self.n_rows_used(length)
            * dimensions.n_heads
            * dimensions.d_head
            * len(self.terms)
        )

    def build(self, dimensions: AttentionDimensions) -> PositionModule:
        """Build the table [2 * n_buckets_per_side (- 1) d]."""
        return DisentangledAttentionModule(self, dimensions)


class DisentangledPositionState(NamedTuple):
    """The state that the layers of a disentangled scheme share."""

    distance_embeddings: Float[Tensor, "n d"]
    """The embeddings of the distances that occur in the text."""
    distance_index: Int[Tensor, "t s"]
    """The row of the distance query - key."""


class DisentangledAttentionModule(PositionModule):
    """Looks up the distance embedding of each pair of positions."""

    needs_all_keys = True

    def __init__(self, scheme: DisentangledAttention, dimensions: AttentionDimensions) -> None:
        super().__init__()
        self.scheme, self.sizes = scheme, dimensions
        self.table = nn.Embedding(
            2 * scheme.n_buckets_per_side - scheme.symmetric, dimensions.d_model
        )
        norm = dimensions.norm if isinstance(scheme.distance_norm, bool) else scheme.distance_norm
        self.norm = norm.build(dimensions.d_model) if scheme.distance_norm else nn.Identity()
        learned = LearnedPositions(scheme.max_positions)
        self.absolute = (
            LearnedPositionsModule(learned, dimensions) if scheme.absolute_positions else None
        )

    def embed(self, position_ids: Int[Tensor, "b t"]) -> Tensor | None:
        """Look up the absolute position embeddings, if there are any."""
        return None if self.absolute is None else self.absolute.embed(position_ids)

    def bucket(self, distance: Int[Tensor, "n"]) -> Int[Tensor, "n"]:
        """Return the bucket of each distance: itself, up to half of the buckets."""
        buckets = self.scheme.n_buckets
        if buckets is None:
            return distance
        return logarithmic_buckets(
            distance, buckets // 2, buckets // 2 - 1, self.scheme.max_distance
        )

    def position_state(
        self, x: Float[Tensor, "b t d"], n_keys: int, batch: Batch | None = None
    ) -> DisentangledPositionState:
        """Return the distance embeddings, and the index of each pair's.

        Columns of the row serve as positions, since distances within packed texts are the same.
        """
        span, table = self.scheme.n_buckets_per_side, self.table.weight
        # in an exported graph the length is a symbol, and all rows are read
        used = span if torch.compiler.is_exporting() else self.scheme.n_rows_used(n_keys)
        zero, first = span - self.scheme.symmetric, span - used  # the rows of distances 0, 1 - used
        away = torch.arange(1 - n_keys, n_keys, device=x.device)
        row = (self.bucket(away) + zero).clamp(0, len(table) - 1) - first
        column = torch.arange(n_keys, device=x.device)
        pairs = column[n_keys - x.shape[1] :, None] - column[None, :] + n_keys - 1
        return DisentangledPositionState(self.norm(table[first : zero + used]), row[pairs])

    def for_layer(self, i: int, heads: Sequence[int] | None = None) -> PositionLayer:
        """Return the layer that scores contents with distances."""
        n_heads = self.sizes.n_heads if heads is None else len(heads)
        return DisentangledAttentionLayer(self.scheme, self.sizes, n_heads)


class DisentangledAttentionLayer(PositionLayer):
    """The scores of contents with distances.

    There are far fewer distances than pairs of positions, so each content is scored once with each
    distance, and the scores of pairs are looked up.
    """

    def __init__(
        self, scheme: DisentangledAttention, dimensions: AttentionDimensions, n_heads: int
    ) -> None:
        super().__init__()
        self.terms, width = scheme.terms, n_heads * dimensions.d_head
        own = () if scheme.share_projections else scheme.terms
        self.k = self.q = None
        if "content_to_position" in own:
            self.k = nn.Linear(dimensions.d_model, width, bias=False)
        if "position_to_content" in own:
            self.q = nn.Linear(dimensions.d_model, width)
        self.dropout = Dropout(dimensions.dropout)

    @property
    def score_scale(self) -> float:
        """The factor of each term, and of the score of two contents."""
        return (1 + len(self.terms)) ** -0.5

    def query(
        self, q: Float[Tensor, "b h t e"], position_state: DisentangledPositionState
    ) -> Tensor:
        """Return q times `score_scale`."""
        return q * self.score_scale

    def bias(
        self,
        q: Float[Tensor, "b h t e"],
        k: Float[Tensor, "b h s e"],
        position_state: DisentangledPositionState,
        attention: AttentionProjections,
    ) -> Tensor:
        """Return the scores of both terms [b h t s]."""
        table = self.dropout(position_state.distance_embeddings)[None]
        scores: list[Tensor] = []
        if "content_to_position" in self.terms:
            key = attention.split_heads(
                (attention.project_keys if self.k is None else self.k)(table)
            )  # [1 h n e]
            scores.append(_gather_distances(q @ key.mT, position_state.distance_index))
        if "position_to_content" in self.terms:
            query = (
                attention.split_heads(
                    (attention.project_queries if self.q is None else self.q)(table)
                )
                * self.score_scale
            )
            scores.append(_gather_distances(k @ query.mT, position_state.distance_index.mT).mT)
        return sum(scores[1:], scores[0]) * attention.scale


def _gather_distances(
    scores: Float[Tensor, "b h t n"], distance_index: Int[Tensor, "t s"]
) -> Float[Tensor, "b h t s"]:
    """Gather the score of each pair from the scores with all distances."""
    return scores.gather(-1, distance_index.expand(*scores.shape[:2], *distance_index.shape))
