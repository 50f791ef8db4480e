"""Which rows are read in which order and batch: a function of seed, epoch and cursor."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Int

from unmask.batch import Tokens
from unmask.batching.collate import first_fit
from unmask.batching.source_sampling import SourceSampling, spread_evenly

BATCHES_PER_WINDOW = 64
"""So many batches share a sorting: enough for rows of like length to meet, few to stay random."""
_EPOCH_STREAM, _BATCH_STREAM, _SOURCE_STREAM = 1, 2, 3
"""Streams of random numbers apart from those of the examples."""
RowGroups = list[list[int]]
"""The rows of text in each row of a batch: one when padded, one or several when packed. Where
sources are sampled, each is a reading: round * n + row."""


@runtime_checkable
class TokenSource(Protocol):
    """Where rows are read from: shards, or anything that gives the tokens between two positions.

    With workers it is sent to other processes, so it should pickle as the name of its folder, not
    with all of its tokens.
    """

    def read_tokens(self, start: int, end: int) -> Tokens:
        """Read the tokens from `start` up to `end`."""
        ...


@runtime_checkable
class EpochRows(Protocol):
    """Rows that are others in each epoch."""

    def row_spans(self, epoch: int) -> Int[np.ndarray, "n 2"]:
        """Return the rows of an epoch."""
        ...

    def document_of_row(
        self, epoch: int, row_spans: Int[np.ndarray, "n 2"]
    ) -> Int[np.ndarray, "n"]:
        """Return the document of each of an epoch's rows, ascending."""
        ...

    def source_of_row(self, epoch: int, row_spans: Int[np.ndarray, "n 2"]) -> Int[np.ndarray, "n"]:
        """Return the source of each of an epoch's rows."""
        ...


@dataclass(frozen=True)
class DataCursor:
    """The next batch: its epoch, its window in the epoch, its place in the window."""

    epoch: int = 0
    window: int = 0
    batch: int = 0
    n_batches: int = field(default=0, compare=False)
    """Batches before it, whatever they were."""


@dataclass(frozen=True)
class GlobalBatch:
    """A global batch: its rows, its position, and the position after it."""

    row_groups: RowGroups
    cursor: DataCursor
    next_cursor: DataCursor

    def part_of(self, rank: int, world_size: int) -> RowGroups:
        """Return the rows of one process; there may be none."""
        return self.row_groups[rank::world_size]


@dataclass(frozen=True, kw_only=True, eq=False)
class BatchPlan:
    """Which rows make which global batch. Pure: its generators are seeded by position."""

    lengths: Int[np.ndarray, "n"]
    """How long the example of each row is, at most."""
    batch_tokens: int
    """Tokens of a global batch, padding included; at least one row, even one that is longer."""
    packed_length: int | None = None
    """Pack examples into rows of this length; None: pad examples of like length."""
    seed: int = 0
    source_sampling: SourceSampling | None = None
    """Which rows an epoch holds; None: each once."""
    evenly: Int[np.ndarray, "n"] | None = None
    """The source of each row, where the rows of each source are to be at equal distances."""

    @cached_property
    def n_windows(self) -> int:
        """Count the windows of an epoch."""
        n = (
            len(self.lengths)
            if self.source_sampling is None
            else sum(self.source_sampling.rows_per_epoch)
        )
        return max(1, round(min(n, self.n_tokens / self.batch_tokens) / BATCHES_PER_WINDOW))

    @cached_property
    def n_tokens(self) -> float:
        """Count the tokens of an epoch's examples, on average over epochs, padding left out."""
        return (
            float(self.lengths.sum())
            if self.source_sampling is None
            else self._sampled_tokens(self.source_sampling)
        )

    def _sampled_tokens(self, sources: SourceSampling) -> float:
        """Return how long all examples of an epoch are together, on average over epochs."""
        mean = np.bincount(sources.source_of_row, self.lengths) / np.bincount(sources.source_of_row)
        return float(mean @ np.array(sources.rows_per_epoch))

    def row_order(self, epoch: int) -> Int[np.ndarray, "k"]:
        """Permute the rows of an epoch."""
        draw = self._generator(_EPOCH_STREAM, epoch)
        if self.evenly is not None:
            order = draw.permutation(len(self.evenly))
            by_source = order[np.argsort(self.evenly[order], kind="stable")]
            return by_source[spread_evenly(np.bincount(self.evenly).tolist(), draw)]
        if self.source_sampling is None:
            return draw.permutation(len(self.lengths))
        readings = self.source_sampling.epoch_rows(
            epoch, lambda *which: self._generator(_SOURCE_STREAM, *which)
        )
        return readings[self.source_sampling.order(draw)]

    def lengths_of(self, row_ids: Int[np.ndarray, "k"] | list[int]) -> Int[np.ndarray, "k"]:
        """Look up how long the examples of rows, or of readings of them, are."""
        return self.lengths[np.asarray(row_ids) % len(self.lengths)]

    def window_batches(
        self, epoch: int, window: int, row_order: Int[np.ndarray, "k"]
    ) -> list[RowGroups]:
        """Make the batches of a window of the epoch, whose `row_order` is computed once."""
        n = len(row_order)
        rows = row_order[n * window // self.n_windows : n * (window + 1) // self.n_windows]
        batches = (
            self._bucket_by_length(rows)
            if self.packed_length is None
            else self._pack_rows(rows, self.packed_length)
        )
        shuffled = self._generator(_BATCH_STREAM, epoch, window).permutation(len(batches))
        return [batches[i] for i in shuffled]

    def global_batches(self, cursor: DataCursor) -> Iterator[GlobalBatch]:
        """Continue from `cursor` for ever, epoch after epoch.

        Raises:
            ValueError: there is no such batch: the cursor comes from other rows or sizes.
        """
        if not 0 <= cursor.window < self.n_windows or cursor.epoch < 0:
            raise ValueError(f"no batch at {cursor}: an epoch has {self.n_windows} windows")
        taken = cursor.n_batches
        while True:
            order = self.row_order(cursor.epoch)
            for w in range(cursor.window, self.n_windows):
                first = cursor.batch if w == cursor.window else 0
                for step in self._window_global_batches(
                    DataCursor(cursor.epoch, w, first, taken), order
                ):
                    taken = step.next_cursor.n_batches
                    yield step
            cursor = DataCursor(cursor.epoch + 1)

    def _window_global_batches(
        self, cursor: DataCursor, row_order: Int[np.ndarray, "k"]
    ) -> Iterator[GlobalBatch]:
        epoch, w = cursor.epoch, cursor.window
        batches = self.window_batches(epoch, w, row_order)
        if not 0 <= cursor.batch < len(batches):
            raise ValueError(f"no batch at {cursor}: the window has {len(batches)} batches")
        last_window = w + 1 == self.n_windows
        beyond = DataCursor(epoch + 1) if last_window else DataCursor(epoch, w + 1)
        for taken, i in enumerate(range(cursor.batch, len(batches)), cursor.n_batches):
            after = beyond if i + 1 == len(batches) else DataCursor(epoch, w, i + 1)
            here = DataCursor(epoch, w, i, taken)
            yield GlobalBatch(batches[i], here, replace(after, n_batches=taken + 1))

    def micro_batches(self, row_groups: RowGroups, max_tokens: int | None) -> list[RowGroups]:
        """Cut what one process has of a global batch into micro-batches.

        Each has at most `max_tokens` tokens, but one row at least. Their sizes are as equal as can
        be.
        """
        if max_tokens is None:
            return [row_groups] if row_groups else []
        if self.packed_length is None:
            ends = balanced_splits(self.lengths_of([g[0] for g in row_groups]), max_tokens)
        else:
            ends = balanced_splits(np.full(len(row_groups), self.packed_length), max_tokens)
        return [row_groups[a:b] for a, b in zip([0, *ends[:-1]], ends, strict=True)]

    def _bucket_by_length(self, rows: Int[np.ndarray, "k"]) -> list[RowGroups]:
        rows = rows[np.argsort(-self.lengths_of(rows), kind="stable")]
        ends = balanced_splits(self.lengths_of(rows), self.batch_tokens)
        singles = [[row] for row in rows.tolist()]
        return [singles[a:b] for a, b in zip([0, *ends[:-1]], ends, strict=True)]

    def _pack_rows(self, rows: Int[np.ndarray, "k"], packed_length: int) -> list[RowGroups]:
        groups = [rows[g].tolist() for g in first_fit(self.lengths_of(rows), packed_length)]
        n_batches = -(-len(groups) // max(1, self.batch_tokens // packed_length))
        ends = [len(groups) * (i + 1) // n_batches for i in range(n_batches)]
        return [groups[a:b] for a, b in zip([0, *ends[:-1]], ends, strict=True)]

    def _generator(self, *stream: int) -> np.random.Generator:
        return np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=stream))


@dataclass(frozen=True, kw_only=True, eq=False)
class StreamPlan(BatchPlan):
    """Rows in order: row i of a step continues row i of the previous step.

    Dai et al. 2019, arXiv:1901.02860, section 3.2: the memory of a row is then its actual left
    context. All rows are split into as many equally long streams as a step has rows; the remainder
    is not read. An epoch is one window.
    """

    row_length: int
    """Tokens of a row. A step has as many rows as fit `batch_tokens`."""
    bidirectional: bool = False
    """Whether every other stream is read backward, row by row, as row numbers -1 - i. Special
    tokens are at the same end of the row (released code, `bi_data`)."""

    @cached_property
    def n_windows(self) -> int:
        """One window."""
        return 1

    def row_order(self, epoch: int) -> Int[np.ndarray, "k"]:
        """Keep the order of the rows in every epoch."""
        return np.arange(len(self.lengths))

    @property
    def n_streams(self) -> int:
        """How many there are."""
        return min(max(1, self.batch_tokens // self.row_length), len(self.lengths))

    @property
    def rows_per_stream(self) -> int:
        """Rows of a stream."""
        return len(self.lengths) // self.n_streams

    def window_batches(
        self, epoch: int, window: int, row_order: Int[np.ndarray, "k"]
    ) -> list[RowGroups]:
        """Return the batches of the epoch: one row of each stream."""
        n = self.n_streams
        streams = row_order[: n * self.rows_per_stream].reshape(n, -1)
        if self.bidirectional:
            streams[1::2] = -1 - streams[1::2, ::-1]
        return [[[row] for row in rows] for rows in streams.T.tolist()]

    def micro_batches(self, row_groups: RowGroups, max_tokens: int | None) -> list[RowGroups]:
        """Cut what one process has of a step, so that each part has the same streams every time."""
        n = len(row_groups) if max_tokens is None else max(1, max_tokens // self.row_length)
        return [row_groups[i : i + n] for i in range(0, len(row_groups), n)]


def balanced_splits(lengths: Int[np.ndarray, "n"], max_tokens: int) -> list[int]:
    """Split rows in descending order of size into batches of at most `max_tokens` padded tokens.

    The number of batches is minimal, and then the size of the largest, so that none is left with a
    row or two. A batch has at least one row. Returns the end of each batch.
    """

    def cuts(limit: int) -> list[int]:
        ends: list[int] = []
        end = 0
        while end < len(lengths):
            end = min(end + max(1, limit // int(lengths[end])), len(lengths))
            ends.append(end)
        return ends

    best = cuts(max_tokens)
    low, high = 0, max_tokens
    while high - low > 1:
        middle = (low + high) // 2
        ends = cuts(middle)
        if len(ends) > len(best):
            low = middle
        else:
            high, best = middle, ends
    return best
