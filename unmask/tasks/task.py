"""What is learned: a Task says which columns are read, which answers there are, how to score them.

What each kind of task reads, asks and answers is in `unmask.tasks.kinds`.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from unmask.tasks.kind_names import TaskKindName
from unmask.tasks.metrics.metric import METRICS

Label = str | float | int | tuple[str, ...]
"""A label, a number, which of some options, or several texts: a label for each word, labels that
hold together, answers that are all right."""


@dataclass(frozen=True, kw_only=True)
class TaskExample:
    """One thing to be labelled."""

    texts: tuple[str, ...]
    """One text, two, or the words of a sentence."""
    label: Label | None = None
    choices: tuple[str, ...] = ()
    """Of which one is to be chosen."""
    answer_starts: tuple[int, ...] = ()
    """Where the answers begin in the last of the texts, in characters."""
    location: str = ""
    """File and line, for messages."""
    component: str = ""
    """Of a mixture: which part of it this is of."""


@dataclass(frozen=True, kw_only=True)
class TaskColumns:
    """Which columns of a file are read."""

    texts: tuple[str, ...]
    """None: another library fine-tuned the model, and its folder does not say whether it reads
    texts or pairs of texts; what is given says it."""
    label: str
    choices: tuple[str, ...] = ()
    """That hold the options to choose from."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """What a fine-tuned model does; a part of its `unmask.json`."""

    task_kind: TaskKindName
    columns: TaskColumns
    labels: tuple[str, ...] = ()
    """In the order of the scores. None for a number, but for one that is said in words: there, the
    numbers."""
    task_name: str = ""
    """What an encoder-decoder reads before the text."""
    max_length: int = 512
    """Tokens that the model reads at most, special ones included."""
    metric: str = "accuracy"
    """By which the best model was chosen."""
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What else this kind of task lets one choose, as plain data; see `TaskKind.options`."""

    def is_better(self, metrics: Mapping[str, float], best_metrics: Mapping[str, float]) -> bool:
        """Return whether figures are better than others: by the metric, then by the loss."""
        sign = 1 if METRICS[self.metric].higher_is_better else -1
        a, b = sign * metrics[self.metric], sign * best_metrics[self.metric]
        return a > b or (a == b and metrics["loss"] < best_metrics["loss"])


def split_dev(
    examples: Sequence[TaskExample],
    fraction: float = 0.1,
    seed: int = 0,
    *,
    where: str,
    unit: str = "rows",
) -> tuple[list[TaskExample], list[TaskExample]]:
    """Take a part of the items away to choose by, the same share of each label, at random.

    A label that occurs once stays where it is learned from.

    Args:
        examples: the items.
        fraction: of them, that is taken away.
        seed: random seed.
        where: they are, for messages.
        unit: they are, for messages.

    Raises:
        ValueError: there are too few items.
    """
    rng = np.random.default_rng(seed)
    groups: dict[str, list[int]] = {}
    for i, item in enumerate(examples):
        groups.setdefault(item.label if isinstance(item.label, str) else "", []).append(i)
    taken: set[int] = set()
    for _, group in sorted(groups.items()):
        n = max(round(fraction * len(group)), 1) if len(group) > 1 else 0
        taken |= {group[i] for i in rng.permutation(len(group))[:n]}
    if not taken or len(taken) == len(examples):
        n, why = len(examples), "to set some aside to choose the best model by; name a dev file"
        if len(groups) == n > 1:
            raise ValueError(f"{where}: {n:,} labels in {n:,} {unit}: too many labels {why}")
        raise ValueError(f"{where}: {n:,} {unit}: too few {why}")
    kept = [item for i, item in enumerate(examples) if i not in taken]
    return kept, [item for i, item in enumerate(examples) if i in taken]


def examples_sha256(examples: Iterable[TaskExample]) -> str:
    """Compute a hash of what items say, by which a resumed run knows its data again."""
    total = hashlib.sha256()
    for item in examples:
        said = [item.texts, item.label, item.choices, item.answer_starts]
        said += [item.component] if item.component else []
        total.update(json.dumps(said).encode() + b"\n")
    return total.hexdigest()
