"""Accuracies of groups of items, with binomial intervals."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from unmask.tasks.metrics.intervals import wilson_interval

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
