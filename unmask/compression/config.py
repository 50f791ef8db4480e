"""Methods of compression as values: what they are, without what they do."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import ClassVar, Literal

from unmask.config import check_number_fields

LEVELS_OF_BITS = {1.0: 2, 1.58: 3, 2.0: 4, 3.0: 8, 4.0: 16, 8.0: 256}
"""Number of values of a code by the name of its size; 1.58 is log2(3), rounded."""
Scope = Literal["global", "layer"]


@dataclass(frozen=True, kw_only=True)
class QuantizationFormat:
    """Codes of few bits, and the weights that share a scale.

    With L levels and a range of magnitude r, a symmetric code is round(w / s) for
    s = r / (L / 2 - 1), within the range; an asymmetric one is round((w - minimum) / s) for
    s = (maximum - minimum) / (L - 1). At 1 bit a weight is its sign times the mean magnitude
    (Rastegari et al. 2016, arXiv:1603.05279, equation 6); with three levels it is that, or zero
    (Li et al. 2016, arXiv:1605.04711, equation 6).
    """

    bits: float = 8.0
    """Bits of a weight: 8, 4, 3, 2, 1.58 (three levels) or 1."""
    granularity: Literal["tensor", "channel", "group"] | None = None
    """Weights with a scale in common: of a tensor, of a row, or `group` successive ones of a row.
    None: channel for 8 bits, else group."""
    group: int = 64
    """Size of a group."""
    symmetric: bool | None = None
    """Whether codes are centered at zero; otherwise each scale has an offset. None: not at 2, 3 and
    4 bits."""
    clipping: Literal["minmax", "none", "percentile", "mse", "normal", "exact"] | None = None
    """Range of the weights: minmax, from the smallest to the largest (none in older records); to a
    percentile of their magnitudes;
    the one of 41 that gives the least squared error; of 2 bits, the one that does so for normally
    distributed weights of their mean and deviation (Max 1960, doi:10.1109/TIT.1960.1057548, table
    II); or, of weights that are values of such codes already, the one that keeps them (of others,
    from the smallest to the largest). None: minmax; at 2 bits mse, and in training normal, which
    needs no search in each step."""
    percentile: float = 99.9
    """Percentile of magnitudes that is the range of `clipping="percentile"`, from 50 to 100."""
    embedding_bits: float = 8.0
    """Bits of tables of tokens and positions, at least `bits`."""
    activations: int | None = None
    """Bits of the inputs of linear layers, from 2 to 16, with a scale for all inputs of a layer
    (Q8BERT: Zafrir et al. 2019, arXiv:1910.06188, section 2). None: floating point."""
    two_bit_clipping: ClassVar[Literal["mse", "normal"]] = "mse"
    """Range at 2 bits by default."""
    activation_symmetric: bool | None = None
    """Whether codes of inputs are centered at zero; otherwise they are from the smallest to the
    largest input. None: they are."""

    def __post_init__(self) -> None:
        check_number_fields(self)
        self._check_activations()
        known = ", ".join(f"{bits:g}" for bits in sorted(LEVELS_OF_BITS))
        for name in ("bits", "embedding_bits"):
            if getattr(self, name) not in LEVELS_OF_BITS:
                raise ValueError(f"{name} must be one of {known}, got {getattr(self, name):g}")
        if self.group < 1:
            raise ValueError(f"group must be at least 1, got {self.group}")
        if not 50 <= self.percentile <= 100:
            raise ValueError(f"percentile must be from 50 to 100, got {self.percentile:g}")
        if self.clipping == "normal" and self.bits != 2:
            raise ValueError(f"clipping=normal is of 2 bits, got {self.bits:g}")
        if self.bits < 2 and self.symmetric is False:
            raise ValueError("symmetric must be true for fewer than 2 bits, which are centered")

    def _check_activations(self) -> None:
        if self.activations is None:
            names = [f.name for f in fields(self) if f.name.startswith("activation_")]
            if given := [name for name in names if getattr(self, name) is not None]:
                raise ValueError(f"{given[0]} needs activations, such as activations=8")
        elif not 2 <= self.activations <= 16:
            raise ValueError(f"activations must be from 2 to 16 bits, got {self.activations}")


@dataclass(frozen=True, kw_only=True)
class CalibratedFormat(QuantizationFormat):
    """Codes after training; the ranges of inputs are those on calibration texts."""

    activation_range: Literal["minmax", "percentile", "mse"] | None = None
    """Range of the inputs of a linear layer: the largest on the texts; a percentile of them; or the
    one of 41 that gives the least squared error. None: minmax."""
    activation_percentile: float | None = None
    """Percentile of `activation_range="percentile"`, from 50 to 100: of the magnitudes if codes are
    symmetric, else of the inputs, with as many below the range as above. None: 99.99."""

    def __post_init__(self) -> None:
        super().__post_init__()
        percentile = self.activation_percentile
        if percentile is not None and not 50 <= percentile <= 100:
            raise ValueError(f"activation_percentile must be from 50 to 100, got {percentile:g}")
        if percentile is not None and self.activation_range != "percentile":
            raise ValueError("activation_percentile needs activation_range=percentile")


@dataclass(frozen=True, kw_only=True)
class QuantizationAware(QuantizationFormat):
    """Weights are rounded in every step of training, and gradients pass as if they were not.

    The straight-through estimator (Bengio et al. 2013, arXiv:1308.3432; Q8BERT: Zafrir et al. 2019,
    arXiv:1910.06188, section 2).
    """

    quantizes: ClassVar[bool] = True
    """Whether it rounds weights; the others set some to zero."""
    two_bit_clipping: ClassVar[Literal["mse", "normal"]] = "normal"

    start: float = 0.0
    """First step with codes, as a fraction of the steps, from 0 to below 1."""
    activation_decay: float | None = None
    """Decay of the moving average of the largest input, from 0 to below 1, with `activations`: the
    range of a layer's inputs is r = decay r + (1 - decay) max|x| after each step (section 2). None:
    0.99."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fraction("start", self.start)
        if self.activation_decay is not None:
            check_fraction("activation_decay", self.activation_decay)

    @property
    def depends_on_steps(self) -> bool:
        """Whether a step depends on the number of all steps."""
        return self.start > 0

    def first_final_step(self, n_steps: int) -> int:
        """Return the step after which the model is compressed as much as at the end."""
        return math.ceil(self.start * n_steps)


@dataclass(frozen=True, kw_only=True)
class GradualPruning:
    """Weights of the smallest magnitude are zero, more of them as training goes on.

    The fraction grows as a cubic function of the step from `start` to `end`, as in Zhu and Gupta
    2017, arXiv:1710.01878, equation 1; a weight that is zero has no gradient.
    """

    quantizes: ClassVar[bool] = False
    depends_on_steps: ClassVar[bool] = True

    fraction: float = 0.5
    """Final fraction of the layers' weights that is zero, from 0 to below 1."""
    scope: Scope = "layer"
    """Weights that are compared: of all matrices together, or of each matrix by itself."""
    start: float = 0.1
    """Step from which weights are pruned, as a fraction of the steps."""
    end: float = 0.7
    """Step at which the final fraction is reached, as a fraction of the steps."""
    interval: int = 10
    """Interval between choices of the weights that stay, in steps."""

    def __post_init__(self) -> None:
        check_number_fields(self)
        check_fraction("fraction", self.fraction)
        _check_schedule(self.start, self.end, self.interval)

    def first_final_step(self, n_steps: int) -> int:
        """Return the step after which the model is compressed as much as at the end."""
        return _first_choice(self.end, self.interval, n_steps)


@dataclass(frozen=True, kw_only=True)
class MovementPruning:
    """Weights that training moves towards zero are pruned (Sanh et al. 2020, arXiv:2005.07683).

    Each weight W has a score S; the model computes with W * M(S), and a step changes S by its
    gradient dL/dM = (dL/dW') * W, passed straight through M (equation 3).
    """

    quantizes: ClassVar[bool] = False
    depends_on_steps: ClassVar[bool] = True

    fraction: float = 0.5
    """Final fraction of the layers' weights that is zero, from 0 to below 1. With a `threshold`:
    not used."""
    threshold: float | None = None
    """Soft movement pruning: a weight stays while sigmoid(S) is above this threshold, from 0 to 1;
    `penalty` makes scores smaller (section 4, regularization). None: the weights with the largest
    scores stay."""
    penalty: float = 0.0
    """Factor of the mean of sigmoid(S) in the loss, with a `threshold`; it grows from 0 to this
    value as the fraction of zeros does."""
    score_learning_rate: float = 1e-2
    """Peak learning rate of the scores, by Adam; its schedule is that of the weights (appendix
    A.1)."""
    scope: Scope = "layer"
    """Weights whose scores are compared: of all matrices together, or of each matrix by itself
    (released code)."""
    start: float = 0.1
    """Step from which weights are pruned, as a fraction of the steps."""
    end: float = 0.7
    """Step at which the final fraction is reached, as a fraction of the steps."""
    interval: int = 1
    """Interval between choices of the weights that stay, in steps."""

    def __post_init__(self) -> None:
        check_number_fields(self)
        check_fraction("fraction", self.fraction)
        _check_schedule(self.start, self.end, self.interval)
        if self.threshold is not None and not 0 < self.threshold < 1:
            raise ValueError(f"threshold must be between 0 and 1, got {self.threshold:g}")
        if self.penalty and self.threshold is None:
            raise ValueError(f"penalty = {self.penalty:g} needs a threshold, such as 0.1")
        for name in ("penalty", "score_learning_rate"):
            if not 0 <= getattr(self, name) <= 1e6:
                raise ValueError(f"{name} must be from 0 to 1e6, got {getattr(self, name):g}")

    def first_final_step(self, n_steps: int) -> int:
        """Return the step after which the model is compressed as much as at the end."""
        return _first_choice(self.end, self.interval, n_steps)


@dataclass(frozen=True, kw_only=True)
class KeepZeros:
    """Weights of the layers' matrices that are zero at the beginning stay zero."""

    quantizes: ClassVar[bool] = False
    depends_on_steps: ClassVar[bool] = False

    def first_final_step(self, n_steps: int) -> int:
        """Return the step after which the model is compressed as much as at the end."""
        return 0


@dataclass(frozen=True, kw_only=True)
class MaskSource:
    """Weights of the layers' matrices that are zero, by another model with the same layers."""

    source: str
    """Model whose zeros they are: a run folder, a folder in the Hugging Face layout, hf:owner/name
    or the bundled model; or a file of masks (.safetensors), by our names of the weights."""
    fraction: float | None = None
    """Fraction of the weights that is zero, those of the smallest magnitude in the source; from 0
    to below 1. None: the source's zeros."""
    scope: Scope = "global"
    """Weights that `fraction` compares: of all matrices together, or of each matrix by itself."""
    shuffle: int | None = None
    """Random seed by which the zeros of each matrix are put at random places in it: the random mask
    with the same number of weights in each layer. None: where they are."""

    def __post_init__(self) -> None:
        check_number_fields(self)
        if not self.source:
            raise ValueError("source must name a model or a file of masks, got ''")
        if self.fraction is not None:
            check_fraction("fraction", self.fraction)
        if self.shuffle is not None and self.shuffle < 0:
            raise ValueError(f"shuffle must be a seed, at least 0, got {self.shuffle}")


@dataclass(frozen=True, kw_only=True)
class GivenMask(MaskSource):
    """Weights that are zero in another model are zero from a step on (a lottery ticket).

    With `start` = k / T the weights are those of step k of the training without a mask with the
    same seed, which goes on with the mask: rewinding to an early step (Frankle et al. 2020,
    arXiv:1912.05671, section 3). With 0, to the initial weights (Frankle and Carbin 2019,
    arXiv:1803.03635, section 2).
    """

    quantizes: ClassVar[bool] = False

    start: float = 0.0
    """First step with the mask, as a fraction of the steps, from 0 to below 1."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fraction("start", self.start)

    @property
    def depends_on_steps(self) -> bool:
        """Whether a step depends on the number of all steps."""
        return self.start > 0

    def first_final_step(self, n_steps: int) -> int:
        """Return the step after which the model is compressed as much as at the end."""
        return math.ceil(self.start * n_steps)


@dataclass(frozen=True, kw_only=True)
class HeadGates:
    """Attention heads are closed by gates with an L0 penalty, and removed after training.

    A gate with the Hard Concrete distribution multiplies the output of each head, and the loss has
    lambda times the expected number of open gates (Voita et al. 2019, arXiv:1905.09418, section 5).
    Query heads that share a key and value head have one gate. From `end` on gates have their values
    without noise, and the heads that are left are trained on.
    """

    quantizes: ClassVar[bool] = False
    depends_on_steps: ClassVar[bool] = True

    penalty: float = 0.05
    """Factor lambda of the expected number of open gates in the loss; larger ones close more."""
    gate_learning_rate: float = 0.05
    """Peak learning rate of log alpha, by Adam; its schedule is that of the weights."""
    initial: float = 2.0
    """Initial log alpha, from -10 to 10; at 2 a gate is open with probability 0.97."""
    end: float = 0.7
    """Last step with noise and penalty, as a fraction of the steps."""
    seed: int = 0
    """Random seed of the noise."""

    def __post_init__(self) -> None:
        check_number_fields(self)
        for name in ("penalty", "gate_learning_rate"):
            if not 0 <= getattr(self, name) <= 1e6:
                raise ValueError(f"{name} must be from 0 to 1e6, got {getattr(self, name):g}")
        if not -10 <= self.initial <= 10:
            raise ValueError(f"initial must be from -10 to 10, got {self.initial:g}")
        if not 0 <= self.end <= 1:
            raise ValueError(f"end must be from 0 to 1, got {self.end:g}")
        if not 0 <= self.seed < 2**30:
            raise ValueError(f"seed must be from 0 to below 2^30, got {self.seed}")

    def first_final_step(self, n_steps: int) -> int:
        """Return the step after which the gates are those of the end."""
        return math.ceil(self.end * n_steps)


TrainingCompression = (
    QuantizationAware | GradualPruning | MovementPruning | KeepZeros | GivenMask | HeadGates
)
"""What acts on weights while they are trained."""
TRAINING_METHODS: dict[str, type[TrainingCompression]] = {
    "qat": QuantizationAware,
    "gradual": GradualPruning,
    "movement": MovementPruning,
    "keep_zeros": KeepZeros,
    "mask": GivenMask,
    "gates": HeadGates,
}
"""By their words."""


def check_training_methods(methods: tuple[TrainingCompression, ...]) -> None:
    """Check that weights are pruned by at most one method and then quantized by at most one.

    Raises:
        ValueError: they are not.
    """
    quantizing = [method.quantizes for method in methods]
    if len(methods) > 2 or quantizing[:-1].count(True) or quantizing.count(False) > 1:
        raise ValueError(
            "compression: at most one method that prunes (gradual, movement, keep_zeros, mask, "
            "gates), "
            f"then at most one that quantizes (qat), got {len(methods)}"
        )


def check_fraction(name: str, value: float) -> None:
    """Check a fraction of what is removed.

    Raises:
        ValueError: it is not from 0 to below 1.
    """
    if not 0 <= value < 1:
        raise ValueError(f"{name} must be from 0 to below 1, got {value:g}")


def _first_choice(end: float, interval: int, n_steps: int) -> int:
    """Return the first step at which weights are chosen by the final fraction."""
    return min(math.ceil(end * n_steps / interval) * interval, n_steps)


def _check_schedule(start: float, end: float, interval: int) -> None:
    if not 0 <= start <= end <= 1:
        raise ValueError(f"start and end must be from 0 to 1 in this order, got {start:g}, {end:g}")
    if interval < 1:
        raise ValueError(f"interval must be at least 1, got {interval}")
