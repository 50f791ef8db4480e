"""Translation language modeling: a text and its translation, hidden as one."""

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Int

from unmask.batch import PARAGRAPH_START, Example, Tokens
from unmask.objectives.corrupt import concatenate
from unmask.objectives.objective import Objective, max_fitting_text_length
from unmask.objectives.sentence_pairs.pairs import require_masking_in_place
from unmask.tokenizers.spec import SpecialTokenIds, TextLanguages


@dataclass(frozen=True)
class TranslationLM:
    """Two sides of a translation pair, hidden together; any other text is hidden by itself.

    Conneau and Lample 2019, arXiv:1901.07291, section 3.4 and figure 1: before + A + after + before
    + B + after, where positions start anew in B, each token has the language of its side, and
    tokens of both are masked, so that a word can be found in the other language. A pair is a text
    of two paragraphs in a source of pairs (`SpecialTokenIds.is_parallel`); with sources of one
    language beside it this is MLM+TLM.

    Deviates: the two objectives take turns there, batch by batch; here rows of all sources are
    mixed, in the shares of the sources (`sampling_exponent`).
    """

    objective: Objective

    def __post_init__(self) -> None:
        require_masking_in_place(self.objective, "translation pairs")

    @property
    def loss_terms(self) -> tuple[str, ...]:
        """As the objective."""
        return self.objective.loss_terms

    @property
    def needs_second_text(self) -> bool:
        """False: both sides of a pair are in one text."""
        return False

    @property
    def causal(self) -> bool:
        """As the objective."""
        return self.objective.causal

    @property
    def n_variants(self) -> int | None:
        """A text is hidden anew in every epoch."""
        return None

    def max_example_length(
        self, text_lengths: Int[np.ndarray, "m"], special_ids: SpecialTokenIds
    ) -> Int[np.ndarray, "m"]:
        """Count the tokens: those of the text, and the special ones of both sides."""
        frame = len(special_ids.prefix) + len(special_ids.suffix)
        return np.asarray(text_lengths) + 2 * frame

    def max_text_length(self, max_length: int, special_ids: SpecialTokenIds) -> int:
        """Count the tokens that a text may have: `max_length` without the special ones."""
        return max_fitting_text_length(self, max_length, special_ids)

    def __call__(
        self, text: Tokens, special_ids: SpecialTokenIds, rng: np.random.Generator
    ) -> Example:
        """Hide a pair, or a text."""
        starts = np.flatnonzero(text.boundaries & PARAGRAPH_START)
        starts = starts[starts > 0]
        if not special_ids.is_parallel or not len(starts):
            return self.objective(text, special_ids, rng)
        a, b = text[: int(starts[0])], text[int(starts[0]) :]
        framed = [concatenate(special_ids.prefix, x, special_ids.suffix) for x in (a, b)]
        example = self.objective.corrupt_framed(concatenate(*framed), special_ids, rng)
        n = [len(side) for side in framed]
        example = replace(example, position_ids=np.concatenate([np.arange(k) for k in n]))
        languages = special_ids.text_languages
        if not languages:
            return example
        return example.with_feature(TextLanguages(np.repeat([languages[0], languages[-1]], n)))
