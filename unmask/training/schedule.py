"""Schedules: the share of the peak rate at each step, a pure function of step and steps.

Steps count from 1. No schedule wastes a step: the first is taken at a rate above zero, and so is
the last, since a decay reaches its end one step after it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Steps = int | float
"""A whole number is so many steps; a fraction below 1 that share of the steps, rounded up."""

DROPPED = 2
"""Steps left out of a time measurement: the first ones fetch memory and warm caches."""


@dataclass(frozen=True)
class Constant:
    """The peak rate, after a warm-up."""

    warmup: Steps = 0

    def __post_init__(self) -> None:
        _check("warmup", self.warmup)

    def rate(self, step: int, steps: int) -> float:
        """Return the share of the peak rate at `step` of `steps`."""
        return _warm(step, count(self.warmup, steps))


@dataclass(frozen=True)
class Linear:
    """Up in a straight line, then down (Devlin et al. 2019, arXiv:1810.04805, appendix A.2)."""

    warmup: Steps = 0.06

    def __post_init__(self) -> None:
        _check("warmup", self.warmup)

    def rate(self, step: int, steps: int) -> float:
        """Return the share of the peak rate at `step` of `steps`."""
        warmup = count(self.warmup, steps)
        return _warm(step, warmup) if step <= warmup else 1 - _done(step, warmup, steps)


@dataclass(frozen=True)
class Cosine:
    """Up in a line, then along a cosine (Loshchilov and Hutter 2017, arXiv:1608.03983, eq. 5)."""

    warmup: Steps = 0.06
    floor: float = 0.1
    """Share of the peak rate at the end (a tenth: Brown et al. 2020, arXiv:2005.14165, B)."""

    def __post_init__(self) -> None:
        _check("warmup", self.warmup)
        if not 0 <= self.floor <= 1:
            raise ValueError(f"schedule.floor must be between 0 and 1, got {self.floor}")

    def rate(self, step: int, steps: int) -> float:
        """Return the share of the peak rate at `step` of `steps`."""
        warmup = count(self.warmup, steps)
        if step <= warmup:
            return _warm(step, warmup)
        return (
            self.floor + (1 - self.floor) * (1 + math.cos(math.pi * _done(step, warmup, steps))) / 2
        )


@dataclass(frozen=True)
class InverseSquareRoot:
    """Up in a line, then down as 1 / sqrt(step) (Vaswani et al. 2017, arXiv:1706.03762, 5.3).

    With a `flat` beginning of 10,000 steps it is T5's (Raffel et al. 2020, arXiv:1910.10683,
    section 3.1.2).
    """

    warmup: Steps = 0.06
    flat: bool = False
    """The peak rate until then, in place of a line up."""

    def __post_init__(self) -> None:
        _check("warmup", self.warmup)

    def rate(self, step: int, steps: int) -> float:
        """Return the share of the peak rate at `step` of `steps`."""
        warmup = max(count(self.warmup, steps), 1)
        if step <= warmup:
            return 1.0 if self.flat else _warm(step, warmup)
        return math.sqrt(warmup / step)


@dataclass(frozen=True)
class Exponential:
    """The peak rate at first, then down by the same factor in every step (Zaremba et al. 2014)."""

    flat: Steps = 0.15
    """Of arXiv:1409.2329, section 4.1: 6 of 39 epochs for the medium model."""
    floor: float = 0.0024
    """Share of the peak rate at the end: there, 1.2 to the power of -33."""

    def __post_init__(self) -> None:
        _check("flat", self.flat)
        if not 0 < self.floor <= 1:
            raise ValueError(f"schedule.floor must be above 0 and at most 1, got {self.floor}")

    @property
    def warmup(self) -> Steps:
        """There is none."""
        return 0

    def rate(self, step: int, steps: int) -> float:
        """Return the share of the peak rate at `step` of `steps`."""
        flat = count(self.flat, steps)
        return 1.0 if step <= flat else self.floor ** _done(step, flat, steps)


@dataclass(frozen=True)
class SlantedTriangle:
    """Up in a short line, then down in a long one, from and to a small share of the peak.

    Howard and Ruder 2018, arXiv:1801.06146, section 3.2, equation 3, with the paper's numbers.
    """

    warmup: Steps = 0.1
    """The paper's `cut_frac`."""
    ratio: float = 32.0
    """How much smaller the lowest rate is than the peak."""

    def __post_init__(self) -> None:
        _check("warmup", self.warmup)
        if not self.ratio >= 1:
            raise ValueError(f"schedule.ratio must be at least 1, got {self.ratio}")

    def rate(self, step: int, steps: int) -> float:
        """Return the share of the peak rate at `step` of `steps`."""
        warmup = count(self.warmup, steps)
        share = _warm(step, warmup) if step <= warmup else 1 - _done(step, warmup, steps)
        return (1 + share * (self.ratio - 1)) / self.ratio


@dataclass(frozen=True)
class WSD:
    """Warm-up, the peak rate, a decay of the last steps (Hu et al. 2024, arXiv:2404.06395, 4.2).

    `shape`: "linear", or "sqrt" for 1 - sqrt(share of the decay), the better of the two in Hägele
    et al. 2024, arXiv:2405.18392, section 3.
    """

    warmup: Steps = 0.06
    decay: Steps = 0.2
    shape: Literal["linear", "sqrt"] = "sqrt"

    def __post_init__(self) -> None:
        _check("warmup", self.warmup)
        _check("decay", self.decay)

    def rate(self, step: int, steps: int) -> float:
        """Return the share of the peak rate at `step` of `steps`."""
        warmup, decay = count(self.warmup, steps), count(self.decay, steps)
        if step <= warmup:
            return _warm(step, warmup)
        stable = max(steps - decay, warmup)
        if step <= stable:
            return 1.0
        done = _done(step, stable, steps)
        return 1 - (math.sqrt(done) if self.shape == "sqrt" else done)


Schedule = Linear | Cosine | InverseSquareRoot | SlantedTriangle | Exponential | WSD | Constant


def count(share: Steps, steps: int) -> int:
    """Turn a number or share of steps into a number of steps."""
    return share if isinstance(share, int) else math.ceil(share * steps)


def steps_for(minutes: int | float, measured: Sequence[float], *, spent: int | float = 0) -> int:
    """Say how many steps fit into `minutes`, from what some steps took; `spent` seconds are gone.

    The first two measurements are left out where there are more: they fetch memory, warm caches,
    compile. The number is rounded down to two digits (663 becomes 660, 12,345 becomes 12,000): the
    measurement is no better than that, two runs on one machine then mostly take the same number of
    steps, and the time that is given away, some 3 %, pays for evaluations and checkpoints. At least
    one step.

    Raises:
        ValueError: `minutes` is not above zero, or nothing was measured.
    """
    if not 0 < minutes < math.inf:
        raise ValueError(f"minutes must be above 0, got {minutes}")
    if not measured:
        raise ValueError("no step was measured")
    kept = measured[min(DROPPED, len(measured) - 1) :]
    fitting = int(max(minutes * 60 - spent, 0.0) / max(sum(kept) / len(kept), 1e-9))
    unit = 10 ** max(len(str(fitting)) - 2, 0)
    return max(fitting // unit * unit, 1)


def _check(name: str, share: Steps) -> None:
    fits = share >= 0 if isinstance(share, int) else 0 <= share < 1
    if not fits:
        raise ValueError(
            f"schedule.{name} must be a whole number of steps or a share of them from 0 to below "
            f"1, got {share}"
        )


def _warm(step: int, warmup: int) -> float:
    return min(step / warmup, 1.0) if warmup else 1.0


def _done(step: int, begin: int, steps: int) -> float:
    """Return the share of the way from step `begin` to the one after the last."""
    return min((step - begin) / (steps + 1 - begin), 1.0) if steps >= begin else 1.0
