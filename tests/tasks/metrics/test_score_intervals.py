"""Bootstrap intervals equal those of the normal distribution, Wilson's those of scipy."""

import numpy as np
import pytest
from scipy.stats import binomtest

from unmask.tasks.metrics.intervals import bootstrap_estimates, bootstrap_interval, wilson_interval


def test_interval_of_a_mean() -> None:
    x = np.random.default_rng(0).normal(1, 2, 400)
    low, high = bootstrap_interval(x, np.random.default_rng(1))
    error = x.std() / 20
    assert low == pytest.approx(x.mean() - 1.96 * error, abs=0.03)
    assert high == pytest.approx(x.mean() + 1.96 * error, abs=0.03)


def test_interval_of_statistics_of_units() -> None:
    """Of means over units of different sizes, drawn together."""
    rng = np.random.default_rng(0)
    sizes = rng.integers(1, 4, 300)
    sums = rng.normal(2 * sizes, sizes)  # all of a unit deviate alike
    mean, total = bootstrap_estimates(
        lambda counts: np.array([counts @ sums / (counts @ sizes), counts.sum()], np.float64),
        300,
        np.random.default_rng(1),
    )
    assert mean.value == pytest.approx(sums.sum() / sizes.sum())
    error = np.sqrt(((sums - mean.value * sizes) ** 2).sum()) / sizes.sum()  # of a ratio
    assert mean.low == pytest.approx(mean.value - 1.96 * error, abs=0.02)
    assert mean.high == pytest.approx(mean.value + 1.96 * error, abs=0.02)
    assert (total.low, total.value, total.high) == (300, 300, 300)


@pytest.mark.parametrize(("k", "n"), [(0, 1), (1, 1), (0, 7), (7, 7), (3, 10), (41, 67)])
def test_interval_of_a_proportion_equals_scipy(k: int, n: int) -> None:
    expected = binomtest(k, n).proportion_ci(0.95, method="wilson")
    assert wilson_interval(float(k), n) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_halves_lie_between_whole_successes() -> None:
    for low, middle, high in zip(*(wilson_interval(k, 9) for k in (4.0, 4.5, 5.0)), strict=True):
        assert low < middle < high
