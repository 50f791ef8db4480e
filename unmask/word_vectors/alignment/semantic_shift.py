"""Semantic shift: words whose vectors differ most between times or groups, after alignment."""

from dataclasses import dataclass

import numpy as np

from unmask.word_vectors.alignment.dictionary import identical_pairs
from unmask.word_vectors.keyed_vectors import KeyedVectors, Neighbor


@dataclass(frozen=True, kw_only=True)
class SemanticShift:
    """A word of two spaces, one of which was mapped to the other."""

    word: str
    cosine: float
    """Of its vectors in both: the lower, the farther it moved."""
    old_count: int | None
    new_count: int | None
    old_neighbors: tuple[Neighbor, ...]
    """Its nearest words in the old space."""
    new_neighbors: tuple[Neighbor, ...]


def semantic_shifts(
    old: KeyedVectors,
    new: KeyedVectors,
    n: int,
    *,
    min_count: int | None = None,
    n_neighbors: int = 8,
) -> list[SemanticShift]:
    """Find the `n` words that moved most (Hamilton et al. 2016, P16-1141, section 3.3).

    Rare words have poor vectors, so they seem to move: give spaces of frequent words alone
    (`Space.first`), or `min_count`.

    Args:
        old: Mapped to `new`, see `align`.
        new: The other space.
        n: How many, or all that there are.
        min_count: How often a word and its neighbors must have been seen, then and now.
        n_neighbors: How many are given of each word.

    Raises:
        ValueError: the spaces have no word in common, none often enough, or no counts for
            `min_count`.
    """
    if n < 1:
        raise ValueError(f"words that moved must be 1 or more, got {n}")
    if min_count is not None:
        old, new = _frequent_words(old, min_count, "old"), _frequent_words(new, min_count, "new")
    pairs = identical_pairs(old, new)
    rows, others = old.unit_vectors[pairs[:, 0]], new.unit_vectors[pairs[:, 1]]
    cosines = np.einsum("nd,nd->n", rows.astype(np.float64), others.astype(np.float64))
    some = np.argsort(cosines, kind="stable")[:n]
    words = [old.words[row] for row in pairs[some, 0]]
    then, now = old.neighbors(words, n_neighbors), new.neighbors(words, n_neighbors)
    return [
        SemanticShift(
            word=word,
            cosine=float(cosines[some[i]]),
            old_count=_word_count(old, word),
            new_count=_word_count(new, word),
            old_neighbors=tuple(then[i]),
            new_neighbors=tuple(now[i]),
        )
        for i, word in enumerate(words)
    ]


def _frequent_words(space: KeyedVectors, min_count: int, name: str) -> KeyedVectors:
    """Keep the words that were seen often enough."""
    if space.counts is None:
        raise ValueError(
            f"the {name} space does not say how often words were seen; choose the first words of it"
        )
    rows = np.flatnonzero(space.counts >= min_count)
    if not len(rows):
        raise ValueError(
            f"no word of the {name} space was seen {min_count:,} times; the most frequent "
            f"{int(space.counts.max()):,}"
        )
    words = tuple(space.words[row] for row in rows)
    return KeyedVectors(words, space.vectors[rows], space.counts[rows])


def _word_count(space: KeyedVectors, word: str) -> int | None:
    return None if space.counts is None else int(space.counts[space.index[word]])
