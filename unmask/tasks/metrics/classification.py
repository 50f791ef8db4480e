"""Classification metrics of scikit-learn: accuracy, F1, Matthews' correlation.

Every metric is finite: where a definition divides by zero the docstring gives the value.
scikit-learn is imported when a metric is computed.
"""

import warnings
from collections.abc import Generator
from contextlib import contextmanager
from types import ModuleType

import numpy as np
from jaxtyping import Int


def accuracy(labels: Int[np.ndarray, "n"], predictions: Int[np.ndarray, "n"]) -> float:
    """Compute the share of correct predictions; 0 without predictions."""
    if not len(labels):
        return 0.0
    with import_sklearn_metrics() as sklearn:
        return float(sklearn.accuracy_score(labels, predictions))


def f1_score(
    labels: Int[np.ndarray, "n"], predictions: Int[np.ndarray, "n"], positive_class: int = 1
) -> float:
    """Compute the harmonic mean of precision and recall of a class; 0 if it never occurs."""
    return _mean_f1(labels, predictions, [positive_class])


def macro_f1(labels: Int[np.ndarray, "n"], predictions: Int[np.ndarray, "n"]) -> float:
    """Compute the mean F1 of the classes that occur in labels or predictions; 0 without any."""
    return _mean_f1(labels, predictions, None)


def matthews_correlation(labels: Int[np.ndarray, "n"], predictions: Int[np.ndarray, "n"]) -> float:
    """Compute the correlation of two labelings; 0 if either has only one class.

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
    """Compute all classification metrics; with two classes the last is the positive class of F1."""
    scores = {
        "accuracy": accuracy(labels, predictions),
        "macro_f1": macro_f1(labels, predictions),
        "matthews": matthews_correlation(labels, predictions),
    }
    return scores | ({"f1": f1_score(labels, predictions)} if n_labels == 2 else {})


@contextmanager
def import_sklearn_metrics() -> Generator[ModuleType]:
    """Import `sklearn.metrics` with its warnings suppressed.

    It warns of rare or missing classes, which are normal in a small dev file.
    """
    from sklearn import metrics

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        yield metrics


def _mean_f1(
    labels: Int[np.ndarray, "n"], predictions: Int[np.ndarray, "n"], classes: list[int] | None
) -> float:
    """Compute the mean F1 of classes; None: of those that occur."""
    if not len(labels):
        return 0.0
    with import_sklearn_metrics() as sklearn:
        mean = sklearn.f1_score(
            labels, predictions, labels=classes, average="macro", zero_division=0
        )
    return float(mean)
