"""What must be known of any objective; and what most are: choose tokens, and conceal them."""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Int

from unmask.batch import Example, Tokens
from unmask.objectives.corrupt import (
    AutoregressiveMasking,
    CausalLM,
    DiffusionMasking,
    MaskedNextToken,
    MaskedSeq2Seq,
    MaskInPlace,
    PermutationLM,
)
from unmask.objectives.denoising.replace_spans import DropTokens, ReplaceSpans
from unmask.objectives.select import (
    AllTokens,
    ContextSpanMasking,
    FragmentMasking,
    NGramMasking,
    RandomSpanMasking,
    ScheduledRate,
    SpanMasking,
    SuffixMasking,
    TokenMasking,
    TokenSpanMasking,
    WholeWordMasking,
)
from unmask.objectives.text_units import maskable_tokens
from unmask.tokenizers.spec import SpecialTokenIds


@runtime_checkable
class AnyObjective(Protocol):
    """What must be known of an objective, one of another package included.

    Pure: the same text, special tokens and generator give the same example.
    """

    @property
    def loss_terms(self) -> tuple[str, ...]:
        """Names of the loss terms: "masked", "next_token", "next_sentence", "neighbor", ...

        Heads declare the terms that they compute.
        """
        ...

    @property
    def needs_second_text(self) -> bool:
        """Whether a second text, `text.other`, is required."""
        ...

    @property
    def causal(self) -> bool:
        """Each place of what has targets sees those before it, and nothing else."""
        ...

    @property
    def n_variants(self) -> int | None:
        """Number of corruptions of a text, which epochs cycle through. None: unlimited."""
        ...

    def max_example_length(
        self, text_lengths: Int[np.ndarray, "m"], special_ids: SpecialTokenIds
    ) -> Int[np.ndarray, "m"]:
        """Count the tokens, at most, of examples made of texts of `text_lengths` tokens.

        Of an encoder-decoder, those of the side that has more.
        """
        ...

    def max_text_length(self, max_length: int, special_ids: SpecialTokenIds) -> int:
        """Count the tokens that a text may have so that its example fits `max_length`."""
        ...

    def __call__(
        self, text: Tokens, special_ids: SpecialTokenIds, rng: np.random.Generator
    ) -> Example:
        """Hide a text."""
        ...


@dataclass(frozen=True)
class Objective:
    """Select and corrupt tokens. A text without selectable tokens has no targets."""

    select: (
        TokenMasking
        | TokenSpanMasking
        | WholeWordMasking
        | NGramMasking
        | SpanMasking
        | ContextSpanMasking
        | RandomSpanMasking
        | ScheduledRate
        | FragmentMasking
        | SuffixMasking
        | AllTokens
    )
    corrupt: (
        MaskInPlace
        | DiffusionMasking
        | MaskedNextToken
        | AutoregressiveMasking
        | PermutationLM
        | ReplaceSpans
        | DropTokens
        | MaskedSeq2Seq
        | CausalLM
    )

    @property
    def loss_terms(self) -> tuple[str, ...]:
        """The one name of its way of concealing."""
        return (self.corrupt.loss_term,)

    @property
    def needs_second_text(self) -> bool:
        """False: an example has one text."""
        return False

    @property
    def causal(self) -> bool:
        """As its way of concealing has it."""
        return self.corrupt.causal(self.select)

    @property
    def n_variants(self) -> int | None:
        """A text is hidden anew in every epoch."""
        return None

    def max_example_length(
        self, text_lengths: Int[np.ndarray, "m"], special_ids: SpecialTokenIds
    ) -> Int[np.ndarray, "m"]:
        """Count the tokens of examples made of `text_lengths` tokens of text, at most."""
        return self.corrupt.max_example_length(text_lengths, self.select, special_ids)

    def max_text_length(self, max_length: int, special_ids: SpecialTokenIds) -> int:
        """Count the tokens that a text may have: for T5, 568 for an encoder that reads 512.

        That is `random_spans_helper` in the released code, which adds a token while the result
        still fits.
        """
        return max_fitting_text_length(self, max_length, special_ids)

    def __call__(
        self, text: Tokens, special_ids: SpecialTokenIds, rng: np.random.Generator
    ) -> Example:
        """Hide a text."""
        return self.corrupt_framed(
            self.corrupt.add_special_tokens(text, special_ids), special_ids, rng
        )

    def corrupt_framed(
        self, framed: Tokens, special_ids: SpecialTokenIds, rng: np.random.Generator
    ) -> Example:
        """Hide a text that has its frame."""
        free = maskable_tokens(framed.ids, special_ids)
        if free.sum() >= self.select.min_tokens:
            hidden = self.select(framed, free, rng)
        else:
            hidden = np.zeros(len(free), bool)
        return self.corrupt(framed, hidden, special_ids, rng)


def max_fitting_text_length(
    objective: AnyObjective, max_length: int, special_ids: SpecialTokenIds
) -> int:
    """Count the tokens that a text may have so that its example fits `max_length`.

    Raises:
        ValueError: not one fits beside the special tokens.
    """
    top = max(max_length, 1)
    while objective.max_example_length(np.array([top]), special_ids)[0] <= max_length:
        top *= 2
    fits = objective.max_example_length(np.arange(1, top + 1), special_ids) <= max_length
    budget = int(np.argmin(fits))  # those before the first that does not fit
    if budget < 1:
        raise ValueError(
            f"a length of {max_length} leaves no room for text beside the special tokens"
        )
    return budget
