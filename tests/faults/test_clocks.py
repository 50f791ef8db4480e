"""Clocks that go backwards, leap and stand still: no negative duration, the same result."""

import json
import random
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from faults import assert_as_undisturbed, kinds, line_of
from kills import Tree
from tiny_jobs import JOBS, SMALL, pretraining, ready

CLOCKS = ("time", "perf_counter", "monotonic", "process_time")
DURATIONS = re.compile(r'"\w*(?:seconds|hours|minutes)\w*": (-[0-9.e+-]+|NaN|-?Infinity)')
"""In a file of results: a length of time that cannot be."""


def jumping(seed: int, begin: float) -> Callable[[], float]:
    """Make a clock that mostly goes backwards, sometimes leaps, sometimes stands still."""
    draw, now = random.Random(seed), begin

    def clock() -> float:
        nonlocal now
        now += draw.choice((-3600.0, -1.0, -1e-3, 0.0, 0.0, 1e-3, 5.0))
        return now

    return clock


def backwards(begin: float) -> Callable[[], float]:
    """Make a clock that loses a second each time it is read."""
    now = begin

    def clock() -> float:
        nonlocal now
        now -= 1.0
        return now

    return clock


WAYS: dict[str, Callable[[float], Callable[[], float]]] = {
    "backwards": backwards,
    "jumping": lambda begin: jumping(1, begin),
    "standing still": lambda begin: lambda: begin,
}


@pytest.mark.trials("signals and clocks")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", kinds(JOBS, ("prefer",)))
@pytest.mark.filterwarnings("ignore")
def test_job_ends_alike_and_without_negative_durations_under_any_clock(
    name: str, way: str, home: Path, undisturbed: Callable[[str], Tree], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    job, whole, out = ready(name, home), undisturbed(name), tmp_path / "run"
    with monkeypatch.context() as patch:
        for clock in CLOCKS:
            patch.setattr(time, clock, WAYS[way](getattr(time, clock)()))
        job(home, out, False)
        job(home, out, True)
    assert_as_undisturbed(out, whole, way)
    for path in out.rglob("*.json*"):
        text = path.read_text(encoding="utf-8", errors="replace")
        assert not DURATIONS.search(text), (path.name, DURATIONS.search(text))
    for path in out.rglob("timing.jsonl"):
        seconds = [json.loads(line)["seconds"] for line in path.read_text().splitlines()]
        assert all(s >= 0 for s in seconds), seconds


@pytest.mark.trials("signals and clocks")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.filterwarnings("ignore")
def test_run_of_so_many_minutes_ends_under_any_clock(
    way: str, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes some steps, or is refused: nothing can be timed by a clock that does not go on."""
    for clock in CLOCKS:
        monkeypatch.setattr(time, clock, WAYS[way](getattr(time, clock)()))
    run = pretraining("bert-tiny", *SMALL, steps=None, minutes=0.5)
    try:
        run(home, tmp_path / "run", False)
    except ValueError as error:
        line, status = line_of(error)
        assert status == 2
        assert "the clock did not go on" in line
