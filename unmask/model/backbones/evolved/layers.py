"""The first halves of the Evolved Transformer's blocks, which `evolved_parts` describes."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from unmask.batch import Visibility
from unmask.model.backbones.block_architecture import BlockArchitecture
from unmask.model.backbones.evolved.parts import (
    EvolvedDecoderConvolutions,
    EvolvedEncoderConvolutions,
    LayerType,
)
from unmask.model.cache import ConvolutionCache
from unmask.model.layers.attention.attention import Attention
from unmask.model.layers.convolution import causal_offsets, centered_offsets, convolve_visible
from unmask.model.layers.feed_forward import Dropout
from unmask.model.layers.layer_pass import LayerInputs, cross_attend, self_attend
from unmask.model.layers.sublayer_connection import SublayerConnection
from unmask.model.positions.module import PositionLayer
from unmask.model.variants import LayerVariants


class SeparableConvolution(nn.Module):
    """A depthwise convolution, then a pointwise linear map (depthwise separable convolution).

    Chollet 2017, arXiv:1610.02357, section 1.
    """

    def __init__(self, d: int, kernel_size: int, offsets: range) -> None:
        super().__init__()
        self.kernel = nn.Conv1d(d, d, len(offsets), groups=d, bias=False)
        self.out = nn.Linear(d, kernel_size)
        self.taps = offsets

    def forward(
        self, x: Float[Tensor, "b s d"], visibility: Visibility, last: int
    ) -> Float[Tensor, "b last w"]:
        """Map the last columns of x, within their visibility."""
        return self.out(
            convolve_visible(self.kernel, x, visibility, self.taps)[:, x.shape[1] - last :]
        )


class EvolvedEncoderLayer(nn.Module):
    """A gated linear unit, x' = values(x) * sigmoid(gates(x)), then parallel convolutions.

    These are wide(norm(relu(up(x)) + relu(narrow(x)))); the narrower term or result is padded with
    zeros.
    """

    def __init__(self, part: EvolvedEncoderConvolutions, a: BlockArchitecture) -> None:
        super().__init__()
        d, half = a.d_model, a.d_model // 2
        self.values, self.gates, self.gated_norm = (
            nn.Linear(d, d),
            nn.Linear(d, d),
            SublayerConnection(a),
        )
        self.up = nn.Linear(d, 4 * d)
        self.narrow = nn.Conv1d(d, half, part.narrow_kernel_size)
        self.inner_norm = a.norm.build(4 * d)
        self.wide = SeparableConvolution(4 * d, half, centered_offsets(part.wide_kernel_size))
        self.convolved_norm = SublayerConnection(a)
        self.dropout = Dropout(a.dropout)

    def forward(self, x: Float[Tensor, "b t d"], inputs: LayerInputs) -> Float[Tensor, "b t d"]:
        """Read and write the residual stream twice.

        Raises:
            ValueError: a cache is given: earlier tokens would depend on later ones.
        """
        if inputs.cache is not None:
            raise ValueError("a layer with convolutions in both directions has no cache")
        x = self.gated_norm(x, lambda y: self.values(y) * torch.sigmoid(self.gates(y)))
        return self.convolved_norm(x, lambda y: self._convolved(y, inputs.visibility))

    def _convolved(
        self, x: Float[Tensor, "b t d"], visibility: Visibility
    ) -> Float[Tensor, "b t d"]:
        near = convolve_visible(
            self.narrow, x, visibility, centered_offsets(self.narrow.kernel_size[0])
        )
        inner = _add_branches(self.dropout(F.relu(self.up(x))), self.dropout(F.relu(near)))
        y = self.wide(self.inner_norm(inner), visibility, x.shape[1])
        return F.pad(y, (0, x.shape[2] - y.shape[2]))


class EvolvedDecoderLayer(nn.Module):
    """The sum of self-attention and cross-attention of the same input, then convolutions.

    These are after(norm(relu(wide(x)) + narrow(x))).
    """

    def __init__(
        self, part: EvolvedDecoderConvolutions, a: BlockArchitecture, position_layer: PositionLayer
    ) -> None:
        super().__init__()
        d = a.d_model
        n_heads = max(part.n_heads, a.n_heads)
        with_heads = replace(a, n_heads=n_heads, head_dim=None, layers=LayerVariants())
        self.attention, self.attention_norm = (
            Attention(with_heads, position_layer),
            SublayerConnection(a),
        )
        self.cross = Attention(a, PositionLayer())
        self.wide = SeparableConvolution(d, 2 * d, causal_offsets(part.wide_kernel_size))
        self.narrow = SeparableConvolution(d, d // 2, causal_offsets(part.narrow_kernel_size))
        self.inner_norm = a.norm.build(2 * d)
        self.after = SeparableConvolution(2 * d, d, causal_offsets(part.narrow_kernel_size))
        self.convolved_norm = SublayerConnection(a)
        self.dropout = Dropout(a.dropout)

    def forward(self, x: Float[Tensor, "b t d"], inputs: LayerInputs) -> Float[Tensor, "b t d"]:
        """Read and write the residual stream twice; the cache has what earlier tokens need."""
        before, cache = x, inputs.cache
        x = self.attention_norm(before, lambda y: self_attend(self.attention, y, inputs))
        x = self.attention_norm(x, lambda y: cross_attend(self.cross, y, inputs), before)
        recent = () if cache is None else cache.convolutions[inputs.layer_index]
        return self.convolved_norm(x, lambda y: self._convolved(y, inputs.visibility, recent))

    def _convolved(
        self,
        x: Float[Tensor, "b t d"],
        visibility: Visibility,
        convolution_caches: Sequence[ConvolutionCache],
    ) -> Float[Tensor, "b t d"]:
        n = x.shape[1]
        x = convolution_caches[0].extend(x) if convolution_caches else x
        sees = visibility.of_last(x.shape[1])
        wide = self.dropout(F.relu(self.wide(x, sees, n)))
        inner = self.inner_norm(_add_branches(wide, self.dropout(self.narrow(x, sees, n))))
        inner = convolution_caches[1].extend(inner) if convolution_caches else inner
        return self.after(inner, visibility.of_last(inner.shape[1]), n)


def build_layer(part: LayerType, a: BlockArchitecture, position_layer: PositionLayer) -> nn.Module:
    """Build a layer that is not attention followed by a feed-forward layer."""
    if isinstance(part, EvolvedEncoderConvolutions):
        return EvolvedEncoderLayer(part, a)
    return EvolvedDecoderLayer(part, a, position_layer)


def _add_branches(
    wide: Float[Tensor, "b t w"], narrow: Float[Tensor, "b t n"]
) -> Float[Tensor, "b t w"]:
    return wide + F.pad(narrow, (0, wide.shape[2] - narrow.shape[2]))
