"""A label as a word in a blank: classification by what a model was pretrained to do."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from unmask.tasks.kinds.classify import CLASSIFY
from unmask.tasks.readers.task_reader import TaskReader, TextReader, find_text_or_pair
from unmask.tasks.task import Label, Task, TaskExample
from unmask.tasks.task_kind import FormulationName, TaskWording


@dataclass(frozen=True, kw_only=True)
class ClozeOptions:
    """How a label is asked for."""

    pattern: str | None = None
    """What is read: "{text} It was [MASK].", a text by the name of its column or its number, from
    0. None: a customary one."""
    label_words: Mapping[str, str] = field(default_factory=dict[str, str])
    """The word that says a label: {"pos": "great"}. A label that has none is its own word. One that
    is several tokens of the vocabulary is slower to ask for; see `ClozeFormulation`."""


READER = TextReader(
    task_kind="cloze", allowed_text_counts=(1, 2), find_default_columns=find_text_or_pair
)


WORDING = TaskWording(purpose="label texts by the word in a blank")


@dataclass(frozen=True)
class ClozeClassification:
    """One label for a text, or for two, by its word."""

    reader: TaskReader = READER
    splits_long_texts: bool = False
    options: type = ClozeOptions
    is_single_label: bool = True
    formulation: FormulationName = "cloze"
    wording: TaskWording = WORDING
    predicts_number: bool = False

    def find_labels(self, examples: Sequence[TaskExample], where: object) -> tuple[str, ...]:
        """List the labels that occur."""
        return CLASSIFY.find_labels(examples, where)

    def check_examples(
        self, examples: Sequence[TaskExample], labels: Sequence[str], column: str
    ) -> None:
        """Check that all labels are known."""
        CLASSIFY.check_examples(examples, labels, column)

    def metric_names(self, task: Task) -> tuple[str, ...]:
        """Those of classes."""
        return CLASSIFY.metric_names(task)

    def compute_metrics(
        self, task: Task, labels: Sequence[Label], predictions: Sequence[Label]
    ) -> dict[str, float]:
        """Compute the metrics of classes."""
        return CLASSIFY.compute_metrics(task, labels, predictions)

    def majority_baseline(self, task: Task, examples: Sequence[TaskExample]) -> Label:
        """Return the most frequent label, of ties the first."""
        return CLASSIFY.majority_baseline(task, examples)


CLOZE = ClozeClassification()
