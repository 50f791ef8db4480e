"""One of two processes in the test of data parallelism: `two_processes.py RANK PORT OUT`."""

import json
import os
import sys
from pathlib import Path

import torch
import toy

from unmask.checkpoints.tensors import write_tensors
from unmask.training import loop
from unmask.training.log import Log
from unmask.training.parallel import join
from unmask.training.recipe import AdamW, Recipe


def main(rank: str, port: str, out: str) -> None:
    torch.set_num_threads(1)
    os.environ |= {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": "2"}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    recipe = Recipe(
        model="toy", steps=6, precision="float32", rate=1e-2, log_every=2, optimizer=AdamW(eps=1e-3)
    )
    with join("cpu") as world:
        model = toy.model()
        model.backbone.dropout = 0.0
        run = loop.start(recipe, model, toy.batches((0, 3, 8), world.rank, world.size), world=world)
        folder = Path(out)
        losses = []
        steps = loop.measure(run, 0.01)
        with Log(folder / rank) as log:
            for report in loop.train(run):
                log(report)
                losses.append((report.loss, report.gradient_norm, report.tokens))
        stop = loop.Stop()
        stop.asked = rank == "1"
        agreed = stop.agreed(world)
        told = world.tell({"rank": world.rank})
        gathered = world.gather({f"of {rank}": torch.full((1 + world.rank, 2), world.rank + 0.5)})
        first = world.first(f"from {rank}")
        loop.save(run, folder)
        world.first(None)
        checkpoint, damaged = loop.newest(folder, world)
        assert checkpoint is not None
        assert not damaged
        loop.restore(run, checkpoint)
        said = {
            "steps": steps,
            "newest": checkpoint.step,
            "losses": losses,
            "agreed": agreed,
            "told": told,
            "gathered": [{name: x.tolist() for name, x in each.items()} for each in gathered],
            "first": first,
        }
        (folder / rank / "said.json").write_text(json.dumps(said))
        write_tensors(folder / rank / "state.safetensors", loop.model_tensors(run))


if __name__ == "__main__":
    main(*sys.argv[1:])
