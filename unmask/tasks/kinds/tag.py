"""A label for each word of a sentence."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

from unmask.config import from_dict
from unmask.tasks.kinds.classify import most_frequent_label
from unmask.tasks.metrics.tagging import SCHEME_PREFIXES, has_entity_labels, tagging_metrics
from unmask.tasks.readers import columns as column_values
from unmask.tasks.readers.conll import WORDS_COLUMN
from unmask.tasks.readers.tables import Table
from unmask.tasks.readers.task_reader import TaskReader, check_words, refuse_choices
from unmask.tasks.tag_schemes import (
    TagScheme,
    infer_scheme,
    unrecognized_entity_label,
)
from unmask.tasks.task import Label, Task, TaskColumns, TaskExample
from unmask.tasks.task_kind import FormulationName, TaskWording
from unmask.text.formats.records import format_names
from unmask.text.lines import EncodingErrors, split_at_blanks

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class TaggingOptions:
    """The tagging head, and the scheme of entity labels."""

    head: Literal["linear", "recurrent"] = "linear"
    """Head: each word separately (Devlin et al. 2019, section 4.3), or an LSTM and a CRF over the
    sentence; see `BiLSTMCRF`."""
    hidden_size: int = 200
    """State width of the recurrent head in each direction."""
    use_crf: bool = True
    """Whether the recurrent head has a CRF."""
    repair_tags: bool = True
    """Whether predicted tags are repaired to fit their scheme; the entities do not change."""
    tag_scheme: TagScheme | None = None
    """Scheme of entity labels. None: inferred from the training file; if it marks no entities,
    nothing is repaired and all transitions are allowed."""

    def __post_init__(self) -> None:
        """Check constraints that the types do not express."""
        if self.hidden_size < 1:
            raise ValueError(f"options.hidden_size must be at least 1, got {self.hidden_size}")
        if self.head == "linear" and (
            self.hidden_size != TaggingOptions.hidden_size or not self.use_crf
        ):
            raise ValueError(
                "options.hidden_size and options.use_crf need options.head = 'recurrent'"
            )


@dataclass(frozen=True)
class TaggedSentenceReader:
    """Reads sentences and the tags of their words."""

    word_per_line: bool = True

    def find_columns(
        self, table: Table, texts: Sequence[str], label: str | None, choices: Sequence[str]
    ) -> TaskColumns:
        """Find the columns of words and of tags; in CoNLL files without a header, the last."""
        refuse_choices(choices, "tag")
        column_values.check_columns(table, texts, label, (1,), "tag")
        text_columns = tuple(texts) or (
            column_values.find_column(table, column_values.SENTENCE_COLUMNS, "words"),
        )
        if label is None and table.columns[0] == WORDS_COLUMN and len(table.columns) > 1:
            tag_columns = [
                name for name in table.columns if name.lower() in column_values.TAG_COLUMNS
            ]
            label = tag_columns[0] if tag_columns else table.columns[-1]
        label = label or column_values.find_column(
            table, column_values.TAG_COLUMNS, "tags", excluded=text_columns, option="label"
        )
        return TaskColumns(texts=text_columns, label=label)

    def find_text_columns(self, table: Table, columns: TaskColumns) -> TaskColumns:
        """Find the column of words."""
        if columns.texts[0] in table.columns:
            return columns
        return replace(
            columns,
            texts=(column_values.find_column(table, column_values.SENTENCE_COLUMNS, "words"),),
        )

    def read_examples(
        self,
        table: Table,
        columns: TaskColumns,
        encoding_errors: EncodingErrors,
        *,
        has_labels: bool,
        options: Mapping[str, Any],
    ) -> list[TaskExample]:
        """Read sentences and their tags; empty sentences are skipped."""
        values = table.column(columns.texts[0])
        label_values = table.column(columns.label) if has_labels else [None] * len(values)
        examples: list[TaskExample] = []
        for i, (value, label_value) in enumerate(zip(values, label_values, strict=True)):
            location = table.location(i)
            words = column_values.parse_words(value, columns.texts[0], location, encoding_errors)
            tags = (
                column_values.parse_tags(label_value, columns.label, location, len(words))
                if has_labels
                else None
            )
            if words:
                examples.append(TaskExample(texts=words, label=tags, location=location))
        return examples

    def parse_input(self, task: Task, text: Any, location: str) -> TaskExample:
        """Parse a list of words."""
        return TaskExample(texts=check_words(text, location), location=location)

    def format_input(self, example: TaskExample) -> Any:
        """Return a list of words."""
        return list(example.texts)

    def parse_line(self, task: Task, line: str) -> Any:
        """Split at spaces and tabs; a no-break space does not split."""
        return split_at_blanks(line)


WORDING = TaskWording(
    purpose="label words",
    answered_unit="words",
    decision_unit="words",
    one_answer_per_row=False,
    example='["Words", "of", "a", "text"]',
)


@dataclass(frozen=True)
class SequenceTagging:
    """A label for each word."""

    reader: TaskReader = TaggedSentenceReader()
    splits_long_texts: bool = True
    options: type = TaggingOptions
    is_single_label: bool = False
    formulation: FormulationName = "token_classification"
    wording: TaskWording = WORDING
    predicts_number: bool = False

    def find_labels(self, examples: Sequence[TaskExample], location: object) -> tuple[str, ...]:
        """List the tags that occur."""
        return column_values.find_labels(examples, location)

    def check_examples(
        self, examples: Sequence[TaskExample], labels: Sequence[str], column: str
    ) -> None:
        """Check that all tags are known; warn of those that resemble entity labels but are not."""
        column_values.check_labels(examples, labels, column)
        if (unrecognized := unrecognized_entity_label(labels)) is not None:
            _log.warning(
                "labels resemble entity labels, but %r fits no supported scheme (%s, "
                "the letter before the type): there is no entity score",
                unrecognized, ", ".join(SCHEME_PREFIXES),
            )  # fmt: skip

    def infer_options_from_examples(
        self, examples: Sequence[TaskExample], labels: Sequence[str], options: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Infer the entity scheme of the training file, if it marks entities.

        Raises:
            ValueError: a scheme was named, and the labels mark no entities.
        """
        inferred = infer_scheme(
            labels, _as_tag_sequences([item.label for item in examples if item.label is not None])
        )
        given = _options(options).tag_scheme
        if given is not None and inferred is None:
            raise ValueError(
                f"options.tag_scheme = {given!r} needs entity labels: 'O', and "
                f"{', '.join(SCHEME_PREFIXES[given])}, each with a hyphen and a type; got "
                f"{format_names(labels)}"
            )
        return {**options, "tag_scheme": given or inferred}

    def metric_names(self, task: Task) -> tuple[str, ...]:
        """Entity F1, if the tags mark entities, and token accuracy."""
        marked = has_entity_labels(task.labels)
        return (*(("entity_f1",) if marked else ()), "token_accuracy")

    def compute_metrics(
        self, task: Task, labels: Sequence[Label], predictions: Sequence[Label]
    ) -> dict[str, float]:
        """Compute the tagging metrics."""
        return tagging_metrics(
            _as_tag_sequences(labels), _as_tag_sequences(predictions), task.labels
        )

    def majority_baseline(self, task: Task, examples: Sequence[TaskExample]) -> Label:
        """Return the most frequent tag, which `report.majority_baseline` assigns to every word."""
        return most_frequent_label(
            task.labels, (t for item in examples for t in column_values.example_labels(item))
        )


def _options(options: Mapping[str, Any]) -> TaggingOptions:
    return from_dict(TaggingOptions, dict(options), "options")


def _as_tag_sequences(values: Sequence[Label]) -> list[tuple[str, ...]]:
    return [cast("tuple[str, ...]", v) for v in values]


TAG = SequenceTagging()
