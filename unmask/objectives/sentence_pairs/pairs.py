"""Texts beside each other in a row: two with a question, a text and its crop, all sentences."""

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from jaxtyping import Int

from unmask.batch import IGNORE_INDEX, Example, Tokens
from unmask.objectives.corrupt import MaskInPlace, concatenate
from unmask.objectives.features import ShiftedTargets
from unmask.objectives.objective import Objective, max_fitting_text_length
from unmask.objectives.sentence_pairs.tasks import (
    ADJACENT_SENTENCE_TERMS,
    NextSentencePrediction,
    NextTextDiscrimination,
    SentenceOrderPrediction,
)
from unmask.objectives.text_units import sentence_starts
from unmask.tokenizers.spec import SpecialTokenIds


def require_masking_in_place(objective: Objective, what: str) -> None:
    """Refuse an objective that does more to texts than mask them in place.

    Raises:
        ValueError: it does.
    """
    if not isinstance(objective.corrupt, MaskInPlace):
        raise ValueError(
            f"{what} can only be masked in place: objective.corrupt must be MaskInPlace, got "
            f"{type(objective.corrupt).__name__}"
        )


@dataclass(frozen=True)
class _TwoTextObjective:
    """Two texts hidden in place, with a question about them."""

    objective: Objective
    sentence_task: NextSentencePrediction | SentenceOrderPrediction | NextTextDiscrimination

    def __post_init__(self) -> None:
        require_masking_in_place(self.objective, "two texts")

    @property
    def loss_terms(self) -> tuple[str, ...]:
        """The loss terms of the objective and of the pair task."""
        return (*self.objective.loss_terms, self.sentence_task.loss_term)

    @property
    def causal(self) -> bool:
        """As the objective."""
        return self.objective.causal

    @property
    def n_variants(self) -> int | None:
        """A text is hidden anew in every epoch."""
        return None


@dataclass(frozen=True)
class SentencePairObjective(_TwoTextObjective):
    """Two texts hidden as one, before + A + between + B + after, with a question about the two."""

    objective: Objective
    sentence_task: NextSentencePrediction | SentenceOrderPrediction = NextSentencePrediction()

    @property
    def needs_second_text(self) -> bool:
        """Some of the second texts are from elsewhere."""
        return self.sentence_task.needs_other_text

    def max_example_length(
        self, text_lengths: Int[np.ndarray, "m"], special_ids: SpecialTokenIds
    ) -> Int[np.ndarray, "m"]:
        """Count the tokens: those of the row, or one for each text, and the special ones."""
        frame = len(special_ids.prefix) + len(special_ids.separator) + len(special_ids.suffix)
        return np.maximum(text_lengths, 2) + frame

    def max_text_length(self, max_length: int, special_ids: SpecialTokenIds) -> int:
        """Count the tokens that a text may have: `max_length` without the special ones."""
        return max_fitting_text_length(self, max_length, special_ids)

    def __call__(
        self, text: Tokens, special_ids: SpecialTokenIds, rng: np.random.Generator
    ) -> Example:
        """Make two texts of one (or of it and `text.other`), and hide."""
        a, b, label = self.sentence_task(text, rng)
        between = special_ids.separator if len(b) else ()
        framed = concatenate(special_ids.prefix, a, between, b, special_ids.suffix)
        example = self.objective.corrupt_framed(framed, special_ids, rng)
        first = len(special_ids.prefix) + len(a) + len(between) if len(b) else len(framed)
        segments = (np.arange(len(framed)) >= first).astype(np.int64)
        return replace(example, segments=segments, label=label)


@dataclass(frozen=True)
class SplitTextObjective(_TwoTextObjective):
    """Two parts of a text, each corrupted and encoded separately, with a task on the pair.

    Both are in one row, before + A + after + before + B + after, without attention between them,
    and positions restart in each. The representation of a part therefore equals that of the same
    text alone.
    """

    objective: Objective
    sentence_task: NextTextDiscrimination = NextTextDiscrimination()

    @property
    def needs_second_text(self) -> bool:
        """Both parts are of one text."""
        return False

    def max_example_length(
        self, text_lengths: Int[np.ndarray, "m"], special_ids: SpecialTokenIds
    ) -> Int[np.ndarray, "m"]:
        """Count the tokens: those of the text, and the special ones of both parts."""
        return np.asarray(text_lengths) + 2 * (len(special_ids.prefix) + len(special_ids.suffix))

    def max_text_length(self, max_length: int, special_ids: SpecialTokenIds) -> int:
        """Count the tokens that a text may have: `max_length` without the special ones."""
        return max_fitting_text_length(self, max_length, special_ids)

    def __call__(
        self, text: Tokens, special_ids: SpecialTokenIds, rng: np.random.Generator
    ) -> Example:
        """Cut a text in two, and hide."""
        a, b = self.sentence_task(text, rng)
        first = len(special_ids.prefix) + len(a) + len(special_ids.suffix)
        second = (special_ids.prefix, b, special_ids.suffix) if len(b) else ()
        framed = concatenate(special_ids.prefix, a, special_ids.suffix, *second)
        example = self.objective.corrupt_framed(framed, special_ids, rng)
        return replace(example, part_ids=(np.arange(len(framed)) >= first).astype(np.int64))


@dataclass(frozen=True)
class CropContrastiveObjective:
    """A text hidden, and beside it a crop of what it was: the two are to be found alike.

    Meng et al. 2021, arXiv:2102.08473, section 3.3: a contiguous part with `crop_fraction` of the
    tokens. Both are in one row and do not see each other, as in `SplitTextObjective`; nothing of
    the crop is hidden.
    """

    objective: Objective
    crop_fraction: float = 0.9

    def __post_init__(self) -> None:
        require_masking_in_place(self.objective, "beside a crop, texts")
        if not 0 < self.crop_fraction <= 1:
            raise ValueError(
                f"crop_fraction must be above 0 and at most 1, got {self.crop_fraction}"
            )

    @property
    def loss_terms(self) -> tuple[str, ...]:
        """The loss terms of the objective and of the contrastive task."""
        return (*self.objective.loss_terms, "crop")

    @property
    def needs_second_text(self) -> bool:
        """Both are of one text."""
        return False

    @property
    def causal(self) -> bool:
        """As the objective."""
        return self.objective.causal

    @property
    def n_variants(self) -> int | None:
        """A text is hidden anew in every epoch."""
        return None

    def _crop_length(self, text_lengths: Int[np.ndarray, "m"]) -> Int[np.ndarray, "m"]:
        return np.ceil(self.crop_fraction * np.asarray(text_lengths)).astype(np.int64)

    def max_example_length(
        self, text_lengths: Int[np.ndarray, "m"], special_ids: SpecialTokenIds
    ) -> Int[np.ndarray, "m"]:
        """Count the tokens of the text and its crop, each with its special ones."""
        frame = len(special_ids.prefix) + len(special_ids.suffix)
        return (
            self.objective.max_example_length(text_lengths, special_ids)
            + self._crop_length(text_lengths)
            + frame
        )

    def max_text_length(self, max_length: int, special_ids: SpecialTokenIds) -> int:
        """Count the tokens that a text may have."""
        return max_fitting_text_length(self, max_length, special_ids)

    def __call__(
        self, text: Tokens, special_ids: SpecialTokenIds, rng: np.random.Generator
    ) -> Example:
        """Hide the text, and crop it."""
        whole = self.objective(text, special_ids, rng)
        n = int(self._crop_length(np.array([len(text)]))[0])
        first = int(rng.integers(len(text) - n, endpoint=True))
        crop = concatenate(special_ids.prefix, text[first : first + n], special_ids.suffix).ids
        part = np.repeat([0, 1], [len(whole.inputs), len(crop)])
        return Example(
            inputs=np.concatenate((whole.inputs, crop)),
            targets=np.concatenate((whole.targets, np.full(len(crop), IGNORE_INDEX))),
            part_ids=part,
        )


@dataclass(frozen=True)
class AdjacentSentences:
    """The sentences of a text, each encoded separately, which predict their neighbors.

    All are in one row, before + A + after + before + B + after + ..., without attention between
    them, and positions restart in each. The representation of a sentence therefore equals that of
    the same text alone. Each predicts the previous and the next sentence: their words (Kiros et al.
    2015, arXiv:1506.06726, section 2.1), or which of the batch's sentences they are (Logeswaran and
    Lee 2018, arXiv:1803.02893, section 3, with a context of one sentence on either side).

    The target of a token is then the next one in its sentence. A single sentence has no targets.
    """

    reconstruct: bool = True
    """Whether the neighbors' words are predicted (skip-thoughts), or their identity
    (quick-thoughts)."""
    min_mean_tokens: int = 4
    """Tokens of a sentence, on average, at least: of a text with shorter ones the last are left
    out, so that it is known how long an example can be."""

    def __post_init__(self) -> None:
        if self.min_mean_tokens < 1:
            raise ValueError(f"min_mean_tokens must be at least 1, got {self.min_mean_tokens}")

    @property
    def loss_terms(self) -> tuple[str, ...]:
        """The words of the sentences beside each, or which they are."""
        return ADJACENT_SENTENCE_TERMS[:1] if self.reconstruct else ADJACENT_SENTENCE_TERMS[1:]

    @property
    def needs_second_text(self) -> bool:
        """All are of one text."""
        return False

    @property
    def causal(self) -> bool:
        """False: words are predicted given another sentence."""
        return False

    @property
    def n_variants(self) -> int | None:
        """There is one way to read the sentences of a text."""
        return 1

    def max_sentences(self, text_lengths: Int[np.ndarray, "m"]) -> Int[np.ndarray, "m"]:
        """Return how many sentences are read of texts of `text_lengths` tokens, at most."""
        return np.maximum(-(-np.asarray(text_lengths) // self.min_mean_tokens), 1)

    def max_example_length(
        self, text_lengths: Int[np.ndarray, "m"], special_ids: SpecialTokenIds
    ) -> Int[np.ndarray, "m"]:
        """Count the tokens: those of the text, and the special ones of each sentence."""
        return np.asarray(text_lengths) + self.max_sentences(text_lengths) * (
            len(special_ids.prefix) + len(special_ids.suffix)
        )

    def max_text_length(self, max_length: int, special_ids: SpecialTokenIds) -> int:
        """Count the tokens that a text may have: `max_length` without the special ones."""
        return max_fitting_text_length(self, max_length, special_ids)

    def __call__(
        self, text: Tokens, special_ids: SpecialTokenIds, rng: np.random.Generator
    ) -> Example:
        """Cut a text into its sentences."""
        borders = [*sentence_starts(text).tolist(), len(text)]
        most = int(self.max_sentences(np.array([len(text)]))[0])
        read = [
            concatenate(special_ids.prefix, text[start:end], special_ids.suffix).ids
            for start, end in list(pairwise(borders))[:most]
        ]
        inputs = np.concatenate(read)
        targets = np.full(len(inputs), IGNORE_INDEX)
        if self.reconstruct and len(read) > 1:
            targets = np.concatenate([np.append(ids[1:], IGNORE_INDEX) for ids in read])
        part = np.repeat(np.arange(len(read)), [len(ids) for ids in read])
        features = (ShiftedTargets(),) if self.reconstruct else ()
        return Example(inputs=inputs, targets=targets, part_ids=part, features=features)
