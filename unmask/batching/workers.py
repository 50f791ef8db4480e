"""Worker processes that prefetch batches in order; a lost worker is replaced."""

import logging
import multiprocessing
import os
import signal
import sys
import threading
import warnings
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from itertools import chain
from multiprocessing import forkserver
from multiprocessing.reduction import ForkingPickler
from types import ModuleType
from typing import Any

import numpy as np
from jaxtyping import Int

from unmask.batch import Example
from unmask.batching.collate import BatchArrays, collate
from unmask.batching.plan import DataCursor, EpochRows, TokenSource
from unmask.objectives.features import Recurrence
from unmask.objectives.objective import AnyObjective
from unmask.objectives.published import objective_at_progress
from unmask.shards.reshuffled import EPOCH_PLACES
from unmask.tokenizers.spec import SpecialTokenIds

_log = logging.getLogger(__name__)
RowReading = tuple[int, int, int, int, bool]
"""A row, after how often it was read before: where its text starts, where it ends, and whether it
is of a stream that is read from its end."""


@dataclass(frozen=True, eq=False)
class OtherRows:
    """The rows that are the same in every epoch, for objectives on two texts."""

    spans: Int[np.ndarray, "n 2"]
    documents: Int[np.ndarray, "n"] | None
    """The document of each; None: each is its own."""

    def row_spans(self, epoch: int) -> Int[np.ndarray, "n 2"]:
        """Return the rows."""
        return self.spans

    def document_of_row(
        self, epoch: int, row_spans: Int[np.ndarray, "n 2"]
    ) -> Int[np.ndarray, "n"] | None:
        """Return the document of each."""
        return self.documents


@dataclass(frozen=True, kw_only=True)
class WorkerTask:
    """What a worker must know of a step: for each example its row, and where its text is."""

    micro_batches: list[list[list[RowReading]]]
    next_cursor: DataCursor
    continues: bool | None
    """Whether the rows of streams continue those of the previous step."""
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
class BatchMaker:
    """Reads, hides and lays out: all that needs no plan and no tensor; this is what workers get."""

    token_source: TokenSource
    objective: AnyObjective
    special_ids: SpecialTokenIds
    special_ids_by_source: tuple[tuple[SpecialTokenIds, ...], Int[np.ndarray, "n"]] | None
    seed: int
    row_width: int | None
    other_rows: OtherRows | EpochRows | None
    """The rows and their documents, for objectives on two texts."""
    is_stream: bool

    def __call__(self, task: WorkerTask) -> _WorkerResult:
        """Make the batches of a task."""
        now = self
        if task.progress is not None:
            now = replace(self, objective=objective_at_progress(self.objective, task.progress))
        return _WorkerResult(
            [now._stream_arrays(groups, task.continues) for groups in task.micro_batches],
            task.next_cursor,
        )

    def _stream_arrays(
        self, row_groups: Sequence[Sequence[RowReading]], continues: bool | None
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

    def __getitem__(self, task: WorkerTask) -> _WorkerResult | _WorkerError:
        """Process a work item for torch's DataLoader; errors of the user are returned as values."""
        try:
            return self(task)
        except (ValueError, OSError) as error:
            return _WorkerError(error)

    def _collate_readings(self, row_groups: Sequence[Sequence[RowReading]]) -> BatchArrays:
        examples = [[self._make_example(*reading) for reading in group] for group in row_groups]
        return collate(examples, self.special_ids, min_width=self.row_width)

    def _make_example(self, epoch: int, row: int, start: int, end: int, backward: bool) -> Example:
        rng = np.random.default_rng([self.seed, epoch, row])
        text = self.token_source.read_tokens(start, end)
        if self.is_stream and start % EPOCH_PLACES:
            text = replace(
                text, previous_token=int(self.token_source.read_tokens(start - 1, start).ids[0])
            )
        if self.other_rows is not None and (other := self._draw_other(epoch, row, rng)) is not None:
            text = replace(text, other_text=self.token_source.read_tokens(*other))
        special = self.special_ids
        if self.special_ids_by_source is not None:
            special = self.special_ids_by_source[0][int(self.special_ids_by_source[1][row])]
        example = self.objective(text.reversed() if backward else text, special, rng)
        return special.with_text_languages(example)

    def _draw_other(self, epoch: int, row: int, rng: np.random.Generator) -> tuple[int, int] | None:
        assert self.other_rows is not None
        rows = self.other_rows.row_spans(epoch)
        return draw_other_row(row, rows, self.other_rows.document_of_row(epoch, rows), rng)


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


def run_workers(
    maker: BatchMaker, tasks: Iterable[WorkerTask], n_workers: int
) -> Iterator[_WorkerResult]:
    """Process work items in worker processes; results are in the order of the items.

    If a worker is lost, for instance killed for lack of memory, all are restarted and unfinished
    items are submitted again.

    Raises:
        ChildProcessError: workers are lost again and again.
    """
    rest, given, lost = iter(tasks), deque[WorkerTask](), 0
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


def _recording(tasks: Iterable[WorkerTask], pending: deque[WorkerTask]) -> Iterator[WorkerTask]:
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
    maker: BatchMaker, tasks: Iterable[WorkerTask], n_workers: int
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
    """Make processes that are started meanwhile ignore SIGHUP for their lifetime.

    Otherwise Python's fork server and resource tracker end at once when the terminal is closed,
    before this process has saved its state. A signal that arrives meanwhile is delivered afterward.
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
    """Start worker processes without importing the user's script again.

    Python imports it to find classes defined there, which workers do not need. A script without `if
    __name__ == "__main__"` would train in every worker.
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
