"""Steps whose loss or gradient is far above those before: a spike, which may be skipped."""

import math
import statistics
from dataclasses import dataclass

WINDOW = 128
"""Steps by which the next one is judged."""


@dataclass(frozen=True)
class RecentSteps:
    """Losses and gradient norms of the last steps with finite ones, skipped or not.

    That of spikes too, as in OLMo-core's `SkipStepOptimizer`: a level that stays is soon none.
    """

    losses: tuple[float, ...] = ()
    gradient_norms: tuple[float, ...] = ()

    def is_spike(self, loss: float, gradient_norm: float, n_deviations: int | float) -> bool:
        """Return whether a step is so many standard deviations above the mean of these.

        Not before there are `WINDOW` of them.
        """
        return _is_above(self.losses, loss, n_deviations) or _is_above(
            self.gradient_norms, gradient_norm, n_deviations
        )

    def add(self, loss: float, gradient_norm: float) -> "RecentSteps":
        """Return these with a step more; the oldest goes."""
        return RecentSteps(
            (*self.losses, loss)[-WINDOW:], (*self.gradient_norms, gradient_norm)[-WINDOW:]
        )


def _is_above(values: tuple[float, ...], value: float, n_deviations: int | float) -> bool:
    if len(values) < WINDOW or not math.isfinite(value):
        return False
    return value > statistics.fmean(values) + n_deviations * statistics.stdev(values)
