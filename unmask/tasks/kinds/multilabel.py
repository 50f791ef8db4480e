"""Labels of which any number may hold of a text: topics, emotions."""

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
from unmask.text.lines import EncodingErrors
from unmask.text.records import describe_value

LABEL_SET_COLUMNS = (
    "labels", "label", "classes", "categories", "tags", "topics", "genres", "emotions", "category",
    "target",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class MultilabelOptions(PoolingOptions):
    """How labels are read, when one is said, and by what."""

    separator: str = ","
    """Between the labels in a field of text; lists need none."""
    threshold: float = 0.5
    """The probability from which a label is said."""

    def __post_init__(self) -> None:
        """Check constraints that the types do not express."""
        if not self.separator:
            raise ValueError("options.separator must not be empty")
        if not 0 < self.threshold < 1:
            raise ValueError(f"options.threshold must be between 0 and 1, got {self.threshold}")


def parse_label_set(value: object, column: str, where: str, separator: str) -> tuple[str, ...]:
    """Read the labels of a text, by the alphabet.

    Raises:
        ValueError: one is none, or is there twice, with file and line.
    """
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
                f"{where}: an empty label in column {column!r}: {describe_value(value)}"
            )
    found = sorted(column_values.parse_label(part, column, where) for part in parts)
    if twice := [a for a, b in pairwise(found) if a == b]:
        raise ValueError(
            f"{where}: {twice[0]!r} stands twice in column {column!r}: {describe_value(value)}; "
            "a row names the labels that hold, and has no 0 or 1 for each"
        )
    return tuple(found)


def _read_label_sets(
    table: Table, columns: TaskColumns, encoding_errors: EncodingErrors, options: Mapping[str, Any]
) -> Sequence[Label]:
    """Read lists of labels, or text with separators; nothing if none holds."""
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
    decision_unit="decisions whether a label holds",
)


@dataclass(frozen=True)
class MultilabelClassification:
    """Any of some labels, or none, for one or two texts."""

    reader: TaskReader = READER
    splits_long_texts: bool = False
    options: type = MultilabelOptions
    is_single_label: bool = False
    formulation: FormulationName = "multilabel_classification"
    wording: TaskWording = WORDING
    predicts_number: bool = False

    def find_labels(self, examples: Sequence[TaskExample], where: object) -> tuple[str, ...]:
        """List the labels that occur."""
        return column_values.find_labels(examples, where)

    def check_examples(
        self, examples: Sequence[TaskExample], labels: Sequence[str], column: str
    ) -> None:
        """Check that all labels are known."""
        column_values.check_labels(examples, labels, column)

    def metric_names(self, task: Task) -> tuple[str, ...]:
        """F1 over all labels of all texts; the mean F1 of labels; texts that are wholly right."""
        return ("micro_f1", "macro_f1", "subset_accuracy")

    def compute_metrics(
        self, task: Task, labels: Sequence[Label], predictions: Sequence[Label]
    ) -> dict[str, float]:
        """Compute the metrics of sets of labels."""
        return multilabel_metrics(_multi_hot(task, labels), _multi_hot(task, predictions))

    def majority_baseline(self, task: Task, examples: Sequence[TaskExample]) -> Label:
        """Return the most frequent set of labels, of ties the first by the alphabet."""
        counts = Counter(cast("tuple[str, ...]", item.label) for item in examples)
        return min(counts, key=lambda held: (-counts[held], held))


def _options(options: Mapping[str, Any]) -> MultilabelOptions:
    return from_dict(MultilabelOptions, dict(options), "options")


def _multi_hot(task: Task, label_sets: Sequence[Label]) -> Bool[np.ndarray, "n labels"]:
    rows = [[label in cast("tuple[str, ...]", one) for label in task.labels] for one in label_sets]
    return np.array(rows, bool).reshape(-1, len(task.labels))


MULTILABEL = MultilabelClassification()
