"""Series: the numbers of a run's logs as columns, read as the logs grow.

Training and evaluations are columns of their own, since evaluations are at other steps. A number
that is not finite is None. Where a step is logged again, as after a resume, the later holds; the
same columns as `unmask.reports.report_data` reads, without numpy.
"""

import bisect
import itertools
import json
import mmap
import operator
import os
import zlib
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any, BinaryIO, Literal, cast

from unmask.files import parse_json
from unmask.training.log import LOG_FILE, finite_number
from unmask.web.runs.scan import FoundRun

Column = list[float | None]
LogPart = Literal["training", "evaluation", "timing"]

MIN_POINTS = 5
"""Of a thinned column: first, last, least, greatest and a gap."""
_PIECE_BYTES = 2**20
"""Of whole lines that are parsed at once."""
_EVALUATION = b'"evaluation"'
_CHECKED_BYTES = 256
"""Before a place in a log, by which it is known again."""
_MAX_LINE_BYTES = 2**24
_MAX_TABLES = 100
"""In a line that is parsed with others; one with more may be nested too deeply."""
MAX_WHOLE_BYTES = 2**24
"""Of a log that is read as a whole; of a longer one, samples of its lines are."""
_N_BLOCKS = 512
_BLOCK_BYTES = 2**13
"""Of lines that follow each other, of which the samples are."""
_MAX_EVALUATIONS = 5000
_MAX_CACHED_NUMBERS = 1_500_000
"""Of all logs that are kept, at 32 bytes each."""


@dataclass(kw_only=True)
class Columns:
    """Numbers by steps; each column is as long as the steps."""

    steps: list[float] = field(default_factory=list[float])
    columns: dict[str, Column] = field(default_factory=dict[str, Column])

    def add(self, line: Mapping[str, Any]) -> None:
        """Add the numbers of a line to those of its step; a line without a step has none."""
        step = finite_number(line.get("step"))
        if step is None:
            return
        n = self._place(step)
        for name, value in _numbers(line, ""):
            column = self.columns.get(name)
            if column is None:
                column = self.columns[name] = []
            if len(column) <= n:
                column.extend([None] * (n + 1 - len(column)))
            column[n] = value

    def add_lines(self, lines: Sequence[Mapping[str, Any]]) -> None:
        """Add the numbers of lines; at once, where each step is new and all lines are alike."""
        values = [line.get("step") for line in lines]
        kinds = set(map(type, values))
        steps = _as_column(values, kinds) if kinds <= {int, float} else [None]
        known = [step for step in (*self.steps[-1:], *steps) if step is not None]
        is_sorted = all(map(operator.lt, known, known[1:]))
        found = _columns_of(lines, "") if is_sorted and None not in steps else None
        if found is None:
            for line in lines:
                self.add(line)
            return
        n = len(self.steps)
        self.steps += known[-len(lines) :] if lines else []
        for name, values in found.items():
            column = self.columns.setdefault(name, [])
            column += [None] * (n - len(column))
            column += values

    def _place(self, step: float) -> int:
        """Return the place of a step, which is made if it is new."""
        if not self.steps or step > self.steps[-1]:
            self.steps.append(step)
            return len(self.steps) - 1
        n = bisect.bisect_left(self.steps, step)
        if self.steps[n] != step:
            self.steps.insert(n, step)
            for column in self.columns.values():
                if len(column) > n:
                    column.insert(n, None)
        return n

    def copied(self) -> "Columns":
        """Return a copy whose columns are all as long as the steps."""
        n = len(self.steps)
        columns = {name: [*c, *[None] * (n - len(c))] for name, c in self.columns.items()}
        return Columns(steps=list(self.steps), columns=columns)

    def last(self, name: str) -> float | None:
        """Return the last number of a column, or None if it has none."""
        values = self.columns.get(name, [])
        return next((value for value in reversed(values) if value is not None), None)

    def to_dict(self, max_points: int | None = None) -> dict[str, Any]:
        """Return plain data; of at most so many points, each column has steps of its own."""
        if max_points is None or len(self.steps) <= max_points:
            return {"steps": self.steps, "columns": self.columns}
        thinned = {name: downsample(self.steps, c, max_points) for name, c in self.columns.items()}
        return {"thinned": {name: {"steps": s, "values": v} for name, (s, v) in thinned.items()}}


@dataclass(frozen=True, kw_only=True)
class Series:
    """The numbers in a part of a log."""

    offset: int
    """Bytes of the log up to the end of the last whole line: from where to go on."""
    check: int
    """Checksum of the bytes before `offset`: given back, a log that was written anew is noticed."""
    restarted: bool
    """Whether it is from the beginning, though less was asked for: the log is another one now."""
    training: Columns
    """Of timing.jsonl: the timings."""
    evaluation: Columns
    n_bad_lines: int
    """Lines that are not JSON, left out."""
    is_sampled: bool = False
    """Whether the log is so long that samples of its lines were read."""

    def part(self, name: LogPart) -> Columns:
        """Return the columns of a part; those of timing are of a log of its own."""
        return self.evaluation if name == "evaluation" else self.training

    def to_dict(self, max_points: int | None = None) -> dict[str, Any]:
        """Return plain data."""
        return {
            "offset": self.offset,
            "check": self.check,
            "restarted": self.restarted,
            "training": self.training.to_dict(max_points),
            "evaluation": self.evaluation.to_dict(max_points),
            "bad_lines": self.n_bad_lines,
            "is_sampled": self.is_sampled,
        }


def read_series(path: Path, after: int = 0, check: int | None = None) -> Series:
    """Read the whole lines of a log after a byte; of a log that is not there, none.

    Args:
        path: of log.jsonl, timing.jsonl or the like.
        after: `offset` of what was read before. 0: from the beginning.
        check: `check` of what was read before. None: only the log's length tells whether it was
            cut, as resuming does, and written anew.
    """
    if not path.is_file():  # also a pipe, which would never end
        return _Reading().series(restarted=after > 0)
    if after <= 0:
        return _CACHE.read(path)
    try:
        with path.open("rb") as file:
            if _goes_on(file, after, check):
                found = _Reading(offset=after)
                found.read_from(file)
                return found.series(restarted=False)
    except OSError:  # it was removed
        pass
    return _CACHE.read(path, restarted=True)


def series_logs(found: FoundRun, name: str = LOG_FILE) -> dict[str, Path]:
    """Return the logs of a run: by seed ("seed-0"), or one without a name."""
    return {path.parent.name if found.seeds else "": path for path in found.logs(name)}


def downsample(
    steps: Sequence[float], values: Sequence[float | None], n: int
) -> tuple[list[float], Column]:
    """Thin a column out to at most `n` points, so that a small curve looks the same.

    Of each of n / 5 equal buckets remain the first, the last, the least and the greatest number,
    and one place without a number, if there is one between them.

    Raises:
        ValueError: n is too small.
    """
    if n < MIN_POINTS:
        raise ValueError(f"n must be at least {MIN_POINTS}, got {n}")
    if len(steps) <= n:
        return list(steps), list(values)
    n_buckets = n // MIN_POINTS
    kept: list[int] = []
    for i in range(n_buckets):
        start, end = len(steps) * i // n_buckets, len(steps) * (i + 1) // n_buckets
        kept += _kept_of_bucket(values, start, end)
    return [steps[i] for i in kept], [values[i] for i in kept]


def _kept_of_bucket(values: Sequence[float | None], start: int, end: int) -> list[int]:
    known = [(value, i) for i in range(start, end) if (value := values[i]) is not None]
    gap = next((i for i in range(start, end) if values[i] is None), None)
    kept = {known[0][1], known[-1][1], min(known)[1], max(known)[1]} if known else set[int]()
    if gap is not None:
        kept.add(gap)
    return sorted(kept)


@dataclass(kw_only=True)
class _Reading:
    """A log that is read, so far."""

    offset: int = 0
    check: int = 0
    training: Columns = field(default_factory=Columns)
    evaluation: Columns = field(default_factory=Columns)
    n_bad_lines: int = 0
    is_sampled: bool = False

    def read_from(self, file: BinaryIO) -> None:
        """Read the whole lines that are new; of too many, samples."""
        if file.seek(0, os.SEEK_END) - self.offset > MAX_WHOLE_BYTES:
            self._read_samples(file)
        file.seek(self.offset)
        rest = b""
        while len(rest) < _MAX_LINE_BYTES and (piece := file.read(_PIECE_BYTES)):
            whole, newline, rest = (rest + piece).rpartition(b"\n")
            if newline:
                self.offset += len(whole) + 1
                self._add_lines(whole)
        self.check = _checksum_before(file, self.offset)

    def _read_samples(self, file: BinaryIO) -> None:
        """Read blocks of training lines, equally far apart, and the lines of evaluations."""
        self.is_sampled = True
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            first, end = self.offset, data.rfind(b"\n") + 1
            stride = (end - first) // _N_BLOCKS
            lines: dict[int, bytes] = {}
            for start in (*range(first, end - 2 * _BLOCK_BYTES, stride), end - _BLOCK_BYTES):
                place = start if start == first else data.find(b"\n", start) + 1
                block = data[place : min(start + _BLOCK_BYTES, end)]
                lines[place] = block[: block.rfind(b"\n") + 1]
            place = data.find(_EVALUATION, first, end)
            while place >= 0:
                line, after = data.rfind(b"\n", 0, place) + 1, data.find(b"\n", place) + 1
                lines.setdefault(line, data[line:after])
                step = max(after, place + (end - first) // _MAX_EVALUATIONS)
                place = data.find(_EVALUATION, step, end)
            self.offset = end
        self._add_lines(b"".join(lines[place] for place in sorted(lines)))

    def _add_lines(self, data: bytes) -> None:
        lines, n_bad = parse_lines(data)
        self.n_bad_lines += n_bad
        self.training.add_lines([line for line in lines if "evaluation" not in line])
        self.evaluation.add_lines(
            [
                {**found, "step": line.get("step")}
                for line in lines
                if isinstance(found := line.get("evaluation"), dict)
            ]
        )

    @property
    def n_numbers(self) -> int:
        """Numbers that are held."""
        return sum(len(c.steps) * (1 + len(c.columns)) for c in (self.training, self.evaluation))

    def series(self, *, restarted: bool) -> Series:
        """Return what was read."""
        return Series(
            offset=self.offset,
            check=self.check,
            restarted=restarted,
            training=self.training.copied(),
            evaluation=self.evaluation.copied(),
            n_bad_lines=self.n_bad_lines,
            is_sampled=self.is_sampled,
        )


class _SeriesCache:
    """Logs that were read from the beginning, of which only new lines are read again."""

    def __init__(self) -> None:
        self._readings: OrderedDict[Path, _Reading] = OrderedDict()
        self._lock = Lock()

    def __contains__(self, path: Path) -> bool:
        """Return whether a log was read before."""
        return path in self._readings

    def read(self, path: Path, *, restarted: bool = False) -> Series:
        """Read a log from the beginning."""
        with self._lock:
            found = self._readings.pop(path, None) or _Reading()
            try:
                with path.open("rb") as file:
                    if not _goes_on(file, found.offset, found.check):
                        found = _Reading()
                    found.read_from(file)
            except OSError:  # none yet, or it was removed
                return _Reading().series(restarted=restarted)
            self._readings[path] = found
            n_numbers = sum(one.n_numbers for one in self._readings.values())
            while n_numbers > _MAX_CACHED_NUMBERS:
                n_numbers -= self._readings.popitem(last=False)[1].n_numbers
            return found.series(restarted=restarted)


_CACHE = _SeriesCache()


def is_series_known(path: Path) -> bool:
    """Return whether a log was read before, so that only what is new is read."""
    return path in _CACHE


def _goes_on(file: BinaryIO, offset: int, check: int | None) -> bool:
    """Return whether a log is at a place what it was when it had been read up to there."""
    if offset == 0:
        return True
    file.seek(offset - 1)
    if file.read(1) != b"\n":
        return False
    return check is None or _checksum_before(file, offset) == check


def _checksum_before(file: BinaryIO, offset: int) -> int:
    start = max(offset - _CHECKED_BYTES, 0)
    file.seek(start)
    return zlib.crc32(file.read(offset - start))


def parse_lines(data: bytes) -> tuple[list[dict[str, Any]], int]:
    """Parse lines of JSON; return also how many are none. All at once, if they are as they should.

    One array takes a third of the time that as many calls take.
    """
    pieces = [piece for piece in data.split(b"\n") if piece.strip()]
    rows: list[Any] | None = None
    with suppress(ValueError, RecursionError):  # a line is damaged, or not UTF-8
        if all(piece.count(b"{") < _MAX_TABLES for piece in pieces):
            rows = json.loads(b"[" + b",".join(pieces) + b"]")
    if rows is None or len(rows) != len(pieces):
        rows = [_parse_line(piece) for piece in pieces]
    lines = [cast("dict[str, Any]", row) for row in rows if isinstance(row, dict)]
    return lines, len(rows) - len(lines)


def _parse_line(piece: bytes) -> Any:
    try:
        return parse_json(piece)
    except ValueError:
        return None


def _numbers(line: Mapping[str, Any], prefix: str) -> Iterable[tuple[str, float | None]]:
    """Iterate over the numbers of nested tables by dotted names, without the step."""
    for key, value in line.items():
        if isinstance(value, float) and 1e-100 < abs(value) < 1e100:  # nearly all
            if prefix or key != "step":
                yield prefix + key, value
        elif isinstance(value, dict):
            yield from _numbers(cast("dict[str, Any]", value), f"{prefix}{key}.")
        elif prefix or key != "step":
            yield prefix + key, finite_number(int(value) if isinstance(value, bool) else value)


def _columns_of(lines: Sequence[Mapping[str, Any]], prefix: str) -> dict[str, Column] | None:
    """Return the columns of lines; None where a name is of a number here and of a table there."""
    found: dict[str, Column] = {}
    for name in dict.fromkeys(itertools.chain.from_iterable(lines)):
        if name == "step" and not prefix:
            continue
        values = [line.get(name) for line in lines]
        kinds = set(map(type, values))
        if dict in kinds:
            inner = None
            if kinds <= {dict, type(None)}:
                inner = _columns_of([value or {} for value in values], f"{prefix}{name}.")
            if inner is None:
                return None
            found |= inner
        else:
            found[prefix + name] = _as_column(values, kinds)
    return found


def _as_column(values: list[Any], kinds: set[type]) -> Column:
    if kinds == {float}:  # nearly all
        return [v if 1e-100 < v < 1e100 else finite_number(v) for v in values]
    if kinds == {int}:
        return [float(v) if 0 < v < 2**53 else finite_number(v) for v in values]
    return [finite_number(int(v) if v is True or v is False else v) for v in values]
