"""What must be known of any objective; and what most are: choose tokens, and conceal them."""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Int

from unmask.batch import Example, Tokens
from unmask.hiding.choose import (
    Contexts,
    Everything,
    Falling,
    Fragment,
    NGrams,
    Spans,
    Tail,
    TokenRuns,
    Tokenwise,
    Words,
    WordSpans,
    can_be_hidden,
)
from unmask.hiding.conceal import (
    Dropped,
    Future,
    InPlace,
    InSource,
    InTurn,
    Order,
    PlaceBefore,
    Sentinels,
)
from unmask.tokens.vocabulary import Special


@runtime_checkable
class AnyObjective(Protocol):
    """What must be known of an objective, one of another package included.

    Pure: the same text, special tokens and generator give the same example.
    """

    @property
    def asks(self) -> tuple[str, ...]:
        """The names of what is asked: "masked", "next_token", "next_sentence", "neighbor", ...

        The terms of the loss have the same names.
        """
        ...

    @property
    def pairs(self) -> bool:
        """It asks about two texts: `text.other` must be there."""
        ...

    @property
    def causal(self) -> bool:
        """Each place of what has targets sees those before it, and nothing else."""
        ...

    @property
    def times(self) -> int | None:
        """In so many ways is a text hidden, used in turn epoch by epoch. None: anew in each."""
        ...

    def size(self, n: Int[np.ndarray, "m"], special: Special) -> Int[np.ndarray, "m"]:
        """Count the tokens, at most, of examples made of texts of `n` tokens.

        Of an encoder-decoder, those of the side that has more.
        """
        ...

    def budget(self, length: int, special: Special) -> int:
        """Count the tokens that a text may have so that its example fits `length`."""
        ...

    def __call__(self, text: Tokens, special: Special, rng: np.random.Generator) -> Example:
        """Hide a text."""
        ...


@dataclass(frozen=True)
class Hide:
    """Choose tokens and conceal them. A text in which nothing can be hidden is asked nothing."""

    choose: (
        Tokenwise
        | TokenRuns
        | Words
        | NGrams
        | WordSpans
        | Contexts
        | Spans
        | Falling
        | Fragment
        | Tail
        | Everything
    )
    conceal: InPlace | PlaceBefore | InTurn | Order | Sentinels | Dropped | InSource | Future

    @property
    def asks(self) -> tuple[str, ...]:
        """The one name of its way of concealing."""
        return (self.conceal.asks,)

    @property
    def pairs(self) -> bool:
        """It asks about one text."""
        return False

    @property
    def causal(self) -> bool:
        """As its way of concealing has it."""
        return self.conceal.causal(self.choose)

    @property
    def times(self) -> int | None:
        """A text is hidden anew in every epoch."""
        return None

    def size(self, n: Int[np.ndarray, "m"], special: Special) -> Int[np.ndarray, "m"]:
        """Count the tokens of examples made of `n` tokens of text, at most."""
        return self.conceal.size(n, self.choose, special)

    def budget(self, length: int, special: Special) -> int:
        """Count the tokens that a text may have: for T5, 568 for an encoder that reads 512.

        That is `random_spans_helper` in the released code, which adds a token while the result
        still fits.
        """
        return longest_text(self, length, special)

    def __call__(self, text: Tokens, special: Special, rng: np.random.Generator) -> Example:
        """Hide a text."""
        return self.hide(self.conceal.frame(text, special), special, rng)

    def hide(self, framed: Tokens, special: Special, rng: np.random.Generator) -> Example:
        """Hide a text that has its frame."""
        free = can_be_hidden(framed.ids, special)
        if free.sum() >= self.choose.least:
            hidden = self.choose(framed, free, rng)
        else:
            hidden = np.zeros(len(free), bool)
        return self.conceal(framed, hidden, special, rng)


def longest_text(objective: AnyObjective, length: int, special: Special) -> int:
    """Count the tokens that a text may have so that its example fits `length`.

    Raises:
        ValueError: not one fits beside the special tokens.
    """
    top = max(length, 1)
    while objective.size(np.array([top]), special)[0] <= length:
        top *= 2
    fits = objective.size(np.arange(1, top + 1), special) <= length
    budget = int(np.argmin(fits))  # those before the first that does not fit
    if budget < 1:
        raise ValueError(f"a length of {length} leaves no room for text beside the special tokens")
    return budget
