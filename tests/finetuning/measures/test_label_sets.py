"""Figures of label sets: equal to scikit-learn's, also where that warns and says 0."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn import metrics as theirs

from unmask.finetuning.measures import label_sets
from unmask.finetuning.measures.label_sets import of_label_sets

EXACT = 1e-12  # both are float64


@st.composite
def answers(draw):
    shape = draw(st.tuples(st.integers(1, 12), st.integers(2, 5)))
    truth, said = (draw(arrays(bool, shape)) for _ in range(2))
    steps = draw(arrays(np.int64, shape, elements=st.integers(-3, 3)))  # with many ties
    return truth, said, steps / 2


@settings(max_examples=40, deadline=None)
@given(answers())
def test_figures_equal_scikit_learns(case) -> None:
    truth, said, scores = case
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # labels that never occur
        expected = {
            "micro_f1": theirs.f1_score(truth, said, average="micro", zero_division=0),
            "macro_f1": theirs.f1_score(truth, said, average="macro", zero_division=0),
            "subset_accuracy": theirs.accuracy_score(truth, said),
            "ranking_precision": theirs.label_ranking_average_precision_score(truth, scores),
            "mean_average_precision": theirs.average_precision_score(truth, scores),
        }
    assert of_label_sets(truth, said, scores) == pytest.approx(expected, abs=EXACT)


def test_figures_by_hand() -> None:
    truth = np.array([[1, 1, 0], [0, 0, 1]], bool)
    said = np.array([[1, 0, 0], [0, 1, 1]], bool)
    found = of_label_sets(truth, said)
    # labels: 2/2, 0/2 and 2/2; together 2 right of 3 true and 3 said
    assert found == pytest.approx({"micro_f1": 4 / 6, "macro_f1": 2 / 3, "subset_accuracy": 0.0})


def test_where_nothing_is_true_and_nothing_is_said_f1_is_zero_and_all_is_right() -> None:
    none = np.zeros((3, 2), bool)
    found = of_label_sets(none, none, np.zeros((3, 2)))
    assert found == {
        "micro_f1": 0.0, "macro_f1": 0.0, "subset_accuracy": 1.0, "ranking_precision": 1.0,
        "mean_average_precision": 0.0,
    }  # fmt: skip


def test_figures_of_no_texts_are_zero() -> None:
    none = np.zeros((0, 3), bool)
    assert set(of_label_sets(none, none, np.zeros((0, 3))).values()) == {0.0}


@pytest.mark.parametrize("score", [label_sets.ranking_precision, label_sets.mean_average_precision])
def test_scores_that_are_not_finite_are_an_error(score) -> None:
    with pytest.raises(FloatingPointError, match="diverged"):
        score(np.ones((1, 2), bool), np.array([[0.0, np.nan]]))
