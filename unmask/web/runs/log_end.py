"""The ends of a run's logs, for lists of many runs: without reading the whole of each."""

import itertools
import os
import re
from pathlib import Path
from typing import Any, BinaryIO

from unmask.training.log import finite_number
from unmask.web.runs.series import parse_lines

END_BYTES, FEW_BYTES = 2**14, 2**11
"""Of a log, which hold some fifty lines, and some six."""
_MAX_SEARCHED_BYTES = 2**26
_SECONDS = re.compile(rb'"seconds": ([0-9.]+)')


def last_lines(path: Path, n_bytes: int = END_BYTES) -> list[dict[str, Any]]:
    """Return the last lines of a log, oldest first; those that are damaged are left out.

    Args:
        path: of the log; of one that is not there, there are none.
        n_bytes: at the end of the log, in which they are.
    """
    try:
        with path.open("rb") as file:
            return parse_lines(_end(file, n_bytes))[0]
    except OSError:
        return []


def last_evaluated_lines(path: Path) -> list[dict[str, Any]]:
    """Return the last few lines of a log, and the last evaluation before them, if there is one.

    Where nothing was evaluated, there are more lines, for the mean of the last.
    """
    try:
        with path.open("rb") as file:
            data = _end(file, FEW_BYTES)
            if b'"evaluation"' in data:
                return parse_lines(data)[0]
            size = file.seek(0, os.SEEK_END)
            file.seek(max(size - _MAX_SEARCHED_BYTES, 0))
            evaluation = _last_evaluation(file.read(_MAX_SEARCHED_BYTES))
            return parse_lines(evaluation + data if evaluation else _end(file, END_BYTES))[0]
    except OSError:
        return []


def total_seconds(path: Path) -> float | None:
    """Return the time of all processes that wrote a log of timings; None: there is none.

    A clock that goes back is that of a new process.
    """
    try:
        clock = [float(found) for found in _SECONDS.findall(path.read_bytes())]
    except (OSError, ValueError):  # ValueError: digits and dots that are no number
        return None
    if not clock:
        return None
    return clock[-1] + sum(before for before, now in itertools.pairwise(clock) if now < before)


def last_number(lines: list[dict[str, Any]], name: str) -> float | None:
    """Return the last number of a name in lines."""
    found = (finite_number(line.get(name)) for line in reversed(lines))
    return next((number for number in found if number is not None), None)


def _end(file: BinaryIO, n_bytes: int) -> bytes:
    """Return the whole lines among the last bytes of a file."""
    start = max(file.seek(0, os.SEEK_END) - n_bytes, 0)
    file.seek(start)
    data = file.read(n_bytes)
    whole = data.partition(b"\n")[2] if start else data
    return whole[: whole.rfind(b"\n") + 1]


def _last_evaluation(data: bytes) -> bytes:
    """Return the last whole line with an evaluation, with its end; empty if there is none."""
    place = data.rfind(b'"evaluation"')
    end = data.find(b"\n", place)
    return b"" if place < 0 or end < 0 else data[data.rfind(b"\n", 0, place) + 1 : end + 1]
