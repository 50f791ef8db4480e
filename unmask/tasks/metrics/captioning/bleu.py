"""BLEU-1 to BLEU-4 of captions with several references, without a library."""

import math
from collections import Counter
from collections.abc import Sequence

from unmask.tasks.metrics.captioning.words import MAX_ORDER, Ngram, caption_words, count_ngrams
from unmask.tasks.metrics.generation import References, check_references


def caption_bleu(labels: References, predictions: Sequence[str]) -> tuple[float, ...]:
    """Compute corpus BLEU with n-grams up to 1, 2, 3 and 4, from 0 to 100.

    Papineni et al. 2002, aclanthology.org/P02-1040, sections 2.1 to 2.3:

    BLEU-N = 100 min(1, exp(1 - r/c)) (p_1 ... p_N)^(1/N)

    p_n is the share of the captions' n-grams that match, over the whole corpus; an n-gram counts at
    most as often as in the reference that has it most often. c is the number of all words, r that
    of the references whose lengths are the closest, of equally close ones the shorter. As in
    coco-caption, nothing is smoothed: 0 if no n-gram of a length matches.

    Args:
        labels: the references of each caption.
        predictions: the captions.

    Raises:
        ValueError: a caption has no reference.
    """
    check_references(labels, predictions)
    matches, totals = [0] * MAX_ORDER, [0] * MAX_ORDER
    n_words = n_reference_words = 0
    for texts, prediction in zip(labels, predictions, strict=True):
        words, references = caption_words(prediction), [caption_words(text) for text in texts]
        n_words += len(words)
        n_reference_words += _closest_length(len(words), references)
        for i in range(MAX_ORDER):
            counts = count_ngrams(words, i + 1)
            matches[i] += (counts & _most_in_one(references, i + 1)).total()
            totals[i] += counts.total()
    brevity = min(0.0, 1 - n_reference_words / n_words) if n_words else 0.0
    logs = [math.log(m / t) if m else -math.inf for m, t in zip(matches, totals, strict=True)]
    return tuple(100 * math.exp(brevity + sum(logs[:n]) / n) for n in range(1, MAX_ORDER + 1))


def _closest_length(length: int, references: Sequence[Sequence[str]]) -> int:
    return min(map(len, references), key=lambda n: (abs(n - length), n))


def _most_in_one(references: Sequence[Sequence[str]], n: int) -> Counter[Ngram]:
    """Return how often each n-gram is in the reference that has it most often."""
    most = Counter[Ngram]()
    for words in references:
        most |= count_ngrams(words, n)
    return most
