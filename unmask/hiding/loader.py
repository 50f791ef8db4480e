"""Which rows make a step, and the batches made of them: a function of seed and position.

An epoch's order is a permutation of all rows (where sources are sampled, of those that it takes of
each). It is cut into windows of about 64 batches; within a window, rows are put together by length
(or laid out in full rows), and the batches shuffled. Nothing of this depends on the number of
processes, workers or micro-batches, and a `Cursor` of a few integers is all that a checkpoint must
hold.
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
from unmask.hiding.collate import Arrays, arrange, first_fit
from unmask.hiding.hide import AnyObjective
from unmask.hiding.objectives import objective_after
from unmask.hiding.sources import Sources
from unmask.tokens.vocabulary import Special

_log = logging.getLogger(__name__)

WINDOW_BATCHES = 64
"""So many batches share a sorting: enough for rows of like length to meet, few to stay random."""

_EPOCH_ORDER, _BATCH_ORDER, _SOURCE_ORDER = 1, 2, 3
"""Streams of random numbers apart from those of the examples."""

Groups = list[list[int]]
"""The rows of text in each row of a batch: one when padded, one or several when packed. Where
sources are sampled, each is a reading: round * n + row."""


@runtime_checkable
class Texts(Protocol):
    """Where rows are read from: shards, or anything that gives the tokens between two positions.

    With workers it is sent to other processes, so it should pickle as the name of its folder, not
    with all of its tokens.
    """

    def text(self, start: int, end: int) -> Tokens:
        """Read the tokens from `start` up to `end`."""
        ...


@dataclass(frozen=True)
class Cursor:
    """The next batch: its epoch, its window in the epoch, its place in the window."""

    epoch: int = 0
    window: int = 0
    batch: int = 0
    taken: int = field(default=0, compare=False)
    """Batches before it, whatever they were."""


@dataclass(frozen=True)
class Step:
    """A global batch: its rows, where it stands, and what comes after it."""

    groups: Groups
    cursor: Cursor
    after: Cursor


@dataclass(frozen=True, kw_only=True, eq=False)
class Plan:
    """Which rows make which global batch. Pure: its generators are seeded by position."""

    sizes: Int[np.ndarray, "n"]
    """How long the example of each row is, at most."""
    batch_tokens: int
    """Tokens of a global batch, padding included; at least one row, even one that is longer."""
    length: int | None = None
    """Pack examples into rows of this length; None: pad examples of like length."""
    seed: int = 0
    sources: Sources | None = None
    """Which rows an epoch holds; None: each once."""

    @cached_property
    def n_windows(self) -> int:
        """Count the windows of an epoch."""
        n = len(self.sizes) if self.sources is None else sum(self.sources.takes)
        return max(1, round(min(n, self.n_tokens / self.batch_tokens) / WINDOW_BATCHES))

    @cached_property
    def n_tokens(self) -> float:
        """Count the tokens of an epoch's examples, on average over epochs, padding left out."""
        return float(self.sizes.sum()) if self.sources is None else self._taken(self.sources)

    def _taken(self, sources: Sources) -> float:
        """Return how long all examples of an epoch are together, on average over epochs."""
        mean = np.bincount(sources.of, self.sizes) / np.bincount(sources.of)
        return float(mean @ np.array(sources.takes))

    def order(self, epoch: int) -> Int[np.ndarray, "k"]:
        """Permute the rows of an epoch."""
        draw = self._generator(_EPOCH_ORDER, epoch)
        if self.sources is None:
            return draw.permutation(len(self.sizes))
        return draw.permutation(
            self.sources.readings(epoch, lambda *which: self._generator(_SOURCE_ORDER, *which))
        )

    def size(self, rows: Int[np.ndarray, "k"] | list[int]) -> Int[np.ndarray, "k"]:
        """Look up how long the examples of rows, or of readings of them, are."""
        return self.sizes[np.asarray(rows) % len(self.sizes)]

    def window(self, epoch: int, window: int, order: Int[np.ndarray, "k"]) -> list[Groups]:
        """Make the batches of a window of the epoch, whose `order` is given to compute it once."""
        n = len(order)
        rows = order[n * window // self.n_windows : n * (window + 1) // self.n_windows]
        batches = self._buckets(rows) if self.length is None else self._packs(rows, self.length)
        shuffled = self._generator(_BATCH_ORDER, epoch, window).permutation(len(batches))
        return [batches[i] for i in shuffled]

    def steps(self, cursor: Cursor) -> Iterator[Step]:
        """Go on from `cursor` for ever, epoch after epoch.

        Raises:
            ValueError: there is no such batch: the cursor comes from other rows or sizes.
        """
        if not 0 <= cursor.window < self.n_windows or cursor.epoch < 0:
            raise ValueError(f"no batch at {cursor}: an epoch has {self.n_windows} windows")
        taken = cursor.taken
        while True:
            order = self.order(cursor.epoch)
            for w in range(cursor.window, self.n_windows):
                first = cursor.batch if w == cursor.window else 0
                for step in self._window_steps(Cursor(cursor.epoch, w, first, taken), order):
                    taken = step.after.taken
                    yield step
            cursor = Cursor(cursor.epoch + 1)

    def _window_steps(self, cursor: Cursor, order: Int[np.ndarray, "k"]) -> Iterator[Step]:
        epoch, w = cursor.epoch, cursor.window
        batches = self.window(epoch, w, order)
        if not 0 <= cursor.batch < len(batches):
            raise ValueError(f"no batch at {cursor}: the window has {len(batches)} batches")
        last_window = w + 1 == self.n_windows
        beyond = Cursor(epoch + 1) if last_window else Cursor(epoch, w + 1)
        for taken, i in enumerate(range(cursor.batch, len(batches)), cursor.taken):
            after = beyond if i + 1 == len(batches) else Cursor(epoch, w, i + 1)
            here = Cursor(epoch, w, i, taken)
            yield Step(batches[i], here, replace(after, taken=taken + 1))

    def micro(self, groups: Groups, limit: int | None) -> list[Groups]:
        """Cut what one process has of a global batch into micro-batches of at most `limit` tokens.

        Each has one row at least. Their sizes are as equal as can be.
        """
        if limit is None:
            return [groups] if groups else []
        if self.length is None:
            ends = even_cuts(self.size([g[0] for g in groups]), limit)
        else:
            ends = even_cuts(np.full(len(groups), self.length), limit)
        return [groups[a:b] for a, b in zip([0, *ends[:-1]], ends, strict=True)]

    def _buckets(self, rows: Int[np.ndarray, "k"]) -> list[Groups]:
        rows = rows[np.argsort(-self.size(rows), kind="stable")]
        ends = even_cuts(self.size(rows), self.batch_tokens)
        singles = [[row] for row in rows.tolist()]
        return [singles[a:b] for a, b in zip([0, *ends[:-1]], ends, strict=True)]

    def _packs(self, rows: Int[np.ndarray, "k"], length: int) -> list[Groups]:
        groups = [rows[g].tolist() for g in first_fit(self.size(rows), length)]
        n_batches = -(-len(groups) // max(1, self.batch_tokens // length))
        ends = [len(groups) * (i + 1) // n_batches for i in range(n_batches)]
        return [groups[a:b] for a, b in zip([0, *ends[:-1]], ends, strict=True)]

    def _generator(self, *stream: int) -> np.random.Generator:
        return np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=stream))


@dataclass(frozen=True, kw_only=True, eq=False)
class Streams(Plan):
    """Rows in their order: row i of a step goes on where row i of the step before ended.

    Dai et al. 2019, arXiv:1901.02860, section 3.2: what a network remembers of a row is then its
    true past. All rows are cut into as many streams as a step has rows, all streams equally long;
    what is left at the end is not read. An epoch is one window.
    """

    width: int
    """Tokens of a row, of which a step has so many as fit `batch_tokens`."""
    both_ways: bool = False
    """Every other stream is read from its end, row by row: its rows are -1 - their numbers. What is
    put around a text stands at the same end of the row (released code, `bi_data`)."""

    @cached_property
    def n_windows(self) -> int:
        """One window."""
        return 1

    def order(self, epoch: int) -> Int[np.ndarray, "k"]:
        """Keep the order of the rows in every epoch."""
        return np.arange(len(self.sizes))

    @property
    def streams(self) -> int:
        """How many there are."""
        return min(max(1, self.batch_tokens // self.width), len(self.sizes))

    @property
    def columns(self) -> int:
        """Rows of a stream."""
        return len(self.sizes) // self.streams

    def window(self, epoch: int, window: int, order: Int[np.ndarray, "k"]) -> list[Groups]:
        """Return the batches of the epoch: one row of each stream."""
        n = self.streams
        streams = order[: n * self.columns].reshape(n, -1)
        if self.both_ways:
            streams[1::2] = -1 - streams[1::2, ::-1]
        return [[[row] for row in rows] for rows in streams.T.tolist()]

    def micro(self, groups: Groups, limit: int | None) -> list[Groups]:
        """Cut what one process has of a step, so that each part has the same streams every time."""
        n = len(groups) if limit is None else max(1, limit // self.width)
        return [groups[i : i + n] for i in range(0, len(groups), n)]


def even_cuts(sizes: Int[np.ndarray, "n"], limit: int) -> list[int]:
    """Cut rows in descending order of size into batches that have at most `limit` tokens padded.

    There are as few batches as can be, and the largest is as small as can be, so that none is left
    with a row or two. A batch has one row at least. Gives the end of each.
    """

    def cuts(limit: int) -> list[int]:
        ends: list[int] = []
        end = 0
        while end < len(sizes):
            end = min(end + max(1, limit // int(sizes[end])), len(sizes))
            ends.append(end)
        return ends

    best = cuts(limit)
    low, high = 0, limit
    while high - low > 1:
        middle = (low + high) // 2
        ends = cuts(middle)
        if len(ends) > len(best):
            low = middle
        else:
            high, best = middle, ends
    return best


@dataclass(frozen=True, kw_only=True, eq=False)
class Loader:
    """An endless stream of steps: the micro-batches of this process, and the cursor after them.

    A process may get no micro-batch where a global batch has fewer rows than there are processes;
    it must take part in the step all the same.
    """

    texts: Texts
    rows: Int[np.ndarray, "n 2"]
    """The first and the last token (exclusive) of each row: a text of its own."""
    objective: AnyObjective
    special: Special
    length: int
    """Tokens of an example, at most."""
    batch_tokens: int
    """Tokens of a step over all processes, padding included."""
    micro_tokens: int | None = None
    """Tokens that one process takes at once; None: all that it has of a step."""
    strategy: Literal["bucket", "pack", "stream"] = "bucket"
    """Examples of like length padded to the longest, several examples in each row, or rows that go
    on where those of the step before ended (see `Streams`)."""
    both_ways: bool = False
    """Every other stream is read from its end (Yang et al. 2019, arXiv:1906.08237, section 2.2,
    "bidirectional data input pipeline")."""
    jitter: float = 0.0
    """How far streams are cut from where rows end, all at the same places, others in every epoch:
    the standard deviation as a share of a row (Merity et al. 2018, arXiv:1708.02182, section 4.1).
    So each token stands at the beginning of what the gradient is made of as often as at its end."""
    documents: Int[np.ndarray, "n"] | None = None
    """The document of each row, ascending, for questions about two texts. None: each its own."""
    sources: Sources | None = None
    """Which rows an epoch holds; None: each once."""
    specials: tuple[tuple[Special, ...], Int[np.ndarray, "n"]] | None = None
    """Where these differ by source, those of each, and the source of each row: of languages, whose
    token stands around a text. None: `special`."""
    seed: int = 0
    cursor: Cursor = Cursor()
    epochs: int | None = None
    """End when so many epochs are through; None: never."""
    steps: int | None = None
    """Of the training, for an objective that changes with them. None: it is what it is in the
    end."""
    workers: int = 0
    """Processes that make examples; 0: this one does. The batches are the same."""
    rank: int = 0
    world: int = 1

    def __post_init__(self) -> None:
        _check(self)

    @cached_property
    def plan(self) -> Plan:
        """The order of all batches."""
        sizes = self.objective.size(self.rows[:, 1] - self.rows[:, 0], self.special)
        if self.strategy == "stream":
            width = int(sizes.max())
            return Streams(
                sizes=sizes,
                batch_tokens=self.batch_tokens,
                width=width,
                both_ways=self.both_ways,
            )
        width = self.length if self.strategy == "pack" else None
        return Plan(
            sizes=sizes,
            batch_tokens=self.batch_tokens,
            length=width,
            seed=self.seed,
            sources=self.sources,
        )

    def __iter__(self) -> Iterator[tuple[list[Batch], Cursor]]:
        """Go on from the cursor.

        Raises:
            ValueError: the cursor is not of this data; or what reading or hiding a text raises, in
                a worker too.
        """
        maker = _Maker(
            texts=self.texts,
            objective=self.objective,
            special=self.special,
            specials=self.specials,
            seed=self.seed,
            width=self.plan.length,
            others=(self.rows, self.documents) if self.objective.pairs else None,
            streams=self.strategy == "stream",
        )
        works = self._works()
        made = _made(maker, works, self.workers) if self.workers else map(maker, works)
        for done in made:
            yield [arrays.batch() for arrays in done.micro], done.after

    def _works(self) -> Iterator["_Work"]:
        for step in self.plan.steps(self.cursor):
            if self.epochs is not None and step.cursor.epoch >= self.epochs:
                return
            epoch = step.cursor.epoch
            mine = step.groups[self.rank :: self.world]
            micro = self.plan.micro(mine, self.micro_tokens)
            share = None if self.steps is None else min(step.cursor.taken / self.steps, 1.0)
            yield _Work(
                micro=[
                    [[self._reading(i, epoch) for i in group] for group in groups]
                    for groups in micro
                ],
                after=step.after,
                goes_on=step.cursor.batch > 0 if self.strategy == "stream" else None,
                share=share,
            )

    def _reading(self, i: int, epoch: int) -> "_Reading":
        backward = i < 0
        i = -1 - i if backward else i
        if self.sources is not None:
            epoch, i = divmod(i, len(self.rows))  # a round of the row's source is its epoch
        if self.objective.times is not None:
            epoch %= self.objective.times
        start, end = self.rows[i].tolist()
        if self.jitter:
            moved = self._moved(epoch)
            column = i % (len(moved) - 1)
            start, end = start + moved[column], end + moved[column + 1]
        return epoch, i, start, end, backward

    @cached_property
    def _moved(self) -> Callable[[int], list[int]]:
        """How far each cut of the streams is moved in an epoch; both ends stay."""
        assert isinstance(self.plan, Streams)
        row, columns = int(self.rows[0, 1] - self.rows[0, 0]), self.plan.columns

        def moved(epoch: int) -> list[int]:
            rng = np.random.default_rng([self.seed, epoch])
            far = np.rint(rng.normal(0, self.jitter * row, columns + 1))
            far = far.clip(-(row // 3), row // 3).astype(np.int64)
            far[[0, -1]] = 0
            return far.tolist()

        return lru_cache(1)(moved)


_Reading = tuple[int, int, int, int, bool]
"""A row, after how often it was read before: where its text starts, where it ends, and whether it
is of a stream that is read from its end."""


@dataclass(frozen=True, kw_only=True)
class _Work:
    """What a worker must know of a step: for each example its row, and where its text is."""

    micro: list[list[list[_Reading]]]
    after: Cursor
    goes_on: bool | None
    """Of streams: whether the rows go on where those of the step before ended."""
    share: float | None
    """Of the steps of the training, that were taken before."""


@dataclass(frozen=True)
class _Done:
    micro: list[Arrays]
    after: Cursor


@dataclass(frozen=True)
class _Failed:
    error: ValueError | OSError


@dataclass(frozen=True, kw_only=True, eq=False)
class _Maker:
    """Reads, hides and lays out: all that needs no plan and no tensor; this is what workers get."""

    texts: Texts
    objective: AnyObjective
    special: Special
    specials: tuple[tuple[Special, ...], Int[np.ndarray, "n"]] | None
    seed: int
    width: int | None
    others: tuple[Int[np.ndarray, "n 2"], Int[np.ndarray, "n"] | None] | None
    """The rows and their documents, where an objective asks about two texts."""
    streams: bool

    def __call__(self, work: _Work) -> _Done:
        now = self
        if work.share is not None:
            now = replace(self, objective=objective_after(self.objective, work.share))
        return _Done([now._of_streams(groups, work.goes_on) for groups in work.micro], work.after)

    def _of_streams(self, groups: Sequence[Sequence[_Reading]], goes_on: bool | None) -> Arrays:
        backward = np.array([group[0][4] for group in groups])
        arrays = replace(self._arrays(groups), goes_on=goes_on)
        return replace(arrays, backward=backward) if backward.any() else arrays

    def __getitem__(self, work: _Work) -> _Done | _Failed:
        """Do as asked, as torch's DataLoader asks: errors that are the user's travel as values."""
        try:
            return self(work)
        except (ValueError, OSError) as error:
            return _Failed(error)

    def _arrays(self, groups: Sequence[Sequence[_Reading]]) -> Arrays:
        examples = [[self._example(*reading) for reading in group] for group in groups]
        return arrange(examples, self.special, width=self.width)

    def _example(self, epoch: int, row: int, start: int, end: int, backward: bool) -> Example:
        rng = np.random.default_rng([self.seed, epoch, row])
        text = self.texts.text(start, end)
        if self.streams and start:
            text = replace(text, before=int(self.texts.text(start - 1, start).ids[0]))
        if self.others is not None and (other := another(row, *self.others, rng)) is not None:
            text = replace(text, other=self.texts.text(*other))
        special = self.special
        if self.specials is not None:
            special = self.specials[0][int(self.specials[1][row])]
        return self.objective(text.turned() if backward else text, special, rng)


def another(
    row: int,
    rows: Int[np.ndarray, "n 2"],
    documents: Int[np.ndarray, "n"] | None,
    rng: np.random.Generator,
) -> tuple[int, int] | None:
    """Draw a row of another document; where there is one document, another row; None of one row.

    Rows that overlap this one are no other.
    """
    first, end = row, row + 1
    if documents is not None:
        first = int(np.searchsorted(documents, documents[row], "left"))
        end = int(np.searchsorted(documents, documents[row], "right"))
        if end - first == len(rows):
            first, end = row, row + 1
    while first and rows[first - 1, 1] > rows[row, 0]:
        first -= 1
    while end < len(rows) and rows[end, 0] < rows[row, 1]:
        end += 1
    n = len(rows) - (end - first)
    if not n:
        return None
    drawn = int(rng.integers(n))
    start, stop = rows[drawn if drawn < first else drawn + end - first].tolist()
    return start, stop


def document_numbers(
    rows: Int[np.ndarray, "n 2"], documents: Int[np.ndarray, "m 2"]
) -> Int[np.ndarray, "n"]:
    """Return the number of the document that each row is of; both give starts and ends in order."""
    return np.searchsorted(documents[:, 0], rows[:, 0], "right") - 1


_TRIES = 3
"""So often in a row workers may be lost before a batch is made; then something is wrong."""
_PATIENCE = 5.0
"""Seconds in which a worker ends by itself that has nothing more to do."""


def _made(maker: _Maker, works: Iterable[_Work], workers: int) -> Iterator[_Done]:
    """Let worker processes do the work; results come in the order of the work.

    Where a worker is lost, for instance because memory was scarce and the system has killed it, all
    are started anew, and what they had been given and not done is given to them once more.

    Raises:
        ChildProcessError: workers are lost again and again.
    """
    rest, given, lost = iter(works), deque[_Work](), 0
    while True:
        again = tuple(given)
        given.clear()
        results = _start(maker, _remembered(chain(again, rest), given), workers)
        processes: list[Any] = getattr(results, "_workers")  # noqa: B009  # torch names it so
        try:
            for done in results:
                if isinstance(done, _Failed):
                    raise done.error
                given.popleft()
                lost = 0
                yield done
            return
        except RuntimeError as error:
            if not str(error).startswith("DataLoader worker"):  # all that torch says of a lost one
                raise
            lost += 1
            if lost == _TRIES:
                raise ChildProcessError(
                    f"processes that make batches were ended {lost} times before their work was "
                    "done (killed: was the memory enough?); --workers 0 makes batches without them"
                ) from None
            _log.warning("a process that makes batches was lost; the run goes on with new ones")
        finally:
            del results  # ends the workers now, even where an error keeps this frame alive
            _end(processes)


def _remembered(works: Iterable[_Work], given: deque[_Work]) -> Iterator[_Work]:
    for work in works:
        given.append(work)
        yield work


def _end(processes: Iterable[Any]) -> None:
    """End workers that did not end by themselves.

    Of a worker's end its fork server tells. Where that is stopped or hangs, this process would wait
    for it for ever at its own end: so it is ended, too, and whoever needs one starts it anew.
    """
    waiting = [process for process in processes if process.is_alive()]
    for process in waiting:
        process.join(_PATIENCE / len(waiting))
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
        process.join(_PATIENCE)


# Workers are not forked from this process: its other threads (OpenMP's, CUDA's, the tokenizers')
# may hold a lock at that moment, which then stays locked in the child for ever; Python 3.12 and
# later warn of it. A fork server is started once, single-threaded and with torch imported, and
# workers are forked from it: they start at once and share its memory. Where there is none
# (Windows), they are new interpreters.
_START_METHOD = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"


def _start(maker: _Maker, works: Iterable[_Work], workers: int) -> Iterator[_Done | _Failed]:
    import torch
    from torch.utils.data import DataLoader

    if _START_METHOD == "forkserver":
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["torch.utils.data", "unmask.hiding.loader"])
    with warnings.catch_warnings():
        # More workers than cores is the user's choice, and tests make it.
        warnings.filterwarnings("ignore", message="This DataLoader will create")
        loader: DataLoader[_Done | _Failed] = DataLoader(
            maker,  # pyright: ignore[reportArgumentType]  # anything with __getitem__ will do
            batch_size=None,
            sampler=works,
            num_workers=workers,
            collate_fn=_unchanged,  # pyright: ignore[reportArgumentType]  # typed for lists only
            worker_init_fn=_begin_worker,
            multiprocessing_context=_START_METHOD,
            # Its own generator, so that the global one is where it would be without workers.
            generator=torch.Generator(),
        )
        needs_script = b"__main__" in bytes(ForkingPickler.dumps(replace(maker, others=None)))
        with nullcontext() if needs_script else _no_script(), _not_hung_up():
            return iter(loader)


@contextmanager
def _not_hung_up() -> Generator[None]:
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
def _no_script() -> Generator[None]:
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


def _unchanged(done: _Done | _Failed) -> _Done | _Failed:
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


def _check(loader: Loader) -> None:
    """Refuse what cannot be right.

    Raises:
        ValueError: says what.
    """
    for name, least in (
        ("length", 1),
        ("batch_tokens", 1),
        ("workers", 0),
        ("seed", 0),
        ("world", 1),
    ):
        if getattr(loader, name) < least:
            raise ValueError(f"{name} must be at least {least}, got {getattr(loader, name)}")
    for name in ("micro_tokens", "epochs"):
        value = getattr(loader, name)
        if value is not None and value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
    if not 0 <= loader.rank < loader.world:
        raise ValueError(f"rank must be between 0 and {loader.world - 1}, got {loader.rank}")
    _check_rows(loader)
    _check_streams(loader)
    if loader.strategy == "pack" and loader.objective.pairs:
        raise ValueError("an objective with a question about pairs cannot be packed; use 'bucket'")


def _check_streams(loader: Loader) -> None:
    if loader.both_ways and (loader.strategy != "stream" or loader.objective.causal):
        raise ValueError("only streams of what is not told forward are read both ways")
    if loader.jitter and (loader.strategy != "stream" or loader.both_ways):
        raise ValueError("jitter is of streams that are read forward")
    if loader.jitter and (loader.rows[1:, 0] != loader.rows[:-1, 1]).any():
        raise ValueError("jitter moves where a row ends and the next begins; these overlap")
    if loader.strategy == "stream" and loader.sources is not None:
        raise ValueError("sources cannot be sampled in streams, whose rows keep their order")


def _check_rows(loader: Loader) -> None:
    rows, documents = loader.rows, loader.documents
    if not len(rows):
        raise ValueError("there are no rows to train on")
    n = rows[:, 1] - rows[:, 0]
    if n.min() < 1:
        raise ValueError(f"row {int(n.argmin())} has no tokens")
    sizes = loader.objective.size(n, loader.special)
    if sizes.max() > loader.length:
        i = int(sizes.argmax())
        budget = loader.objective.budget(loader.length, loader.special)
        raise ValueError(
            f"row {i} has {int(n[i])} tokens; at most {budget} fit an example of {loader.length}"
        )
    if loader.sources is not None and len(loader.sources.of) != len(rows):
        raise ValueError("sources must be one number for each row")
    if documents is not None and (len(documents) != len(rows) or (np.diff(documents) < 0).any()):
        raise ValueError("documents must be one number for each row, in ascending order")
