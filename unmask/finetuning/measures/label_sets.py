"""How good sets of labels are: of a text any number of labels may be true.

All figures equal scikit-learn's; where that warns, it says 0, and so do these.
"""

import numpy as np
from jaxtyping import Bool, Float, Int

from unmask.finetuning.metrics import check_finite


def subset_accuracy(
    truth: Bool[np.ndarray, "n labels"], said: Bool[np.ndarray, "n labels"]
) -> float:
    """Compute the share of texts all of whose labels are right; 0 of nothing."""
    return float((truth == said).all(1).mean()) if len(truth) else 0.0


def micro_f1(truth: Bool[np.ndarray, "n labels"], said: Bool[np.ndarray, "n labels"]) -> float:
    """Compute the F1 of all labels of all texts as one; 0 where none is true and none is said."""
    return float(_f1(np.array([(truth & said).sum()]), np.array([truth.sum() + said.sum()]))[0])


def macro_f1(truth: Bool[np.ndarray, "n labels"], said: Bool[np.ndarray, "n labels"]) -> float:
    """Compute the mean F1 of all labels; that of a label never true and never said is 0."""
    scores = _f1((truth & said).sum(0), truth.sum(0) + said.sum(0))
    return float(scores.mean()) if len(scores) else 0.0


def ranking_precision(
    truth: Bool[np.ndarray, "n labels"], scores: Float[np.ndarray, "n labels"]
) -> float:
    """Compute label-ranking average precision; 0 of nothing.

    Of each true label the share of true ones among those that score no less, averaged over the
    labels of a text, then over texts (Schapire and Singer 2000, doi:10.1023/A:1007649029923). A
    text of which all labels are true, or none, counts 1.

    Raises:
        FloatingPointError: a score is not finite.
    """
    check_finite(scores)
    total = np.zeros(len(truth))
    for j in range(truth.shape[1]):
        above = scores >= scores[:, [j]]  # [n labels], itself included
        total += truth[:, j] * (above & truth).sum(1) / above.sum(1)
    n = truth.sum(1)
    each = np.where(n > 0, total / np.maximum(n, 1), 1.0)
    return float(each.mean()) if len(truth) else 0.0


def mean_average_precision(
    truth: Bool[np.ndarray, "n labels"], scores: Float[np.ndarray, "n labels"]
) -> float:
    """Compute the mean over labels of the area under precision by recall, without interpolation.

    That of a label which is never true is 0.

    Raises:
        FloatingPointError: a score is not finite.
    """
    check_finite(scores)
    each = [_average_precision(t, s) for t, s in zip(truth.T, scores.T, strict=True)]
    return float(np.mean(each)) if each else 0.0


def of_label_sets(
    truth: Bool[np.ndarray, "n labels"],
    said: Bool[np.ndarray, "n labels"],
    scores: Float[np.ndarray, "n labels"] | None = None,
) -> dict[str, float]:
    """Compute all figures of sets of labels; those of rankings only where there are scores.

    Raises:
        FloatingPointError: a score is not finite.
    """
    found = {
        "micro_f1": micro_f1(truth, said),
        "macro_f1": macro_f1(truth, said),
        "subset_accuracy": subset_accuracy(truth, said),
    }
    if scores is None:
        return found
    return found | {
        "ranking_precision": ranking_precision(truth, scores),
        "mean_average_precision": mean_average_precision(truth, scores),
    }


def _f1(right: Int[np.ndarray, "n"], asked: Int[np.ndarray, "n"]) -> Float[np.ndarray, "n"]:
    return 2 * right / np.maximum(asked, 1)


def _average_precision(truth: Bool[np.ndarray, "n"], scores: Float[np.ndarray, "n"]) -> float:
    """Add up precision over steps of recall; equal scores are one step."""
    if not truth.any():
        return 0.0
    order = np.argsort(-scores, kind="stable")
    ordered = scores[order]
    last = np.flatnonzero(np.append(ordered[1:] != ordered[:-1], True))
    found = np.cumsum(truth[order])[last]
    gained = np.diff(found, prepend=0)
    return float((gained * found / (last + 1)).sum() / found[-1])
