"""How varied texts are: distinct n-grams, and the overlap of each text with all others."""

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

MAX_TEXTS = 100
"""Texts that `self_bleu` compares unless told otherwise: its time grows with their square."""


def distinct_n(texts: Sequence[str], n: int) -> float:
    """Compute the share of different ones among all n-grams of words, of all texts together.

    distinct-n of Li et al. 2016, arXiv:1510.03055, section 5. Words are separated by white space.
    0 if no text has n words. More texts have a smaller share: compare equal numbers of them.

    Deviates: the paper divides by the number of words; by that of n-grams, 1 can be reached.

    Raises:
        ValueError: there is no text, or n is below 1.

    Example:
        >>> distinct_n(["a b a b", "a b"], 2)
        0.5
    """
    if n < 1:
        raise ValueError(f"n must be at least 1, got {n}")
    if not texts:
        raise ValueError(f"distinct-{n} needs a text, got none")
    grams = [gram for text in texts for gram in _ngrams(text.split(), n)]
    return len(set(grams)) / len(grams) if grams else 0.0


def _ngrams(words: Sequence[str], n: int) -> list[tuple[str, ...]]:
    return list(zip(*(islice(words, i, None) for i in range(n)), strict=False))


@dataclass(frozen=True, kw_only=True)
class SelfBleu:
    """The mean BLEU of texts against each other, and what it was computed from."""

    value: float
    """From 0, nothing in common, to 100, all alike."""
    n_texts: int
    """Texts that were compared, each with all others."""
    signature: str
    """sacrebleu's, for BLEU of one text."""


def self_bleu(texts: Sequence[str], *, max_texts: int = MAX_TEXTS, seed: int = 0) -> SelfBleu:
    """Compute Self-BLEU: the mean BLEU of each text with all others as its references.

    Zhu et al. 2018, arXiv:1802.01886, section 3.2. BLEU-4 of sacrebleu: tokenization 13a, counts of
    n-grams that do not match smoothed exponentially, and n-grams longer than the text left out
    (Chen and Cherry 2014, aclanthology.org/W14-3346). More references give a higher value: compare
    equal numbers of texts. Empty texts count 0.

    Args:
        texts: at least two.
        max_texts: number of texts compared; of more, a sample is drawn without replacement.
        seed: of the sample.

    Raises:
        ImportError: sacrebleu is not installed.
        ValueError: there are fewer than two texts, or max_texts is below 2.

    Example:
        >>> self_bleu(["a cat sat on a mat", "a cat sat on a mat"]).value
        100.0
    """
    if importlib.util.find_spec("sacrebleu") is None:
        raise ImportError("Self-BLEU needs sacrebleu: pip install 'unmask[text-metrics]'")
    from sacrebleu.metrics.bleu import BLEU

    if max_texts < 2:
        raise ValueError(f"max_texts must be at least 2, got {max_texts}")
    if len(texts) < 2:
        raise ValueError(f"Self-BLEU compares texts with each other: needs 2, got {len(texts)}")
    some = list(texts)
    if len(some) > max_texts:
        drawn = np.random.default_rng(seed).choice(len(some), max_texts, replace=False)
        some = [some[i] for i in sorted(drawn.tolist())]
    metric = BLEU(effective_order=True)
    scores = [
        metric.sentence_score(text, [*some[:i], *some[i + 1 :]]).score
        for i, text in enumerate(some)
    ]
    value = min(100.0, float(np.mean(scores)))  # equal texts have 100 + 1e-14
    return SelfBleu(value=value, n_texts=len(some), signature=str(metric.get_signature()))
