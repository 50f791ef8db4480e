"""CIDEr and CIDEr-D: captions beside references, their n-grams weighted by how rare they are.

Vedantam et al. 2015, arXiv:1411.5726.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from unmask.tasks.metrics.captioning.words import (
    MAX_ORDER,
    Ngram,
    caption_words,
    count_ngrams,
    porter_stem,
)
from unmask.tasks.metrics.generation import References, check_references

CIDER_D_SIGMA = 6.0
"""Width of the length penalty, in words."""
_SCALE = 10.0  # of both; in the paper only of CIDEr-D, in the released code of both

_Vector = Mapping[Ngram, float]


@dataclass(frozen=True, kw_only=True)
class DocumentFrequencies:
    """In the references of how many images each n-gram occurs."""

    counts: Mapping[Ngram, int]
    n_images: int
    stemmed: bool = False
    """Whether n-grams are of Porter's stems."""

    def weight(self, ngram: Ngram) -> float:
        """Return log(images / images with the n-gram); an unknown one counts as in one image."""
        return math.log(self.n_images / max(1, self.counts.get(ngram, 0)))

    def words(self, text: str) -> list[str]:
        """Return the words of a caption, or their stems."""
        words = caption_words(text)
        return [porter_stem(word) for word in words] if self.stemmed else words


def document_frequencies(labels: References, *, stem: bool = False) -> DocumentFrequencies:
    """Count in how many images' references each n-gram of up to four words occurs.

    Args:
        labels: the references of each image.
        stem: whether words are reduced to Porter's stems, as in the paper;
            coco-caption does not.

    Raises:
        ImportError: NLTK, which has the stems, is not installed.
    """
    counts, reader = Counter[Ngram](), DocumentFrequencies(counts={}, n_images=1, stemmed=stem)
    for texts in labels:
        counts.update({g for text in texts for g in _all_ngrams(reader.words(text))})
    return DocumentFrequencies(counts=counts, n_images=len(labels), stemmed=stem)


def cider_scores(
    labels: References,
    predictions: Sequence[str],
    frequencies: DocumentFrequencies | None = None,
) -> Float[np.ndarray, "n"]:
    """Compute CIDEr of each caption, from 0 to 10.

    Equations 1 to 3, times 10: the cosine of the tf-idf vectors g of caption c and reference s,
    averaged over n-grams of 1 to 4 words and over m references:

    CIDEr = 10 mean_n (1/m) sum_s g_n(c) g_n(s) / (|g_n(c)| |g_n(s)|)

    tf is a count, which the cosine divides by its length. The score of a caption depends on the
    other images through idf; with a single image it is 0.

    Args:
        labels: the references of each caption.
        predictions: the captions.
        frequencies: frequencies of n-grams, from which idf is computed. None: those of `labels`,
            whose words are not stemmed.

    Raises:
        ImportError: stems are asked for, and NLTK is not installed.
        ValueError: a caption has no reference.
    """
    check_references(labels, predictions)
    known = frequencies or document_frequencies(labels)
    return np.array(
        [
            np.mean([_cider(_Caption.of(text, known), candidate) for text in texts])
            for texts, candidate in _with_candidates(labels, predictions, known)
        ],
        np.float64,
    )


def cider_d_scores(
    labels: References,
    predictions: Sequence[str],
    frequencies: DocumentFrequencies | None = None,
    *,
    sigma: float = CIDER_D_SIGMA,
) -> Float[np.ndarray, "n"]:
    """Compute CIDEr-D of each caption, from 0 to 10: the "CIDEr" of coco-caption and most tables.

    Equation 4: no repeated word counts more often than in the reference, and no other length pays:

    CIDEr-D = 10 mean_n (1/m) sum_s exp(-(l(c) - l(s))² / 2σ²)
              min(g_n(c), g_n(s)) g_n(s) / (|g_n(c)| |g_n(s)|)

    Deviates: tf is the count of an n-gram, not its share of the caption's, as in the released code;
    with clipping this makes a difference between captions of different length.

    Args:
        labels: the references of each caption.
        predictions: the captions.
        frequencies: frequencies of n-grams, from which idf is computed. None: those of `labels`,
            whose words are not stemmed.
        sigma: standard deviation of the length penalty in words.

    Raises:
        ImportError: stems are asked for, and NLTK is not installed.
        ValueError: a caption has no reference.
    """
    check_references(labels, predictions)
    if not sigma > 0:
        raise ValueError(f"sigma must be above 0, got {sigma}")
    known = frequencies or document_frequencies(labels)
    return np.array(
        [
            np.mean([_cider_d(_Caption.of(text, known), candidate, sigma) for text in texts])
            for texts, candidate in _with_candidates(labels, predictions, known)
        ],
        np.float64,
    )


@dataclass(frozen=True)
class _Caption:
    """Weighted n-grams of a caption: for each length a vector, and its norm."""

    vectors: tuple[_Vector, ...]
    norms: tuple[float, ...]
    n_words: int

    @staticmethod
    def of(text: str, frequencies: DocumentFrequencies) -> "_Caption":
        words = frequencies.words(text)
        vectors = tuple(
            {g: count * frequencies.weight(g) for g, count in count_ngrams(words, n).items()}
            for n in range(1, MAX_ORDER + 1)
        )
        norms = tuple(math.sqrt(sum(x * x for x in vector.values())) for vector in vectors)
        return _Caption(vectors, norms, len(words))


def _with_candidates(
    labels: References, predictions: Sequence[str], frequencies: DocumentFrequencies
) -> Iterable[tuple[Sequence[str], _Caption]]:
    for texts, prediction in zip(labels, predictions, strict=True):
        yield texts, _Caption.of(prediction, frequencies)


def _cider(reference: _Caption, candidate: _Caption) -> float:
    dots = [
        sum((x * theirs.get(g, 0.0) for g, x in own.items()), 0.0)
        for own, theirs in zip(candidate.vectors, reference.vectors, strict=True)
    ]
    return _mean_of_cosines(dots, reference, candidate)


def _cider_d(reference: _Caption, candidate: _Caption, sigma: float) -> float:
    dots = [
        sum((min(x, theirs[g]) * theirs[g] for g, x in own.items() if g in theirs), 0.0)
        for own, theirs in zip(candidate.vectors, reference.vectors, strict=True)
    ]
    difference = candidate.n_words - reference.n_words
    penalty = math.exp(-(difference**2) / (2 * sigma**2))
    return penalty * _mean_of_cosines(dots, reference, candidate)


def _mean_of_cosines(dots: Sequence[float], reference: _Caption, candidate: _Caption) -> float:
    """Divide by norms, and average over lengths of n-grams; without n-grams a cosine is 0."""
    norms = [a * b for a, b in zip(reference.norms, candidate.norms, strict=True)]
    cosines = [dot / norm if norm else 0.0 for dot, norm in zip(dots, norms, strict=True)]
    return _SCALE * sum(cosines) / MAX_ORDER


def _all_ngrams(words: Sequence[str]) -> Iterable[Ngram]:
    for n in range(1, MAX_ORDER + 1):
        yield from count_ngrams(words, n)
