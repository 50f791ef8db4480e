"""Mixtures of instructions: many tasks as prompts and responses, some of them held out.

Wei et al. 2021, arXiv:2109.01652, section 2; Sanh et al. 2021, arXiv:2110.08207, sections 4 and 5.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, cast

from unmask.finetuning.data.task_mixture import (
    MixtureTask,
    TaskMixture,
    path_in_mixture,
    read_mixture,
)
from unmask.tasks.kinds.instruct import INSTRUCT, LAST_TURN, LOSS_METRIC, MATCH_METRIC
from unmask.tasks.readers import tables
from unmask.tasks.readers.split_table import split_table
from unmask.tasks.task import Task, TaskColumns, TaskExample, split_dev
from unmask.text.formats.records import format_names
from unmask.text.lines import EncodingErrors

INSTRUCTION_COLUMNS = TaskColumns(texts=("messages",), label=LAST_TURN)
"""The columns of a mixture of instructions: each file has its own, which are found by name."""
MAX_CLOSED_ANSWERS = 20
"""Most different responses of a task whose answers are closed, unless its metric is given."""
MIN_ROWS_OF_ANSWER = 5
"""Rows that each of these responses has at least, on average."""
OPEN_METRIC = "rougeL"

Split = Literal["train", "dev", "test"]
SPLITS: tuple[Split, ...] = ("train", "dev", "test")


@dataclass(frozen=True, kw_only=True)
class InstructionMixture:
    """The rows of a mixture of instructions, and what is scored of each task."""

    mixture: TaskMixture
    """The mixture, with a task for each value of a column by which a file was split."""
    train: Sequence[TaskExample]
    dev: Sequence[TaskExample]
    test: Sequence[TaskExample]
    metrics: Mapping[str, str]
    """Metric of each task."""
    notes: tuple[str, ...]

    def scored_rows(self, name: str) -> list[TaskExample]:
        """Return the test rows of a task, or without any its dev rows."""
        found = [item for item in self.test if item.component == name]
        return found or [item for item in self.dev if item.component == name]


@dataclass(frozen=True, kw_only=True)
class _TaskRows:
    """The rows of one task."""

    train: list[TaskExample]
    dev: list[TaskExample]
    test: list[TaskExample]
    metric: str
    notes: list[str]

    def of(self, split: Split) -> list[TaskExample]:
        return {"train": self.train, "dev": self.dev, "test": self.test}[split]


def read_instruction_mixture(path: str, encoding_errors: EncodingErrors) -> InstructionMixture:
    """Read the files of a mixture of instructions.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a file, key or value is invalid.
    """
    mixture = read_mixture(path)
    if mixture.text:
        raise ValueError(
            f"{path}: text.{next(iter(mixture.text))}: plain text is a part of mixtures of task = "
            "generate; of instructions there are tasks alone"
        )
    found: dict[str, _TaskRows] = {}
    origins: dict[str, str] = {}
    for table_name, part in mixture.tasks.items():
        where = f"{path}: tasks.{table_name}"
        _check_part(part, where)
        for name, tables_by_split in _tables_of_tasks(path, table_name, part, encoding_errors):
            if name in found:
                raise ValueError(f"{where}: a task is named {name!r} already")
            value = name.removeprefix(f"{table_name}/")
            own = replace(part, metric=part.metrics.get(value, part.metric))
            found[name] = _read_rows(tables_by_split, own, f"{where} ({name})", encoding_errors)
            origins[name] = table_name
        _check_values(part, where, table_name, found)

    def items(split: Split) -> list[TaskExample]:
        return [
            replace(item, component=name) for name, rows in found.items() for item in rows.of(split)
        ]

    return InstructionMixture(
        mixture=mixture.with_tasks(origins),
        train=items("train"),
        dev=items("dev"),
        test=items("test"),
        metrics={name: rows.metric for name, rows in found.items()},
        notes=tuple(f"{name}: {note}" for name, rows in found.items() for note in rows.notes),
    )


def _check_part(part: MixtureTask, where: str) -> None:
    """Refuse keys that do not apply to instructions, and metrics that do not."""
    if part.template is not None:
        raise ValueError(
            f"{where}.template is of task = generate; instructions are written by a chat template "
            "(--option chat_template=FILE)"
        )
    if part.metrics and part.by is None:
        raise ValueError(f"{where}.metrics needs by, the column whose values it names")
    single = Task(task_kind="instruct", columns=INSTRUCTION_COLUMNS, metric=LOSS_METRIC)
    allowed = [name for name in INSTRUCT.metric_names(single) if name != LOSS_METRIC]
    given = {"metric": part.metric} | {f"metrics.{k}": v for k, v in part.metrics.items()}
    for key, metric in given.items():
        if metric is not None and metric not in allowed:
            raise ValueError(f"{where}.{key} must be one of {', '.join(allowed)}, got {metric!r}")


def _check_values(
    part: MixtureTask, where: str, table_name: str, found: Mapping[str, _TaskRows]
) -> None:
    """Check that the values whose metrics are given are in the files."""
    for value in part.metrics:
        if f"{table_name}/{value}" not in found:
            raise ValueError(f"{where}.metrics.{value}: no row has {value!r} in column {part.by!r}")


def _tables_of_tasks(
    path: str, table_name: str, part: MixtureTask, encoding_errors: EncodingErrors
) -> list[tuple[str, dict[Split, tables.Table]]]:
    """Return the tables of each task by split: one task, or one for each value of a column."""
    by_task: dict[str, dict[Split, tables.Table]] = {}
    for split in SPLITS:
        file = cast("str | None", getattr(part, split))
        if file is None:
            continue
        table = tables.read_table(
            path_in_mixture(path, file), header=part.column_names, encoding_errors=encoding_errors
        )
        values = {"": table} if part.by is None else split_table(table, part.by)
        for value, own in values.items():
            by_task.setdefault(f"{table_name}/{value}" if value else table_name, {})[split] = own
    return list(by_task.items())


def _read_rows(
    tables_by_split: Mapping[Split, tables.Table],
    part: MixtureTask,
    where: str,
    encoding_errors: EncodingErrors,
) -> _TaskRows:
    """Read the rows of a task, and hold out dev rows where it has no dev file."""
    reader = INSTRUCT.reader
    rows: dict[Split, list[TaskExample]] = {split: [] for split in SPLITS}
    for split, table in tables_by_split.items():
        columns = reader.find_columns(table, part.text, part.label, ())
        rows[split] = reader.read_examples(
            table, columns, encoding_errors, has_labels=True, options={}
        )
    notes: list[str] = []
    share = 0.1 if part.dev_share is None else part.dev_share
    if part.dev is None and rows["train"] and share:
        n = len(rows["train"])
        rows["train"], rows["dev"] = split_dev(rows["train"], share, location=where)
        notes.append(f"{len(rows['dev']):,} of the {n:,} training rows are held out")
    metric = part.metric
    if metric is None:
        # a row that is in two splits, such as a dev file that is the test file, too, counts once
        labels = {item.location: item.label for own in rows.values() for item in own}
        answers = {cast("tuple[str, ...]", label)[0] for label in labels.values()}
        is_closed = len(answers) <= min(MAX_CLOSED_ANSWERS, len(labels) // MIN_ROWS_OF_ANSWER)
        metric = MATCH_METRIC if is_closed else OPEN_METRIC
        shown = f" ({format_names(sorted(answers)[:3])}, ...)" if is_closed else ""
        notes.append(f"{len(answers):,} different responses{shown}: the metric is {metric}")
    return _TaskRows(**rows, metric=metric, notes=notes)
