"""A number for a text, or for a pair of texts."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from unmask.config import from_dict
from unmask.finetuning.ask import Ask, in_words
from unmask.finetuning.in_words import rounded
from unmask.finetuning.kinds.classify import ask_for_label, label_heads
from unmask.finetuning.kinds.pooled import PoolOptions
from unmask.heads.model import HeadSpec
from unmask.published.card import Published
from unmask.tasks.metrics.regression import regression_metrics
from unmask.tasks.readers import column_values
from unmask.tasks.readers.task_files import TaskFiles, TextRows, each, find_text_or_pair
from unmask.tasks.task import Item, Task, Truth
from unmask.tokens.tokenizer import Tokenizer

FILES = TextRows(
    kind="regress",
    counts=(1, 2),
    find=find_text_or_pair,
    customary=column_values.NUMBERS,
    what="score",
    truths=each(column_values.number),
)


@dataclass(frozen=True)
class Regress:
    """A number for one or two texts."""

    files: TaskFiles = FILES
    in_parts: bool = False
    options: type = PoolOptions
    one_label: bool = False

    def labels(self, items: Sequence[Item], where: object) -> tuple[str, ...]:
        """Numbers are not labels; but they must differ."""
        column_values.check_varies(items, where)
        return ()

    def check(self, items: Sequence[Item], labels: Sequence[str], column: str) -> None:
        """Any number will do."""

    def metrics(self, task: Task) -> tuple[str, ...]:
        """Correlations, and the mean squared error."""
        return ("pearson", "spearman", "mean_squared_error")

    def compute_metrics(
        self, task: Task, truth: Sequence[Truth], said: Sequence[Truth]
    ) -> dict[str, float]:
        """Compute the figures of numbers."""
        return regression_metrics(_numbers(truth), _numbers(said))

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
        return label_heads(task, card, from_dict(PoolOptions, task.options, "options"))

    def ask(self, task: Task, card: Published, tokenizer: Tokenizer) -> Ask:
        """By a head, or in words."""
        return ask_for_label(task, card, tokenizer)


def _numbers(values: Sequence[Truth]) -> np.ndarray:
    return np.array([float(cast("float", v)) for v in values], np.float64)


REGRESS = Regress()
