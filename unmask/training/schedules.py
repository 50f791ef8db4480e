"""Schedules: the share of the peak rate at each step, a pure function of step and steps.

Steps count from 1. No schedule wastes a step: the first is taken at a rate above zero, and so is
the last, since a decay reaches its end one step after it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

StepCount = int | float
"""A number of steps; a fraction below 1 is that fraction of all steps, rounded up."""

N_UNTIMED_STEPS = 2
"""Steps left out of a time measurement: the first ones fetch memory and warm caches."""


@dataclass(frozen=True)
class Constant:
    """The peak rate, after a warm-up."""

    warmup: StepCount = 0

    def __post_init__(self) -> None:
        _check_step_count("warmup", self.warmup)

    def factor(self, step: int, steps: int) -> float:
        """Return the share of the peak rate at `step` of `steps`."""
        return _warmup_factor(step, resolve_steps(self.warmup, steps))


@dataclass(frozen=True)
class Linear:
    """Up in a straight line, then down (Devlin et al. 2019, arXiv:1810.04805, appendix A.2)."""

    warmup: StepCount = 0.06

    def __post_init__(self) -> None:
        _check_step_count("warmup", self.warmup)

    def factor(self, step: int, steps: int) -> float:
        """Return the share of the peak rate at `step` of `steps`."""
        warmup = resolve_steps(self.warmup, steps)
        return (
            _warmup_factor(step, warmup)
            if step <= warmup
            else 1 - _decay_progress(step, warmup, steps)
        )


@dataclass(frozen=True)
class Cosine:
    """Up in a line, then along a cosine (Loshchilov and Hutter 2017, arXiv:1608.03983, eq. 5)."""

    warmup: StepCount = 0.06
    final_fraction: float = 0.1
    """Share of the peak rate at the end (a tenth: Brown et al. 2020, arXiv:2005.14165, B)."""

    def __post_init__(self) -> None:
        _check_step_count("warmup", self.warmup)
        if not 0 <= self.final_fraction <= 1:
            raise ValueError(
                f"schedule.final_fraction must be between 0 and 1, got {self.final_fraction}"
            )

    def factor(self, step: int, steps: int) -> float:
        """Return the share of the peak rate at `step` of `steps`."""
        warmup = resolve_steps(self.warmup, steps)
        if step <= warmup:
            return _warmup_factor(step, warmup)
        return (
            self.final_fraction
            + (1 - self.final_fraction)
            * (1 + math.cos(math.pi * _decay_progress(step, warmup, steps)))
            / 2
        )


@dataclass(frozen=True)
class InverseSquareRoot:
    """Up in a line, then down as 1 / sqrt(step) (Vaswani et al. 2017, arXiv:1706.03762, 5.3).

    With a `constant_warmup` beginning of 10,000 steps it is T5's (Raffel et al. 2020,
    arXiv:1910.10683, section 3.1.2).
    """

    warmup: StepCount = 0.06
    constant_warmup: bool = False
    """The peak rate until then, in place of a line up."""

    def __post_init__(self) -> None:
        _check_step_count("warmup", self.warmup)

    def factor(self, step: int, steps: int) -> float:
        """Return the share of the peak rate at `step` of `steps`."""
        warmup = max(resolve_steps(self.warmup, steps), 1)
        if step <= warmup:
            return 1.0 if self.constant_warmup else _warmup_factor(step, warmup)
        return math.sqrt(warmup / step)


@dataclass(frozen=True)
class Exponential:
    """The peak rate at first, then down by the same factor in every step (Zaremba et al. 2014)."""

    constant_steps: StepCount = 0.15
    """Of arXiv:1409.2329, section 4.1: 6 of 39 epochs for the medium model."""
    final_fraction: float = 0.0024
    """Share of the peak rate at the end: there, 1.2 to the power of -33."""

    def __post_init__(self) -> None:
        _check_step_count("constant_steps", self.constant_steps)
        if not 0 < self.final_fraction <= 1:
            raise ValueError(
                f"schedule.final_fraction must be above 0 and at most 1, got {self.final_fraction}"
            )

    @property
    def warmup(self) -> StepCount:
        """There is none."""
        return 0

    def factor(self, step: int, steps: int) -> float:
        """Return the share of the peak rate at `step` of `steps`."""
        flat = resolve_steps(self.constant_steps, steps)
        return 1.0 if step <= flat else self.final_fraction ** _decay_progress(step, flat, steps)


@dataclass(frozen=True)
class SlantedTriangular:
    """Up in a short line, then down in a long one, from and to a small share of the peak.

    Howard and Ruder 2018, arXiv:1801.06146, section 3.2, equation 3, with the paper's numbers.
    """

    warmup: StepCount = 0.1
    """The paper's `cut_frac`."""
    ratio: float = 32.0
    """How much smaller the lowest rate is than the peak."""

    def __post_init__(self) -> None:
        _check_step_count("warmup", self.warmup)
        if not self.ratio >= 1:
            raise ValueError(f"schedule.ratio must be at least 1, got {self.ratio}")

    def factor(self, step: int, steps: int) -> float:
        """Return the share of the peak rate at `step` of `steps`."""
        warmup = resolve_steps(self.warmup, steps)
        share = (
            _warmup_factor(step, warmup)
            if step <= warmup
            else 1 - _decay_progress(step, warmup, steps)
        )
        return (1 + share * (self.ratio - 1)) / self.ratio


@dataclass(frozen=True)
class WSD:
    """Warm-up, the peak rate, a decay of the last steps (Hu et al. 2024, arXiv:2404.06395, 4.2).

    `decay_shape`: "linear", or "sqrt" for 1 - sqrt(share of the decay), the better of the two in
    Hägele et al. 2024, arXiv:2405.18392, section 3.
    """

    warmup: StepCount = 0.06
    decay: StepCount = 0.2
    decay_shape: Literal["linear", "sqrt"] = "sqrt"

    def __post_init__(self) -> None:
        _check_step_count("warmup", self.warmup)
        _check_step_count("decay", self.decay)

    def factor(self, step: int, steps: int) -> float:
        """Return the share of the peak rate at `step` of `steps`."""
        warmup, decay = resolve_steps(self.warmup, steps), resolve_steps(self.decay, steps)
        if step <= warmup:
            return _warmup_factor(step, warmup)
        stable = max(steps - decay, warmup)
        if step <= stable:
            return 1.0
        done = _decay_progress(step, stable, steps)
        return 1 - (math.sqrt(done) if self.decay_shape == "sqrt" else done)


Schedule = Linear | Cosine | InverseSquareRoot | SlantedTriangular | Exponential | WSD | Constant


def resolve_steps(step_count: StepCount, steps: int) -> int:
    """Turn a number or share of steps into a number of steps."""
    return step_count if isinstance(step_count, int) else math.ceil(step_count * steps)


def steps_within(
    minutes: int | float, step_seconds: Sequence[float], *, spent_seconds: int | float = 0
) -> int:
    """Return the number of steps that fit into `minutes` less `spent_seconds`, from step times.

    The first two measurements are left out if there are more: they allocate, warm caches and
    compile. The number is rounded down to two digits (663 becomes 660, 12,345 becomes 12,000): that
    is the precision of the measurement; two runs on one machine then mostly take the same number of
    steps, and the time lost, about 3 %, pays for evaluations and checkpoints. At least one step.

    Raises:
        ValueError: `minutes` is not above zero, nothing was measured, or the clock stood still.
    """
    if not 0 < minutes < math.inf:
        raise ValueError(f"minutes must be above 0, got {minutes}")
    if not step_seconds:
        raise ValueError("no step was measured")
    # Steps in which the clock was set back have no duration.
    kept = [s for s in step_seconds[min(N_UNTIMED_STEPS, len(step_seconds) - 1) :] if s > 0]
    if not kept:
        raise ValueError(
            f"minutes = {minutes:g}: the clock did not go on in {len(step_seconds)} steps that "
            "were timed; give a number of steps"
        )
    fitting = int(max(minutes * 60 - spent_seconds, 0.0) / (sum(kept) / len(kept)))
    unit = 10 ** max(len(str(fitting)) - 2, 0)
    return max(fitting // unit * unit, 1)


def _check_step_count(name: str, step_count: StepCount) -> None:
    fits = step_count >= 0 if isinstance(step_count, int) else 0 <= step_count < 1
    if not fits:
        raise ValueError(
            f"schedule.{name} must be a whole number of steps or a share of them from 0 to below "
            f"1, got {step_count}"
        )


def _warmup_factor(step: int, warmup: int) -> float:
    return min(step / warmup, 1.0) if warmup else 1.0


def _decay_progress(step: int, start: int, steps: int) -> float:
    """Return the share of the way from step `start` to the one after the last."""
    return min((step - start) / (steps + 1 - start), 1.0) if steps >= start else 1.0
