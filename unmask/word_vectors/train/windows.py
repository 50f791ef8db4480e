"""What methods for word vectors ask, as examples that can be shown; they are not trained on these.

One word of a text is drawn, and asked for its neighbors, or its neighbors for it.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from unmask.batch import SENTENCE_START, Example, Tokens
from unmask.tokenizers.spec import SpecialTokenIds
from unmask.word_vectors.train.phrases import PhraseDetection


@dataclass(frozen=True, kw_only=True)
class WindowMethod(ABC):
    """A method that learns of windows of words: what `unmask.objectives` must know of it."""

    phrase_detection: PhraseDetection | None = None
    """Neighbors that become one word before anything is learned; None: no two words do."""

    @property
    def loss_terms(self) -> tuple[str, ...]:
        """No head is asked anything: the vectors are all that is learned."""
        return ()

    @property
    def needs_second_text(self) -> bool:
        """It asks about one text."""
        return False

    @property
    def causal(self) -> bool:
        """No word sees another."""
        return False

    @property
    def n_variants(self) -> int | None:
        """What is drawn is drawn anew in every epoch."""
        return None

    @property
    @abstractmethod
    def window_size(self) -> tuple[int, bool]:
        """Neighbors on each side, and whether how many is drawn, up to that."""

    @property
    def predicts_center(self) -> bool:
        """The neighbors are asked for the word, not the word for them."""
        return False

    @property
    @abstractmethod
    def visibility_description(self) -> str:
        """Describe who attends to whom."""

    def max_example_length(
        self, text_lengths: Int[np.ndarray, "m"], special_ids: SpecialTokenIds
    ) -> Int[np.ndarray, "m"]:
        """Count the places of examples made of texts of `text_lengths` tokens, at most."""
        return np.minimum(2 * self.window_size[0], np.maximum(text_lengths - 1, 0))

    def max_text_length(self, max_length: int, special_ids: SpecialTokenIds) -> int:
        """Count the tokens of a text that are looked at: all."""
        return max_length

    def __call__(
        self, text: Tokens, special_ids: SpecialTokenIds, rng: np.random.Generator
    ) -> Example:
        """Draw a word of a text; its neighbors in its sentence are one place each."""
        known = np.flatnonzero(~np.isin(text.ids, list(special_ids.all_ids)))
        if not len(known):
            return Example(inputs=text.ids[:0], targets=text.ids[:0])
        sentence = np.cumsum(text.boundaries & SENTENCE_START > 0)
        at = int(rng.integers(len(known)))
        size, drawn = self.window_size
        size = int(rng.integers(1, size + 1)) if drawn else size
        near = known[max(at - size, 0) : at + size + 1]
        near = near[(near != known[at]) & (sentence[near] == sentence[known[at]])]
        neighbors, word = text.ids[near], np.full(len(near), text.ids[known[at]])
        read, asked = (neighbors, word) if self.predicts_center else (word, neighbors)
        return Example(inputs=read, targets=asked)
