"""Metrics of classes, by scikit-learn: accuracy, F1, Matthews' correlation.

Every metric is a number, whatever the predictions: where a definition divides by zero the docstring
says what is there instead. scikit-learn is imported when a metric is computed.
"""

import warnings
from collections.abc import Generator
from contextlib import contextmanager
from types import ModuleType

import numpy as np
from jaxtyping import Int


def accuracy(labels: Int[np.ndarray, "n"], predictions: Int[np.ndarray, "n"]) -> float:
    """Compute the share of correct predictions; 0 of nothing."""
    if not len(labels):
        return 0.0
    with import_sklearn_metrics() as sklearn:
        return float(sklearn.accuracy_score(labels, predictions))


def f1_score(
    labels: Int[np.ndarray, "n"], predictions: Int[np.ndarray, "n"], positive_class: int = 1
) -> float:
    """Compute the harmonic mean of precision and recall of a class; 0 where it never occurs."""
    return _mean_f1(labels, predictions, [positive_class])


def macro_f1(labels: Int[np.ndarray, "n"], predictions: Int[np.ndarray, "n"]) -> float:
    """Compute the mean F1 of the classes that occur, in labels or predictions; 0 of nothing."""
    return _mean_f1(labels, predictions, None)


def matthews_correlation(labels: Int[np.ndarray, "n"], predictions: Int[np.ndarray, "n"]) -> float:
    """Compute the correlation of two labelings; 0 where all is one class on either side.

    For any number of classes: Gorodkin 2004, doi:10.1016/j.compbiolchem.2004.09.006, equation 8;
    for two it is Matthews'.
    """
    if not len(labels):
        return 0.0
    with import_sklearn_metrics() as sklearn:
        return float(sklearn.matthews_corrcoef(labels, predictions))


def classification_metrics(
    labels: Int[np.ndarray, "n"], predictions: Int[np.ndarray, "n"], n_labels: int
) -> dict[str, float]:
    """Compute all metrics of a classification; of two classes the last is the positive of F1."""
    scores = {
        "accuracy": accuracy(labels, predictions),
        "macro_f1": macro_f1(labels, predictions),
        "matthews": matthews_correlation(labels, predictions),
    }
    return scores | ({"f1": f1_score(labels, predictions)} if n_labels == 2 else {})


@contextmanager
def import_sklearn_metrics() -> Generator[ModuleType]:
    """Import `sklearn.metrics`, whose warnings are not shown meanwhile.

    It warns where a class is rare or lacking, which is nothing amiss in a small dev file.
    """
    from sklearn import metrics

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        yield metrics


def _mean_f1(
    labels: Int[np.ndarray, "n"], predictions: Int[np.ndarray, "n"], classes: list[int] | None
) -> float:
    """Compute the mean F1 of some classes; None: of those that occur."""
    if not len(labels):
        return 0.0
    with import_sklearn_metrics() as sklearn:
        mean = sklearn.f1_score(
            labels, predictions, labels=classes, average="macro", zero_division=0
        )
    return float(mean)
