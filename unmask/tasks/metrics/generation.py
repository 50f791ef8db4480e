"""Metrics of generated texts: BLEU and chrF by sacrebleu, ROUGE by rouge-score.

Both are optional: `pip install 'unmask[text-metrics]'`. BLEU and chrF are of 100, as everyone
prints them; ROUGE and exact match are shares.
"""

import importlib.util
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np

References = Sequence[Sequence[str]]
"""The texts that would be right, for each prediction: one or more."""
RougeType = Literal["rouge1", "rouge2", "rougeL"]
ROUGE_TYPES: tuple[RougeType, ...] = ("rouge1", "rouge2", "rougeL")

_WORD_PATTERN = re.compile(r"\w+")


@dataclass(frozen=True)
class ScoreWithSignature:
    """A figure, and how exactly it was computed: sacrebleu's signature."""

    value: float
    signature: str


def exact_match(labels: References, predictions: Sequence[str]) -> float:
    """Compute the share of texts that are a right one, but for white space; 0 of nothing."""
    _check_lengths(labels, predictions)
    right = [
        _strip_white_space(s) in map(_strip_white_space, t)
        for t, s in zip(labels, predictions, strict=True)
    ]
    return float(np.mean(right)) if right else 0.0


def bleu(
    labels: References, predictions: Sequence[str], *, tokenize: str = "13a"
) -> ScoreWithSignature:
    """Compute BLEU of all texts together (Papineni et al. 2002, aclanthology.org/P02-1040).

    Args:
        labels: the references.
        predictions: the texts.
        tokenize: how sacrebleu finds words: "13a", "zh", "ja-mecab", "flores200", "char", ...

    Raises:
        ImportError: sacrebleu is not installed.
        ValueError: there is no text, or one without a reference.
    """
    _require_library("sacrebleu", "BLEU")
    from sacrebleu.metrics.bleu import BLEU

    metric = BLEU(tokenize=tokenize)
    value = metric.corpus_score(
        predictions, cast("Any", _reference_streams(labels, predictions))
    ).score
    return ScoreWithSignature(float(value), str(metric.get_signature()))


def chrf(
    labels: References, predictions: Sequence[str], *, word_order: int = 0
) -> ScoreWithSignature:
    """Compute chrF of all texts together (Popović 2015, aclanthology.org/W15-3049).

    Args:
        labels: the references.
        predictions: the texts.
        word_order: the longest n-grams of words; 0: characters alone, 2: chrF++.

    Raises:
        ImportError: sacrebleu is not installed.
        ValueError: there is no text, or one without a reference.
    """
    _require_library("sacrebleu", "chrF")
    from sacrebleu.metrics.chrf import CHRF

    metric = CHRF(word_order=word_order)
    value = metric.corpus_score(
        predictions, cast("Any", _reference_streams(labels, predictions))
    ).score
    return ScoreWithSignature(float(value), str(metric.get_signature()))


def rouge(
    labels: References,
    predictions: Sequence[str],
    *,
    types: Literal["best", "mean"] = "best",
    use_stemmer: bool = False,
    is_english: bool = True,
) -> dict[RougeType, float]:
    """Compute the mean F1 of ROUGE-1, -2 and -L (Lin 2004, aclanthology.org/W04-1013); 0 of none.

    Args:
        labels: the references.
        predictions: the texts.
        types: which of several right texts counts: the one that fits best, for each of the three
            (the paper's section 2.1), or all of them equally.
        use_stemmer: words count as the same if Porter's stems are.
        is_english: words are runs of a to z and digits, as rouge-score has it, which cuts "für"
            into two letters. Otherwise, of the letters and digits of any script.

    Raises:
        ImportError: rouge-score is not installed.
        ValueError: a text has no reference, or words that are not English are to be stemmed.
    """
    _check_lengths(labels, predictions)
    if use_stemmer and not is_english:
        raise ValueError("stem=True is for English, got english=False")
    _require_library("rouge_score", "ROUGE")
    from rouge_score.rouge_scorer import RougeScorer

    scorer = RougeScorer(
        list(ROUGE_TYPES),
        use_stemmer=use_stemmer,
        tokenizer=None if is_english else _UnicodeWordTokenizer(),
    )
    rows: list[list[float]] = []
    for right, text in zip(labels, predictions, strict=True):
        scores = [scorer.score(one, text) for one in right]
        table = np.array([[score[name].fmeasure for name in ROUGE_TYPES] for score in scores])
        rows.append((table.max(0) if types == "best" else table.mean(0)).tolist())
    means = np.mean(rows, 0).tolist() if rows else [0.0] * len(ROUGE_TYPES)
    return dict(zip(ROUGE_TYPES, means, strict=True))


def generation_metrics(
    labels: References, predictions: Sequence[str], *, is_english: bool = True
) -> dict[str, float]:
    """Compute all metrics of texts, with the libraries' own settings.

    Raises:
        ImportError: sacrebleu or rouge-score is not installed.
        ValueError: there is no text, or one without a reference.
    """
    return {
        "exact_match": exact_match(labels, predictions),
        "bleu": bleu(labels, predictions).value,
        "chrf": chrf(labels, predictions).value,
        **rouge(labels, predictions, is_english=is_english),
    }


class _UnicodeWordTokenizer:
    """What rouge-score takes for a tokenizer."""

    def tokenize(self, text: str) -> list[str]:
        return _WORD_PATTERN.findall(text.lower())


def _strip_white_space(text: str) -> str:
    return " ".join(text.split())


def _reference_streams(labels: References, predictions: Sequence[str]) -> list[list[str | None]]:
    """Lay references out as sacrebleu reads them: the first ones of all texts, the second, ...

    It takes None where a text has fewer than others, though its annotations do not say so.
    """
    _check_lengths(labels, predictions)
    if not predictions:
        raise ValueError("there is no text to score")
    most = max(map(len, labels))
    return [[t[i] if i < len(t) else None for t in labels] for i in range(most)]


def _check_lengths(labels: References, predictions: Sequence[str]) -> None:
    if len(labels) != len(predictions):
        raise ValueError(
            f"there are references for {len(labels)} texts, but {len(predictions)} texts"
        )
    for i, right in enumerate(labels):
        if isinstance(right, str) or not right:
            raise ValueError(f"text {i} must have a list of references, got {right!r}")


def _require_library(module: str, what: str) -> None:
    if importlib.util.find_spec(module) is None:
        raise ImportError(f"{what} needs {module}: pip install 'unmask[text-metrics]'")
