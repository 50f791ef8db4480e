"""What an encoder reads in the place of a text: tokens gone, masked, or in another order.

Every noise is a pure function (text, special tokens, generator) -> text, so that noises follow each
other; `unmask.hiding.denoise.Denoise` frames what comes of them and asks for the text as it was.
No noise makes a text longer, or touches a special token.
"""

import math
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Int

from unmask.batch import Tokens
from unmask.hiding.choose import (
    Contexts,
    NGrams,
    Spans,
    TokenRuns,
    Tokenwise,
    Words,
    WordSpans,
    can_be_hidden,
    check_rate,
    check_shares,
    sentence_starts,
    word_starts,
)
from unmask.hiding.conceal import InPlace
from unmask.tokens.vocabulary import Special

Some = Tokenwise | TokenRuns | Words | NGrams | WordSpans | Contexts | Spans
"""Which tokens, of all that may be hidden."""


@runtime_checkable
class Noise(Protocol):
    """Change a text."""

    def __call__(self, text: Tokens, special: Special, rng: np.random.Generator) -> Tokens:
        """Return what is read in its place, no longer than the text."""
        ...


@dataclass(frozen=True)
class TokenMasking:
    """Masks stand in the place of some tokens.

    Lewis et al. 2020, arXiv:1910.13461, section 2.2; figure 2. A share of the masks is random
    tokens (released code, `mask_random`; the paper does not have it).
    """

    choose: Some = field(default_factory=Tokenwise)
    random: float = 0.0

    def __post_init__(self) -> None:
        check_shares(random=self.random)

    def __call__(self, text: Tokens, special: Special, rng: np.random.Generator) -> Tokens:
        """Mask.

        Raises:
            ValueError: the vocabulary has neither a mask nor sentinels.
        """
        where = _chosen(self.choose, text, special, rng)
        return replace(text, ids=_masked(text.ids, where, self.random, special, rng))


@dataclass(frozen=True)
class TokenDeletion:
    """Some tokens are gone, and nothing says where (Lewis et al. 2020, section 2.2)."""

    choose: Some = field(default_factory=Tokenwise)

    def __call__(self, text: Tokens, special: Special, rng: np.random.Generator) -> Tokens:
        """Delete; what began at a token that is gone begins at the next one."""
        kept = ~_chosen(self.choose, text, special, rng)
        return _kept(text, kept, np.cumsum(kept) - kept)


@dataclass(frozen=True)
class TextInfilling:
    """Spans whose lengths follow a Poisson law; one mask stands for each, also for an empty one.

    Lewis et al. 2020, section 2.2: lengths of 3 on average; an empty span is a mask more. Lengths
    are drawn until they are ceil(rate * n) of n units together, and the last one is made shorter to
    fit; units are whole words (released code, `add_whole_word_mask`). A share of the masks is
    random tokens (there, `mask_random`; the paper does not have it).

    Deviates: spans stand anywhere beside each other; there, spans that meet are joined, and fewer
    tokens are hidden than the rate says. So all ways to lay them out are equally likely.
    Deviates: a span that meets a special token goes on behind it, with a mask of its own; and where
    empty spans would make the text longer than it was, they are left out.
    """

    rate: float = 0.3
    mean: float = 3.0
    random: float = 0.0
    of: Literal["words", "tokens"] = "words"

    def __post_init__(self) -> None:
        check_rate(self.rate)
        check_shares(random=self.random)
        if not 1 <= self.mean <= 1e6:
            raise ValueError(f"mean must be from 1 to a million {self.of}, got {self.mean}")

    def __call__(self, text: Tokens, special: Special, rng: np.random.Generator) -> Tokens:
        """Put masks in the place of spans.

        Raises:
            ValueError: the vocabulary has neither a mask nor sentinels.
        """
        free = can_be_hidden(text.ids, special)
        begins = word_starts(text, free) if self.of == "words" else np.ones(len(text), bool)
        unit = np.cumsum(begins & free) - 1  # of each token that is free
        n = int((begins & free).sum())
        if not n:
            return text
        lengths = self._lengths(math.ceil(self.rate * n), rng)
        span, gaps = _laid_out(lengths, n, rng)
        hidden = np.where(free, span[unit], 0)  # the number of each token's span, from 1
        first = (hidden > 0) & (hidden != np.concatenate(([0], hidden[:-1])))
        kept = (hidden == 0) | first
        shorter = _kept(text, kept, np.cumsum(kept) - 1)
        # An empty span stands before a unit, or at the end.
        places = np.append(np.flatnonzero(begins & free), len(text))[gaps]
        before = np.concatenate(([0], np.cumsum(kept)))[places][: len(text) - len(shorter)]
        ids, marks = (np.insert(x, before, 0) for x in (shorter.ids, shorter.marks))
        masks = np.insert(first[kept], before, True)
        return replace(text, ids=_masked(ids, masks, self.random, special, rng), marks=marks)

    def _lengths(self, budget: int, rng: np.random.Generator) -> Int[np.ndarray, "spans"]:
        """Draw lengths, in random order, that are `budget` together."""
        drawn = rng.poisson(self.mean, budget)
        while drawn.sum() < budget:
            drawn = np.concatenate((drawn, rng.poisson(self.mean, budget)))
        sums = np.cumsum(drawn)
        last = int(np.searchsorted(sums, budget))
        drawn[last] -= sums[last] - budget
        return rng.permutation(drawn[: last + 1])


@dataclass(frozen=True)
class SentencePermutation:
    """Sentences stand in a random order (Lewis et al. 2020, section 2.2).

    A share of them, rounded up, change places with each other (released code,
    `permute_sentences`). The piece of a sentence with which a row begins is one, too.

    Deviates: a sentence begins where the tokenizer has marked it; there, behind a full stop, the
    token.
    """

    share: float = 1.0

    def __post_init__(self) -> None:
        check_shares(share=self.share)

    def __call__(self, text: Tokens, special: Special, rng: np.random.Generator) -> Tokens:
        """Permute."""
        starts = sentence_starts(text)
        ends = np.append(starts[1:], len(text))
        moved = rng.permutation(len(starts))[: math.ceil(self.share * len(starts))]
        order = np.arange(len(starts))
        order[moved] = rng.permutation(moved)
        return _taken(text, np.concatenate([np.arange(starts[i], ends[i]) for i in order.tolist()]))


@dataclass(frozen=True)
class TokenPermutation:
    """Tokens stand in a random order; special ones stay where they are.

    Raffel et al. 2020, arXiv:1910.10683, section 3.3.1, deshuffling; `permute_noise_tokens` in the
    released code, of all tokens.
    """

    def __call__(self, text: Tokens, special: Special, rng: np.random.Generator) -> Tokens:
        """Permute."""
        order = np.arange(len(text))
        free = can_be_hidden(text.ids, special)
        order[free] = rng.permutation(order[free])
        return _taken(text, order)


@dataclass(frozen=True)
class DocumentRotation:
    """A text begins with a random token of it, and ends with what stood before that one.

    Lewis et al. 2020, section 2.2. So often is a text rotated at all (released code, `rotate`).
    """

    share: float = 1.0

    def __post_init__(self) -> None:
        check_shares(share=self.share)

    def __call__(self, text: Tokens, special: Special, rng: np.random.Generator) -> Tokens:
        """Rotate."""
        if not len(text) or rng.random() >= self.share:
            return text
        return _taken(text, np.roll(np.arange(len(text)), -int(rng.integers(len(text)))))


AnyNoise = (
    TokenMasking
    | TokenDeletion
    | TextInfilling
    | SentencePermutation
    | TokenPermutation
    | DocumentRotation
)
"""The kinds of noise that a recipe can hold."""


def _chosen(
    choose: Some, text: Tokens, special: Special, rng: np.random.Generator
) -> Bool[np.ndarray, "t"]:
    """Choose tokens; none, where too few may be hidden."""
    free = can_be_hidden(text.ids, special)
    if free.sum() < choose.least:
        return np.zeros(len(text), bool)
    return choose(text, free, rng) & free


def _masked(
    ids: Int[np.ndarray, "t"],
    where: Bool[np.ndarray, "t"],
    random: float,
    special: Special,
    rng: np.random.Generator,
) -> Int[np.ndarray, "t"]:
    """Put masks, or random tokens in the place of a share of them."""
    return InPlace(mask=1 - random, random=random).put(ids, where, special, rng)


def _taken(text: Tokens, order: Int[np.ndarray, "k"]) -> Tokens:
    """Return the tokens in an order, with their marks."""
    return replace(text, ids=text.ids[order], marks=text.marks[order])


def _laid_out(
    lengths: Int[np.ndarray, "spans"], n: int, rng: np.random.Generator
) -> tuple[Int[np.ndarray, "n"], Int[np.ndarray, "empty"]]:
    """Lay spans among `n` units, all ways equally likely.

    Return the number of each unit's span, from 1, or 0; and before which unit an empty span stands.
    """
    shown, spans = n - int(lengths.sum()), len(lengths)
    slots = np.sort(rng.choice(shown + spans, spans, replace=False))
    sizes, number = np.ones(shown + spans, np.int64), np.zeros(shown + spans, np.int64)
    sizes[slots], number[slots] = lengths, np.arange(1, spans + 1)
    before = np.cumsum(sizes) - sizes
    return np.repeat(number, sizes), before[slots][lengths == 0]


def _kept(text: Tokens, kept: Bool[np.ndarray, "t"], to: Int[np.ndarray, "t"]) -> Tokens:
    """Keep some tokens; what began at each begins at the kept one of number `to`, if there is."""
    marks = np.zeros(int(kept.sum()) + 1, np.int64)
    np.bitwise_or.at(marks, to, text.marks)
    return replace(text, ids=text.ids[kept], marks=marks[:-1])
