"""What curves are drawn along: steps, or the tokens or seconds at these steps."""

import bisect
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Literal

from unmask.web.runs.quick import quick_column
from unmask.web.runs.series import LogPart, read_series

Axis = Literal["step", "tokens", "seconds"]


def along_axis(axis: Axis, steps: Sequence[float], log: Path, clock: Path | None) -> list[float]:
    """Return where steps are on an axis; nothing if the run did not log it.

    Args:
        axis: what is wanted.
        steps: the steps, in their order.
        log: the log of training, which has the tokens.
        clock: the log of timing, which has the seconds.
    """
    if axis == "step":
        return [*steps]
    path, part = (log, "training") if axis == "tokens" else (clock, "timing")
    if path is None:
        return []
    known_steps, known = _known(path, part, axis)
    if not known:
        return []
    values = _cumulated(known) if axis == "seconds" else known
    return [_interpolated(step, known_steps, values) for step in steps]


def _known(path: Path, part: LogPart, name: str) -> tuple[list[float], list[float]]:
    found = quick_column(path, part, name)
    if found is None:
        columns = read_series(path).part(part)
        found = columns.steps, columns.columns.get(name, [])
    pairs = [(step, value) for step, value in zip(*found, strict=False) if value is not None]
    return [step for step, _ in pairs], [value for _, value in pairs]


def _cumulated(seconds: Sequence[float]) -> list[float]:
    """Return times of a clock that began anew whenever the run was resumed."""
    total, found = seconds[0], [seconds[0]]
    for before, now in pairwise(seconds):
        total += now - before if now >= before else now
        found.append(total)
    return found


def _interpolated(step: float, steps: Sequence[float], values: Sequence[float]) -> float:
    """Return the value at a step, between those beside it; before the first, from 0."""
    n = bisect.bisect_left(steps, step)
    if n == len(steps):
        return values[-1]
    before, low = (steps[n - 1], values[n - 1]) if n else (0.0, 0.0)
    width = steps[n] - before
    return values[n] if width <= 0 else low + (values[n] - low) * (step - before) / width
