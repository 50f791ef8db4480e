"""Metrics of numbers: SciPy's and scikit-learn's on anything, and 0 where those have none."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn import metrics as theirs

from unmask.tasks.metrics.regression import (
    mean_squared_error,
    pearson,
    regression_metrics,
    spearman,
)

EXACT = 1e-12  # both are float64
finite = st.floats(-1e6, 1e6, allow_nan=False).map(lambda x: round(x, 3))
number_pairs = st.lists(st.tuples(finite, finite), min_size=2, max_size=40)


def columns(rows):
    table = np.array(rows, np.float64)
    return table[:, 0], table[:, 1]


def plain_pearson(x, y) -> float:
    """Correlate columns that are scaled first, so that no square overflows; 0 of a constant."""
    parts = []
    for column in (x, y):
        half = column.max() / 2 - column.min() / 2
        if half == 0:
            return 0.0
        scaled = (column / 2 - (column.max() / 4 + column.min() / 4)) / half
        parts.append(scaled - scaled.mean())
    x, y = parts
    return float(x @ y / (np.linalg.norm(x) * np.linalg.norm(y)))


def plain_ranks(x):
    _, where, counts = np.unique(x, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[where]


@given(number_pairs)
def test_correlations_equal_scipy(rows) -> None:
    labels, predictions = columns(rows)
    if np.ptp(labels) < 1e-3 or np.ptp(predictions) < 1e-3:
        return  # theirs is not a number, or a warning
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # nearly constant
        linear = stats.pearsonr(labels, predictions)[0]
        ranked = stats.spearmanr(labels, predictions)[0]
    # theirs subtracts means of numbers up to 1e6 that may differ by 1e-3
    assert pearson(labels, predictions) == pytest.approx(linear, abs=1e-6)
    assert spearman(labels, predictions) == pytest.approx(ranked, abs=EXACT)


@given(number_pairs)
def test_correlations_equal_plain_formulas(rows) -> None:
    labels, predictions = columns(rows)
    expected = plain_pearson(labels, predictions)
    assert pearson(labels, predictions) == pytest.approx(expected, abs=EXACT)
    expected = plain_pearson(plain_ranks(labels), plain_ranks(predictions))
    assert spearman(labels, predictions) == pytest.approx(expected, abs=EXACT)


@given(number_pairs)
def test_squared_error_equals_scikit_learn_and_formula(rows) -> None:
    labels, predictions = columns(rows)
    ours = mean_squared_error(labels, predictions)
    assert ours == pytest.approx(theirs.mean_squared_error(labels, predictions), rel=1e-12)
    assert ours == pytest.approx(float(((labels - predictions) ** 2).mean()), rel=1e-12)


@given(
    st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=2, max_size=20),
    st.sampled_from([1e-300, 1e-8, 1.0, 1e8, 1e300]),
)
def test_correlation_is_defined_for_any_finite_numbers(values, scale) -> None:
    x = np.array(values, np.float64)
    y = np.arange(len(x)) * scale
    assert -1 <= pearson(x, y) <= 1
    assert -1 <= spearman(x, y) <= 1


def test_constant_values_have_zero_correlation() -> None:
    same, other = np.full(7, 0.1), np.arange(7.0)
    assert pearson(same, other) == 0
    assert spearman(other, same) == 0
    assert pearson(np.array([1.0]), np.array([2.0])) == 0


def test_metrics_of_no_examples_are_zero() -> None:
    numbers = np.zeros(0)
    assert set(regression_metrics(numbers, numbers).values()) == {0.0}


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("score", [pearson, spearman, mean_squared_error])
def test_non_finite_numbers_are_an_error(score, bad) -> None:
    with pytest.raises(FloatingPointError, match="diverged"):
        score(np.array([1.0, 2.0]), np.array([1.0, bad]))
