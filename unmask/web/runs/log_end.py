"""The ends of a run's logs, for lists of many runs: without reading the whole of each."""

import os
import re
from pathlib import Path
from typing import Any

from unmask.training.log import finite_number, process_boundaries
from unmask.web.runs.series import parse_lines

END_BYTES = 2**14
"""Of a log, which hold some fifty lines."""
_MAX_SEARCHED_BYTES = 2**26
_SECONDS = re.compile(rb'"seconds": ([0-9.]+)')


def last_lines(path: Path, *, with_evaluation: bool = False) -> list[dict[str, Any]]:
    """Return the last lines of a log, oldest first; those that are damaged are left out.

    Args:
        path: of the log; of one that is not there, there are none.
        with_evaluation: whether the last evaluation is wanted too, however far back it is.
    """
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            start = max(size - END_BYTES, 0)
            file.seek(start)
            data = file.read(END_BYTES)
            before = b""
            if with_evaluation and start and b'"evaluation"' not in data.partition(b"\n")[2]:
                file.seek(max(start - _MAX_SEARCHED_BYTES, 0))
                before = _last_evaluation(file.read(start - file.tell()) + data)
    except OSError:
        return []
    whole = data.partition(b"\n")[2] if start else data
    return parse_lines(before + whole.rpartition(b"\n")[0])[0]


def _last_evaluation(data: bytes) -> bytes:
    """Return the last line with an evaluation, with its end; empty if there is none."""
    place = data.rfind(b'"evaluation"')
    if place < 0:
        return b""
    end = data.find(b"\n", place)
    return b"" if end < 0 else data[data.rfind(b"\n", 0, place) + 1 : end + 1]


def total_seconds(path: Path) -> float | None:
    """Return the time of all processes that wrote a log of timings; None: there is none."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    try:
        clock = [{"seconds": float(found)} for found in _SECONDS.findall(data)]
    except ValueError:  # digits and dots that are no number
        return None
    return process_boundaries(clock)[1]


def last_number(lines: list[dict[str, Any]], name: str) -> float | None:
    """Return the last number of a name in lines."""
    found = (finite_number(line.get(name)) for line in reversed(lines))
    return next((number for number in found if number is not None), None)
