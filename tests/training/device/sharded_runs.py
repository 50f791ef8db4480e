"""One of the processes of the tests of sharded runs: `sharded_runs.py OUT NAME...`, under torchrun.

Trains each golden run (`tests/golden`) for a few steps, by whole copies (ddp) and divided (fsdp).
"""

import sys
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import distributed as dist

import unmask
from tests.golden import golden_runs
from unmask.training import loop
from unmask.training.device.divided_tensors import own_part
from unmask.training.run import TrainingRun

STEPS = 6


def main(out: str, *names: str) -> None:
    """Train the runs in the folder `out`, whose text the test has written."""
    warnings.simplefilter("ignore")  # of six steps on a small text much may be said
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    home = Path(out)
    for name in names:
        run = golden_runs.RUNS[name]
        changes = golden_runs._changes(run)
        # Micro-batches of few tokens: in some steps one process has more of them than the other.
        micro = max(64, changes.get("sequence_length", 64))
        changes |= {"log_every": 1, "micro_batch_tokens": micro, "dropout": 0.0}
        for strategy in ("ddp", "fsdp"):
            _train(home, name, run.card, changes, strategy)
    dist.destroy_process_group()


def _train(home: Path, name: str, card: str, changes: dict[str, Any], strategy: str) -> None:
    states: list[dict[str, int]] = []
    update = loop._update_weights

    def measured(run: TrainingRun, norm: float, rate: float, step: int) -> None:
        update(run, norm, rate, step)
        state = run.optimizer.state_tensors().values()
        states.append(
            {
                "weights": sum(own_part(x).nbytes for x in run.weights.masters.values()),
                "gradients": sum(own_part(x).nbytes for x in run.weights.gradients.values()),
                "optimizer": sum(own_part(x).nbytes for x in state),
            }
        )

    loop._update_weights = measured
    try:
        unmask.pretrain(
            card, data=home / "text.txt", out=home / f"{name}-{strategy}", steps=STEPS,
            changes=[changes], threads=1, quiet=True, strategy=strategy,
        )  # fmt: skip
    finally:
        loop._update_weights = update
    (home / f"{name}-{strategy}" / f".state-{dist.get_rank()}.json").write_text(
        str(states[-1]).replace("'", '"')
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
