"""Latent semantic analysis: factors of how often each word is in each document.

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
    """Words are alike that are in the same documents.

    A document is what the corpus is parted into; longer ones than 10,000 words are several.

    Raises:
        ValueError: a power below 0.
    """

    power: float = 1.0
    """Of the singular values: see `unmask.word_vectors.train.svd.TruncatedSVD.vectors`."""

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
    """Give log(1 + count) of each word in each document, times what the word tells of documents.

    That is 1 for a word in one document, and 0 for one that is alike in all: 1 minus its entropy
    over the entropy of all documents.

    Raises:
        ValueError: there is one document only.
    """
    from scipy.sparse import csr_matrix

    rows, columns, values = list[np.ndarray](), list[np.ndarray](), list[np.ndarray]()
    documents, n = 0, len(words)
    for chunk in corpus.iter_chunks(2**20):
        for start, end in chunk.sentences.tolist():
            found = words.row_of[chunk.part.ids[start:end]]
            seen, times = np.unique(found[found >= 0], return_counts=True)
            rows.append(seen)
            columns.append(np.full(len(seen), documents))
            values.append(times)
            documents += 1
    if documents < 2:
        raise ValueError("there is one document only: words cannot be told by theirs")
    row, count = np.concatenate(rows), np.concatenate(values).astype(np.float64)
    column = np.concatenate(columns)
    told = np.log1p(count) * _entropy_weights(row, count, n, documents)[row]
    return csr_matrix((told, (row, column)), shape=(n, documents))


def _entropy_weights(
    row: np.ndarray, count: Float[np.ndarray, "k"], n: int, documents: int
) -> Float[np.ndarray, "n"]:
    share = count / np.bincount(row, count, n)[row]
    entropy = -np.bincount(row, share * np.log(share), n)
    return 1 - entropy / np.log(documents)
