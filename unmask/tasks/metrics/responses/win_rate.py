"""Which of two responses to each prompt is better by the rewards of a judge, and how surely."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.stats import binomtest

from unmask.tasks.metrics.intervals import wilson_interval


@dataclass(frozen=True, kw_only=True)
class WinRate:
    """How often responses are better than others to the same prompts."""

    n_wins: int
    n_ties: int
    n_losses: int

    def __post_init__(self) -> None:
        if self.n_pairs < 1:
            raise ValueError("a win rate needs a pair of responses, got none")

    @property
    def n_pairs(self) -> int:
        """All pairs that were compared."""
        return self.n_wins + self.n_ties + self.n_losses

    @property
    def rate(self) -> float:
        """Share of wins; a tie is half a win."""
        return (self.n_wins + self.n_ties / 2) / self.n_pairs

    @property
    def interval(self) -> tuple[float, float]:
        """Bounds of the 95 % interval of the rate (Wilson 1927); wide where half of all is ties."""
        return wilson_interval(self.n_wins + self.n_ties / 2, self.n_pairs)

    @property
    def p_value(self) -> float:
        """Two-sided p value of the sign test, which leaves ties out; 1 if all are ties.

        Dixon and Mood 1946, doi:10.1080/01621459.1946.10501898.
        """
        n = self.n_wins + self.n_losses
        return float(binomtest(self.n_wins, n).pvalue) if n else 1.0


def win_rate(rewards: Float[np.ndarray, "n"], others: Float[np.ndarray, "_"]) -> WinRate:
    """Compare the rewards of two responses to each of n prompts.

    Args:
        rewards: of the responses that win or lose.
        others: of the responses that they are compared with, in the same order of prompts.

    Raises:
        ValueError: there is no pair, one has no partner, or a reward is not a number.

    Example:
        >>> found = win_rate(np.array([1.0, 2.0, 0.0, 3.0]), np.array([0.0, 2.0, 1.0, 1.0]))
        >>> found.rate, found.n_ties, found.p_value
        (0.625, 1, 1.0)
    """
    check_paired_rewards(rewards, others)
    return WinRate(
        n_wins=int((rewards > others).sum()),
        n_ties=int((rewards == others).sum()),
        n_losses=int((rewards < others).sum()),
    )


def check_paired_rewards(rewards: Float[np.ndarray, "_"], others: Float[np.ndarray, "_"]) -> None:
    """Check that two responses to each prompt have a reward.

    Raises:
        ValueError: one has no partner, or a reward is not a number.
    """
    if len(rewards) != len(others):
        raise ValueError(
            f"each response is compared with one other: got {len(rewards)} rewards and "
            f"{len(others)} of others"
        )
    for name, values in (("rewards", rewards), ("others", others)):
        if (bad := np.flatnonzero(np.isnan(values))).size:
            raise ValueError(f"{name}[{bad[0]}] must be a number, got nan")
