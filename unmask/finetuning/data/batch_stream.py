"""In which order examples are learned: a function of seed and epoch, similar lengths together."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from jaxtyping import Int

from unmask.batch import Batch, Example
from unmask.batching.collate import example_length, group_by_length, pad_examples
from unmask.batching.source_sampling import SourceSampling
from unmask.finetuning.results.predict import MAX_BATCH_ROWS
from unmask.heads.classification.choice_groups import ChoiceGroup
from unmask.tokenizers.spec import SpecialTokenIds
from unmask.training.run import BatchStream, MicroBatches

SORT_WINDOW_BATCHES = 32
"""Batches among which texts are sorted by length: enough to save most padding, few enough to stay
random."""


def draw_batches(
    lengths: Int[np.ndarray, "n"],
    batch_size: int,
    seed: int,
    epoch: int,
    max_window_batches: int = SORT_WINDOW_BATCHES,
) -> list[list[int]]:
    """Draw the batches of an epoch, each item in one of them.

    Items are shuffled and sorted by length within windows of some batches; then the batches are
    shuffled. An epoch of few batches has small windows, or all would have the same batches;
    `max_window_batches` is how many batches a window has at most.
    """
    rng = np.random.default_rng((seed, epoch))
    drawn = rng.permutation(len(lengths))
    n = -(-len(lengths) // batch_size)
    window = batch_size * max(min(max_window_batches, n // 4), 1)
    found: list[list[int]] = []
    for start in range(0, len(drawn), window):
        some = drawn[start : start + window]
        some = some[np.argsort(lengths[some], kind="stable")]
        found += [some[i : i + batch_size].tolist() for i in range(0, len(some), batch_size)]
    return [found[i] for i in rng.permutation(len(found))]


def draw_batches_by_tokens(
    lengths: Int[np.ndarray, "n"], batch_tokens: int, seed: int, epoch: int
) -> list[list[int]]:
    """Draw the batches of an epoch, each of at most so many tokens, padding included.

    Items of like length are together (Vaswani et al. 2017, section 5.1), those of one length in any
    order; then the batches are shuffled. So an epoch has as many batches as any other. An item that
    is longer is a batch.
    """
    rng = np.random.default_rng((seed, epoch))
    drawn = rng.permutation(len(lengths))
    drawn = drawn[np.argsort(lengths[drawn], kind="stable")]
    found: list[list[int]] = [[]]
    for i in drawn.tolist():
        if found[-1] and (len(found[-1]) + 1) * int(lengths[i]) > batch_tokens:
            found.append([])
        found[-1].append(i)
    return [found[i] for i in rng.permutation(len(found))]


def count_epoch_steps(
    examples: Sequence[Example],
    batch_size: int | None,
    batch_tokens: int | None,
    source_sampling: SourceSampling | None = None,
) -> int:
    """Count the steps of an epoch, of so many units or so many tokens each.

    Where an epoch takes only some of each source, or some again, these are what counts.

    Raises:
        ValueError: steps are of so many tokens, and some examples are asked together.
    """
    if batch_tokens is None:
        assert batch_size is not None
        n = (
            len(group_examples(examples))
            if source_sampling is None
            else sum(source_sampling.rows_per_epoch)
        )
        return -(-n // batch_size)
    if any(example.has(ChoiceGroup) for example in examples):
        raise ValueError(
            "batch_tokens is for texts that are learned one by one; give batch_size, a number of "
            "texts"
        )
    sizes = np.array([example_length(example) for example in examples], np.int64)
    return len(draw_batches_by_tokens(sizes, batch_tokens, 0, 0))


def batch_size_warnings(
    batch_size: int | None, batch_tokens: int | None, examples: Sequence[Example], n_units: int
) -> list[str]:
    """Say what a step holds where it is asked for more than there is, if it is.

    Args:
        batch_size: units of a step; None: not asked for.
        batch_tokens: of a step; None: not asked for.
        examples: of all units.
        n_units: units of an epoch.
    """
    held = n_units
    if batch_tokens is not None:
        held = len(examples) * max(map(example_length, examples), default=0)
    asked = batch_size if batch_tokens is None else batch_tokens
    if asked is None or asked <= held:
        return []
    name, what = (
        ("batch_size", "items") if batch_tokens is None else ("batch_tokens", "tokens with padding")
    )
    return [f"{name} = {asked:,}: a step holds all there is to learn from, {held:,} {what}"]


def group_examples(examples: Sequence[Example]) -> list[list[int]]:
    """List which examples are learned together: those of a group; any other is alone."""
    units: dict[tuple[bool, int], list[int]] = {}
    for i, example in enumerate(examples):
        group = example.feature(ChoiceGroup)
        units.setdefault((group is None, i if group is None else group.number), []).append(i)
    return list(units.values())


@dataclass(frozen=True, kw_only=True)
class BatchSize:
    """How much is learned in a step, and how much of it goes through the model at once."""

    n_units: int | None = None
    """Units in a batch: examples, or groups of examples that are scored together, which no
    micro-batch separates. None: see `n_tokens`."""
    n_tokens: int | None = None
    """Tokens in a batch, padding included."""
    micro_batch_tokens: int
    """Tokens in a micro-batch."""


def make_batch_stream(
    examples: Sequence[Example],
    special_ids: SpecialTokenIds,
    size: BatchSize,
    seed: int,
    sample_example: Callable[[Example, np.random.Generator], Example] | None = None,
    *,
    source_sampling: SourceSampling | None = None,
) -> BatchStream:
    """Return the micro-batches of each step; the cursor is the number of steps before.

    With `source_sampling`, an epoch takes so many units of each: those of a small one again and
    again, of a large one some, none before all others of its source were read. Their lengths differ
    so much that a batch of like lengths would be of one source: a batch is then of any lengths, and
    those that are alike go through the model together.

    With `sample_example`, an example is what that makes of it whenever it is read; what is drawn
    depends on the seed, how often it was read before and which example it is, and so not on where a
    run began.
    """
    units = group_examples(examples)
    sizes = np.array([max(example_length(examples[i]) for i in unit) for unit in units], np.int64)
    n = count_epoch_steps(examples, size.n_units, size.n_tokens, source_sampling)

    def readings(epoch: int) -> Int[np.ndarray, "k"]:
        if source_sampling is None:
            return epoch * len(units) + np.arange(len(units))
        return source_sampling.epoch_rows(
            epoch,
            lambda *which: np.random.default_rng(np.random.SeedSequence(seed, spawn_key=which)),
        )

    def begin(cursor: Any) -> Iterator[tuple[MicroBatches, Any]]:
        step, epoch = cursor or 0, -1
        plan: list[list[int]] = []
        read = np.zeros(0, np.int64)
        while True:
            if step // n != epoch:
                epoch = step // n
                read = readings(epoch)
                long = sizes[read % len(units)]
                plan = (
                    draw_batches(
                        long,
                        cast("int", size.n_units),
                        seed,
                        epoch,
                        SORT_WINDOW_BATCHES if source_sampling is None else 1,
                    )
                    if size.n_tokens is None
                    else draw_batches_by_tokens(long, size.n_tokens, seed, epoch)
                )
            which = [
                (turn, i)
                for turn, unit in (divmod(int(read[at]), len(units)) for at in plan[step % n])
                for i in units[unit]
            ]
            drawn = [examples[i] for _, i in which]
            if (
                sample_example is not None
            ):  # + 1: (seed, epoch, 0) would be the generator of the order
                dice = [np.random.default_rng((seed, turn, i + 1)) for turn, i in which]
                drawn = [sample_example(e, rng) for e, rng in zip(drawn, dice, strict=True)]
            yield split_micro_batches(drawn, special_ids, size.micro_batch_tokens), step + 1
            step += 1

    return begin


def split_micro_batches(
    examples: Sequence[Example], special_ids: SpecialTokenIds, micro_batch_tokens: int
) -> list[Batch]:
    """Cut a batch into parts that go through the model in turn; a step's gradient is their sum.

    Examples that are asked together stay together, even where they have more tokens.
    """
    units = [[examples[i] for i in unit] for unit in group_examples(examples)]
    sizes = [max(map(example_length, unit)) for unit in units]
    parts = group_by_length(
        sizes, micro_batch_tokens, MAX_BATCH_ROWS, [len(unit) for unit in units]
    )
    return [pad_examples([e for i in part for e in units[i]], special_ids) for part in parts]
