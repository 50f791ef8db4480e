"""What is learned: a Task says which columns are read, which answers there are, how to score them.

What each kind of task reads, asks and answers is in `unmask.finetuning.kinds`.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np

from unmask.tasks.metrics.metric import METRICS

Kind = Literal[
    "classify", "pairs", "regress", "tag", "answer", "generate", "cloze", "choose", "multilabel",
]  # fmt: skip
KINDS: tuple[Kind, ...] = get_args(Kind)

Truth = str | float | int | tuple[str, ...]
"""A label, a number, which of some options, or several texts: a label for each word, labels that
hold together, answers that are all right."""


@dataclass(frozen=True, kw_only=True)
class Item:
    """One thing to be labelled."""

    texts: tuple[str, ...]
    """One text, two, or the words of a sentence."""
    truth: Truth | None = None
    options: tuple[str, ...] = ()
    """Of which one is to be chosen."""
    starts: tuple[int, ...] = ()
    """Where the answers begin in the last of the texts, in characters."""
    where: str = ""
    """File and line, for messages."""
    part: str = ""
    """Of a mixture: which part of it this is of."""


@dataclass(frozen=True, kw_only=True)
class Columns:
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

    does: Kind
    columns: Columns
    labels: tuple[str, ...] = ()
    """In the order of the scores. None for a number, but for one that is said in words: there, the
    numbers."""
    name: str = ""
    """What an encoder-decoder reads before the text."""
    length: int = 512
    """Tokens that the model reads at most, special ones included."""
    metric: str = "accuracy"
    """By which the best model was chosen."""
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What else this kind of task lets one choose, as plain data; see its `Options`."""

    def better(self, new: Mapping[str, float], old: Mapping[str, float]) -> bool:
        """Say whether figures are better than others: by the metric, then by the loss."""
        sign = 1 if METRICS[self.metric].higher_is_better else -1
        a, b = sign * new[self.metric], sign * old[self.metric]
        return a > b or (a == b and new["loss"] < old["loss"])


def split(
    found: Sequence[Item], share: float = 0.1, seed: int = 0, *, where: str, what: str = "rows"
) -> tuple[list[Item], list[Item]]:
    """Take a part of the items away to choose by, the same share of each label, at random.

    A label that occurs once stays where it is learned from.

    Args:
        found: the items.
        share: of them, that is taken away.
        seed: of what is drawn.
        where: they stand, for messages.
        what: they are, for messages.

    Raises:
        ValueError: there are too few items.
    """
    rng = np.random.default_rng(seed)
    groups: dict[str, list[int]] = {}
    for i, item in enumerate(found):
        groups.setdefault(item.truth if isinstance(item.truth, str) else "", []).append(i)
    taken: set[int] = set()
    for _, group in sorted(groups.items()):
        n = max(round(share * len(group)), 1) if len(group) > 1 else 0
        taken |= {group[i] for i in rng.permutation(len(group))[:n]}
    if not taken or len(taken) == len(found):
        n, why = len(found), "to set some aside to choose the best model by; name a dev file"
        if len(groups) == n > 1:
            raise ValueError(f"{where}: {n:,} labels in {n:,} {what}: too many labels {why}")
        raise ValueError(f"{where}: {n:,} {what}: too few {why}")
    kept = [item for i, item in enumerate(found) if i not in taken]
    return kept, [item for i, item in enumerate(found) if i in taken]


def digest(found: Iterable[Item]) -> str:
    """Compute a hash of what items say, by which a resumed run knows its data again."""
    total = hashlib.sha256()
    for item in found:
        said = [item.texts, item.truth, item.options, item.starts]
        said += [item.part] if item.part else []
        total.update(json.dumps(said).encode() + b"\n")
    return total.hexdigest()
