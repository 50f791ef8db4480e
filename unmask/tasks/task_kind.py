"""TaskKind: the columns, labels, metrics, baseline and formulation of a kind of task.

The formulations themselves, which need a model, are in `unmask.finetuning.formulations`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

from unmask.tasks.readers.task_reader import TaskReader
from unmask.tasks.task import Label, Task, TaskExample

FormulationName = Literal[
    "text_classification", "multilabel_classification", "token_classification",
    "multiple_choice", "span_extraction", "cloze", "text_to_text", "picture_classification",
    "instructions", "rewards",
]  # fmt: skip
"""Formulation of a task for a model; see `unmask.finetuning.formulations.build`."""


@dataclass(frozen=True, kw_only=True)
class TaskWording:
    """The words for a kind of task in reports."""

    purpose: str
    """Completes "fine-tuned to ..."."""
    majority_answer: str = "most frequent label"
    """The constant answer of the majority baseline."""
    answered_unit: str = "texts"
    """Plural of the unit that an answer is correct or wrong for."""
    one_answer_per_row: bool = True
    """Whether each row of a file is one such unit."""
    decision_unit: str = "texts"
    """Plural of the unit that a predicted probability is for."""
    wrong_heading: str = "Wrong"
    """Heading of the error analysis."""
    order_note: str = "The most confident errors come first."
    """Order of the error analysis."""
    loss_unit: str = "nats"
    example: str = '"a text"'
    """An input of `predict`, in Python."""


@runtime_checkable
class TaskKind(Protocol):
    """A kind of task."""

    @property
    def formulation(self) -> FormulationName:
        """Formulation: the head, or the text, from which the answer is read."""
        ...

    @property
    def wording(self) -> TaskWording:
        """The words for the task in reports."""
        ...

    @property
    def predicts_number(self) -> bool:
        """Whether the target is a number, trained by squared error, not a label or text."""
        ...

    @property
    def reader(self) -> TaskReader:
        """Reader of the task's files, and of inputs to be predicted."""
        ...

    @property
    def splits_long_texts(self) -> bool:
        """Whether a text over the maximum length is read in windows; otherwise it is truncated."""
        ...

    @property
    def options(self) -> type:
        """The dataclass of the task's further options."""
        ...

    @property
    def is_single_label(self) -> bool:
        """Whether an answer is exactly one label, so that there is a confusion matrix."""
        ...

    def find_labels(self, examples: Sequence[TaskExample], location: object) -> tuple[str, ...]:
        """List the possible labels; none if targets are not labels.

        Raises:
            ValueError: there is nothing to learn.
        """
        ...

    def check_examples(
        self, examples: Sequence[TaskExample], labels: Sequence[str], column: str
    ) -> None:
        """Check that the labels of examples can be predicted.

        Raises:
            ValueError: a label cannot, with file and line.
        """
        ...

    def metric_names(self, task: Task) -> tuple[str, ...]:
        """Return the names of the applicable metrics, the default first."""
        ...

    def compute_metrics(
        self, task: Task, labels: Sequence[Label], predictions: Sequence[Label]
    ) -> dict[str, float]:
        """Compute all metrics of predictions.

        Raises:
            FloatingPointError: a predicted number is not finite.
        """
        ...

    def majority_baseline(self, task: Task, examples: Sequence[TaskExample]) -> Label:
        """Return the most frequent label of training examples, or the mean of numbers."""
        ...


@runtime_checkable
class InfersOptionsFromExamples(Protocol):
    """A kind of task that infers missing options from the training examples."""

    def infer_options_from_examples(
        self, examples: Sequence[TaskExample], labels: Sequence[str], options: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the options, completed from the training examples.

        Raises:
            ValueError: an option does not fit them.
        """
        ...


@runtime_checkable
class CompletesTask(Protocol):
    """A kind of task that is checked, or completed, once its metric is known."""

    def complete_task(self, task: Task, examples: Sequence[TaskExample]) -> Task:
        """Return the task, completed from the training examples.

        Raises:
            ImportError: the metric's library is not installed.
            ValueError: the task's name or options do not fit.
        """
        ...


@runtime_checkable
class ReportsMetricSignatures(Protocol):
    """A kind of task with metrics that are comparable only with their exact configuration."""

    def metric_signatures(
        self, task: Task, labels: Sequence[Label], predictions: Sequence[Label]
    ) -> list[str]:
        """Return a line for each such metric: its value and how it was computed."""
        ...


class MixtureKind(TaskKind, Protocol):
    """A kind of task of which several can be learned as a mixture, each with its own metric."""

    def mixture_names(self, options: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the names of the tasks of a mixture; none of a single task."""
        ...

    def mixture_member(self, task: Task, name: str) -> Task:
        """Return one task of a mixture as a single task."""
        ...

    def mixture_metrics(self, member: Task, metrics: Mapping[str, float]) -> Mapping[str, float]:
        """Return what is reported of the metrics of one of many tasks."""
        ...
