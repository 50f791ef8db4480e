"""The accuracy of choices: of some options, scored one by one, the highest is taken."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from unmask.tasks.metrics.regression import check_finite


def choice_accuracy(labels: Sequence[int], scores: Sequence[Float[np.ndarray, "_"]]) -> float:
    """Compute the share of questions whose right option scores highest; 0 of nothing.

    Where others score just as high it is a part of a question: one of two counts half, one of k
    1 / k, what drawing one of them would give on average.

    Args:
        labels: which option of each question is right.
        scores: of the options of each question; questions may have different numbers of them.

    Raises:
        FloatingPointError: a score is not finite.
        ValueError: a question has no such option.
    """
    total = 0.0
    for i, (right, options) in enumerate(zip(labels, scores, strict=True)):
        if not 0 <= right < len(options):
            raise ValueError(f"question {i} has {len(options)} options, and no option {right}")
        check_finite(options)
        best = options == options.max()
        total += float(best[right]) / float(best.sum())
    return total / len(labels) if len(labels) else 0.0
