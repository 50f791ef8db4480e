"""The modules of position schemes: one for the stack, and a part in each layer.

A scheme has three hooks. `embed` adds to the token embeddings (learned positions). `position_state`
is computed once per forward pass and shared by all layers (T5's biases, rotary angles). The part in
each layer transforms queries and keys by their positions, before a cache stores the keys, and
computes the bias of their scores.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

from jaxtyping import Float, Int
from torch import Tensor, nn

from unmask.batch import Batch
from unmask.model.layers.feed_forward import AttentionDimensions


@runtime_checkable
class AttentionProjections(Protocol):
    """What a scheme's part in the layer may use of an attention sublayer."""

    def project_queries(self, x: Tensor) -> Tensor:
        """Project [... d] to queries [... h*e]."""
        ...

    def project_keys(self, x: Tensor) -> Tensor:
        """Project [... d] to keys [... g*e]."""
        ...

    @property
    def scale(self) -> float:
        """The factor of scores; a bias is added after scaling."""
        ...

    def split_heads(self, x: Tensor) -> Tensor:
        """Split vectors [b t h*e] into heads [b h t e]."""
        ...


class PositionLayer(nn.Module):
    """The part of a scheme in a layer. By default the position state is the bias, as in T5."""

    def query(self, q: Float[Tensor, "b h t e"], position_state: Any) -> Tensor:
        """Return the queries, transformed by their positions."""
        return q

    def key(self, k: Float[Tensor, "b g t e"], position_state: Any) -> Tensor:
        """Return the keys of the same columns, transformed by their positions."""
        return k

    def bias(
        self,
        q: Float[Tensor, "b h t e"],
        k: Float[Tensor, "b g s e"],
        position_state: Any,
        attention: AttentionProjections,
    ) -> Tensor | None:
        """Return the bias of the scores [b|1 h t s]."""
        return position_state


class SelectedHeads(PositionLayer):
    """The part in a layer that has some of the heads for which the position state has biases."""

    def __init__(self, heads: Sequence[int]) -> None:
        super().__init__()
        self.heads = list(heads)

    def bias(
        self,
        q: Float[Tensor, "b h t e"],
        k: Float[Tensor, "b g s e"],
        position_state: Any,
        attention: AttentionProjections,
    ) -> Tensor:
        """Return the bias of these heads [b|1 h t s]."""
        return position_state[:, self.heads]


class PositionModule(nn.Module):
    """The part of a scheme that all layers share. Subclasses override the hooks they need."""

    supports_memory: ClassVar[bool] = False
    """Whether it supports keys of a memory before those of the text."""
    reads_position_ids: ClassVar[bool] = False
    """Whether it depends on the position ids of a batch and not on where in its row a token lies,
    also in rows in which texts share a prefix."""
    needs_all_keys: ClassVar[bool] = False
    """Whether it depends on all query-key pairs, so that layers keep all keys despite a window."""

    def embed(self, position_ids: Int[Tensor, "b t"]) -> Tensor | None:
        """Return the position embeddings to add to the token embeddings [b t d], if any."""
        return None

    def position_state(
        self, x: Float[Tensor, "b t d"], n_keys: int, batch: Batch | None = None
    ) -> Any:
        """Return the state for the columns x, the last of `n_keys`, if the scheme has any.

        `batch` is used by schemes that depend on more than the number of columns.
        """
        return None

    def shift_keys(
        self, i: int, k: Float[Tensor, "b g s e"], n_columns: Int[Tensor, "b"]
    ) -> Float[Tensor, "b g s e"]:
        """Return keys of layer i as they would be so many columns later in their row."""
        return k

    def for_layer(self, i: int, heads: Sequence[int] | None = None) -> PositionLayer:
        """Return the part in layer i, which has some of the stack's heads; None: all."""
        return PositionLayer()

    def share_embeddings(self, other: Any) -> None:
        """Share the embeddings that `embed` adds, if any, with another stack."""


class PositionSpec:
    """A position scheme as a value, which builds its module."""

    in_scores: ClassVar[bool] = False
    """Whether it changes scores, so that a query without a token embedding has a position."""
    adds_bias: ClassVar[bool] = False
    """Whether it adds a bias to scores; training then stores the attention weights."""
    has_head_biases: ClassVar[bool] = False
    """Whether all layers share a bias for each of the stack's heads."""
    only_in_embeddings: ClassVar[bool] = False
    """Whether all it does is to add to token embeddings."""

    @property
    def has_relative_segments(self) -> bool:
        """Whether scores depend on whether two tokens have the same segment."""
        return False

    def flops(self, dimensions: AttentionDimensions, length: int) -> float:
        """Count the FLOPs of the scheme per layer and token; negligible for most schemes."""
        return 0.0

    def with_causal(self, causal: bool) -> "PositionSpec":
        """Return the scheme for a causal or a bidirectional stack."""
        return self

    def with_padding_id(self, padding_id: int) -> "PositionSpec":
        """Return the scheme for another padding id, if positions are counted from it."""
        return self

    def with_layers(self, indices: Sequence[int]) -> "PositionSpec":
        """Return the scheme of some of the layers, if it differs between layers."""
        return self


@dataclass(frozen=True)
class NoPositions(PositionSpec):
    """No position information: the network is sequential (LSTMs), or infers positions.

    A causal Transformer does (Haviv et al. 2022, arXiv:2203.16634).
    """

    def build(self, dimensions: AttentionDimensions) -> PositionModule:
        """Build nothing."""
        return PositionModule()
