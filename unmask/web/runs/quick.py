"""A column of a log that was not read yet, without parsing all of it.

Of evaluations, only their lines are parsed. Of training there is a quicker way still: fifty runs of
two thousand lines are drawn in a fraction of the time that their JSON takes. Only what is certain
is taken: a number before which a line, as `TrainingLog` writes it, has nothing but numbers. Of all
else `quick_column` says None, and the log is read as a whole.
"""

import re
from functools import cache
from itertools import pairwise
from math import isfinite
from pathlib import Path

from unmask.web.runs.series import (
    MAX_WHOLE_BYTES,
    Column,
    Columns,
    LogPart,
    is_series_known,
    parse_lines,
    read_series,
)

_HEAD_BYTES, _TAIL_BYTES = 1 << 15, 1 << 16
"""Of a log, in which its columns are looked for."""
_SOME_LINES = 4
"""The first and the last so many of these."""
_NUMBER = rb"-?[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?|null"
_EVALUATION = b'"evaluation"'
_EVALUATION_LINE = re.compile(rb'\n\{"step": [0-9]+, "evaluation": \{')
"""The beginning of a line of an evaluation; these words are nowhere else, or the log is parsed."""


def quick_column(path: Path, part: LogPart, name: str) -> tuple[list[float], Column] | None:
    """Return steps and values of a column; None: read the log for it."""
    if is_series_known(path):
        return None
    try:
        if path.stat().st_size > MAX_WHOLE_BYTES:
            return None
        data = path.read_bytes()
    except OSError:
        return None
    data = data[: data.rfind(b"\n") + 1]  # a line that is being written does not count
    if part == "evaluation":
        columns = _columns(data.split(b"\n"), part)
        values = columns.copied().columns.get(name)
        return ([], []) if values is None else (columns.steps, values)
    if "." in name:
        return None
    data = b"\n" + data
    n_evaluations = data.count(_EVALUATION)
    if n_evaluations != len(_EVALUATION_LINE.findall(data)):
        return None
    found = _pattern(name).findall(data)
    if len(found) != data.count(b"\n") - 1 - n_evaluations:
        return None
    steps = [float(step) for step, _ in found]
    if any(step >= later for step, later in pairwise(steps)):
        return None  # it was resumed: later lines hold
    values = [None if value == b"null" else float(value) for _, value in found]
    return steps, [value if value is None or isfinite(value) else None for value in values]


@cache
def _pattern(name: str) -> re.Pattern[bytes]:
    """Compile the beginning of a line up to a column: flat numbers, none of the same name."""
    key = re.escape(name.encode())
    flat = rb'(?:, "(?!%b")[^"\\]+": (?:%b))*' % (key, _NUMBER)
    line = rb'\n\{"step": ([0-9]+)%b, "%b": (%b)[,}]' % (flat, key, _NUMBER)
    return re.compile(line)  # not MULTILINE: a pattern that begins with plain text is found faster


def column_names(path: Path, part: LogPart) -> list[str]:
    """Return the columns of a log; of one that was not read yet, those of its beginning and end."""
    if is_series_known(path):
        return [*read_series(path).part(part).columns]
    return [*_columns(_ends(path).split(b"\n"), part, _SOME_LINES).columns]


def _columns(lines: list[bytes], part: LogPart, most: int | None = None) -> Columns:
    """Parse the lines of a part; of more than so many at either end, these."""
    wanted = [one for one in lines if one and (_EVALUATION in one) == (part == "evaluation")]
    if most is not None and len(wanted) > 2 * most:
        wanted = wanted[:most] + wanted[-most:]
    columns = Columns()
    for line in parse_lines(b"\n".join(wanted))[0]:
        evaluation = line.get("evaluation")
        if isinstance(evaluation, dict):
            columns.add({**evaluation, "step": line.get("step")})
        elif "evaluation" not in line:
            columns.add(line)
    return columns


def _ends(path: Path) -> bytes:
    """Return whole lines of the beginning and the end of a file."""
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
            size = file.seek(0, 2)
            if size <= _HEAD_BYTES + _TAIL_BYTES:
                file.seek(0)
                data = file.read()
                return data[: data.rfind(b"\n") + 1]
            file.seek(size - _TAIL_BYTES)
            tail = file.read()
    except OSError:
        return b""
    return head[: head.rfind(b"\n") + 1] + tail[tail.find(b"\n") + 1 : tail.rfind(b"\n") + 1]
