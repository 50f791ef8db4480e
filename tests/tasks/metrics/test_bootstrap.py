"""Bootstrap intervals equal those of the normal distribution, where it applies."""

import numpy as np
import pytest

from unmask.tasks.metrics.bootstrap import bootstrap_estimates, bootstrap_interval


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
