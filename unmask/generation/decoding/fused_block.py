"""A block of a decoder for one more token of each text, as a few products and functions."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from unmask.generation.decoding.packed_linear import Apply, LinearPacker
from unmask.model.backbones.transformer import Block
from unmask.model.cache import LayerCache
from unmask.model.layers.attention.attention import Attention, AttentionMask, attend
from unmask.model.layers.feed_forward import FeedForward
from unmask.model.layers.layer_pass import LayerInputs
from unmask.model.layers.sublayer_connection import SublayerConnection


class FusedBlock:
    """The sublayers of a block; residual streams [n d] are those of n = b t tokens of b texts."""

    def __init__(self, block: Block, packer: LinearPacker) -> None:
        self._attention = _FusedAttention(block.attention, packer)
        self._around_attention = _Connection(block.attention_norm)
        self._cross = self._around_cross = None
        if block.cross is not None and block.cross_norm is not None:
            self._cross = _FusedAttention(block.cross, packer, own_keys=False)
            self._around_cross = _Connection(block.cross_norm)
        self._feed_forward = _fuse_feed_forward(block.feed_forward, packer)
        self._around_feed_forward = _Connection(block.feed_forward_norm)
        self._parallel = block.parallel

    def __call__(
        self, x: Float[Tensor, "n d"], batch_size: int, inputs: LayerInputs
    ) -> Float[Tensor, "n d"]:
        """Apply the sublayers, and add keys and values to the cache."""
        cache, i, before = inputs.cache, inputs.layer_index, x
        assert cache is not None
        around = self._around_attention
        y = self._attention(
            around.into(x),
            batch_size,
            cache.layers[i],
            inputs.attention_mask,
            inputs.position_state,
        )
        x = around.add(x, y)
        if (cross := self._cross) is not None and (around := self._around_cross) is not None:
            sources, mask = cache.cross_attention[i], inputs.encoder_attention_mask
            x = around.add(x, cross(around.into(x), batch_size, sources, mask))
        around = self._around_feed_forward
        return around.add(x, self._feed_forward(around.into(before if self._parallel else x)))


class _Connection:
    """The norms around a sublayer, if any, and the residual connection."""

    def __init__(self, connection: SublayerConnection) -> None:
        self.into = _function_of(connection.into)
        """Applied to the input of the sublayer."""
        self._out, self._after = (_function_of(x) for x in (connection.out, connection.after))

    def add(self, x: Float[Tensor, "n d"], y: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        """Add the output y of the sublayer."""
        return self._after(x + self._out(y.float()))


def _function_of(module: nn.Module) -> Apply:
    """Return what a module without hooks computes."""
    if type(module) is nn.LayerNorm:
        shape, weight, bias, eps = (
            [*module.normalized_shape],
            module.weight,
            module.bias,
            module.eps,
        )
        return lambda x: torch.layer_norm(x, shape, weight, bias, eps)
    return _same if type(module) is nn.Identity else module.forward


def _same(x: Tensor) -> Tensor:
    return x


class _FusedAttention:
    """Attention whose queries, keys, values and gates are one product."""

    def __init__(
        self, attention: Attention, packer: LinearPacker, *, own_keys: bool = True
    ) -> None:
        """Take the maps; `own_keys`: keys and values are of the same tokens as queries."""
        maps = [attention.q]
        maps += [attention.k, attention.v] if own_keys else []
        maps += [] if attention.gate is None else [attention.gate]
        self._read, self._write = packer.pack(*maps), packer.pack(attention.o)
        self._n_heads = [one.out_features // attention.d_head for one in maps]
        self._own_keys, self._width = own_keys, attention.d_head
        self._attention, self._place = attention, attention.place
        self._norms = [
            None if type(norm) is nn.Identity else norm.forward
            for norm in (attention.q_norm, attention.k_norm)
        ]
        self._gating, self._scoring = attention.gating, attention.scoring
        self._inside = _function_of(attention.inside)

    def __call__(
        self,
        x: Float[Tensor, "n d"],
        batch_size: int,
        cache: LayerCache,
        attention_mask: AttentionMask,
        position_state: Any = None,
    ) -> Float[Tensor, "n d"]:
        """Attend to the cache, and add keys and values of x to it, if they are its own."""
        n, width, place = x.shape[0], self._width, self._place
        heads = self._read(x).float().view(batch_size, n // batch_size, -1, width).transpose(1, 2)
        q, *others = heads.split_with_sizes(self._n_heads, 1)
        q = place.query(self._normalized(q, 0), position_state)
        if self._own_keys:
            k, v, *others = others
            k = place.key(self._normalized(k, 1), position_state)
            k, v = cache.extend(k, v)
        else:
            filled = cache.all_keys_values
            assert filled is not None
            k, v = filled
        bias = place.bias(q, k, position_state, self._attention)
        y = attend(q, k, v, attention_mask, self._scoring, bias)
        if self._gating is not None:
            y = y * self._gating(others[0])
        return self._write(self._inside(y.transpose(1, 2).reshape(n, -1)))

    def _normalized(self, x: Float[Tensor, "b h t e"], which: int) -> Float[Tensor, "b h t e"]:
        """Apply the norm of queries (0) or keys (1), which is one of heads side by side."""
        norm = self._norms[which]
        if norm is None:
            return x
        return norm(x.transpose(1, 2).flatten(2)).unflatten(2, (x.shape[1], -1)).transpose(1, 2)


def _fuse_feed_forward(part: FeedForward, packer: LinearPacker) -> Apply:
    """Return the feed-forward layer as a function, with gate and values as one product."""
    down, activation = packer.pack(part.down), part.activation
    if part.gate is None:
        up, inside = packer.pack(part.up), part.inside
        if type(inside) is nn.Identity:
            return lambda x: down(activation(up(x)))
        return lambda x: down(inside.forward(activation(up(x)).float()))
    read, inside = packer.pack(part.gate, part.up), _function_of(part.inside)

    def gated(x: Tensor) -> Tensor:
        gate, up = read(x).float().chunk(2, 1)
        return down(inside(activation(gate) * up))

    return gated
