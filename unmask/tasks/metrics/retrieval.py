"""Retrieval of captions for images and of images for captions, from a matrix of scores.

Hodosh et al. 2013, doi:10.1613/jair.3994: recall at 1, 5 and 10, and the median rank.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from unmask.tasks.metrics.intervals import Estimate, bootstrap_estimates
from unmask.tasks.metrics.regression import check_finite

RECALL_RANKS = (1, 5, 10)


@dataclass(frozen=True, kw_only=True)
class RankingScores:
    """How high the first correct candidate of each query is ranked.

    Ties are resolved in every order: all values are expectations over the order of equal scores.
    """

    recall_at: Mapping[int, Estimate]
    """For some ranks k, the share of queries with a correct candidate among the first k."""
    median_rank: Estimate
    mean_reciprocal_rank: Estimate
    n_queries: int
    n_candidates: int
    n_tied: int
    """Queries whose best correct candidate has the same score as a wrong one."""


@dataclass(frozen=True, kw_only=True)
class RetrievalScores:
    """Retrieval in both directions."""

    image_to_caption: RankingScores
    caption_to_image: RankingScores

    def to_metrics(self) -> dict[str, float]:
        """Return all values by name, without intervals: "image_to_caption_recall_at_1"."""
        metrics = dict[str, float]()
        for name, scores in vars(self).items():
            recall = {f"{name}_recall_at_{k}": one.value for k, one in scores.recall_at.items()}
            metrics |= recall | {
                f"{name}_median_rank": scores.median_rank.value,
                f"{name}_mean_reciprocal_rank": scores.mean_reciprocal_rank.value,
            }
        return metrics


def retrieval_scores(
    scores: Float[np.ndarray, "..."],
    image_of_caption: Int[np.ndarray, "..."],
    rng: np.random.Generator,
    *,
    ranks: Sequence[int] = RECALL_RANKS,
) -> RetrievalScores:
    """Score retrieval in both directions: recall at k, median rank, mean reciprocal rank.

    For an image, the rank is that of the best of its captions. If b wrong candidates have higher
    scores than it, and t wrong ones and c correct ones in all have its score, the first correct one
    is at b + j with the probability that it is the j-th of t + c in random order. Its expected
    rank is b + (t + c + 1) / (c + 1), of which the median is taken over queries.

    The 95 % intervals are of queries on other images, with the same candidates: images are drawn
    anew, each with all of its captions, which are no independent queries.

    Args:
        scores: score of each image for each caption [images captions]; higher is better.
        image_of_caption: the row of each caption's image [captions]; every image has at least one
            caption.
        rng: random number generator of the intervals.
        ranks: ranks k of recall.

    Raises:
        FloatingPointError: a score is not finite.
        ValueError: shapes or image numbers do not fit, or a rank is below 1.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> scores = np.array([[0.9, 0.8, 0.1], [0.2, 0.8, 0.7]])
        >>> found = retrieval_scores(scores, np.array([0, 0, 1]), rng)
        >>> found.image_to_caption.recall_at[1].value
        0.5
        >>> round(found.caption_to_image.recall_at[1].value, 3)  # of two, one is tied
        0.833
    """
    _check_matrix(scores, image_of_caption, ranks)
    is_correct = image_of_caption == np.arange(len(scores))[:, None]
    images = np.arange(len(scores))
    return RetrievalScores(
        image_to_caption=_score_ranking(_rank(scores, is_correct, ranks), images, rng),
        caption_to_image=_score_ranking(
            _rank(scores.T, is_correct.T, ranks), image_of_caption, rng
        ),
    )


@dataclass(frozen=True)
class _Ranking:
    """Expectations for each query."""

    ranks: Sequence[int]
    is_within: Float[np.ndarray, "q k"]
    """Probability that a correct candidate is among the first k."""
    rank: Float[np.ndarray, "q"]
    reciprocal_rank: Float[np.ndarray, "q"]
    n_candidates: int
    n_tied: int


def _rank(
    scores: Float[np.ndarray, "q candidates"],
    is_correct: Bool[np.ndarray, "q candidates"],
    ranks: Sequence[int],
) -> _Ranking:
    rows: list[tuple[float, ...]] = []
    n_tied = 0
    for row, correct in zip(scores, is_correct, strict=True):
        best = row[correct].max()
        n_better = int((row > best).sum())
        n_correct = int((row[correct] == best).sum())
        n_wrong = int((row == best).sum()) - n_correct
        n_tied += n_wrong > 0
        rows.append(_expectations(n_better, n_wrong, n_correct, ranks))
    table = np.array(rows)
    return _Ranking(ranks, table[:, 2:], table[:, 0], table[:, 1], scores.shape[1], n_tied)


def _expectations(
    n_better: int, n_wrong: int, n_correct: int, ranks: Sequence[int]
) -> tuple[float, ...]:
    """Return the expected rank and reciprocal rank, and the probability to be within each rank."""
    j = np.arange(n_wrong)
    # that the first 0, 1, ... of those with equal scores, in random order, are all wrong
    later = np.concatenate([[1.0], np.cumprod((n_wrong - j) / (n_wrong + n_correct - j)), [0.0]])
    positions = n_better + 1 + np.arange(n_wrong + 1)
    within = [1 - later[min(max(k - n_better, 0), n_wrong + 1)] for k in ranks]
    return (n_better + float(later.sum()), float((-np.diff(later) / positions).sum()), *within)


def _score_ranking(
    ranking: _Ranking, image_of_query: Int[np.ndarray, "q"], rng: np.random.Generator
) -> RankingScores:
    order = np.argsort(ranking.rank, kind="stable")
    columns = np.column_stack([ranking.reciprocal_rank, ranking.is_within])

    def statistics(counts: Int[np.ndarray, "images"]) -> Float[np.ndarray, "k"]:
        weights = counts[image_of_query]
        median = _weighted_median(ranking.rank[order], weights[order])
        return np.append(weights @ columns / weights.sum(), median)

    reciprocal, *recalls, median = bootstrap_estimates(
        statistics, int(image_of_query.max()) + 1, rng
    )
    return RankingScores(
        recall_at=dict(zip(ranking.ranks, recalls, strict=True)),
        median_rank=median,
        mean_reciprocal_rank=reciprocal,
        n_queries=len(ranking.rank),
        n_candidates=ranking.n_candidates,
        n_tied=ranking.n_tied,
    )


def _weighted_median(ascending: Float[np.ndarray, "n"], counts: Int[np.ndarray, "n"]) -> float:
    """Return the median of values that each occur some times: of an even number, between two."""
    ends = np.cumsum(counts)
    middle = np.searchsorted(ends, [(ends[-1] - 1) // 2, ends[-1] // 2], side="right")
    return float(ascending[middle].mean())


def _check_matrix(
    scores: Float[np.ndarray, "..."],
    image_of_caption: Int[np.ndarray, "..."],
    ranks: Sequence[int],
) -> None:
    if scores.ndim != 2 or not scores.size or image_of_caption.shape != scores.shape[1:]:
        raise ValueError(
            f"scores must be [images, captions] and image_of_caption [captions], got "
            f"{list(scores.shape)} and {list(image_of_caption.shape)}"
        )
    if not ranks or min(ranks) < 1:
        raise ValueError(f"ranks must be at least 1, got {list(ranks)}")
    check_finite(scores)
    low, high = int(image_of_caption.min()), int(image_of_caption.max())
    if low < 0 or high >= len(scores):
        raise ValueError(
            f"image_of_caption must be from 0 to {len(scores) - 1}, got {low} to {high}"
        )
    without = np.flatnonzero(np.bincount(image_of_caption, minlength=len(scores)) == 0)
    if len(without):
        raise ValueError(f"each image must have a caption, but {without[0]} has none")
