"""Accuracies of groups: ties count half, and the interval is Wilson's."""

import numpy as np
import pytest

from unmask.analysis.behavior.accuracy import GroupAccuracy, group_accuracies
from unmask.tasks.metrics.intervals import wilson_interval


def test_groups_appear_in_order_and_ties_count_half() -> None:
    credits = np.array([1.0, 0.5, 0.0, 0.5, 1.0])
    b, a = group_accuracies(["b", "a", "b", "a", "b"], credits)
    assert (b.name, b.n_items, b.n_ties, b.accuracy) == ("b", 3, 0, pytest.approx(2 / 3))
    assert (a.name, a.n_items, a.n_ties, a.accuracy) == ("a", 2, 2, 0.5)
    assert (b.low, b.high) == wilson_interval(2.0, 3)
    assert GroupAccuracy.of("all", credits).accuracy == 0.6
