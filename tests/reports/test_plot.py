import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask.reports.charts.axis import format_tick, linear_axis, logarithmic_axis
from unmask.reports.charts.line_chart import (
    MAX_POINTS,
    Curve,
    LineChart,
    downsample,
    draw_charts,
    smooth,
)
from unmask.training.log import finite_number

NUMBERS = st.floats(-1e12, 1e12, allow_nan=False).map(finite_number)


@given(NUMBERS, NUMBERS, st.integers(2, 8))
def test_ticks_are_round_even_and_enclose_the_data(a, b, n):
    low, high = min(a, b), max(a, b)
    if 0 < high - low < 1e-6 * max(abs(low), abs(high)):
        return  # closer together than a curve is ever drawn
    axis = linear_axis(low, high, n)
    assert axis.low <= low + 1e-6 * (high - low)
    assert axis.high >= high - 1e-6 * (high - low)
    assert 2 <= len(axis.ticks) <= n + 4
    gaps = np.diff(axis.ticks)
    assert gaps == pytest.approx([gaps[0]] * len(gaps), rel=1e-6)
    leading = gaps[0] / 10.0 ** math.floor(math.log10(gaps[0]) + 1e-6)
    assert min(abs(leading - m) for m in (1, 2, 2.5, 5)) < 1e-3
    assert len({format_tick(t, axis, "") for t in axis.ticks}) == len(axis.ticks)


@given(st.floats(1e-9, 1e9), st.floats(1e-9, 1e9))
def test_logarithmic_ticks_are_powers_of_ten(a, b):
    axis = logarithmic_axis(min(a, b), max(a, b))
    assert axis.low <= min(a, b) * 1.0001
    assert axis.high >= max(a, b) * 0.9999
    assert 2 <= len(axis.ticks) <= 7
    assert all(math.log10(t) == pytest.approx(round(math.log10(t))) for t in axis.ticks)


@pytest.mark.parametrize(
    ("low", "high", "n", "texts"),
    [
        (0, 20_000, 5, "0 5k 10k 15k 20k"),
        (0, 0.3, 3, "0.0 0.1 0.2 0.3"),
        (-1, 1, 4, "−1.0 −0.5 0.0 0.5 1.0"),
        (0, 1.5e6, 3, "0.0 0.5M 1.0M 1.5M"),
        (2.25, 2.75, 2, "2.25 2.50 2.75"),
    ],
)
def test_ticks_are_formatted_short(low, high, n, texts):
    axis = linear_axis(low, high, n)
    assert [format_tick(t, axis, "") for t in axis.ticks] == texts.split()


def test_tick_may_have_a_unit():
    assert format_tick(100, linear_axis(0, 100), "%") == "100\u202f%"


def test_smoothing_preserves_a_line_except_at_its_right_end():
    line = np.arange(100.0)
    assert smooth(line, 5)[:94] == pytest.approx(line[:94])
    assert smooth(line, 5)[0] == 0


def test_smoothing_ignores_non_finite_values():
    values = np.array([1.0, math.nan, 1.0, math.inf, 1.0, 1.0])
    assert smooth(values, 2) == pytest.approx(np.ones(6))
    assert np.isnan(smooth(np.full(5, math.nan), 2)).all()


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40), st.integers(0, 9))
def test_smoothing_stays_between_extremes(values, half):
    line = smooth(np.array(values), half)
    assert line.min() >= min(values) - 1e-6 * (1 + max(map(abs, values)))
    assert line.max() <= max(values) + 1e-6 * (1 + max(map(abs, values)))


@given(st.integers(1, 5000), st.integers(0, 10**6))
def test_downsampling_keeps_order_and_extremes(n, seed):
    values = np.random.default_rng(seed).normal(size=n)
    steps, kept = downsample(np.arange(n, dtype=np.float64), values)
    assert len(kept) <= MAX_POINTS
    assert (np.diff(steps) > 0).all()
    assert kept.min() == values.min()
    assert kept.max() == values.max()
    assert (values[steps.astype(int)] == kept).all()


def test_downsampling_keeps_long_gaps():
    values = np.ones(5000)
    values[2000:3000] = math.nan
    assert np.isnan(downsample(np.arange(5000.0), values)[1]).any()


def figure(values, **more):
    values = np.asarray(values, dtype=np.float64)
    curve = Curve(name="a", steps=np.arange(1.0, len(values) + 1), values=values)
    return LineChart(title="T", curves=(curve,), **more)


def plotted(values, **more):
    (html,) = draw_charts([figure(values, **more)])
    return html.source


def test_rare_spike_is_outside_the_axis_and_reported():
    values = np.linspace(3.0, 2.0, 1000)
    values[500] = 1e6
    source = plotted(values)
    assert "Logged values outside the axis: 1 above (highest 1,000,000)." in source
    assert "outside the axis" not in plotted(np.linspace(3.0, 2.0, 1000))


def test_log_scale_is_used_only_for_steep_curves():
    values = np.ones(500)
    assert ">1,000<" not in plotted(values, allows_log_scale=True)
    values[:20] = 900.0
    assert ">1,000<" in plotted(values, allows_log_scale=True)


def test_very_small_numbers_use_a_power_of_ten():
    assert "×\u202f10⁻⁴" in plotted(np.full(5, 5e-4), starts_at_zero=True)


def test_labels_of_equal_curves_do_not_overlap():
    steps = np.arange(1.0, 6.0)
    curves = tuple(Curve(name=f"c{i}", steps=steps, values=np.full(5, 2.0)) for i in range(6))
    (html,) = draw_charts([LineChart(title="T", curves=curves, is_large=True)])
    tops = sorted(
        int(s.split("px")[0]) for s in html.source.split('style="top:')[1:] if "px" in s[:6]
    )
    assert len(tops) == 6
    assert min(np.diff(tops)) >= 32


def test_grouped_plots_share_margins():
    one, other = draw_charts([figure([1.0, 2.0]), figure([10_000.0, 2e9])])
    assert one.source.split("margin-left:")[1][:20] == other.source.split("margin-left:")[1][:20]


@given(st.lists(st.one_of(st.floats(), st.none()), min_size=1, max_size=80))
def test_any_numbers_can_be_plotted(values):
    clean = [math.nan if finite_number(v) is None else finite_number(v) for v in values]
    for zero in (True, False):
        for html in draw_charts(
            [figure(clean, starts_at_zero=zero, allows_log_scale=not zero, unit="%")]
        ):
            assert "nan" not in html.source
            assert "inf" not in html.source
