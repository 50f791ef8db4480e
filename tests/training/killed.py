"""A run that is killed again and again, and one that is not.

Its arguments: `OUT KILLS SEED PRECISION MODEL`.

Each life of the run is a fork of this process, which has torch loaded already, so a life begins at
once. Flushing is made slow, so that many kills fall into the writing of a checkpoint.
"""

import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import test_models
import torch
import toy

from unmask.batch import Batch
from unmask.checkpoints import folder as checkpoints
from unmask.files import lock_run_folder
from unmask.training import loop
from unmask.training.config import Recipe
from unmask.training.log import TrainingLog
from unmask.training.optimizers.config import Muon
from unmask.training.resume import restore_run, save_checkpoint
from unmask.training.run import TrainingRun

STEPS, EVERY = 40, 3


def start_run(model: str, precision: str) -> tuple[TrainingRun, list[Batch]]:
    """Begin a run of the toy, or of a small model of the catalogue, and what it is evaluated on."""
    changes = {
        "steps": STEPS, "precision": precision, "optimizer": Muon(),
        "learning_rate": 1e-2, "log_every": 4,
    }  # fmt: skip
    if model == "toy":
        return toy.run(Recipe(model="toy", **changes)), [toy.rows(10**6)]
    run = test_models.run(model, **changes)
    return run, list(next(run.batches(None))[0])


def run_to_the_end(folder: Path, precision: str, model: str) -> None:
    """One life: from the newest checkpoint, if there is one, to the end."""
    real = os.fsync

    def slowly(descriptor: int) -> None:
        time.sleep(0.001)
        real(descriptor)

    os.fsync = slowly
    with lock_run_folder(folder):
        run, held_out = start_run(model, precision)
        checkpoint, damaged = checkpoints.newest_checkpoint(folder)
        assert not damaged
        if checkpoint is not None:
            restore_run(run, checkpoint)
        checkpoints.truncate_logs(folder, checkpoint)
        with TrainingLog(folder) as log:
            for report in loop.train(run):
                log(report)
                if report.step % 10 == 0:
                    log.log_evaluation(report.step, loop.evaluate_batches(run.model, held_out))
                if report.step % EVERY == 0 or report.step == STEPS:
                    save_checkpoint(run, folder)


def run_until_killed(folder: Path, precision: str, model: str, enough: Callable[[], bool]) -> int:
    """Run one life and kill it when it is enough; return its exit status, negative if killed."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            run_to_the_end(folder, precision, model)
            status = 0
        finally:
            os._exit(status)
    while not enough():
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.0003)
    os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def writing(folder: Path) -> bool:
    """Whether a checkpoint is half written, or half removed."""
    home = folder / "checkpoints"
    try:
        return any(p.name.startswith(".") for p in home.iterdir())
    except FileNotFoundError:
        return False


def after(seconds: float) -> Callable[[], bool]:
    end = time.monotonic() + seconds
    return lambda: time.monotonic() > end


def during_nth_write(folder: Path, n: int) -> Callable[[], bool]:
    """Right in the n-th writing of a checkpoint, what the last life left not counted."""
    seen, was = 0, True

    def enough() -> bool:
        nonlocal seen, was
        now = writing(folder)
        seen += now and not was
        was = now
        return seen >= n

    return enough


def main(out: str, kills: str, seed: str, precision: str, model: str) -> None:
    torch.set_num_threads(1)
    straight, killed = Path(out) / "straight", Path(out) / "killed"
    straight.mkdir()
    killed.mkdir()
    started = time.monotonic()
    assert run_until_killed(straight, precision, model, lambda: False) == 0
    whole = time.monotonic() - started
    random.seed(int(seed))
    died = half = 0
    for i in range(int(kills)):
        at_random = after(random.uniform(0, 1.5 / int(kills)) * whole)
        in_writing = during_nth_write(killed, random.choice((1, 2)))
        status = run_until_killed(killed, precision, model, in_writing if i % 2 else at_random)
        assert status in (0, -signal.SIGKILL), status
        if status == 0:
            break
        died += 1
        half += writing(killed)
    assert run_until_killed(killed, precision, model, lambda: False) == 0
    (Path(out) / "said.json").write_text(json.dumps({"died": died, "half": half}))


if __name__ == "__main__":
    main(*sys.argv[1:])
