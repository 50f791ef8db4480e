"""TaskKind: what every kind of task says of itself."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from unmask.finetuning.formulations.formulation import LANGUAGE_HEAD, TaskFormulation
from unmask.heads.language.language_modeling import LanguageModeling
from unmask.heads.model import HeadSpec
from unmask.tasks.readers.task_reader import TaskReader
from unmask.tasks.task import Label, Task, TaskExample
from unmask.tokenizers.encode import Tokenizer
from unmask.zoo.catalogue import preset_for_config
from unmask.zoo.preset import Published


@dataclass(frozen=True)
class NoTaskOptions:
    """There is nothing else to choose."""


@runtime_checkable
class TaskKind(Protocol):
    """A kind of task."""

    @property
    def reader(self) -> TaskReader:
        """What its files, and what is given to be predicted, say."""
        ...

    @property
    def splits_long_texts(self) -> bool:
        """Whether a text that is too long is read in parts; otherwise it is cut."""
        ...

    @property
    def options(self) -> type:
        """The dataclass of what else one can choose; `NoTaskOptions` if nothing."""
        ...

    @property
    def is_single_label(self) -> bool:
        """Whether an answer is one of some labels, so that confusions can be counted."""
        ...

    def find_labels(self, examples: Sequence[TaskExample], where: object) -> tuple[str, ...]:
        """List the labels that can be answered; none where answers are not labels.

        Raises:
            ValueError: there is nothing to learn.
        """
        ...

    def check_examples(
        self, examples: Sequence[TaskExample], labels: Sequence[str], column: str
    ) -> None:
        """Check that what is true of some items can be said.

        Raises:
            ValueError: it cannot, with file and line.
        """
        ...

    def metric_names(self, task: Task) -> tuple[str, ...]:
        """Name the metrics that fit, the customary one first."""
        ...

    def compute_metrics(
        self, task: Task, labels: Sequence[Label], predictions: Sequence[Label]
    ) -> dict[str, float]:
        """Compute all figures of some answers.

        Raises:
            FloatingPointError: a number said is not finite.
        """
        ...

    def majority_baseline(self, task: Task, examples: Sequence[TaskExample]) -> Label:
        """Return the answer that is most frequent, or the mean number."""
        ...

    def resolve_task(self, task: Task, preset: Published, examples: Sequence[TaskExample]) -> Task:
        """Complete a task by what depends on the model and on what is learned from."""
        ...

    def heads(self, task: Task, preset: Published) -> dict[str, HeadSpec]:
        """Return the heads that a card's model needs.

        Raises:
            ValueError: this kind of model cannot do this task.
        """
        ...

    def formulate(self, task: Task, preset: Published, tokenizer: Tokenizer) -> TaskFormulation:
        """Choose how a model is asked.

        Raises:
            ValueError: the length leaves no room for text, or two labels are the same words to the
                tokenizer.
        """
        ...


@runtime_checkable
class InfersOptionsFromExamples(Protocol):
    """A kind of task some of whose options the training items decide where nothing was said."""

    def infer_options_from_examples(
        self, examples: Sequence[TaskExample], labels: Sequence[str], options: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the options with what the training items decide.

        Raises:
            ValueError: an option does not fit them.
        """
        ...


@runtime_checkable
class ReportsMetricSignatures(Protocol):
    """A kind of task some of whose figures others compare, if they know how they were computed."""

    def metric_signatures(
        self, task: Task, labels: Sequence[Label], predictions: Sequence[Label]
    ) -> list[str]:
        """Say each such figure, and how exactly it was computed, in a line."""
        ...


def language_modeling_head(preset: Published) -> LanguageModeling:
    """Return the head that names tokens: the model's own, or its family's.

    Raises:
        ValueError: the family has none.
    """
    like = preset_for_config({"model_type": preset.config_mapping.model_type})
    spec = {**like.extra_heads, **like.heads, **preset.heads}.get(LANGUAGE_HEAD)
    if not isinstance(spec, LanguageModeling):
        raise ValueError(f"models of the family {preset.family} name no tokens")
    return spec
