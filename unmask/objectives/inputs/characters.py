"""Subword and word prediction by models that read characters (CANINE, ELMo)."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from unmask.batch import IGNORE_INDEX, Example, Tokens
from unmask.objectives.corrupt import MaskInPlace, concatenate
from unmask.objectives.features import SubwordTargets, TwoStream
from unmask.objectives.objective import Objective, max_fitting_text_length
from unmask.objectives.text_units import maskable_tokens
from unmask.tokenizers.spec import SpecialTokenIds, SubwordVocabulary


@dataclass(frozen=True)
class SubwordMasking:
    """Masked subwords of another objective, with the input as characters.

    Clark et al. 2022, arXiv:2103.06874, section 3.2.2. All characters of a masked subword are
    masked; a random replacement has the same number of characters. The subword is predicted at one
    of its character positions, sampled uniformly. The subwords are those of
    `SpecialTokenIds.output_vocabulary`.

    Deviates: a word without subwords is never masked; mBERT also masks and predicts [UNK].
    """

    objective: Objective

    def __post_init__(self) -> None:
        if not isinstance(self.objective.corrupt, MaskInPlace):
            raise ValueError(
                "subwords can only be masked in place: objective.corrupt must be MaskInPlace, "
                f"got {type(self.objective.corrupt).__name__}"
            )

    @property
    def loss_terms(self) -> tuple[str, ...]:
        """The subwords."""
        return ("subwords",)

    @property
    def needs_second_text(self) -> bool:
        """False: an example has one text."""
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
        """Count the characters, which stay as many as they are.

        Raises:
            ValueError: there are no subwords, or no mask, beside the characters.
        """
        _require_subwords(special_ids)
        return np.asarray(text_lengths) + len(special_ids.prefix) + len(special_ids.suffix)

    def max_text_length(self, max_length: int, special_ids: SpecialTokenIds) -> int:
        """Count the characters that a text may have: `max_length` without the special ones."""
        return max_fitting_text_length(self, max_length, special_ids)

    def __call__(
        self, text: Tokens, special_ids: SpecialTokenIds, rng: np.random.Generator
    ) -> Example:
        """Hide subwords, and spell what is read.

        Raises:
            ValueError: there are no subwords, or no mask, beside the characters.
        """
        known, mask = _require_subwords(special_ids)
        cut = known.tokenize(text.ids)
        e = self.objective.corrupt_framed(cut.tokens, known.special_ids, rng)
        inputs = concatenate(special_ids.prefix, text, special_ids.suffix).ids
        targets, asked_at = (np.full(len(inputs), IGNORE_INDEX) for _ in range(2))
        for i in np.flatnonzero(e.targets != IGNORE_INDEX).tolist():
            read, answer = int(e.inputs[i]), int(e.targets[i])
            n, start = len(known.spell(answer)), len(special_ids.prefix) + int(cut.starts[i])
            place = start + int(rng.integers(n))
            targets[place], asked_at[start : start + n] = answer, place
            if read == known.special_ids.mask:
                inputs[start : start + n] = mask
            elif read != answer:
                inputs[start : start + n] = known.spell(int(rng.choice(known.same_length(answer))))
        return Example(inputs=inputs, targets=targets, features=(SubwordTargets(asked_at),))


@dataclass(frozen=True)
class BidirectionalWordLM:
    """Predict each word from its left context, and again from its right context.

    Two language models, one in each direction (Peters et al. 2018, arXiv:1802.05365, section 3.1).
    Words are those of `SpecialTokenIds.output_vocabulary`; a word spans several tokens, and is the
    target of the first.

    Deviates: the start and end tokens of a text are inputs, but not targets.
    """

    @property
    def loss_terms(self) -> tuple[str, ...]:
        """The words."""
        return ("both_sides",)

    @property
    def needs_second_text(self) -> bool:
        """False: an example has one text."""
        return False

    @property
    def causal(self) -> bool:
        """False: only one of the two language models reads forward."""
        return False

    @property
    def n_variants(self) -> int | None:
        """1: the objective is deterministic."""
        return 1

    def max_example_length(
        self, text_lengths: Int[np.ndarray, "m"], special_ids: SpecialTokenIds
    ) -> Int[np.ndarray, "m"]:
        """Count the tokens, which stay as many as they are."""
        return np.asarray(text_lengths) + len(special_ids.prefix) + len(special_ids.suffix)

    def max_text_length(self, max_length: int, special_ids: SpecialTokenIds) -> int:
        """Count the tokens that a text may have: `max_length` without the special ones."""
        return max_fitting_text_length(self, max_length, special_ids)

    def __call__(
        self, text: Tokens, special_ids: SpecialTokenIds, rng: np.random.Generator
    ) -> Example:
        """Name each word.

        Raises:
            ValueError: there are no words beside the characters.
        """
        known = special_ids.output_vocabulary
        if known is None:
            raise ValueError(_NO_OUTPUT_VOCABULARY.format("words"))
        words = known.tokenize(text.ids)
        inputs = concatenate(special_ids.prefix, text, special_ids.suffix).ids
        targets, asked_at = (np.full(len(inputs), IGNORE_INDEX) for _ in range(2))
        starts = len(special_ids.prefix) + words.starts
        targets[starts] = words.tokens.ids
        own = np.searchsorted(starts, np.arange(len(inputs)), "right") - 1
        of_word = (own >= 0) & maskable_tokens(inputs, special_ids)
        asked_at[of_word] = starts[own[of_word]]
        features = (SubwordTargets(asked_at), TwoStream())
        return Example(inputs=inputs, targets=targets, features=features)


def _require_subwords(special_ids: SpecialTokenIds) -> tuple[SubwordVocabulary, int]:
    """Return the subwords of characters, and what masks a character."""
    known = special_ids.output_vocabulary
    if not isinstance(known, SubwordVocabulary):
        raise ValueError(_NO_OUTPUT_VOCABULARY.format("subwords"))
    if special_ids.mask is None:
        raise ValueError("masking subwords needs a mask token, and this vocabulary has none")
    return known, special_ids.mask


_NO_OUTPUT_VOCABULARY = (
    "{} are predicted, and this tokenizer knows none beside its characters; let the preset that "
    "needs them learn one (without --tokenizer, or by `unmask prepare --model`)"
)
