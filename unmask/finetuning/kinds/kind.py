"""TaskKind: what every kind of task says of itself."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from unmask.finetuning.ask import LANGUAGE, Ask
from unmask.finetuning.tables import Table
from unmask.finetuning.tasks import Columns, Item, Task, Truth
from unmask.heads.language import Language
from unmask.heads.model import HeadSpec
from unmask.model.architecture import Architecture
from unmask.model.names import AnyArchitecture
from unmask.published.card import Published
from unmask.published.catalogue import family
from unmask.text.lines import EncodingErrors
from unmask.text.records import named
from unmask.tokens.tokenizer import Tokenizer


@dataclass(frozen=True)
class NoOptions:
    """There is nothing else to choose."""


@runtime_checkable
class TaskKind(Protocol):
    """A kind of task."""

    @property
    def tagged(self) -> bool:
        """Whether a row of its files is a sentence, a word a line in text files."""
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

    @property
    def problem(self) -> str | None:
        """What transformers calls it in a configuration: its `problem_type`."""
        ...

    def columns(
        self, table: Table, texts: Sequence[str], label: str | None, choices: Sequence[str]
    ) -> Columns:
        """Check the columns that were named, and find those that were not by customary names.

        Raises:
            ValueError: a named column does not exist, or nothing is found, with the columns that
                there are.
        """
        ...

    def texts(self, table: Table, columns: Columns) -> Columns:
        """Find the columns of a file to be predicted: the training file's, or customary ones.

        Raises:
            ValueError: it has neither.
        """
        ...

    def items(
        self,
        table: Table,
        columns: Columns,
        errors: EncodingErrors,
        *,
        known: bool,
        options: Mapping[str, Any],
    ) -> list[Item]:
        """Read the items of a file.

        Args:
            table: the file.
            columns: as `columns` or `texts` found them.
            errors: what becomes of NULs and lone surrogates.
            known: read the answers, too.
            options: those of the task, some of which say how a file is read.

        Raises:
            ValueError: a value is not what it should be, with file and line.
        """
        ...

    def given(self, task: Task, text: Any, where: str) -> Item:
        """Check something that is to be predicted.

        Raises:
            ValueError: it is not what this task takes.
        """
        ...

    def plain(self, item: Item) -> Any:
        """Return what `given` takes for an item."""
        ...

    def line(self, task: Task, line: str) -> Any:
        """Return what `given` takes for a line of text."""
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

    def metrics(self, labels: Sequence[str]) -> tuple[str, ...]:
        """Name the metrics that fit, the customary one first."""
        ...

    def measure(
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
class Deciding(Protocol):
    """A kind of task whose training file decides how the other files are read."""

    def decided(
        self, table: Table, columns: Columns, errors: EncodingErrors, options: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the options with what the training file decides where nothing was said.

        Raises:
            ValueError: it leaves that open.
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


def one_stack(architecture: AnyArchitecture) -> Architecture:
    """Return the architecture of an encoder or a decoder."""
    assert isinstance(architecture, Architecture)
    return architecture


def language_spec(card: Published) -> Language:
    """Return the head that names tokens: the model's own, or its family's."""
    spec = card.heads.get(LANGUAGE) or family(card.fields.model_type).heads[LANGUAGE]
    assert isinstance(spec, Language)
    return spec


def as_texts(text: Any, n: int, where: str) -> tuple[str, ...]:
    """Check a text, or `n` of them.

    Raises:
        ValueError: it is neither.
    """
    read = (text,) if isinstance(text, str) else tuple(text) if _is_list(text) else ()
    fits = isinstance(text, str) if n == 1 else not isinstance(text, str) and len(read) == n
    if not fits or not all(isinstance(t, str) for t in read):
        wanted = {1: "a text", 2: "a pair of texts"}.get(n, f"{n} texts")
        raise ValueError(f"{where} must be {wanted}, got {named(text)}")
    return read


def plain_texts(item: Item) -> Any:
    """Return a text, or several."""
    return item.texts[0] if len(item.texts) == 1 else item.texts


def texts_of_line(task: Task, line: str) -> Any:
    """Read a text, or several with tabs between."""
    return line.split("\t") if len(task.columns.texts) > 1 else line


def as_words(text: Any, where: str) -> tuple[str, ...]:
    """Check the words of a sentence.

    Raises:
        ValueError: they are none.
    """
    if not _is_list(text) or not all(isinstance(word, str) for word in text):
        raise ValueError(f"{where} must be a list of words, got {named(text)}")
    return tuple(text)


def as_record(text: Any, keys: Sequence[str], where: str) -> Mapping[str, Any]:
    """Check a table with some keys: {"question": ..., "context": ...}.

    Raises:
        ValueError: it is none, or lacks one.
    """
    if not isinstance(text, Mapping) or any(key not in text for key in keys):
        raise ValueError(f"{where} must be a table with {', '.join(keys)}, got {named(text)}")
    return text


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)
