"""Ranges of the inputs of linear layers: measured on calibration texts, or followed in training."""

from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from unmask.batch import Batch
from unmask.compression.calibration import watch_inputs
from unmask.compression.config import CalibratedFormat, QuantizationAware
from unmask.heads.model import Model
from unmask.model.layers.quantized_inputs import (
    InputQuantization,
    InputQuantizer,
    attach_quantizations,
    attach_quantizers,
    input_names,
    quantized_inputs,
    remove_quantizers,
)

DEFAULT_PERCENTILE, DEFAULT_DECAY = 99.99, 0.99
_MANTISSA_BITS = 23
_MANTISSA_BITS_LEFT = 10
"""Of a float32's mantissa in the number of a bin: its width is 2^-10 to 2^-11 of its values."""
_SHIFT = _MANTISSA_BITS - _MANTISSA_BITS_LEFT
_N_BINS = 1 << (8 + _MANTISSA_BITS_LEFT)
_RATIOS = tuple(2 ** (-i / 8) for i in range(41))
"""Ranges of `activation_range="mse"` as fractions of the largest: down to 1/32, as single inputs
may be much larger than all others."""


def quantizable_inputs(model: Model) -> list[str]:
    """Return the names of the linear layers whose inputs can be rounded.

    These are those of the weights that are kept after pretraining, and the output embeddings.

    Raises:
        ValueError: there are none.
    """
    heads = [name for name, spec in model.head_specs.items() if not spec.is_kept_after_pretraining]
    dropped = tuple(["adapters.", "training_modules.", *(f"heads.{name}." for name in heads)])
    names = [name for name in input_names(model) if not name.startswith(dropped)]
    if not any(name.startswith("backbone.") for name in names):
        raise ValueError("activations: this model has no linear layers whose inputs are rounded")
    return names


def quantize_inputs(model: Model, form: CalibratedFormat, batches: Sequence[Batch]) -> None:
    """Let the linear layers of a model round their inputs, in the ranges that they have on texts.

    Layers that the texts do not use stay as they are.

    Raises:
        ValueError: the model has no linear layers, or there are no texts.
        FloatingPointError: an input is not finite.
    """
    names = quantizable_inputs(model)
    if not batches:
        raise ValueError("activations need calibration texts: --data FILE")
    remove_quantizers(model)
    measured: dict[str, InputHistogram] = {}

    def see(name: str, x: Tensor) -> None:
        try:
            measured.setdefault(name, InputHistogram()).add(x)
        except FloatingPointError:
            raise FloatingPointError(
                f"an input of {name} is not finite: the weights are damaged"
            ) from None

    watch_inputs(model, names, batches, see)
    attach_quantizations(model, {n: x.quantization(form) for n, x in measured.items() if x.n})


class InputHistogram:
    """Counts of inputs by sign and magnitude, in bins of equal relative width, and the extremes."""

    def __init__(self) -> None:
        self.low = self.high = 0.0
        self._counts = torch.zeros(2 * _N_BINS, dtype=torch.int64)

    @property
    def n(self) -> int:
        """Number of inputs."""
        return int(self._counts.sum())

    def add(self, x: Float[Tensor, "*n"]) -> None:
        """Count some inputs.

        Raises:
            FloatingPointError: one is not finite.
        """
        flat = x.detach().float().cpu().reshape(-1)
        if not len(flat):
            return
        low, high = (float(end) for end in torch.aminmax(flat))
        if not (low > -torch.inf and high < torch.inf):  # nor NaN
            raise FloatingPointError("an input is not finite")
        self.low, self.high = min(self.low, low), max(self.high, high)
        bins = (flat.abs().view(torch.int32) >> _SHIFT) + (flat < 0).int() * _N_BINS
        self._counts += torch.bincount(bins, minlength=2 * _N_BINS)

    def quantization(self, form: CalibratedFormat) -> InputQuantization:
        """Return codes in the range that a format says."""
        kind = form.activation_range or "minmax"
        if kind == "percentile":
            return self._in_range(form, *self._percentiles(form))
        whole = self._in_range(form, self.low, self.high)
        if kind == "minmax":
            return whole
        values, counts = self._values()
        errors = {
            ratio: float((counts * (one.round(values) - values).double().square()).sum())
            for ratio in _RATIOS
            for one in [self._in_range(form, self.low * ratio, self.high * ratio)]
        }
        best = min(errors, key=errors.__getitem__)
        return self._in_range(form, self.low * best, self.high * best)

    def _in_range(self, form: CalibratedFormat, low: float, high: float) -> InputQuantization:
        assert form.activations is not None
        symmetric = form.activation_symmetric is not False
        return _quantization(form.activations, low, high, symmetric=symmetric)

    def _percentiles(self, form: CalibratedFormat) -> tuple[float, float]:
        percentile = form.activation_percentile
        fraction = (DEFAULT_PERCENTILE if percentile is None else percentile) / 100
        if fraction == 1:
            return self.low, self.high
        values, counts = self._values()
        if form.activation_symmetric is not False:
            high = _quantile(values.abs(), counts, fraction)
            return -high, high
        low = _quantile(values, counts, 1 - fraction)
        return min(low, 0.0), max(_quantile(values, counts, fraction), 0.0)

    def _values(self) -> tuple[Float[Tensor, "n"], Float[Tensor, "n"]]:
        """Return the middles of bins with inputs, within the extremes, and the counts of these."""
        bins = self._counts.nonzero()[:, 0]
        within = bins % _N_BINS
        half = torch.where(within == 0, 0, 1 << (_SHIFT - 1))  # zero is zero
        magnitudes = ((within << _SHIFT) + half).int().view(torch.float32)
        values = torch.where(bins < _N_BINS, magnitudes, -magnitudes).clamp(self.low, self.high)
        return values, self._counts[bins].double()


def _quantile(values: Float[Tensor, "n"], counts: Float[Tensor, "n"], fraction: float) -> float:
    """Return the smallest value that at least this fraction of all does not exceed."""
    order = values.argsort()
    reached = counts[order].cumsum(0) >= fraction * counts.sum()
    return float(values[order][int(reached.long().argmax())])


def _quantization(bits: int, low: float, high: float, *, symmetric: bool) -> InputQuantization:
    """Return codes for a range, which becomes wider if they are symmetric."""
    most = max(-low, high)
    low, high = (-most, most) if symmetric else (low, high)
    return InputQuantization(bits=bits, low=low, high=high, symmetric=symmetric)


class MovingRanges:
    """The ranges of the inputs of linear layers while a model is trained.

    r = decay r + (1 - decay) max|x| over the inputs x of each step, of all its micro-batches and
    processes, padding included; in the first step r = max|x|. A step computes with the ranges of
    the steps before, so that it does not depend on how its batch is divided; inputs of the first
    step are not rounded.
    """

    def __init__(self, model: Model, method: QuantizationAware) -> None:
        bits = method.activations
        assert bits is not None
        self._bits, self._is_symmetric = bits, method.activation_symmetric is not False
        given = method.activation_decay
        self._decay = DEFAULT_DECAY if given is None else given
        self._model, self._is_active = model, False
        self.ranges: dict[str, tuple[float, float]] = {
            name: (one.low, one.high) for name, one in quantized_inputs(model).items()
        }
        self._quantizers = {name: InputQuantizer() for name in quantizable_inputs(model)}
        for quantizer in self._quantizers.values():
            quantizer.measures = True
        attach_quantizers(model, self._quantizers)

    def activate(self, is_active: bool) -> None:
        """Round inputs, where their ranges are known, or do not."""
        self._is_active = is_active
        for name, quantizer in self._quantizers.items():
            quantizer.quantization = None
            if is_active and name in self.ranges:
                low, high = self.ranges[name]
                quantizer.quantization = _quantization(
                    self._bits, low, high, symmetric=self._is_symmetric
                )

    def begin_step(self) -> None:
        """Forget the inputs of the step before."""
        for quantizer in self._quantizers.values():
            quantizer.measured = None

    def take_step(self) -> None:
        """Move the ranges by the inputs of the step."""
        measured = [quantizer.measured for quantizer in self._quantizers.values()]
        nothing = torch.full((2,), -torch.inf, device=self._model.device)
        extents = torch.stack([nothing if x is None else x for x in measured])
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            torch.distributed.all_reduce(extents, torch.distributed.ReduceOp.MAX)
        is_measured = extents.isfinite().all(1).tolist()
        for name, (below, above), found in zip(
            self._quantizers, extents.double().tolist(), is_measured, strict=True
        ):
            if found:
                most = max(below, above)
                now = (-most, most) if self._is_symmetric else (min(-below, 0.0), max(above, 0.0))
                old, d = self.ranges.get(name, now), self._decay
                self.ranges[name] = (
                    d * old[0] + (1 - d) * now[0],
                    d * old[1] + (1 - d) * now[1],
                )
        self.activate(self._is_active)

    def state_tensors(self) -> dict[str, Tensor]:
        """Return the ranges by name."""
        return {
            f"range.{name}": torch.tensor(ends, dtype=torch.float64)
            for name, ends in self.ranges.items()
        }

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore what `state_tensors` returned; layers that had no range get none."""
        self.ranges = {}
        for name in self._quantizers:
            if f"range.{name}" in tensors:
                low, high = tensors[f"range.{name}"].tolist()
                self.ranges[name] = (low, high)
        self.activate(self._is_active)
