"""Sentence vectors as the mean of word vectors."""

import re
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from unmask.word_vectors.evaluation.similarity import CaseHandling, uses_lower_case
from unmask.word_vectors.keyed_vectors import KeyedVectors

_WORD = re.compile(r"\w+(?:['’.-]\w+)*")  # don't, U.S, well-known


def mean_word_vectors(
    space: KeyedVectors, texts: Sequence[str], *, case: CaseHandling = "auto"
) -> Float[np.ndarray, "n d"]:
    """Return the mean of the vectors of each text's words; zeros where none is known.

    Words are runs of letters and digits, joined by an apostrophe, a hyphen or a period if the space
    has such a word. Every occurrence of a known word counts, without weights.

    Args:
        space: the word vectors.
        texts: texts.
        case: whether words are lowercased for lookup: never, always, or if the space is lowercase.
    """
    low = uses_lower_case(space, case)
    found = np.zeros((len(texts), space.vector_size), np.float32)
    for row, text in zip(found, texts, strict=True):
        rows = list(_rows(space, text.lower() if low else text))
        if rows:
            row[:] = space.vectors[rows].mean(0)
    return found


def _rows(space: KeyedVectors, text: str) -> list[int]:
    """Find the rows of a text's words."""
    rows: list[int] = []
    for word in _WORD.findall(text):
        parts = [word] if word in space else re.findall(r"\w+", word)
        rows += [space.index[part] for part in parts if part in space]
    return rows
