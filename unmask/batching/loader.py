"""The rows of each step and their batches, as a function of seed and position.

The order of an epoch is a permutation of all rows, or of those sampled from each source. It is
split into windows of about 64 batches. Within a window, rows are grouped by length (or packed), and
batches are shuffled. The order does not depend on the number of processes, workers or
micro-batches; a checkpoint saves a `DataCursor` of a few integers.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import chain
from typing import Literal

import numpy as np
from jaxtyping import Int

from unmask.batch import Batch
from unmask.batching.plan import (
    BatchPlan,
    DataCursor,
    EpochRows,
    GlobalBatch,
    StreamPlan,
    TokenSource,
)
from unmask.batching.source_sampling import SourceSampling
from unmask.batching.workers import BatchMaker, OtherRows, RowReading, WorkerTask, run_workers
from unmask.objectives.objective import AnyObjective
from unmask.tokenizers.spec import SpecialTokenIds

_log = logging.getLogger(__name__)


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
    """Examples of like length padded to the longest, several examples in each row, or rows that
    continue where those of the step before ended (see `StreamPlan`)."""
    bidirectional: bool = False
    """Every other stream is read from its end (Yang et al. 2019, arXiv:1906.08237, section 2.2,
    "bidirectional data input pipeline")."""
    length_jitter: float = 0.0
    """Standard deviation of the row ends of streams, as a fraction of a row, sampled once per epoch
    for all streams (Merity et al. 2018, arXiv:1708.02182, section 4.1). Each token is then equally
    often at the start and at the end of the backpropagated segment."""
    document_of_row: Int[np.ndarray, "n"] | None = None
    """The document of each row, ascending, for questions about two texts. None: each its own."""
    epoch_rows: EpochRows | None = None
    """The rows of each epoch, of which `row_spans` are the first; None: always the same."""
    evenly: bool = False
    """Whether the rows of each source of `epoch_rows` are at equal distances."""
    source_sampling: SourceSampling | None = None
    """Which rows an epoch holds; None: each once."""
    special_ids_by_source: tuple[tuple[SpecialTokenIds, ...], Int[np.ndarray, "n"]] | None = None
    """Special tokens of each source, such as language tokens, and the source of each row. None:
    `special_ids` for all."""
    read_ahead: Callable[[int, int], None] | None = None
    """Has the tokens of a row fetched, some steps before it is read. None: reading takes no
    time."""
    seed: int = 0
    start_cursor: DataCursor = DataCursor()
    max_epochs: int | None = None
    """Number of epochs. None: unlimited."""
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
        """The order of all batches; where the rows of epochs differ, of those of the first."""
        return self._plan_of(0, self.row_spans)

    def _plan_of(self, epoch: int, row_spans: Int[np.ndarray, "n 2"]) -> BatchPlan:
        sizes = self.objective.max_example_length(
            row_spans[:, 1] - row_spans[:, 0], self.special_ids
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
        spread = self.epoch_rows if self.evenly else None
        return BatchPlan(
            lengths=sizes,
            batch_tokens=self.batch_tokens,
            packed_length=width,
            seed=self.seed,
            source_sampling=self.source_sampling,
            evenly=None if spread is None else spread.source_of_row(epoch, row_spans),
        )

    def _global_batches(
        self,
    ) -> Iterator[tuple[BatchPlan, Int[np.ndarray, "n 2"], GlobalBatch]]:
        """Yield the steps from the cursor on, each with the plan and the rows of its epoch."""
        cursor = self.start_cursor
        if self.epoch_rows is None:
            for step in self.plan.global_batches(cursor):
                yield self.plan, self.row_spans, step
        while self.epoch_rows is not None:
            epoch = cursor.epoch
            rows = self.epoch_rows.row_spans(epoch)
            plan = self._plan_of(epoch, rows)
            for step in plan.global_batches(cursor):
                yield plan, rows, step
                cursor = step.next_cursor
                if cursor.epoch != epoch:
                    break

    def __iter__(self) -> Iterator[tuple[list[Batch], DataCursor]]:
        """Continue from the cursor.

        Raises:
            ValueError: the cursor is not of this data; or what reading or hiding a text raises, in
                a worker too.
        """
        maker = BatchMaker(
            token_source=self.token_source,
            objective=self.objective,
            special_ids=self.special_ids,
            special_ids_by_source=self.special_ids_by_source,
            seed=self.seed,
            row_width=self.plan.packed_length,
            other_rows=self._other_rows(),
            is_stream=self.strategy == "stream",
        )
        works = self._worker_tasks()
        if self.read_ahead is not None:
            works = _with_rows_fetched(works, self.read_ahead)
        made = run_workers(maker, works, self.n_workers) if self.n_workers else map(maker, works)
        for done in made:
            yield [arrays.to_batch() for arrays in done.micro_batches], done.next_cursor

    def _other_rows(self) -> "OtherRows | EpochRows | None":
        if not self.objective.needs_second_text:
            return None
        return self.epoch_rows or OtherRows(self.row_spans, self.document_of_row)

    def _worker_tasks(self) -> Iterator["WorkerTask"]:
        for plan, rows, step in self._global_batches():
            if self.max_epochs is not None and step.cursor.epoch >= self.max_epochs:
                return
            epoch = step.cursor.epoch
            mine = step.part_of(self.rank, self.world_size)
            micro = plan.micro_batches(mine, self.micro_batch_tokens)
            share = (
                None
                if self.total_steps is None
                else min(step.cursor.n_batches / self.total_steps, 1.0)
            )
            yield WorkerTask(
                micro_batches=[
                    [[self._row_reading(i, epoch, rows) for i in group] for group in groups]
                    for groups in micro
                ],
                next_cursor=step.next_cursor,
                continues=step.cursor.batch > 0 if self.strategy == "stream" else None,
                progress=share,
            )

    def _row_reading(self, i: int, epoch: int, row_spans: Int[np.ndarray, "n 2"]) -> "RowReading":
        backward = i < 0
        i = -1 - i if backward else i
        if self.source_sampling is not None:
            epoch, i = divmod(i, len(self.row_spans))  # a round of the row's source is its epoch
        if self.objective.n_variants is not None:
            epoch %= self.objective.n_variants
        start, end = row_spans[i].tolist()
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


READ_AHEAD_STEPS = 32
"""Steps before a row is read at which it is fetched."""


def _with_rows_fetched(
    tasks: Iterator["WorkerTask"], fetch: Callable[[int, int], None]
) -> Iterator["WorkerTask"]:
    """Yield tasks, having the rows of those that follow fetched."""
    ahead = deque[WorkerTask]()
    for task in tasks:
        for groups in task.micro_batches:
            for _, _, start, end, _ in chain.from_iterable(groups):
                fetch(start, end)
        ahead.append(task)
        if len(ahead) > READ_AHEAD_STEPS:
            yield ahead.popleft()
    yield from ahead


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
    if loader.epoch_rows is not None and (
        loader.source_sampling is not None or loader.objective.n_variants is not None
    ):
        raise ValueError("rows that differ in each epoch can neither be sampled nor hidden alike")
    if documents is not None and (len(documents) != len(rows) or (np.diff(documents) < 0).any()):
        raise ValueError("document_of_row must be one number for each row, in ascending order")
