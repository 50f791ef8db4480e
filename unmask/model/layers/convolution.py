"""A convolution beside the first layer: each token reads its neighbors as they came in."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from unmask.batch import Visibility
from unmask.model.layers.feed_forward import ACTIVATIONS, Activation, Dropout, ModelDimensions


@dataclass(frozen=True)
class NgramInputEncoding:
    """He et al. 2021, arXiv:2006.03654, section 5.3: what the first layer reads, convolved.

    The two are summed, and normed once more (released code, `ConvLayer`).

    Deviates: the kernel begins as all other matrices do; in the released code as torch has it.
    """

    kernel_size: int = 3
    """Tokens that one reads, itself in the middle."""
    activation: Activation = "gelu"
    groups: int = 1

    def __post_init__(self) -> None:
        if self.kernel_size < 1 or self.kernel_size % 2 == 0:
            raise ValueError(f"kernel_size must be odd and at least 1, got {self.kernel_size}")

    def build(self, dimensions: ModelDimensions) -> "NgramInputEncodingModule":
        """Build the kernel [d d/groups width] and the norm."""
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
        """Add what neighbors say that a token sees; those of other texts say nothing."""
        near = convolve_visible(self.kernel, layer_input, visibility, centered_offsets(self.kernel.kernel_size[0]))
        return self.norm(layer_output + self.activation(self.dropout(near)))


def centered_offsets(kernel_size: int) -> range:
    """Return which columns, from one's own, a kernel of this width reads that stands around it."""
    return range(-(kernel_size // 2), kernel_size - kernel_size // 2)


def causal_offsets(kernel_size: int) -> range:
    """Return which it reads where it ends with one's own."""
    return range(1 - kernel_size, 1)


def convolve_visible(
    kernel: nn.Conv1d, x: Float[Tensor, "b t d"], visibility: Visibility, offsets: range
) -> Float[Tensor, "b t w"]:
    """Apply a kernel to what each token sees in the columns `offsets` away: elsewhere it reads zeros.

    The visibility is that of the columns x.
    """
    near = [neighbor_visible(visibility, x, by) for by in offsets]
    if all(seen is None for seen in near):
        sides = max(-offsets[0], 0), max(offsets[-1], 0)
        return F.conv1d(F.pad(x.mT, sides), kernel.weight, kernel.bias, groups=kernel.groups).mT
    # tap by tap, since who is seen differs from token to token
    y = x.new_zeros(()) if kernel.bias is None else kernel.bias
    for by, seen, tap in zip(offsets, near, kernel.weight.unbind(-1), strict=True):
        moved = shift_columns(x, by)
        moved = moved if seen is None else moved * seen[..., None]
        y = y + F.conv1d(moved.mT, tap[..., None], groups=kernel.groups).mT
    return y


def shift_columns(x: Float[Tensor, "b t d"], offset: int) -> Float[Tensor, "b t d"]:
    """Put in each column what stands `offset` columns further on; zeros beyond the ends."""
    t = x.shape[1]
    if abs(offset) >= t:
        return torch.zeros_like(x)
    return F.pad(x[:, max(offset, 0) : t + min(offset, 0)], (0, 0, max(-offset, 0), max(offset, 0)))


def neighbor_visible(
    visibility: Visibility, x: Float[Tensor, "b t d"], offset: int
) -> Bool[Tensor, "#b t"] | None:
    """Say which tokens see the one `offset` columns further on; None: all."""
    v, t = visibility, x.shape[1]
    if offset == 0 or (v.document is None and v.rank is None and not (v.causal and offset > 0)):
        return None
    place = torch.arange(t, device=x.device)
    other = (place + offset).clamp(0, t - 1)
    seen = torch.ones(1, t, dtype=torch.bool, device=x.device)
    if v.causal:
        seen = seen & (other <= place)
    if v.rank is not None:
        seen = seen & (v.rank[:, other] <= v.rank)
    if v.document is not None:
        seen = seen & (v.document[:, other] == v.document)
    return seen
