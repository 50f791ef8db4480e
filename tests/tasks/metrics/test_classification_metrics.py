"""Metrics of classes: scikit-learn's, equal to plain formulas, 0 where those divide by it."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics as theirs

from unmask.tasks.metrics.classification import (
    accuracy,
    classification_metrics,
    f1_score,
    macro_f1,
    matthews_correlation,
)

EXACT = 1e-12  # both are float64
pairs = st.lists(st.tuples(st.integers(-1, 3), st.integers(-1, 3)), min_size=1, max_size=40)


def columns(rows):
    table = np.array(rows, np.int64)
    return table[:, 0], table[:, 1]


def plain_f1(labels, predictions, positive=1) -> float:
    correct = int(((labels == positive) & (predictions == positive)).sum())
    n = int((labels == positive).sum()) + int((predictions == positive).sum())
    return 2 * correct / n if n else 0.0


def plain_macro_f1(labels, predictions) -> float:
    occurring = np.union1d(labels, predictions)
    return float(np.mean([plain_f1(labels, predictions, int(c)) for c in occurring]))


def plain_matthews(labels, predictions) -> float:
    """Compute equation 8 of Gorodkin 2004 in whole numbers."""
    n, occurring = len(labels), np.union1d(labels, predictions).tolist()
    true = [int((labels == c).sum()) for c in occurring]
    predicted = [int((predictions == c).sum()) for c in occurring]
    correct = int((labels == predictions).sum())
    spread = (n * n - sum(t * t for t in true)) * (n * n - sum(p * p for p in predicted))
    if spread == 0:
        return 0.0
    return (n * correct - sum(t * p for t, p in zip(true, predicted, strict=True))) / spread**0.5


@given(pairs)
def test_classification_metrics_equal_scikit_learn(rows) -> None:
    labels, predictions = columns(rows)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a class that is never predicted
        expected = {
            "accuracy": theirs.accuracy_score(labels, predictions),
            "macro_f1": theirs.f1_score(labels, predictions, average="macro", zero_division=0),
            "matthews": theirs.matthews_corrcoef(labels, predictions),
        }
    found = classification_metrics(labels, predictions, 4)
    assert found == pytest.approx(expected, abs=EXACT)


@given(pairs)
def test_classification_metrics_equal_plain_formulas(rows) -> None:
    labels, predictions = columns(rows)
    assert accuracy(labels, predictions) == float((labels == predictions).mean())
    assert macro_f1(labels, predictions) == plain_macro_f1(labels, predictions)
    expected = plain_matthews(labels, predictions)
    assert matthews_correlation(labels, predictions) == pytest.approx(expected, abs=EXACT)
    for c in (-1, 0, 1, 7):
        assert f1_score(labels, predictions, c) == plain_f1(labels, predictions, c)


@pytest.mark.thorough
@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), min_size=1, max_size=30))
def test_binary_f1_is_that_of_the_last_class(rows) -> None:
    labels, predictions = columns(rows)
    ours = classification_metrics(labels, predictions, 2)["f1"]
    assert ours == pytest.approx(theirs.f1_score(labels, predictions, zero_division=0), abs=EXACT)


def test_single_class_has_zero_correlation() -> None:
    one = np.zeros(5, np.int64)
    assert matthews_correlation(one, one) == 0
    assert matthews_correlation(one, np.arange(5)) == 0
    assert f1_score(one, one) == 0


def test_classes_occurring_once_give_no_warning() -> None:
    labels = np.arange(40)
    assert classification_metrics(labels, labels, 40) == pytest.approx(
        {"accuracy": 1, "macro_f1": 1, "matthews": 1}
    )


def test_metrics_of_no_examples_are_zero() -> None:
    none = np.zeros(0, np.int64)
    assert set(classification_metrics(none, none, 2).values()) == {0.0}


def test_matthews_does_not_overflow_64_bits() -> None:
    labels = np.repeat([0, 1], 100_000)
    assert matthews_correlation(labels, labels) == 1
