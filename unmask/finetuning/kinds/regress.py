"""A number for a text, or for a pair of texts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from unmask.finetuning import metrics, reading
from unmask.finetuning.ask import Ask, in_words
from unmask.finetuning.in_words import rounded
from unmask.finetuning.kinds.classify import (
    ask_for_label,
    label_heads,
    refuse_choices,
)
from unmask.finetuning.kinds.kind import NoOptions, as_texts, plain_texts, texts_of_line
from unmask.finetuning.tables import Table
from unmask.finetuning.tasks import Columns, Item, Task, Truth
from unmask.heads.model import HeadSpec
from unmask.published.card import Published
from unmask.text.lines import EncodingErrors
from unmask.tokens.tokenizer import Tokenizer


@dataclass(frozen=True)
class Regress:
    """A number for one or two texts."""

    tagged: bool = False
    in_parts: bool = False
    options: type = NoOptions
    one_label: bool = False
    problem: str | None = "regression"

    def columns(
        self, table: Table, texts: Sequence[str], label: str | None, choices: Sequence[str]
    ) -> Columns:
        """Find one or two columns of text, and one of numbers."""
        refuse_choices(choices, "regress")
        reading.check(table, texts, label, (1, 2), "regress")
        found = tuple(texts) or self._find(table)
        label = label or reading.find_one(table, reading.NUMBERS, "score", but=found)
        return Columns(texts=found, label=label)

    def texts(self, table: Table, columns: Columns) -> Columns:
        """Find the columns of text."""
        if all(name in table.columns for name in columns.texts):
            return columns
        return replace(columns, texts=self._find(table))

    def _find(self, table: Table) -> tuple[str, ...]:
        two = reading.find_two(table, reading.TWO_TEXTS)
        return two or (reading.find_one(table, reading.ONE_TEXT, "text"),)

    def items(
        self,
        table: Table,
        columns: Columns,
        errors: EncodingErrors,
        *,
        known: bool,
        options: Mapping[str, Any],
    ) -> list[Item]:
        """Read texts and numbers."""
        texts = reading.texts(table, columns.texts, errors)
        if not known:
            return [Item(texts=t, where=table.where(i)) for i, t in enumerate(texts)]
        truths = table.column(columns.label)
        return [
            Item(texts=t, truth=reading.number(y, columns.label, where), where=where)
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
        """Numbers are not labels; but they must differ."""
        reading.check_varies(items, where)
        return ()

    def check(self, items: Sequence[Item], labels: Sequence[str], column: str) -> None:
        """Any number will do."""

    def metrics(self, labels: Sequence[str]) -> tuple[str, ...]:
        """Correlations, and the mean squared error."""
        return ("pearson", "spearman", "mean_squared_error")

    def measure(
        self, task: Task, truth: Sequence[Truth], said: Sequence[Truth]
    ) -> dict[str, float]:
        """Compute the figures of numbers."""
        return metrics.of_numbers(_numbers(truth), _numbers(said))

    def usual(self, task: Task, items: Sequence[Item]) -> Truth:
        """Return the mean."""
        return float(np.mean(_numbers([item.truth for item in items if item.truth is not None])))

    def settled(self, task: Task, card: Published, items: Sequence[Item]) -> Task:
        """A model that says numbers in words says one of some round ones."""
        if not in_words(card):
            return task
        numbers = [item.truth for item in items if isinstance(item.truth, float)]
        return replace(task, labels=rounded(numbers))

    def heads(self, task: Task, card: Published) -> dict[str, HeadSpec]:
        """The card's head of labels with one score, or the one that says words."""
        return label_heads(task, card)

    def ask(self, task: Task, card: Published, tokenizer: Tokenizer) -> Ask:
        """By a head, or in words."""
        return ask_for_label(task, card, tokenizer)


def _numbers(values: Sequence[Truth]) -> np.ndarray:
    return np.array([float(cast("float", v)) for v in values], np.float64)


REGRESS = Regress()
