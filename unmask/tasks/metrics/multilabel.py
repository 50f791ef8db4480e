"""Multi-label metrics of scikit-learn.

Undefined values are 0, as in scikit-learn.
"""

import numpy as np
from jaxtyping import Bool, Float

from unmask.tasks.metrics.classification import accuracy, f1_score, import_sklearn_metrics
from unmask.tasks.metrics.regression import check_finite


def subset_accuracy(
    labels: Bool[np.ndarray, "n labels"], predictions: Bool[np.ndarray, "n labels"]
) -> float:
    """Compute the share of texts with all labels correct; 0 without texts."""
    correct = (labels == predictions).all(1)
    return accuracy(np.ones(len(labels), np.int64), correct.astype(np.int64))


def micro_f1(
    labels: Bool[np.ndarray, "n labels"], predictions: Bool[np.ndarray, "n labels"]
) -> float:
    """Compute F1 over all labels of all texts; 0 if none is true or predicted."""
    return f1_score(labels.astype(np.int64).reshape(-1), predictions.astype(np.int64).reshape(-1))


def macro_f1(
    labels: Bool[np.ndarray, "n labels"], predictions: Bool[np.ndarray, "n labels"]
) -> float:
    """Compute the mean F1 over labels; that of a label never true or predicted is 0."""
    columns = zip(labels.T.astype(np.int64), predictions.T.astype(np.int64), strict=True)
    scores = [f1_score(labels_of_class, predicted) for labels_of_class, predicted in columns]
    return float(np.mean(scores)) if scores else 0.0


def label_ranking_average_precision(
    labels: Bool[np.ndarray, "n labels"], scores: Float[np.ndarray, "n labels"]
) -> float:
    """Compute label-ranking average precision; 0 without texts.

    For each true label, the share of true labels among those with at least its score, averaged over
    the labels of a text, then over texts (Schapire and Singer 2000, doi:10.1023/A:1007649029923). A
    text with all labels true, or none, counts 1.

    Raises:
        FloatingPointError: a score is not finite.
    """
    check_finite(scores)
    if not len(labels):
        return 0.0
    with import_sklearn_metrics() as sklearn:
        return float(sklearn.label_ranking_average_precision_score(labels, scores))


def mean_average_precision(
    labels: Bool[np.ndarray, "n labels"], scores: Float[np.ndarray, "n labels"]
) -> float:
    """Compute the mean over labels of the area under the precision-recall curve, not interpolated.

    That of a label which is never true is 0.

    Raises:
        FloatingPointError: a score is not finite.
    """
    check_finite(scores)
    with import_sklearn_metrics() as sklearn:
        precisions = [
            sklearn.average_precision_score(is_true, score) if is_true.any() else 0.0
            for is_true, score in zip(labels.T, scores.T, strict=True)
        ]
    return float(np.mean(precisions)) if precisions else 0.0


def multilabel_metrics(
    labels: Bool[np.ndarray, "n labels"],
    predictions: Bool[np.ndarray, "n labels"],
    scores: Float[np.ndarray, "n labels"] | None = None,
) -> dict[str, float]:
    """Compute all multi-label metrics; ranking metrics need scores.

    Raises:
        FloatingPointError: a score is not finite.
    """
    metrics = {
        "micro_f1": micro_f1(labels, predictions),
        "macro_f1": macro_f1(labels, predictions),
        "subset_accuracy": subset_accuracy(labels, predictions),
    }
    if scores is None:
        return metrics
    return metrics | {
        "ranking_precision": label_ranking_average_precision(labels, scores),
        "mean_average_precision": mean_average_precision(labels, scores),
    }
