"""Accuracies of groups: ties count half, intervals equal scipy's Wilson interval."""

import numpy as np
import pytest
from scipy.stats import binomtest

from unmask.analysis.behavior.accuracy import GroupAccuracy, group_accuracies, wilson_interval


@pytest.mark.parametrize(("k", "n"), [(0, 1), (1, 1), (0, 7), (7, 7), (3, 10), (41, 67)])
def test_interval_equals_scipy(k: int, n: int) -> None:
    expected = binomtest(k, n).proportion_ci(0.95, method="wilson")
    assert wilson_interval(float(k), n) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_halves_lie_between_whole_successes() -> None:
    for low, middle, high in zip(*(wilson_interval(k, 9) for k in (4.0, 4.5, 5.0)), strict=True):
        assert low < middle < high


def test_groups_appear_in_order_and_ties_count_half() -> None:
    credits = np.array([1.0, 0.5, 0.0, 0.5, 1.0])
    b, a = group_accuracies(["b", "a", "b", "a", "b"], credits)
    assert (b.name, b.n_items, b.n_ties, b.accuracy) == ("b", 3, 0, pytest.approx(2 / 3))
    assert (a.name, a.n_items, a.n_ties, a.accuracy) == ("a", 2, 2, 0.5)
    assert (b.low, b.high) == wilson_interval(2.0, 3)
    assert GroupAccuracy.of("all", credits).accuracy == 0.6
