"""Loader workers: any number of them is the same run, also where they are killed."""

import multiprocessing
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from faults import assert_as_undisturbed, line_of
from kills import Tree
from tiny_jobs import LSTM, PICTURES, SMALL, TWO_STACKS, pretraining
from trials import Trials

from unmask.batching import workers as loader_workers
from unmask.training.log import TrainingLog

KINDS = {
    "bert": ("pretrain bert", "bert-tiny", SMALL, "text.txt"),
    "t5": ("pretrain t5", "t5-mini", TWO_STACKS, "text.txt"),
    "lstm": ("pretrain lstm", "ulmfit-mini", LSTM, "text.txt"),
    "pictures": ("pretrain pictures", "vit-mini", PICTURES, "noise.npz"),
}

pytestmark = [pytest.mark.thorough, pytest.mark.filterwarnings("ignore")]


@pytest.mark.parametrize("kind", KINDS)
def test_run_is_the_same_with_other_numbers_of_workers_after_each_stop(
    kind: str, home: Path, undisturbed: Callable[[str], Tree], tmp_path: Path, trials: Trials,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    name, model, changes, data = KINDS[kind]
    whole, out, log = undisturbed(name), tmp_path / "run", TrainingLog.__call__

    def stop(self: TrainingLog, report: object) -> None:
        log(self, report)
        os.kill(os.getpid(), signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(TrainingLog, "__call__", stop)
        for again, n in ((False, 2), (True, 0)):
            with pytest.raises(KeyboardInterrupt):
                pretraining(model, *changes, data=data, workers=n)(home, out, again)
    pretraining(model, *changes, data=data, workers=1)(home, out, True)
    assert_as_undisturbed(out, whole, "2, 0 and 1 workers")
    trials.count("data and workers", 3)


@pytest.mark.parametrize("kind", KINDS)
def test_run_is_the_same_when_its_workers_are_killed(
    kind: str, home: Path, undisturbed: Callable[[str], Tree], tmp_path: Path, trials: Trials,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    name, model, changes, data = KINDS[kind]
    log, n_killed = TrainingLog.__call__, 0

    def kill(self: TrainingLog, report: object) -> None:
        nonlocal n_killed
        log(self, report)
        for process in multiprocessing.active_children()[:1]:
            if process.pid is not None and n_killed == 0:
                os.kill(process.pid, signal.SIGKILL)
                n_killed += 1

    monkeypatch.setattr(TrainingLog, "__call__", kill)
    pretraining(model, *changes, data=data, workers=2)(home, tmp_path / "run", False)
    assert n_killed == 1
    assert_as_undisturbed(tmp_path / "run", undisturbed(name), "a worker killed")
    trials.count("data and workers", n_killed)


def test_run_whose_workers_are_always_killed_ends_in_one_line(
    home: Path, tmp_path: Path, trials: Trials, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, n_killed = loader_workers._start_workers, 0

    def killed(*given: object) -> object:
        nonlocal n_killed
        started = start(*given)  # pyright: ignore[reportArgumentType]
        for process in multiprocessing.active_children():
            if process.pid is not None:
                os.kill(process.pid, signal.SIGKILL)
                n_killed += 1
        return started

    monkeypatch.setattr(loader_workers, "_start_workers", killed)
    with pytest.raises(ChildProcessError) as error:
        pretraining("bert-tiny", *SMALL, workers=1)(home, tmp_path / "run", False)
    line, status = line_of(error.value)
    assert status == 1
    assert "before their work was done" in line
    trials.count("data and workers", n_killed)
