import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from unmask.config import from_dict, to_dict
from unmask.training.config import Recipe
from unmask.training.schedules import (
    WSD,
    Constant,
    Cosine,
    InverseSquareRoot,
    Linear,
    resolve_steps,
    steps_within,
)

warmups = st.one_of(st.integers(0, 40), st.floats(0, 0.9))
schedules = st.one_of(
    st.builds(Constant, warmups),
    st.builds(Linear, warmups),
    st.builds(Cosine, warmups, st.floats(0, 1)),
    st.builds(InverseSquareRoot, warmups),
    st.builds(WSD, warmups, warmups, st.sampled_from(["linear", "sqrt"])),
)


@given(schedules, st.integers(1, 200))
def test_every_rate_is_above_zero_and_at_most_the_peak(schedule, steps):
    rates = [schedule.factor(step, steps) for step in range(1, steps + 1)]
    assert all(0 <= rate <= 1 + 1e-12 for rate in rates)
    if not (isinstance(schedule, Cosine) and schedule.final_fraction == 0):
        assert all(rate > 0 for rate in rates)


@given(schedules, st.integers(1, 200))
def test_rates_rise_then_only_fall(schedule, steps):
    rates = [schedule.factor(step, steps) for step in range(1, steps + 1)]
    top = rates.index(max(rates))
    assert rates[: top + 1] == sorted(rates[: top + 1])
    assert all(a >= b - 1e-12 for a, b in zip(rates[top:], rates[top + 1 :], strict=False))


@given(schedules)
def test_schedule_round_trips_as_plain_data(schedule):
    taken = resolve_steps(schedule.warmup, 100) + resolve_steps(getattr(schedule, "decay", 0), 100)
    assume(taken <= 100)
    recipe = Recipe(model="x", steps=100, schedule=schedule)
    assert from_dict(Recipe, to_dict(recipe)) == recipe


def test_linear_reaches_peak_and_zero_after_the_last_step():
    rates = [Linear(warmup=2).factor(step, 6) for step in range(1, 8)]
    assert rates == pytest.approx([0.5, 1, 0.8, 0.6, 0.4, 0.2, 0])


def test_warmup_share_equals_number_of_steps():
    for step in range(1, 101):
        assert Linear(0.1).factor(step, 100) == Linear(10).factor(step, 100)
    assert resolve_steps(0.06, 10) == 1
    assert resolve_steps(0.0, 10) == 0


def test_cosine_is_halfway_in_the_middle_and_ends_at_its_floor():
    cosine = Cosine(warmup=0, final_fraction=0.2)
    assert cosine.factor(50, 99) == pytest.approx(0.6)
    assert cosine.factor(99, 99) == pytest.approx(0.2, abs=1e-3)


def test_inverse_square_root_halves_at_four_times_the_steps():
    schedule = InverseSquareRoot(warmup=100)
    assert schedule.factor(100, 10_000) == 1
    assert schedule.factor(400, 10_000) == pytest.approx(0.5)


def test_wsd_is_constant_until_its_decay():
    schedule = WSD(warmup=10, decay=20, decay_shape="linear")
    assert [schedule.factor(step, 100) for step in (10, 40, 80)] == [1, 1, 1]
    assert schedule.factor(81, 100) == pytest.approx(20 / 21)
    assert schedule.factor(100, 100) == pytest.approx(1 / 21)
    root = WSD(warmup=10, decay=20, decay_shape="sqrt")
    assert root.factor(90, 100) == pytest.approx(1 - math.sqrt(10 / 21))


@pytest.mark.parametrize("share", [-1, -0.1, 1.0, 1.5, float("nan")])
def test_invalid_warmup_is_an_error(share):
    with pytest.raises(
        ValueError, match=r"schedule\.warmup must be a whole number of steps or a share"
    ):
        Linear(share)


def test_step_estimate_drops_first_measurements_and_rounds_down():
    assert steps_within(1, [9.0, 9.0, 0.5, 0.5]) == 120
    assert steps_within(1, [9.0, 9.0, 0.09]) == 660
    assert steps_within(1, [9.0, 0.09]) == 660
    assert steps_within(1, [0.7]) == 85
    assert steps_within(1, [9.0, 9.0, 1.0], spent_seconds=57.5) == 2


def test_step_estimate_is_at_least_one():
    assert steps_within(1, [1000.0]) == 1
    assert steps_within(1, [1.0], spent_seconds=1000) == 1


@pytest.mark.parametrize("minutes", [0, -1, float("nan"), float("inf")])
def test_nonpositive_minutes_are_an_error(minutes):
    with pytest.raises(ValueError, match="minutes must be above 0"):
        steps_within(minutes, [1.0])


def test_no_measurement_is_an_error():
    with pytest.raises(ValueError, match="no step was measured"):
        steps_within(1, [])


def test_t5_rate_is_inverse_square_root_from_step_10_000():
    schedule = InverseSquareRoot(10_000, constant_warmup=True)
    for step in (1, 9_999, 10_000, 40_000, 2**19):
        rate = 1e-2 * schedule.factor(step, 2**19)
        assert rate == pytest.approx(1 / math.sqrt(max(step, 10_000)))
