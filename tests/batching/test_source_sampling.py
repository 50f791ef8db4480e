"""Sampled sources: what an epoch takes of each, that it is pure, and that resuming is exact."""

import itertools
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from in_memory import InMemory
from vocabularies import BERT

from unmask.batching.loader import BatchLoader
from unmask.batching.plan import BatchPlan, DataCursor
from unmask.batching.source_sampling import SourceSampling, rows_per_source
from unmask.objectives import published
from unmask.objectives.mixtures import StaticMasking

N = 3000


def rows_of(n: int = N) -> np.ndarray:
    cuts = np.cumsum(np.random.default_rng(0).integers(3, 30, n))
    cuts = np.concatenate(([0], cuts[cuts < n]))
    return np.stack((cuts[:-1], cuts[1:]), 1)


ROWS = rows_of()
LARGE = len(ROWS) - 12
OF = np.array([0] * (LARGE // 2) + [1] * 12 + [0] * (LARGE - LARGE // 2))
SOURCES = SourceSampling(source_of_row=OF, rows_per_epoch=(50, 40))


def make(**changes: object) -> BatchLoader:
    plain = {
        "token_source": InMemory(N), "row_spans": ROWS, "objective": published.MASKED_LM,
        "special_ids": BERT, "max_length": 32, "batch_tokens": 128, "seed": 3,
        "source_sampling": SOURCES,
    }  # fmt: skip
    return BatchLoader(**plain | changes)


def readings(plan: BatchPlan, epochs: int) -> list[list[int]]:
    found: list[list[int]] = [[] for _ in range(epochs)]
    for step in plan.global_batches(DataCursor()):
        if step.cursor.epoch == epochs:
            return found
        found[step.cursor.epoch] += [i for group in step.row_groups for i in group]
    raise AssertionError


@pytest.mark.parametrize("strategy", ["bucket", "pack"])
def test_epoch_takes_configured_number_of_rows_per_source(strategy: str) -> None:
    for epoch in readings(make(strategy=strategy).plan, 5):
        counts = Counter(OF[np.array(epoch) % len(ROWS)].tolist())
        assert counts == {0: 50, 1: 40}


def test_no_row_repeats_before_all_others_of_its_source() -> None:
    read = list(itertools.chain(*readings(make().plan, 9)))
    assert len(set(read)) == len(read), "each reading of a row is another one"
    times = np.bincount(np.array(read) % len(ROWS), minlength=len(ROWS))
    for source in (0, 1):
        own = times[source == OF]
        assert own.max() - own.min() <= 1
        assert own.sum() == 9 * SOURCES.rows_per_epoch[source]
    for row in (0, int(np.flatnonzero(OF == 1)[0])):
        rounds = [i // len(ROWS) for i in sorted(read) if i % len(ROWS) == row]
        assert rounds == list(range(len(rounds)))


@settings(max_examples=25)
@given(
    st.lists(st.tuples(st.integers(1, 30), st.integers(1, 60)), min_size=1, max_size=5),
    st.integers(0, 40),
    st.sampled_from([None, 60]),
)
def test_resuming_plan_from_cursor_equals_uninterrupted(sources, n, length) -> None:
    of = np.random.default_rng(1).permutation(
        np.repeat(np.arange(len(sources)), [rows for rows, _ in sources])
    )
    sizes = np.random.default_rng(2).integers(1, 60, len(of))
    plan = BatchPlan(
        lengths=sizes,
        batch_tokens=200,
        packed_length=length,
        seed=7,
        source_sampling=SourceSampling(
            source_of_row=of, rows_per_epoch=tuple(take for _, take in sources)
        ),
    )
    steps = list(itertools.islice(plan.global_batches(DataCursor()), n + 15))
    cursor = steps[n - 1].next_cursor if n else DataCursor()
    assert list(itertools.islice(replace(plan).global_batches(cursor), 15)) == steps[n:]


def values(loader: BatchLoader, steps: int) -> list:
    return [
        ([(b.inputs.tolist(), b.targets.tolist()) for b in micro], cursor)
        for micro, cursor in itertools.islice(loader, steps)
    ]


@pytest.mark.parametrize("workers", [0, 2])
def test_resuming_within_an_epoch_equals_uninterrupted(
    workers: int,
) -> None:
    whole = values(make(), 25)
    at = whole[13][1]
    assert at.batch > 0
    assert values(make(start_cursor=at, n_workers=workers), 11) == whole[14:]


def test_row_repeated_within_an_epoch_is_masked_anew() -> None:
    row = int(np.flatnonzero(OF == 1)[0])
    of = np.array([0])
    rows = ROWS[row : row + 1]
    loader = make(
        row_spans=rows,
        source_sampling=SourceSampling(source_of_row=of, rows_per_epoch=(20,)),
        max_epochs=1,
    )
    seen = [
        tuple(b.targets[i].tolist())
        for micro, _ in loader
        for b in micro
        for i in range(len(b.inputs))
    ]
    assert len(seen) == 20
    assert len(set(seen)) > 10
    static = replace(loader, objective=StaticMasking(published.MASKED_LM, 2))
    hidden = {
        tuple(b.targets[i].tolist())
        for micro, _ in static
        for b in micro
        for i in range(len(b.inputs))
    }
    assert len(hidden) <= 2


def test_sampling_all_rows_once_equals_no_sampling() -> None:
    of, takes = np.zeros(len(ROWS), int), (len(ROWS),)

    def examples(loader: BatchLoader) -> list:
        """Inputs and targets of each row, in any order and without padding."""
        found = []
        for micro, _ in replace(loader, start_cursor=DataCursor(2), max_epochs=3):
            for b in micro:
                for i in range(len(b.inputs)):
                    end = (
                        b.inputs.shape[1]
                        if b.last_token_positions is None
                        else int(b.last_token_positions[i]) + 1
                    )
                    found.append((b.inputs[i, :end].tolist(), b.targets[i, :end].tolist()))
        return sorted(found)

    sampled = make(source_sampling=SourceSampling(source_of_row=of, rows_per_epoch=takes))
    assert examples(sampled) == examples(make(source_sampling=None))


def test_seeds_and_epochs_differ() -> None:
    first, second = readings(make().plan, 2)
    assert sorted(i % len(ROWS) for i in first) != sorted(i % len(ROWS) for i in second)
    assert readings(make(seed=4).plan, 1) != [first]


def test_rows_per_source_follow_token_shares() -> None:
    tokens, rows, shares = (90_000, 9_000, 1_000), (900, 300, 2), (0.5, 0.3, 0.2)
    takes = rows_per_source(tokens, rows, shares)
    read = [n * t / r for n, t, r in zip(takes, tokens, rows, strict=True)]
    assert sum(read) == pytest.approx(100_000, rel=0.01)
    assert np.array(read) / sum(read) == pytest.approx(shares, abs=0.01)
    assert rows_per_source((1_000_000, 5), (10, 1), (1.0, 0.0)) == (10, 1)


def test_invalid_source_sampling_is_refused() -> None:
    with pytest.raises(ValueError, match="each source must have a row"):
        SourceSampling(source_of_row=np.array([0, 0]), rows_per_epoch=(1, 1))
    with pytest.raises(ValueError, match="each source must have a row"):
        SourceSampling(source_of_row=np.array([0, 1]), rows_per_epoch=(1, 0))
    with pytest.raises(ValueError, match="source_of_row must be one number for each row"):
        make(source_sampling=SourceSampling(source_of_row=np.array([0, 1]), rows_per_epoch=(1, 1)))
