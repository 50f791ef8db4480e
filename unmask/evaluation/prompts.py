"""Tasks that a model does from a prompt alone: no weight is learned.

A task is a value: of the table `unmask.evaluation.zero_shot`, or read from a TOML file.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from unmask.config import read_named
from unmask.evaluation.answers import AnyAnswer, Item, Prompted, Row, Said
from unmask.tasks.benchmark import there
from unmask.tasks.readers import tables

TOGETHER = 128
"""Items that are asked together."""


@dataclass(frozen=True, kw_only=True)
class Asking:
    """How much is asked, and with what before it."""

    shots: int = 0
    """Examples with their answers before each question (Brown et al. 2020, section 2)."""
    seed: int = 0
    """Of which examples are drawn."""
    rows: int | None = None
    """Ask so many, evenly spaced in the file. None: all."""
    stride: int | None = None
    """Of perplexity: tokens that a window asks. None: as many as fit."""
    tell: Callable[[int, int], None] | None = None
    """Is told how many items are done, and of how many."""

    def __post_init__(self) -> None:
        for name in ("shots", "seed"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must be at least 0, got {getattr(self, name)}")
        if self.rows is not None and self.rows < 1:
            raise ValueError(f"rows must be at least 1, got {self.rows}")


@dataclass(frozen=True)
class Figure:
    """A figure, and its standard error where that is known."""

    value: float
    error: float | None = None


@dataclass(frozen=True, kw_only=True)
class TaskScore:
    """What a model scored in a task."""

    task: str
    shots: int
    measure: str
    """The customary one of the figures."""
    figures: Mapping[str, Figure]
    """Shares are from 0 to 1."""
    items: int
    cut: int = 0
    """Items of whose prompt the beginning did not fit the model."""
    groups: Mapping[str, float] = field(default_factory=dict[str, float])
    """The customary figure by group, where the task has groups."""
    notes: tuple[str, ...] = ()

    @property
    def score(self) -> Figure:
        """The customary figure."""
        return self.figures[self.measure]


@dataclass(frozen=True, kw_only=True)
class PromptTask:
    """Questions about the rows of a file.

    Templates name columns: "Review: {text}".
    """

    name: str
    test: str | tuple[str, ...]
    """The file, by its path within the folder of data; of several, the first that is there."""
    answer: AnyAnswer
    train: str | tuple[str, ...] = ()
    """The file that examples are drawn from. None named: the test file, but for the item itself."""
    description: str = ""
    """Comes first."""
    query: str = ""
    """Template of a question, up to where the answer begins."""
    example: str | None = None
    """Template of a question with its answer. None: the query and the right answer."""
    separator: str = "\n\n"
    """Between description, examples and the question."""
    group: str = ""
    """Template of what a row is counted under."""
    paper: str = ""

    def __post_init__(self) -> None:
        if not self.test:
            raise ValueError("test must name a file")

    def score(self, model: Prompted, folder: Path, how: Asking) -> TaskScore:
        """Ask a model.

        Raises:
            FileNotFoundError: the files are not in the folder.
            ValueError: a file lacks a column, or has fewer rows than there are to be examples.
        """
        all_rows = read_rows(find(folder, self.test, self.name))
        spread = evenly(len(all_rows), how.rows)
        shots = self._shots(all_rows, folder, how)
        said: list[Said] = []
        for at in range(0, len(spread), TOGETHER):
            some = [
                self._item(all_rows[i], shots(i, all_rows[i])) for i in spread[at : at + TOGETHER]
            ]
            said += self.answer.score(model, some)
            if how.tell is not None:
                how.tell(len(said), len(spread))
        return self._summed([all_rows[i] for i in spread], said, how)

    def shown(self, row: Row) -> str:
        """Write a row with its right answer."""
        if self.example is not None:
            return row.text(self.example)
        return self.answer.shown(row.text(self.query), row)

    def _item(self, row: Row, shots: Sequence[str]) -> Item:
        before = [part for part in (self.description, *shots) if part]
        return Item(prompt=self.separator.join([*before, row.text(self.query)]), row=row)

    def _shots(
        self, rows: Sequence[Row], folder: Path, how: Asking
    ) -> Callable[[int, Row], list[str]]:
        """Return what draws the examples of an item, with a generator of its own."""
        if not how.shots:
            return lambda i, row: []
        path = find(folder, self.train or self.test, self.name)
        given = [self.shown(row) for row in (read_rows(path) if self.train else rows)]
        different = len(set(given))

        def draw(i: int, row: Row) -> list[str]:
            own = self.shown(row)
            if how.shots > len(given) - given.count(own):
                raise ValueError(
                    f"{path}: {len(given)} rows, of which {len(given) - given.count(own)} may be "
                    f"examples for {row.where}; got shots = {how.shots}"
                )
            order = np.random.default_rng([how.seed, i]).permutation(len(given))
            return [given[k] for k in order if given[k] != own][: how.shots]

        if how.shots > different:
            raise ValueError(f"{path}: {different} different rows, got shots = {how.shots}")
        return draw

    def _summed(self, rows: Sequence[Row], said: Sequence[Said], how: Asking) -> TaskScore:
        measure = self.answer.measure
        groups: dict[str, list[float]] = {}
        for row, one in zip(rows, said, strict=True) if self.group else ():
            groups.setdefault(row.text(self.group), []).append(one.figures[measure])
        return TaskScore(
            task=self.name,
            shots=how.shots,
            measure=measure,
            figures={
                name: _figure(name, np.array([one.figures[name] for one in said], np.float64))
                for name in said[0].figures
            },
            items=len(said),
            cut=sum(one.cut > 0 for one in said),
            groups={name: float(np.mean(values)) for name, values in groups.items()},
        )


def _figure(name: str, values: "np.ndarray") -> Figure:
    """Average over items; a perplexity is exp of a mean, and its error follows from that one's."""
    mean = float(values.mean())
    error = float(values.std(ddof=1) / math.sqrt(len(values))) if len(values) > 1 else None
    if name != "perplexity":
        return Figure(mean, error)
    value = float(np.exp(np.float64(-mean)))
    return Figure(value, None if error is None else value * error)


def evenly(n: int, most: int | None) -> list[int]:
    """Choose some of `n` rows, evenly spaced: also files sorted by kind give some of each."""
    if most is None or most >= n:
        return list(range(n))
    return [i * n // most for i in range(most)]


def read_rows(path: Path) -> list[Row]:
    """Read the rows of a file, in any of the formats of labelled files.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is damaged or empty.
    """
    table = tables.read(path)
    return [
        Row(values=dict(zip(table.columns, fields, strict=True)), where=table.where(i))
        for i, (_, fields) in enumerate(table.rows)
    ]


def find(folder: Path, names: str | Sequence[str], task: str) -> Path:
    """Find a file of a task, by the first of its names that is there, as it is or compressed.

    Raises:
        FileNotFoundError: none is.
    """
    several = [names] if isinstance(names, str) else names
    found = next(filter(None, (there(folder, name) for name in several)), None)
    if found is None:
        raise FileNotFoundError(f"{folder}: the task {task!r} needs {' or '.join(several)} there")
    return found


def read_task(path: Path) -> PromptTask:
    """Read a task from a TOML file; its name is the file's if it does not say one.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is not TOML, or a key or value is not what it should be.
    """
    return read_named(PromptTask, path)
