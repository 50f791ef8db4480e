"""What a run folder holds for its report: formats that commands write, and forgiving readers."""

import datetime
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Float

from unmask.config import from_dict, to_dict
from unmask.files import parsed, read_json, write_whole
from unmask.vectors.learning import METHODS

T = TypeVar("T")

FACTS, LOG, TIMING = "unmask.json", "log.jsonl", "timing.jsonl"
SAMPLES, RESULTS, BASELINES = "samples.json", "results.json", "baselines.json"

Guesses = tuple[tuple[str, float | None], ...]
"""For one blank: what the model would put there and how likely it finds that, best first."""

Baselines = Mapping[str, Mapping[str, float]]
"""What simple methods reach (`bigram`: 0.2), under the name that the log's evaluations give the
figure (`masked_accuracy`): `baselines.json`."""


@dataclass(frozen=True, kw_only=True)
class Fill:
    """A text with blanks, filled before and after training: one item of `samples.json`."""

    text: str  # "The [MASK] barked."
    before: tuple[Guesses, ...] = ()  # one for each blank; none where the model was not asked
    after: tuple[Guesses, ...] = ()
    blank: str = "[MASK]"  # what stands for a blank in `text`
    answers: tuple[str, ...] = ()  # what really stood in each blank, where that is known


@dataclass(frozen=True, kw_only=True)
class Generate:
    """A prompt, continued before and after training: one item of `samples.json`."""

    prompt: str
    before: str = ""
    after: str = ""
    settings: str = ""  # how tokens were drawn: "temperature 0.8, top-p 0.95"


@dataclass(frozen=True, kw_only=True)
class Near:
    """A word, and those whose vectors are nearest to its own: one item of `samples.json`."""

    word: str
    neighbors: tuple[tuple[str, float], ...] = ()  # the nearest first, with their cosines


Said = Fill | Generate
Sample = Said | Near


@dataclass(frozen=True)
class Arm:
    """One way to start fine-tuning, and each seed's score; None where a seed gave no number."""

    name: str  # "pretrained", "random initialization"
    dev: tuple[float | None, ...] = ()
    test: tuple[float | None, ...] = ()


@dataclass(frozen=True)
class Confusion:
    """How often each true label (row) was given each label (column)."""

    labels: tuple[str, ...]
    counts: tuple[tuple[int, ...], ...]

    def __post_init__(self):
        """Check that the table is square.

        Raises:
            ValueError: it is not.
        """
        n = len(self.labels)
        if len(self.counts) != n or any(len(row) != n for row in self.counts):
            raise ValueError(f"confusion.counts must be {n} rows of {n} numbers, as many as labels")


@dataclass(frozen=True, kw_only=True)
class Bin:
    """Answers of like confidence: above `low` and up to `high`."""

    low: float
    high: float
    confidence: float  # its mean
    accuracy: float
    count: int


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """How far the probabilities of answers can be trusted."""

    ece: float  # expected calibration error
    brier: float  # from 0 to 2
    bins: tuple[Bin, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A rate and a batch size that were tried first, and their score; None if it diverged."""

    number: int
    rate: float
    batch: int
    score: float | None
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Mistake:
    """A text that the fine-tuned model got wrong."""

    text: str
    truth: str
    predicted: str
    probability: float | None = None  # that the model gave to `predicted`
    truth_probability: float | None = None  # and to `truth`
    marked: tuple[int, int] | None = None  # where in the text it is, in characters


@dataclass(frozen=True, kw_only=True)
class Found:
    """How often a label was found, missed, and said where it does not hold."""

    label: str
    found: int
    missed: int
    invented: int


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Scores of one task, fine-tuned from several starts: `results.json`. The first arm leads."""

    task: str
    metric: str
    arms: tuple[Arm, ...]
    chance: float | None = None  # the score of always giving the most frequent answer
    confusion: Confusion | None = None
    found: tuple[Found, ...] = ()  # where several labels may hold of a text
    errors: tuple[Mistake, ...] = ()
    wrong: int | None = None  # how many there are, those that are not shown too
    calibration: Calibration | None = None
    search: tuple[Trial, ...] = ()  # in the order in which they were tried


@dataclass(frozen=True)
class Series:
    """Numbers logged along a run, sorted by step; NaN where a step did not log that number."""

    steps: Float[np.ndarray, "n"]
    columns: Mapping[str, Float[np.ndarray, "n"]]  # "loss", "parts.masked", "accuracy.masked", ...

    def __contains__(self, column: str) -> bool:
        """Say whether a column holds any finite number."""
        return column in self.columns and bool(np.isfinite(self.columns[column]).any())

    def last(self, column: str) -> float | None:
        """Return the last finite number of a column, or None if it has none."""
        if column not in self:
            return None
        values = self.columns[column]
        return float(values[np.isfinite(values)][-1])

    def median(self, column: str) -> float | None:
        """Return the median of a column's finite numbers, or None if it has none."""
        return float(np.nanmedian(self.columns[column])) if column in self else None

    def greatest(self, column: str) -> float | None:
        """Return the greatest finite number of a column, or None if it has none."""
        return float(np.nanmax(self.columns[column])) if column in self else None

    def parts(self, before: str) -> list[str]:
        """Return what follows `before` in the names of columns: `masked` of `parts.masked`."""
        return [name.removeprefix(before) for name in self.columns if name.startswith(before)]


@dataclass(frozen=True, kw_only=True)
class Record:
    """All that a report shows of a run folder."""

    name: str
    date: float  # seconds since 1970: when the run last wrote to its folder
    facts: Mapping[str, Any]  # unmask.json
    training: Series
    evaluation: Series
    timing: Series
    resumed: tuple[int, ...]  # steps at which a new process took over
    seconds: float | None  # time spent by all processes one after another
    samples: tuple[Sample, ...]
    baselines: Baselines
    results: Comparison | None
    notes: tuple[str, ...]  # what could not be read

    @property
    def of_vectors(self) -> bool:
        """Whether word vectors were learned: there is no network, and no likelihood of a text."""
        kinds = {kind.__name__ for kind in METHODS}
        objective = self.part("recipe").get("objective")
        return isinstance(objective, Mapping) and objective.get("kind") in kinds

    @property
    def card(self) -> str:
        """The name of the model, or else of the folder."""
        return str(self.facts.get("card") or self.name)

    @property
    def finetuned(self) -> bool:
        """Whether the run is one of fine-tuning."""
        return self.facts.get("kind") == "finetune"

    @property
    def does(self) -> str:
        """The kind of its task: `classify`, `tag`, ...; empty where it has none."""
        return str(self.part("recipe").get("task", "")) if self.finetuned else ""

    @property
    def written(self) -> datetime.datetime:
        """The date of the run: when it last wrote to its folder."""
        return datetime.datetime.fromtimestamp(self.date, datetime.UTC)

    def measured(self, metric: str) -> list[str]:
        """Name the evaluation's columns of a metric, each part's first.

        What stands for all parts together is left out where there is only one: it says the same.
        """
        columns = [c for c in self.evaluation.columns if c in self.evaluation]
        parts = [c for c in columns if c.endswith(f"_{metric}")]
        return parts + [c for c in columns if c == metric and len(parts) != 1]

    def part(self, name: str) -> Mapping[str, Any]:
        """Return one of the tables of `unmask.json` (recipe, environment, ...), empty if absent."""
        found = self.facts.get(name)
        return found if isinstance(found, Mapping) else {}


def save_samples(folder: Path, samples: Sequence[Sample]) -> Path:
    """Write `samples.json`."""
    return _save(folder / SAMPLES, to_dict(tuple(samples)))


def save_results(folder: Path, results: Comparison) -> Path:
    """Write `results.json`."""
    return _save(folder / RESULTS, to_dict(results))


def save_baselines(folder: Path, baselines: Baselines) -> Path:
    """Write `baselines.json`."""
    return _save(folder / BASELINES, to_dict(baselines))


def read_record(folder: Path) -> Record:
    """Read a run folder, finished or not; what it lacks is empty.

    Of what only a report shows (samples, results, baselines), a file that is damaged is left out;
    a note says so.

    Raises:
        FileNotFoundError: the folder does not exist, or holds nothing of a run.
        ValueError: `unmask.json` is not what it should be.
    """
    files = [folder / name for name in (FACTS, LOG, TIMING, SAMPLES, RESULTS)]
    there = [path for path in files if path.is_file()]
    if not there:
        names = ", ".join(path.name for path in files)
        raise FileNotFoundError(f"{folder} is not a run folder: it has none of {names}")
    lines, bad_lines = _lines(folder / LOG)
    clock, bad_clock = _lines(folder / TIMING)
    resumed, seconds = _processes(clock)
    broken: list[str] = []
    evaluations = [line for line in lines if isinstance(line.get("evaluation"), Mapping)]
    return Record(
        name=folder.resolve().name,
        date=max(path.stat().st_mtime for path in there),
        facts=_facts(folder / FACTS),
        training=_series(line for line in lines if "evaluation" not in line),
        evaluation=_series({"step": e.get("step"), **e["evaluation"]} for e in evaluations),
        timing=_series(clock),
        resumed=resumed,
        seconds=seconds,
        samples=_or_note(read_samples, folder / SAMPLES, (), broken),
        baselines=_or_note(read_baselines, folder / BASELINES, {}, broken),
        results=_or_note(read_results, folder / RESULTS, None, broken),
        notes=tuple(
            filter(None, (_unreadable(LOG, bad_lines), _unreadable(TIMING, bad_clock), *broken))
        ),
    )


def _or_note(read: Callable[[Path], T], path: Path, without: T, notes: list[str]) -> T:
    """Read a file; where it is damaged, go without, and note it."""
    try:
        return read(path)
    except ValueError as error:
        notes.append(f"{' '.join(str(error).split())}; left out here.")
        return without


def number(value: Any) -> float | None:
    """Return a finite number as a float, and anything else as None.

    What is too large or too small for its square to be a float counts as not finite, or as zero.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e100:
        return None
    return float(value) if abs(value) > 1e-100 else 0.0


def _series(lines: Iterable[Mapping[str, Any]]) -> Series:
    """Turn log lines into columns. Where a step is logged again, as after a resume, that holds."""
    rows: dict[float, dict[str, float]] = {}
    for line in lines:
        step = number(line.get("step"))
        if step is not None:
            rows.setdefault(step, {}).update(_flat(line))
    steps = sorted(rows)
    names = dict.fromkeys(name for step in steps for name in rows[step] if name != "step")
    columns = {n: np.array([rows[s].get(n, math.nan) for s in steps]) for n in names}
    return Series(np.array(steps, dtype=np.float64), columns)


def _flat(line: Mapping[str, Any], before: str = "") -> dict[str, float]:
    """Flatten nested tables to dotted names; what is no finite number becomes NaN."""
    flat: dict[str, float] = {}
    for key, value in line.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{before}{key}.")
        else:
            known = number(int(value) if isinstance(value, bool) else value)
            flat[f"{before}{key}"] = math.nan if known is None else known
    return flat


def _lines(path: Path) -> tuple[list[dict[str, Any]], int]:
    """Read JSON lines; return also how many are not. The last may be still being written."""
    if not path.is_file():
        return [], 0
    rows: list[dict[str, Any]] = []
    bad = 0
    pieces = path.read_bytes().split(b"\n")
    for i, piece in enumerate(pieces):
        row = _line(piece)
        if isinstance(row, dict):
            rows.append(row)
        elif piece.strip() and i < len(pieces) - 1:
            bad += 1
    return rows, bad


def _line(piece: bytes) -> Any:
    try:
        return parsed(piece)
    except ValueError:  # empty, cut, or not UTF-8
        return None


def _unreadable(name: str, n: int) -> str:
    if n == 0:
        return ""
    lines = "one line that is" if n == 1 else f"{n:,} lines that are"
    return f"{name} has {lines} not JSON; left out here."


def _processes(clock: Sequence[Mapping[str, Any]]) -> tuple[tuple[int, ...], float | None]:
    """Find where a new process took over, for its clock begins anew; add up all their times."""
    resumed: list[int] = []
    total, before = 0.0, None
    for line in clock:
        now, step = number(line.get("seconds")), number(line.get("step"))
        if now is None:
            continue
        if before is not None and now < before:
            total += before
            resumed += [] if step is None else [int(step)]
        before = now
    return tuple(resumed), None if before is None else total + before


@dataclass(frozen=True)
class _Samples:
    samples: tuple[Sample, ...]


@dataclass(frozen=True)
class _Baselines:
    baselines: Baselines


def _facts(path: Path) -> Mapping[str, Any]:
    data = _json(path)
    if not isinstance(data, Mapping | None):
        raise ValueError(f"{path} must be a table, got {data!r:.40}")
    return data or {}


def read_samples(path: Path) -> tuple[Sample, ...]:
    """Read `samples.json`; none where there is no such file.

    Raises:
        ValueError: it is damaged.
    """
    data = _json(path)
    if isinstance(data, list):  # people who write it by hand may say "kind": "fill"
        data = [_named(row) for row in data]
    return () if data is None else _read(path, _Samples, {"samples": data}).samples


def _named(row: Any) -> Any:
    named = isinstance(row, dict) and "kind" in row
    return row | {"kind": str(row["kind"]).capitalize()} if named else row


def read_baselines(path: Path) -> Baselines:
    """Read `baselines.json`; see `read_samples`."""
    data = _json(path)
    return {} if data is None else _read(path, _Baselines, {"baselines": data}).baselines


def read_results(path: Path) -> Comparison | None:
    """Read `results.json`; see `read_samples`."""
    data = _json(path)
    return None if data is None else _read(path, Comparison, data)


def _json(path: Path) -> Any:
    if not path.is_file():
        return None
    return read_json(path)


def _read(path: Path, kind: type[T], data: Any) -> T:
    try:
        return from_dict(kind, data)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _save(path: Path, data: Any) -> Path:
    text = json.dumps(data, ensure_ascii=False, indent=1) + "\n"
    write_whole(path, text.encode("utf-8", "replace"))  # texts may hold lone surrogates
    return path
