"""Inputs of linear maps as codes of few bits, simulated in floating point by hooks (Q8BERT).

Zafrir et al. 2019, arXiv:1910.06188, section 2; Jacob et al. 2018, arXiv:1712.05877, section 3,
"fake quantization". The model's modules and weights keep their names; nothing else of it changes.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn

_TINY = torch.finfo(torch.float32).tiny


@dataclass(frozen=True, kw_only=True)
class InputQuantization:
    """How the inputs x of one map are rounded, with one scale for all of them.

    Symmetric: s clamp(round(x / s), -M, M) for M = 2^(bits - 1) - 1 and s = high / M.
    Otherwise: s (clamp(round(x / s) + z, 0, 2^bits - 1) - z) for s = (high - low) / (2^bits - 1)
    and the code of zero z = round(-low / s).
    """

    bits: int = 8
    """Bits of a code, from 2 to 16."""
    low: float
    """Smallest value, at most 0."""
    high: float
    """Largest value, at least 0."""
    symmetric: bool = True
    """Whether codes are centered at zero; low is -high then."""

    def __post_init__(self) -> None:
        if not 2 <= self.bits <= 16:
            raise ValueError(f"bits of inputs must be from 2 to 16, got {self.bits}")
        if not (
            math.isfinite(self.low) and math.isfinite(self.high) and self.low <= 0 <= self.high
        ):
            raise ValueError(f"a range must be finite and hold 0, got {self.low:g}, {self.high:g}")
        if self.symmetric and self.low != -self.high:
            raise ValueError(f"a symmetric range is -high to high, got {self.low:g}, {self.high:g}")

    @property
    def scale(self) -> float:
        """The distance of two values, s."""
        if self.symmetric:
            return max(self.high / (2 ** (self.bits - 1) - 1), _TINY)
        return max((self.high - self.low) / (2**self.bits - 1), _TINY)

    def round(self, x: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]:
        """Return the nearest values, computed in float32; gradients pass as if they were x."""
        s, exact = self.scale, x.detach().float()
        if self.symmetric:
            most = 2 ** (self.bits - 1) - 1
            values = torch.round(exact / s).clamp(-most, most) * s
        else:
            zero = round(-self.low / s)
            values = torch.round(exact / s).clamp(-zero, 2**self.bits - 1 - zero) * s
        values = values.to(x.dtype)
        return _StraightThrough.apply(x, values) if x.requires_grad else values


class _StraightThrough(torch.autograd.Function):
    """The second tensor, with gradients for the first (Bengio et al. 2013, arXiv:1308.3432)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, values: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        return values.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return gradient, None


class ProjectionInput(nn.Identity):
    """What goes into a matrix that another module holds, such as tied output embeddings."""


class InputQuantizer:
    """A forward pre-hook that rounds the inputs of a map, and can measure them in training."""

    def __init__(self, quantization: InputQuantization | None = None) -> None:
        self.quantization = quantization
        """None: inputs pass as they are."""
        self.measured: Float[Tensor, "2"] | None = None
        """The largest of -x and of x since it was reset."""
        self.measures = False
        """Whether inputs in training mode are measured."""

    def __call__(self, module: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """Return the arguments of a map with rounded inputs."""
        x = inputs[0]
        if self.measures and module.training and x.numel():
            low, high = torch.aminmax(x.detach())
            extent = torch.stack([-low, high]).float()
            known = self.measured
            self.measured = extent if known is None else torch.maximum(known, extent)
        return None if self.quantization is None else (self.quantization.round(x), *inputs[1:])


@runtime_checkable
class RoundsInputs(Protocol):
    """A model of which modules may round their inputs."""

    input_quantizers: dict[str, InputQuantizer]
    """By names of modules, of which they are hooks."""

    def get_submodule(self, target: str) -> nn.Module:
        """Return a module by its name."""
        ...

    def named_modules(self) -> Iterator[tuple[str, nn.Module]]:
        """Return all modules by name, shared ones once."""
        ...


def input_names(model: RoundsInputs) -> list[str]:
    """Return the names of the modules whose inputs go into a matrix, shared ones once."""
    kinds = nn.Linear | ProjectionInput
    return [name for name, module in model.named_modules() if isinstance(module, kinds)]


def attach_quantizers(model: RoundsInputs, quantizers: Mapping[str, InputQuantizer]) -> None:
    """Let modules round their inputs, in place of what did so before.

    Raises:
        ValueError: the model has no such module.
    """
    known = set(input_names(model))
    if odd := sorted(set(quantizers) - known):
        raise ValueError(f"{odd[0]}: this model has no such linear layer")
    remove_quantizers(model)
    for name, quantizer in quantizers.items():
        model.get_submodule(name).register_forward_pre_hook(quantizer)
        model.input_quantizers[name] = quantizer


def remove_quantizers(model: RoundsInputs) -> None:
    """Let all modules compute with their inputs as they are."""
    for name, quantizer in model.input_quantizers.items():
        hooks = model.get_submodule(name)._forward_pre_hooks  # pyright: ignore[reportPrivateUsage]
        for key in [key for key, hook in hooks.items() if hook is quantizer]:
            del hooks[key]
    model.input_quantizers = {}


def quantized_inputs(model: RoundsInputs) -> dict[str, InputQuantization]:
    """Return how modules round their inputs, by name; empty: none does."""
    found = {name: one.quantization for name, one in model.input_quantizers.items()}
    return {name: one for name, one in found.items() if one is not None}


def attach_quantizations(model: RoundsInputs, found: Mapping[str, InputQuantization]) -> None:
    """Let modules round their inputs as `quantized_inputs` returned it; see `attach_quantizers`."""
    attach_quantizers(model, {name: InputQuantizer(one) for name, one in found.items()})


def describe_quantized_inputs(model: RoundsInputs) -> str | None:
    """Write how inputs are rounded: "inputs of 26 linear layers in 8 bits"; None: they are not."""
    found = quantized_inputs(model)
    bits = "/".join(str(bits) for bits in sorted({one.bits for one in found.values()}))
    return f"inputs of {len(found)} linear layers in {bits} bits" if found else None


_RANGE_PREFIX = "quantized_inputs."


def quantization_tensors(model: RoundsInputs) -> dict[str, Float[Tensor, "4"]]:
    """Return `quantized_inputs` as tensors, which `load_quantization_tensors` restores."""
    return {
        _RANGE_PREFIX + name: torch.tensor(
            [one.bits, one.low, one.high, one.symmetric], dtype=torch.float64
        )
        for name, one in quantized_inputs(model).items()
    }


def load_quantization_tensors(model: RoundsInputs, tensors: Mapping[str, Tensor]) -> None:
    """Restore what `quantization_tensors` returned, among other tensors; without any, none."""
    found: dict[str, InputQuantization] = {}
    for key, tensor in tensors.items():
        if key.startswith(_RANGE_PREFIX):
            bits, low, high, symmetric = tensor.tolist()
            found[key.removeprefix(_RANGE_PREFIX)] = InputQuantization(
                bits=int(bits), low=low, high=high, symmetric=bool(symmetric)
            )
    attach_quantizations(model, found)
