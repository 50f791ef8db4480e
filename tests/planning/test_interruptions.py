"""Interruptions: intervals of the papers, simulated runs, and what they read of the data."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import unmask
from unmask.batching.plan import BatchPlan, DataCursor
from unmask.planning.interruptions import (
    DEFAULT_DEVICE_MTBF_HOURS,
    Interruptions,
    SimulatedJob,
    daly_interval,
    surviving_steps,
    young_interval,
)


@pytest.mark.parametrize(("mtbf", "minutes"), [(24 * 60, 117), (6 * 60, 57), (15, 9.1)])
def test_interval_is_that_of_dalys_figures(mtbf: float, minutes: float) -> None:
    """Figures 3, 4 and 5: checkpoints of 5 minutes."""
    assert float(f"{daly_interval(5, mtbf):.{2 if minutes < 10 else 3}g}") == pytest.approx(
        minutes, abs=0.5 if minutes > 10 else 0.01
    )


def test_interval_never_exceeds_the_mean_time_between_failures() -> None:
    assert daly_interval(100, 50) == 50
    assert daly_interval(1, 10**6) == pytest.approx(young_interval(1, 10**6), rel=1e-3)


def test_formula_is_least_near_its_own_interval() -> None:
    one = Interruptions(mtbf_seconds=21_600, checkpoint_seconds=300)
    best = one.interval_seconds
    assert one.lost_share(best) < min(one.lost_share(0.8 * best), one.lost_share(1.25 * best))
    assert one.lost_share(10**9) == 1.0


def job(**changes: float) -> SimulatedJob:
    interruptions = Interruptions(
        mtbf_seconds=changes.get("mtbf", 20_000), checkpoint_seconds=100, restart_seconds=600
    )
    return SimulatedJob(
        n_steps=int(changes.get("n_steps", 50_000)), step_seconds=10, n_processes=1000,
        checkpoint_every=int(changes.get("every", 180)), interruptions=interruptions,
    )  # fmt: skip


def test_simulated_loss_is_that_of_the_formula() -> None:
    """800 expected failures: the share is known to some percent of itself."""
    one = job(n_steps=1_000_000)
    expected = one.interruptions.lost_share(one.checkpoint_every * one.step_seconds)
    assert one.run(np.random.default_rng(0)).lost_share == pytest.approx(expected, rel=0.05)


def test_run_without_failure_has_only_checkpoints() -> None:
    run = job(n_steps=1000, mtbf=1e12).run(np.random.default_rng(0))
    assert len(run.attempts) == 1
    assert run.seconds == 1000 * 10 + 5 * 100  # none after the last step
    assert run.repeated_steps == 0


@given(st.integers(0, 2**32 - 1), st.integers(1, 400), st.integers(1, 2000))
def test_surviving_steps_are_each_once(seed: int, every: int, n_steps: int) -> None:
    run = job(n_steps=n_steps, every=every, mtbf=5 * every * 10 + 500).run(
        np.random.default_rng(seed), lambda i: (1000, 992, 500)[i % 3]
    )
    assert [step for step, _ in surviving_steps(run.attempts)] == list(range(n_steps))
    for one in run.attempts:
        assert one.first_step <= one.saved_step <= one.end_step <= n_steps
        assert one.saved_step % every == 0 or one.saved_step == n_steps
        assert one.end_step - one.saved_step <= every
    assert run.seconds >= run.useful_seconds


@pytest.mark.parametrize("packed", [None, 32])
def test_interrupted_run_reads_each_row_once_with_any_number_of_processes(
    packed: int | None,
) -> None:
    lengths = np.random.default_rng(3).integers(5, 33, 3000)
    plan = BatchPlan(lengths=lengths, batch_tokens=1024, packed_length=packed, seed=7)
    n_steps = sum(len(plan.window_batches(0, w, plan.row_order(0))) for w in range(plan.n_windows))
    run = replace(job(n_steps=n_steps, every=4, mtbf=300), n_processes=16).run(
        np.random.default_rng(1), lambda i: (16, 15, 7, 1)[i % 4]
    )
    assert len(run.attempts) > 3
    counts, saved = np.zeros(len(lengths), int), DataCursor()
    for one in run.attempts:
        for step, batch in zip(
            range(one.first_step, one.saved_step), plan.global_batches(saved), strict=False
        ):
            assert batch.cursor.n_batches == step
            for rank in range(one.n_processes):
                for group in batch.part_of(rank, one.n_processes):
                    counts[group] += 1
            saved = batch.next_cursor
    assert (counts == 1).all()


def test_plan_recommends_an_interval_for_a_cluster() -> None:
    made = unmask.plan(
        "gpt3-175b", hardware="h100", devices=1000, strategy="fsdp", checkpoint_seconds=60
    )
    facts = made.to_json()["interruptions"]
    assert facts["mtbf_seconds"] == pytest.approx(DEFAULT_DEVICE_MTBF_HOURS * 3.6)
    expected = daly_interval(60, facts["mtbf_seconds"])
    assert facts["interval_seconds"] == pytest.approx(expected, abs=made.step_seconds / 2)
    assert facts["checkpoint_every"] == round(expected / made.step_seconds)
    assert 0 < facts["lost_share"] < 0.05


def test_checkpoint_time_is_that_of_its_bytes() -> None:
    """AdamW: 12 bytes a parameter with the float32 weights, at 1 GB/s."""
    one = unmask.plan("bert-base-uncased", hardware="a100", devices=8)
    assert one.interruptions is not None
    assert one.interruptions.checkpoint_seconds == pytest.approx(
        12 * one.parameters / 1e9, rel=0.01
    )
    alone = unmask.plan("bert-base-uncased", hardware="a100")
    assert alone.interruptions is None
    assert alone.to_json()["interruptions"] is None
    rated = unmask.plan("bert-base-uncased", hardware="a100", device_mtbf_hours=100)
    assert rated.interruptions is not None
    assert rated.interruptions.mtbf_seconds == 360_000
    assert rated.checkpoint_every is not None


@pytest.mark.parametrize("name", ["device_mtbf_hours", "checkpoint_seconds", "restart_seconds"])
@pytest.mark.parametrize("value", [0, -1, math.inf])
def test_impossible_times_are_refused(name: str, value: float) -> None:
    given: dict[str, Any] = {name: value}
    with pytest.raises(ValueError, match="must be above 0"):
        unmask.plan("bert-mini", hardware="a100", **given)
