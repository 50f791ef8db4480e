"""Multiple choice: an answer, the ending of a story, the cause of an event."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from unmask.config import from_dict
from unmask.tasks.kinds.pooling_options import PoolingOptions
from unmask.tasks.metrics.classification import accuracy
from unmask.tasks.readers.multiple_choice_tables import (
    ChoiceLabelFormat,
    find_columns,
    find_text_columns,
    infer_label_format,
    read_choice_examples,
)
from unmask.tasks.readers.tables import Table
from unmask.tasks.readers.task_reader import TaskReader, check_record
from unmask.tasks.task import Label, Task, TaskColumns, TaskExample
from unmask.tasks.task_kind import FormulationName, TaskWording
from unmask.text.formats.records import check_text, describe_value
from unmask.text.lines import EncodingErrors

CONTEXT, QUESTION, CHOICES = "context", "question", "choices"
"""Keys of an input to be predicted: choices, and a context, a question or both."""
_MIN_CHOICES = 2


@dataclass(frozen=True, kw_only=True)
class MultipleChoiceOptions(PoolingOptions):
    """Format of the answers in a file, and pooling."""

    label_format: ChoiceLabelFormat | None = None
    """Answer format: "from 0", "from 1", "letters", "texts" or "names". None: inferred."""


@dataclass(frozen=True)
class MultipleChoiceReader:
    """Reads texts, options, and the index of the correct one."""

    word_per_line: bool = False

    def find_columns(
        self, table: Table, texts: Sequence[str], label: str | None, choices: Sequence[str]
    ) -> TaskColumns:
        """Find the columns of text, of answers, and of options (one of lists, or one for each)."""
        return find_columns(table, texts, label, choices)

    def find_text_columns(self, table: Table, columns: TaskColumns) -> TaskColumns:
        """Find the columns of text and options."""
        texts, choices = (
            names if all(map(table.has_column, names)) else ()
            for names in (columns.texts, columns.choices)
        )
        return find_text_columns(table, texts, choices)

    def read_examples(
        self,
        table: Table,
        columns: TaskColumns,
        encoding_errors: EncodingErrors,
        *,
        has_labels: bool,
        options: Mapping[str, Any],
    ) -> list[TaskExample]:
        """Read texts, options and answers."""
        how = from_dict(MultipleChoiceOptions, dict(options), "options")
        return [
            TaskExample(
                texts=_nonempty_texts(" ".join(example.context), example.question),
                label=example.label,
                choices=example.choices,
                location=example.location,
            )
            for example in read_choice_examples(
                table,
                columns,
                encoding_errors,
                has_labels=has_labels,
                label_format=how.label_format,
            )
        ]

    def infer_options_from_table(
        self,
        table: Table,
        columns: TaskColumns,
        encoding_errors: EncodingErrors,
        options: Mapping[str, Any],
    ) -> dict[str, Any]:
        """Infer the answer format, which must fit all of the training file."""
        how = from_dict(MultipleChoiceOptions, dict(options), "options").label_format
        return {
            **options,
            "label_format": how or infer_label_format(table, columns, encoding_errors),
        }

    def parse_input(self, task: Task, text: Any, location: str) -> TaskExample:
        """Parse {"context": ..., "question": ..., "choices": [...]}; one text suffices."""
        record = check_record(text, (CHOICES,), location)
        if unknown := sorted(set(record) - {CONTEXT, QUESTION, CHOICES}):
            raise ValueError(
                f"{location} must have {CONTEXT}, {QUESTION} and {CHOICES}, got {unknown[0]!r}"
            )
        options = record[CHOICES]
        if not isinstance(options, list | tuple) or len(cast("list[Any]", options)) < _MIN_CHOICES:
            raise ValueError(
                f"{location}: {CHOICES!r} must be a list of {_MIN_CHOICES} texts or more, "
                f"got {describe_value(options)}"
            )
        texts = {
            key: _parse_text(record.get(key, ""), key, location) for key in (CONTEXT, QUESTION)
        }
        return TaskExample(
            texts=_nonempty_texts(texts[CONTEXT], texts[QUESTION]),
            choices=tuple(
                _parse_text(option, CHOICES, location) for option in cast("list[Any]", options)
            ),
            location=location,
        )

    def format_input(self, example: TaskExample) -> Any:
        """Return {"context": ..., "question": ..., "choices": [...]}."""
        texts = zip((CONTEXT, QUESTION), example.texts, strict=False)
        return {**dict(texts), CHOICES: list(example.choices)}

    def parse_line(self, task: Task, line: str) -> Any:
        """Parse a text and its options, separated by tabs."""
        text, *options = line.split("\t")
        return {CONTEXT: text, CHOICES: options}


WORDING = TaskWording(
    purpose="choose among options",
    majority_answer="most frequent position",
    answered_unit="rows",
    decision_unit="rows",
    example='{"context": "a text", "choices": ["an option", "another"]}',
)


@dataclass(frozen=True)
class MultipleChoice:
    """One of several options; an answer is its index, from 0.

    Rows may differ in their number of options. Ties go to the first (`predict_choice`): identical
    texts always tie, as in a few rows of ARC.
    """

    reader: TaskReader = MultipleChoiceReader()
    splits_long_texts: bool = False
    options: type = MultipleChoiceOptions
    is_single_label: bool = False
    formulation: FormulationName = "multiple_choice"
    wording: TaskWording = WORDING
    predicts_number: bool = False

    def find_labels(self, examples: Sequence[TaskExample], location: object) -> tuple[str, ...]:
        """Return none: each item has its own options."""
        return ()

    def check_examples(
        self, examples: Sequence[TaskExample], labels: Sequence[str], column: str
    ) -> None:
        """Accept all: answers were checked when read."""

    def metric_names(self, task: Task) -> tuple[str, ...]:
        """Accuracy."""
        return ("accuracy",)

    def compute_metrics(
        self, task: Task, labels: Sequence[Label], predictions: Sequence[Label]
    ) -> dict[str, float]:
        """Compute the accuracy; ties go to the first option."""
        return {"accuracy": accuracy(np.array(labels, np.int64), np.array(predictions, np.int64))}

    def majority_baseline(self, task: Task, examples: Sequence[TaskExample]) -> Label:
        """Return the most frequent index of the correct option."""
        counts = Counter(cast("int", item.label) for item in examples)
        return min(counts, key=lambda index: (-counts[index], index))


def _nonempty_texts(context: str, question: str) -> tuple[str, ...]:
    return tuple(text for text in (context, question) if text) or ("",)


def _parse_text(value: Any, key: str, location: str) -> str:
    """Parse a text, or a list of texts to be joined.

    Raises:
        ValueError: it is neither.
    """
    if key == CONTEXT and isinstance(value, list | tuple):
        return " ".join(_parse_text(text, QUESTION, location) for text in cast("list[Any]", value))
    if not isinstance(value, str):
        raise ValueError(f"{location}: {key!r} must be text, got {describe_value(value)}")
    return check_text(value, location, key, "strict")


CHOOSE = MultipleChoice()
