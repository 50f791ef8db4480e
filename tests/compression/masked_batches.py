"""Batches of random tokens with targets, for models that are compressed while they train."""

from typing import Any

import torch

from unmask.batch import Batch, Visibility


def batches(cursor: Any) -> Any:
    step = 0 if cursor is None else cursor
    while True:
        ids = torch.randint(5, 90, (4, 8), generator=torch.Generator().manual_seed(step))
        positions = torch.arange(0, 32, 5)
        batch = Batch(
            inputs=ids, targets=ids.roll(1, 1), target_positions=positions, visibility=Visibility()
        )
        step += 1
        yield [batch], step
