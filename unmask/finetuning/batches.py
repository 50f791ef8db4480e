"""In which order examples are learned: a function of seed and epoch, similar lengths together."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import numpy as np
from jaxtyping import Int

from unmask.batch import Batch, Example
from unmask.finetuning.predict import ROWS
from unmask.hiding.collate import by_size, pad, size
from unmask.hiding.sources import Sources
from unmask.tokens.vocabulary import Special
from unmask.training.loop import Batches, Micro

WINDOW = 32
"""Batches among which texts are sorted by length: enough to save most padding, few enough to stay
random."""


def order(
    sizes: Int[np.ndarray, "n"], batch: int, seed: int, epoch: int, most: int = WINDOW
) -> list[list[int]]:
    """Draw the batches of an epoch, each item in one of them.

    Items are shuffled and sorted by length within windows of some batches; then the batches are
    shuffled. An epoch of few batches has small windows, or all would have the same batches; `most`
    is how many batches a window has at most.
    """
    rng = np.random.default_rng((seed, epoch))
    drawn = rng.permutation(len(sizes))
    n = -(-len(sizes) // batch)
    window = batch * max(min(most, n // 4), 1)
    found: list[list[int]] = []
    for start in range(0, len(drawn), window):
        some = drawn[start : start + window]
        some = some[np.argsort(sizes[some], kind="stable")]
        found += [some[i : i + batch].tolist() for i in range(0, len(some), batch)]
    return [found[i] for i in rng.permutation(len(found))]


def order_by_tokens(
    sizes: Int[np.ndarray, "n"], tokens: int, seed: int, epoch: int
) -> list[list[int]]:
    """Draw the batches of an epoch, each of at most so many tokens, padding included.

    Items of like length stand together (Vaswani et al. 2017, section 5.1), those of one length in
    any order; then the batches are shuffled. So an epoch has as many batches as any other. An item
    that is longer is a batch.
    """
    rng = np.random.default_rng((seed, epoch))
    drawn = rng.permutation(len(sizes))
    drawn = drawn[np.argsort(sizes[drawn], kind="stable")]
    found: list[list[int]] = [[]]
    for i in drawn.tolist():
        if found[-1] and (len(found[-1]) + 1) * int(sizes[i]) > tokens:
            found.append([])
        found[-1].append(i)
    return [found[i] for i in rng.permutation(len(found))]


def an_epoch(
    examples: Sequence[Example],
    batch: int | None,
    tokens: int | None,
    sources: Sources | None = None,
) -> int:
    """Count the steps of an epoch, of so many units or so many tokens each.

    Where an epoch takes only some of each source, or some again, these are what counts.

    Raises:
        ValueError: steps are of so many tokens, and some examples are asked together.
    """
    if tokens is None:
        assert batch is not None
        n = len(together(examples)) if sources is None else sum(sources.takes)
        return -(-n // batch)
    if any(example.group is not None for example in examples):
        raise ValueError(
            "batch_tokens is for texts that are learned one by one; give batch, a number of texts"
        )
    sizes = np.array([size(example) for example in examples], np.int64)
    return len(order_by_tokens(sizes, tokens, 0, 0))


def too_large(
    batch: int | None, tokens: int | None, examples: Sequence[Example], n: int
) -> list[str]:
    """Say what a step holds where it is asked for more than there is, if it is.

    Args:
        batch: units of a step; None: not asked for.
        tokens: of a step; None: not asked for.
        examples: of all units.
        n: units of an epoch.
    """
    held = n
    if tokens is not None:
        held = len(examples) * max(map(size, examples), default=0)
    asked = batch if tokens is None else tokens
    if asked is None or asked <= held:
        return []
    name, what = ("batch", "items") if tokens is None else ("batch_tokens", "tokens with padding")
    return [f"{name} = {asked:,}: a step holds all there is to learn from, {held:,} {what}"]


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
    batch: int | None,
    micro_tokens: int,
    seed: int,
    draw: Callable[[Example, np.random.Generator], Example] | None = None,
    *,
    tokens: int | None = None,
    sources: Sources | None = None,
) -> Batches:
    """Say which micro-batches make each step; a place in the data is the number of steps before.

    A batch is so many units: examples, or groups of examples that are asked together, which no
    micro-batch parts. Or, with `tokens`, as many examples as have so many, padding included.

    With `sources`, an epoch takes so many units of each: those of a small one again and again, of a
    large one some, none before all others of its source were read. Their lengths differ so much
    that a batch of like lengths would be of one source: a batch is then of any lengths, and those
    that are alike go through the model together.

    With `draw`, an example is what that makes of it whenever it is read; what is drawn depends on
    the seed, how often it was read before and which example it is, and so not on where a run began.
    """
    units = together(examples)
    sizes = np.array([max(size(examples[i]) for i in unit) for unit in units], np.int64)
    n = an_epoch(examples, batch, tokens, sources)

    def readings(epoch: int) -> Int[np.ndarray, "k"]:
        if sources is None:
            return epoch * len(units) + np.arange(len(units))
        return sources.readings(
            epoch,
            lambda *which: np.random.default_rng(np.random.SeedSequence(seed, spawn_key=which)),
        )

    def begin(cursor: Any) -> Iterator[tuple[Micro, Any]]:
        step, epoch = cursor or 0, -1
        plan: list[list[int]] = []
        read = np.zeros(0, np.int64)
        while True:
            if step // n != epoch:
                epoch = step // n
                read = readings(epoch)
                long = sizes[read % len(units)]
                plan = (
                    order(long, cast("int", batch), seed, epoch, WINDOW if sources is None else 1)
                    if tokens is None
                    else order_by_tokens(long, tokens, seed, epoch)
                )
            which = [
                (turn, i)
                for turn, unit in (divmod(int(read[at]), len(units)) for at in plan[step % n])
                for i in units[unit]
            ]
            drawn = [examples[i] for _, i in which]
            if draw is not None:  # + 1: (seed, epoch, 0) would be the generator of the order
                dice = [np.random.default_rng((seed, turn, i + 1)) for turn, i in which]
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
