"""A convolution parallel to the first layer (DeBERTa's n-gram input encoding)."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from unmask.batch import Visibility
from unmask.model.layers.feed_forward import ACTIVATIONS, Activation, Dropout, ModelDimensions


@dataclass(frozen=True)
class NgramInputEncoding:
    """He et al. 2021, arXiv:2006.03654, section 5.3: a convolution of the first layer's input.

    It is added to the layer's output and normalized again (released code, `ConvLayer`).

    Deviates: the kernel is initialized as all other matrices; in the released code as in torch.
    """

    kernel_size: int = 3
    """Odd; the kernel is centered on the token."""
    activation: Activation = "gelu"
    groups: int = 1

    def __post_init__(self) -> None:
        if self.kernel_size < 1 or self.kernel_size % 2 == 0:
            raise ValueError(f"kernel_size must be odd and at least 1, got {self.kernel_size}")

    def build(self, dimensions: ModelDimensions) -> "NgramInputEncodingModule":
        """Build the kernel [d d/groups kernel_size] and the norm."""
        return NgramInputEncodingModule(self, dimensions)


class NgramInputEncodingModule(nn.Module):
    """norm(after the layer + activation(kernel * before the layer))."""

    def __init__(self, part: NgramInputEncoding, dimensions: ModelDimensions) -> None:
        super().__init__()
        d = dimensions.d_model
        self.kernel = nn.Conv1d(d, d, part.kernel_size, groups=part.groups)
        self.norm = dimensions.norm.build(d)
        self.activation = ACTIVATIONS[part.activation]
        self.dropout = Dropout(dimensions.dropout)

    def forward(
        self,
        layer_input: Float[Tensor, "b t d"],
        layer_output: Float[Tensor, "b t d"],
        visibility: Visibility,
    ) -> Float[Tensor, "b t d"]:
        """Add the convolution over visible neighbors of the same text."""
        near = convolve_visible(
            self.kernel, layer_input, visibility, centered_offsets(self.kernel.kernel_size[0])
        )
        return self.norm(layer_output + self.activation(self.dropout(near)))


def centered_offsets(kernel_size: int) -> range:
    """Return the offsets of a centered kernel."""
    return range(-(kernel_size // 2), kernel_size - kernel_size // 2)


def causal_offsets(kernel_size: int) -> range:
    """Return the offsets of a causal kernel."""
    return range(1 - kernel_size, 1)


def convolve_visible(
    kernel: nn.Conv1d, x: Float[Tensor, "b t d"], visibility: Visibility, offsets: range
) -> Float[Tensor, "b t w"]:
    """Apply a kernel to the visible columns at `offsets` from each token.

    Columns that are invisible to a token count as zeros. `visibility` is that of the columns x.
    """
    near = [neighbor_visible(visibility, x, by) for by in offsets]
    if all(is_visible is None for is_visible in near):
        sides = max(-offsets[0], 0), max(offsets[-1], 0)
        return F.conv1d(F.pad(x.mT, sides), kernel.weight, kernel.bias, groups=kernel.groups).mT
    # offset by offset, since visibility differs from token to token
    y = x.new_zeros(()) if kernel.bias is None else kernel.bias
    for by, is_visible, tap in zip(offsets, near, kernel.weight.unbind(-1), strict=True):
        moved = shift_columns(x, by)
        moved = moved if is_visible is None else moved * is_visible[..., None]
        y = y + F.conv1d(moved.mT, tap[..., None], groups=kernel.groups).mT
    return y


def shift_columns(x: Float[Tensor, "b t d"], offset: int) -> Float[Tensor, "b t d"]:
    """Shift by `offset` columns; zeros beyond the ends."""
    t = x.shape[1]
    if abs(offset) >= t:
        return torch.zeros_like(x)
    return F.pad(x[:, max(offset, 0) : t + min(offset, 0)], (0, 0, max(-offset, 0), max(offset, 0)))


def neighbor_visible(
    visibility: Visibility, x: Float[Tensor, "b t d"], offset: int
) -> Bool[Tensor, "#b t"] | None:
    """Return to which tokens the one `offset` columns after it is visible; None: to all."""
    v, t = visibility, x.shape[1]
    if offset == 0 or (v.document is None and v.rank is None and not (v.causal and offset > 0)):
        return None
    column = torch.arange(t, device=x.device)
    neighbor = (column + offset).clamp(0, t - 1)
    visible = torch.ones(1, t, dtype=torch.bool, device=x.device)
    if v.causal:
        visible = visible & (neighbor <= column)
    if v.rank is not None:
        visible = visible & (v.rank[:, neighbor] <= v.rank)
    if v.document is not None:
        visible = visible & (v.document[:, neighbor] == v.document)
    return visible
