"""A source and a target -> Example: what is hidden of pairs, where no text has to be cut in two."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from unmask.batch import IGNORE_INDEX, Example
from unmask.objectives.corrupt import MaskInPlace
from unmask.objectives.text_units import check_fractions
from unmask.tokenizers.spec import SpecialTokenIds


@dataclass(frozen=True)
class MaskedTarget:
    """A source that is seen as a whole, and a target of which tokens are hidden in place.

    Dong et al. 2019, arXiv:1905.03197, section 2.5: tokens of the source see it alone, those of the
    target the source, and themselves and the target before them. What ends the target is hidden
    like any other token, so that ending is learned. How many are hidden: of n tokens and the end,
    round(rate n), at least one (released code, `Preprocess4Seq2seq`; 0.7 is the `mask_prob` of its
    commands).

    Deviates: the released code also has a fixed maximum for each text, `max_pred`, and its commands
    smooth the labels by 0.1.
    """

    rate: float = 0.7
    segment_ids: tuple[int, int] = (0, 1)
    """Of source and target."""
    corrupt: MaskInPlace = field(default_factory=MaskInPlace)

    def __post_init__(self) -> None:
        """Refuse a rate that is no share."""
        check_fractions(rate=self.rate)

    def unmasked_example(self, source: Sequence[int], target: Sequence[int]) -> Example:
        """Lay out both with nothing hidden: each token of the target is its own answer."""
        inputs = np.array([*source, *target], np.int64)
        targets = inputs.copy()
        targets[: len(source)] = IGNORE_INDEX
        rank = (np.arange(len(inputs)) - len(source) + 1).clip(min=0)
        segments = np.array(self.segment_ids)[(rank > 0) * 1]
        return Example(inputs=inputs, targets=targets, rank=rank, segments=segments)

    def mask_target(
        self, example: Example, special_ids: SpecialTokenIds, rng: np.random.Generator
    ) -> Example:
        """Hide tokens of the target of what `unmasked_example` gave, and ask for these alone.

        Raises:
            ValueError: the vocabulary has no token for a mask.
        """
        where = np.flatnonzero(example.targets != IGNORE_INDEX)
        if not len(where):
            return example
        n = max(1, round(self.rate * (len(where) - 1)))
        hidden = np.zeros(len(example.inputs), bool)
        hidden[rng.choice(where, n, replace=False)] = True
        return replace(
            example,
            inputs=self.corrupt.mask_tokens(example.inputs, hidden, special_ids, rng),
            targets=np.where(hidden, example.targets, IGNORE_INDEX),
        )
