"""In which order examples are learned: a function of seed and epoch, similar lengths together."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from jaxtyping import Int

from unmask.batch import Batch, Example
from unmask.finetuning.predict import ROWS
from unmask.hiding.collate import by_size, pad, size
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


def together(examples: Sequence[Example]) -> list[list[int]]:
    """List which examples are learned together: those of a group; any other is alone."""
    units: dict[tuple[bool, int], list[int]] = {}
    for i, example in enumerate(examples):
        alone = example.group is None
        units.setdefault((alone, i if example.group is None else example.group), []).append(i)
    return list(units.values())


def batches(
    examples: Sequence[Example],
    special: Special,
    batch: int,
    micro_tokens: int,
    seed: int,
    draw: Callable[[Example, np.random.Generator], Example] | None = None,
) -> Batches:
    """Say which micro-batches make each step; a place in the data is the number of steps before.

    A batch is so many units: examples, or groups of examples that are asked together, which no
    micro-batch parts.

    With `draw`, an example is what that makes of it in each epoch; what is drawn depends on the
    seed, the epoch and which example it is, and so not on where a run began.
    """
    units = together(examples)
    sizes = np.array([max(size(examples[i]) for i in unit) for unit in units], np.int64)
    an_epoch = -(-len(units) // batch)

    def begin(cursor: Any) -> Iterator[tuple[Micro, Any]]:
        step, epoch = cursor or 0, -1
        plan: list[list[int]] = []
        while True:
            if step // an_epoch != epoch:
                epoch = step // an_epoch
                plan = order(sizes, batch, seed, epoch)
            which = [i for unit in plan[step % an_epoch] for i in units[unit]]
            drawn = [examples[i] for i in which]
            if draw is not None:  # + 1: (seed, epoch, 0) would be the generator of the order
                dice = [np.random.default_rng((seed, epoch, i + 1)) for i in which]
                drawn = [draw(e, rng) for e, rng in zip(drawn, dice, strict=True)]
            yield micro(drawn, special, micro_tokens), step + 1
            step += 1

    return begin


def micro(examples: Sequence[Example], special: Special, tokens: int) -> list[Batch]:
    """Cut a batch into parts that go through the model in turn; a step's gradient is their sum.

    Examples that are asked together stay together, even where they have more tokens.
    """
    units = [[examples[i] for i in unit] for unit in together(examples)]
    sizes = [max(map(size, unit)) for unit in units]
    parts = by_size(sizes, tokens, ROWS, [len(unit) for unit in units])
    return [pad([e for i in part for e in units[i]], special) for part in parts]
