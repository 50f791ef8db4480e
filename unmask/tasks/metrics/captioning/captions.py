"""All metrics of captions, and how diverse captions are."""

import importlib.util
from collections.abc import Sequence

from unmask.tasks.metrics.captioning.bleu import caption_bleu
from unmask.tasks.metrics.captioning.cider import (
    DocumentFrequencies,
    cider_d_scores,
    cider_scores,
    document_frequencies,
)
from unmask.tasks.metrics.captioning.meteor import meteor
from unmask.tasks.metrics.captioning.words import caption_words
from unmask.tasks.metrics.generation import References

CAPTION_METRICS = ("bleu1", "bleu2", "bleu3", "bleu4", "cider", "cider_d", "meteor")
"""Metrics of texts with several references."""


def caption_metrics(
    labels: References,
    predictions: Sequence[str],
    frequencies: DocumentFrequencies | None = None,
) -> dict[str, float]:
    """Compute all metrics of captions beside references; 0 without captions.

    BLEU-1 to BLEU-4 are from 0 to 100, CIDEr and CIDEr-D from 0 to 10, METEOR from 0 to 1; METEOR
    only if NLTK is installed.

    Args:
        labels: the references of each caption.
        predictions: the captions.
        frequencies: frequencies of n-grams for CIDEr. None: those of `labels`.

    Raises:
        ValueError: a caption has no reference.
    """
    known = frequencies or document_frequencies(labels)
    n = max(len(predictions), 1)
    metrics = {f"bleu{i}": x for i, x in enumerate(caption_bleu(labels, predictions), start=1)}
    metrics["cider"] = float(cider_scores(labels, predictions, known).sum() / n)
    metrics["cider_d"] = float(cider_d_scores(labels, predictions, known).sum() / n)
    if importlib.util.find_spec("nltk") is not None:
        metrics["meteor"] = meteor(labels, predictions)
    return metrics


def diversity_metrics(predictions: Sequence[str]) -> dict[str, float]:
    """Compute how diverse captions are, by their words.

    `distinct_captions` is the share of distinct ones, `vocabulary` the number of distinct words,
    `mean_length` the mean number of words; 0 without captions.

    Example:
        >>> diversity_metrics(["A dog .", "a dog", "two cats", "cats run"])
        {'distinct_captions': 0.75, 'vocabulary': 5.0, 'mean_length': 2.0}
    """
    captions = [tuple(caption_words(text)) for text in predictions]
    n = max(len(captions), 1)
    return {
        "distinct_captions": len(set(captions)) / n,
        "vocabulary": float(len({word for words in captions for word in words})),
        "mean_length": sum(map(len, captions)) / n,
    }
