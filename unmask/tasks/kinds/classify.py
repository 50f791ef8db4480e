"""One label for a text, or for a pair of texts."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from unmask.tasks.kinds.pooling_options import PoolingOptions
from unmask.tasks.metrics.classification import classification_metrics
from unmask.tasks.readers import columns
from unmask.tasks.readers.task_reader import (
    TaskReader,
    TextReader,
    find_text_column,
    find_text_pair,
)
from unmask.tasks.task import Label, Task, TaskExample
from unmask.tasks.task_kind import FormulationName, TaskWording


@dataclass(frozen=True)
class TextClassification:
    """One label for a text, or for two."""

    reader: TaskReader
    wording: TaskWording
    formulation: FormulationName = "text_classification"
    splits_long_texts: bool = False
    options: type = PoolingOptions
    is_single_label: bool = True
    predicts_number: bool = False

    def find_labels(self, examples: Sequence[TaskExample], location: object) -> tuple[str, ...]:
        """List the labels that occur."""
        return columns.find_labels(examples, location)

    def check_examples(
        self, examples: Sequence[TaskExample], labels: Sequence[str], column: str
    ) -> None:
        """Check that all labels are known."""
        columns.check_labels(examples, labels, column)

    def metric_names(self, task: Task) -> tuple[str, ...]:
        """Accuracy and others; with two labels, F1 of the second."""
        return ("accuracy", "macro_f1", *(("f1",) if len(task.labels) == 2 else ()), "matthews")

    def compute_metrics(
        self, task: Task, labels: Sequence[Label], predictions: Sequence[Label]
    ) -> dict[str, float]:
        """Compute the classification metrics."""
        index_of_label = {label: i for i, label in enumerate(task.labels)}
        return classification_metrics(
            np.array([index_of_label[str(t)] for t in labels], np.int64),
            np.array([index_of_label[str(s)] for s in predictions], np.int64),
            len(task.labels),
        )

    def majority_baseline(self, task: Task, examples: Sequence[TaskExample]) -> Label:
        """Return the most frequent label, of ties the first."""
        return most_frequent_label(
            task.labels, (t for item in examples for t in columns.example_labels(item))
        )


def most_frequent_label(labels: Sequence[str], occurrences: Iterable[str]) -> str:
    """Return the most frequent label, of ties the first."""
    counts = Counter(occurrences)
    return max(labels, key=lambda label: (counts[label], -labels.index(label)))


CLASSIFY = TextClassification(
    TextReader(
        task_kind="classify", allowed_text_counts=(1,), find_default_columns=find_text_column
    ),
    TaskWording(purpose="label texts"),
)
PAIRS = TextClassification(
    TextReader(task_kind="pairs", allowed_text_counts=(2,), find_default_columns=find_text_pair),
    TaskWording(
        purpose="label pairs of texts",
        answered_unit="pairs",
        decision_unit="pairs",
        example='("a text", "another")',
    ),
)
