"""Objectives of pictures whose patches are tokens: labels; hidden patches are `Objective`s."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from unmask.batch import IGNORE_INDEX, Example, Tokens
from unmask.objectives.corrupt import MaskInPlace
from unmask.objectives.objective import Objective
from unmask.objectives.select import TokenMasking
from unmask.tokenizers.spec import SpecialTokenIds


@dataclass(frozen=True)
class PictureLabels:
    """Nothing is hidden: the label of the whole picture is predicted.

    Dosovitskiy et al. 2021, arXiv:2010.11929, section 4.1.
    """

    @property
    def loss_terms(self) -> tuple[str, ...]:
        """That of the label."""
        return ("label",)

    @property
    def needs_second_text(self) -> bool:
        """False: pictures stand alone."""
        return False

    @property
    def causal(self) -> bool:
        """False: every patch sees all."""
        return False

    @property
    def n_variants(self) -> int | None:
        """One: nothing is drawn."""
        return 1

    def max_example_length(
        self, text_lengths: Int[np.ndarray, "m"], special_ids: SpecialTokenIds
    ) -> Int[np.ndarray, "m"]:
        """Count the columns of pictures of so many patches."""
        return text_lengths + len(special_ids.prefix)

    def max_text_length(self, max_length: int, special_ids: SpecialTokenIds) -> int:
        """Count the patches that a picture may have so that its columns fit `max_length`."""
        return max_length - len(special_ids.prefix)

    def __call__(
        self, text: Tokens, special_ids: SpecialTokenIds, rng: np.random.Generator
    ) -> Example:
        """Return the patches as they are."""
        inputs = np.concatenate((np.array(special_ids.prefix, np.int64), text.ids))
        return Example(inputs=inputs, targets=np.full(len(inputs), IGNORE_INDEX))


MASKED_PATCHES = Objective(
    TokenMasking(rate=0.6), MaskInPlace(mask_probability=1.0, random_token_probability=0.0)
)
"""Masked patches: Xie et al. 2022, arXiv:2111.09886, table 1, of squares of one patch."""
