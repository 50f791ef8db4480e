"""One of two processes in the test of optimizers: `sharded_optimizers.py FILE`."""

import copy
import json
import sys
from pathlib import Path

import torch
from torch import distributed as dist

from unmask.heads.model import Model
from unmask.training.device.distributed import World
from unmask.training.device.divided_tensors import copy_tensor, divided_like, own_part, whole_tensor
from unmask.training.device.sharding import ShardedModel
from unmask.training.optimizers.build import build_optimizer
from unmask.training.optimizers.config import LAMB, SGD, Adafactor, AdamW, Muon, OptimizerConfig
from unmask.training.optimizers.master_weights import MasterWeights
from unmask.zoo.catalogue import get_preset


def main(file: str) -> None:
    """Write the largest difference of the weights after some steps, by optimizer."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    preset = get_preset("bert-tiny")
    # 101: the rows of the table are not an even number.
    model = Model(preset.architecture.with_vocab_size(101), preset.heads).initialize(0)
    configs = (AdamW(), SGD(momentum=0.9), LAMB(), Adafactor(), Muon())
    found = {type(config).__name__: difference(model, config) for config in configs}
    if dist.get_rank() == 0:
        Path(file).write_text(json.dumps(found))
    dist.destroy_process_group()


def difference(model: Model, config: OptimizerConfig) -> float:
    """Take three steps of a whole and of a divided copy; return how far their weights are apart."""
    whole = copy.deepcopy(model)
    world = World(dist.get_rank(), dist.get_world_size(), strategy="fsdp")
    divided = ShardedModel(copy.deepcopy(model), world, torch.float32).model
    a, b = MasterWeights(whole), MasterWeights(divided)
    optimizers = [build_optimizer(config, m, w) for m, w in ((whole, a), (divided, b))]
    draw = torch.Generator().manual_seed(0)
    for _ in range(3):
        for name in a.trained_names:
            gradient = torch.randn(a.masters[name].shape, generator=draw)
            a.masters[name].grad = gradient
            part = divided_like(torch.empty_like(own_part(b.masters[name])), b.masters[name])
            copy_tensor(part, gradient)
            b.masters[name].grad = part
        for optimizer in optimizers:
            optimizer.step(1e-3)
    gaps = [(whole_tensor(b.masters[n]) - a.masters[n]).abs().max().item() for n in a.trained_names]
    return max(gaps)


if __name__ == "__main__":
    main(*sys.argv[1:])
