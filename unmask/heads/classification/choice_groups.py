"""Texts that are options of one question."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Int
from torch import Tensor

from unmask.batch import Batch, ExampleRows, Feature


@dataclass(frozen=True)
class ChoiceGroup(Feature):
    """The question of which a text is an option, one of which is to be chosen."""

    number: int

    @classmethod
    def collate(cls, rows: ExampleRows) -> Feature:
        """Number the groups of a batch's rows from 0; a row without one is a group of its own.

        Raises:
            ValueError: a row has several texts.
        """
        if rows.is_packed:
            raise ValueError("texts of a choice_group cannot be packed: each needs a row")
        found = [e.feature(cls) for e in rows.examples]
        keys = [(own is None, i if own is None else own.number) for i, own in enumerate(found)]
        number = {key: i for i, key in enumerate(dict.fromkeys(keys))}
        return ChoiceGroups(np.array([number[key] for key in keys], np.int64))


@dataclass(frozen=True)
class ChoiceGroups(Feature):
    """The questions of a batch's rows."""

    numbers: Int[Any, "b"]
    """From 0; rows of a question have the same number."""

    @staticmethod
    def numbers_of(batch: Batch) -> Int[Tensor, "b"] | None:
        """Return the numbers of a batch's rows. None: there are none."""
        groups = batch.feature(ChoiceGroups)
        return None if groups is None else groups.numbers
