"""One of some options: multiple choice, the ending of a story, the cause of an event."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from unmask.config import from_dict
from unmask.finetuning.ask import CHOICE, LABEL, Ask, in_words
from unmask.finetuning.by_choice import ByChoice, ChoiceInWords
from unmask.finetuning.kinds.classify import label_heads
from unmask.finetuning.kinds.pooled import PoolOptions, around, head_of_labels
from unmask.heads.labels import Choice
from unmask.heads.model import HeadSpec
from unmask.published.card import Published
from unmask.tasks.metrics.classification import accuracy
from unmask.tasks.readers.choices import (
    Numbering,
    find_columns,
    find_texts,
    numbering_of,
    read_choices,
)
from unmask.tasks.readers.tables import Table
from unmask.tasks.readers.task_files import TaskFiles, as_record
from unmask.tasks.task import Columns, Item, Task, Truth
from unmask.text.lines import EncodingErrors
from unmask.text.records import as_text, named
from unmask.tokens.tokenizer import Tokenizer

CONTEXT, QUESTION, CHOICES = "context", "question", "choices"
"""What is given to be predicted: a table with choices, and a context, a question or both."""
_FEWEST = 2


@dataclass(frozen=True, kw_only=True)
class ChooseOptions(PoolOptions):
    """How the answers of a file are read, and what an option is scored by."""

    numbering: Numbering | None = None
    """What an answer says: "from 0", "from 1", "letters", "texts" or "names". None: what fits."""


@dataclass(frozen=True)
class ChoiceRows:
    """Texts, options, and which of these is right."""

    tagged: bool = False

    def columns(
        self, table: Table, texts: Sequence[str], label: str | None, choices: Sequence[str]
    ) -> Columns:
        """Find columns of text, one of answers, and one of lists of options, or one for each."""
        return find_columns(table, texts, label, choices)

    def texts(self, table: Table, columns: Columns) -> Columns:
        """Find the columns of text and options."""
        texts, choices = (
            names if all(map(table.has, names)) else ()
            for names in (columns.texts, columns.choices)
        )
        return find_texts(table, texts, choices)

    def items(
        self,
        table: Table,
        columns: Columns,
        errors: EncodingErrors,
        *,
        known: bool,
        options: Mapping[str, Any],
    ) -> list[Item]:
        """Read texts, options and answers."""
        how = from_dict(ChooseOptions, dict(options), "options")
        return [
            Item(
                texts=_texts(" ".join(one.context), one.question),
                truth=one.truth,
                options=one.options,
                where=one.where,
            )
            for one in read_choices(table, columns, errors, known=known, numbering=how.numbering)
        ]

    def decided(
        self, table: Table, columns: Columns, errors: EncodingErrors, options: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Decide what an answer says: what does in all of the training file."""
        how = from_dict(ChooseOptions, dict(options), "options").numbering
        return {**options, "numbering": how or numbering_of(table, columns, errors)}

    def given(self, task: Task, text: Any, where: str) -> Item:
        """Take {"context": ..., "question": ..., "choices": [...]}, or without one of the first."""
        record = as_record(text, (CHOICES,), where)
        if strange := sorted(set(record) - {CONTEXT, QUESTION, CHOICES}):
            raise ValueError(
                f"{where} must have {CONTEXT}, {QUESTION} and {CHOICES}, got {strange[0]!r}"
            )
        options = record[CHOICES]
        if not isinstance(options, list | tuple) or len(cast("list[Any]", options)) < _FEWEST:
            raise ValueError(
                f"{where}: {CHOICES!r} must be a list of {_FEWEST} texts or more, "
                f"got {named(options)}"
            )
        read = {key: _text(record.get(key, ""), key, where) for key in (CONTEXT, QUESTION)}
        return Item(
            texts=_texts(read[CONTEXT], read[QUESTION]),
            options=tuple(_text(one, CHOICES, where) for one in cast("list[Any]", options)),
            where=where,
        )

    def plain(self, item: Item) -> Any:
        """Return {"context": ..., "question": ..., "choices": [...]}."""
        texts = zip((CONTEXT, QUESTION), item.texts, strict=False)
        return {**dict(texts), CHOICES: list(item.options)}

    def line(self, task: Task, line: str) -> Any:
        """Read a text and its options with tabs between."""
        text, *options = line.split("\t")
        return {CONTEXT: text, CHOICES: options}


@dataclass(frozen=True)
class Choose:
    """One of some options; an answer is its number, from 0.

    Rows may have unequal numbers of options. Of options with equal scores the first is answered
    (`by_choice.choice_truth`): two that are the same text always tie, as in a few rows of ARC.
    """

    files: TaskFiles = ChoiceRows()
    in_parts: bool = False
    options: type = ChooseOptions
    one_label: bool = False

    def labels(self, items: Sequence[Item], where: object) -> tuple[str, ...]:
        """Each item has its own options."""
        return ()

    def check(self, items: Sequence[Item], labels: Sequence[str], column: str) -> None:
        """An answer that is none of the options was refused when it was read."""

    def metrics(self, task: Task) -> tuple[str, ...]:
        """Accuracy."""
        return ("accuracy",)

    def compute_metrics(
        self, task: Task, truth: Sequence[Truth], said: Sequence[Truth]
    ) -> dict[str, float]:
        """Compute the share of right choices; of options with equal scores the first is chosen."""
        return {"accuracy": accuracy(np.array(truth, np.int64), np.array(said, np.int64))}

    def usual(self, task: Task, items: Sequence[Item]) -> Truth:
        """Return the most frequent place of the right option."""
        counts = Counter(cast("int", item.truth) for item in items)
        return min(counts, key=lambda place: (-counts[place], place))

    def settled(self, task: Task, card: Published, items: Sequence[Item]) -> Task:
        """Nothing is left to settle."""
        return task

    def heads(self, task: Task, card: Published) -> dict[str, HeadSpec]:
        """The head of labels with one score, whose softmax is over options; or one that says words.

        It is called "choice" where transformers has a class for it. Elsewhere (GPT-2) it is a head
        with one label, which says the same scores there.
        """
        options = from_dict(ChooseOptions, dict(task.options), "options")
        if in_words(card):
            return label_heads(task, card, options)
        head = head_of_labels(task, card, options)
        name = CHOICE if (CHOICE,) in card.fields.classes else LABEL
        return {name: replace(head, term=name, n_labels=1, loss=Choice())}

    def ask(self, task: Task, card: Published, tokenizer: Tokenizer) -> Ask:
        """By a head on each option, or in words."""
        if in_words(card):
            return ChoiceInWords(task=task, tokenizer=tokenizer)
        (head,) = self.heads(task, card)
        return ByChoice(
            task=task,
            tokenizer=tokenizer,
            around=around(task, card, tokenizer.special),
            head=head,
        )


def _texts(context: str, question: str) -> tuple[str, ...]:
    return tuple(text for text in (context, question) if text) or ("",)


def _text(value: Any, key: str, where: str) -> str:
    """Check a text, or a list of texts that are read one after another.

    Raises:
        ValueError: it is neither.
    """
    if key == CONTEXT and isinstance(value, list | tuple):
        return " ".join(_text(one, QUESTION, where) for one in cast("list[Any]", value))
    if not isinstance(value, str):
        raise ValueError(f"{where}: {key!r} must be text, got {named(value)}")
    return as_text(value, where, key, "strict")


CHOOSE = Choose()
