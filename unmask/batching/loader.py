"""Which rows make a step, and the batches made of them: a function of seed and position.

An epoch's order is a permutation of all rows (where sources are sampled, of those that it takes of
each). It is cut into windows of about 64 batches; within a window, rows are put together by length
(or laid out in full rows), and the batches shuffled. Nothing of this depends on the number of
processes, workers or micro-batches, and a `DataCursor` of a few integers is all that a checkpoint
must hold.
"""

import logging
import multiprocessing
import os
import signal
import sys
import threading
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import chain
from multiprocessing import forkserver
from multiprocessing.reduction import ForkingPickler
from types import ModuleType
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Int

from unmask.batch import Batch, Example, Tokens
from unmask.batching.collate import BatchArrays, collate, first_fit
from unmask.batching.source_sampling import SourceSampling
from unmask.objectives.features import Recurrence
from unmask.objectives.objective import AnyObjective
from unmask.objectives.published import objective_at_progress
from unmask.tokenizers.spec import SpecialTokenIds

_log = logging.getLogger(__name__)

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
    """A global batch: its rows, where it stands, and what comes after it."""

    row_groups: RowGroups
    cursor: DataCursor
    next_cursor: DataCursor


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
        if self.source_sampling is None:
            return draw.permutation(len(self.lengths))
        return draw.permutation(
            self.source_sampling.epoch_rows(
                epoch, lambda *which: self._generator(_SOURCE_STREAM, *which)
            )
        )

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
        """Go on from `cursor` for ever, epoch after epoch.

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
    """Rows in their order: row i of a step goes on where row i of the step before ended.

    Dai et al. 2019, arXiv:1901.02860, section 3.2: what a network remembers of a row is then its
    true past. All rows are cut into as many streams as a step has rows, all streams equally long;
    what is left at the end is not read. An epoch is one window.
    """

    row_length: int
    """Tokens of a row, of which a step has so many as fit `batch_tokens`."""
    bidirectional: bool = False
    """Every other stream is read from its end, row by row: its rows are -1 - their numbers. What is
    put around a text stands at the same end of the row (released code, `bi_data`)."""

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
    """Cut rows in descending order of size into batches of at most `max_tokens` tokens, padded.

    There are as few batches as can be, and the largest is as small as can be, so that none is left
    with a row or two. A batch has one row at least. Gives the end of each.
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


@dataclass(frozen=True, kw_only=True, eq=False)
class BatchLoader:
    """An endless stream of steps: the micro-batches of this process, and the cursor after them.

    A process may get no micro-batch where a global batch has fewer rows than there are processes;
    it must take part in the step all the same.
    """

    token_source: TokenSource
    row_spans: Int[np.ndarray, "n 2"]
    """The first and the last token (exclusive) of each row: a text of its own."""
    objective: AnyObjective
    special_ids: SpecialTokenIds
    max_length: int
    """Tokens of an example, at most."""
    batch_tokens: int
    """Tokens of a step over all processes, padding included."""
    micro_batch_tokens: int | None = None
    """Tokens that one process takes at once; None: all that it has of a step."""
    strategy: Literal["bucket", "pack", "stream"] = "bucket"
    """Examples of like length padded to the longest, several examples in each row, or rows that go
    on where those of the step before ended (see `StreamPlan`)."""
    bidirectional: bool = False
    """Every other stream is read from its end (Yang et al. 2019, arXiv:1906.08237, section 2.2,
    "bidirectional data input pipeline")."""
    length_jitter: float = 0.0
    """How far streams are cut from where rows end, all at the same places, others in every epoch:
    the standard deviation as a share of a row (Merity et al. 2018, arXiv:1708.02182, section 4.1).
    So each token stands at the beginning of what the gradient is made of as often as at its end."""
    document_of_row: Int[np.ndarray, "n"] | None = None
    """The document of each row, ascending, for questions about two texts. None: each its own."""
    source_sampling: SourceSampling | None = None
    """Which rows an epoch holds; None: each once."""
    special_ids_by_source: tuple[tuple[SpecialTokenIds, ...], Int[np.ndarray, "n"]] | None = None
    """Where these differ by source, those of each, and the source of each row: of languages, whose
    token stands around a text. None: `special_ids`."""
    seed: int = 0
    start_cursor: DataCursor = DataCursor()
    max_epochs: int | None = None
    """End when so many epochs are through; None: never."""
    total_steps: int | None = None
    """Of the training, for an objective that changes with them. None: it is what it is in the
    end."""
    n_workers: int = 0
    """Processes that make examples; 0: this one does. The batches are the same."""
    rank: int = 0
    world_size: int = 1

    def __post_init__(self) -> None:
        _check_loader(self)

    @cached_property
    def plan(self) -> BatchPlan:
        """The order of all batches."""
        sizes = self.objective.max_example_length(
            self.row_spans[:, 1] - self.row_spans[:, 0], self.special_ids
        )
        if self.strategy == "stream":
            width = int(sizes.max())
            return StreamPlan(
                lengths=sizes,
                batch_tokens=self.batch_tokens,
                row_length=width,
                bidirectional=self.bidirectional,
            )
        width = self.max_length if self.strategy == "pack" else None
        return BatchPlan(
            lengths=sizes,
            batch_tokens=self.batch_tokens,
            packed_length=width,
            seed=self.seed,
            source_sampling=self.source_sampling,
        )

    def __iter__(self) -> Iterator[tuple[list[Batch], DataCursor]]:
        """Go on from the cursor.

        Raises:
            ValueError: the cursor is not of this data; or what reading or hiding a text raises, in
                a worker too.
        """
        maker = _BatchMaker(
            token_source=self.token_source,
            objective=self.objective,
            special_ids=self.special_ids,
            special_ids_by_source=self.special_ids_by_source,
            seed=self.seed,
            row_width=self.plan.packed_length,
            other_rows=(self.row_spans, self.document_of_row)
            if self.objective.needs_second_text
            else None,
            is_stream=self.strategy == "stream",
        )
        works = self._worker_tasks()
        made = _run_workers(maker, works, self.n_workers) if self.n_workers else map(maker, works)
        for done in made:
            yield [arrays.to_batch() for arrays in done.micro_batches], done.next_cursor

    def _worker_tasks(self) -> Iterator["_WorkerTask"]:
        for step in self.plan.global_batches(self.start_cursor):
            if self.max_epochs is not None and step.cursor.epoch >= self.max_epochs:
                return
            epoch = step.cursor.epoch
            mine = step.row_groups[self.rank :: self.world_size]
            micro = self.plan.micro_batches(mine, self.micro_batch_tokens)
            share = (
                None
                if self.total_steps is None
                else min(step.cursor.n_batches / self.total_steps, 1.0)
            )
            yield _WorkerTask(
                micro_batches=[
                    [[self._row_reading(i, epoch) for i in group] for group in groups]
                    for groups in micro
                ],
                next_cursor=step.next_cursor,
                continues=step.cursor.batch > 0 if self.strategy == "stream" else None,
                progress=share,
            )

    def _row_reading(self, i: int, epoch: int) -> "_RowReading":
        backward = i < 0
        i = -1 - i if backward else i
        if self.source_sampling is not None:
            epoch, i = divmod(i, len(self.row_spans))  # a round of the row's source is its epoch
        if self.objective.n_variants is not None:
            epoch %= self.objective.n_variants
        start, end = self.row_spans[i].tolist()
        if self.length_jitter:
            moved = self._jitter_offsets(epoch)
            column = i % (len(moved) - 1)
            start, end = start + moved[column], end + moved[column + 1]
        return epoch, i, start, end, backward

    @cached_property
    def _jitter_offsets(self) -> Callable[[int], list[int]]:
        """How far each cut of the streams is moved in an epoch; both ends stay."""
        assert isinstance(self.plan, StreamPlan)
        row, columns = int(self.row_spans[0, 1] - self.row_spans[0, 0]), self.plan.rows_per_stream

        def moved(epoch: int) -> list[int]:
            rng = np.random.default_rng([self.seed, epoch])
            far = np.rint(rng.normal(0, self.length_jitter * row, columns + 1))
            far = far.clip(-(row // 3), row // 3).astype(np.int64)
            far[[0, -1]] = 0
            return far.tolist()

        return lru_cache(1)(moved)


_RowReading = tuple[int, int, int, int, bool]
"""A row, after how often it was read before: where its text starts, where it ends, and whether it
is of a stream that is read from its end."""


@dataclass(frozen=True, kw_only=True)
class _WorkerTask:
    """What a worker must know of a step: for each example its row, and where its text is."""

    micro_batches: list[list[list[_RowReading]]]
    next_cursor: DataCursor
    continues: bool | None
    """Of streams: whether the rows go on where those of the step before ended."""
    progress: float | None
    """Of the steps of the training, that were taken before."""


@dataclass(frozen=True)
class _WorkerResult:
    micro_batches: list[BatchArrays]
    next_cursor: DataCursor


@dataclass(frozen=True)
class _WorkerError:
    error: ValueError | OSError


@dataclass(frozen=True, kw_only=True, eq=False)
class _BatchMaker:
    """Reads, hides and lays out: all that needs no plan and no tensor; this is what workers get."""

    token_source: TokenSource
    objective: AnyObjective
    special_ids: SpecialTokenIds
    special_ids_by_source: tuple[tuple[SpecialTokenIds, ...], Int[np.ndarray, "n"]] | None
    seed: int
    row_width: int | None
    other_rows: tuple[Int[np.ndarray, "n 2"], Int[np.ndarray, "n"] | None] | None
    """The rows and their documents, where an objective asks about two texts."""
    is_stream: bool

    def __call__(self, task: _WorkerTask) -> _WorkerResult:
        now = self
        if task.progress is not None:
            now = replace(self, objective=objective_at_progress(self.objective, task.progress))
        return _WorkerResult(
            [now._stream_arrays(groups, task.continues) for groups in task.micro_batches],
            task.next_cursor,
        )

    def _stream_arrays(
        self, row_groups: Sequence[Sequence[_RowReading]], continues: bool | None
    ) -> BatchArrays:
        arrays = self._collate_readings(row_groups)
        if continues is None:
            return arrays
        backward = np.array([group[0][4] for group in row_groups])
        recurrence = replace(
            arrays.feature(Recurrence) or Recurrence(),
            continues=continues,
            reversed_rows=backward if backward.any() else None,
        )
        return arrays.with_feature(recurrence)

    def __getitem__(self, task: _WorkerTask) -> _WorkerResult | _WorkerError:
        """Do as asked, as torch's DataLoader asks: errors that are the user's travel as values."""
        try:
            return self(task)
        except (ValueError, OSError) as error:
            return _WorkerError(error)

    def _collate_readings(self, row_groups: Sequence[Sequence[_RowReading]]) -> BatchArrays:
        examples = [[self._make_example(*reading) for reading in group] for group in row_groups]
        return collate(examples, self.special_ids, min_width=self.row_width)

    def _make_example(self, epoch: int, row: int, start: int, end: int, backward: bool) -> Example:
        rng = np.random.default_rng([self.seed, epoch, row])
        text = self.token_source.read_tokens(start, end)
        if self.is_stream and start:
            text = replace(
                text, previous_token=int(self.token_source.read_tokens(start - 1, start).ids[0])
            )
        if (
            self.other_rows is not None
            and (other := draw_other_row(row, *self.other_rows, rng)) is not None
        ):
            text = replace(text, other_text=self.token_source.read_tokens(*other))
        special = self.special_ids
        if self.special_ids_by_source is not None:
            special = self.special_ids_by_source[0][int(self.special_ids_by_source[1][row])]
        return self.objective(text.reversed() if backward else text, special, rng)


def draw_other_row(
    row_id: int,
    row_spans: Int[np.ndarray, "n 2"],
    document_of_row: Int[np.ndarray, "n"] | None,
    rng: np.random.Generator,
) -> tuple[int, int] | None:
    """Draw a row of another document; where there is one document, another row; None of one row.

    Rows that overlap this one are no other.
    """
    first, end = row_id, row_id + 1
    if document_of_row is not None:
        first = int(np.searchsorted(document_of_row, document_of_row[row_id], "left"))
        end = int(np.searchsorted(document_of_row, document_of_row[row_id], "right"))
        if end - first == len(row_spans):
            first, end = row_id, row_id + 1
    while first and row_spans[first - 1, 1] > row_spans[row_id, 0]:
        first -= 1
    while end < len(row_spans) and row_spans[end, 0] < row_spans[row_id, 1]:
        end += 1
    n = len(row_spans) - (end - first)
    if not n:
        return None
    drawn = int(rng.integers(n))
    start, stop = row_spans[drawn if drawn < first else drawn + end - first].tolist()
    return start, stop


def document_of_rows(
    row_spans: Int[np.ndarray, "n 2"], document_spans: Int[np.ndarray, "m 2"]
) -> Int[np.ndarray, "n"]:
    """Return the number of the document that each row is of; both give starts and ends in order."""
    return np.searchsorted(document_spans[:, 0], row_spans[:, 0], "right") - 1


_MAX_WORKER_LOSSES = 3
"""So often in a row workers may be lost before a batch is made; then something is wrong."""
_WORKER_EXIT_SECONDS = 5.0
"""Seconds in which a worker ends by itself that has nothing more to do."""


def _run_workers(
    maker: _BatchMaker, tasks: Iterable[_WorkerTask], n_workers: int
) -> Iterator[_WorkerResult]:
    """Let worker processes do the work; results come in the order of the work.

    Where a worker is lost, for instance because memory was scarce and the system has killed it, all
    are started anew, and what they had been given and not done is given to them once more.

    Raises:
        ChildProcessError: workers are lost again and again.
    """
    rest, given, lost = iter(tasks), deque[_WorkerTask](), 0
    while True:
        again = tuple(given)
        given.clear()
        results = _start_workers(maker, _recording(chain(again, rest), given), n_workers)
        processes: list[Any] = getattr(results, "_workers")  # noqa: B009  # torch names it so
        try:
            for done in results:
                if isinstance(done, _WorkerError):
                    raise done.error
                given.popleft()
                lost = 0
                yield done
            return
        except RuntimeError as error:
            if not str(error).startswith("DataLoader worker"):  # all that torch says of a lost one
                raise
            lost += 1
            if lost == _MAX_WORKER_LOSSES:
                raise ChildProcessError(
                    f"processes that make batches were ended {lost} times before their work was "
                    "done (killed: was the memory enough?); --workers 0 makes batches without them"
                ) from None
            _log.warning("a process that makes batches was lost; the run goes on with new ones")
        finally:
            del results  # ends the workers now, even where an error keeps this frame alive
            _end_workers(processes)


def _recording(tasks: Iterable[_WorkerTask], pending: deque[_WorkerTask]) -> Iterator[_WorkerTask]:
    for work in tasks:
        pending.append(work)
        yield work


def _end_workers(processes: Iterable[Any]) -> None:
    """End workers that did not end by themselves.

    Of a worker's end its fork server tells. Where that is stopped or hangs, this process would wait
    for it for ever at its own end: so it is ended, too, and whoever needs one starts it anew.
    """
    waiting = [process for process in processes if process.is_alive()]
    for process in waiting:
        process.join(_WORKER_EXIT_SECONDS / len(waiting))
    waiting = [process for process in waiting if process.is_alive()]
    if not waiting:
        return
    for process in waiting:
        process.kill()
    if _START_METHOD == "forkserver":
        server: Any = getattr(forkserver, "_forkserver")  # noqa: B009
        if (pid := server._forkserver_pid) is not None:
            with suppress(ProcessLookupError, ChildProcessError):
                os.kill(pid, signal.SIGKILL)
                if hasattr(os, "waitid"):  # it is gone before another is started
                    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    for process in waiting:
        process.join(_WORKER_EXIT_SECONDS)


# Workers are not forked from this process: its other threads (OpenMP's, CUDA's, the tokenizers')
# may hold a lock at that moment, which then stays locked in the child for ever; Python 3.12 and
# later warn of it. A fork server is started once, single-threaded and with torch imported, and
# workers are forked from it: they start at once and share its memory. Where there is none
# (Windows), they are new interpreters.
_START_METHOD = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"


def _start_workers(
    maker: _BatchMaker, tasks: Iterable[_WorkerTask], n_workers: int
) -> Iterator[_WorkerResult | _WorkerError]:
    import torch
    from torch.utils.data import DataLoader

    if _START_METHOD == "forkserver":
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["torch.utils.data", "unmask.batching.loader"])
    with warnings.catch_warnings():
        # More workers than cores is the user's choice, and tests make it.
        warnings.filterwarnings("ignore", message="This DataLoader will create")
        loader: DataLoader[_WorkerResult | _WorkerError] = DataLoader(
            maker,  # pyright: ignore[reportArgumentType]  # anything with __getitem__ will do
            batch_size=None,
            sampler=tasks,
            num_workers=n_workers,
            collate_fn=_identity,  # pyright: ignore[reportArgumentType]  # typed for lists only
            worker_init_fn=_begin_worker,
            multiprocessing_context=_START_METHOD,
            # Its own generator, so that the global one is where it would be without workers.
            generator=torch.Generator(),
        )
        needs_script = b"__main__" in bytes(ForkingPickler.dumps(replace(maker, other_rows=None)))
        with nullcontext() if needs_script else _without_main_script(), _hangup_blocked():
            return iter(loader)


@contextmanager
def _hangup_blocked() -> Generator[None]:
    """Let what is started meanwhile not hear that the terminal was closed, for as long as it lives.

    Python's fork server, and the process with which it counts what workers share, would end at
    once, before this one has saved what it does. A signal that comes meanwhile comes afterwards.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _without_main_script() -> Generator[None]:
    """Let worker processes start without running the user's script once more.

    Python does so to find classes defined there. Unless one is sent to the workers, this would only
    do harm: a script that trains without `if __name__ == "__main__"` would train in every worker.
    """
    script = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = script


def _identity(done: _WorkerResult | _WorkerError) -> _WorkerResult | _WorkerError:
    return done


def _begin_worker(worker: int) -> None:
    """Leave Ctrl-C to the training process, which may want to finish its step with our batches.

    So with the signal that a closed terminal sends.

    And end with it, even if it is killed: a fork server lives as long as its workers, and torch's
    watchdog waits for the server to end.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _check_loader(loader: BatchLoader) -> None:
    """Refuse what cannot be right.

    Raises:
        ValueError: says what.
    """
    for name, least in (
        ("max_length", 1),
        ("batch_tokens", 1),
        ("n_workers", 0),
        ("seed", 0),
        ("world_size", 1),
    ):
        if getattr(loader, name) < least:
            raise ValueError(f"{name} must be at least {least}, got {getattr(loader, name)}")
    for name in ("micro_batch_tokens", "max_epochs"):
        value = getattr(loader, name)
        if value is not None and value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
    if not 0 <= loader.rank < loader.world_size:
        raise ValueError(f"rank must be between 0 and {loader.world_size - 1}, got {loader.rank}")
    _check_rows(loader)
    _check_streams(loader)
    if loader.strategy == "pack" and loader.objective.needs_second_text:
        raise ValueError("an objective with a question about pairs cannot be packed; use 'bucket'")


def _check_streams(loader: BatchLoader) -> None:
    if loader.bidirectional and (loader.strategy != "stream" or loader.objective.causal):
        raise ValueError(
            "bidirectional: only streams of an objective that is not causal are read in both "
            "directions"
        )
    if loader.length_jitter and (loader.strategy != "stream" or loader.bidirectional):
        raise ValueError("length_jitter is of streams that are read forward")
    if loader.length_jitter and (loader.row_spans[1:, 0] != loader.row_spans[:-1, 1]).any():
        raise ValueError("length_jitter moves where a row ends and the next begins; these overlap")
    if loader.strategy == "stream" and loader.source_sampling is not None:
        raise ValueError("sources cannot be sampled in streams, whose rows keep their order")


def _check_rows(loader: BatchLoader) -> None:
    rows, documents = loader.row_spans, loader.document_of_row
    if not len(rows):
        raise ValueError("there are no rows to train on")
    n = rows[:, 1] - rows[:, 0]
    if n.min() < 1:
        raise ValueError(f"row {int(n.argmin())} has no tokens")
    sizes = loader.objective.max_example_length(n, loader.special_ids)
    if sizes.max() > loader.max_length:
        i = int(sizes.argmax())
        budget = loader.objective.max_text_length(loader.max_length, loader.special_ids)
        raise ValueError(
            f"row {i} has {int(n[i])} tokens; at most {budget} fit an example of "
            f"{loader.max_length}"
        )
    if loader.source_sampling is not None and len(loader.source_sampling.source_of_row) != len(
        rows
    ):
        raise ValueError("source_of_row must be one number for each row")
    if documents is not None and (len(documents) != len(rows) or (np.diff(documents) < 0).any()):
        raise ValueError("document_of_row must be one number for each row, in ascending order")
