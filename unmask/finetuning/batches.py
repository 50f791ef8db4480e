"""In which order examples are learned: a function of seed and epoch, similar lengths together."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from jaxtyping import Int

from unmask.batch import Batch, Example
from unmask.finetuning.predict import groups
from unmask.hiding.collate import pad, size
from unmask.tokens.vocabulary import Special
from unmask.training.loop import Batches, Micro

WINDOW = 32
"""Batches among which texts are sorted by length: enough to save most padding, few enough to stay
random."""


def order(sizes: Int[np.ndarray, "n"], batch: int, seed: int, epoch: int) -> list[list[int]]:
    """Draw the batches of an epoch, each item in one of them.

    Items are shuffled and sorted by length within windows of some batches; then the batches are
    shuffled. An epoch of few batches has small windows, or all would have the same batches.
    """
    rng = np.random.default_rng((seed, epoch))
    drawn = rng.permutation(len(sizes))
    n = -(-len(sizes) // batch)
    window = batch * max(min(WINDOW, n // 4), 1)
    found: list[list[int]] = []
    for start in range(0, len(drawn), window):
        some = drawn[start : start + window]
        some = some[np.argsort(sizes[some], kind="stable")]
        found += [some[i : i + batch].tolist() for i in range(0, len(some), batch)]
    return [found[i] for i in rng.permutation(len(found))]


def batches(
    examples: Sequence[Example], special: Special, batch: int, micro_tokens: int, seed: int
) -> Batches:
    """Say which micro-batches make each step; a place in the data is the number of steps before."""
    sizes = np.array([size(e) for e in examples], np.int64)
    an_epoch = -(-len(examples) // batch)

    def begin(cursor: Any) -> Iterator[tuple[Micro, Any]]:
        step, epoch = cursor or 0, -1
        plan: list[list[int]] = []
        while True:
            if step // an_epoch != epoch:
                epoch = step // an_epoch
                plan = order(sizes, batch, seed, epoch)
            yield (
                micro([examples[i] for i in plan[step % an_epoch]], special, micro_tokens),
                step + 1,
            )
            step += 1

    return begin


def micro(examples: Sequence[Example], special: Special, tokens: int) -> list[Batch]:
    """Cut a batch into parts that go through the model in turn; a step's gradient is their sum."""
    parts = groups([size(e) for e in examples], tokens)
    return [pad([examples[i] for i in part], special) for part in parts]
