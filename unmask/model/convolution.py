"""A convolution beside the first layer: each token reads its neighbors as they came in."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from unmask.batch import Visibility
from unmask.model.parts import ACTIVATIONS, Activation, Dropout, Sizes


@dataclass(frozen=True)
class Convolution:
    """He et al. 2021, arXiv:2006.03654, section 5.3: what the first layer reads, convolved.

    The two are summed, and normed once more (released code, `ConvLayer`).

    Deviates: the kernel begins as all other matrices do; in the released code as torch has it.
    """

    width: int = 3
    """Tokens that one reads, itself in the middle."""
    activation: Activation = "gelu"
    groups: int = 1

    def __post_init__(self) -> None:
        if self.width < 1 or self.width % 2 == 0:
            raise ValueError(f"width must be odd and at least 1, got {self.width}")

    def build(self, sizes: Sizes) -> "ConvolutionModule":
        """Build the kernel [d d/groups width] and the norm."""
        return ConvolutionModule(self, sizes)


class ConvolutionModule(nn.Module):
    """norm(after the layer + activation(kernel * before the layer))."""

    def __init__(self, part: Convolution, sizes: Sizes) -> None:
        super().__init__()
        d = sizes.d_model
        self.kernel = nn.Conv1d(d, d, part.width, groups=part.groups)
        self.norm = sizes.norm.build(d)
        self.activation = ACTIVATIONS[part.activation]
        self.dropout = Dropout(sizes.dropout)

    def forward(
        self,
        before: Float[Tensor, "b t d"],
        after: Float[Tensor, "b t d"],
        visibility: Visibility,
    ) -> Float[Tensor, "b t d"]:
        """Add what neighbors say that a token sees; those of other texts say nothing."""
        near = convolved(self.kernel, before, visibility, around(self.kernel.kernel_size[0]))
        return self.norm(after + self.activation(self.dropout(near)))


def around(width: int) -> range:
    """Return which columns, from one's own, a kernel of this width reads that stands around it."""
    return range(-(width // 2), width - width // 2)


def behind(width: int) -> range:
    """Return which it reads where it ends with one's own."""
    return range(1 - width, 1)


def convolved(
    kernel: nn.Conv1d, x: Float[Tensor, "b t d"], visibility: Visibility, taps: range
) -> Float[Tensor, "b t w"]:
    """Apply a kernel to what each token sees in the columns `taps` away: elsewhere it reads zeros.

    The visibility is that of the columns x.
    """
    near = [neighbors(visibility, x, by) for by in taps]
    if all(seen is None for seen in near):
        sides = max(-taps[0], 0), max(taps[-1], 0)
        return F.conv1d(F.pad(x.mT, sides), kernel.weight, kernel.bias, groups=kernel.groups).mT
    # tap by tap, since who is seen differs from token to token
    y = x.new_zeros(()) if kernel.bias is None else kernel.bias
    for by, seen, tap in zip(taps, near, kernel.weight.unbind(-1), strict=True):
        moved = shifted(x, by)
        moved = moved if seen is None else moved * seen[..., None]
        y = y + F.conv1d(moved.mT, tap[..., None], groups=kernel.groups).mT
    return y


def shifted(x: Float[Tensor, "b t d"], by: int) -> Float[Tensor, "b t d"]:
    """Put in each column what stands `by` columns further on; zeros beyond the ends."""
    t = x.shape[1]
    if abs(by) >= t:
        return torch.zeros_like(x)
    return F.pad(x[:, max(by, 0) : t + min(by, 0)], (0, 0, max(-by, 0), max(by, 0)))


def neighbors(
    visibility: Visibility, x: Float[Tensor, "b t d"], by: int
) -> Bool[Tensor, "#b t"] | None:
    """Say which tokens see the one `by` columns further on; None: all."""
    v, t = visibility, x.shape[1]
    if by == 0 or (v.document is None and v.rank is None and not (v.causal and by > 0)):
        return None
    place = torch.arange(t, device=x.device)
    other = (place + by).clamp(0, t - 1)
    seen = torch.ones(1, t, dtype=torch.bool, device=x.device)
    if v.causal:
        seen = seen & (other <= place)
    if v.rank is not None:
        seen = seen & (v.rank[:, other] <= v.rank)
    if v.document is not None:
        seen = seen & (v.document[:, other] == v.document)
    return seen
