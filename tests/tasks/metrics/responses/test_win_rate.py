"""Win rates and biases of length equal values computed by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from unmask.tasks.metrics.responses.length_bias import length_bias
from unmask.tasks.metrics.responses.win_rate import WinRate, win_rate


def numbers(*values: float) -> np.ndarray:
    return np.array(values, np.float64)


def test_ties_count_half_and_leave_the_sign_test() -> None:
    found = win_rate(numbers(1, 2, 3, 4, 5, 6), numbers(0, 1, 2, 3, 5, 7))
    assert (found.n_wins, found.n_ties, found.n_losses, found.n_pairs) == (4, 1, 1, 6)
    assert found.rate == 4.5 / 6
    assert found.p_value == pytest.approx(2 * (1 + 5) / 32)  # 0 or 1 of 5, both sides


def test_interval_is_that_of_wilson() -> None:
    found = WinRate(n_wins=8, n_ties=0, n_losses=2)
    expected = binomtest(8, 10).proportion_ci(method="wilson")
    assert found.interval == pytest.approx((expected.low, expected.high))
    assert found.interval == pytest.approx((0.4902, 0.9433), abs=1e-4)


def test_all_ties_and_one_pair() -> None:
    ties = win_rate(numbers(1, 1), numbers(1, 1))
    assert (ties.rate, ties.p_value) == (0.5, 1.0)
    one = win_rate(numbers(2), numbers(1))
    assert (one.rate, one.p_value) == (1.0, 1.0)


rewards = st.lists(st.integers(-3, 3), min_size=1, max_size=12)


@given(st.data())
def test_rates_of_both_sides_add_to_one(data: st.DataObject) -> None:
    own = data.draw(rewards)
    others = data.draw(st.lists(st.integers(-3, 3), min_size=len(own), max_size=len(own)))
    found = win_rate(numbers(*own), numbers(*others))
    back = win_rate(numbers(*others), numbers(*own))
    assert found.rate + back.rate == pytest.approx(1)
    assert found.p_value == back.p_value
    low, high = found.interval
    assert low - 1e-12 <= found.rate <= high + 1e-12


def test_what_cannot_be_compared_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^a win rate needs a pair of responses, got none$"):
        win_rate(numbers(), numbers())
    with pytest.raises(ValueError, match=r"got 2 rewards and 1 of others$"):
        win_rate(numbers(1, 2), numbers(1))
    with pytest.raises(ValueError, match=r"^others\[1\] must be a number, got nan$"):
        win_rate(numbers(1, 2), numbers(1, np.nan))


def test_length_bias_by_hand() -> None:
    # the longer one wins, loses, wins; equal lengths; a tie
    found = length_bias(
        numbers(2, 0, 5, 9, 1), np.array([9, 8, 7, 3, 2]),
        numbers(1, 1, 4, 8, 1), np.array([4, 2, 5, 3, 6]),
    )  # fmt: skip
    assert found.n_decided == 3
    assert found.longer_wins == pytest.approx(2 / 3)
    assert (found.mean_length, found.mean_other_length) == (5.8, 4.0)


def test_rank_correlation_of_rewards_and_lengths() -> None:
    found = length_bias(numbers(1, 2), np.array([10, 20]), numbers(3, 4), np.array([30, 40]))
    assert found.rank_correlation == pytest.approx(1)
    found = length_bias(numbers(1, np.inf), np.array([1, 3]), numbers(-np.inf, 2), np.array([0, 2]))
    assert found.rank_correlation == pytest.approx(1)
    # ranks 1 2 3 4 of rewards beside 2 1 3 4 of lengths: 1 - 6 * 2 / (4 * 15)
    found = length_bias(numbers(1, 2), np.array([20, 10]), numbers(3, 4), np.array([30, 40]))
    assert found.rank_correlation == pytest.approx(0.8)


def test_length_bias_without_differences() -> None:
    found = length_bias(numbers(1, np.inf), np.array([3, 3]), numbers(2, np.inf), np.array([3, 3]))
    assert (found.n_decided, found.longer_wins, found.rank_correlation) == (0, None, 0)
    with pytest.raises(ValueError, match=r"^the bias of length needs a pair .* got none$"):
        length_bias(numbers(), np.array([]), numbers(), np.array([]))
    with pytest.raises(ValueError, match=r"each of 1 pairs must have two lengths, got 2 and 1$"):
        length_bias(numbers(1), np.array([1, 2]), numbers(1), np.array([1]))
