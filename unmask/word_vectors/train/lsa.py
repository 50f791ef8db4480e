"""Latent semantic analysis: a truncated SVD of the term-document matrix.

Deerwester et al. 1990, "Indexing by Latent Semantic Analysis"; the weights are those of Dumais
1991, "Improving the retrieval of information from external sources".
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from unmask.word_vectors.train.corpus import Corpus, Lexicon
from unmask.word_vectors.train.windows import WindowMethod

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix


@dataclass(frozen=True, kw_only=True)
class LSA(WindowMethod):
    """Vectors of words by the documents in which they occur.

    A document is a unit of the corpus; documents over 10,000 words are split.

    Raises:
        ValueError: the power is negative.
    """

    power: float = 1.0
    """Exponent of the singular values; see `unmask.word_vectors.train.svd.TruncatedSVD.vectors`."""

    def __post_init__(self) -> None:
        if not self.power >= 0:
            raise ValueError(f"power must be at least 0, got {self.power}")

    @property
    def window_size(self) -> tuple[int, bool]:
        """All words of a text."""
        return 10_000, False

    @property
    def visibility_description(self) -> str:
        """Describe who attends to whom."""
        return (
            "none: the matrix of words and documents is counted, weighted and factorized; words of "
            "the same documents have similar vectors"
        )


def term_document_matrix(corpus: Corpus, words: Lexicon) -> "csr_matrix[Any]":
    """Return log(1 + count) of each word in each document, times the word's entropy weight.

    The weight is 1 - H / log(n), with H the entropy of the word's distribution over n documents: 1
    for a word in one document, 0 for one that is uniform.

    Raises:
        ValueError: there is only one document.
    """
    from scipy.sparse import csr_matrix

    rows, columns, values = list[np.ndarray](), list[np.ndarray](), list[np.ndarray]()
    documents, n = 0, len(words)
    for chunk in corpus.iter_chunks(2**20):
        for start, end in chunk.sentences.tolist():
            all_rows = words.row_of[chunk.part.ids[start:end]]
            document_rows, counts = np.unique(all_rows[all_rows >= 0], return_counts=True)
            rows.append(document_rows)
            columns.append(np.full(len(document_rows), documents))
            values.append(counts)
            documents += 1
    if documents < 2:
        raise ValueError("there is one document only: words cannot be told by theirs")
    row, count = np.concatenate(rows), np.concatenate(values).astype(np.float64)
    column = np.concatenate(columns)
    weighted = np.log1p(count) * _entropy_weights(row, count, n, documents)[row]
    return csr_matrix((weighted, (row, column)), shape=(n, documents))


def _entropy_weights(
    row: np.ndarray, count: Float[np.ndarray, "k"], n: int, documents: int
) -> Float[np.ndarray, "n"]:
    share = count / np.bincount(row, count, n)[row]
    entropy = -np.bincount(row, share * np.log(share), n)
    return 1 - entropy / np.log(documents)
