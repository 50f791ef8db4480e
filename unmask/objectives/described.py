"""Losses of an example in words, and inputs that another part of a model reads."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int

from unmask.batch import IGNORE_INDEX, Example


@dataclass(frozen=True, kw_only=True)
class DescribedLoss:
    """A term of the loss for one example."""

    term: str
    n: int | None
    """Its predictions in this example. None: it is about no prediction."""
    loss: str
    """What it is, in words."""
    weight: float = 1.0


@dataclass(frozen=True, kw_only=True)
class DescribedInputs:
    """Tokens that a part of the model reads, and what it is asked at each."""

    title: str
    ids: Int[np.ndarray, "t"]
    """Ids of tokens; -1, -2, ...: the first, the second place of a span."""
    answers: Sequence[int | str | None]
    """A token's id, a word of the task's own, or None: nothing is asked there."""
    replaced: Bool[np.ndarray, "t"] | None = None
    """Tokens that stand in the place of others. None: there are none."""
    segments: Sequence[int] | None = None
    """The text of each token, from 0."""


def count_targets(example: Example) -> int:
    """Count the targets of an example."""
    return int((example.targets != IGNORE_INDEX).sum())


def original_tokens(example: Example) -> Int[np.ndarray, "t"]:
    """Return the inputs of an example with each target, at its position, in its place."""
    return np.where(example.targets == IGNORE_INDEX, example.inputs, example.targets)
