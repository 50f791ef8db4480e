import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask.tasks.metrics.multiple_choice import choice_accuracy


def test_the_highest_score_is_the_choice() -> None:
    scores = [np.array([0.1, 0.7, 0.2]), np.array([-5.0, -9.0]), np.array([1.0, 2.0])]
    assert choice_accuracy([1, 0, 0], scores) == 2 / 3


def test_a_tie_of_two_counts_half_and_of_three_a_third() -> None:
    assert choice_accuracy([0], [np.array([1.0, 1.0])]) == 1 / 2
    assert choice_accuracy([2], [np.array([1.0, 1.0, 1.0, 0.0])]) == pytest.approx(1 / 3)
    assert choice_accuracy([3], [np.array([1.0, 1.0, 1.0, 0.0])]) == 0
    assert choice_accuracy([0], [np.array([2.0, 1.0, 1.0])]) == 1


@given(st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=5), max_size=8))
def test_over_all_possible_truths_a_choice_is_right_once(table) -> None:
    for row in table:
        scores = np.array(row, np.float64)
        total = sum(choice_accuracy([i], [scores]) for i in range(len(row)))
        assert total == pytest.approx(1)


def test_no_question_scores_zero() -> None:
    assert choice_accuracy([], []) == 0


def test_an_option_that_there_is_not_is_an_error() -> None:
    with pytest.raises(ValueError, match="question 0 has 2 options, and no option 2"):
        choice_accuracy([2], [np.array([0.0, 1.0])])


def test_scores_that_are_not_finite_are_an_error() -> None:
    with pytest.raises(FloatingPointError, match="diverged"):
        choice_accuracy([0], [np.array([0.0, np.nan])])
