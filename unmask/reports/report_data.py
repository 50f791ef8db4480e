"""What a run folder holds for its report: formats that commands write, and forgiving readers."""

import datetime
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
from jaxtyping import Float

from unmask.config import from_dict, to_dict
from unmask.files import read_json, write_atomically
from unmask.saved_format import check_format
from unmask.tasks.metrics.calibration import Calibration, ProbabilityCounts
from unmask.training.log import (
    LOG_FILE,
    TIMING_FILE,
    finite_number,
    process_boundaries,
    read_log_lines,
)
from unmask.word_vectors.train.trainer import WORD_VECTOR_METHODS

RecordT = TypeVar("RecordT")

RUN_FILE = "unmask.json"
SAMPLES_FILE, RESULTS_FILE, BASELINES_FILE = "samples.json", "results.json", "baselines.json"

BlankPredictions = tuple[tuple[str, float | None], ...]
"""For one blank: what the model would put there and how likely it finds that, best first."""

BaselineFigures = Mapping[str, Mapping[str, float]]
"""What simple methods reach (`bigram`: 0.2), under the name that the log's evaluations give the
figure (`masked_accuracy`): `baselines.json`."""


@dataclass(frozen=True, kw_only=True)
class Fill:
    """A text with blanks, filled before and after training: one item of `samples.json`."""

    text: str  # "The [MASK] barked."
    before: tuple[
        BlankPredictions, ...
    ] = ()  # one for each blank; empty if the model was not evaluated
    after: tuple[BlankPredictions, ...] = ()
    blank: str = "[MASK]"  # the blank's placeholder in `text`
    answers: tuple[str, ...] = ()  # what really stood in each blank, where that is known


@dataclass(frozen=True, kw_only=True)
class Generate:
    """A prompt, continued before and after training: one item of `samples.json`."""

    prompt: str
    before: str = ""
    after: str = ""
    settings: str = ""  # sampling settings: "temperature 0.8, top-p 0.95"


@dataclass(frozen=True, kw_only=True)
class Near:
    """A word, and those whose vectors are nearest to its own: one item of `samples.json`."""

    word: str
    neighbors: tuple[tuple[str, float], ...] = ()  # the nearest first, with their cosines


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A picture and what a model made of it: one item of `samples.json`."""

    name: str
    panels: tuple[tuple[str, str], ...]  # titles, and PNG files in Base64
    lines: tuple[str, ...] = ()  # texts about it


TextSample = Fill | Generate
ReportSample = TextSample | Near | Picture


@dataclass(frozen=True)
class ArmScores:
    """One way to start fine-tuning, and each seed's score; None where a seed gave no number."""

    name: str  # "pretrained", "not pretrained"
    dev: tuple[float | None, ...] = ()
    test: tuple[float | None, ...] = ()
    metrics: Mapping[str, Mapping[str, tuple[float | None, ...]]] = field(
        default_factory=dict[str, Mapping[str, tuple[float | None, ...]]]
    )
    """Of each other metric the scores by split, "dev" and "test"."""


@dataclass(frozen=True)
class ConfusionMatrix:
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
class SearchTrialRecord:
    """A rate and a batch size that were tried first, and their score; None if it diverged."""

    number: int
    rate: float
    batch: int
    score: float | None
    seconds: float


@dataclass(frozen=True, kw_only=True)
class ErrorExample:
    """A text that the fine-tuned model got wrong."""

    text: str
    truth: str
    predicted: str
    probability: float | None = None  # that the model gave to `predicted`
    truth_probability: float | None = None  # and to `truth`
    marked: tuple[int, int] | None = None  # where in the text it is, in characters
    picture: str | None = None  # what was read, as a PNG file in Base64; the text is its name


@dataclass(frozen=True, kw_only=True)
class LabelCounts:
    """True positives, false negatives and false positives of a label."""

    label: str
    found: int
    missed: int
    invented: int


@dataclass(frozen=True, kw_only=True)
class FinetuningResults:
    """Scores of one task, fine-tuned from several starts: `results.json`. The first arm leads."""

    task: str
    metric: str
    arms: tuple[ArmScores, ...]
    chance: float | None = None  # the score of always giving the most frequent answer
    bag_of_words: float | None = None  # the score on dev of a linear classifier of words
    confusion: ConfusionMatrix | None = None
    found: tuple[LabelCounts, ...] = ()  # where several labels may hold of a text
    errors: tuple[ErrorExample, ...] = ()
    wrong: int | None = None  # total number, including those not shown
    calibration: Calibration | None = None
    probabilities: ProbabilityCounts | None = None  # between two labels
    search: tuple[SearchTrialRecord, ...] = ()  # in the order in which they were tried


@dataclass(frozen=True)
class LogSeries:
    """Numbers logged along a run, sorted by step; NaN where a step did not log that number."""

    steps: Float[np.ndarray, "n"]
    columns: Mapping[str, Float[np.ndarray, "n"]]  # "loss", "parts.masked", "accuracy.masked", ...

    def __contains__(self, column: str) -> bool:
        """Return whether a column has any finite number."""
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

    def maximum(self, column: str) -> float | None:
        """Return the greatest finite number of a column, or None if it has none."""
        return float(np.nanmax(self.columns[column])) if column in self else None

    def suffixes_after(self, prefix: str) -> list[str]:
        """Return what follows `prefix` in the names of columns: `masked` of `parts.masked`."""
        return [name.removeprefix(prefix) for name in self.columns if name.startswith(prefix)]


@dataclass(frozen=True, kw_only=True)
class ReportData:
    """The contents of a run folder that a report shows."""

    name: str
    modified_timestamp: float  # seconds since 1970: when the run last wrote to its folder
    run_record: Mapping[str, Any]  # unmask.json
    training_log: LogSeries
    evaluation_log: LogSeries
    timing_log: LogSeries
    resumed_steps: tuple[int, ...]  # steps at which a new process took over
    total_seconds: float | None  # time spent by all processes one after another
    samples: tuple[ReportSample, ...]
    baselines: BaselineFigures
    results: FinetuningResults | None
    notes: tuple[str, ...]  # what could not be read

    @property
    def is_word_vector_run(self) -> bool:
        """Whether word vectors were learned: there is no network, and no likelihood of a text."""
        kinds = {kind.__name__ for kind in WORD_VECTOR_METHODS}
        objective = self.record_section("recipe").get("objective")
        return isinstance(objective, Mapping) and objective.get("kind") in kinds

    @property
    def predicts_numbers(self) -> bool:
        """Whether a pretraining run reconstructs numbers, such as pixels: no loss is in nats."""
        scored = self.training_log.suffixes_after("accuracy.")
        pretrained = self.run_record.get("kind") == "pretrain" and not self.is_word_vector_run
        return pretrained and bool(len(self.training_log.steps)) and not scored

    @property
    def preset_name(self) -> str:
        """The name of the model, or else of the folder."""
        return str(self.run_record.get("card") or self.name)

    @property
    def is_finetuning(self) -> bool:
        """Whether the run is one of fine-tuning."""
        return self.run_record.get("kind") == "finetune"

    @property
    def is_preference_run(self) -> bool:
        """Whether the run learned from preferences or rewards (`unmask prefer`)."""
        return self.run_record.get("kind") == "prefer"

    @property
    def task_kind(self) -> str:
        """The kind of its task: `classify`, `tag`, ...; empty where it has none."""
        return str(self.record_section("recipe").get("task", "")) if self.is_finetuning else ""

    @property
    def modified(self) -> datetime.datetime:
        """The date of the run: when it last wrote to its folder."""
        return datetime.datetime.fromtimestamp(self.modified_timestamp, datetime.UTC)

    def evaluation_columns(self, metric: str) -> list[str]:
        """Return the evaluation's columns of a metric, those of loss terms first.

        The column of all terms together is left out if there is only one term.
        """
        columns = [c for c in self.evaluation_log.columns if c in self.evaluation_log]
        parts = [c for c in columns if c.endswith(f"_{metric}")]
        return parts + [c for c in columns if c == metric and len(parts) != 1]

    def record_section(self, section_name: str) -> Mapping[str, Any]:
        """Return one of the tables of `unmask.json` (recipe, environment, ...), empty if absent."""
        found = self.run_record.get(section_name)
        return found if isinstance(found, Mapping) else {}


def save_samples(folder: Path, samples: Sequence[ReportSample]) -> Path:
    """Write `samples.json`."""
    return _write_json(folder / SAMPLES_FILE, to_dict(tuple(samples)))


def save_results(folder: Path, results: FinetuningResults) -> Path:
    """Write `results.json`."""
    return _write_json(folder / RESULTS_FILE, to_dict(results))


def save_baselines(folder: Path, baselines: BaselineFigures) -> Path:
    """Write `baselines.json`."""
    return _write_json(folder / BASELINES_FILE, to_dict(baselines))


def read_report_data(folder: Path) -> ReportData:
    """Read a run folder, finished or not; what it lacks is empty.

    Of what only a report shows (samples, results, baselines), a file that is damaged is left out;
    a note says so.

    Raises:
        FileNotFoundError: the folder does not exist, or holds nothing of a run.
        ValueError: `unmask.json` is not what it should be.
    """
    files = [
        folder / name for name in (RUN_FILE, LOG_FILE, TIMING_FILE, SAMPLES_FILE, RESULTS_FILE)
    ]
    there = [path for path in files if path.is_file()]
    if not there:
        names = ", ".join(path.name for path in files)
        raise FileNotFoundError(f"{folder} is not a run folder: it has none of {names}")
    lines, bad_lines = read_log_lines(folder / LOG_FILE)
    clock, bad_clock = read_log_lines(folder / TIMING_FILE)
    resumed, seconds = process_boundaries(clock)
    broken: list[str] = []
    evaluations = [line for line in lines if isinstance(line.get("evaluation"), Mapping)]
    return ReportData(
        name=folder.resolve().name,
        modified_timestamp=max(path.stat().st_mtime for path in there),
        run_record=_read_run_record(folder / RUN_FILE),
        training_log=log_series(line for line in lines if "evaluation" not in line),
        evaluation_log=log_series({"step": e.get("step"), **e["evaluation"]} for e in evaluations),
        timing_log=log_series(clock),
        resumed_steps=resumed,
        total_seconds=seconds,
        samples=_read_or_note(read_samples, folder / SAMPLES_FILE, (), broken),
        baselines=_read_or_note(read_baselines, folder / BASELINES_FILE, {}, broken),
        results=_read_or_note(read_results, folder / RESULTS_FILE, None, broken),
        notes=tuple(
            filter(
                None,
                (
                    _unreadable_note(LOG_FILE, bad_lines),
                    _unreadable_note(TIMING_FILE, bad_clock),
                    *broken,
                ),
            )
        ),
    )


def _read_or_note(
    read: Callable[[Path], RecordT], path: Path, default: RecordT, notes: list[str]
) -> RecordT:
    """Read a file; where it is damaged, go without, and note it."""
    try:
        return read(path)
    except ValueError as error:
        notes.append(f"{' '.join(str(error).split())}; left out here.")
        return default


def log_series(lines: Iterable[Mapping[str, Any]]) -> LogSeries:
    """Turn log lines into columns. Where a step is logged again, as after a resume, that holds."""
    rows: dict[float, dict[str, float]] = {}
    for line in lines:
        step = finite_number(line.get("step"))
        if step is not None:
            rows.setdefault(step, {}).update(_flatten(line))
    steps = sorted(rows)
    names = dict.fromkeys(name for step in steps for name in rows[step] if name != "step")
    columns = {n: np.array([rows[s].get(n, math.nan) for s in steps]) for n in names}
    return LogSeries(np.array(steps, dtype=np.float64), columns)


def _flatten(line: Mapping[str, Any], prefix: str = "") -> dict[str, float]:
    """Flatten nested tables to dotted names; what is no finite number becomes NaN."""
    flat: dict[str, float] = {}
    for key, value in line.items():
        if isinstance(value, Mapping):
            flat |= _flatten(value, f"{prefix}{key}.")
        else:
            known = finite_number(int(value) if isinstance(value, bool) else value)
            flat[f"{prefix}{key}"] = math.nan if known is None else known
    return flat


def _unreadable_note(name: str, n_lines: int) -> str:
    if n_lines == 0:
        return ""
    lines = "one line that is" if n_lines == 1 else f"{n_lines:,} lines that are"
    return f"{name} has {lines} not JSON; left out here."


@dataclass(frozen=True)
class _SamplesFile:
    samples: tuple[ReportSample, ...]


@dataclass(frozen=True)
class _BaselinesFile:
    baselines: BaselineFigures


def _read_run_record(path: Path) -> Mapping[str, Any]:
    data = _read_json_if_present(path)
    if not isinstance(data, Mapping | None):
        raise ValueError(f"{path} must be a table, got {data!r:.40}")
    return check_format(data, path) if data else {}


def read_samples(path: Path) -> tuple[ReportSample, ...]:
    """Read `samples.json`; none where there is no such file.

    Raises:
        ValueError: it is damaged.
    """
    data = _read_json_if_present(path)
    if isinstance(data, list):  # also accepted from hand-written files: "kind": "fill"
        data = [_capitalize_kind(row) for row in data]
    return () if data is None else _from_dict(path, _SamplesFile, {"samples": data}).samples


def _capitalize_kind(row: Any) -> Any:
    named = isinstance(row, dict) and "kind" in row
    return row | {"kind": str(row["kind"]).capitalize()} if named else row


def read_baselines(path: Path) -> BaselineFigures:
    """Read `baselines.json`; see `read_samples`."""
    data = _read_json_if_present(path)
    return {} if data is None else _from_dict(path, _BaselinesFile, {"baselines": data}).baselines


def read_results(path: Path) -> FinetuningResults | None:
    """Read `results.json`; see `read_samples`."""
    data = _read_json_if_present(path)
    return None if data is None else _from_dict(path, FinetuningResults, _without_kinds(data))


def _without_kinds(data: Any) -> Any:
    """Leave out names of types: each is known by its place."""
    if isinstance(data, list):
        return [_without_kinds(one) for one in cast("list[Any]", data)]
    if isinstance(data, dict):
        fields = cast("dict[str, Any]", data)
        return {key: _without_kinds(value) for key, value in fields.items() if key != "kind"}
    return data


def _read_json_if_present(path: Path) -> Any:
    if not path.is_file():
        return None
    return read_json(path)


def _from_dict(path: Path, target_type: type[RecordT], data: Any) -> RecordT:
    try:
        return from_dict(target_type, data)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _write_json(path: Path, data: Any) -> Path:
    text = json.dumps(data, ensure_ascii=False, indent=1) + "\n"
    write_atomically(path, text.encode("utf-8", "replace"))  # texts may hold lone surrogates
    return path
