"""Groups of texts that are answer choices of one question."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float, Int
from torch import Tensor

from unmask.batch import Batch, ExampleRows, Feature


@dataclass(frozen=True)
class ChoiceGroup(Feature):
    """The question to which a text is an answer choice."""

    number: int

    @classmethod
    def collate(cls, rows: ExampleRows) -> Feature:
        """Number the groups of a batch's rows from 0; a row without a group forms its own.

        Raises:
            ValueError: a row has several texts.
        """
        if rows.is_packed:
            raise ValueError("texts of a choice_group cannot be packed: each needs a row")
        features = [e.feature(cls) for e in rows.examples]
        keys = [(own is None, i if own is None else own.number) for i, own in enumerate(features)]
        number = {key: i for i, key in enumerate(dict.fromkeys(keys))}
        return ChoiceGroups(np.array([number[key] for key in keys], np.int64))


@dataclass(frozen=True)
class RewardMargin(Feature):
    """The difference that is sought between the rewards of a response and of those below it."""

    value: float

    @classmethod
    def collate(cls, rows: ExampleRows) -> Feature:
        """Return the margins of a batch's rows; 0 where there is none."""
        own = [example.feature(cls) for example in rows.examples]
        return RewardMargins(np.array([0 if x is None else x.value for x in own], np.float32))


@dataclass(frozen=True)
class RewardMargins(Feature):
    """The margins of a batch's rows."""

    is_for_losses: ClassVar[bool] = True
    values: Float[Any, "b"]


@dataclass(frozen=True)
class ChoiceGroups(Feature):
    """The questions of a batch's rows."""

    is_for_losses: ClassVar[bool] = True
    numbers: Int[Any, "b"]
    """Number of each row's question, from 0."""

    @staticmethod
    def numbers_of(batch: Batch) -> Int[Tensor, "b"] | None:
        """Return the question numbers of a batch's rows. None: the batch has no groups."""
        groups = batch.feature(ChoiceGroups)
        return None if groups is None else groups.numbers
