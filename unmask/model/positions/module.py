"""What a position scheme builds: a module of the stack, with a part in each layer.

A scheme has three hooks: `embed`, `position_state`, and a part that lives in each layer. `embed`
adds to token embeddings (learned). `position_state` is computed once per forward and shared by all
layers (T5's biases, rotary angles). The layer's own part changes queries and keys by their
positions, before a cache stores the keys, and gives the bias of their scores.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

from jaxtyping import Float, Int
from torch import Tensor, nn

from unmask.batch import Batch
from unmask.model.layers.feed_forward import AttentionDimensions


@runtime_checkable
class AttentionProjections(Protocol):
    """What a scheme's part in a layer may use of its attention sublayer."""

    @property
    def q(self) -> Callable[[Tensor], Tensor]:
        """The projection of queries, [... d] to [... h*e]."""
        ...

    @property
    def k(self) -> Callable[[Tensor], Tensor]:
        """The projection of keys."""
        ...

    @property
    def scale(self) -> float:
        """The factor of scores; a bias is added after it."""
        ...

    def split_heads(self, x: Tensor) -> Tensor:
        """Split vectors [b t h*e] into heads [b h t e]."""
        ...


class PositionLayer(nn.Module):
    """The part of a scheme that lives in a layer. Also T5's: its position state *is* the bias."""

    def query(self, q: Float[Tensor, "b h t e"], position_state: Any) -> Tensor:
        """Return queries, changed by their positions."""
        return q

    def key(self, k: Float[Tensor, "b g t e"], position_state: Any) -> Tensor:
        """Return keys of the same columns, changed by their positions."""
        return k

    def bias(
        self,
        q: Float[Tensor, "b h t e"],
        k: Float[Tensor, "b g s e"],
        position_state: Any,
        attention: AttentionProjections,
    ) -> Tensor | None:
        """Return what is added to the scores [b|1 h t s]."""
        return position_state


class PositionModule(nn.Module):
    """The part of a scheme that all layers share. A scheme overrides the hooks it needs."""

    supports_memory: ClassVar[bool] = False
    """Whether keys of a batch's memory may precede those of its text."""
    needs_all_keys: ClassVar[bool] = False
    """Whether it depends on all query-key pairs: layers keep all keys, whatever their window."""

    def embed(self, position_ids: Int[Tensor, "b t"]) -> Tensor | None:
        """Return what is added to the token embeddings [b t d], if anything."""
        return None

    def position_state(
        self, x: Float[Tensor, "b t d"], n_keys: int, batch: Batch | None = None
    ) -> Any:
        """Return what layers need for the columns x, the last of `n_keys`, if anything.

        `batch` is for schemes that depend on more than the number of columns.
        """
        return None

    def for_layer(self, i: int) -> PositionLayer:
        """Return the part that lives in layer i."""
        return PositionLayer()

    def share_embeddings(self, other: Any) -> None:
        """Share with another stack what is added to token embeddings, if anything."""


class PositionSpec:
    """A position scheme as a value, which builds its module, and what others ask of one."""

    in_scores: ClassVar[bool] = False
    """Whether it changes scores: a query then knows its position without its token embedding."""
    only_in_embeddings: ClassVar[bool] = False
    """Whether it is added to token embeddings, and does nothing else."""

    @property
    def has_relative_segments(self) -> bool:
        """Whether it tells whether two tokens are of one segment."""
        return False

    def flops(self, dimensions: AttentionDimensions, length: int) -> float:
        """Count what it costs in a layer, per token; most cost nothing to speak of."""
        return 0.0

    def with_causal(self, causal: bool) -> "PositionSpec":
        """Return the scheme of a stack that is causal, or is not."""
        return self

    def with_padding_id(self, padding_id: int) -> "PositionSpec":
        """Return the scheme for another padding id, if it counts positions from that."""
        return self


@dataclass(frozen=True)
class NoPositions(PositionSpec):
    """No position information: the network is sequential (LSTMs), or infers positions.

    A causal Transformer does (Haviv et al. 2022, arXiv:2203.16634).
    """

    def build(self, dimensions: AttentionDimensions) -> PositionModule:
        """Build nothing."""
        return PositionModule()
