"""One label for a text, or for a pair of texts."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from unmask.config import from_dict
from unmask.finetuning.ask import LABEL, LANGUAGE, Ask, in_words
from unmask.finetuning.by_head import ByHead
from unmask.finetuning.in_words import InWords, spell
from unmask.finetuning.kinds.kind import language_spec
from unmask.finetuning.kinds.pooled import PoolOptions, around, head_of_labels, refuse_pool
from unmask.heads.model import HeadSpec
from unmask.published.card import Published
from unmask.tasks.metrics.classification import classification_metrics
from unmask.tasks.readers import column_values
from unmask.tasks.readers.task_files import TaskFiles, TextRows, find_pair, find_text
from unmask.tasks.task import Item, Task, Truth
from unmask.tokens.tokenizer import Tokenizer


@dataclass(frozen=True)
class Classify:
    """One label for a text, or for two."""

    files: TaskFiles
    in_parts: bool = False
    options: type = PoolOptions
    one_label: bool = True

    def labels(self, items: Sequence[Item], where: object) -> tuple[str, ...]:
        """List the labels that occur."""
        return column_values.labels_of(items, where)

    def check(self, items: Sequence[Item], labels: Sequence[str], column: str) -> None:
        """Check that all labels are known."""
        column_values.check_labels(items, labels, column)

    def metrics(self, task: Task) -> tuple[str, ...]:
        """Accuracy and the like; F1 of the second label where there are two."""
        return ("accuracy", "macro_f1", *(("f1",) if len(task.labels) == 2 else ()), "matthews")

    def compute_metrics(
        self, task: Task, truth: Sequence[Truth], said: Sequence[Truth]
    ) -> dict[str, float]:
        """Compute the figures of classes."""
        place = {label: i for i, label in enumerate(task.labels)}
        return classification_metrics(
            np.array([place[str(t)] for t in truth], np.int64),
            np.array([place[str(s)] for s in said], np.int64),
            len(task.labels),
        )

    def usual(self, task: Task, items: Sequence[Item]) -> Truth:
        """Return the most frequent label, of ties the first."""
        return most_frequent(
            task.labels, (t for item in items for t in column_values.labels_in(item))
        )

    def settled(self, task: Task, card: Published, items: Sequence[Item]) -> Task:
        """Nothing is left to settle."""
        return task

    def heads(self, task: Task, card: Published) -> dict[str, HeadSpec]:
        """The card's head of labels, or the one that says words."""
        return label_heads(task, card, from_dict(PoolOptions, task.options, "options"))

    def ask(self, task: Task, card: Published, tokenizer: Tokenizer) -> Ask:
        """By a head, or in words."""
        return ask_for_label(task, card, tokenizer)


def most_frequent(labels: Sequence[str], truths: Any) -> str:
    """Return the most frequent label, of ties the first."""
    counts = Counter(truths)
    return max(labels, key=lambda label: (counts[label], -labels.index(label)))


def label_heads(task: Task, card: Published, options: PoolOptions) -> dict[str, HeadSpec]:
    """Return the head that labels a whole text: the card's, or the one that says words.

    Raises:
        ValueError: the card has neither, or cannot read what shall stand for a text.
    """
    if in_words(card):
        if card.tokenizer.frame.languages:
            raise ValueError(
                f"{card.name} says texts in languages and no labels: fine-tune it with the task "
                "`generate`, or take another model"
            )
        refuse_pool(card, options)
        return {LANGUAGE: replace(language_spec(card), term=LABEL)}
    head = head_of_labels(task, card, options)
    return {LABEL: replace(head, n_labels=max(len(task.labels), 1))}


def ask_for_label(task: Task, card: Published, tokenizer: Tokenizer) -> Ask:
    """Ask for the label of a text by a head, or in words."""
    if in_words(card):
        return InWords(task=task, tokenizer=tokenizer, words=spell(task, tokenizer))
    return ByHead(task=task, tokenizer=tokenizer, around=around(task, card, tokenizer.special))


CLASSIFY = Classify(TextRows(kind="classify", counts=(1,), find=find_text))
PAIRS = Classify(TextRows(kind="pairs", counts=(2,), find=find_pair))
