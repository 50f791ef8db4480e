"""Nearest occurrences of a word in a text: do they have its sense?"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from unmask.analysis.probes.features import WordFeatures
from unmask.evaluation.prompting import evenly_spaced

_N_AROUND = 6
"""Words that are shown to each side of an occurrence."""


@dataclass(frozen=True)
class Occurrence:
    """An occurrence of a word."""

    before: str
    word: str
    after: str

    @staticmethod
    def of(sentence: Sequence[str], index: int) -> "Occurrence":
        """Return the words around a word."""
        before = sentence[max(0, index - _N_AROUND) : index]
        return Occurrence(
            " ".join(before), sentence[index], " ".join(sentence[index + 1 : index + 1 + _N_AROUND])
        )


@dataclass(frozen=True, kw_only=True)
class OccurrenceNeighbors:
    """An occurrence of a word and what is near it."""

    occurrence: Occurrence
    same_word: tuple[tuple[Occurrence, float], ...]
    """Nearest occurrences of the word in other sentences, and their cosines."""
    other_words: tuple[tuple[str, float], ...]
    """Nearest other words, each once."""

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "occurrence": vars(self.occurrence),
            "same_word": [vars(one) | {"cosine": round(x, 6)} for one, x in self.same_word],
            "other_words": [{"word": one, "cosine": round(x, 6)} for one, x in self.other_words],
        }


def nearest_occurrences(
    features: WordFeatures,
    sentences: Sequence[Sequence[str]],
    word: str,
    layer: int,
    n_shown: int,
    n_nearest: int,
) -> tuple[OccurrenceNeighbors, ...]:
    """Return occurrences of a word, evenly spaced in the text, each with its neighbors.

    Args:
        features: of the sentences.
        sentences: words of each.
        word: compared without case.
        layer: whose vectors are compared.
        n_shown: occurrences.
        n_nearest: neighbors of each kind.

    Raises:
        ValueError: the word is not in two sentences.
    """
    words = [one.casefold() for one in features.select(sentences)]
    rows = [row for row, one in enumerate(words) if one == word.casefold()]
    if len(set(features.sentences[rows].tolist())) < 2:
        raise ValueError(f"the text has {word!r} in fewer than two sentences; name another word")
    x = torch.nn.functional.normalize(features.layers[layer].double(), dim=-1)
    found: list[OccurrenceNeighbors] = []
    for i in evenly_spaced(len(rows), n_shown):
        row = rows[i]
        cosines = (x @ x[row]).numpy()
        order = np.argsort(-cosines, kind="stable").tolist()
        elsewhere = [k for k in order if features.sentences[k] != features.sentences[row]]
        same = [k for k in elsewhere if words[k] == words[row]][:n_nearest]
        others: dict[str, float] = {}
        for k in elsewhere:
            if words[k] != words[row] and len(others) < n_nearest:
                others.setdefault(words[k], float(cosines[k]))
        found.append(
            OccurrenceNeighbors(
                occurrence=_occurrence(features, sentences, row),
                same_word=tuple((_occurrence(features, sentences, k), float(cosines[k]))
                                for k in same),
                other_words=tuple(others.items()),
            )
        )  # fmt: skip
    return tuple(found)


def _occurrence(features: WordFeatures, sentences: Sequence[Sequence[str]], row: int) -> Occurrence:
    return Occurrence.of(sentences[int(features.sentences[row])], int(features.words[row]))
