"""One of two processes in the test of data parallelism: `two_processes.py RANK PORT OUT`."""

import json
import os
import sys
from pathlib import Path

import torch
import toy

from unmask.checkpoints.tensors import write_tensors
from unmask.training import loop
from unmask.training.config import Recipe
from unmask.training.device.distributed import process_group
from unmask.training.interrupt import StopRequest
from unmask.training.log import TrainingLog
from unmask.training.optimizers.config import AdamW
from unmask.training.resume import (
    find_newest_checkpoint,
    restore_run,
    save_checkpoint,
    trained_tensors,
)


def main(rank: str, port: str, out: str) -> None:
    torch.set_num_threads(1)
    os.environ |= {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": "2"}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    recipe = Recipe(
        model="toy",
        steps=6,
        precision="float32",
        learning_rate=1e-2,
        log_every=2,
        optimizer=AdamW(eps=1e-3),
    )
    with process_group("cpu") as world:
        model = toy.model()
        model.backbone.dropout = 0.0
        run = loop.start_run(
            recipe, model, toy.batches((0, 3, 8), world.rank, world.size), world=world
        )
        folder = Path(out)
        losses = []
        steps = loop.estimate_steps(run, 0.01)
        with TrainingLog(folder / rank) as log:
            for report in loop.train(run):
                log(report)
                losses.append((report.loss, report.gradient_norm, report.n_tokens))
        stop = StopRequest()
        if rank == "1":
            stop.ask()
        agreed = stop.is_requested_anywhere(world)
        result = world.all_gather_object({"rank": world.rank})
        gathered = world.all_gather_tensors(
            {f"of {rank}": torch.full((1 + world.rank, 2), world.rank + 0.5)}
        )
        first = world.broadcast_object(f"from {rank}")
        save_checkpoint(run, folder)
        world.broadcast_object(None)
        checkpoint, damaged = find_newest_checkpoint(folder, world)
        assert checkpoint is not None
        assert not damaged
        restore_run(run, checkpoint)
        output = {
            "steps": steps,
            "newest": checkpoint.step,
            "losses": losses,
            "agreed": agreed,
            "told": result,
            "gathered": [{name: x.tolist() for name, x in each.items()} for each in gathered],
            "first": first,
        }
        (folder / rank / "said.json").write_text(json.dumps(output))
        write_tensors(folder / rank / "state.safetensors", trained_tensors(run))


if __name__ == "__main__":
    main(*sys.argv[1:])
