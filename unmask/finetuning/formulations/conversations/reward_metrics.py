"""Metrics of rewards: whether their probabilities can be trusted, and whether length decides."""

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from jaxtyping import Float, Int

from unmask.tasks.metrics.calibration import calibration

N_BINS = 10
"""Of the probability of the predicted winner, from 0 to 1: five are above one half."""


def reward_metrics(
    rewards: Sequence[Float[np.ndarray, "_"]], lengths: Sequence[Int[np.ndarray, "_"]]
) -> dict[str, float]:
    """Compute metrics of comparisons, of all pairs of the responses to a prompt.

    - `calibration_error`: expected calibration error of sigmoid(r_w - r_l), the probability of the
      predicted winner (Bai et al. 2022, arXiv:2204.05862; Guo et al. 2017,
      arXiv:1706.04599, equation 3). Both orders of each pair would have the same.
    - `longer_chosen`: share of pairs whose better response is the longer one; `longer_preferred`:
      share of pairs whose longer response has the greater reward. Pairs of one length do not count.
    - `length_correlation`: Spearman's rank correlation of reward and length, of all responses.

    What is undefined, because lengths or rewards do not differ, is left out.

    Args:
        rewards: of the responses to each prompt, the best one first.
        lengths: of the same, in tokens.
    """
    from scipy.special import expit
    from scipy.stats import spearmanr

    pairs = [np.triu_indices(len(own), 1) for own in rewards]
    difference, longer = (
        np.concatenate([own[a] - own[b] for own, (a, b) in zip(values, pairs, strict=True)] or [[]])
        for values in (rewards, lengths)
    )
    if not len(difference):
        return {}
    shares = expit(difference.astype(np.float64))
    winners = np.zeros(len(shares), np.int64)
    found = {
        "calibration_error": calibration(winners, np.stack([shares, 1 - shares], 1), N_BINS).ece
    }
    if (longer != 0).any():
        sign, preferred = np.sign(longer[longer != 0]), np.sign(difference[longer != 0])
        found["longer_chosen"] = float((sign > 0).mean())
        found["longer_preferred"] = float((sign == preferred).mean())
    every, sizes = np.concatenate(rewards), np.concatenate(lengths)
    if len(np.unique(every)) > 1 and len(np.unique(sizes)) > 1:
        found["length_correlation"] = float(cast("Any", spearmanr(every, sizes)).statistic)
    return found
