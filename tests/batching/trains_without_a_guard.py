"""A script as users write them: no `if __name__ == "__main__"`. It must print once, and no more."""

import multiprocessing
import time

import numpy as np
import torch
from in_memory import InMemory
from vocabularies import BERT

from unmask.batching.loader import BatchLoader
from unmask.objectives import published

torch.ones(600, 600) @ torch.ones(600, 600)  # OpenMP's threads are there before the workers
rows = np.stack((np.arange(0, 4000, 10), np.arange(10, 4001, 10)), 1)
loader = BatchLoader(
    token_source=InMemory(4000),
    row_spans=rows,
    objective=published.BERT,
    special_ids=BERT,
    max_length=16,
    batch_tokens=64,
    n_workers=2,
)
for i, _ in enumerate(loader):
    if i == 3:
        print(*(child.pid for child in multiprocessing.active_children()), flush=True)
    time.sleep(0.01)
