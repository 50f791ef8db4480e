"""Multi-label classification: topics, emotions."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, cast

import numpy as np
from jaxtyping import Bool

from unmask.config import from_dict
from unmask.tasks.kinds.pooling_options import PoolingOptions
from unmask.tasks.metrics.multilabel import multilabel_metrics
from unmask.tasks.readers import columns as column_values
from unmask.tasks.readers.tables import Table
from unmask.tasks.readers.task_reader import TaskReader, TextReader, find_text_column, label_per_row
from unmask.tasks.task import Label, Task, TaskColumns, TaskExample
from unmask.tasks.task_kind import FormulationName, TaskWording
from unmask.text.formats.records import describe_value
from unmask.text.lines import EncodingErrors

LABEL_SET_COLUMNS = (
    "labels", "label", "classes", "categories", "tags", "topics", "genres", "emotions", "category",
    "target",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class MultilabelOptions(PoolingOptions):
    """Format of label sets, decision threshold and pooling."""

    separator: str = ","
    """Separator of labels in a text field; unused for lists."""
    threshold: float = 0.5
    """Minimum probability of a predicted label."""

    def __post_init__(self) -> None:
        """Check constraints that the types do not express."""
        if not self.separator:
            raise ValueError("options.separator must not be empty")
        if not 0 < self.threshold < 1:
            raise ValueError(f"options.threshold must be between 0 and 1, got {self.threshold}")


def parse_label_set(value: object, column: str, location: str, separator: str) -> tuple[str, ...]:
    """Parse the labels of a text, sorted alphabetically.

    Raises:
        ValueError: a label is invalid or repeated, with file and line.
    """
    value = column_values.parse_list_text(value, column, location)
    if value is None:
        return ()
    if isinstance(value, str):
        parts: list[object] = [*value.split(separator)] if value.strip() else []
    elif isinstance(value, list | tuple):
        parts = [*cast("list[object]", value)]
    else:
        parts = [value]
    for part in parts:
        if part is None or (isinstance(part, str) and not part.strip()):
            raise ValueError(
                f"{location}: an empty label in column {column!r}: {describe_value(value)}"
            )
    labels = sorted(column_values.parse_label(part, column, location) for part in parts)
    if repeated := [a for a, b in pairwise(labels) if a == b]:
        raise ValueError(
            f"{location}: {repeated[0]!r} is repeated in column {column!r}, "
            f"{describe_value(value)}; "
            "a row must list its labels, not 0 or 1 for each label"
        )
    return tuple(labels)


def _read_label_sets(
    table: Table, columns: TaskColumns, encoding_errors: EncodingErrors, options: Mapping[str, Any]
) -> Sequence[Label]:
    """Read lists of labels, or text with separators; an empty field has no labels."""
    separator = _options(options).separator
    return label_per_row(partial(parse_label_set, separator=separator))(
        table, columns, encoding_errors, options
    )


READER = TextReader(
    task_kind="multilabel",
    allowed_text_counts=(1, 2),
    find_default_columns=find_text_column,
    label_column_names=LABEL_SET_COLUMNS,
    label_purpose="labels",
    read_labels=_read_label_sets,
)


WORDING = TaskWording(
    purpose="give texts several labels",
    majority_answer="most frequent labels",
    decision_unit="decisions on single labels",
)


@dataclass(frozen=True)
class MultilabelClassification:
    """Any number of labels for one or two texts."""

    reader: TaskReader = READER
    splits_long_texts: bool = False
    options: type = MultilabelOptions
    is_single_label: bool = False
    formulation: FormulationName = "multilabel_classification"
    wording: TaskWording = WORDING
    predicts_number: bool = False

    def find_labels(self, examples: Sequence[TaskExample], location: object) -> tuple[str, ...]:
        """List the labels that occur."""
        return column_values.find_labels(examples, location)

    def check_examples(
        self, examples: Sequence[TaskExample], labels: Sequence[str], column: str
    ) -> None:
        """Check that all labels are known."""
        column_values.check_labels(examples, labels, column)

    def metric_names(self, task: Task) -> tuple[str, ...]:
        """Micro F1, macro F1 and subset accuracy."""
        return ("micro_f1", "macro_f1", "subset_accuracy")

    def compute_metrics(
        self, task: Task, labels: Sequence[Label], predictions: Sequence[Label]
    ) -> dict[str, float]:
        """Compute the multi-label metrics."""
        return multilabel_metrics(_multi_hot(task, labels), _multi_hot(task, predictions))

    def majority_baseline(self, task: Task, examples: Sequence[TaskExample]) -> Label:
        """Return the most frequent label set, of ties the alphabetically first."""
        counts = Counter(cast("tuple[str, ...]", item.label) for item in examples)
        return min(counts, key=lambda label_set: (-counts[label_set], label_set))


def _options(options: Mapping[str, Any]) -> MultilabelOptions:
    return from_dict(MultilabelOptions, dict(options), "options")


def _multi_hot(task: Task, label_sets: Sequence[Label]) -> Bool[np.ndarray, "n labels"]:
    rows = [
        [label in cast("tuple[str, ...]", label_set) for label in task.labels]
        for label_set in label_sets
    ]
    return np.array(rows, bool).reshape(-1, len(task.labels))


MULTILABEL = MultilabelClassification()
