"""Cloze classification: a label is the word predicted for a blank."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from unmask.tasks.kinds.classify import CLASSIFY
from unmask.tasks.readers.task_reader import TaskReader, TextReader, find_text_or_pair
from unmask.tasks.task import Label, Task, TaskExample
from unmask.tasks.task_kind import FormulationName, TaskWording


@dataclass(frozen=True, kw_only=True)
class ClozeOptions:
    """Pattern and verbalizer of the cloze."""

    pattern: str | None = None
    """Pattern: "{text} It was [MASK].", with texts by column name or number, from 0. None: a
    default."""
    label_words: Mapping[str, str] = field(default_factory=dict[str, str])
    """Word of each label: {"pos": "great"}. Default: the label itself. Words of several tokens are
    slower to score; see `ClozeFormulation`."""


READER = TextReader(
    task_kind="cloze", allowed_text_counts=(1, 2), find_default_columns=find_text_or_pair
)


WORDING = TaskWording(purpose="label texts by the word in a blank")


@dataclass(frozen=True)
class ClozeClassification:
    """One label for a text, or for two, predicted as a word."""

    reader: TaskReader = READER
    splits_long_texts: bool = False
    options: type = ClozeOptions
    is_single_label: bool = True
    formulation: FormulationName = "cloze"
    wording: TaskWording = WORDING
    predicts_number: bool = False

    def find_labels(self, examples: Sequence[TaskExample], location: object) -> tuple[str, ...]:
        """List the labels that occur."""
        return CLASSIFY.find_labels(examples, location)

    def check_examples(
        self, examples: Sequence[TaskExample], labels: Sequence[str], column: str
    ) -> None:
        """Check that all labels are known."""
        CLASSIFY.check_examples(examples, labels, column)

    def metric_names(self, task: Task) -> tuple[str, ...]:
        """Those of classification."""
        return CLASSIFY.metric_names(task)

    def compute_metrics(
        self, task: Task, labels: Sequence[Label], predictions: Sequence[Label]
    ) -> dict[str, float]:
        """Compute the classification metrics."""
        return CLASSIFY.compute_metrics(task, labels, predictions)

    def majority_baseline(self, task: Task, examples: Sequence[TaskExample]) -> Label:
        """Return the most frequent label, of ties the first."""
        return CLASSIFY.majority_baseline(task, examples)


CLOZE = ClozeClassification()
