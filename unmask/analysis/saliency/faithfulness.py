"""How faithful attributions are: what a decision loses without the words that they name first."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from unmask.analysis.saliency.decisions import EmbeddedDecision

FRACTIONS = (0.01, 0.05, 0.1, 0.2, 0.5)
"""Fractions of the words of a text, the most important ones (DeYoung et al. 2020, section 4.2)."""


@dataclass(frozen=True)
class RemovalCurve:
    """A decision without, and with only, the most important words, at each of `FRACTIONS`."""

    comprehensiveness: Float[np.ndarray, "fractions"]
    """p of the whole text minus p without these words: high if they matter."""
    sufficiency: Float[np.ndarray, "fractions"]
    """p of the whole text minus p of these words alone: low if they are enough."""
    nothing: float
    """p of the whole text minus p of none of its words: the sufficiency of no words."""

    @property
    def area(self) -> tuple[float, float]:
        """Both, averaged over fractions, those of no words included.

        The area over the perturbation curve (DeYoung et al. 2020, equation 3): the sum over k = 0
        to |B| by |B| + 1. Without no words, nothing is lost; with no words, `nothing`.
        """
        n = len(FRACTIONS) + 1
        return (
            float(self.comprehensiveness.sum()) / n,
            (self.nothing + float(self.sufficiency.sum())) / n,
        )


def removal_curve(embedded: EmbeddedDecision, words: Float[np.ndarray, "w"]) -> RemovalCurve:
    """Measure comprehensiveness and sufficiency of attributions to words.

    DeYoung et al. 2020, arXiv:1911.03429, section 4.2. Of a fraction of the words, the number is
    rounded up; those with the highest attributions are taken, the first of equals.

    Deviates: words are not deleted, but replaced by the baseline's embedding, as in the methods.
    Positions and the number of tokens stay as they are.

    Args:
        embedded: the decision.
        words: what is attributed to each word.
    """
    named = named_words(words)
    none = torch.zeros(1, len(words), dtype=torch.bool)
    kept = torch.cat((~named, named, none))
    lost = embedded.probability - embedded.score_kept(kept).probability.double().numpy()
    n = len(FRACTIONS)
    return RemovalCurve(lost[:n], lost[n : 2 * n], float(lost[-1]))


def named_words(words: Float[np.ndarray, "w"]) -> Bool[Tensor, "fractions w"]:
    """Return which words are the most important ones, at each of `FRACTIONS`."""
    rank = np.empty(len(words), np.int64)
    rank[np.argsort(-words, kind="stable")] = np.arange(len(words))
    counts = [math.ceil(fraction * len(words)) for fraction in FRACTIONS]
    return torch.from_numpy(rank[None] < np.array(counts)[:, None])


def mean_curve(curves: Sequence[RemovalCurve]) -> RemovalCurve:
    """Return the mean of several curves of one text."""
    return RemovalCurve(
        np.mean([one.comprehensiveness for one in curves], 0),
        np.mean([one.sufficiency for one in curves], 0),
        float(np.mean([one.nothing for one in curves])),
    )
