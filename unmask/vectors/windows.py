"""What methods for word vectors ask, as examples that can be shown; they are not trained on these.

One word of a text is drawn, and asked for its neighbors, or its neighbors for it.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from unmask.batch import SENTENCE, Example, Tokens
from unmask.tokens.vocabulary import Special
from unmask.vectors.phrases import Joining


@dataclass(frozen=True, kw_only=True)
class Windowed(ABC):
    """A method that learns of windows of words: what `unmask.hiding` must know of an objective."""

    phrases: Joining | None = None
    """Neighbors that become one word before anything is learned; None: no two words do."""

    @property
    def asks(self) -> tuple[str, ...]:
        """No head is asked anything: the vectors are all that is learned."""
        return ()

    @property
    def pairs(self) -> bool:
        """It asks about one text."""
        return False

    @property
    def causal(self) -> bool:
        """No word sees another."""
        return False

    @property
    def times(self) -> int | None:
        """What is drawn is drawn anew in every epoch."""
        return None

    @property
    @abstractmethod
    def reach(self) -> tuple[int, bool]:
        """Neighbors on each side, and whether how many is drawn, up to that."""

    @property
    def inward(self) -> bool:
        """The neighbors are asked for the word, not the word for them."""
        return False

    @property
    @abstractmethod
    def sees(self) -> str:
        """Say who sees whom, for people."""

    def size(self, n: Int[np.ndarray, "m"], special: Special) -> Int[np.ndarray, "m"]:
        """Count the places of examples made of texts of `n` tokens, at most."""
        return np.minimum(2 * self.reach[0], np.maximum(n - 1, 0))

    def budget(self, length: int, special: Special) -> int:
        """Count the tokens of a text that are looked at: all."""
        return length

    def __call__(self, text: Tokens, special: Special, rng: np.random.Generator) -> Example:
        """Draw a word of a text; its neighbors in its sentence are one place each."""
        known = np.flatnonzero(~np.isin(text.ids, list(special.ids)))
        if not len(known):
            return Example(inputs=text.ids[:0], targets=text.ids[:0])
        sentence = np.cumsum(text.marks & SENTENCE > 0)
        at = int(rng.integers(len(known)))
        size, drawn = self.reach
        size = int(rng.integers(1, size + 1)) if drawn else size
        near = known[max(at - size, 0) : at + size + 1]
        near = near[(near != known[at]) & (sentence[near] == sentence[known[at]])]
        neighbors, word = text.ids[near], np.full(len(near), text.ids[known[at]])
        read, asked = (neighbors, word) if self.inward else (word, neighbors)
        return Example(inputs=read, targets=asked)
