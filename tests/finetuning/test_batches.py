"""Batches: each item once an epoch, in an order that seed and epoch determine, lengths together."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from unmask.batch import IGNORE_INDEX, Example
from unmask.batching.collate import example_length
from unmask.finetuning.data.batch_stream import (
    BatchSize,
    batch_size_warnings,
    count_epoch_steps,
    draw_batches,
    draw_batches_by_tokens,
    make_batch_stream,
    split_micro_batches,
)
from unmask.heads.classification.choice_groups import ChoiceGroup
from unmask.tokenizers.spec import SpecialTokenIds

SPECIAL = SpecialTokenIds(vocab_size=99, pad=0, start=1, end=2)


def examples(lengths) -> list[Example]:
    return [
        Example(inputs=np.full(n, 5), targets=np.full(n, IGNORE_INDEX), label=i % 2)
        for i, n in enumerate(lengths)
    ]


@given(
    st.lists(st.integers(1, 60), min_size=1, max_size=300),
    st.integers(1, 40), st.integers(0, 2**62), st.integers(0, 5),
)  # fmt: skip
def test_epoch_contains_each_item_once(lengths, batch, seed, epoch) -> None:
    plan = draw_batches(np.array(lengths), batch, seed, epoch)
    assert sorted(i for some in plan for i in some) == list(range(len(lengths)))
    assert len(plan) == -(-len(lengths) // batch)
    assert all(len(some) <= batch for some in plan)
    assert plan == draw_batches(np.array(lengths), batch, seed, epoch)


@given(
    st.lists(st.integers(1, 60), min_size=1, max_size=300),
    st.integers(1, 400), st.integers(0, 2**62), st.integers(0, 5),
)  # fmt: skip
def test_batches_by_tokens_keep_limit_and_step_count(lengths, tokens, seed, epoch) -> None:
    sizes = np.array(lengths)
    plan = draw_batches_by_tokens(sizes, tokens, seed, epoch)
    assert sorted(i for some in plan for i in some) == list(range(len(lengths)))
    assert all(len(some) * sizes[some].max() <= tokens or len(some) == 1 for some in plan)
    assert len(plan) == count_epoch_steps(examples(lengths), None, tokens)


def test_batches_by_tokens_vary_and_waste_little() -> None:
    lengths = np.random.default_rng(0).integers(5, 60, 2000)
    plans = [draw_batches_by_tokens(lengths, 800, 0, epoch) for epoch in range(3)]
    assert len({str(sorted(map(sorted, plan))) for plan in plans}) == 3
    padded = sum(len(some) * lengths[some].max() for some in plans[0])
    assert padded / lengths.sum() < 1.05
    assert len(plans[0]) < 1.1 * lengths.sum() / 800


def test_grouped_examples_refuse_batches_by_tokens() -> None:
    some = [e.with_feature(ChoiceGroup(0)) for e in examples([3, 4])]
    with pytest.raises(ValueError, match="batch_tokens is for texts that are learned one by one"):
        count_epoch_steps(some, None, 100)


def test_run_with_batches_by_tokens_resumes_from_any_step() -> None:
    some = examples(np.random.default_rng(0).integers(1, 30, 50))
    start = make_batch_stream(some, SPECIAL, BatchSize(n_tokens=90, micro_batch_tokens=100), 3)
    whole = start(None)
    taken = [next(whole) for _ in range(40)]
    assert count_epoch_steps(some, None, 90) < 40  # into the second epoch
    for step in (0, 3, 21):
        micros, position = next(start(step))
        assert position == step + 1
        expected = taken[step][0]
        assert len(micros) == len(expected)
        assert all(torch.equal(a.inputs, b.inputs) for a, b in zip(micros, expected, strict=True))


def test_epochs_and_seeds_differ() -> None:
    lengths = np.random.default_rng(0).integers(1, 60, 500)
    plans = [draw_batches(lengths, 8, seed, epoch) for seed in range(3) for epoch in range(3)]
    assert len({str(plan) for plan in plans}) == 9
    assert len({str(sorted(map(sorted, plan))) for plan in plans}) == 9


def test_grouping_by_length_saves_most_padding() -> None:
    lengths = np.random.default_rng(0).lognormal(3, 0.6, 4000).astype(np.int64) + 1

    def padded(plan) -> float:
        return sum(len(some) * lengths[some].max() for some in plan) / lengths.sum()

    drawn = np.random.default_rng(1).permutation(4000).reshape(-1, 32).tolist()
    assert padded(drawn) > 1.8
    assert padded(draw_batches(lengths, 32, 0, 0)) < 1.2


@pytest.mark.parametrize("step", [0, 1, 7, 20])
def test_run_resumes_from_any_step(step: int) -> None:
    some = examples(np.random.default_rng(0).integers(1, 30, 50))
    start = make_batch_stream(some, SPECIAL, BatchSize(n_units=8, micro_batch_tokens=100), 3)
    whole = start(None)
    steps = [next(whole) for _ in range(24)]
    assert [cursor for _, cursor in steps] == list(range(1, 25))
    again = next(start(step))
    assert again[1] == step + 1
    for a, b in zip(again[0], steps[step][0], strict=True):
        assert a.inputs.equal(b.inputs)
        assert a.labels is not None
        assert b.labels is not None
        assert a.labels.equal(b.labels)


def random_inputs(example: Example, rng: np.random.Generator) -> Example:
    return replace(example, inputs=rng.integers(5, 99, len(example.inputs)))


@pytest.mark.parametrize("step", [1, 7, 9, 20])
def test_random_draws_depend_on_seed_epoch_and_example_only(step: int) -> None:
    some = examples([9] * 50)  # 7 steps an epoch
    start = make_batch_stream(
        some, SPECIAL, BatchSize(n_units=8, micro_batch_tokens=30), 3, random_inputs
    )
    whole = start(None)
    steps = [torch.cat([b.inputs for b in next(whole)[0]]) for _ in range(24)]
    again = torch.cat([b.inputs for b in next(start(step))[0]])
    assert again.equal(steps[step])
    rows = [tuple(row) for step in steps for row in step.tolist()]
    assert len(set(rows)) == len(rows)  # each epoch anew, and no example as another
    one = np.random.default_rng((3, 0, 1)).integers(5, 99, 9)
    assert tuple(one.tolist()) in rows[:50]
    assert tuple(one.tolist()) not in rows[50:]
    other = next(
        make_batch_stream(
            some, SPECIAL, BatchSize(n_units=8, micro_batch_tokens=30), 4, random_inputs
        )(None)
    )[0]
    assert tuple(other[0].inputs[0].tolist()) not in rows


def test_micro_batches_partition_the_batch() -> None:
    some = examples([3, 50, 4, 30, 5])
    parts = split_micro_batches(some, SPECIAL, 60)
    assert sum(len(part.inputs) for part in parts) == 5
    assert all(part.inputs.numel() <= 60 for part in parts)
    assert max(example_length(e) for e in some) == max(part.inputs.shape[1] for part in parts)


def test_batch_larger_than_the_data_is_reported() -> None:
    some = examples([3, 5, 9])
    assert batch_size_warnings(3, None, some, 3) == batch_size_warnings(None, 27, some, 3) == []
    assert batch_size_warnings(None, None, some, 3) == []
    (items,) = batch_size_warnings(10**12, None, some, 3)
    assert items.startswith("batch_size = 1,000,000,000,000: a step holds all")
    assert "3 items" in items
    (tokens,) = batch_size_warnings(None, 28, some, 3)
    assert "27 tokens" in tokens
