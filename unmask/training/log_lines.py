"""Reading the logs of a run: lines that may be damaged, clocks that begin anew."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from unmask.files import parse_json


def read_log_lines(path: Path) -> tuple[list[dict[str, Any]], int]:
    """Read JSON lines; return also how many are not. The last may be still being written."""
    if not path.is_file():
        return [], 0
    rows: list[dict[str, Any]] = []
    bad = 0
    pieces = path.read_bytes().split(b"\n")
    for i, piece in enumerate(pieces):
        row = _parse_line(piece)
        if isinstance(row, dict):
            rows.append(row)
        elif piece.strip() and i < len(pieces) - 1:
            bad += 1
    return rows, bad


def _parse_line(piece: bytes) -> Any:
    try:
        return parse_json(piece)
    except ValueError:  # empty, cut, or not UTF-8
        return None


def process_boundaries(
    timing_lines: Sequence[Mapping[str, Any]],
) -> tuple[tuple[int, ...], float | None]:
    """Find where a new process took over, for its clock begins anew; add up all their times."""
    resumed: list[int] = []
    total, before = 0.0, None
    for line in timing_lines:
        now, step = finite_number(line.get("seconds")), finite_number(line.get("step"))
        if now is None:
            continue
        if before is not None and now < before:
            total += before
            resumed += [] if step is None else [int(step)]
        before = now
    return tuple(resumed), None if before is None else total + before


def finite_number(value: Any) -> float | None:
    """Return a finite number as a float, and anything else as None.

    What is too large or too small for its square to be a float counts as not finite, or as zero.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e100:
        return None
    return float(value) if abs(value) > 1e-100 else 0.0
