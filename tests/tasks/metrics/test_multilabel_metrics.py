"""Metrics of label sets equal scikit-learn's and plain formulas, also where it warns."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn import metrics as theirs

from unmask.tasks.metrics import multilabel
from unmask.tasks.metrics.multilabel import multilabel_metrics

EXACT = 1e-12  # both are float64


@st.composite
def answers(draw, fewest=2):
    shape = draw(st.tuples(st.integers(1, 12), st.integers(fewest, 5)))
    labels, predictions = (draw(arrays(bool, shape)) for _ in range(2))
    steps = draw(arrays(np.int64, shape, elements=st.integers(-3, 3)))  # with many ties
    return labels, predictions, steps / 2


@settings(max_examples=40)
@given(answers())
def test_metrics_equal_scikit_learn(case) -> None:
    labels, predictions, scores = case
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # labels that never occur
        expected = {
            "micro_f1": theirs.f1_score(labels, predictions, average="micro", zero_division=0),
            "macro_f1": theirs.f1_score(labels, predictions, average="macro", zero_division=0),
            "subset_accuracy": theirs.accuracy_score(labels, predictions),
            "ranking_precision": theirs.label_ranking_average_precision_score(labels, scores),
            "mean_average_precision": theirs.average_precision_score(labels, scores),
        }
    assert multilabel_metrics(labels, predictions, scores) == pytest.approx(expected, abs=EXACT)


def plain_average_precision(labels, scores) -> float:
    """Add up precision over steps of recall; equal scores are one step."""
    total, found = 0.0, 0
    for threshold in sorted(set(scores.tolist()), reverse=True):
        chosen = scores >= threshold
        gained = int((labels & chosen).sum()) - found
        found += gained
        total += gained * found / int(chosen.sum())
    return total / found if found else 0.0


def plain_ranking_precision(labels, scores) -> float:
    """Compute the share of true labels among those above each true one; 1 where none is true."""
    each = []
    for row, score in zip(labels, scores, strict=True):
        shares = [(row & (score >= s)).sum() / (score >= s).sum() for s in score[row]]
        each.append(np.mean(shares) if shares else 1.0)
    return float(np.mean(each))


@settings(max_examples=40)
@given(answers(fewest=1))
def test_metrics_equal_plain_formulas(case) -> None:
    labels, predictions, scores = case
    right, n = (labels & predictions).sum(0), labels.sum(0) + predictions.sum(0)
    found = multilabel_metrics(labels, predictions, scores)
    assert found["micro_f1"] == 2 * right.sum() / max(n.sum(), 1)
    assert found["macro_f1"] == pytest.approx(np.mean(2 * right / np.maximum(n, 1)), abs=EXACT)
    assert found["subset_accuracy"] == (labels == predictions).all(1).mean()
    expected = plain_ranking_precision(labels, scores)
    assert found["ranking_precision"] == pytest.approx(expected, abs=EXACT)
    columns = zip(labels.T, scores.T, strict=True)
    expected = float(np.mean([plain_average_precision(*column) for column in columns]))
    assert found["mean_average_precision"] == pytest.approx(expected, abs=EXACT)


def test_metrics_equal_hand_computation() -> None:
    labels = np.array([[1, 1, 0], [0, 0, 1]], bool)
    predictions = np.array([[1, 0, 0], [0, 1, 1]], bool)
    found = multilabel_metrics(labels, predictions)
    # labels: 2/2, 0/2 and 2/2; together 2 right of 3 true and 3 predicted
    assert found == pytest.approx({"micro_f1": 4 / 6, "macro_f1": 2 / 3, "subset_accuracy": 0.0})


def test_empty_truth_and_prediction_have_zero_f1_and_full_accuracy() -> None:
    none = np.zeros((3, 2), bool)
    found = multilabel_metrics(none, none, np.zeros((3, 2)))
    assert found == {
        "micro_f1": 0.0, "macro_f1": 0.0, "subset_accuracy": 1.0, "ranking_precision": 1.0,
        "mean_average_precision": 0.0,
    }  # fmt: skip


def test_metrics_of_no_texts_are_zero() -> None:
    none = np.zeros((0, 3), bool)
    assert set(multilabel_metrics(none, none, np.zeros((0, 3))).values()) == {0.0}


@pytest.mark.parametrize(
    "score", [multilabel.label_ranking_average_precision, multilabel.mean_average_precision]
)
def test_non_finite_scores_are_an_error(score) -> None:
    with pytest.raises(FloatingPointError, match="diverged"):
        score(np.ones((1, 2), bool), np.array([[0.0, np.nan]]))
