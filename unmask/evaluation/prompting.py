"""Prompted tasks, without training.

Tasks are in the table `unmask.evaluation.zero_shot`, or TOML files.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from unmask.config import read_dataclass
from unmask.evaluation.answer_methods import (
    AnswerMethodSpec,
    PromptedModel,
    PromptedRow,
    RowScore,
    TemplateRow,
)
from unmask.tasks.readers import tables
from unmask.tasks.suites.benchmark import find_file

EXAMPLES_PER_BATCH = 128
"""Examples per batch."""


@dataclass(frozen=True, kw_only=True)
class PromptingConfig:
    """Numbers of shots and rows, and window sizes."""

    shots: int = 0
    """Number of solved examples before each query (Brown et al. 2020, section 2)."""
    seed: int = 0
    """Random seed of the choice of shots."""
    rows: int | None = None
    """Number of rows, evenly spaced in the file. None: all."""
    stride: int | None = None
    """Targets per window, for perplexity. None: as many as fit."""
    on_progress: Callable[[int, int], None] | None = None
    """Called with the number of examples done and the total."""

    def __post_init__(self) -> None:
        for name in ("shots", "seed"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must be at least 0, got {getattr(self, name)}")
        if self.rows is not None and self.rows < 1:
            raise ValueError(f"rows must be at least 1, got {self.rows}")


@dataclass(frozen=True)
class MetricValue:
    """A metric's value, and its standard error if known."""

    value: float
    standard_error: float | None = None


@dataclass(frozen=True, kw_only=True)
class TaskScore:
    """The scores of a model in a task."""

    task: str
    shots: int
    primary_metric: str
    """Name of the main metric."""
    metrics: Mapping[str, MetricValue]
    """Metrics; accuracies are from 0 to 1."""
    n_examples: int
    n_truncated: int = 0
    """Number of examples with a truncated prompt."""
    groups: Mapping[str, float] = field(default_factory=dict[str, float])
    """The primary metric by group, if the task has groups."""
    notes: tuple[str, ...] = ()

    @property
    def score(self) -> MetricValue:
        """The primary metric."""
        return self.metrics[self.primary_metric]


@dataclass(frozen=True, kw_only=True)
class PromptTask:
    """Prompts made of the rows of a file.

    Templates name columns: "Review: {text}".
    """

    name: str
    test: str | tuple[str, ...]
    """Test file, a path within the data folder; of several, the first that exists."""
    answer: AnswerMethodSpec
    train: str | tuple[str, ...] = ()
    """File for shots. Empty: the test file without the row itself."""
    description: str = ""
    """Text at the start of the prompt."""
    query: str = ""
    """Template of the query, up to the answer."""
    example: str | None = None
    """Template of a solved query. None: the query and the correct answer."""
    separator: str = "\n\n"
    """Separator of description, shots and query."""
    group: str = ""
    """Template of the group of a row."""
    paper: str = ""

    def __post_init__(self) -> None:
        if not self.test:
            raise ValueError("test must name a file")

    def score(
        self, model: PromptedModel, folder: Path, prompting_config: PromptingConfig
    ) -> TaskScore:
        """Score a model on the task.

        Raises:
            FileNotFoundError: the files are not in the folder.
            ValueError: a file lacks a column, or has fewer rows than shots.
        """
        all_rows = read_rows(find_task_file(folder, self.test, self.name))
        indices = evenly_spaced(len(all_rows), prompting_config.rows)
        shots = self._make_shot_drawer(all_rows, folder, prompting_config)
        scores: list[RowScore] = []
        for start in range(0, len(indices), EXAMPLES_PER_BATCH):
            rows = [
                self._prompted_row(all_rows[i], shots(i, all_rows[i]))
                for i in indices[start : start + EXAMPLES_PER_BATCH]
            ]
            scores += self.answer.score(model, rows)
            if prompting_config.on_progress is not None:
                prompting_config.on_progress(len(scores), len(indices))
        return self._aggregate([all_rows[i] for i in indices], scores, prompting_config)

    def render_solved(self, row: TemplateRow) -> str:
        """Render a row with its correct answer."""
        if self.example is not None:
            return row.render(self.example)
        return self.answer.render_solved(row.render(self.query), row)

    def _prompted_row(self, row: TemplateRow, shots: Sequence[str]) -> PromptedRow:
        before = [part for part in (self.description, *shots) if part]
        return PromptedRow(prompt=self.separator.join([*before, row.render(self.query)]), row=row)

    def _make_shot_drawer(
        self, rows: Sequence[TemplateRow], folder: Path, prompting_config: PromptingConfig
    ) -> Callable[[int, TemplateRow], list[str]]:
        """Return a function that draws the shots of a row, with its own random generator."""
        if not prompting_config.shots:
            return lambda i, row: []
        path = find_task_file(folder, self.train or self.test, self.name)
        solved = [self.render_solved(row) for row in (read_rows(path) if self.train else rows)]
        n_distinct = len(set(solved))

        def draw(i: int, row: TemplateRow) -> list[str]:
            query = self.render_solved(row)
            if prompting_config.shots > len(solved) - solved.count(query):
                raise ValueError(
                    f"{path}: {len(solved)} rows, of which "
                    f"{len(solved) - solved.count(query)} may be "
                    f"shots for {row.location}; got shots = {prompting_config.shots}"
                )
            order = np.random.default_rng([prompting_config.seed, i]).permutation(len(solved))
            return [solved[k] for k in order if solved[k] != query][: prompting_config.shots]

        if prompting_config.shots > n_distinct:
            raise ValueError(
                f"{path}: {n_distinct} distinct rows, got shots = {prompting_config.shots}"
            )
        return draw

    def _aggregate(
        self,
        rows: Sequence[TemplateRow],
        row_scores: Sequence[RowScore],
        prompting_config: PromptingConfig,
    ) -> TaskScore:
        primary_metric = self.answer.primary_metric
        groups: dict[str, list[float]] = {}
        for row, score in zip(rows, row_scores, strict=True) if self.group else ():
            groups.setdefault(row.render(self.group), []).append(score.metrics[primary_metric])
        return TaskScore(
            task=self.name,
            shots=prompting_config.shots,
            primary_metric=primary_metric,
            metrics={
                name: _mean_metric(
                    name, np.array([score.metrics[name] for score in row_scores], np.float64)
                )
                for name in row_scores[0].metrics
            },
            n_examples=len(row_scores),
            n_truncated=sum(score.n_truncated_tokens > 0 for score in row_scores),
            groups={name: float(np.mean(values)) for name, values in groups.items()},
        )


def _mean_metric(name: str, values: "np.ndarray") -> MetricValue:
    """Average over examples; perplexity is exp of a mean, with the propagated error."""
    mean = float(values.mean())
    error = float(values.std(ddof=1) / math.sqrt(len(values))) if len(values) > 1 else None
    if name != "perplexity":
        return MetricValue(mean, error)
    value = float(np.exp(np.float64(-mean)))
    return MetricValue(value, None if error is None else value * error)


def evenly_spaced(n: int, max_rows: int | None) -> list[int]:
    """Choose evenly spaced rows of `n`, so that files sorted by class give some of each."""
    if max_rows is None or max_rows >= n:
        return list(range(n))
    return [i * n // max_rows for i in range(max_rows)]


def read_rows(path: Path) -> list[TemplateRow]:
    """Read the rows of a file in any format of labeled files.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is damaged or empty.
    """
    table = tables.read_table(path)
    return [
        TemplateRow(
            values=dict(zip(table.columns, fields, strict=True)), location=table.location(i)
        )
        for i, (_, fields) in enumerate(table.rows)
    ]


def find_task_file(folder: Path, names: str | Sequence[str], task_name: str) -> Path:
    """Find a file of a task by the first of its names that exists, plain or compressed.

    Raises:
        FileNotFoundError: none exists.
    """
    alternatives = [names] if isinstance(names, str) else names
    path = next(filter(None, (find_file(folder, name) for name in alternatives)), None)
    if path is None:
        raise FileNotFoundError(
            f"{folder}: the task {task_name!r} needs {' or '.join(alternatives)}"
        )
    return path


def read_prompt_task(path: Path) -> PromptTask:
    """Read a task from a TOML file; the default name is that of the file.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is not TOML, or a key or value is invalid.
    """
    return read_dataclass(PromptTask, path)
