"""Signals at any moment, once or several times: what was stopped goes on to the same result."""

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from faults import assert_as_undisturbed, at_change, changes, kinds, line_of, spread
from kills import Tree
from tiny_jobs import JOBS, ready
from trials import Trials

from unmask.training.interrupt import interrupt_on_signal

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def stopped(job: Callable[[], object], out: Path, n: int, number: int) -> bool:
    """Run a job and send a signal at its n-th change of the disk; whether there were so many.

    The signal must end the job, also during the last step and after it: of several runs, the next
    must not begin.
    """
    sent = []

    def send() -> None:
        sent.append(number)
        os.kill(os.getpid(), number)

    try:
        with interrupt_on_signal(), at_change(n, out, send):
            job()
    except KeyboardInterrupt as stop:
        line, status = line_of(stop)
        assert status == 128 + number, line
        return True
    assert not sent, f"the job went on after {signal.Signals(number).name} at change {n}"
    return False


@pytest.mark.parametrize("name", kinds(JOBS))
@pytest.mark.filterwarnings("ignore")
def test_job_stopped_by_any_signal_at_any_moment_goes_on_alike(
    name: str, home: Path, undisturbed: Callable[[str], Tree], tmp_path: Path, trials: Trials
) -> None:
    job, whole, out = ready(name, home), undisturbed(name), tmp_path / "run"
    n_changes = changes(out, lambda: job(home, out, False))
    shutil.rmtree(out)
    for i, n in enumerate(spread(n_changes, 6)):
        number = SIGNALS[i % 3]
        assert stopped(lambda: job(home, out, False), out, n, number)
        out.mkdir(exist_ok=True)
        job(home, out, True)
        assert_as_undisturbed(out, whole, f"{signal.Signals(number).name} at change {n}")
        shutil.rmtree(out)
        trials.count("signals and clocks")


@pytest.mark.parametrize("name", kinds(JOBS))
@pytest.mark.filterwarnings("ignore")
def test_job_stopped_once_twice_or_three_times_goes_on_alike(
    name: str, home: Path, undisturbed: Callable[[str], Tree], tmp_path: Path, trials: Trials
) -> None:
    job, whole, out = ready(name, home), undisturbed(name), tmp_path / "run"
    n_changes = changes(out, lambda: job(home, out, False))
    shutil.rmtree(out)
    for times in (1, 2, 3):
        n_stopped = 0
        for i in range(times):
            at = n_changes * (i + 1) // (times + 1) // (i + 1)
            again = out.exists()
            n_stopped += stopped(lambda again=again: job(home, out, again), out, at, signal.SIGTERM)
        out.mkdir(exist_ok=True)
        job(home, out, True)
        assert_as_undisturbed(out, whole, f"stopped {n_stopped} times")
        shutil.rmtree(out)
        trials.count("signals and clocks", n_stopped)
