"""Vectors by factors of a matrix of counts: associations of words, or logarithms of counts.

Levy et al. 2015, Q15-1016, "Improving Distributional Similarity with Lessons Learned from Word
Embeddings"; Deerwester et al. 1990, "Indexing by Latent Semantic Analysis".
"""

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from jaxtyping import Float, Float32

from unmask.word_vectors.train.cooccurrences import (
    CooccurrenceMatrix,
    CooccurrenceWindow,
    marginals,
)
from unmask.word_vectors.train.windows import WindowMethod

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix


@dataclass(frozen=True, kw_only=True)
class PMI:
    """How much more often than by chance two words stand together, as a logarithm.

    Raises:
        ValueError: a number that makes no sense.
    """

    log_shift: float = 1.0
    """What k negatives of skip-gram are: log k is taken away (Levy and Goldberg 2014; section
    3.2)."""
    context_smoothing: float = 0.75
    """The power of the counts of a neighbor (context distribution smoothing, section 3.2); 1:
    none."""
    positive: bool = True
    """What is below 0 is 0. Pairs that were never seen are 0 in either case."""

    def __post_init__(self) -> None:
        if not self.log_shift > 0:
            raise ValueError(f"log_shift must be above 0, got {self.log_shift}")
        if not 0 < self.context_smoothing <= 1:
            raise ValueError(
                f"context_smoothing must be above 0 and at most 1, got {self.context_smoothing}"
            )


@dataclass(frozen=True, kw_only=True)
class SVD(WindowMethod):
    """Vectors are factors of the associations of words that stand near each other.

    With Levy et al.'s advice (section 7): small windows, no shift, contexts smoothed, and not the
    singular values as they are.

    Raises:
        ValueError: a power below 0.
    """

    cooccurrence_window: CooccurrenceWindow = field(
        default_factory=lambda: CooccurrenceWindow(window=2, distance_weighting="dynamic")
    )
    association: PMI | None = PMI()
    """None: the logarithms of counts."""
    singular_value_power: float = 0.5
    """Of the singular values: see `TruncatedSVD.vectors`."""
    add_contexts: bool = False
    """Each word's vector as a neighbor is added to it."""

    def __post_init__(self) -> None:
        if not self.singular_value_power >= 0:
            raise ValueError(
                f"singular_value_power must be at least 0, got {self.singular_value_power}"
            )

    @property
    def window_size(self) -> tuple[int, bool]:
        """Neighbors on each side; all count."""
        return self.cooccurrence_window.window, False

    @property
    def visibility_description(self) -> str:
        """Describe who attends to whom."""
        what = "how much more often than by chance" if self.association else "how often"
        return (
            f"none: all pairs of neighbors are counted{self.cooccurrence_window.description}; "
            f"{what} two words "
            "occur together is factorized"
        )


@dataclass(frozen=True, eq=False)
class TruncatedSVD:
    """The greatest singular values of a matrix, descending, with their vectors."""

    left: Float32[np.ndarray, "n d"]
    singular_values: Float32[np.ndarray, "d"]
    right: Float32[np.ndarray, "m d"]
    """Of the words as neighbors, or of the documents."""

    def vectors(
        self, singular_value_power: float = 0.5, *, add_contexts: bool = False
    ) -> Float32[np.ndarray, "n d"]:
        """Give the vector of each word.

        Args:
            singular_value_power: of the singular values: 1 as the decomposition has it, 0.5 or 0
                often better (section 3.3).
            add_contexts: each word's vector as a neighbor is added to it (section 3.3: w+c).
        """
        found = self.left + self.right if add_contexts else self.left
        return (found * self.singular_values**singular_value_power).astype(np.float32)


def pmi_matrix(counts: CooccurrenceMatrix, spec: PMI) -> "csr_matrix[Any]":
    """Give the (positive) pointwise mutual information of all pairs that were seen.

    log(#(w, c) * sum of #(c)^a / (#(w) * #(c)^a)) - log(shift), with `a` the smoothing.

    Raises:
        ValueError: nothing was counted.
    """
    if not counts.n_pairs:
        raise ValueError("no pair was counted: there is nothing to learn")
    words, contexts = marginals(counts)
    smooth = np.where(contexts > 0, contexts, 1.0) ** spec.context_smoothing
    chance = np.log(smooth) - math.log(smooth[contexts > 0].sum())
    own = np.log(np.where(words > 0, words, 1.0))
    values = np.log(counts.values.astype(np.float64))
    values -= np.repeat(own, np.diff(counts.offsets))
    values -= chance[counts.columns] + math.log(spec.log_shift)
    if spec.positive:
        np.maximum(values, 0, out=values)
    found = _sparse_matrix(counts, values)
    found.eliminate_zeros()
    return found


def log_count_matrix(counts: CooccurrenceMatrix) -> "csr_matrix[Any]":
    """Give log(1 + count) of all pairs that were seen, as latent semantic analysis has it."""
    return _sparse_matrix(counts, np.log1p(counts.values.astype(np.float64)))


def truncated_svd(matrix: "csr_matrix[Any]", d_model: int, seed: int = 0) -> TruncatedSVD:
    """Find the greatest singular values of a sparse matrix, and their vectors.

    The sign of each is such that the greatest number of the word vectors' is above 0.

    Raises:
        ValueError: not fewer numbers than words, or a matrix of rank 0.
    """
    from scipy.sparse.linalg import svds

    rows, columns = cast("tuple[int, int]", matrix.shape)
    n = min(rows, columns)
    check_width(n, d_model, "words" if rows <= columns else "documents")
    if not matrix.nnz:
        raise ValueError("all associations are 0: there is nothing to learn")
    first = np.random.Generator(np.random.Philox(seed)).standard_normal(n)
    found: Any = svds(matrix.astype(np.float64), k=d_model, v0=first)
    words, values, contexts = found
    order = np.argsort(-values, kind="stable")
    words, values, contexts = words[:, order], values[order], contexts[order].T
    sign = np.sign(words[np.abs(words).argmax(0), np.arange(d_model)])
    sign[sign == 0] = 1
    factors = (words * sign, np.maximum(values, 0), contexts * sign)
    if not all(np.isfinite(array).all() for array in factors):
        raise FloatingPointError("the factors are not finite")
    return TruncatedSVD(*(np.ascontiguousarray(array, np.float32) for array in factors))


def check_width(n: int, d_model: int, of: str = "words") -> None:
    """Check that so many words, or documents, can have vectors of so many numbers.

    Raises:
        ValueError: there are not fewer numbers than words or documents.
    """
    if n < 2:
        raise ValueError(f"factors need two {of} or more, got {n}")
    if not 1 <= d_model < n:
        raise ValueError(
            f"architecture.d_model: vectors of {n} {of} must have from 1 to {n - 1} numbers, "
            f"got {d_model}"
        )


def _sparse_matrix(counts: CooccurrenceMatrix, values: Float[np.ndarray, "k"]) -> "csr_matrix[Any]":
    from scipy.sparse import csr_matrix

    n = counts.n_words
    columns = counts.columns.copy()  # what is 0 is taken out in place
    return csr_matrix((values, columns, counts.offsets.copy()), shape=(n, n))
