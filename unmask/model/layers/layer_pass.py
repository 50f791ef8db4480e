"""The inputs of a layer besides the residual stream, and the pass of columns through layers."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from unmask.batch import Visibility
from unmask.model.cache import Cache
from unmask.model.layers.attention.attention import Attention, AttentionMask


def identity(x: Tensor) -> Tensor:
    """Return x."""
    return x


@dataclass(frozen=True, kw_only=True)
class LayerInputs:
    """The inputs of a layer besides the residual stream."""

    attention_mask: AttentionMask
    n_keys: int = 0
    """Number of columns of the cache, the memory and the residual stream together."""
    position_state: Any = None
    """The state that the position scheme computes once for all layers."""
    visibility: Visibility = field(default_factory=Visibility)
    encoder_hidden_states: Float[Tensor, "b s d"] | None = None
    encoder_attention_mask: AttentionMask = field(default_factory=AttentionMask)
    cache: Cache | None = None
    layer_index: int = 0
    is_last: bool = False
    memory: Float[Tensor, "b m d"] | None = None
    """Columns of earlier segments, before those of the residual stream."""
    context: Callable[[Tensor], Tensor | None] = identity
    """Normalized residual stream -> the hidden states to which self-attention attends: itself,
    others, or None for those in the cache."""
    after_sublayer: Callable[[Tensor], Tensor] = identity
    """Applied to the residual stream after each sublayer."""

    def attending_to(self, hidden: Float[Tensor, "b _ d"] | None) -> "LayerInputs":
        """Return a copy with self-attention to other, normalized hidden states.

        None: to those in the cache.
        """
        return replace(self, context=lambda _: hidden)


@runtime_checkable
class LayerPass(Protocol):
    """The pass of the columns of a text through a layer."""

    needs_last: ClassVar[bool]
    """Whether LayerDrop must not skip the last layer, because it computes the result."""

    def __call__(
        self, layer: nn.Module, x: Float[Tensor, "b t d"], inputs: LayerInputs
    ) -> Float[Tensor, "b n d"]:
        """Return the residual stream after the layer or, for the last layer, the result."""
        ...


class AllColumns:
    """All columns, which attend to each other and to a memory before them."""

    needs_last: ClassVar[bool] = False

    def __call__(
        self, layer: nn.Module, x: Float[Tensor, "b t d"], inputs: LayerInputs
    ) -> Float[Tensor, "b t d"]:
        """Apply the layer."""
        if inputs.memory is not None:
            inputs = inputs.attending_to(keys_of(layer, x, inputs.memory))
        return layer(x, inputs)


class SelectedColumn:
    """All columns; the last layer computes only one of each row."""

    needs_last: ClassVar[bool] = True

    def __init__(self, column: Int[Tensor, "b"]) -> None:
        self.column = column

    def __call__(
        self, layer: nn.Module, x: Float[Tensor, "b t d"], inputs: LayerInputs
    ) -> Float[Tensor, "b n d"]:
        """Apply the layer."""
        if not inputs.is_last:
            return layer(x, inputs)
        context = keys_of(layer, x)
        selected = x[torch.arange(len(x), device=x.device), self.column][:, None]
        mask = inputs.attention_mask.for_columns(self.column, x.shape[1])
        alone = LayerInputs(attention_mask=mask, visibility=inputs.visibility)
        return layer(selected, alone.attending_to(context))


def keys_of(
    layer: Any, x: Float[Tensor, "b t d"], memory: Float[Tensor, "b m d"] | None = None
) -> Float[Tensor, "b s d"]:
    """Return the context of a block's self-attention: a memory, then x, normalized."""
    return layer.attention_norm.into(x if memory is None else torch.cat((memory, x), 1))


def self_attend(
    attention: Attention, x: Float[Tensor, "b t d"], inputs: LayerInputs
) -> Float[Tensor, "b t d"]:
    """Let the normalized residual stream x attend to its context, and add this to the cache."""
    cache = None if inputs.cache is None else inputs.cache.layers[inputs.layer_index]
    return attention(x, inputs.context(x), inputs.position_state, inputs.attention_mask, cache)


def cross_attend(
    attention: Attention, x: Float[Tensor, "b t d"], inputs: LayerInputs
) -> Float[Tensor, "b t d"]:
    """Let x attend to the encoder, whose keys and values may be in the cache."""
    cache = None if inputs.cache is None else inputs.cache.cross_attention[inputs.layer_index]
    context = None if cache is not None and cache.length else inputs.encoder_hidden_states
    return attention(x, context, None, inputs.encoder_attention_mask, cache)
