"""95 % intervals of scores: what other examples of the same kind would have given.

Percentiles of a bootstrap (Efron and Tibshirani 1993, An Introduction to the Bootstrap, section
13.3), and Wilson's interval of a proportion.
"""

from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from jaxtyping import Float, Int

CONFIDENCE = 0.95
N_RESAMPLES = 2000
"""Bootstrap samples."""
_QUANTILES = (0.025, 0.975)


@dataclass(frozen=True)
class Estimate:
    """A score with its 95 % interval."""

    value: float
    low: float
    high: float


def bootstrap_interval(
    differences: Float[np.ndarray, "n"], rng: np.random.Generator
) -> tuple[float, float]:
    """Return the 95 % interval of a mean over texts, by resampling them (percentile bootstrap)."""
    drawn = rng.integers(0, len(differences), (N_RESAMPLES, len(differences)))
    low, high = np.quantile(differences[drawn].mean(1), _QUANTILES)
    return float(low), float(high)


def bootstrap_estimates(
    statistics: Callable[[Int[np.ndarray, "n"]], Float[np.ndarray, "k"]],
    n_units: int,
    rng: np.random.Generator,
) -> list[Estimate]:
    """Estimate k statistics, with intervals by resampling the n units that they are computed from.

    Args:
        statistics: computes the statistics, given how often each unit is drawn.
        n_units: number of units, such as images, each with all that belongs to it.
        rng: random number generator.
    """
    samples = np.stack(
        [
            statistics(np.bincount(rng.integers(0, n_units, n_units), minlength=n_units))
            for _ in range(N_RESAMPLES)
        ]
    )
    values = statistics(np.ones(n_units, np.int64))
    bounds = np.quantile(samples, _QUANTILES, axis=0)
    return [
        Estimate(float(value), float(low), float(high))
        for value, low, high in zip(values, *bounds, strict=True)
    ]


def wilson_interval(successes: int | float, n: int) -> tuple[float, float]:
    """Return the 95 % score interval of a proportion (Wilson 1927; Brown et al. 2001, equation 4).

    (p + z²/2n ± z sqrt(p(1 - p)/n + z²/4n²)) / (1 + z²/n); halves of successes are allowed.

    Example:
        >>> low, high = wilson_interval(8.0, 10)
        >>> f"{low:.3f} {high:.3f}"
        '0.490 0.943'
    """
    z, p = NormalDist().inv_cdf((1 + CONFIDENCE) / 2), successes / n
    half = z * (p * (1 - p) / n + z * z / (4 * n * n)) ** 0.5
    center, scale = p + z * z / (2 * n), 1 + z * z / n
    return max(0.0, (center - half) / scale), min(1.0, (center + half) / scale)
