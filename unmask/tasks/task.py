"""Task: the columns, labels and metric of what a model is fine-tuned for.

The kinds of tasks are in `unmask.tasks.kinds`.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from unmask.conversations.messages import Message
from unmask.images.store import ImageStore
from unmask.tasks.kind_names import TaskKindName
from unmask.tasks.metrics.metric import METRICS

Label = str | float | int | tuple[str, ...]
"""A label, a number, the index of an option, or several texts: tags of words, a label set, or
several correct answers."""


@dataclass(frozen=True)
class StoredPicture:
    """A picture of a store."""

    store: ImageStore
    index: int

    @property
    def identity(self) -> list[int | str]:
        """Plain data that differ for different pictures: its store's checksums, and its number."""
        return [*(file.sha256 for file in self.store.manifest.pixels), self.index]


@dataclass(frozen=True, kw_only=True)
class TaskExample:
    """One example."""

    texts: tuple[str, ...]
    """One text, two, or the words of a sentence."""
    label: Label | None = None
    choices: tuple[str, ...] = ()
    """Options of a multiple choice."""
    answer_starts: tuple[int, ...] = ()
    """Start characters of the answers in the last of the texts."""
    location: str = ""
    """File and line, for messages."""
    component: str = ""
    """Name of its part of a task mixture."""
    picture: StoredPicture | None = None
    """What is labeled in place of texts, which then are its name."""
    turns: tuple[Message, ...] = ()
    """Of a conversation, the last response included if it is known; texts are those before it."""
    margin: float | None = None
    """Difference of rewards that is sought between responses. None: that of the task."""


@dataclass(frozen=True, kw_only=True)
class TaskColumns:
    """The columns of a file."""

    texts: tuple[str, ...]
    """None: the model is from another library, whose folder does not record whether it reads texts
    or pairs; the inputs determine it."""
    label: str
    choices: tuple[str, ...] = ()
    """Columns of options to choose from."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """The task of a fine-tuned model; a part of its `unmask.json`."""

    task_kind: TaskKindName
    columns: TaskColumns
    labels: tuple[str, ...] = ()
    """Labels in the order of the scores. Empty for regression, except as text: there, the
    numbers."""
    task_name: str = ""
    """Name of the task, the prefix of an encoder-decoder's input."""
    max_length: int = 512
    """Maximum input length in tokens, special tokens included."""
    metric: str = "accuracy"
    """Metric for the selection of the best model."""
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Options of the kind of task as plain data; see `TaskKind.options`."""

    def is_better(self, metrics: Mapping[str, float], best_metrics: Mapping[str, float]) -> bool:
        """Return whether metrics are better than others: by the main metric, then by the loss."""
        sign = 1 if METRICS[self.metric].higher_is_better else -1
        a, b = sign * metrics[self.metric], sign * best_metrics[self.metric]
        return a > b or (a == b and metrics["loss"] < best_metrics["loss"])


def split_dev(
    examples: Sequence[TaskExample],
    fraction: float = 0.1,
    seed: int = 0,
    *,
    location: str,
    unit: str = "rows",
) -> tuple[list[TaskExample], list[TaskExample]]:
    """Split off a random dev set, stratified by label.

    A label that occurs once stays in the training set.

    Args:
        examples: all examples.
        fraction: share of the dev set.
        seed: random seed.
        location: their file, for messages.
        unit: plural noun for examples, for messages.

    Raises:
        ValueError: there are too few examples.
    """
    rng = np.random.default_rng(seed)
    groups: dict[str, list[int]] = {}
    for i, item in enumerate(examples):
        groups.setdefault(item.label if isinstance(item.label, str) else "", []).append(i)
    dev_indices: set[int] = set()
    for _, group in sorted(groups.items()):
        n = max(round(fraction * len(group)), 1) if len(group) > 1 else 0
        dev_indices |= {group[i] for i in rng.permutation(len(group))[:n]}
    if not dev_indices or len(dev_indices) == len(examples):
        n, purpose = len(examples), "to set aside a dev set; give a dev file"
        if len(groups) == n > 1:
            raise ValueError(f"{location}: {n:,} labels in {n:,} {unit}: too many labels {purpose}")
        raise ValueError(f"{location}: {n:,} {unit}: too few {purpose}")
    train = [item for i, item in enumerate(examples) if i not in dev_indices]
    return train, [item for i, item in enumerate(examples) if i in dev_indices]


def examples_sha256(examples: Iterable[TaskExample]) -> str:
    """Compute a hash of examples, by which a resumed run checks its data."""
    total = hashlib.sha256()
    for item in examples:
        content = [item.texts, item.label, item.choices, item.answer_starts]
        content += [item.component] if item.component else []
        content += item.picture.identity if item.picture is not None else []
        content += [turn.role for turn in item.turns]
        content += [] if item.margin is None else [item.margin]
        total.update(json.dumps(content).encode() + b"\n")
    return total.hexdigest()
