"""Parts of a block: norms, activations, feed-forward, dropout.

Each value is next to the module that it builds.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

Activation = Literal["gelu", "gelu_tanh", "quick_gelu", "relu", "silu", "tanh"]

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "quick_gelu": lambda x: x * torch.sigmoid(1.702 * x),  # arXiv:1606.08415, section 2
    "relu": F.relu,
    "silu": F.silu,
    "tanh": torch.tanh,
}


def _check_eps(eps: float) -> None:
    """Check that eps is above 0: a norm of a vector of size 1 would divide by it."""
    if not 0 < eps < math.inf:
        raise ValueError(f"norm.eps must be a number above 0, got {eps}")


@dataclass(frozen=True)
class LayerNorm:
    """Mean 0 and variance 1 of each token's vector (Ba et al. 2016, arXiv:1607.06450)."""

    eps: float = 1e-12
    bias: bool = True
    weight: bool = True
    """Whether each dimension has a learned factor. If not, the norm has no parameters."""

    def __post_init__(self) -> None:
        _check_eps(self.eps)

    def build(self, width: int) -> nn.Module:
        """Build the norm of vectors of `width`."""
        return nn.LayerNorm(width, self.eps, self.weight, self.bias)


@dataclass(frozen=True)
class RMSNorm:
    """Mean square 1 of each token's vector (Zhang and Sennrich 2019, arXiv:1910.07467)."""

    eps: float = 1e-6
    offset: float = 0.0
    """Number added to the weight. With 1, weights are initialized to 0, and weight decay pulls the
    factors to 1 (Gemma, released code)."""

    def __post_init__(self) -> None:
        _check_eps(self.eps)

    def build(self, width: int) -> nn.Module:
        """Build the norm of vectors of `width`."""
        if not self.offset:
            return nn.RMSNorm(width, self.eps)
        return OffsetRMSNorm(width, self.eps, self.offset)


class OffsetRMSNorm(nn.RMSNorm):
    """RMSNorm whose factors are its weight plus an offset, computed in float32."""

    def __init__(self, width: int, eps: float, offset: float) -> None:
        super().__init__(width, eps)
        self.offset = offset

    def forward(self, x: Float[Tensor, "*b d"]) -> Float[Tensor, "*b d"]:
        """Normalize each vector."""
        by = self.weight.float() + self.offset
        return F.rms_norm(x.float(), self.normalized_shape, by, self.eps).to(x.dtype)


Norm = LayerNorm | RMSNorm


@runtime_checkable
class ModelDimensions(Protocol):
    """The fields of an architecture that layers and initializers use."""

    @property
    def d_model(self) -> int:
        """Size of the hidden states."""
        ...

    @property
    def d_embed(self) -> int:
        """Size of token embeddings before the first block."""
        ...

    @property
    def norm(self) -> Norm:
        """The norm that all sublayers use."""
        ...

    @property
    def dropout(self) -> float:
        """The dropout rate of sublayer outputs."""
        ...


@runtime_checkable
class AttentionDimensions(ModelDimensions, Protocol):
    """The fields of an architecture that position schemes use."""

    @property
    def n_heads(self) -> int:
        """Heads of an attention sublayer."""
        ...

    @property
    def d_head(self) -> int:
        """Size of one head."""
        ...


class QueryKeyNorm(nn.Module):
    """A norm of each part of a vector, with shared weights: one head, or all heads."""

    def __init__(self, norm: Norm, width: int) -> None:
        super().__init__()
        self.norm, self.width = norm.build(width), width

    def forward(self, x: Float[Tensor, "*b d"]) -> Float[Tensor, "*b d"]:
        """Normalize each part of size `width`."""
        return self.norm(x.unflatten(-1, (-1, self.width))).flatten(-2)


class _DropoutFunction(torch.autograd.Function):
    """Dropout that draws one random byte per element.

    torch draws eight times as many random bits. On a CPU it draws one number per element in a
    single thread, which costs more than the matrix product before it.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, cut: int) -> Tensor:
        words = -(-x.numel() // 8)
        dice = torch.empty(words, dtype=torch.int64).random_(-(2**63), None)
        dice = dice.view(torch.uint8)[: x.numel()].view(x.shape)
        ctx.save_for_backward(dice)
        ctx.cut = cut
        return _apply_dropout(x, dice, cut)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (dice,) = ctx.saved_tensors
        return _apply_dropout(grads[0], dice, ctx.cut), None


def _apply_dropout(x: Tensor, dice: Tensor, cut: int) -> Tensor:
    keep = torch.empty(x.shape, dtype=x.dtype)
    torch.ge(dice, cut, out=keep)  # written as 0 and 1 of x's dtype: no pass over booleans
    return torch.addcmul(x.new_zeros(()), keep, x, value=256 / (256 - cut))


class Dropout(nn.Module):
    """Dropout (Srivastava et al. 2014).

    It uses torch's default generator, which training seeds before each micro-batch.

    Deviates: on a CPU the rate is rounded to a multiple of 1/256 (0.1 becomes 26/256); the scale is
    exact for it.
    """

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Drop in training, do nothing otherwise."""
        if not self.training or self.rate == 0:
            return x
        if x.device.type != "cpu" or torch.compiler.is_compiling():
            return F.dropout(x, self.rate)
        return _DropoutFunction.apply(x, round(self.rate * 256))  # pyright: ignore[reportReturnType]

    def extra_repr(self) -> str:
        """Show the rate where the module is printed."""
        return str(self.rate)


class FeedForward(nn.Module):
    """Two linear maps and an activation.

    With `gated_feed_forward`, a third map multiplies (Shazeer 2020, arXiv:2002.05202).
    """

    def __init__(
        self,
        d_model: int,
        d_ff: int,
        *,
        activation: Activation,
        gated: bool,
        bias: bool,
        dropout: float = 0.0,
        inner_norm: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.up = nn.Linear(d_model, d_ff, bias=bias)
        self.gate = nn.Linear(d_model, d_ff, bias=bias) if gated else None
        self.down = nn.Linear(d_ff, d_model, bias=bias)
        self.activation = ACTIVATIONS[activation]
        self.inside = nn.Identity() if inner_norm is None else inner_norm
        """A norm before the last map."""
        self.dropout = Dropout(dropout)

    def forward(self, x: Float[Tensor, "b t d"]) -> Float[Tensor, "b t d"]:
        """Transform each token's vector on its own."""
        if self.gate is None:
            inner = self.activation(self.up(x))
        else:
            inner = self.activation(self.gate(x)) * self.up(x)
        return self.down(self.inside(self.dropout(inner)))
