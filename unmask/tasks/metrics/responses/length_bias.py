"""How much of a preference is a preference of length.

Judges of many kinds prefer what is longer (Singhal et al. 2023, arXiv:2310.03716; Dubois et al.
2024, arXiv:2404.04475): a win rate is read beside these numbers.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Shaped
from scipy.stats import rankdata

from unmask.tasks.metrics.regression import pearson
from unmask.tasks.metrics.responses.win_rate import check_paired_rewards


@dataclass(frozen=True, kw_only=True)
class LengthBias:
    """Lengths of two sets of responses to the same prompts, and what a judge makes of length."""

    mean_length: float
    mean_other_length: float
    n_decided: int
    """Pairs of different lengths and different rewards."""
    longer_wins: float | None
    """Share of decided pairs whose longer response has the greater reward; None without any."""
    rank_correlation: float
    """Spearman's correlation of reward and length over the responses of both sets; 0 if all
    rewards, or all lengths, are the same."""


def length_bias(
    rewards: Float[np.ndarray, "n"],
    lengths: Shaped[np.ndarray, "_"],
    other_rewards: Float[np.ndarray, "_"],
    other_lengths: Shaped[np.ndarray, "_"],
) -> LengthBias:
    """Compare rewards with lengths.

    Args:
        rewards: of a response to each of n prompts.
        lengths: of these responses, in whatever unit.
        other_rewards: of another response to each prompt.
        other_lengths: of those.

    Raises:
        ValueError: there is no pair, one has no partner, or a reward is not a number.

    Example:
        >>> bias = length_bias(
        ...     np.array([1.0, 2.0]), np.array([9, 5]), np.array([0.0, 3.0]), np.array([4, 8])
        ... )
        >>> bias.longer_wins, bias.mean_length, bias.mean_other_length
        (1.0, 7.0, 6.0)
    """
    if not len(rewards):
        raise ValueError("the bias of length needs a pair of responses, got none")
    check_paired_rewards(rewards, other_rewards)
    if len(lengths) != len(rewards) or len(other_lengths) != len(rewards):
        raise ValueError(
            f"each of {len(rewards)} pairs must have two lengths, got {len(lengths)} and "
            f"{len(other_lengths)}"
        )
    is_longer = np.sign(lengths.astype(float) - other_lengths)
    agreement = is_longer * (1.0 * (rewards > other_rewards) - (rewards < other_rewards))
    n_decided = int((agreement != 0).sum())
    # rewards may be infinite: ranks, then Pearson's
    all_rewards = rankdata(np.concatenate((rewards, other_rewards)))
    all_lengths = rankdata(np.concatenate((lengths, other_lengths)))
    return LengthBias(
        mean_length=float(lengths.mean()),
        mean_other_length=float(other_lengths.mean()),
        n_decided=n_decided,
        longer_wins=int((agreement > 0).sum()) / n_decided if n_decided else None,
        rank_correlation=pearson(all_rewards, all_lengths),
    )
