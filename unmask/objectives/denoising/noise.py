"""Noise on the source of an encoder: deleted, masked or permuted tokens.

Each noise is a pure function (text, special tokens, generator) -> text, so that noises compose;
`unmask.objectives.denoising.denoise.DenoisingObjective` adds special tokens and the original text
as target. No noise lengthens a text or changes a special token.
"""

import math
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Int

from unmask.batch import RANDOM_TOKEN, Tokens
from unmask.objectives.corrupt import MaskInPlace
from unmask.objectives.select import (
    ContextSpanMasking,
    NGramMasking,
    RandomSpanMasking,
    SpanMasking,
    TokenMasking,
    TokenSpanMasking,
    WholeWordMasking,
)
from unmask.objectives.text_units import (
    check_fractions,
    check_masking_rate,
    maskable_tokens,
    sentence_starts,
    word_starts,
)
from unmask.tokenizers.spec import SpecialTokenIds

NoiseSelection = (
    TokenMasking
    | TokenSpanMasking
    | WholeWordMasking
    | NGramMasking
    | SpanMasking
    | ContextSpanMasking
    | RandomSpanMasking
)
"""Which tokens, of all that may be hidden."""


@runtime_checkable
class Noise(Protocol):
    """Change a text."""

    def __call__(
        self, text: Tokens, special_ids: SpecialTokenIds, rng: np.random.Generator
    ) -> Tokens:
        """Return what is read in its place, no longer than the text."""
        ...


@dataclass(frozen=True)
class TokenMaskingNoise:
    """Replace some tokens by masks.

    Lewis et al. 2020, arXiv:1910.13461, section 2.2; figure 2. A fraction of the masks are random
    tokens (released code, `mask_random`; not in the paper).
    """

    select: NoiseSelection = field(default_factory=TokenMasking)
    random_token_probability: float = 0.0

    def __post_init__(self) -> None:
        check_fractions(random_token_probability=self.random_token_probability)

    def __call__(
        self, text: Tokens, special_ids: SpecialTokenIds, rng: np.random.Generator
    ) -> Tokens:
        """Mask.

        Raises:
            ValueError: the vocabulary has neither a mask nor sentinels.
        """
        where = _select_tokens(self.select, text, special_ids, rng)
        return _mask_tokens(text, where, self.random_token_probability, special_ids, rng)


@dataclass(frozen=True)
class TokenDeletion:
    """Some tokens are gone, and nothing says where (Lewis et al. 2020, section 2.2)."""

    select: NoiseSelection = field(default_factory=TokenMasking)

    def __call__(
        self, text: Tokens, special_ids: SpecialTokenIds, rng: np.random.Generator
    ) -> Tokens:
        """Delete; what began at a token that is gone begins at the next one."""
        kept = ~_select_tokens(self.select, text, special_ids, rng)
        return _keep_tokens(text, kept, np.cumsum(kept) - kept)


@dataclass(frozen=True)
class TextInfilling:
    """Replace spans of Poisson-distributed lengths by one mask each, empty spans included.

    Lewis et al. 2020, section 2.2: lengths of 3 on average; an empty span inserts a mask. Lengths
    are sampled until they sum to ceil(rate * n) of n units, and the last one is truncated; units
    are whole words (released code, `add_whole_word_mask`). A fraction of the masks are random
    tokens (released code, `mask_random`; not in the paper).

    Deviates: spans never overlap, and all layouts are equally likely; in the released code,
    overlapping spans are merged, and fewer tokens are masked than the rate.
    Deviates: a span that reaches a special token continues after it, with a mask of its own; and
    empty spans that would lengthen the text are left out.
    """

    rate: float = 0.3
    mean_span_length: float = 3.0
    random_token_probability: float = 0.0
    unit: Literal["words", "tokens"] = "words"

    def __post_init__(self) -> None:
        check_masking_rate(self.rate)
        check_fractions(random_token_probability=self.random_token_probability)
        if not 1 <= self.mean_span_length <= 1e6:
            raise ValueError(
                f"mean_span_length must be from 1 to a million {self.unit}, got "
                f"{self.mean_span_length}"
            )

    def __call__(
        self, text: Tokens, special_ids: SpecialTokenIds, rng: np.random.Generator
    ) -> Tokens:
        """Put masks in the place of spans.

        Raises:
            ValueError: the vocabulary has neither a mask nor sentinels.
        """
        free = maskable_tokens(text.ids, special_ids)
        begins = word_starts(text, free) if self.unit == "words" else np.ones(len(text), bool)
        unit = np.cumsum(begins & free) - 1  # of each token that is free
        n = int((begins & free).sum())
        if not n:
            return text
        lengths = self._draw_span_lengths(math.ceil(self.rate * n), rng)
        span, gaps = _place_spans(lengths, n, rng)
        hidden = np.where(free, span[unit], 0)  # the number of each token's span, from 1
        first = (hidden > 0) & (hidden != np.concatenate(([0], hidden[:-1])))
        kept = (hidden == 0) | first
        shorter = _keep_tokens(text, kept, np.cumsum(kept) - 1)
        # An empty span is before a unit, or at the end.
        places = np.append(np.flatnonzero(begins & free), len(text))[gaps]
        before = np.concatenate(([0], np.cumsum(kept)))[places][: len(text) - len(shorter)]
        ids, marks = (np.insert(x, before, 0) for x in (shorter.ids, shorter.boundaries))
        masks = np.insert(first[kept], before, True)
        new = replace(text, ids=ids, boundaries=marks)
        return _mask_tokens(new, masks, self.random_token_probability, special_ids, rng)

    def _draw_span_lengths(self, budget: int, rng: np.random.Generator) -> Int[np.ndarray, "spans"]:
        """Sample lengths, in random order, that are `budget` together."""
        drawn = rng.poisson(self.mean_span_length, budget)
        while drawn.sum() < budget:
            drawn = np.concatenate((drawn, rng.poisson(self.mean_span_length, budget)))
        sums = np.cumsum(drawn)
        last = int(np.searchsorted(sums, budget))
        drawn[last] -= sums[last] - budget
        return rng.permutation(drawn[: last + 1])


@dataclass(frozen=True)
class SentencePermutation:
    """Shuffle the sentences (Lewis et al. 2020, section 2.2).

    A fraction of them, rounded up, is permuted (released code, `permute_sentences`). A partial
    sentence at the start of a row counts as one.

    Deviates: sentences start where the tokenizer marks them; in the released code, after the token
    of a period.
    """

    fraction: float = 1.0

    def __post_init__(self) -> None:
        check_fractions(fraction=self.fraction)

    def __call__(
        self, text: Tokens, special_ids: SpecialTokenIds, rng: np.random.Generator
    ) -> Tokens:
        """Permute."""
        starts = sentence_starts(text)
        ends = np.append(starts[1:], len(text))
        moved = rng.permutation(len(starts))[: math.ceil(self.fraction * len(starts))]
        order = np.arange(len(starts))
        order[moved] = rng.permutation(moved)
        return _reorder(
            text, np.concatenate([np.arange(starts[i], ends[i]) for i in order.tolist()])
        )


@dataclass(frozen=True)
class TokenPermutation:
    """Shuffle the tokens, except special tokens.

    Raffel et al. 2020, arXiv:1910.10683, section 3.3.1, deshuffling; `permute_noise_tokens` in the
    released code, of all tokens.
    """

    def __call__(
        self, text: Tokens, special_ids: SpecialTokenIds, rng: np.random.Generator
    ) -> Tokens:
        """Permute."""
        order = np.arange(len(text))
        free = maskable_tokens(text.ids, special_ids)
        order[free] = rng.permutation(order[free])
        return _reorder(text, order)


@dataclass(frozen=True)
class DocumentRotation:
    """A text begins with a random token of it, and ends with what stood before that one.

    Lewis et al. 2020, section 2.2. So often is a text rotated at all (released code, `rotate`).
    """

    probability: float = 1.0

    def __post_init__(self) -> None:
        check_fractions(probability=self.probability)

    def __call__(
        self, text: Tokens, special_ids: SpecialTokenIds, rng: np.random.Generator
    ) -> Tokens:
        """Rotate."""
        if not len(text) or rng.random() >= self.probability:
            return text
        return _reorder(text, np.roll(np.arange(len(text)), -int(rng.integers(len(text)))))


NoiseSpec = (
    TokenMaskingNoise
    | TokenDeletion
    | TextInfilling
    | SentencePermutation
    | TokenPermutation
    | DocumentRotation
)
"""The kinds of noise that a recipe can hold."""


def _select_tokens(
    selection: NoiseSelection, text: Tokens, special_ids: SpecialTokenIds, rng: np.random.Generator
) -> Bool[np.ndarray, "t"]:
    """Choose tokens; none, where too few may be hidden."""
    free = maskable_tokens(text.ids, special_ids)
    if free.sum() < selection.min_tokens:
        return np.zeros(len(text), bool)
    return selection(text, free, rng) & free


def _mask_tokens(
    text: Tokens,
    selected: Bool[np.ndarray, "t"],
    random_token_probability: float,
    special_ids: SpecialTokenIds,
    rng: np.random.Generator,
) -> Tokens:
    """Put masks, or random tokens in the place of a share of them, which are marked."""
    ids = MaskInPlace(
        mask_probability=1 - random_token_probability,
        random_token_probability=random_token_probability,
    ).mask_tokens(text.ids, selected, special_ids, rng)
    is_random = selected & (ids != special_ids.mask_or_sentinel)
    return replace(text, ids=ids, boundaries=text.boundaries | RANDOM_TOKEN * is_random)


def _reorder(text: Tokens, order: Int[np.ndarray, "k"]) -> Tokens:
    """Return the tokens in an order, with their marks."""
    return replace(text, ids=text.ids[order], boundaries=text.boundaries[order])


def _place_spans(
    lengths: Int[np.ndarray, "spans"], n_units: int, rng: np.random.Generator
) -> tuple[Int[np.ndarray, "n"], Int[np.ndarray, "empty"]]:
    """Place spans among `n_units` units, with all layouts equally likely.

    Return the number of each unit's span, from 1, or 0; and the unit that follows each empty span.
    """
    shown, spans = n_units - int(lengths.sum()), len(lengths)
    slots = np.sort(rng.choice(shown + spans, spans, replace=False))
    sizes, number = np.ones(shown + spans, np.int64), np.zeros(shown + spans, np.int64)
    sizes[slots], number[slots] = lengths, np.arange(1, spans + 1)
    before = np.cumsum(sizes) - sizes
    return np.repeat(number, sizes), before[slots][lengths == 0]


def _keep_tokens(
    text: Tokens, is_kept: Bool[np.ndarray, "t"], new_position: Int[np.ndarray, "t"]
) -> Tokens:
    """Keep some tokens, and move boundaries of dropped ones to the kept token `new_position`."""
    marks = np.zeros(int(is_kept.sum()) + 1, np.int64)
    np.bitwise_or.at(marks, new_position, text.boundaries)
    return replace(text, ids=text.ids[is_kept], boundaries=marks[:-1])
