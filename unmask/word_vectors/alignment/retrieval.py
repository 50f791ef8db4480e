"""The nearest words of one space to those of another, by cosine or CSLS, a block of them at a time.

All arrays here hold rows of length 1 (or of zeros): a product of two rows is their cosine. At equal
scores the first row wins, which is the more frequent word's.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

RowIndices = Int[np.ndarray, "r"]
MAX_SCORES_IN_MEMORY = 2**24
"""Scores that are held at once, 4 bytes each; never fewer than a row of them."""
_COLUMNS_PER_GROUP = 32  # columns per group, of which the largest score is computed first
_EXTRA_CANDIDATES = 8  # additional candidates, whose order is computed in float64


@dataclass(frozen=True)
class ScoreAdjustment:
    """What a cosine becomes: `cosine_factor` it, less a penalty for each of the two words."""

    cosine_factor: float
    source_penalty: Float[np.ndarray, "n"]
    target_penalty: Float[np.ndarray, "m"]


@dataclass(frozen=True)
class CosineRetrieval:
    """The cosine alone."""

    def adjustment(
        self,
        source: Float[np.ndarray, "n d"],
        target: Float[np.ndarray, "m d"],
        source_rows: RowIndices | None = None,
        exact: bool = True,
    ) -> ScoreAdjustment:
        """Return what a cosine of `source_rows` with the other space's becomes: itself."""
        n = len(source) if source_rows is None else len(source_rows)
        return ScoreAdjustment(1.0, np.zeros(n, np.float32), np.zeros(len(target), np.float32))


@dataclass(frozen=True)
class CSLS:
    """Cross-domain similarity local scaling (Lample et al. 2018, arXiv:1710.04087, section 2.3).

    Twice the cosine, less the mean cosine of either word to its `k` nearest words of the other
    space: words that are near to everything (hubs) are the nearest of few.
    """

    k: int = 10

    def __post_init__(self) -> None:
        if self.k < 1:
            raise ValueError(f"k must be 1 neighbor or more, got {self.k}")

    def adjustment(
        self,
        source: Float[np.ndarray, "n d"],
        target: Float[np.ndarray, "m d"],
        source_rows: RowIndices | None = None,
        exact: bool = True,
    ) -> ScoreAdjustment:
        """Return what a cosine becomes between `source_rows` rows of one space and the other.

        Not `exact` is faster, and its last bits differ between words with the same vector.

        Raises:
            ValueError: one of them has fewer than `k` words.
        """
        for name, space in (("source", source), ("target", target)):
            if len(space) < self.k:
                raise ValueError(
                    f"CSLS looks at k = {self.k} neighbors, but there are only {len(space)} "
                    f"{name} words; k may be at most {len(space)}"
                )
        those = source if source_rows is None else source[source_rows]
        return ScoreAdjustment(
            2.0,
            mean_top_k_cosine(those, target, self.k, exact),
            mean_top_k_cosine(target, source, self.k, exact),
        )


Retrieval = CosineRetrieval | CSLS


@dataclass(frozen=True)
class RetrievedRows:
    """The best words for some: their rows, the best first, and their scores."""

    rows: Int[np.ndarray, "q k"]
    scores: Float[np.ndarray, "q k"]


def retrieve(
    source: Float[np.ndarray, "q d"],
    target: Float[np.ndarray, "m d"],
    n: int,
    adjustment: ScoreAdjustment | None = None,
) -> RetrievedRows:
    """Find the `n` best of `target` for each row of `source`; by cosine without a measure.

    Raises:
        ValueError: `n` is more than there are target words.
    """
    if not 1 <= n <= len(target):
        raise ValueError(f"the best {n} of {len(target)} words: must be from 1 to {len(target)}")
    if adjustment is None:
        adjustment = CosineRetrieval().adjustment(source, target)
    rows = np.empty((len(source), n), np.int64)
    scores = np.empty((len(source), n), np.float32)
    for at, block in _blocks(source, target, adjustment):
        rows[at], scores[at] = _nearest(block, n, source[at], target, adjustment, at)
    return RetrievedRows(rows, scores)


def ranks(
    source: Float[np.ndarray, "q d"],
    target: Float[np.ndarray, "m d"],
    correct_rows: list[list[int]],
    adjustment: ScoreAdjustment,
) -> tuple[Int[np.ndarray, "q"], Int[np.ndarray, "q"]]:
    """Compute the rank, from 1, of the best of each row's right targets, and which row is first."""
    n = min(_EXTRA_CANDIDATES, len(target))
    found, first = np.empty(len(source), np.int64), np.empty(len(source), np.int64)
    for at, block in _blocks(source, target, adjustment):
        best, _ = _nearest(block, n, source[at], target, adjustment, at)
        first[at] = best[:, 0]
        for i, (scores, nearest) in enumerate(zip(block, best, strict=True)):
            row = at.start + i
            hits = np.flatnonzero(np.isin(nearest, correct_rows[row]))
            if len(hits):
                found[row] = hits[0] + 1
            else:
                found[row] = _rank(scores, correct_rows[row], source[row], target, adjustment, row)
    return found, first


def _rank(
    scores: Float[np.ndarray, "m"],
    answers: list[int],
    source: Float[np.ndarray, "d"],
    target: Float[np.ndarray, "m d"],
    adjustment: ScoreAdjustment,
    row: int,
) -> int:
    """Compute the best rank of the `answers` in the scores of one row."""
    best, noise = scores[answers].max(), _rounding_error(source[None], adjustment)
    near = np.flatnonzero(np.abs(scores - best) <= 2 * noise)
    order, _ = _sort_exactly(near[None], source[None], target, adjustment, slice(row, row + 1))
    above = np.count_nonzero(scores > best) - np.count_nonzero(scores[near] > best)
    return int(above + np.flatnonzero(np.isin(order[0], answers))[0]) + 1


@dataclass(frozen=True)
class BidirectionalRetrieval:
    """The best target of each source word and the best source word of each target."""

    forward: Int[np.ndarray, "n"]
    """-1: all were dropped."""
    backward: Int[np.ndarray, "m"]
    mean_cosine: float
    """The mean cosine of words to their nearest, of both directions; nothing was dropped there."""
    forward_mean_cosine: float


def retrieve_both_directions(
    source: Float[np.ndarray, "n d"],
    target: Float[np.ndarray, "m d"],
    adjustment: ScoreAdjustment,
    keep_probability: float = 1.0,
    rng: np.random.Generator | None = None,
) -> BidirectionalRetrieval:
    """Find the best word of each in both directions, in one pass.

    With `keep_probability` below 1 a pair of words is considered with that probability only.
    """
    forward = np.empty(len(source), np.int64)
    backward = np.full(len(target), -1, np.int64)
    nearest = np.empty(len(source), np.float32)
    back_nearest = np.full(len(target), -np.inf, np.float32)
    back_best = np.full(len(target), -np.inf, np.float32)
    for at, cosines in _cosines(source, target):
        nearest[at] = cosines.max(1)
        np.maximum(back_nearest, cosines.max(0), out=back_nearest)
        scores = _adjust_scores(cosines, adjustment, at)
        if keep_probability < 1:
            assert rng is not None
            scores[rng.random(scores.shape, np.float32) >= keep_probability] = -np.inf
        forward[at] = scores.argmax(1)
        dropped = np.isneginf(np.take_along_axis(scores, forward[at][:, None], 1)[:, 0])
        forward[at][dropped] = -1
        best = scores.max(0)
        better = np.flatnonzero(best > back_best)  # an equal one of an earlier block stays
        backward[better] = scores[:, better].argmax(0) + at.start
        back_best[better] = best[better]
    one, other = float(nearest.mean(dtype=float)), float(back_nearest.mean(dtype=float))
    return BidirectionalRetrieval(forward, backward, (one + other) / 2, one)


def mean_top_k_cosine(
    source: Float[np.ndarray, "n d"], target: Float[np.ndarray, "m d"], k: int, exact: bool = True
) -> Float[np.ndarray, "n"]:
    """Compute the mean cosine of each row of `source` to its `k` nearest rows of `target`."""
    measure = CosineRetrieval().adjustment(source, target)
    means = np.empty(len(source), np.float32)
    for at, block in _cosines(source, target):
        if exact:
            _, values = _nearest(block, k, source[at], target, measure, at, every=False)
            means[at] = values.mean(1, dtype=np.float64)
        else:
            values = _candidates(block, k)[1]
            top = np.partition(values, values.shape[1] - k, axis=1)[:, -k:]
            means[at] = top.mean(1, dtype=np.float64)
    return means


def _cosines(
    source: Float[np.ndarray, "n d"], target: Float[np.ndarray, "m d"]
) -> Iterator[tuple[slice, Float[np.ndarray, "b m"]]]:
    """Yield the products of some rows at a time with all others; the array is used again."""
    step = max(1, MAX_SCORES_IN_MEMORY // max(1, len(target)))
    held = np.empty((min(step, len(source)), len(target)), np.float32)
    across = target.T
    for start in range(0, len(source), step):
        at = slice(start, min(start + step, len(source)))
        yield at, np.matmul(source[at], across, out=held[: at.stop - at.start])


def _blocks(
    source: Float[np.ndarray, "n d"], target: Float[np.ndarray, "m d"], adjustment: ScoreAdjustment
) -> Iterator[tuple[slice, Float[np.ndarray, "b m"]]]:
    for at, cosines in _cosines(source, target):
        yield at, _adjust_scores(cosines, adjustment, at)


def _adjust_scores(
    cosines: Float[np.ndarray, "b m"], adjustment: ScoreAdjustment, at: slice
) -> Float[np.ndarray, "b m"]:
    """Turn cosines into scores, in their place."""
    if adjustment.cosine_factor != 1:
        cosines *= np.float32(adjustment.cosine_factor)
    cosines -= adjustment.source_penalty[at, None]
    cosines -= adjustment.target_penalty
    return cosines


def _top_k(scores: Float[np.ndarray, "b m"], k: int, every: bool = True) -> Int[np.ndarray, "b k"]:
    """Find the columns of the `k` largest scores of each row, in descending order; ties by column.

    Without `every`, ties at the end of the list are broken arbitrarily.
    """
    columns, values, sure = _candidates(scores, k)
    if k < values.shape[1]:
        some = np.argpartition(values, -k, axis=1)[:, -k:]
        least = np.take_along_axis(values, some, 1).min(1, keepdims=True)
        sure &= np.count_nonzero(values >= least, axis=1) == k
        columns, values = (np.take_along_axis(a, some, 1) for a in (columns, values))
    order = np.lexsort((columns, -values), axis=1)
    best = np.take_along_axis(columns, order, 1)
    for row in np.flatnonzero(~sure & every):  # ties may be missing or not chosen
        best[row] = np.argsort(-scores[row], kind="stable")[:k]
    return best


def _candidates(
    scores: Float[np.ndarray, "b m"], k: int
) -> tuple[Int[np.ndarray, "b c"], Float[np.ndarray, "b c"], Bool[np.ndarray, "b"]]:
    """Find a few candidate columns of each row that contain its `k` largest scores.

    The `k` largest scores are in the `k` groups of columns with the largest maxima. The last value
    marks the rows for which these groups are unique.
    """
    b, m = scores.shape
    n_groups = m // _COLUMNS_PER_GROUP
    if n_groups <= 2 * k:
        return np.broadcast_to(np.arange(m), (b, m)), scores, np.ones(b, bool)
    whole = n_groups * _COLUMNS_PER_GROUP
    largest = scores[:, :whole].reshape(b, _COLUMNS_PER_GROUP, n_groups).max(1)  # [b groups]
    groups = np.argpartition(largest, n_groups - k, axis=1)[:, -k:]  # [b k]
    least = np.take_along_axis(largest, groups, 1).min(1)
    sure = np.count_nonzero(largest >= least[:, None], axis=1) == k
    columns = groups[:, :, None] + n_groups * np.arange(_COLUMNS_PER_GROUP)  # [b k group]
    rest = np.broadcast_to(np.arange(whole, m), (b, m - whole))
    columns = np.concatenate([columns.reshape(b, -1), rest], axis=1)
    return columns, np.take_along_axis(scores, columns, 1), sure


def _nearest(
    scores: Float[np.ndarray, "b m"],
    n: int,
    source: Float[np.ndarray, "b d"],
    target: Float[np.ndarray, "m d"],
    adjustment: ScoreAdjustment,
    at: slice,
    every: bool = True,
) -> tuple[Int[np.ndarray, "b n"], Float[np.ndarray, "b n"]]:
    """Find the `n` best columns of each row and their scores, whatever the blocks were.

    A product of float32 matrices differs in its last bits with the place in the matrix, so two
    words with the same vector would come in either order: a few more than `n` are sorted by
    products in float64, and where even the last of these is as good but for rounding, all such.
    """
    few = min(n + _EXTRA_CANDIDATES, scores.shape[1])
    candidates = _top_k(scores, few, every)
    best, exact = _sort_exactly(candidates, source, target, adjustment, at)
    best, exact = best[:, :n], exact[:, :n]
    if few == scores.shape[1]:
        return best, exact
    noise = _rounding_error(source, adjustment)
    least = np.take_along_axis(scores, candidates[:, -1:], 1)[:, 0]
    last = np.take_along_axis(scores, best, 1).min(1)
    for i in np.flatnonzero((last - least <= 2 * noise) & (noise > 0)):
        near = np.flatnonzero(scores[i] >= last[i] - 2 * noise[i])
        row = slice(at.start + i, at.start + i + 1)
        order, values = _sort_exactly(near[None], source[i : i + 1], target, adjustment, row)
        best[i], exact[i] = order[0, :n], values[0, :n]
    return best, exact


def _rounding_error(
    source: Float[np.ndarray, "b d"], adjustment: ScoreAdjustment
) -> Float[np.ndarray, "b"]:
    """Compute by how much a score in float32 may be off; a row of zeros has none."""
    eps = np.finfo(np.float32).eps
    return adjustment.cosine_factor * source.shape[1] * eps * np.linalg.norm(source, axis=1)


def _sort_exactly(
    columns: Int[np.ndarray, "b c"],
    source: Float[np.ndarray, "b d"],
    target: Float[np.ndarray, "m d"],
    adjustment: ScoreAdjustment,
    at: slice,
) -> tuple[Int[np.ndarray, "b c"], Float[np.ndarray, "b c"]]:
    """Order columns of each row by their scores in float64, then by column."""
    rows, those = source.astype(np.float64), target[columns].astype(np.float64)
    scores = adjustment.cosine_factor * np.einsum("bd,bcd->bc", rows, those)
    scores -= (
        adjustment.source_penalty[at, None].astype(np.float64) + adjustment.target_penalty[columns]
    )
    order = np.lexsort((columns, -scores), axis=1)
    taken = np.take_along_axis(scores, order, 1).astype(np.float32)
    return np.take_along_axis(columns, order, 1), taken
