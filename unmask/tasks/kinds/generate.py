"""Text for text: translation, summaries, answers in free words; all that can be written."""

import importlib.util
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from unmask.config import from_dict, to_dict
from unmask.generation.settings import BeamSearch, Greedy
from unmask.tasks.metrics import generation
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
from unmask.text.lines import EncodingErrors
from unmask.text.records import check_text, describe_value

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
    """What is read around a source, and how much is written."""

    template: str | TextTemplate | None = None
    """How the task is put in text: a name of `unmask.tasks.text_templates.TEXT_TEMPLATES` ("stsb"),
    or {"source": "question: {question} context: {context}"}, with labels, numbers, a metric."""
    task_templates: Mapping[str, TextTemplate] = field(default_factory=dict[str, TextTemplate])
    """Of a mixture the template of each task, by its name; a mixture's file says them."""
    plain_text_components: tuple[str, ...] = ()
    """Of a mixture the names of those parts that are plain text; likewise."""
    prefix: str = ""
    """What is read before a source: "summarize: " (Raffel et al. 2020, section 2.4)."""
    separator: str | None = None
    """What a decoder reads between source and target. None: the token that is between two texts.
    An encoder-decoder needs nothing."""
    max_target_length: int | None = None
    """Tokens of a target that are learned and written, its end included. None: 128, of a decoder at
    most half of the length."""
    max_dev_items: int = 200
    """Dev items that are scored each time while training, evenly spaced; at the end all are."""
    references_column: str = "references"
    """A column with more targets that are right, read where a file has it."""
    label_smoothing: float | None = None
    """While targets are learned, so much of each token is spread over all alike (0.1 in Dong et al.
    2019, section 3.1, and in Lewis et al. 2020, section 5.3). None: as in the model's pretraining,
    which is 0 but for the Transformer of 2017."""
    source_language: str | None = None
    """Of sources, where a token says it (mBART): en_XX."""
    target_language: str | None = None
    """Of targets, likewise."""
    beams: int = 1
    """Texts that are followed side by side; 1: the likeliest token is always taken."""
    length_penalty: float = 1.0
    """Of beams: what a text's log-probability is divided by is its length to this power."""

    def __post_init__(self) -> None:
        """Check constraints that the types do not express."""
        self.strategy()  # which checks these
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
        """The template of each task, by its name; where there is but one task, its name is ""."""
        return self.task_templates or {"": resolve_template(self.template, "options.template")}

    def strategy(self) -> Greedy | BeamSearch:
        """Return how targets are written.

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
    """Read the targets of each row; of several the first is learned, and all are right.

    Of numbers the first is what they are rounded to, the last what they are.
    """
    more, template = parse_generation_options(options).references_column, _single_template(options)
    if template.has_fixed_answers:
        return _read_labels_or_numbers(table, columns.label, template)
    others = more if more in table.columns else columns.label
    read = [(name, table.column(name)) for name in dict.fromkeys((columns.label, others))]
    found: list[Label] = []
    for i in range(len(table)):
        where = table.location(i)
        truth = [
            t
            for name, column in read
            for t in _parse_targets(column[i], name, where, encoding_errors)
        ]
        if not truth:
            raise ValueError(f"{where}: no target in column {columns.label!r}")
        found.append(tuple(dict.fromkeys(truth)))
    return found


def _read_labels_or_numbers(table: Table, column: str, template: TextTemplate) -> list[Label]:
    """Read labels, which a file may number, or numbers."""
    found = [
        TaskExample(
            texts=(),
            label=template.format_target(value, column, table.location(i)),
            location=table.location(i),
        )
        for i, value in enumerate(table.column(column))
    ]
    if template.labels:
        found = column_values.with_label_names(found, template.labels)
        column_values.check_labels(found, template.labels, column)
    return [cast("Label", item.label) for item in found]


def _parse_targets(
    value: object, column: str, where: str, encoding_errors: EncodingErrors
) -> list[str]:
    """Read one target or a list of them; a number is its text."""
    values = cast("list[object]", value) if isinstance(value, list | tuple) else [value]
    return [_parse_target(one, column, where, encoding_errors) for one in values]


def _parse_target(value: object, column: str, where: str, encoding_errors: EncodingErrors) -> str:
    if value is None:
        raise ValueError(f"{where}: no target in column {column!r}")
    if isinstance(value, str):
        return check_text(value, where, column, encoding_errors)
    if isinstance(value, int | float):
        return column_values.parse_label(value, column, where)
    raise ValueError(
        f"{where}: {column!r} must be a text or a list of texts, got {describe_value(value)}"
    )


@dataclass(frozen=True, kw_only=True)
class TemplatedRowReader(TextReader):
    """Rows of columns that a template puts in text; a column may hold a list, as a dialog's turns.

    A list is read as lines. A column "answers[0]" is the first member of each list in "answers".
    """

    def columns_in_options(self, options: Mapping[str, Any]) -> tuple[tuple[str, ...], str | None]:
        """Return the columns of text and the one of targets that the template names, if it does."""
        template = _single_template(options)
        return template.columns, template.target

    def find_target_column(
        self, table: Table, texts: Sequence[str], options: Mapping[str, Any]
    ) -> str | None:
        """Find the column of labels or numbers; None where the template has neither."""
        template = _single_template(options)
        if not template.has_fixed_answers:
            return None
        what = "label" if template.labels else "number"
        return column_values.find_column(
            table, template.label_column_names, what, excluded=texts, option="label"
        )

    def infer_options_from_table(
        self,
        table: Table,
        columns: TaskColumns,
        encoding_errors: EncodingErrors,
        options: Mapping[str, Any],
    ) -> dict[str, Any]:
        """Decide which end of a long text stays: of a dialog the newest turns."""
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
        """Read texts, and what is true of them."""
        return super().read_examples(
            _join_list_columns(table, columns.texts),
            columns,
            encoding_errors,
            has_labels=has_labels,
            options=options,
        )


def _join_list_columns(table: Table, names: Sequence[str]) -> Table:
    """Write lists in columns of text as lines."""
    at = {table.columns.index(name) for name in names if name in table.columns}
    rows = [
        (place, tuple(_join_lines(value) if i in at else value for i, value in enumerate(fields)))
        for place, fields in table.rows
    ]
    return replace(table, rows=rows)


def _join_lines(value: object) -> object:
    """Write a list of texts as lines; anything else is itself, so that it is told what it is."""
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

    def find_labels(self, examples: Sequence[TaskExample], where: object) -> tuple[str, ...]:
        """Anything can be written.

        Raises:
            ValueError: a source or target is empty, with file and line.
        """
        self.check_examples(examples, (), "")
        return ()

    def check_examples(
        self, examples: Sequence[TaskExample], labels: Sequence[str], column: str
    ) -> None:
        """Any text can be right, but for an empty one, nor is there one for nothing.

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
        """Say BLEU and chrF with sacrebleu's signatures, where it is installed."""
        if (
            not predictions
            or _single_template(task.options).has_fixed_answers
            or not _is_installed("sacrebleu")
        ):
            return []
        right, texts = [_reference_texts(t) for t in labels], [str(s) for s in predictions]
        figures = {"BLEU": generation.bleu(right, texts), "chrF": generation.chrf(right, texts)}
        return [f"{name} {one.value:.2f} ({one.signature})" for name, one in figures.items()]

    def metric_names(self, task: Task) -> tuple[str, ...]:
        """The F1 of words, which needs no library, and others; of a mixture the tasks' mean."""
        if parse_generation_options(task.options).task_templates:
            return (MEAN_METRIC,)
        template = _single_template(task.options)
        own = (template.metric,) if template.metric else ()
        return tuple(dict.fromkeys((*own, *template.metric_names)))

    def compute_metrics(
        self, task: Task, labels: Sequence[Label], predictions: Sequence[Label]
    ) -> dict[str, float]:
        """Compute the metrics of texts: the metric, and all that the libraries here can."""
        right, texts = [_reference_texts(t) for t in labels], [str(s) for s in predictions]
        if (template := _single_template(task.options)).has_fixed_answers:
            return template.compute_metrics(right, texts)
        found = {
            "answer_f1": answer_metrics(right, texts)["answer_f1"],
            "exact_match": generation.exact_match(right, texts),
        }
        if texts and _is_installed("sacrebleu"):
            found["bleu"] = generation.bleu(right, texts).value
            found["chrf"] = generation.chrf(right, texts).value
        if _is_installed("rouge_score"):
            found |= generation.rouge(right, texts)
        return found

    def majority_baseline(self, task: Task, examples: Sequence[TaskExample]) -> Label:
        """Return the most frequent target, of ties the first."""
        return Counter(_reference_texts(item.label)[0] for item in examples).most_common(1)[0][0]

    def complete_task(self, task: Task, examples: Sequence[TaskExample]) -> Task:
        """Refuse a name, which would not be read, and a metric that cannot be computed.

        Raises:
            ImportError: the metric's library is not installed.
            ValueError: there is a name.
        """
        templates = parse_generation_options(task.options).task_templates.values()
        for metric in (task.metric, *(one.metric for one in templates)):
            needed = TEXT_LIBRARIES.get(metric or "")
            if needed is not None and not _is_installed(needed):
                raise ImportError(
                    f"metric {metric} needs {needed}: pip install 'unmask[text-metrics]'"
                )
        if task.task_name != task.task_kind:
            raise ValueError(
                f"generate reads no name before a text, but the option prefix; got the name "
                f"{task.task_name!r}"
            )
        return task


def _is_installed(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def parse_generation_options(options: Mapping[str, Any]) -> TextGenerationOptions:
    """Read options from plain data.

    Raises:
        ValueError: one is unknown, or not what it should be.
    """
    return from_dict(TextGenerationOptions, options, "options")


def _single_template(options: Mapping[str, Any]) -> TextTemplate:
    """Return the template of the only task."""
    return parse_template(options.get("template"), "options.template")


def _reference_texts(labels: Label | None) -> tuple[str, ...]:
    return cast("tuple[str, ...]", labels)


GENERATE = TextGeneration()
