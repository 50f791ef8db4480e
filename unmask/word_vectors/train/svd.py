"""Vectors from a truncated SVD of cooccurrences: PMI, or log counts.

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
    """Pointwise mutual information of words and contexts.

    Raises:
        ValueError: a number is out of range.
    """

    log_shift: float = 1.0
    """The k of shifted PMI: log k is subtracted, which corresponds to k negative samples of
    skip-gram (Levy and Goldberg 2014; section 3.2)."""
    context_smoothing: float = 0.75
    """Exponent of the context counts (context distribution smoothing, section 3.2). 1: no
    smoothing."""
    positive: bool = True
    """Positive PMI: replace negative values by 0. Unseen pairs are 0 in either case."""

    def __post_init__(self) -> None:
        if not self.log_shift > 0:
            raise ValueError(f"log_shift must be above 0, got {self.log_shift}")
        if not 0 < self.context_smoothing <= 1:
            raise ValueError(
                f"context_smoothing must be above 0 and at most 1, got {self.context_smoothing}"
            )


@dataclass(frozen=True, kw_only=True)
class SVD(WindowMethod):
    """Vectors from a truncated SVD of the associations of words and contexts.

    The defaults are Levy et al.'s recommendations (section 7): small windows, no shift, smoothed
    contexts, and an exponent of the singular values below 1.

    Raises:
        ValueError: the power is negative.
    """

    cooccurrence_window: CooccurrenceWindow = field(
        default_factory=lambda: CooccurrenceWindow(window=2, distance_weighting="dynamic")
    )
    association: PMI | None = PMI()
    """None: log counts."""
    singular_value_power: float = 0.5
    """Exponent of the singular values; see `TruncatedSVD.vectors`."""
    add_contexts: bool = False
    """Add each word's context vector to its word vector."""

    def __post_init__(self) -> None:
        if not self.singular_value_power >= 0:
            raise ValueError(
                f"singular_value_power must be at least 0, got {self.singular_value_power}"
            )

    @property
    def window_size(self) -> tuple[int, bool]:
        """Number of neighbors on each side, and that it is fixed."""
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
    """The largest singular values of a matrix, descending, with their vectors."""

    left: Float32[np.ndarray, "n d"]
    singular_values: Float32[np.ndarray, "d"]
    right: Float32[np.ndarray, "m d"]
    """Vectors of contexts, or of documents."""

    def vectors(
        self, singular_value_power: float = 0.5, *, add_contexts: bool = False
    ) -> Float32[np.ndarray, "n d"]:
        """Return the vector of each word.

        Args:
            singular_value_power: exponent of the singular values; 0.5 or 0 is often better than 1
                (section 3.3).
            add_contexts: whether context vectors are added (section 3.3: w+c).
        """
        vectors = self.left + self.right if add_contexts else self.left
        return (vectors * self.singular_values**singular_value_power).astype(np.float32)


def pmi_matrix(counts: CooccurrenceMatrix, spec: PMI) -> "csr_matrix[Any]":
    """Return the (positive) pointwise mutual information of all observed pairs.

    log(#(w, c) * sum of #(c)^a / (#(w) * #(c)^a)) - log(shift), with `a` the smoothing.

    Raises:
        ValueError: there are no counts.
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
    matrix = _sparse_matrix(counts, values)
    matrix.eliminate_zeros()
    return matrix


def log_count_matrix(counts: CooccurrenceMatrix) -> "csr_matrix[Any]":
    """Return log(1 + count) of all observed pairs, as in latent semantic analysis."""
    return _sparse_matrix(counts, np.log1p(counts.values.astype(np.float64)))


def truncated_svd(matrix: "csr_matrix[Any]", d_model: int, seed: int = 0) -> TruncatedSVD:
    """Compute the largest singular values of a sparse matrix, and their vectors.

    The sign is such that the largest component of each left vector is positive.

    Raises:
        ValueError: `d_model` is not below the number of words, or the matrix is zero.
    """
    from scipy.sparse.linalg import svds

    rows, columns = cast("tuple[int, int]", matrix.shape)
    n = min(rows, columns)
    check_width(n, d_model, "words" if rows <= columns else "documents")
    if not matrix.nnz:
        raise ValueError("all associations are 0: there is nothing to learn")
    initial = np.random.Generator(np.random.Philox(seed)).standard_normal(n)
    words, values, contexts = cast(
        "tuple[Any, Any, Any]", svds(matrix.astype(np.float64), k=d_model, v0=initial)
    )
    order = np.argsort(-values, kind="stable")
    words, values, contexts = words[:, order], values[order], contexts[order].T
    sign = np.sign(words[np.abs(words).argmax(0), np.arange(d_model)])
    sign[sign == 0] = 1
    factors = (words * sign, np.maximum(values, 0), contexts * sign)
    if not all(np.isfinite(array).all() for array in factors):
        raise FloatingPointError("the factors are not finite")
    return TruncatedSVD(*(np.ascontiguousarray(array, np.float32) for array in factors))


def check_width(n: int, d_model: int, of: str = "words") -> None:
    """Check that `n` words or documents can have `d_model` singular vectors.

    Raises:
        ValueError: `d_model` is not below `n`.
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
    columns = counts.columns.copy()  # zeros are removed in place
    return csr_matrix((values, columns, counts.offsets.copy()), shape=(n, n))
