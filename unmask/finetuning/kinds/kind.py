"""TaskKind: what every kind of task says of itself."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from unmask.finetuning.ask import LANGUAGE, Ask
from unmask.heads.language import Language
from unmask.heads.model import HeadSpec
from unmask.published.card import Published
from unmask.published.catalogue import family
from unmask.tasks.readers.task_files import TaskFiles
from unmask.tasks.task import Item, Task, Truth
from unmask.tokens.tokenizer import Tokenizer


@dataclass(frozen=True)
class NoOptions:
    """There is nothing else to choose."""


@runtime_checkable
class TaskKind(Protocol):
    """A kind of task."""

    @property
    def files(self) -> TaskFiles:
        """What its files, and what is given to be predicted, say."""
        ...

    @property
    def in_parts(self) -> bool:
        """Whether a text that is too long is read in parts; otherwise it is cut."""
        ...

    @property
    def options(self) -> type:
        """The dataclass of what else one can choose; `NoOptions` if nothing."""
        ...

    @property
    def one_label(self) -> bool:
        """Whether an answer is one of some labels, so that confusions can be counted."""
        ...

    def labels(self, items: Sequence[Item], where: object) -> tuple[str, ...]:
        """List the labels that can be answered; none where answers are not labels.

        Raises:
            ValueError: there is nothing to learn.
        """
        ...

    def check(self, items: Sequence[Item], labels: Sequence[str], column: str) -> None:
        """Check that what is true of some items can be said.

        Raises:
            ValueError: it cannot, with file and line.
        """
        ...

    def metrics(self, task: Task) -> tuple[str, ...]:
        """Name the metrics that fit, the customary one first."""
        ...

    def compute_metrics(
        self, task: Task, truth: Sequence[Truth], said: Sequence[Truth]
    ) -> dict[str, float]:
        """Compute all figures of some answers.

        Raises:
            FloatingPointError: a number said is not finite.
        """
        ...

    def usual(self, task: Task, items: Sequence[Item]) -> Truth:
        """Return the answer that is most frequent, or the mean number."""
        ...

    def settled(self, task: Task, card: Published, items: Sequence[Item]) -> Task:
        """Complete a task by what depends on the model and on what is learned from."""
        ...

    def heads(self, task: Task, card: Published) -> dict[str, HeadSpec]:
        """Return the heads that a card's model needs.

        Raises:
            ValueError: this kind of model cannot do this task.
        """
        ...

    def ask(self, task: Task, card: Published, tokenizer: Tokenizer) -> Ask:
        """Choose how a model is asked.

        Raises:
            ValueError: the length leaves no room for text, or two labels are the same words to the
                tokenizer.
        """
        ...


@runtime_checkable
class Informed(Protocol):
    """A kind of task some of whose options the training items decide where nothing was said."""

    def informed(
        self, items: Sequence[Item], labels: Sequence[str], options: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the options with what the training items decide.

        Raises:
            ValueError: an option does not fit them.
        """
        ...


@runtime_checkable
class Signing(Protocol):
    """A kind of task some of whose figures others compare, if they know how they were computed."""

    def signatures(self, task: Task, truth: Sequence[Truth], said: Sequence[Truth]) -> list[str]:
        """Say each such figure, and how exactly it was computed, in a line."""
        ...


def language_spec(card: Published) -> Language:
    """Return the head that names tokens: the model's own, or its family's.

    Raises:
        ValueError: the family has none.
    """
    like = family({"model_type": card.fields.model_type})
    spec = {**like.others, **like.heads, **card.heads}.get(LANGUAGE)
    if not isinstance(spec, Language):
        raise ValueError(f"models of the family {card.family} name no tokens")
    return spec
