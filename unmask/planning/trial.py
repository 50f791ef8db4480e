"""Some real training steps of a network on this machine, timed and their memory counted."""

import statistics
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from typing import Any

import torch

from unmask.heads.model import Model
from unmask.planning.rows import count_positions
from unmask.training import loop
from unmask.training.config import Recipe
from unmask.training.device.memory import (
    keep_freed_memory,
    peak_memory_bytes,
    restart_peak_memory,
    return_freed_memory,
)
from unmask.training.device.stopwatch import Stopwatch
from unmask.training.run import BatchStream, MicroBatches, TrainingRun

MAX_SECONDS = 8.0
"""Of a trial, after which no further step begins."""
MAX_STEP_SECONDS = 2.5
"""Of one of its timed steps, as it is computed; its batch is made smaller for that."""
MAX_FIRST_SECONDS = 10.0
"""Likewise of its first step, whose memory is measured: a whole micro-batch, if it can be."""
MAX_ROW_SECONDS = 3.0
"""Of its step with a single row. A network that takes longer is not tried."""
_MIN_STEPS, _MAX_STEPS = 2, 12
"""Steps that are timed."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """What training steps of one micro-batch took."""

    positions: int
    """Of a timed micro-batch, in the mean: tokens of the longer side, padding included."""
    batch_seconds: float
    """To make a micro-batch, and its forward and backward pass."""
    update_seconds: float
    """To move the weights."""
    working_bytes: int | None
    """What the first step allocates and frees. None: this system does not say."""
    n_steps: int
    """Number of timed steps."""

    def step_seconds(self, positions: int | float) -> float:
        """Return the seconds of a step of so many positions."""
        return self.batch_seconds * positions / self.positions + self.update_seconds


@dataclass
class _CountedBatches:
    """A first batch and others as they are read, and their positions."""

    first: BatchStream
    others: BatchStream
    positions: list[int] = field(default_factory=list[int])

    def __call__(self, cursor: Any) -> Iterator[tuple[MicroBatches, Any]]:
        for micro_batches, after in chain(islice(self.first(cursor), 1), self.others(cursor)):
            self.positions.append(sum(map(count_positions, micro_batches)))
            yield micro_batches, after


def try_training(
    model: Model,
    recipe: Recipe,
    first: BatchStream,
    batches: BatchStream,
    *,
    max_seconds: float = MAX_SECONDS,
) -> Trial:
    """Train a network for some steps of one micro-batch each, with torch's threads.

    Memory is that of the first step, whose peak is before the optimizer makes its state. Time is
    that of the third and later ones, with freed memory kept, as runs keep it.

    Args:
        model: with its weights, which change.
        recipe: of steps of one micro-batch, in a precision that is resolved.
        first: data of the first step.
        batches: data of the others.
        max_seconds: after which no step begins, once some were timed.
    """
    counted = _CountedBatches(first, batches)
    long_enough = replace(recipe, steps=max(recipe.steps, _MAX_STEPS + 3), compile=False)
    seconds: list[float] = []
    try:
        run = loop.start_run(long_enough, model, counted)
        watch = Stopwatch()
        reports = loop.train(run)
        working = _peak_bytes(reports, run.weights.flat_gradient.nbytes)
        keep_freed_memory()
        next(reports)
        while len(seconds) < _MAX_STEPS and (
            len(seconds) < _MIN_STEPS or watch.seconds < max_seconds
        ):
            seconds.append(next(reports).seconds)
        update = _update_seconds(run)
    finally:
        keep_freed_memory(enabled=False)
    timed = counted.positions[-len(seconds) :]
    positions = max(round(statistics.fmean(timed)), 1)
    per_position = statistics.median(
        (s - update) / max(n, 1) for s, n in zip(seconds, timed, strict=True)
    )
    return Trial(
        positions=positions,
        batch_seconds=max(per_position, 1e-12) * positions,
        update_seconds=update,
        working_bytes=working,
        n_steps=len(seconds),
    )


def _update_seconds(run: TrainingRun, tries: int = 2) -> float:
    """Time the optimizer's step alone, with the gradients that there are."""
    best = float("inf")
    for _ in range(tries):
        watch = Stopwatch()
        float(run.weights.gradient_norm())
        run.optimizer.step(0.0)
        run.weights.copy_to_model()
        best = min(best, watch.seconds)
    return best


def _peak_bytes(reports: Iterator[object], gradient_bytes: int) -> int | None:
    """Return the most bytes that the first step allocates and frees; None: unknown.

    `gradient_bytes`: of the buffer that it writes for the first time.
    """
    if not return_freed_memory():
        return None
    begin = restart_peak_memory()
    next(reports)
    most = peak_memory_bytes(torch.device("cpu")) - begin - gradient_bytes
    return most if most > 0 else None
