"""Select which tokens are prediction targets: the first half of an objective.

A selection is a pure function (text, maskable, generator) -> selected. `text` has its special
tokens where the corruption adds them first; they are not `maskable`.
"""

import math
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Int

from unmask.batch import Tokens
from unmask.objectives.text_units import (
    check_masking_rate,
    fitting_words,
    number_words,
    random_partition,
    round_half_even,
    word_spans,
)

MAX_PLACEMENT_TRIES = 20  # placements of a span, before the next length is sampled


class FoldedLengths(NamedTuple):
    """The most tokens that texts have once runs of tokens are folded into one token each."""

    source_length: Int[np.ndarray, "m"]
    """The shown tokens, and one token for each hidden run."""
    target_length: Int[np.ndarray, "m"]
    """The hidden tokens, and one token for each run of shown ones and at either end."""
    n_spans: Int[np.ndarray, "m"]
    """The hidden runs."""


@runtime_checkable
class TargetSelection(Protocol):
    """Selects the tokens that are predicted."""

    min_tokens: ClassVar[int]
    """A text with fewer maskable tokens has no targets."""
    selects_all: ClassVar[bool]
    """Every token is selected."""

    def __call__(
        self, text: Tokens, maskable: Bool[np.ndarray, "t"], rng: np.random.Generator
    ) -> Bool[np.ndarray, "t"]:
        """Select maskable tokens, and perhaps tokens between them or at the end of the text."""
        ...

    def folded_lengths(self, text_lengths: Int[np.ndarray, "m"]) -> FoldedLengths:
        """Bound the lengths of texts of `text_lengths` maskable tokens after folding."""
        ...


@dataclass(frozen=True)
class TokenMasking:
    """Independent tokens: round(rate * tokens) of them, at least one.

    Devlin et al. 2019, section 3.1, task 1. Special tokens count toward the rate although they are
    never selected, and halves are rounded to even (released code, `create_masked_lm_predictions`).
    Deviates: the released code also has a fixed maximum for each text, `max_predictions_per_seq`,
    which its TPU implementation needs.
    """

    rate: float = 0.15
    min_tokens: ClassVar[int] = 1
    selects_all: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_masking_rate(self.rate)

    def __call__(
        self, text: Tokens, maskable: Bool[np.ndarray, "t"], rng: np.random.Generator
    ) -> Bool[np.ndarray, "t"]:
        """Hide single tokens."""
        where = np.flatnonzero(maskable)
        hidden = np.zeros(len(maskable), bool)
        n = min(max(1, round(self.rate * len(maskable))), len(where))
        hidden[rng.choice(where, n, replace=False)] = True
        return hidden

    def folded_lengths(self, text_lengths: Int[np.ndarray, "m"]) -> FoldedLengths:
        """No two hidden tokens may be neighbors: each is a run."""
        hidden = np.minimum(np.maximum(round_half_even(self.rate * text_lengths), 1), text_lengths)
        return FoldedLengths(text_lengths, 2 * hidden + 1, hidden)


@dataclass(frozen=True)
class TokenSpanMasking:
    """Runs of tokens, whatever their words, until round(rate * tokens) are hidden.

    A run begins at a random token that is shown; its length is n with a chance by
    `length_weights`[n - 1]. It ends before a special token, and when enough are hidden; what it
    meets of another one stays hidden (Dong et al. 2019, arXiv:1905.03197, section 2.4;
    `Preprocess4Seq2seq` of the released code, which takes what is too much from anywhere).
    """

    rate: float = 0.15
    length_weights: tuple[float, ...] = (0.8, 0.1, 0.1)
    """UniLM's: single tokens four times of five, else two or three."""
    min_tokens: ClassVar[int] = 1
    selects_all: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_masking_rate(self.rate)
        if min(self.length_weights, default=-1) < 0 or not 0 < sum(self.length_weights) < np.inf:
            raise ValueError(
                f"length_weights must be at least 0, and one above it, got {self.length_weights}"
            )

    def __call__(
        self, text: Tokens, maskable: Bool[np.ndarray, "t"], rng: np.random.Generator
    ) -> Bool[np.ndarray, "t"]:
        """Hide runs of tokens."""
        where = np.flatnonzero(maskable)
        law = np.array(self.length_weights) / sum(self.length_weights)
        lengths = rng.choice(len(self.length_weights), len(where), p=law) + 1
        left = min(max(1, round(self.rate * len(maskable))), len(where))
        hidden = np.zeros(len(maskable), bool)
        for first, n in zip(rng.permutation(where).tolist(), lengths.tolist(), strict=True):
            for i in range(first, first + n if not hidden[first] else first):
                if not left or i >= len(maskable) or not maskable[i]:
                    break
                left -= not hidden[i]
                hidden[i] = True
        return hidden

    def folded_lengths(self, text_lengths: Int[np.ndarray, "m"]) -> FoldedLengths:
        """Every run may be one token: no better bound than token by token."""
        return TokenMasking(self.rate).folded_lengths(text_lengths)


@dataclass(frozen=True)
class WholeWordMasking:
    """Whole words: all tokens of a word, or none.

    README of BERT's released code, "New May 31st, 2019: Whole Word Masking Models"; there is no
    paper. The words come in random order; one that would bring the tokens above round(rate *
    tokens) is passed over (released code, `create_masked_lm_predictions`). So a short text of long
    words may ask nothing.
    """

    rate: float = 0.15
    min_tokens: ClassVar[int] = 1
    selects_all: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_masking_rate(self.rate)

    def __call__(
        self, text: Tokens, maskable: Bool[np.ndarray, "t"], rng: np.random.Generator
    ) -> Bool[np.ndarray, "t"]:
        """Hide whole words."""
        word, sizes = number_words(text, maskable)
        n = max(1, round(self.rate * len(maskable)))
        chosen = np.zeros(len(sizes), bool)
        for w in rng.permutation(np.flatnonzero(sizes)).tolist():
            if sizes[w] <= n:
                chosen[w] = True
                n -= sizes[w]
            if n == 0:
                break
        return chosen[word]

    def folded_lengths(self, text_lengths: Int[np.ndarray, "m"]) -> FoldedLengths:
        """Every word may be one token: no better bound than token by token."""
        return TokenMasking(self.rate).folded_lengths(text_lengths)


@dataclass(frozen=True)
class NGramMasking:
    """n-grams of whole words, with p(n) ∝ 1/n up to `max_ngram`.

    Lan et al. 2020, arXiv:1909.11942, section 4.1, equation 1. Start words are in random order. An
    n-gram that would exceed round(rate * tokens) in total, or reaches a special token, is
    shortened; one that overlaps a selected word is skipped (released code,
    `create_masked_lm_predictions`).
    """

    rate: float = 0.15
    max_ngram: int = 3
    min_tokens: ClassVar[int] = 1
    selects_all: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_masking_rate(self.rate)
        if self.max_ngram < 1:
            raise ValueError(f"max_ngram must be at least 1 word, got {self.max_ngram}")

    def __call__(
        self, text: Tokens, maskable: Bool[np.ndarray, "t"], rng: np.random.Generator
    ) -> Bool[np.ndarray, "t"]:
        """Hide runs of words."""
        first, sizes = word_spans(text, maskable)
        weights = 1 / np.arange(1, self.max_ngram + 1)
        drawn = rng.choice(self.max_ngram, len(first), p=weights / weights.sum()) + 1
        budget = max(1, round(self.rate * len(maskable)))
        hidden = np.zeros(len(maskable), bool)
        for i in rng.permutation(len(first)).tolist():
            run = fitting_words(int(first[i]), sizes[i : i + int(drawn[i])], maskable, budget)
            if not hidden[run].any():
                hidden[run] = True
                budget -= run.stop - run.start
            if budget == 0:
                break
        return hidden

    def folded_lengths(self, text_lengths: Int[np.ndarray, "m"]) -> FoldedLengths:
        """Every word may be one token: no better bound than token by token."""
        return TokenMasking(self.rate).folded_lengths(text_lengths)


@dataclass(frozen=True)
class SpanMasking:
    """Spans of whole words, with geometrically distributed lengths up to `max_span_length`.

    Joshi et al. 2020, arXiv:1907.10529, section 3.1: p = 0.2 and at most 10 words, 3.8 on average,
    until ceil(rate * tokens) are selected. A span starts with the word of a random token; the last
    one is shortened to fit (released code, `PairWithSpanMaskingScheme`).
    Deviates: a span that would overlap a selected one is placed elsewhere, where the released code
    selects the union; and the last span ends with a whole word.
    """

    rate: float = 0.15
    geometric_p: float = 0.2
    max_span_length: int = 10
    min_tokens: ClassVar[int] = 1
    selects_all: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_masking_rate(self.rate)
        if not 0 < self.geometric_p <= 1:
            raise ValueError(f"geometric_p must be above 0 and at most 1, got {self.geometric_p}")
        if self.max_span_length < 1:
            raise ValueError(f"max_span_length must be at least 1 word, got {self.max_span_length}")

    def __call__(
        self, text: Tokens, maskable: Bool[np.ndarray, "t"], rng: np.random.Generator
    ) -> Bool[np.ndarray, "t"]:
        """Hide spans of words."""
        first, sizes = word_spans(text, maskable)
        law = self.geometric_p * (1 - self.geometric_p) ** np.arange(self.max_span_length)
        lengths = rng.choice(self.max_span_length, len(first), p=law / law.sum()) + 1
        anchors = np.repeat(np.arange(len(first)), sizes)  # each token's word
        budget = max(1, math.ceil(self.rate * len(maskable)))
        hidden = np.zeros(len(maskable), bool)
        for n in lengths.tolist():
            for i in rng.permutation(anchors)[:MAX_PLACEMENT_TRIES].tolist():
                run = fitting_words(int(first[i]), sizes[i : i + n], maskable, budget)
                if not hidden[run].any():
                    hidden[run] = True
                    budget -= run.stop - run.start
                    break
            if budget == 0:
                break
        return hidden

    def folded_lengths(self, text_lengths: Int[np.ndarray, "m"]) -> FoldedLengths:
        """Every word may be one token: no better bound than token by token."""
        longest = max(int(text_lengths.max(initial=1)), 1)
        return TokenMasking(min(1.0, self.rate + 1 / longest)).folded_lengths(text_lengths)


@dataclass(frozen=True)
class ContextSpanMasking:
    """Spans of n whole words, each within a window of `context_factor` times as many tokens.

    Yang et al. 2019, arXiv:1906.08237, section 3.1 (there K; section 2.3 predicts 1 of K tokens);
    p(n) ∝ 1/n up to `max_span_length` (released code, `_sample_mask`). The remainder of
    round(tokens / context) is selected as single tokens.
    """

    context_factor: int = 6
    max_span_length: int = 5
    min_tokens: ClassVar[int] = 1
    selects_all: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.context_factor < 2:
            raise ValueError(f"context_factor must be at least 2, got {self.context_factor}")
        if self.max_span_length < 1:
            raise ValueError(f"max_span_length must be at least 1 word, got {self.max_span_length}")

    def __call__(
        self, text: Tokens, maskable: Bool[np.ndarray, "t"], rng: np.random.Generator
    ) -> Bool[np.ndarray, "t"]:
        """Hide runs of words, from left to right."""
        first, sizes = word_spans(text, maskable)
        weights = 1 / np.arange(1, self.max_span_length + 1)
        weights /= weights.sum()
        budget = max(1, round(len(maskable) / self.context_factor))
        hidden, begin = np.zeros(len(maskable), bool), 0
        while budget:
            n = int(rng.choice(self.max_span_length, p=weights)) + 1
            behind = int(rng.integers(n * self.context_factor))
            i = int(np.searchsorted(first, begin + behind))
            if i == len(first):
                break
            run = fitting_words(int(first[i]), sizes[i : i + n], maskable, budget)
            hidden[run] = True
            budget -= run.stop - run.start
            begin = max(run.stop, run.start + 1) + max(n * (self.context_factor - 1) - behind, 0)
        left = np.flatnonzero(maskable & ~hidden)
        hidden[rng.choice(left, min(budget, len(left)), replace=False)] = True
        return hidden

    def folded_lengths(self, text_lengths: Int[np.ndarray, "m"]) -> FoldedLengths:
        """Every word may be one token: no better bound than token by token."""
        return TokenMasking(1 / self.context_factor).folded_lengths(text_lengths)


@dataclass(frozen=True)
class RandomSpanMasking:
    """Spans of `mean_span_length` tokens on average, at random places: `rate` of all tokens.

    The hidden tokens are cut at random into spans, and so are the shown ones; the two are then laid
    alternately, shown first, so that a hidden span ends the text (Raffel et al. 2020, section
    3.3.4; `random_spans_noise_mask` in the released code). All masks with these numbers of tokens
    and spans are equally likely.
    """

    rate: float = 0.15
    mean_span_length: float = 3.0
    min_tokens: ClassVar[int] = 2
    selects_all: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_masking_rate(self.rate)
        if not 1 <= self.mean_span_length < np.inf:
            raise ValueError(
                f"mean_span_length must be a span of at least 1 token, got {self.mean_span_length}"
            )

    def count_spans(
        self, text_lengths: Int[np.ndarray, "m"]
    ) -> tuple[Int[np.ndarray, "m"], Int[np.ndarray, "m"]]:
        """Count the tokens hidden of `text_lengths`, and their spans; zero for fewer than two."""
        hidden = np.minimum(
            np.maximum(round_half_even(self.rate * text_lengths), 1), text_lengths - 1
        )
        spans = np.maximum(round_half_even(hidden / self.mean_span_length), 1)
        # The released code takes it for granted that there are as many shown tokens as spans.
        spans = np.minimum(spans, np.minimum(hidden, text_lengths - hidden))
        return np.where(text_lengths < 2, 0, hidden), np.where(text_lengths < 2, 0, spans)

    def __call__(
        self, text: Tokens, maskable: Bool[np.ndarray, "t"], rng: np.random.Generator
    ) -> Bool[np.ndarray, "t"]:
        """Hide spans. Special tokens in between do not end a span.

        Raises:
            ValueError: fewer than two tokens are free to be hidden.
        """
        where = np.flatnonzero(maskable)
        n = len(where)
        if n < self.min_tokens:
            raise ValueError(f"spans need at least two tokens that may be masked, got {n}")
        hidden, spans = (int(x[0]) for x in self.count_spans(np.array([n])))
        lengths = np.stack(
            (random_partition(n - hidden, spans, rng), random_partition(hidden, spans, rng)), 1
        )
        mask = np.zeros(len(maskable), bool)
        mask[where] = np.repeat(np.arange(2 * spans) % 2 == 1, lengths.ravel())
        return mask

    def folded_lengths(self, text_lengths: Int[np.ndarray, "m"]) -> FoldedLengths:
        """Count exactly: each span begins after a shown token, and a span ends the text."""
        hidden, spans = self.count_spans(text_lengths)
        return FoldedLengths(text_lengths - hidden + spans, hidden + spans, spans)


@dataclass(frozen=True)
class ScheduledRate:
    """As `final_selection` hides, but of a rate that goes from `initial_rate` to its in a line.

    Charpentier and Samuel 2024, arXiv:2410.24159, section 3: from 30 % to 15 % of the tokens. By
    itself, as where held-out text is hidden, it is `final_selection`.
    """

    initial_rate: float
    """The rate of the first step."""
    final_selection: TokenMasking | TokenSpanMasking | WholeWordMasking | NGramMasking | SpanMasking
    """Also how tokens are chosen at any rate."""
    min_tokens: ClassVar[int] = 1
    selects_all: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_masking_rate(self.initial_rate)

    def at_progress(self, progress: float) -> TargetSelection:
        """Return the chooser of a step before which `progress` of the steps were taken."""
        return replace(
            self.final_selection,
            rate=self.initial_rate + (self.final_selection.rate - self.initial_rate) * progress,
        )

    def __call__(
        self, text: Tokens, maskable: Bool[np.ndarray, "t"], rng: np.random.Generator
    ) -> Bool[np.ndarray, "t"]:
        """Hide as `final_selection` does."""
        return self.final_selection(text, maskable, rng)

    def folded_lengths(self, text_lengths: Int[np.ndarray, "m"]) -> FoldedLengths:
        """Bound the lengths at any rate between the first and the last."""
        first = self.at_progress(0.0).folded_lengths(text_lengths)
        last = self.final_selection.folded_lengths(text_lengths)
        return FoldedLengths(*map(np.maximum, first, last))


@dataclass(frozen=True)
class FragmentMasking:
    """One run of round(rate * tokens) tokens, at least one, anywhere in a text.

    Song et al. 2019, arXiv:1905.02450, section 3.2; half of the tokens: section 4.1. All places are
    equally likely.
    """

    rate: float = 0.5
    min_tokens: ClassVar[int] = 1
    selects_all: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_masking_rate(self.rate)

    def __call__(
        self, text: Tokens, maskable: Bool[np.ndarray, "t"], rng: np.random.Generator
    ) -> Bool[np.ndarray, "t"]:
        """Hide a run, the special tokens within it included."""
        where = np.flatnonzero(maskable)
        n = min(max(1, round(self.rate * len(where))), len(where))
        first = int(rng.integers(len(where) - n, endpoint=True))
        place = np.arange(len(maskable))
        return (where[first] <= place) & (place <= where[first + n - 1])

    def folded_lengths(self, text_lengths: Int[np.ndarray, "m"]) -> FoldedLengths:
        """One run, and shown ones on both sides of it."""
        hidden = np.minimum(np.maximum(round_half_even(self.rate * text_lengths), 1), text_lengths)
        one = np.minimum(text_lengths, 1)
        return FoldedLengths(text_lengths - hidden + one, hidden + 2 * one, one)


@dataclass(frozen=True)
class SuffixMasking:
    """Everything after a point, of which one token at least is hidden and one is shown.

    All lengths of the prefix are equally likely (Raffel et al. 2020, section 3.3.1, prefix language
    modeling; `random_prefix_noise_mask` in the released code), or round(rate * tokens) are hidden
    (Tay et al. 2022, arXiv:2205.05131, table 1, S-denoiser).
    """

    rate: float | None = None
    """None: all lengths are equally likely."""
    min_tokens: ClassVar[int] = 2
    selects_all: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.rate is not None:
            check_masking_rate(self.rate)

    def __call__(
        self, text: Tokens, maskable: Bool[np.ndarray, "t"], rng: np.random.Generator
    ) -> Bool[np.ndarray, "t"]:
        """Hide the tail, the special tokens that end the text included."""
        where = np.flatnonzero(maskable)
        if len(where) < self.min_tokens:
            raise ValueError(
                f"a tail needs at least two tokens that may be masked, got {len(where)}"
            )
        if self.rate is None:
            shown = int(rng.integers(1, len(where)))
        else:
            shown = len(where) - min(max(1, round(self.rate * len(where))), len(where) - 1)
        return np.arange(len(maskable)) >= where[shown]

    def folded_lengths(self, text_lengths: Int[np.ndarray, "m"]) -> FoldedLengths:
        """One run; at least one token is shown, at least one hidden."""
        return FoldedLengths(text_lengths, text_lengths, np.minimum(text_lengths, 1))


@dataclass(frozen=True)
class AllTokens:
    """Everything: each token is predicted from those before it (GPT)."""

    min_tokens: ClassVar[int] = 1
    selects_all: ClassVar[bool] = True

    def __call__(
        self, text: Tokens, maskable: Bool[np.ndarray, "t"], rng: np.random.Generator
    ) -> Bool[np.ndarray, "t"]:
        """Hide all tokens, the special tokens that end the text included."""
        return np.ones(len(maskable), bool)

    def folded_lengths(self, text_lengths: Int[np.ndarray, "m"]) -> FoldedLengths:
        """One run."""
        one_run = np.minimum(text_lengths, 1)
        return FoldedLengths(one_run, text_lengths + one_run, one_run)
