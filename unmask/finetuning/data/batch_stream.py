"""The order of training batches: a function of seed and epoch, with similar lengths together."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from jaxtyping import Int

from unmask.batch import Batch, Example
from unmask.batching.collate import (
    RowLimits,
    example_length,
    first_fit,
    group_by_length,
    pack_examples,
    pad_examples,
)
from unmask.batching.source_sampling import SourceSampling
from unmask.finetuning.results.predict import MAX_BATCH_ROWS
from unmask.heads.classification.choice_groups import ChoiceGroup
from unmask.tokenizers.spec import SpecialTokenIds
from unmask.training.run import BatchStream, MicroBatches

SORT_WINDOW_BATCHES = 32
"""Number of batches within which texts are sorted by length: enough to avoid most padding, few
enough to keep batches random."""


def draw_batches(
    lengths: Int[np.ndarray, "n"],
    batch_size: int,
    seed: int,
    epoch: int,
    max_window_batches: int = SORT_WINDOW_BATCHES,
) -> list[list[int]]:
    """Draw the batches of an epoch; each item is in one of them.

    Items are shuffled, and sorted by length within windows of several batches; then the batches are
    shuffled. A window has at most `max_window_batches` batches, and fewer in an epoch of few
    batches: otherwise all epochs would have the same batches.
    """
    rng = np.random.default_rng((seed, epoch))
    order = rng.permutation(len(lengths))
    n = -(-len(lengths) // batch_size)
    window = batch_size * max(min(max_window_batches, n // 4), 1)
    batches: list[list[int]] = []
    for start in range(0, len(order), window):
        window_items = order[start : start + window]
        window_items = window_items[np.argsort(lengths[window_items], kind="stable")]
        batches += [
            window_items[i : i + batch_size].tolist()
            for i in range(0, len(window_items), batch_size)
        ]
    return [batches[i] for i in rng.permutation(len(batches))]


def draw_batches_by_tokens(
    lengths: Int[np.ndarray, "n"], batch_tokens: int, seed: int, epoch: int
) -> list[list[int]]:
    """Draw the batches of an epoch, each with at most `batch_tokens` tokens, padding included.

    Items of similar length are together (Vaswani et al. 2017, section 5.1), those of equal length
    in random order; then the batches are shuffled. All epochs have the same number of batches. A
    longer item is a batch of its own.
    """
    rng = np.random.default_rng((seed, epoch))
    order = rng.permutation(len(lengths))
    order = order[np.argsort(lengths[order], kind="stable")]
    batches: list[list[int]] = [[]]
    for i in order.tolist():
        if batches[-1] and (len(batches[-1]) + 1) * int(lengths[i]) > batch_tokens:
            batches.append([])
        batches[-1].append(i)
    return [batches[i] for i in rng.permutation(len(batches))]


def count_epoch_steps(
    examples: Sequence[Example],
    batch_size: int | None,
    batch_tokens: int | None,
    source_sampling: SourceSampling | None = None,
) -> int:
    """Count the steps of an epoch, with a batch size in units or in tokens.

    With `source_sampling`, the sampled numbers of examples count.

    Raises:
        ValueError: the batch size is in tokens, and some examples form groups.
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
    """Return a warning if the requested batch size exceeds the data.

    Args:
        batch_size: requested batch size in units, or None.
        batch_tokens: requested batch size in tokens, or None.
        examples: all examples.
        n_units: number of units in an epoch.
    """
    available = n_units
    if batch_tokens is not None:
        available = len(examples) * max(map(example_length, examples), default=0)
    requested = batch_size if batch_tokens is None else batch_tokens
    if requested is None or requested <= available:
        return []
    name, unit = (
        ("batch_size", "items") if batch_tokens is None else ("batch_tokens", "tokens with padding")
    )
    return [
        f"{name} = {requested:,}: a step holds all there is to learn from, {available:,} {unit}"
    ]


def group_examples(examples: Sequence[Example]) -> list[list[int]]:
    """Return the units of training: the examples of each group, and single other examples."""
    units: dict[tuple[bool, int], list[int]] = {}
    for i, example in enumerate(examples):
        group = example.feature(ChoiceGroup)
        units.setdefault((group is None, i if group is None else group.number), []).append(i)
    return list(units.values())


@dataclass(frozen=True, kw_only=True)
class BatchSize:
    """The sizes of a batch and of a micro-batch."""

    n_units: int | None = None
    """Units in a batch: examples, or groups of examples that are scored together, in one
    micro-batch. None: see `n_tokens`."""
    n_tokens: int | None = None
    """Tokens in a batch, padding included."""
    micro_batch_tokens: int
    """Tokens in a micro-batch."""
    row_length: int | None = None
    """Tokens of a row in which several examples lie, hidden from each other. None: an example a
    row."""


def make_batch_stream(
    examples: Sequence[Example],
    special_ids: SpecialTokenIds,
    size: BatchSize,
    seed: int,
    sample_example: Callable[[Example, np.random.Generator], Example] | None = None,
    *,
    source_sampling: SourceSampling | None = None,
) -> BatchStream:
    """Return the stream of each step's micro-batches; the cursor is the number of earlier steps.

    With `source_sampling`, an epoch has a given number of units from each source: those of a small
    source repeatedly, and some of a large one, each once before any is repeated. The lengths of
    sources differ so much that a batch of similar lengths would come from one source. A batch then
    has any lengths, and only micro-batches have similar ones.

    `sample_example` is applied each time an example is read. Its random generator depends on the
    seed, the number of earlier readings and the index of the example, and so not on where a run was
    resumed.
    """
    units = group_examples(examples)
    sizes = np.array([max(example_length(examples[i]) for i in unit) for unit in units], np.int64)
    n = count_epoch_steps(examples, size.n_units, size.n_tokens, source_sampling)
    row_limits = RowLimits.of(examples)

    def readings(epoch: int) -> Int[np.ndarray, "k"]:
        if source_sampling is None:
            return epoch * len(units) + np.arange(len(units))
        return source_sampling.epoch_rows(
            epoch,
            lambda *spawn_key: np.random.default_rng(
                np.random.SeedSequence(seed, spawn_key=spawn_key)
            ),
        )

    def begin(cursor: Any) -> Iterator[tuple[MicroBatches, Any]]:
        step, epoch = cursor or 0, -1
        plan: list[list[int]] = []
        epoch_units = np.zeros(0, np.int64)
        while True:
            if step // n != epoch:
                epoch = step // n
                epoch_units = readings(epoch)
                long = sizes[epoch_units % len(units)]
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
            passes = (divmod(int(epoch_units[at]), len(units)) for at in plan[step % n])
            keys = [(pass_, i) for pass_, unit in passes for i in units[unit]]
            batch = [examples[i] for _, i in keys]
            if sample_example is not None:  # + 1: (seed, epoch, 0) is the generator of the order
                dice = [np.random.default_rng((seed, pass_, i + 1)) for pass_, i in keys]
                batch = [sample_example(e, rng) for e, rng in zip(batch, dice, strict=True)]
            yield _micro_batches(batch, special_ids, size, row_limits), step + 1
            step += 1

    return begin


def _micro_batches(
    examples: Sequence[Example],
    special_ids: SpecialTokenIds,
    size: BatchSize,
    row_limits: RowLimits,
) -> list[Batch]:
    """Lay a batch in micro-batches, packed or not."""
    if size.row_length is None:
        return split_micro_batches(examples, special_ids, size.micro_batch_tokens, row_limits)
    rows = first_fit(np.array(list(map(example_length, examples)), np.int64), size.row_length)
    n = max(1, size.micro_batch_tokens // size.row_length)
    return [
        pack_examples(
            [examples[i] for row in rows[at : at + n] for i in row], special_ids, size.row_length
        )
        for at in range(0, len(rows), n)
    ]


def split_micro_batches(
    examples: Sequence[Example],
    special_ids: SpecialTokenIds,
    micro_batch_tokens: int,
    row_limits: RowLimits | None = None,
) -> list[Batch]:
    """Split a batch into micro-batches, whose gradients are summed.

    Groups of examples are not split, even if they have more tokens. Rows are lengthened up to
    `row_limits` for the sake of shared shapes, beyond `micro_batch_tokens` where need be.
    """
    units = [[examples[i] for i in unit] for unit in group_examples(examples)]
    sizes = [max(map(example_length, unit)) for unit in units]
    parts = group_by_length(
        sizes, micro_batch_tokens, MAX_BATCH_ROWS, [len(unit) for unit in units]
    )
    return [
        pad_examples([e for i in part for e in units[i]], special_ids, row_limits=row_limits)
        for part in parts
    ]
