"""Regression metrics: correlations of SciPy and the mean squared error of scikit-learn.

Every metric is finite for finite numbers; others raise an error.
"""

from typing import Any, cast

import numpy as np
from jaxtyping import Float

from unmask.tasks.metrics.classification import import_sklearn_metrics


def pearson(labels: Float[np.ndarray, "n"], predictions: Float[np.ndarray, "n"]) -> float:
    """Compute the linear correlation; 0 if either side is constant.

    Raises:
        FloatingPointError: a number is not finite.
    """
    x, y = _scale_to_unit(labels), _scale_to_unit(predictions)
    if x is None or y is None:
        return 0.0
    from scipy.stats import pearsonr

    return float(cast("Any", pearsonr(x, y)).statistic)


def spearman(labels: Float[np.ndarray, "n"], predictions: Float[np.ndarray, "n"]) -> float:
    """Compute the correlation of ranks, ties averaged; 0 if a side is constant.

    Raises:
        FloatingPointError: a number is not finite.
    """
    check_finite(labels, predictions)
    from scipy.stats import rankdata

    return pearson(rankdata(labels), rankdata(predictions))


def mean_squared_error(
    labels: Float[np.ndarray, "n"], predictions: Float[np.ndarray, "n"]
) -> float:
    """Compute the mean squared difference; 0 without numbers.

    Raises:
        FloatingPointError: a number is not finite.
    """
    check_finite(labels, predictions)
    if not len(labels):
        return 0.0
    with import_sklearn_metrics() as sklearn:
        return float(sklearn.mean_squared_error(labels, predictions))


def regression_metrics(
    labels: Float[np.ndarray, "n"], predictions: Float[np.ndarray, "n"]
) -> dict[str, float]:
    """Compute all regression metrics.

    Raises:
        FloatingPointError: a number is not finite.
    """
    return {
        "pearson": pearson(labels, predictions),
        "spearman": spearman(labels, predictions),
        "mean_squared_error": mean_squared_error(labels, predictions),
    }


def check_finite(*arrays: np.ndarray) -> None:
    """Reject numbers that are not finite.

    Raises:
        FloatingPointError: one is not finite.
    """
    if not all(np.isfinite(a).all() for a in arrays):
        raise FloatingPointError("a number to be scored is not finite: the model has diverged")


def _scale_to_unit(x: Float[np.ndarray, "n"]) -> Float[np.ndarray, "n"] | None:
    """Map to [-1, 1], so that no square overflows or vanishes; correlations are unchanged.

    None if all are equal.
    """
    check_finite(x)
    if len(x) < 2:
        return None
    x = x.astype(np.float64)
    low, high = float(x.min()), float(x.max())
    half = high / 2 - low / 2
    if half == 0:
        return None
    return (x / 2 - (high / 4 + low / 4)) / half
