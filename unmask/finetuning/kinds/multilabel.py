"""Labels of which any number may hold of a text: topics, emotions."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any, cast

import numpy as np
from jaxtyping import Bool

from unmask.config import from_dict
from unmask.finetuning.ask import LABEL, Ask, in_words
from unmask.finetuning.by_labels import ByLabels
from unmask.finetuning.kinds.pooled import PoolOptions, around, head_of_labels
from unmask.heads.labels import AnyOf
from unmask.heads.model import HeadSpec
from unmask.published.card import Published
from unmask.tasks.metrics.multilabel import multilabel_metrics
from unmask.tasks.readers import column_values
from unmask.tasks.readers.tables import Table
from unmask.tasks.readers.task_files import TaskFiles, TextRows, each, find_text
from unmask.tasks.task import Columns, Item, Task, Truth
from unmask.text.lines import EncodingErrors
from unmask.text.records import named
from unmask.tokens.tokenizer import Tokenizer

SETS = (
    "labels", "label", "classes", "categories", "tags", "topics", "genres", "emotions", "category",
    "target",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class MultilabelOptions(PoolOptions):
    """How labels are read, when one is said, and by what."""

    separator: str = ","
    """Between the labels in a field of text; lists need none."""
    threshold: float = 0.5
    """The probability from which a label is said."""

    def __post_init__(self) -> None:
        """Check what the types do not say."""
        if not self.separator:
            raise ValueError("options.separator must not be empty")
        if not 0 < self.threshold < 1:
            raise ValueError(f"options.threshold must be between 0 and 1, got {self.threshold}")


def labels_of(value: object, column: str, where: str, separator: str) -> tuple[str, ...]:
    """Read the labels of a text, by the alphabet.

    Raises:
        ValueError: one is none, or stands there twice, with file and line.
    """
    if value is None:
        return ()
    if isinstance(value, str):
        parts: list[object] = [*value.split(separator)] if value.strip() else []
    elif isinstance(value, list | tuple):
        parts = [*cast("list[object]", value)]
    else:
        parts = [value]
    for part in parts:
        if part is None or (isinstance(part, str) and not part.strip()):
            raise ValueError(f"{where}: an empty label in column {column!r}: {named(value)}")
    found = sorted(column_values.label(part, column, where) for part in parts)
    if twice := [a for a, b in pairwise(found) if a == b]:
        raise ValueError(
            f"{where}: {twice[0]!r} stands twice in column {column!r}: {named(value)}; a row names "
            "the labels that hold, and has no 0 or 1 for each"
        )
    return tuple(found)


def _label_sets(
    table: Table, columns: Columns, errors: EncodingErrors, options: Mapping[str, Any]
) -> Sequence[Truth]:
    """Read lists of labels, or text with separators; nothing if none holds."""
    separator = _options(options).separator
    return each(partial(labels_of, separator=separator))(table, columns, errors, options)


FILES = TextRows(
    kind="multilabel",
    counts=(1, 2),
    find=find_text,
    customary=SETS,
    what="labels",
    truths=_label_sets,
)


@dataclass(frozen=True)
class Multilabel:
    """Any of some labels, or none, for one or two texts."""

    files: TaskFiles = FILES
    in_parts: bool = False
    options: type = MultilabelOptions
    one_label: bool = False

    def labels(self, items: Sequence[Item], where: object) -> tuple[str, ...]:
        """List the labels that occur."""
        return column_values.labels_of(items, where)

    def check(self, items: Sequence[Item], labels: Sequence[str], column: str) -> None:
        """Check that all labels are known."""
        column_values.check_labels(items, labels, column)

    def metrics(self, task: Task) -> tuple[str, ...]:
        """F1 over all labels of all texts; the mean F1 of labels; texts that are wholly right."""
        return ("micro_f1", "macro_f1", "subset_accuracy")

    def compute_metrics(
        self, task: Task, truth: Sequence[Truth], said: Sequence[Truth]
    ) -> dict[str, float]:
        """Compute the figures of sets of labels."""
        return multilabel_metrics(_sets(task, truth), _sets(task, said))

    def usual(self, task: Task, items: Sequence[Item]) -> Truth:
        """Return the most frequent set of labels, of ties the first by the alphabet."""
        counts = Counter(cast("tuple[str, ...]", item.truth) for item in items)
        return min(counts, key=lambda held: (-counts[held], held))

    def settled(self, task: Task, card: Published, items: Sequence[Item]) -> Task:
        """Nothing is left to settle."""
        return task

    def heads(self, task: Task, card: Published) -> dict[str, HeadSpec]:
        """The card's head of labels, with a sigmoid for each.

        Raises:
            ValueError: the model has no such head.
        """
        if in_words(card):
            raise ValueError(
                f"{card.name} says its answers in words, and several at once are a text: fine-tune "
                "it with the task `generate`, or take an encoder, a decoder, BART or mBART"
            )
        head = head_of_labels(task, card, _options(task.options))
        return {LABEL: replace(head, n_labels=len(task.labels), loss=AnyOf())}

    def ask(self, task: Task, card: Published, tokenizer: Tokenizer) -> Ask:
        """By a head."""
        return ByLabels(
            task=task,
            tokenizer=tokenizer,
            around=around(task, card, tokenizer.special),
            threshold=_options(task.options).threshold,
        )


def _options(given: Mapping[str, Any]) -> MultilabelOptions:
    return from_dict(MultilabelOptions, dict(given), "options")


def _sets(task: Task, held: Sequence[Truth]) -> Bool[np.ndarray, "n labels"]:
    rows = [[label in cast("tuple[str, ...]", one) for label in task.labels] for one in held]
    return np.array(rows, bool).reshape(-1, len(task.labels))


MULTILABEL = Multilabel()
