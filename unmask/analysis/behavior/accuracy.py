"""Accuracies of groups of items, with binomial intervals."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.stats import norm

CONFIDENCE = 0.95
_DECIMALS = 6


@dataclass(frozen=True, kw_only=True)
class GroupAccuracy:
    """The accuracy on the items of a group."""

    name: str
    n_items: int
    n_ties: int
    """Items whose credit is neither 0 nor 1."""
    accuracy: float
    """Mean credit, from 0 to 1."""
    low: float
    high: float
    """Bounds of the 95 % interval."""

    @staticmethod
    def of(name: str, credits: Float[np.ndarray, "n"]) -> "GroupAccuracy":
        """Average the credits of items: 1 where right, 0 where wrong, between where tied."""
        low, high = wilson_interval(float(credits.sum()), len(credits))
        return GroupAccuracy(
            name=name,
            n_items=len(credits),
            n_ties=int(((credits > 0) & (credits < 1)).sum()),
            accuracy=float(credits.mean()),
            low=low,
            high=high,
        )

    def to_json(self) -> dict[str, Any]:
        """Return the accuracy as plain data."""
        return {
            name: round(value, _DECIMALS) if isinstance(value, float) else value
            for name, value in vars(self).items()
        }


def group_accuracies(
    groups: Sequence[str], credits: Float[np.ndarray, "n"]
) -> tuple[GroupAccuracy, ...]:
    """Return the accuracy of each group, in the order in which groups appear.

    Args:
        groups: the group of each item.
        credits: of each item, from 0 to 1.
    """
    found = np.array(groups, object)
    return tuple(GroupAccuracy.of(name, credits[found == name]) for name in dict.fromkeys(groups))


def wilson_interval(successes: float, n: int) -> tuple[float, float]:
    """Return the 95 % score interval of a proportion (Wilson 1927; Brown et al. 2001, equation 4).

    (p + z²/2n ± z sqrt(p(1 - p)/n + z²/4n²)) / (1 + z²/n); halves of successes are allowed.

    Example:
        >>> low, high = wilson_interval(8.0, 10)
        >>> f"{low:.3f} {high:.3f}"
        '0.490 0.943'
    """
    z, p = float(norm.ppf((1 + CONFIDENCE) / 2)), successes / n
    half = z * (p * (1 - p) / n + z * z / (4 * n * n)) ** 0.5
    center, scale = p + z * z / (2 * n), 1 + z * z / n
    return max(0.0, (center - half) / scale), min(1.0, (center + half) / scale)
