"""Maps between two spaces: fitted on pairs of words, which a map then finds more of."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from unmask.word_vectors.alignment.dictionary import RowPairs
from unmask.word_vectors.alignment.retrieval import (
    CSLS,
    BidirectionalRetrieval,
    CosineRetrieval,
    Retrieval,
    retrieve_both_directions,
)
from unmask.word_vectors.keyed_vectors import KeyedVectors

_ROWS = 2**13  # that are divided by their lengths together

# How vectors are prepared


@dataclass(frozen=True)
class UnitNormalization:
    """Divide each vector by its length; zeros stay (Xing et al. 2015, N15-1104)."""

    def __call__(self, vectors: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
        """Prepare the vectors of a space."""
        return _normalize_rows(vectors)


@dataclass(frozen=True)
class MeanCentering:
    """Subtract the mean of all vectors (Artetxe et al. 2016, D16-1250)."""

    def __call__(self, vectors: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
        """Prepare the vectors of a space."""
        return vectors - vectors.mean(0, dtype=np.float64).astype(np.float32)


Preparation = UnitNormalization | MeanCentering
DEFAULT_PREPARATION: tuple[Preparation, ...] = (
    UnitNormalization(),
    MeanCentering(),
    UnitNormalization(),
)
"""What Artetxe et al. 2018 (P18-1073, section 3.1) do before they map."""


def prepare_vectors(
    space: KeyedVectors, steps: Sequence[Preparation] = DEFAULT_PREPARATION
) -> KeyedVectors:
    """Prepare the vectors of a space, one step after the other; words without a row have none."""
    vectors = space.vectors
    for step in steps:
        vectors = step(vectors)
    return replace(space, vectors=vectors, composer=None)


def _normalize_rows(vectors: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
    """Divide each row by its length, in float64, some rows at a time; a row of zeros stays."""
    found = np.empty_like(vectors, np.float32)
    for start in range(0, len(vectors), _ROWS):
        some = vectors[start : start + _ROWS].astype(np.float64)
        length = np.linalg.norm(some, axis=1, keepdims=True)
        found[start : start + _ROWS] = some / np.where(length > 0, length, 1)
    return found


# Maps


@dataclass(frozen=True)
class LeastSquaresMap:
    """The matrix with the least squared distance to the targets (Mikolov et al. 2013, 1309.4168).

    With fewer pairs than dimensions, that one of them which is smallest.
    """

    def fit(
        self, source: Float[np.ndarray, "p d"], target: Float[np.ndarray, "p e"]
    ) -> Float[np.ndarray, "d e"]:
        """Fit the matrix that a source vector is multiplied by."""
        return np.linalg.lstsq(source.astype(np.float64), target.astype(np.float64), rcond=None)[0]


@dataclass(frozen=True)
class OrthogonalProcrustes:
    """The rotation, or reflection, with the least squared distance to the targets.

    Of unit vectors it is the one with the largest sum of cosines (Xing et al. 2015, N15-1104;
    solved by a singular value decomposition: Artetxe et al. 2016, D16-1250).
    """

    def fit(
        self, source: Float[np.ndarray, "p d"], target: Float[np.ndarray, "p e"]
    ) -> Float[np.ndarray, "d e"]:
        """Fit the matrix that a source vector is multiplied by.

        Raises:
            ValueError: the widths differ.
        """
        if source.shape[1] != target.shape[1]:
            raise ValueError(
                f"Procrustes turns a space, so both must have one width: got {source.shape[1]} "
                f"(source) and {target.shape[1]} (target); least squares maps between any"
            )
        u, _, v = np.linalg.svd(source.astype(np.float64).T @ target.astype(np.float64))
        return u @ v


LinearMap = LeastSquaresMap | OrthogonalProcrustes

# More pairs from a map


def _check_vocabulary_cutoff(frequent: int | None) -> None:
    if frequent is not None and frequent < 1:
        raise ValueError(f"the most frequent words must be 1 or more, got {frequent}")


@dataclass(frozen=True, kw_only=True)
class AlignmentRound:
    """One map, the pairs that it was fitted on, and what it reaches."""

    index: int
    """0: the seeds alone."""
    map_weights: Float[np.ndarray, "d e"]
    n_pairs: int
    mean_cosine: float | None = None
    """The mean cosine of words to their nearest in the other space, in search of the next pairs."""
    keep_probability: float = 1.0
    """The probability with which a pair could become one of the next."""


@dataclass(frozen=True, kw_only=True)
class SelfLearning:
    """Find a dictionary by a map, fit the map on it, and so on (Artetxe et al. 2017, P17-1042).

    It ends when the mean cosine of words to their nearest no longer rises by `threshold`. Pairs may
    at first be left out at random, so that it does not end in a poor optimum (Artetxe et al. 2018,
    P18-1073, section 3.3).
    """

    threshold: float = 1e-6
    vocabulary_cutoff: int | None = None
    """How many of the most frequent words of each space take part; None: all."""
    retrieval: Retrieval = CosineRetrieval()
    bidirectional: bool = False
    """The nearest of source and of target words make pairs; else those of source words alone."""
    keep_probability: float = 1.0
    """Initial probability that a pair of words is considered."""
    keep_growth: float = 2.0
    """What it is multiplied by when nothing rises, until it is 1."""
    patience: int = 1
    """Rounds without a rise, after which it grows, or all ends."""

    def __post_init__(self) -> None:
        _check_vocabulary_cutoff(self.vocabulary_cutoff)
        if not 0 < self.keep_probability <= 1:
            raise ValueError(
                f"keep_probability must be above 0 and at most 1, got {self.keep_probability}"
            )
        if not self.keep_growth > 1:
            raise ValueError(f"keep_growth must be above 1, got {self.keep_growth}")
        if self.patience < 1:
            raise ValueError(f"patience must be 1 round or more, got {self.patience}")
        if not self.threshold > 0:
            raise ValueError(f"threshold must be above 0, got {self.threshold}")

    def rounds(
        self,
        source: Float[np.ndarray, "n d"],
        target: Float[np.ndarray, "m e"],
        first: AlignmentRound,
        fit: LinearMap,
        seed: int = 0,
    ) -> Iterator[AlignmentRound]:
        """Yield `first` with its similarity, then each map that is better informed."""
        source, target = source[: self.vocabulary_cutoff], target[: self.vocabulary_cutoff]
        z = _normalize_rows(target)
        best, stale, keep, now = -np.inf, 0, self.keep_probability, first
        while True:
            x = _normalize_rows(source @ now.map_weights.astype(np.float32))
            rng = np.random.default_rng((seed, now.index))
            found = retrieve_both_directions(
                x, z, self.retrieval.adjustment(x, z, exact=False), keep, rng
            )
            reached = found.mean_cosine if self.bidirectional else found.forward_mean_cosine
            yield replace(now, mean_cosine=reached, keep_probability=keep)
            stale = 0 if reached >= best + self.threshold else stale + 1
            best = max(best, reached) if stale == 0 else best
            if stale >= self.patience:
                if keep >= 1:
                    return
                keep, stale = min(1.0, keep * self.keep_growth), 0
            now = _fit_round(
                source, target, _induced_pairs(found, self.bidirectional), now.index + 1, fit
            )


STOCHASTIC_SELF_LEARNING = SelfLearning(
    vocabulary_cutoff=20_000,
    retrieval=CSLS(10),
    bidirectional=True,
    keep_probability=0.1,
    keep_growth=2.0,
    patience=50,
)
"""The self-learning of Artetxe et al. 2018, sections 3.3 and 4."""


@dataclass(frozen=True)
class ProcrustesRefinement:
    """Fit the map anew on words that are each other's nearest by CSLS, some times.

    Lample et al. 2018, arXiv:1710.04087, sections 2.2 and 2.3; of their released code is how many
    words take part.
    """

    n_iterations: int = 5
    vocabulary_cutoff: int | None = 15_000
    csls_k: int = 10

    def __post_init__(self) -> None:
        _check_vocabulary_cutoff(self.vocabulary_cutoff)
        if self.n_iterations < 0:
            raise ValueError(f"a map is refined 0 times or more, got {self.n_iterations}")

    def rounds(
        self,
        source: Float[np.ndarray, "n d"],
        target: Float[np.ndarray, "m e"],
        first: AlignmentRound,
        fit: LinearMap,
    ) -> Iterator[AlignmentRound]:
        """Yield `first` with its similarity, then each refined map."""
        source, target, now = (
            source[: self.vocabulary_cutoff],
            target[: self.vocabulary_cutoff],
            first,
        )
        z, csls = _normalize_rows(target), CSLS(self.csls_k)
        for _ in range(self.n_iterations):
            x = _normalize_rows(source @ now.map_weights.astype(np.float32))
            found = retrieve_both_directions(x, z, csls.adjustment(x, z, exact=False))
            yield replace(now, mean_cosine=found.mean_cosine)
            now = _fit_round(source, target, _mutual_pairs(found), now.index + 1, fit)
        yield now


def _induced_pairs(found: BidirectionalRetrieval, union: bool) -> RowPairs:
    """Pair words with their nearest; a pair that is found in both directions counts twice.

    Deviates: a word all of whose pairs are left out makes none; in the paper, their scores become
    0, and so the first of them wins.
    """
    forward = np.stack([np.arange(len(found.forward)), found.forward], 1)
    pairs = forward[found.forward >= 0]
    if union:
        backward = np.stack([found.backward, np.arange(len(found.backward))], 1)
        pairs = np.concatenate([pairs, backward[found.backward >= 0]])
    return pairs


def _mutual_pairs(found: BidirectionalRetrieval) -> RowPairs:
    rows = np.arange(len(found.forward))
    rows = rows[found.backward[found.forward] == rows]
    return np.stack([rows, found.forward[rows]], 1)


def _fit_round(
    source: Float[np.ndarray, "n d"],
    target: Float[np.ndarray, "m e"],
    pairs: RowPairs,
    number: int,
    fit: LinearMap,
) -> AlignmentRound:
    if not len(pairs):  # all were left out
        raise ValueError(
            f"no pair of words was found in a space of {len(source)} and one of {len(target)}: "
            "they are too small to leave out pairs at random"
        )
    weights = fit.fit(source[pairs[:, 0]], target[pairs[:, 1]])
    return AlignmentRound(index=number, map_weights=weights, n_pairs=len(pairs))


# From beginning to end


def alignment_rounds(
    source: KeyedVectors,
    target: KeyedVectors,
    seeds: RowPairs,
    *,
    fit: LinearMap = OrthogonalProcrustes(),
    self_learning: SelfLearning | None = None,
    refinement: ProcrustesRefinement | None = None,
    seed: int = 0,
) -> Iterator[AlignmentRound]:
    """Fit a map between prepared spaces on seeds; let it learn by itself, then refine it.

    The last round that is yielded is the result; `mapped` applies it.

    Raises:
        ValueError: there are no seeds, the widths differ for `OrthogonalProcrustes`, or a space
            has fewer words than CSLS looks at.
    """
    if not len(seeds):
        raise ValueError("a map is fitted on pairs of words, and there is none")
    last = _fit_round(source.vectors, target.vectors, seeds, 0, fit)
    if self_learning is None and not (refinement and refinement.n_iterations):
        yield last
        return
    if self_learning is not None:
        for now in self_learning.rounds(source.vectors, target.vectors, last, fit, seed):
            yield (last := now)
    if refinement is not None and refinement.n_iterations:
        refined = refinement.rounds(source.vectors, target.vectors, last, fit)
        if self_learning is not None:
            next(refined)  # it was yielded already
        yield from refined


def apply_map(source: KeyedVectors, weights: Float[np.ndarray, "d e"]) -> KeyedVectors:
    """Map a prepared space.

    Raises:
        ValueError: the map has another width, or its numbers are too large.
    """
    if source.vectors.shape[1] != len(weights):
        raise ValueError(f"a map from {len(weights)} dimensions, of {source.vectors.shape[1]}")
    with np.errstate(over="ignore"):
        vectors = source.vectors @ weights.astype(np.float32)
    if not np.isfinite(vectors).all():
        raise ValueError("mapped vectors are too large for float32: prepare the spaces")
    return replace(source, vectors=vectors, composer=None)
