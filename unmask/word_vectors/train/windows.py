"""Objectives of word vectors as examples for display; training does not use them.

An example is a random word of a text that predicts its neighbors, or is predicted from them.
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
    """A method that trains on windows of words, as an objective of `unmask.objectives`."""

    phrase_detection: PhraseDetection | None = None
    """Phrase detection before training. None: no phrases."""

    @property
    def loss_terms(self) -> tuple[str, ...]:
        """Empty: there are no heads."""
        return ()

    @property
    def needs_second_text(self) -> bool:
        """False: an example has one text."""
        return False

    @property
    def causal(self) -> bool:
        """False: no word attends to another."""
        return False

    @property
    def n_variants(self) -> int | None:
        """None: every epoch has new samples."""
        return None

    @property
    @abstractmethod
    def window_size(self) -> tuple[int, bool]:
        """Maximum number of neighbors on each side, and whether it is sampled for each word."""

    @property
    def predicts_center(self) -> bool:
        """Whether the word is predicted from its neighbors, rather than these from the word."""
        return False

    @property
    @abstractmethod
    def visibility_description(self) -> str:
        """Describe who attends to whom."""

    def max_example_length(
        self, text_lengths: Int[np.ndarray, "m"], special_ids: SpecialTokenIds
    ) -> Int[np.ndarray, "m"]:
        """Return the maximum length of examples from texts of `text_lengths` tokens."""
        return np.minimum(2 * self.window_size[0], np.maximum(text_lengths - 1, 0))

    def max_text_length(self, max_length: int, special_ids: SpecialTokenIds) -> int:
        """Return the maximum number of tokens of a text: `max_length`."""
        return max_length

    def __call__(
        self, text: Tokens, special_ids: SpecialTokenIds, rng: np.random.Generator
    ) -> Example:
        """Sample a word of a text; each neighbor in its sentence is one position of the example."""
        known = np.flatnonzero(~np.isin(text.ids, list(special_ids.all_ids)))
        if not len(known):
            return Example(inputs=text.ids[:0], targets=text.ids[:0])
        sentence = np.cumsum(text.boundaries & SENTENCE_START > 0)
        center = int(rng.integers(len(known)))
        size, is_dynamic = self.window_size
        size = int(rng.integers(1, size + 1)) if is_dynamic else size
        position, near = known[center], known[max(center - size, 0) : center + size + 1]
        near = near[(near != position) & (sentence[near] == sentence[position])]
        neighbors, word = text.ids[near], np.full(len(near), text.ids[position])
        inputs, targets = (neighbors, word) if self.predicts_center else (word, neighbors)
        return Example(inputs=inputs, targets=targets)
