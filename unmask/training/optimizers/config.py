"""Optimizers as values: which, and with which settings."""

import math
from dataclasses import dataclass, field

from unmask.config import (
    MAX_LEARNING_RATE,
)

_MAX_WEIGHT_DECAY = 1e3
"""Of a weight decay, which a step multiplies by its rate."""


def check_between(name: str, value: float, low: float, high: float) -> None:
    """Check that `low <= value < high`."""
    if not low <= value < high:
        allowed = f"at least {low:g}" if high == math.inf else f"from {low:g} to below {high:g}"
        raise ValueError(f"{name} must be {allowed}, got {value}")


def _check_adam(betas: tuple[float, float], eps: float, weight_decay: float) -> None:
    for beta in betas:
        check_between("optimizer.betas", beta, 0.0, 1.0)
    check_between("optimizer.weight_decay", weight_decay, 0.0, _MAX_WEIGHT_DECAY)
    if not 0 < eps <= 1:
        raise ValueError(f"optimizer.eps must be above 0 and at most 1, got {eps}")


@dataclass(frozen=True, kw_only=True)
class AdamW:
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019, arXiv:1711.05101, algorithm 2).

    The defaults are RoBERTa's (Liu et al. 2019, arXiv:1907.11692, section 3.1 and table 9).
    """

    betas: tuple[float, float] = (0.9, 0.98)
    eps: float = 1e-6
    weight_decay: float = 0.01

    def __post_init__(self) -> None:
        _check_adam(self.betas, self.eps, self.weight_decay)


@dataclass(frozen=True, kw_only=True)
class LAMB:
    """Adam, scaled to each tensor's norm: large batches (You et al. 2020, arXiv:1904.00962)."""

    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-6
    weight_decay: float = 0.01

    def __post_init__(self) -> None:
        _check_adam(self.betas, self.eps, self.weight_decay)


@dataclass(frozen=True, kw_only=True)
class Muon:
    """Orthogonalized momentum (Jordan et al. 2024, kellerjordan.github.io/posts/muon).

    Tables, heads, biases and norms are moved by `other_parameters`. Updates are scaled to the size
    of AdamW's, so that one rate serves both (Liu et al. 2025, arXiv:2502.16982, section 2.2).
    """

    momentum: float = 0.95
    weight_decay: float = 0.1
    other_parameters: AdamW = field(default_factory=AdamW)

    def __post_init__(self) -> None:
        check_between("optimizer.momentum", self.momentum, 0.0, 1.0)
        check_between("optimizer.weight_decay", self.weight_decay, 0.0, _MAX_WEIGHT_DECAY)


@dataclass(frozen=True, kw_only=True)
class Adafactor:
    """Of squared gradients the sums over rows and columns alone are remembered.

    Shazeer and Stern 2018, arXiv:1804.04235, algorithm 4, without a mean of gradients. The rate is
    relative: a tensor moves by that share of its root mean square, the update's being at most 1
    (section 8); and never by more than 1 / sqrt(step), as in algorithm 4.
    """

    decay_rate: float = 0.8
    """Squared gradients are forgotten at 1 - step^-decay (section 7.2)."""
    clip_threshold: float = 1.0
    """The root mean square of an update, at most (section 6)."""
    min_parameter_scale: float = 1e-3
    """What a tensor of smaller numbers moves relative to."""
    eps: float = 1e-15
    """The smallest root of what is divided by: that of the paper's epsilon 1, 1e-30."""
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        check_between("optimizer.decay_rate", self.decay_rate, 0.0, 1.0 + 1e-9)
        check_between("optimizer.weight_decay", self.weight_decay, 0.0, _MAX_WEIGHT_DECAY)
        for name in ("clip_threshold", "min_parameter_scale", "eps"):
            if not 0 < getattr(self, name) <= MAX_LEARNING_RATE:
                raise ValueError(
                    f"optimizer.{name} must be above 0 and at most {MAX_LEARNING_RATE:g}, got "
                    f"{getattr(self, name)}"
                )


@dataclass(frozen=True, kw_only=True)
class SGD:
    """Each number goes down its gradient (Robbins and Monro 1951, doi:10.1214/aoms/1177729586)."""

    momentum: float = 0.0
    weight_decay: float = 0.0
    averaging_patience: int | None = None
    """Number of evaluations n of NT-ASGD: once the held-out loss exceeds the best of all but the
    last n evaluations, the weights of all following steps are averaged, evaluated and saved (Merity
    et al. 2018, arXiv:1708.02182, algorithm 1). None: never."""

    def __post_init__(self) -> None:
        check_between("optimizer.momentum", self.momentum, 0.0, 1.0)
        check_between("optimizer.weight_decay", self.weight_decay, 0.0, _MAX_WEIGHT_DECAY)
        if self.averaging_patience is not None and self.averaging_patience < 1:
            raise ValueError(
                f"optimizer.averaging_patience must be at least 1, got {self.averaging_patience}"
            )


OptimizerConfig = AdamW | LAMB | Muon | Adafactor | SGD
