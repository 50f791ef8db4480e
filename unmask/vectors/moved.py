"""Words that mean something else at another time, or to another group: those that moved most."""

from dataclasses import dataclass

import numpy as np

from unmask.vectors.dictionary import identical
from unmask.vectors.space import Neighbor, Space


@dataclass(frozen=True, kw_only=True)
class Moved:
    """A word of two spaces, one of which was mapped to the other."""

    word: str
    cosine: float
    """Of its vectors in both: the lower, the farther it moved."""
    count_then: int | None
    count_now: int | None
    then: tuple[Neighbor, ...]
    """Its nearest words in the old space."""
    now: tuple[Neighbor, ...]


def moved(
    old: Space, new: Space, n: int, *, least: int | None = None, neighbors: int = 8
) -> list[Moved]:
    """Find the `n` words that moved most (Hamilton et al. 2016, P16-1141, section 3.3).

    Rare words have poor vectors, so they seem to move: give spaces of frequent words alone
    (`Space.first`), or `least`.

    Args:
        old: Mapped to `new`, see `align`.
        new: The other space.
        n: How many, or all that there are.
        least: How often a word and its neighbors must have been seen, then and now.
        neighbors: How many are given of each word.

    Raises:
        ValueError: the spaces have no word in common, none often enough, or no counts for `least`.
    """
    if n < 1:
        raise ValueError(f"words that moved must be 1 or more, got {n}")
    if least is not None:
        old, new = _often(old, least, "old"), _often(new, least, "new")
    pairs = identical(old, new)
    rows, others = old.unit[pairs[:, 0]], new.unit[pairs[:, 1]]
    cosines = np.einsum("nd,nd->n", rows.astype(np.float64), others.astype(np.float64))
    some = np.argsort(cosines, kind="stable")[:n]
    words = [old.words[row] for row in pairs[some, 0]]
    then, now = old.neighbors(words, neighbors), new.neighbors(words, neighbors)
    return [
        Moved(
            word=word,
            cosine=float(cosines[some[i]]),
            count_then=_count(old, word),
            count_now=_count(new, word),
            then=tuple(then[i]),
            now=tuple(now[i]),
        )
        for i, word in enumerate(words)
    ]


def _often(space: Space, least: int, name: str) -> Space:
    """Keep the words that were seen often enough."""
    if space.counts is None:
        raise ValueError(
            f"the {name} space does not say how often words were seen; choose the first words of it"
        )
    rows = np.flatnonzero(space.counts >= least)
    if not len(rows):
        raise ValueError(
            f"no word of the {name} space was seen {least:,} times; the most frequent "
            f"{int(space.counts.max()):,}"
        )
    words = tuple(space.words[row] for row in rows)
    return Space(words, space.vectors[rows], space.counts[rows])


def _count(space: Space, word: str) -> int | None:
    return None if space.counts is None else int(space.counts[space.index[word]])
