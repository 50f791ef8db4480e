"""The training, dev and test files of a run, read and checked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from unmask.config import to_dict
from unmask.finetuning.config import FinetuneConfig
from unmask.finetuning.data.instruction_mixture import (
    INSTRUCTION_COLUMNS,
    read_instruction_mixture,
)
from unmask.finetuning.data.task_mixture import (
    TaskMixture,
    is_mixture,
    path_in_mixture,
    read_mixture,
)
from unmask.tasks.all_kinds import TASK_KINDS
from unmask.tasks.readers import columns as column_values
from unmask.tasks.readers import tables
from unmask.tasks.readers.task_reader import InfersOptionsFromTable, NamesColumnsInOptions
from unmask.tasks.task import TaskColumns, TaskExample, split_dev
from unmask.tasks.task_kind import InfersOptionsFromExamples
from unmask.tasks.text_templates import parse_template, resolve_template
from unmask.text.documents import read_documents
from unmask.text.formats.records import format_names

_MIXTURE_COLUMNS = TaskColumns(texts=("source",), label="target")
"""The columns of a mixture: sources and targets, made by the templates of its tasks."""


@dataclass(frozen=True, kw_only=True)
class FinetuneData:
    """Training, dev and test examples."""

    columns: TaskColumns
    train: Sequence[TaskExample]
    dev: Sequence[TaskExample]
    test: Sequence[TaskExample]
    labels: tuple[str, ...]
    notes: tuple[str, ...]
    """Notes for the user."""
    warnings: tuple[str, ...]
    """Warnings of possible mistakes."""
    task_options: Mapping[str, Any]
    """Options of the task, completed from the training file."""
    mixture: TaskMixture | None = None
    """The mixture, if there are several tasks."""


def read_data(config: FinetuneConfig) -> FinetuneData:
    """Read the files of a run.

    Raises:
        FileNotFoundError: one is missing.
        ValueError: one is invalid, with file and line.
    """
    if not is_mixture(config.train):
        return _read_task(config)
    read = {"generate": _read_mixture, "instruct": _read_instructions}
    if config.task not in read:
        raise ValueError(
            f"{config.train}: a mixture is learned by task = {' or '.join(read)}, got "
            f"{config.task!r}; other tasks are learned from a file of rows"
        )
    return read[config.task](config)


def _read_task(config: FinetuneConfig) -> FinetuneData:
    """Read the files of one task."""
    kind = TASK_KINDS[config.task]
    table = _read_table(config, config.train)
    columns = kind.reader.find_columns(table, *_named_columns(config, table), config.choices)
    _check_columns(columns, config.train)
    notes = [] if tables.parallel_paths(config.train) else [_describe_columns(columns)]
    if isinstance(kind.reader, InfersOptionsFromTable):
        task_options = kind.reader.infer_options_from_table(
            table, columns, config.encoding_errors, config.task_options
        )
        config = replace(config, task_options=task_options)
    train = _read_items(config, table, columns)
    if not train:
        raise ValueError(f"{config.train}: no sentence has a word")
    labels = _resolve_labels(config, train, columns)
    if isinstance(kind, InfersOptionsFromExamples):
        config = replace(
            config,
            task_options=kind.infer_options_from_examples(train, labels, config.task_options),
        )
    dev, test = (
        _read_other_split(config, path, columns, labels) for path in (config.dev, config.test)
    )
    if config.dev is None:
        unit = "sentences, parted by blank lines" if kind.reader.word_per_line else "rows"
        train, dev = split_dev(train, location=config.train, unit=unit)
        n, m = len(train), len(dev)
        notes.append(f"no dev file: {m:,} of the {n + m:,} training rows are held out")
    if config.rows is not None and config.rows < len(train):
        notes.append(f"{config.rows:,} of {len(train):,} training rows are used")
        train = sample_rows(train, config.rows)
        kind.find_labels(train, f"{config.rows} rows of {config.train}")
    warnings = _unseen_label_warnings(train, labels, config.train)
    for path, some in ((config.train, train), (config.dev, dev), (config.test, test)):
        warnings += _empty_text_warnings(some, path or config.train)
    return FinetuneData(
        columns=columns, train=train, dev=dev, test=test, labels=labels,
        notes=tuple(notes), warnings=tuple(warnings), task_options=config.task_options,
    )  # fmt: skip


def _named_columns(
    config: FinetuneConfig, table: tables.Table
) -> tuple[tuple[str, ...], str | None]:
    """Return the columns that are named by `text` and `label` or by the task options."""
    files = TASK_KINDS[config.task].reader
    if not isinstance(files, NamesColumnsInOptions):
        return config.text, config.label
    texts, label = files.columns_in_options(config.task_options)
    if texts and config.text and config.text != texts:
        raise ValueError(
            f"text: the source of options.template names the columns, {format_names(texts)}; got "
            f"{format_names(config.text)}"
        )
    texts = config.text or texts
    return texts, config.label or label or files.find_target_column(
        table, texts, config.task_options
    )


def _read_mixture(config: FinetuneConfig) -> FinetuneData:
    """Read each part of a mixture as a single task, and join them."""
    mixture = read_mixture(config.train)
    _check_mixture_options(config, _MIXTURE_COLUMNS)
    data_by_task = {name: _read_mixture_task(config, mixture, name) for name in mixture.tasks}
    plain = [
        TaskExample(texts=(text.text,), location=text.location, component=name)
        for name, part in mixture.text.items()
        for text in read_documents(
            [path_in_mixture(config.train, task_data) for task_data in part.data],
            encoding_errors=config.encoding_errors,
        )
    ]

    def items(split: Literal["train", "dev", "test"]) -> list[TaskExample]:
        return [
            replace(item, component=name)
            for name, task_data in data_by_task.items()
            for item in getattr(task_data, split)
        ]

    templates = {
        name: task_data.task_options["template"] for name, task_data in data_by_task.items()
    }
    return FinetuneData(
        columns=_MIXTURE_COLUMNS,
        train=[*items("train"), *plain],
        dev=items("dev"),
        test=items("test"),
        labels=(),
        notes=_prefixed_lines(data_by_task, "notes"),
        warnings=_prefixed_lines(data_by_task, "warnings"),
        task_options=dict(config.task_options)
        | {"task_templates": templates, "plain_text_components": list(mixture.text)},
        mixture=mixture,
    )


def _read_instructions(config: FinetuneConfig) -> FinetuneData:
    """Read the files of a mixture of instructions."""
    _check_mixture_options(config, INSTRUCTION_COLUMNS)
    found = read_instruction_mixture(config.train, config.encoding_errors)
    train = found.train
    if not found.dev:
        raise ValueError(
            f"{config.train}: no task has dev rows, by which the checkpoint is selected"
        )
    if config.rows is not None:
        by_task = {name: [one for one in train if one.component == name] for name in found.metrics}
        train = [one for own in by_task.values() for one in sample_rows(own, config.rows)]
    TASK_KINDS[config.task].find_labels(train, config.train)
    return FinetuneData(
        columns=INSTRUCTION_COLUMNS, train=train, dev=found.dev, test=found.test, labels=(),
        notes=found.notes, warnings=(), mixture=found.mixture,
        task_options=dict(config.task_options) | {"task_metrics": dict(found.metrics)},
    )  # fmt: skip


def _prefixed_lines(
    data_by_task: Mapping[str, FinetuneData], field_name: Literal["notes", "warnings"]
) -> tuple[str, ...]:
    return tuple(
        f"{name}: {line}"
        for name, task_data in data_by_task.items()
        for line in getattr(task_data, field_name)
    )


def _check_mixture_options(config: FinetuneConfig, columns: TaskColumns) -> None:
    """Refuse options that a mixture's file contains, or that apply to a single file."""
    own = {
        "dev": config.dev, "test": config.test, "labels": config.labels, "columns": config.columns,
        "choices": config.choices, "options.template": config.task_options.get("template"),
        "text": config.text if config.text != columns.texts else (),
        "label": config.label if config.label != columns.label else None,
    }  # fmt: skip
    if set_options := [name for name, value in own.items() if value]:
        raise ValueError(
            f"{config.train}: a mixture says itself what it reads; leave out {set_options[0]}"
        )
    if config.batch_tokens is not None:
        raise ValueError(
            f"{config.train}: a mixture is learned in steps of so many texts; give batch_size in "
            "place of batch_tokens"
        )


def _read_mixture_task(config: FinetuneConfig, mixture: TaskMixture, name: str) -> FinetuneData:
    """Read the files of one task of a mixture, and complete its template."""
    part, where = mixture.tasks[name], f"{config.train}: tasks.{name}"
    if part.train is None:
        raise ValueError(f"{where} must have train; tasks are held out by task = instruct")
    for key in ("text", "by", "metrics", "dev_share"):
        if getattr(part, key):
            raise ValueError(f"{where}.{key} is of instructions (task = instruct), not of generate")
    template = resolve_template(
        name if part.template is None else part.template, f"{where}.template"
    )
    if part.metric is not None:
        try:
            template = replace(template, metric=part.metric)
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from None
    dev, test = (
        None if path is None else path_in_mixture(config.train, path)
        for path in (part.dev, part.test)
    )
    task_data = _read_task(
        replace(
            config,
            train=path_in_mixture(config.train, part.train),
            dev=dev,
            test=test,
            text=(),
            choices=(),
            label=part.label,
            columns=part.column_names,
            batch_tokens=None,
            metric=None,
            task_options=dict(config.task_options)
            | {
                "task_templates": {},
                "plain_text_components": [],
                "template": to_dict(template),
            },
        )
    )
    if template.source is None and len(task_data.columns.texts) > 1:
        raise ValueError(
            f"{where}.template.source must say how {format_names(task_data.columns.texts)} are read"
        )
    template = parse_template(task_data.task_options["template"], where)
    template = replace(
        template,
        target=task_data.columns.label,
        metric=template.metric or template.metric_names[0],
    )
    return replace(
        task_data, task_options=dict(task_data.task_options) | {"template": to_dict(template)}
    )


def _check_columns(columns: TaskColumns, path: str) -> None:
    """Check that no column has two uses."""
    for name in columns.texts:
        if name in (columns.label, *columns.choices) or columns.texts.count(name) > 1:
            uses = "text twice" if columns.texts.count(name) > 1 else "text and as something else"
            raise ValueError(
                f"{path}: column {name!r} would be read as {uses}; name another by text or label "
                "(--text, --label)"
            )


def _empty_text_warnings(items: Sequence[TaskExample], path: str) -> list[str]:
    """Return a warning with the number of empty texts, if any.

    Raises:
        ValueError: all are.
    """
    n = sum(not any(text.strip() for text in (*item.texts, *item.choices)) for item in items)
    if n and n == len(items):
        raise ValueError(f"{path}: all {n:,} texts are empty; there is nothing to read")
    return [f"{path}: {n:,} of {len(items):,} texts are empty"] if n else []


def _describe_columns(columns: TaskColumns) -> str:
    """Return a note on the columns that are read."""
    description = " and ".join(repr(name) for name in columns.texts)
    if columns.choices:
        description += ", choices " + " and ".join(repr(name) for name in columns.choices)
    return f"columns: text {description}, label {columns.label!r}"


def _read_other_split(
    config: FinetuneConfig, path: str | None, columns: TaskColumns, labels: tuple[str, ...]
) -> list[TaskExample]:
    """Read a dev or test file, if there is one."""
    if path is None:
        return []
    examples = _read_items(config, _read_table(config, path), columns)
    TASK_KINDS[config.task].check_examples(examples, labels, columns.label)
    if not examples:
        raise ValueError(f"{path}: no sentence has a word")
    return examples


def _read_table(config: FinetuneConfig, path: str) -> tables.Table:
    return tables.read_table(
        path,
        header=config.columns,
        word_per_line=TASK_KINDS[config.task].reader.word_per_line,
        encoding_errors=config.encoding_errors,
    )


def _read_items(
    config: FinetuneConfig, table: tables.Table, columns: TaskColumns
) -> list[TaskExample]:
    examples = TASK_KINDS[config.task].reader.read_examples(
        table, columns, config.encoding_errors, has_labels=True, options=config.task_options
    )
    return column_values.with_label_names(examples, config.labels) if config.labels else examples


def _resolve_labels(
    config: FinetuneConfig, train: Sequence[TaskExample], columns: TaskColumns
) -> tuple[str, ...]:
    """Return all labels: those of the config, or those of the training file.

    Raises:
        ValueError: there is nothing to learn, or the config has labels that do not fit the file.
    """
    kind = TASK_KINDS[config.task]
    train_labels = kind.find_labels(train, config.train)
    if not config.labels:
        return train_labels
    if not train_labels:
        raise ValueError(f"labels: the answers of {config.task} are not labels")
    kind.check_examples(train, config.labels, columns.label)
    return config.labels


def _unseen_label_warnings(
    train: Sequence[TaskExample], labels: Sequence[str], path: str
) -> list[str]:
    """Return a warning of labels without training examples, if any."""
    train_labels = {label for item in train for label in column_values.example_labels(item)}
    unseen = [label for label in labels if label not in train_labels]
    return [f"{path}: no row that is learned from has {format_names(unseen)}"] if unseen else []


def sample_rows(items: Sequence[TaskExample], n_rows: int) -> list[TaskExample]:
    """Draw items with seed 0, in file order; a smaller sample is a subset of a larger one."""
    order = np.random.default_rng(0).permutation(len(items))
    return [items[i] for i in sorted(order[:n_rows].tolist())]
