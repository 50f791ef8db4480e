"""A number for a text, or for a pair of texts."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from unmask.tasks.kinds.pooling_options import PoolingOptions
from unmask.tasks.metrics.regression import regression_metrics
from unmask.tasks.readers import columns
from unmask.tasks.readers.task_reader import (
    TaskReader,
    TextReader,
    find_text_or_pair,
    label_per_row,
)
from unmask.tasks.task import Label, Task, TaskExample
from unmask.tasks.task_kind import FormulationName, TaskWording

READER = TextReader(
    task_kind="regress",
    allowed_text_counts=(1, 2),
    find_default_columns=find_text_or_pair,
    label_column_names=columns.NUMBER_COLUMNS,
    label_purpose="score",
    read_labels=label_per_row(columns.parse_number),
)


WORDING = TaskWording(
    purpose="score texts",
    majority_answer="mean",
    wrong_heading="Off",
    order_note="The largest errors come first.",
    loss_unit="squared error",
)


@dataclass(frozen=True)
class TextRegression:
    """A number for one or two texts."""

    reader: TaskReader = READER
    splits_long_texts: bool = False
    options: type = PoolingOptions
    is_single_label: bool = False
    formulation: FormulationName = "text_classification"
    wording: TaskWording = WORDING
    predicts_number: bool = True

    def find_labels(self, examples: Sequence[TaskExample], location: object) -> tuple[str, ...]:
        """Return no labels; the numbers must differ."""
        columns.check_numbers_differ(examples, location)
        return ()

    def check_examples(
        self, examples: Sequence[TaskExample], labels: Sequence[str], column: str
    ) -> None:
        """Accept all numbers."""

    def metric_names(self, task: Task) -> tuple[str, ...]:
        """Correlations, and the mean squared error."""
        return ("pearson", "spearman", "mean_squared_error")

    def compute_metrics(
        self, task: Task, labels: Sequence[Label], predictions: Sequence[Label]
    ) -> dict[str, float]:
        """Compute the regression metrics."""
        return regression_metrics(_as_numbers(labels), _as_numbers(predictions))

    def majority_baseline(self, task: Task, examples: Sequence[TaskExample]) -> Label:
        """Return the mean."""
        return float(
            np.mean(_as_numbers([item.label for item in examples if item.label is not None]))
        )


def _as_numbers(values: Sequence[Label]) -> np.ndarray:
    return np.array([float(cast("float", v)) for v in values], np.float64)


REGRESS = TextRegression()
