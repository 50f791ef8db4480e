"""Linear maps of a few rows, whose weights are laid out once for the kernel that reads them.

Each is a copy of the weights, which takes as long as reading them a few times. Measured in
benchmarks/reports/2026-11-27-generation.md.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Literal, Protocol, cast, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

DecodingPrecision = Literal["float32", "bfloat16", "int8"]
"""Type of the weights that matrix products of decoding read."""

_LAYOUT_ROWS = 16
"""Rows for which oneDNN lays out weights; for 2 to 32 rows no other number was faster."""


@runtime_checkable
class PackedLinear(Protocol):
    """x W^T + b of 2-d x. The result is float32, or has the type of the products."""

    def __init__(self, weight: Float[Tensor, "o i"], bias: Float[Tensor, "o"] | None) -> None: ...

    @staticmethod
    def is_supported() -> bool:
        """Whether this processor multiplies so, and torch has the kernels for it."""
        ...

    def __call__(self, x: Float[Tensor, "n i"]) -> Float[Tensor, "n o"]:
        """Apply the map."""
        ...


def _has_packed_kernels() -> bool:
    return torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def _pack(weight: Float[Tensor, "o i"]) -> Tensor:
    """Return weights in the blocks of oneDNN, which only its products read."""
    return torch.ops.mkldnn._reorder_linear_weight(weight, _LAYOUT_ROWS)


def _packed_product(x: Tensor, packed: Tensor, bias: Tensor | None) -> Tensor:
    return torch.ops.mkldnn._linear_pointwise.default(x, packed, bias, "none", [], "")


class _Float32Linear:
    """One row reads W^T, several the blocks of oneDNN; a change lays the weights out again.

    W^T, since products of one row with W take up to six times as long where there are many outputs.
    """

    def __init__(self, weight: Float[Tensor, "o i"], bias: Float[Tensor, "o"] | None) -> None:
        self._weight, self._bias = weight, bias
        self._transposed: Tensor | None = None
        self._packed: Tensor | None = None
        self._can_pack = _has_packed_kernels()

    @staticmethod
    def is_supported() -> bool:
        return True

    def __call__(self, x: Float[Tensor, "n i"]) -> Float[Tensor, "n o"]:
        if x.shape[0] > 1 and self._can_pack:
            if self._packed is None:
                self._packed, self._transposed = _pack(self._weight), None
            return _packed_product(x, self._packed, self._bias)
        if self._transposed is None:
            self._transposed, self._packed = self._weight.t().contiguous(), None
        if self._bias is None:
            return torch.mm(x, self._transposed)
        return torch.addmm(self._bias, x, self._transposed)


class _Bfloat16Linear:
    """Weights and inputs in bfloat16, sums in float32."""

    def __init__(self, weight: Float[Tensor, "o i"], bias: Float[Tensor, "o"] | None) -> None:
        self._packed = _pack(weight.bfloat16())
        self._bias = None if bias is None else bias.bfloat16()

    @staticmethod
    def is_supported() -> bool:
        return _has_packed_kernels() and torch.ops.mkldnn._is_mkldnn_bf16_supported()

    def __call__(self, x: Float[Tensor, "n i"]) -> Float[Tensor, "n o"]:
        return _packed_product(x.bfloat16(), self._packed, self._bias)


class _Int8Linear:
    """Weights in 8 bits with a scale for each output, inputs in bfloat16, sums in float32.

    w = s round(w / s) for s = max |w| / 127 over the inputs of an output, rounded to bfloat16.
    """

    levels: ClassVar[int] = 127
    width: ClassVar[int] = 32
    """Inputs are padded to a multiple of it: torch's kernel reads beyond the end of others."""

    def __init__(self, weight: Float[Tensor, "o i"], bias: Float[Tensor, "o"] | None) -> None:
        tiny = torch.finfo(torch.float32).tiny
        self._scales = (weight.abs().amax(1) / self.levels).clamp(min=tiny).bfloat16()
        codes = torch.round(weight / self._scales.float()[:, None])
        codes = codes.clamp_(-self.levels, self.levels).to(torch.int8)
        self._padding = -weight.shape[1] % self.width
        self._codes = F.pad(codes, (0, self._padding)).contiguous()
        self._bias = bias

    @staticmethod
    def is_supported() -> bool:
        return hasattr(torch.ops.aten, "_weight_int8pack_mm")

    def __call__(self, x: Float[Tensor, "n i"]) -> Float[Tensor, "n o"]:
        x = x.bfloat16()
        x = F.pad(x, (0, self._padding)) if self._padding else x.contiguous()
        y = torch.ops.aten._weight_int8pack_mm.default(x, self._codes, self._scales)
        return y if self._bias is None else y + self._bias


PACKED_LINEARS: Mapping[DecodingPrecision, type[PackedLinear]] = {
    "float32": _Float32Linear,
    "bfloat16": _Bfloat16Linear,
    "int8": _Int8Linear,
}


class LinearPacker:
    """Lays out linear maps; those that layers share once."""

    def __init__(
        self, precision: DecodingPrecision, replaced: Mapping[nn.Parameter, Tensor] | None = None
    ) -> None:
        """Take weights as they are, but for those that others are laid out in place of."""
        self._kind = PACKED_LINEARS[precision]
        self._replaced = replaced or {}
        self._made: dict[tuple[int, ...], PackedLinear] = {}

    def pack(self, *maps: nn.Linear) -> PackedLinear:
        """Return several maps of the same inputs as one, side by side."""
        key = tuple(map(id, maps))
        if key not in self._made:
            self._made[key] = self.pack_weights(
                [one.weight for one in maps], [one.bias for one in maps]
            )
        return self._made[key]

    def pack_weights(
        self, weights: Sequence[Float[Tensor, "_ i"]], biases: Sequence[Float[Tensor, "_"] | None]
    ) -> PackedLinear:
        """Return the map of weights and biases, side by side."""
        weights = [self._in_effect(one) for one in weights]
        biases = [None if one is None else self._in_effect(one) for one in biases]
        whole = weights[0] if len(weights) == 1 else torch.cat([*weights])
        bias = None
        if any(one is not None for one in biases):
            bias = torch.cat(
                [
                    w.new_zeros(len(w)) if b is None else b
                    for w, b in zip(weights, biases, strict=True)
                ]
            )
        return self._kind(whole.detach(), None if bias is None else bias.detach())

    def _in_effect(self, weight: Tensor) -> Tensor:
        return self._replaced.get(cast("nn.Parameter", weight), weight)


Apply = Callable[[Tensor], Tensor]
"""A function of the hidden states of tokens."""
