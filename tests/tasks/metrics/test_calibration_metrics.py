"""Calibration: by hand, against scikit-learn's Brier score, on answers drawn as predicted."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import brier_score_loss

from unmask.tasks.metrics.calibration import brier_score, calibration, calibration_metrics


def rows(*confidences):
    return np.array([[c, 1 - c] for c in confidences])


def test_ece_equals_hand_computation() -> None:
    probabilities = rows(0.95, 0.93, 0.65, 0.55)
    found = calibration(np.array([0, 1, 0, 0]), probabilities, n_bins=10)
    # from 0.9 to 1: 0.94 sure, half right; the others are right
    assert found.ece == pytest.approx((2 * (0.94 - 0.5) + (1 - 0.65) + (1 - 0.55)) / 4)
    assert [b.count for b in found.bins] == [0, 0, 0, 0, 0, 1, 1, 0, 0, 2]
    last = found.bins[-1]
    assert (last.low, last.high, last.accuracy) == (0.9, 1.0, 0.5)
    assert last.confidence == pytest.approx(0.94)


def test_bins_include_their_upper_bound() -> None:
    found = calibration(np.array([0, 0]), rows(0.5, 1.0), n_bins=2)
    assert [b.count for b in found.bins] == [1, 1]


def test_always_sure_and_always_wrong_is_the_worst() -> None:
    found = calibration_metrics(np.array([1, 1]), rows(1.0, 1.0))
    assert found == {"calibration_error": 1.0, "brier": 2.0}


def test_samples_from_the_predicted_distribution_are_calibrated() -> None:
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(4), 50_000)
    labels = (p.cumsum(1) < rng.random((len(p), 1))).sum(1)
    assert calibration(labels, p).ece < 0.01
    overconfident = p**3 / (p**3).sum(1, keepdims=True)
    assert calibration(labels, overconfident).ece > 0.1


answers = st.lists(st.tuples(st.floats(0, 1), st.integers(0, 1)), min_size=1)


@given(answers)
def test_binary_brier_is_twice_scikit_learns(answers) -> None:
    predictions, labels = np.array([p for p, _ in answers]), np.array([t for _, t in answers])
    theirs = brier_score_loss(labels, predictions, labels=[0, 1])
    assert brier_score(labels, np.stack([1 - predictions, predictions], 1)) == pytest.approx(
        2 * theirs, abs=1e-12
    )


@given(answers, st.integers(1, 20))
def test_bins_cover_all_predictions_with_their_accuracy(answers, n_bins) -> None:
    predictions, labels = np.array([p for p, _ in answers]), np.array([t for _, t in answers])
    found = calibration(labels, np.stack([1 - predictions, predictions], 1), n_bins)
    assert sum(b.count for b in found.bins) == len(answers)
    right = sum(b.count * b.accuracy for b in found.bins)
    assert right == pytest.approx(((predictions > 0.5) == labels).sum())
    for b in found.bins:
        assert b.count == 0 or b.low - 1e-9 <= b.confidence <= b.high + 1e-9
    # the mean gap is no less than the gap of the means (triangle inequality), and no more than 1
    gap = abs(np.maximum(predictions, 1 - predictions).mean() - right / len(answers))
    assert gap - 1e-9 <= found.ece <= 1


def test_metrics_of_no_examples_are_zero() -> None:
    none = np.zeros(0, np.int64), np.zeros((0, 3))
    assert calibration_metrics(*none) == {"calibration_error": 0.0, "brier": 0.0}
    assert all(b.count == 0 for b in calibration(*none).bins)


@pytest.mark.parametrize("bad", [[0.5, 0.6], [-0.1, 1.1], [np.nan, 1.0], [np.inf, 0.0]])
def test_non_probabilities_are_an_error(bad) -> None:
    with pytest.raises(ValueError, match="a row's sum 1"):
        brier_score(np.array([0]), np.array([bad]))


def test_labels_out_of_range_are_an_error() -> None:
    with pytest.raises(ValueError, match="labels must be from 0 to 1, got 2 to 2"):
        brier_score(np.array([2]), rows(0.5))
