"""Interruptions of a run: how often devices fail, what checkpoints and restarts cost.

Failures are a Poisson process, as in Young 1974 (Communications of the ACM 17(9), A first order
approximation to the optimum checkpoint interval) and Daly 2006 (doi:10.1016/j.future.2004.11.016):
every device has the same rate, and a failure of one ends the step of all. Symbols are Daly's: `M`
the mean time between failures, `δ` of writing a checkpoint, `R` of a restart, `τ` the training time
between two checkpoints.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from unmask.planning.energy import check_positive

DEFAULT_DEVICE_MTBF_HOURS = 54 * 24 * 16_384 / 419
"""Mean time between failures of a device: 419 unexpected interruptions in 54 days on 16,384 GPUs
(Llama team 2024, arXiv:2407.21783, section 3.3.4)."""
DEFAULT_RESTART_SECONDS = 600.0
"""From a failure to the next step: 10 minutes where all GPUs are synchronous (arXiv:2602.00277,
abstract)."""
CHECKPOINT_BYTES_PER_SECOND = 1e9
"""Of a process that writes a checkpoint: a general purpose network volume (Amazon EBS gp3, at most
1,000 MB/s)."""


def young_interval(checkpoint_seconds: int | float, mtbf_seconds: int | float) -> float:
    """Return the training time between checkpoints by Young 1974: sqrt(2 δ M).

    >>> young_interval(5 * 60, 24 * 3600) / 60
    120.0
    """
    return math.sqrt(2 * checkpoint_seconds * mtbf_seconds)


def daly_interval(checkpoint_seconds: int | float, mtbf_seconds: int | float) -> float:
    """Return the training time between checkpoints by Daly 2006, equation 37.

    sqrt(2 δ M) (1 + sqrt(δ / 2M) / 3 + (δ / 2M) / 9) - δ, or M if δ is at least 2 M.

    >>> round(daly_interval(5 * 60, 24 * 3600) / 60)  # figure 3
    117
    """
    if checkpoint_seconds >= 2 * mtbf_seconds:
        return float(mtbf_seconds)
    ratio = checkpoint_seconds / (2 * mtbf_seconds)
    series = 1 + math.sqrt(ratio) / 3 + ratio / 9
    return young_interval(checkpoint_seconds, mtbf_seconds) * series - checkpoint_seconds


@dataclass(frozen=True, kw_only=True)
class Interruptions:
    """How often a run is interrupted, and what a checkpoint and a restart take."""

    mtbf_seconds: int | float
    """Mean time between failures of all devices together."""
    checkpoint_seconds: int | float
    """Of writing a checkpoint, in which nothing is trained."""
    restart_seconds: int | float = DEFAULT_RESTART_SECONDS
    """From a failure to the next step."""

    def __post_init__(self) -> None:
        """Refuse times that nothing can take.

        Raises:
            ValueError: one is not above 0.
        """
        for name in ("mtbf_seconds", "checkpoint_seconds", "restart_seconds"):
            check_positive(name, getattr(self, name))

    @property
    def interval_seconds(self) -> float:
        """The training time between checkpoints that costs least (Daly 2006)."""
        return daly_interval(self.checkpoint_seconds, self.mtbf_seconds)

    def lost_share(self, interval_seconds: int | float) -> float:
        """Return the expected share of the time that trains nothing (Daly 2006, equation 20).

        1 - τ / (M exp(R / M) (exp((τ + δ) / M) - 1)): checkpoints, restarts and lost steps.
        """
        mtbf = self.mtbf_seconds
        exponent = (interval_seconds + self.checkpoint_seconds) / mtbf
        slowdown = self.restart_seconds / mtbf
        if exponent + slowdown > 700:  # beyond float64
            return 1.0
        return float(1 - interval_seconds / (mtbf * math.exp(slowdown) * math.expm1(exponent)))


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """What a run did from one start to the failure that ended it, or to its end."""

    first_step: int
    """Steps of the checkpoint that it started from."""
    end_step: int
    """Steps that were done when it failed."""
    saved_step: int
    """Steps of its last whole checkpoint; what follows is done again."""
    n_processes: int
    seconds: float
    """With its checkpoints, without the restart before it."""


@dataclass(frozen=True, kw_only=True)
class SimulatedRun:
    """A run as a list of attempts."""

    attempts: Sequence[Attempt]
    seconds: float
    """From the first start to the last step."""
    useful_seconds: float
    """Of the same steps without checkpoints and failures."""

    @property
    def lost_share(self) -> float:
        """Share of the time that trained nothing."""
        return 1 - self.useful_seconds / self.seconds

    @property
    def repeated_steps(self) -> int:
        """Steps that were done, lost, and done again."""
        return sum(one.end_step - one.saved_step for one in self.attempts)


@dataclass(frozen=True, kw_only=True)
class SimulatedJob:
    """A run to simulate: of so many steps, by processes that fail."""

    n_steps: int
    step_seconds: int | float
    """Of all `n_processes`; fewer take longer in proportion."""
    n_processes: int
    checkpoint_every: int
    """In steps."""
    interruptions: Interruptions
    """With the rate of all `n_processes`; fewer fail less often in proportion."""

    def run(
        self,
        draw: np.random.Generator,
        processes_after: Callable[[int], int] | None = None,
    ) -> SimulatedRun:
        """Simulate the run.

        Args:
            draw: of the failures.
            processes_after: the number of processes after the i-th failure (from 1), if it changes.
        """
        attempts = list[Attempt]()
        seconds = useful = 0.0
        saved, n = 0, self.n_processes
        while saved < self.n_steps:
            if attempts:
                n = n if processes_after is None else processes_after(len(attempts))
                seconds += self._restart_seconds(draw, n)
            made = self._attempt(saved, n, self._draw_failure(draw, n))
            attempts.append(made)
            seconds += made.seconds
            useful += (made.saved_step - saved) * self._step_seconds(n)
            saved = made.saved_step
        return SimulatedRun(attempts=attempts, seconds=seconds, useful_seconds=useful)

    def _step_seconds(self, n_processes: int) -> float:
        return float(self.step_seconds * self.n_processes / n_processes)

    def _draw_failure(self, draw: np.random.Generator, n_processes: int) -> float:
        """Draw how long nothing fails from now on."""
        mtbf = self.interruptions.mtbf_seconds * self.n_processes / n_processes
        return float(draw.exponential(mtbf))

    def _restart_seconds(self, draw: np.random.Generator, n_processes: int) -> float:
        """Draw how long a restart takes, which may fail itself."""
        own, seconds = self.interruptions.restart_seconds, 0.0
        while (failure := self._draw_failure(draw, n_processes)) < own:
            seconds += failure
        return float(seconds + own)

    def _attempt(self, first: int, n_processes: int, failure: float) -> Attempt:
        """Return what is done in the seconds until a failure.

        A checkpoint that is not whole is none. The last step is followed by no checkpoint.
        """
        step, every = self._step_seconds(n_processes), self.checkpoint_every
        period = every * step + self.interruptions.checkpoint_seconds
        left = self.n_steps - first
        n_before = (left - 1) // every
        whole = n_before * period + (left - n_before * every) * step
        if whole <= failure:
            end = saved = self.n_steps
        else:
            n_saved, rest = min(int(failure // period), n_before), failure
            rest -= n_saved * period
            saved = first + n_saved * every
            end = min(saved + min(int(rest // step), every), self.n_steps - 1)
        return Attempt(
            first_step=first,
            end_step=end,
            saved_step=saved,
            n_processes=n_processes,
            seconds=min(whole, failure),
        )


def surviving_steps(attempts: Sequence[Attempt]) -> Iterator[tuple[int, Attempt]]:
    """Yield the steps that made the final weights, in order, each with the attempt that did it."""
    for one in attempts:
        for step in range(one.first_step, one.saved_step):
            yield step, one
