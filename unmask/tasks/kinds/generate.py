"""Text generation: translation, summarization, free-form answers."""

import importlib.util
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from unmask.config import from_dict, to_dict
from unmask.generation.settings import BeamSearch, Greedy
from unmask.tasks.metrics import generation
from unmask.tasks.metrics.captioning.captions import CAPTION_METRICS, caption_metrics
from unmask.tasks.metrics.metric import MEAN_METRIC
from unmask.tasks.metrics.question_answering import answer_metrics
from unmask.tasks.readers import columns as column_values
from unmask.tasks.readers.tables import Table
from unmask.tasks.readers.task_reader import TaskReader, TextReader
from unmask.tasks.task import Label, Task, TaskColumns, TaskExample
from unmask.tasks.task_kind import FormulationName, TaskWording
from unmask.tasks.text_templates import (
    TEXT_LIBRARIES,
    TextTemplate,
    parse_template,
    resolve_template,
)
from unmask.text.formats.records import check_text, describe_value, format_names
from unmask.text.lines import EncodingErrors

SOURCE_COLUMNS = (
    "source", "input", "document", "article", "question", "text", "body", "src", "dialogue",
    "dialog", "turns",
)  # fmt: skip
TARGET_COLUMNS = (
    "target", "summary", "answer", "output", "label", "translation", "headline", "subject",
    "response", "gold_label", "score",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class TextGenerationOptions:
    """Templates, prefixes, lengths and decoding of a text-to-text task."""

    template: str | TextTemplate | None = None
    """Text template: a name of `unmask.tasks.text_templates.TEXT_TEMPLATES` ("stsb"), or {"source":
    "question: {question} context: {context}"}, with labels, numbers, a metric."""
    task_templates: Mapping[str, TextTemplate] = field(default_factory=dict[str, TextTemplate])
    """Template of each task of a mixture, by name; set by the mixture's file."""
    plain_text_components: tuple[str, ...] = ()
    """Names of the parts of a mixture that are plain text; likewise."""
    prefix: str = ""
    """Prefix of each source: "summarize: " (Raffel et al. 2020, section 2.4)."""
    separator: str | None = None
    """Separator of source and target in a decoder. None: the token that separates two texts. Unused
    by encoder-decoders."""
    max_target_length: int | None = None
    """Maximum length of targets and outputs in tokens, end included. None: 128; in a decoder at
    most half of the maximum length."""
    max_dev_items: int = 200
    """Number of dev items, evenly spaced, scored during training; all are scored at the end."""
    references_column: str | tuple[str, ...] = "references"
    """Column of further references, a text or a list of texts each, if a file has it; or several
    columns. Empty cells are skipped, and equal references count once."""
    label_smoothing: float | None = None
    """Label smoothing: probability spread uniformly over the vocabulary (0.1 in Dong et al. 2019,
    section 3.1, and Lewis et al. 2020, section 5.3). None: that of pretraining, 0 except for the
    Transformer of 2017."""
    source_language: str | None = None
    """Language of sources, for models with language tokens (mBART): en_XX."""
    target_language: str | None = None
    """Language of targets, likewise."""
    beams: int = 1
    """Beam size; 1: greedy decoding."""
    length_penalty: float = 1.0
    """Exponent of the length by which a beam's log-probability is divided."""

    def __post_init__(self) -> None:
        """Check constraints that the types do not express."""
        self.strategy()  # checks n_beams and length_penalty
        resolve_template(self.template, "options.template")
        for name in ("max_target_length", "max_dev_items"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"options.{name} must be at least 1, got {value}")
        if self.label_smoothing is not None and not 0 <= self.label_smoothing < 1:
            raise ValueError(
                "options.label_smoothing must be at least 0 and below 1, got "
                f"{self.label_smoothing}"
            )

    @property
    def templates(self) -> Mapping[str, TextTemplate]:
        """Template of each task by name; a single task has the name ""."""
        return self.task_templates or {"": resolve_template(self.template, "options.template")}

    def strategy(self) -> Greedy | BeamSearch:
        """Return the decoding strategy.

        Raises:
            ValueError: a number is out of range.
        """
        if self.beams == 1:
            return Greedy()
        return BeamSearch(beams=self.beams, length_penalty=self.length_penalty)


def _find_source_column(table: Table) -> tuple[str, ...]:
    return (column_values.find_column(table, SOURCE_COLUMNS, "source"),)


def _read_targets(
    table: Table, columns: TaskColumns, encoding_errors: EncodingErrors, options: Mapping[str, Any]
) -> Sequence[Label]:
    """Read the targets of each row: the first is trained on, all are references.

    For numbers the first is rounded, the last exact.
    """
    template = _single_template(options)
    if template.has_fixed_answers:
        return _read_labels_or_numbers(table, columns.label, template)
    target_columns = [
        (name, table.column(name))
        for name in dict.fromkeys((columns.label, *_find_references(table, options)))
    ]
    targets: list[Label] = []
    for i in range(len(table)):
        location = table.location(i)
        row_targets = [
            t
            for name, column in target_columns
            if name == columns.label or not _is_empty_cell(column[i])
            for t in _parse_targets(column[i], name, location, encoding_errors)
        ]
        if not row_targets:
            raise ValueError(f"{location}: no target in column {columns.label!r}")
        targets.append(tuple(dict.fromkeys(row_targets)))
    return targets


def _find_references(table: Table, options: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the columns of further references that a file has: all or none.

    Raises:
        ValueError: it has only some of them.
    """
    names = parse_generation_options(options).references_column
    names = (names,) if isinstance(names, str) else names
    present = tuple(name for name in names if name in table.columns)
    if present and len(present) < len(names):
        missing = next(name for name in names if name not in present)
        raise ValueError(
            f"{table.path}: no column {missing!r} of options.references_column "
            f"(columns: {format_names(table.columns)})"
        )
    return present


def _is_empty_cell(value: object) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


def _read_labels_or_numbers(table: Table, column: str, template: TextTemplate) -> list[Label]:
    """Read labels, which may be given as class numbers, or numbers."""
    examples = [
        TaskExample(
            texts=(),
            label=template.format_target(value, column, table.location(i)),
            location=table.location(i),
        )
        for i, value in enumerate(table.column(column))
    ]
    if template.labels:
        examples = column_values.with_label_names(examples, template.labels)
        column_values.check_labels(examples, template.labels, column)
    return [cast("Label", item.label) for item in examples]


def _parse_targets(
    value: object, column: str, location: str, encoding_errors: EncodingErrors
) -> list[str]:
    """Parse a target or a list of targets; a number is written as text."""
    values = cast("list[object]", value) if isinstance(value, list | tuple) else [value]
    return [_parse_target(target, column, location, encoding_errors) for target in values]


def _parse_target(
    value: object, column: str, location: str, encoding_errors: EncodingErrors
) -> str:
    if value is None:
        raise ValueError(f"{location}: no target in column {column!r}")
    if isinstance(value, str):
        return check_text(value, location, column, encoding_errors)
    if isinstance(value, int | float):
        return column_values.parse_label(value, column, location)
    raise ValueError(
        f"{location}: {column!r} must be a text or a list of texts, got {describe_value(value)}"
    )


@dataclass(frozen=True, kw_only=True)
class TemplatedRowReader(TextReader):
    """Reads rows whose columns fill a template; a column may hold a list, such as dialog turns.

    A list becomes lines. "answers[0]" is the first member of each list in the column "answers".
    """

    def columns_in_options(self, options: Mapping[str, Any]) -> tuple[tuple[str, ...], str | None]:
        """Return the columns of text and the target column named by the template, if any."""
        template = _single_template(options)
        return template.columns, template.target

    def find_target_column(
        self, table: Table, texts: Sequence[str], options: Mapping[str, Any]
    ) -> str | None:
        """Find the column of labels or numbers; None if the template has neither."""
        template = _single_template(options)
        if not template.has_fixed_answers:
            return None
        purpose = "label" if template.labels else "number"
        return column_values.find_column(
            table, template.label_column_names, purpose, excluded=texts, option="label"
        )

    def infer_options_from_table(
        self,
        table: Table,
        columns: TaskColumns,
        encoding_errors: EncodingErrors,
        options: Mapping[str, Any],
    ) -> dict[str, Any]:
        """Choose which end of a long text is kept: of a dialog the newest turns."""
        template = _single_template(options)
        if template.truncation_keeps is not None:
            return dict(options)
        lists = any(
            isinstance(value, list | tuple)
            for name in columns.texts
            for value in table.column(name)
        )
        template = replace(template, truncation_keeps="end" if lists else "start")
        return dict(options) | {"template": to_dict(template)}

    def read_examples(
        self,
        table: Table,
        columns: TaskColumns,
        encoding_errors: EncodingErrors,
        *,
        has_labels: bool,
        options: Mapping[str, Any],
    ) -> list[TaskExample]:
        """Read texts and their targets."""
        return super().read_examples(
            _join_list_columns(table, columns.texts),
            columns,
            encoding_errors,
            has_labels=has_labels,
            options=options,
        )


def _join_list_columns(table: Table, names: Sequence[str]) -> Table:
    """Join lists in columns of text as lines."""
    at = {table.columns.index(name) for name in names if name in table.columns}
    rows = [
        (place, tuple(_join_lines(value) if i in at else value for i, value in enumerate(fields)))
        for place, fields in table.rows
    ]
    return replace(table, rows=rows)


def _join_lines(value: object) -> object:
    """Join a list of texts as lines; other values are returned, to be reported later."""
    if not isinstance(value, list | tuple) or not all(isinstance(v, str) for v in value):
        return value
    return "\n".join(cast("Sequence[str]", value))


READER = TemplatedRowReader(
    task_kind="generate",
    allowed_text_counts=None,
    find_default_columns=_find_source_column,
    label_column_names=TARGET_COLUMNS,
    label_purpose="target",
    read_labels=_read_targets,
)


WORDING = TaskWording(
    purpose="write texts",
    majority_answer="most frequent text",
    order_note="Those with the least likely targets come first.",
)


@dataclass(frozen=True)
class TextGeneration:
    """A text for one or several texts."""

    reader: TaskReader = READER
    splits_long_texts: bool = False
    options: type = TextGenerationOptions
    is_single_label: bool = False
    formulation: FormulationName = "text_to_text"
    wording: TaskWording = WORDING
    predicts_number: bool = False

    def find_labels(self, examples: Sequence[TaskExample], location: object) -> tuple[str, ...]:
        """Return none: targets are free text.

        Raises:
            ValueError: a source or target is empty, with file and line.
        """
        self.check_examples(examples, (), "")
        return ()

    def check_examples(
        self, examples: Sequence[TaskExample], labels: Sequence[str], column: str
    ) -> None:
        """Check that no source and no target is empty.

        Raises:
            ValueError: a source or target is empty, with file and line.
        """
        for item in examples:
            if not any(text.strip() for text in item.texts):
                raise ValueError(f"{item.location}: the source is empty")
            if not all(text.strip() for text in _reference_texts(item.label)):
                raise ValueError(f"{item.location}: the target is empty")

    def metric_signatures(
        self, task: Task, labels: Sequence[Label], predictions: Sequence[Label]
    ) -> list[str]:
        """Return BLEU and chrF with sacrebleu's signatures, if it is installed."""
        if (
            not predictions
            or _single_template(task.options).has_fixed_answers
            or not _is_installed("sacrebleu")
        ):
            return []
        references, texts = [_reference_texts(t) for t in labels], [str(s) for s in predictions]
        figures = {
            "BLEU": generation.bleu(references, texts),
            "chrF": generation.chrf(references, texts),
        }
        return [f"{name} {score.value:.2f} ({score.signature})" for name, score in figures.items()]

    def mixture_names(self, options: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the names of the templates of a mixture."""
        return tuple(options.get("task_templates") or ())

    def mixture_member(self, task: Task, name: str) -> Task:
        """Return a task with one template of a mixture, and its metric."""
        plain = task.options["task_templates"][name]
        template = from_dict(TextTemplate, plain, f"options.task_templates.{name}")
        alone = dict(task.options) | {"task_templates": {}, "template": plain}
        columns = TaskColumns(
            texts=template.columns or task.columns.texts, label=template.target or ""
        )
        metric = template.metric or template.metric_names[0]
        return replace(task, columns=columns, options=alone, metric=metric)

    def mixture_metrics(self, member: Task, metrics: Mapping[str, float]) -> Mapping[str, float]:
        """Return all."""
        return metrics

    def metric_names(self, task: Task) -> tuple[str, ...]:
        """Word F1, which needs no library, and others; for a mixture the mean over tasks."""
        if parse_generation_options(task.options).task_templates:
            return (MEAN_METRIC,)
        template = _single_template(task.options)
        own = (template.metric,) if template.metric else ()
        return tuple(dict.fromkeys((*own, *template.metric_names)))

    def compute_metrics(
        self, task: Task, labels: Sequence[Label], predictions: Sequence[Label]
    ) -> dict[str, float]:
        """Compute the task's metric, and all that the installed libraries provide.

        Metrics of captions are computed if a text has several references, or one is the task's.
        """
        references, texts = [_reference_texts(t) for t in labels], [str(s) for s in predictions]
        if (template := _single_template(task.options)).has_fixed_answers:
            return template.compute_metrics(references, texts)
        metrics = {
            "answer_f1": answer_metrics(references, texts)["answer_f1"],
            "exact_match": generation.exact_match(references, texts),
        }
        if texts and _is_installed("sacrebleu"):
            metrics["bleu"] = generation.bleu(references, texts).value
            metrics["chrf"] = generation.chrf(references, texts).value
        if _is_installed("rouge_score"):
            metrics |= generation.rouge(references, texts)
        if task.metric in CAPTION_METRICS or any(len(one) > 1 for one in references):
            metrics |= caption_metrics(references, texts)
        return metrics

    def majority_baseline(self, task: Task, examples: Sequence[TaskExample]) -> Label:
        """Return the most frequent target, of ties the first."""
        return Counter(_reference_texts(item.label)[0] for item in examples).most_common(1)[0][0]

    def complete_task(self, task: Task, examples: Sequence[TaskExample]) -> Task:
        """Reject a task name, which would be ignored, and a metric that cannot be computed.

        Raises:
            ImportError: the metric's library is not installed.
            ValueError: the task has a name.
        """
        templates = parse_generation_options(task.options).task_templates.values()
        for metric in (task.metric, *(one.metric for one in templates)):
            check_metric_library(metric or "")
        if task.task_name != task.task_kind:
            raise ValueError(
                f"generate has no task name: use the option prefix; got the name {task.task_name!r}"
            )
        return task


def check_metric_library(metric: str) -> None:
    """Check that the library of a metric is installed.

    Raises:
        ImportError: it is not.
    """
    needed = TEXT_LIBRARIES.get(metric)
    if needed is not None and not _is_installed(needed):
        raise ImportError(f"metric {metric} needs {needed}: pip install 'unmask[text-metrics]'")


def _is_installed(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def parse_generation_options(options: Mapping[str, Any]) -> TextGenerationOptions:
    """Read options from plain data.

    Raises:
        ValueError: an option is unknown or invalid.
    """
    return from_dict(TextGenerationOptions, options, "options")


def _single_template(options: Mapping[str, Any]) -> TextTemplate:
    """Return the template of a single task."""
    return parse_template(options.get("template"), "options.template")


def _reference_texts(labels: Label | None) -> tuple[str, ...]:
    return cast("tuple[str, ...]", labels)


GENERATE = TextGeneration()
