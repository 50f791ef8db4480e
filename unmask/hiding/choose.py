"""Which tokens to hide: the first half of an objective.

Every chooser is a pure function (text, free, generator) -> hidden. `text` is framed already, where
its way of concealing frames first; `free` says which tokens may be hidden, all but the special
ones.
"""

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar, NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Int

from unmask.batch import SENTENCE, WORD, Tokens
from unmask.tokens.vocabulary import Special


class Folded(NamedTuple):
    """The most tokens that texts have once runs of tokens are folded into one token each."""

    shown: Int[np.ndarray, "m"]
    """The shown tokens, and one token for each hidden run."""
    hidden: Int[np.ndarray, "m"]
    """The hidden tokens, and one token for each run of shown ones and at either end."""
    runs: Int[np.ndarray, "m"]
    """The hidden runs."""


@runtime_checkable
class Choose(Protocol):
    """Say which tokens to hide."""

    least: ClassVar[int]
    """A text with fewer free tokens than this cannot hide anything; nothing is asked of it."""
    complete: ClassVar[bool]
    """Every token is chosen."""

    def __call__(
        self, text: Tokens, free: Bool[np.ndarray, "t"], rng: np.random.Generator
    ) -> Bool[np.ndarray, "t"]:
        """Choose tokens, of the free ones, of those between these or of those that end the text."""
        ...

    def folded(self, n: Int[np.ndarray, "m"]) -> Folded:
        """Bound the lengths of texts of `n` free tokens after folding."""
        ...


@dataclass(frozen=True)
class Tokenwise:
    """Each token on its own: round(rate * tokens) of them, at least one.

    Devlin et al. 2019, section 3.1, task 1. The special tokens count for the rate although they are
    never hidden, and halves are rounded to even (released code, `create_masked_lm_predictions`).
    Deviates: the released code also has a fixed maximum for each text, `max_predictions_per_seq`,
    which its layout on TPUs needed and ours does not.
    """

    rate: float = 0.15
    least: ClassVar[int] = 1
    complete: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_rate(self.rate)

    def __call__(
        self, text: Tokens, free: Bool[np.ndarray, "t"], rng: np.random.Generator
    ) -> Bool[np.ndarray, "t"]:
        """Hide single tokens."""
        where = np.flatnonzero(free)
        hidden = np.zeros(len(free), bool)
        n = min(max(1, round(self.rate * len(free))), len(where))
        hidden[rng.choice(where, n, replace=False)] = True
        return hidden

    def folded(self, n: Int[np.ndarray, "m"]) -> Folded:
        """No two hidden tokens may be neighbors: each is a run."""
        hidden = np.minimum(np.maximum(_rounded(self.rate * n), 1), n)
        return Folded(n, 2 * hidden + 1, hidden)


@dataclass(frozen=True)
class TokenRuns:
    """Runs of tokens, whatever their words, until round(rate * tokens) are hidden.

    A run begins at a random token that is shown; its length is n with a chance by `shares`[n - 1].
    It ends before a special token, and when enough are hidden; what it meets of another one stays
    hidden (Dong et al. 2019, arXiv:1905.03197, section 2.4; `Preprocess4Seq2seq` of the released
    code, which takes what is too much from anywhere).
    """

    rate: float = 0.15
    shares: tuple[float, ...] = (0.8, 0.1, 0.1)
    """UniLM's: single tokens four times of five, else two or three."""
    least: ClassVar[int] = 1
    complete: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_rate(self.rate)
        if min(self.shares, default=-1) < 0 or not 0 < sum(self.shares) < np.inf:
            raise ValueError(f"shares must be at least 0, and one above it, got {self.shares}")

    def __call__(
        self, text: Tokens, free: Bool[np.ndarray, "t"], rng: np.random.Generator
    ) -> Bool[np.ndarray, "t"]:
        """Hide runs of tokens."""
        where = np.flatnonzero(free)
        law = np.array(self.shares) / sum(self.shares)
        lengths = rng.choice(len(self.shares), len(where), p=law) + 1
        left = min(max(1, round(self.rate * len(free))), len(where))
        hidden = np.zeros(len(free), bool)
        for first, n in zip(rng.permutation(where).tolist(), lengths.tolist(), strict=True):
            for i in range(first, first + n if not hidden[first] else first):
                if not left or i >= len(free) or not free[i]:
                    break
                left -= not hidden[i]
                hidden[i] = True
        return hidden

    def folded(self, n: Int[np.ndarray, "m"]) -> Folded:
        """Every run may be one token: no better bound than token by token."""
        return Tokenwise(self.rate).folded(n)


@dataclass(frozen=True)
class Words:
    """Whole words: all tokens of a word, or none.

    README of BERT's released code, "New May 31st, 2019: Whole Word Masking Models"; there is no
    paper. The words come in random order; one that would bring the tokens above round(rate *
    tokens) is passed over (released code, `create_masked_lm_predictions`). So a short text of long
    words may ask nothing.
    """

    rate: float = 0.15
    least: ClassVar[int] = 1
    complete: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_rate(self.rate)

    def __call__(
        self, text: Tokens, free: Bool[np.ndarray, "t"], rng: np.random.Generator
    ) -> Bool[np.ndarray, "t"]:
        """Hide whole words."""
        word, sizes = words_of(text, free)
        n = max(1, round(self.rate * len(free)))
        chosen = np.zeros(len(sizes), bool)
        for w in rng.permutation(np.flatnonzero(sizes)).tolist():
            if sizes[w] <= n:
                chosen[w] = True
                n -= sizes[w]
            if n == 0:
                break
        return chosen[word]

    def folded(self, n: Int[np.ndarray, "m"]) -> Folded:
        """Every word may be one token: no better bound than token by token."""
        return Tokenwise(self.rate).folded(n)


@dataclass(frozen=True)
class NGrams:
    """Runs of n whole words, n drawn with a chance proportional to 1/n up to `longest`.

    Lan et al. 2020, arXiv:1909.11942, section 4.1, equation 1. The runs begin at words in random
    order. One that would bring the tokens above round(rate * tokens), or that meets a special
    token, is made shorter; one that meets a hidden word is passed over (released code,
    `create_masked_lm_predictions`).
    """

    rate: float = 0.15
    longest: int = 3
    least: ClassVar[int] = 1
    complete: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_rate(self.rate)
        if self.longest < 1:
            raise ValueError(f"longest must be at least 1 word, got {self.longest}")

    def __call__(
        self, text: Tokens, free: Bool[np.ndarray, "t"], rng: np.random.Generator
    ) -> Bool[np.ndarray, "t"]:
        """Hide runs of words."""
        first, sizes = _words(text, free)
        weights = 1 / np.arange(1, self.longest + 1)
        drawn = rng.choice(self.longest, len(first), p=weights / weights.sum()) + 1
        budget = max(1, round(self.rate * len(free)))
        hidden = np.zeros(len(free), bool)
        for i in rng.permutation(len(first)).tolist():
            run = _run(int(first[i]), sizes[i : i + int(drawn[i])], free, budget)
            if not hidden[run].any():
                hidden[run] = True
                budget -= run.stop - run.start
            if budget == 0:
                break
        return hidden

    def folded(self, n: Int[np.ndarray, "m"]) -> Folded:
        """Every word may be one token: no better bound than token by token."""
        return Tokenwise(self.rate).folded(n)


@dataclass(frozen=True)
class WordSpans:
    """Spans of whole words, whose number is drawn from a geometric law up to `longest`.

    Joshi et al. 2020, arXiv:1907.10529, section 3.1: p = 0.2 and at most 10 words, 3.8 on average,
    until ceil(rate * tokens) are hidden. A span begins with the word of a random token; the last
    one is made shorter to fit (released code, `PairWithSpanMaskingScheme`).
    Deviates: a span that would meet a hidden one begins elsewhere, where the released code hides
    the union of the two; and the last one ends with a whole word.
    """

    rate: float = 0.15
    p: float = 0.2
    longest: int = 10
    least: ClassVar[int] = 1
    complete: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_rate(self.rate)
        if not 0 < self.p <= 1:
            raise ValueError(f"p must be above 0 and at most 1, got {self.p}")
        if self.longest < 1:
            raise ValueError(f"longest must be at least 1 word, got {self.longest}")

    def __call__(
        self, text: Tokens, free: Bool[np.ndarray, "t"], rng: np.random.Generator
    ) -> Bool[np.ndarray, "t"]:
        """Hide spans of words."""
        first, sizes = _words(text, free)
        law = self.p * (1 - self.p) ** np.arange(self.longest)
        lengths = rng.choice(self.longest, len(first), p=law / law.sum()) + 1
        anchors = np.repeat(np.arange(len(first)), sizes)  # each token's word
        budget = max(1, math.ceil(self.rate * len(free)))
        hidden = np.zeros(len(free), bool)
        for n in lengths.tolist():
            for i in rng.permutation(anchors)[:TRIES].tolist():
                run = _run(int(first[i]), sizes[i : i + n], free, budget)
                if not hidden[run].any():
                    hidden[run] = True
                    budget -= run.stop - run.start
                    break
            if budget == 0:
                break
        return hidden

    def folded(self, n: Int[np.ndarray, "m"]) -> Folded:
        """Every word may be one token: no better bound than token by token."""
        return Tokenwise(min(1.0, self.rate + 1 / max(int(n.max(initial=1)), 1))).folded(n)


TRIES = 20
"""Places that are tried for a span before the next length is drawn."""


@dataclass(frozen=True)
class Contexts:
    """Runs of n whole words, each somewhere within `context` times as many tokens of its own.

    Yang et al. 2019, arXiv:1906.08237, section 3.1 (there K; its section 2.3 hides 1 of K tokens);
    n is drawn with a chance proportional to 1/n up to `longest` (released code, `_sample_mask`).
    What the runs leave of round(tokens / context) is hidden token by token.
    """

    context: int = 6
    longest: int = 5
    least: ClassVar[int] = 1
    complete: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.context < 2:
            raise ValueError(f"context must be at least 2, got {self.context}")
        if self.longest < 1:
            raise ValueError(f"longest must be at least 1 word, got {self.longest}")

    def __call__(
        self, text: Tokens, free: Bool[np.ndarray, "t"], rng: np.random.Generator
    ) -> Bool[np.ndarray, "t"]:
        """Hide runs of words, from left to right."""
        first, sizes = _words(text, free)
        weights = 1 / np.arange(1, self.longest + 1)
        weights /= weights.sum()
        budget = max(1, round(len(free) / self.context))
        hidden, begin = np.zeros(len(free), bool), 0
        while budget:
            n = int(rng.choice(self.longest, p=weights)) + 1
            behind = int(rng.integers(n * self.context))
            i = int(np.searchsorted(first, begin + behind))
            if i == len(first):
                break
            run = _run(int(first[i]), sizes[i : i + n], free, budget)
            hidden[run] = True
            budget -= run.stop - run.start
            begin = max(run.stop, run.start + 1) + max(n * (self.context - 1) - behind, 0)
        left = np.flatnonzero(free & ~hidden)
        hidden[rng.choice(left, min(budget, len(left)), replace=False)] = True
        return hidden

    def folded(self, n: Int[np.ndarray, "m"]) -> Folded:
        """Every word may be one token: no better bound than token by token."""
        return Tokenwise(1 / self.context).folded(n)


@dataclass(frozen=True)
class Spans:
    """Spans of `mean` tokens on average, at random places, with `rate` of all tokens in them.

    The hidden tokens are cut at random into spans, and so are the shown ones; the two are then laid
    alternately, shown first, so that a hidden span ends the text (Raffel et al. 2020, section
    3.3.4; `random_spans_noise_mask` in the released code). All masks with these numbers of tokens
    and spans are equally likely.
    """

    rate: float = 0.15
    mean: float = 3.0
    least: ClassVar[int] = 2
    complete: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_rate(self.rate)
        if not 1 <= self.mean < np.inf:
            raise ValueError(f"mean must be a span of at least 1 token, got {self.mean}")

    def counts(self, n: Int[np.ndarray, "m"]) -> tuple[Int[np.ndarray, "m"], Int[np.ndarray, "m"]]:
        """Count the tokens hidden of `n`, and their spans; both zero for fewer than two tokens."""
        hidden = np.minimum(np.maximum(_rounded(self.rate * n), 1), n - 1)
        spans = np.maximum(_rounded(hidden / self.mean), 1)
        # The released code takes it for granted that there are as many shown tokens as spans.
        spans = np.minimum(spans, np.minimum(hidden, n - hidden))
        return np.where(n < 2, 0, hidden), np.where(n < 2, 0, spans)

    def __call__(
        self, text: Tokens, free: Bool[np.ndarray, "t"], rng: np.random.Generator
    ) -> Bool[np.ndarray, "t"]:
        """Hide spans. Special tokens in between do not end a span.

        Raises:
            ValueError: fewer than two tokens are free to be hidden.
        """
        where = np.flatnonzero(free)
        n = len(where)
        if n < self.least:
            raise ValueError(f"spans need at least two tokens that may be hidden, got {n}")
        hidden, spans = (int(x[0]) for x in self.counts(np.array([n])))
        lengths = np.stack((_segments(n - hidden, spans, rng), _segments(hidden, spans, rng)), 1)
        mask = np.zeros(len(free), bool)
        mask[where] = np.repeat(np.arange(2 * spans) % 2 == 1, lengths.ravel())
        return mask

    def folded(self, n: Int[np.ndarray, "m"]) -> Folded:
        """Count exactly: each span begins after a shown token, and a span ends the text."""
        hidden, spans = self.counts(n)
        return Folded(n - hidden + spans, hidden + spans, spans)


@dataclass(frozen=True)
class Falling:
    """As `last` hides, but of a rate that begins at `first` and goes to that of `last` in a line.

    Charpentier and Samuel 2024, arXiv:2410.24159, section 3: from 30 % to 15 % of the tokens. By
    itself, as where held-out text is hidden, it is `last`.
    """

    first: float
    """The rate of the first step."""
    last: Tokenwise | TokenRuns | Words | NGrams | WordSpans
    """Also how tokens are chosen at any rate."""
    least: ClassVar[int] = 1
    complete: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_rate(self.first)

    def after(self, share: float) -> Choose:
        """Return the chooser of a step before which `share` of the steps were taken."""
        return replace(self.last, rate=self.first + (self.last.rate - self.first) * share)

    def __call__(
        self, text: Tokens, free: Bool[np.ndarray, "t"], rng: np.random.Generator
    ) -> Bool[np.ndarray, "t"]:
        """Hide as `last` does."""
        return self.last(text, free, rng)

    def folded(self, n: Int[np.ndarray, "m"]) -> Folded:
        """Bound the lengths at any rate between the first and the last."""
        first, last = self.after(0.0).folded(n), self.last.folded(n)
        return Folded(*map(np.maximum, first, last))


@dataclass(frozen=True)
class Fragment:
    """One run of round(rate * tokens) tokens, at least one, anywhere in a text.

    Song et al. 2019, arXiv:1905.02450, section 3.2; half of the tokens: section 4.1. All places are
    equally likely.
    """

    rate: float = 0.5
    least: ClassVar[int] = 1
    complete: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_rate(self.rate)

    def __call__(
        self, text: Tokens, free: Bool[np.ndarray, "t"], rng: np.random.Generator
    ) -> Bool[np.ndarray, "t"]:
        """Hide a run, the special tokens within it included."""
        where = np.flatnonzero(free)
        n = min(max(1, round(self.rate * len(where))), len(where))
        first = int(rng.integers(len(where) - n, endpoint=True))
        place = np.arange(len(free))
        return (where[first] <= place) & (place <= where[first + n - 1])

    def folded(self, n: Int[np.ndarray, "m"]) -> Folded:
        """One run, and shown ones on both sides of it."""
        hidden = np.minimum(np.maximum(_rounded(self.rate * n), 1), n)
        one = np.minimum(n, 1)
        return Folded(n - hidden + one, hidden + 2 * one, one)


@dataclass(frozen=True)
class Tail:
    """Everything after a point, of which one token at least is hidden and one is shown.

    All lengths of the prefix are equally likely (Raffel et al. 2020, section 3.3.1, prefix language
    modeling; `random_prefix_noise_mask` in the released code), or round(rate * tokens) are hidden
    (Tay et al. 2022, arXiv:2205.05131, table 1, S-denoiser).
    """

    rate: float | None = None
    """None: all lengths are equally likely."""
    least: ClassVar[int] = 2
    complete: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.rate is not None:
            check_rate(self.rate)

    def __call__(
        self, text: Tokens, free: Bool[np.ndarray, "t"], rng: np.random.Generator
    ) -> Bool[np.ndarray, "t"]:
        """Hide the tail, the special tokens that end the text included."""
        where = np.flatnonzero(free)
        if len(where) < self.least:
            raise ValueError(
                f"a tail needs at least two tokens that may be hidden, got {len(where)}"
            )
        if self.rate is None:
            shown = int(rng.integers(1, len(where)))
        else:
            shown = len(where) - min(max(1, round(self.rate * len(where))), len(where) - 1)
        return np.arange(len(free)) >= where[shown]

    def folded(self, n: Int[np.ndarray, "m"]) -> Folded:
        """One run; at least one token is shown, at least one hidden."""
        return Folded(n, n, np.minimum(n, 1))


@dataclass(frozen=True)
class Everything:
    """Everything: each token must be told from those before it (GPT)."""

    least: ClassVar[int] = 1
    complete: ClassVar[bool] = True

    def __call__(
        self, text: Tokens, free: Bool[np.ndarray, "t"], rng: np.random.Generator
    ) -> Bool[np.ndarray, "t"]:
        """Hide all tokens, the special tokens that end the text included."""
        return np.ones(len(free), bool)

    def folded(self, n: Int[np.ndarray, "m"]) -> Folded:
        """One run."""
        one = np.minimum(n, 1)
        return Folded(one, n + one, one)


def can_be_hidden(ids: Int[np.ndarray, "t"], special: Special) -> Bool[np.ndarray, "t"]:
    """Say which tokens are text: all but the special ones. An unknown piece of text is text.

    Raises:
        ValueError: an id is not in the vocabulary.
    """
    if len(ids) and not 0 <= ids.min() <= ids.max() < special.size:
        wrong = int(ids.max()) if ids.max() >= special.size else int(ids.min())
        raise ValueError(
            f"token id {wrong} is not in the vocabulary of {special.size} tokens: "
            "was the text prepared with another tokenizer?"
        )
    return _ordinary(special)[ids]


@lru_cache(maxsize=8)
def _ordinary(special: Special) -> Bool[np.ndarray, "v"]:
    table = np.ones(special.size, bool)
    roles = {special.pad, special.start, special.end, special.mask}
    unknown = {special.unknown} - roles  # GPT-2 has one token for all of these
    table[[i for i in special.ids - unknown if i < special.size]] = False
    return table


def check_shares(**shares: float) -> None:
    """Refuse a share of a whole that is none.

    Raises:
        ValueError: it is below 0 or above 1.
    """
    for name, share in shares.items():
        if not 0 <= share <= 1:
            raise ValueError(f"{name} must be between 0 and 1, got {share}")


def _words(
    text: Tokens, free: Bool[np.ndarray, "t"]
) -> tuple[Int[np.ndarray, "w"], Int[np.ndarray, "w"]]:
    """Return the first token of each word, and how many it has."""
    word, sizes = words_of(text, free)
    numbers = np.flatnonzero(sizes)
    return np.searchsorted(np.maximum.accumulate(word), numbers), sizes[numbers]


def _run(
    first: int, sizes: Int[np.ndarray, "n"], free: Bool[np.ndarray, "t"], budget: int
) -> slice:
    """Return the tokens of as many words as fit the budget and stand together."""
    ends = first + np.cumsum(sizes)
    fits = [end for end in ends.tolist() if end - first <= budget and free[first:end].all()]
    return slice(first, fits[-1] if fits else first)


def words_of(
    text: Tokens, free: Bool[np.ndarray, "t"]
) -> tuple[Int[np.ndarray, "t"], Int[np.ndarray, "w"]]:
    """Number the word of each token, and count the tokens of each word.

    Special tokens have the number 0, which counts no token. The piece of a word at which a row
    begins is a word as well.
    """
    word = np.cumsum(word_starts(text, free))
    word = np.where(free, word, 0)
    sizes = np.bincount(word, minlength=1)
    sizes[0] = 0
    return word, sizes


def word_starts(text: Tokens, free: Bool[np.ndarray, "t"]) -> Bool[np.ndarray, "t"]:
    """Say where words begin, a special token and what follows one included."""
    return ((text.marks & WORD) > 0) | ~free | ~np.concatenate(([False], free[:-1]))


def sentence_starts(text: Tokens) -> Int[np.ndarray, "n"]:
    """Return where sentences begin. One begins with the text, even in the middle of one."""
    starts = np.flatnonzero(text.marks & SENTENCE)
    return starts if len(starts) and not starts[0] else np.concatenate(([0], starts))


def check_rate(rate: float) -> None:
    """Refuse a share of the tokens that hides none, or is no share.

    Raises:
        ValueError: it is not above 0, or above 1.
    """
    if not 0 < rate <= 1:
        raise ValueError(f"rate must be above 0 and at most 1, got {rate}")


def _rounded(x: np.ndarray) -> Int[np.ndarray, "m"]:
    return np.rint(x).astype(np.int64)


def _segments(n: int, parts: int, rng: np.random.Generator) -> Int[np.ndarray, "parts"]:
    """Cut `n` items at random into `parts` runs, none of them empty."""
    cuts = np.sort(rng.choice(n - 1, parts - 1, replace=False)) + 1
    return np.diff(np.concatenate(([0], cuts, [n])))
