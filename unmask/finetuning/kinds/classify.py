"""One label for a text, or for a pair of texts."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from unmask.finetuning import metrics, reading
from unmask.finetuning.ask import LABEL, LANGUAGE, Around, Ask, in_words
from unmask.finetuning.by_head import ByHead
from unmask.finetuning.in_words import InWords, spell
from unmask.finetuning.kinds.kind import (
    NoOptions,
    as_texts,
    language_spec,
    one_stack,
    plain_texts,
    texts_of_line,
)
from unmask.finetuning.tables import Table
from unmask.finetuning.tasks import Columns, Item, Task, Truth
from unmask.heads.model import HeadSpec
from unmask.published.card import Published
from unmask.text.lines import EncodingErrors
from unmask.text.records import listed
from unmask.tokens.tokenizer import Tokenizer


@dataclass(frozen=True)
class Classify:
    """One label for a text, or for two."""

    name: Literal["classify", "pairs"]
    tagged: bool = False
    in_parts: bool = False
    options: type = NoOptions
    one_label: bool = True
    problem: str | None = "single_label_classification"

    @property
    def n_texts(self) -> int:
        """How many texts it reads."""
        return 2 if self.name == "pairs" else 1

    def columns(
        self, table: Table, texts: Sequence[str], label: str | None, choices: Sequence[str]
    ) -> Columns:
        """Find one or two columns of text, and one of labels."""
        refuse_choices(choices, self.name)
        reading.check(table, texts, label, (self.n_texts,), self.name)
        found = tuple(texts) or self._find(table)
        label = label or reading.find_one(table, reading.CLASSES, "label", but=found)
        return Columns(texts=found, label=label)

    def texts(self, table: Table, columns: Columns) -> Columns:
        """Find the columns of text."""
        if all(name in table.columns for name in columns.texts):
            return columns
        return replace(columns, texts=self._find(table))

    def _find(self, table: Table) -> tuple[str, ...]:
        if self.n_texts == 1:
            return (reading.find_one(table, reading.ONE_TEXT, "text"),)
        two = reading.find_two(table, reading.TWO_TEXTS)
        if two is None:
            raise ValueError(
                f"{table.path}: which two columns hold the texts? "
                f"None are called {' and '.join(reading.TWO_TEXTS[0])} or the like; name them "
                f"(columns: {listed(table.columns)})"
            )
        return two

    def items(
        self,
        table: Table,
        columns: Columns,
        errors: EncodingErrors,
        *,
        known: bool,
        options: Mapping[str, Any],
    ) -> list[Item]:
        """Read texts and labels. An empty text is a text."""
        texts = reading.texts(table, columns.texts, errors)
        if not known:
            return [Item(texts=t, where=table.where(i)) for i, t in enumerate(texts)]
        truths = table.column(columns.label)
        return [
            Item(texts=t, truth=reading.label(y, columns.label, where), where=where)
            for i, (t, y) in enumerate(zip(texts, truths, strict=True))
            for where in (table.where(i),)
        ]

    def given(self, task: Task, text: Any, where: str) -> Item:
        """Take a text, or a pair."""
        return Item(texts=as_texts(text, len(task.columns.texts), where), where=where)

    def plain(self, item: Item) -> Any:
        """Return a text, or a pair."""
        return plain_texts(item)

    def line(self, task: Task, line: str) -> Any:
        """Read a text, or a pair with a tab between."""
        return texts_of_line(task, line)

    def labels(self, items: Sequence[Item], where: object) -> tuple[str, ...]:
        """List the labels that occur."""
        return reading.labels_of(items, where)

    def check(self, items: Sequence[Item], labels: Sequence[str], column: str) -> None:
        """Check that all labels are known."""
        reading.check_labels(items, labels, column)

    def metrics(self, labels: Sequence[str]) -> tuple[str, ...]:
        """Accuracy and the like; F1 of the second label where there are two."""
        return ("accuracy", "macro_f1", *(("f1",) if len(labels) == 2 else ()), "matthews")

    def measure(
        self, task: Task, truth: Sequence[Truth], said: Sequence[Truth]
    ) -> dict[str, float]:
        """Compute the figures of classes."""
        place = {label: i for i, label in enumerate(task.labels)}
        return metrics.of_classes(
            np.array([place[str(t)] for t in truth], np.int64),
            np.array([place[str(s)] for s in said], np.int64),
            len(task.labels),
        )

    def usual(self, task: Task, items: Sequence[Item]) -> Truth:
        """Return the most frequent label, of ties the first."""
        return most_frequent(task.labels, (t for item in items for t in reading.labels_in(item)))

    def settled(self, task: Task, card: Published, items: Sequence[Item]) -> Task:
        """Nothing is left to settle."""
        return task

    def heads(self, task: Task, card: Published) -> dict[str, HeadSpec]:
        """The card's head of labels, or the one that says words."""
        return label_heads(task, card)

    def ask(self, task: Task, card: Published, tokenizer: Tokenizer) -> Ask:
        """By a head, or in words."""
        return ask_for_label(task, card, tokenizer)


def refuse_choices(choices: Sequence[str], kind: str) -> None:
    """Refuse columns of options.

    Raises:
        ValueError: some are named.
    """
    if choices:
        raise ValueError(f"{kind} has no options to choose from; choices are of `choose`")


def most_frequent(labels: Sequence[str], truths: Any) -> str:
    """Return the most frequent label, of ties the first."""
    counts = Counter(truths)
    return max(labels, key=lambda label: (counts[label], -labels.index(label)))


def label_heads(task: Task, card: Published) -> dict[str, HeadSpec]:
    """Return the head that labels a whole text: the card's, or the one that says words.

    Raises:
        ValueError: the card has neither.
    """
    if in_words(card):
        return {LANGUAGE: replace(language_spec(card), term=LABEL)}
    if card.labels is None:
        raise ValueError(f"{card.name} has no head for labels")
    return {LABEL: replace(card.labels, n_labels=max(len(task.labels), 1))}


def ask_for_label(task: Task, card: Published, tokenizer: Tokenizer) -> Ask:
    """Ask for the label of a text by a head, or in words."""
    if in_words(card):
        return InWords(task=task, tokenizer=tokenizer, words=spell(task, tokenizer))
    around = Around.of(tokenizer.special, one_stack(card.architecture), task.length)
    return ByHead(task=task, tokenizer=tokenizer, around=around)


CLASSIFY = Classify("classify")
PAIRS = Classify("pairs")
