"""Metrics of generated texts: BLEU and chrF of sacrebleu, ROUGE of rouge-score.

Both are optional: `pip install 'unmask[text-metrics]'`. BLEU and chrF range to 100, as customary;
ROUGE and exact match to 1.
"""

import importlib.util
import re
import string
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np

References = Sequence[Sequence[str]]
"""One or more references for each prediction."""
RougeType = Literal["rouge1", "rouge2", "rougeL"]
ROUGE_TYPES: tuple[RougeType, ...] = ("rouge1", "rouge2", "rougeL")

_WORD_PATTERN = re.compile(r"\w+")


@dataclass(frozen=True)
class ScoreWithSignature:
    """A score and the exact configuration of its computation: sacrebleu's signature."""

    value: float
    signature: str


def exact_match(labels: References, predictions: Sequence[str]) -> float:
    """Compute the share of texts that equal a reference up to white space; 0 without texts."""
    check_references(labels, predictions)
    is_match = [
        _strip_white_space(s) in map(_strip_white_space, t)
        for t, s in zip(labels, predictions, strict=True)
    ]
    return float(np.mean(is_match)) if is_match else 0.0


def normalized_match(labels: References, predictions: Sequence[str]) -> float:
    """Compute the share of texts that equal a reference after normalization; 0 without texts.

    Case is folded, runs of white space are one space, and white space and ASCII punctuation at both
    ends are left out: "Yes." is "yes", "(A)" is "a". SQuAD's normalization would also remove
    articles, and with them the answer "A".

    Example:
        >>> normalized_match([["A"], ["Yes"], ["no"]], ["(a)", " yes. ", "no, it is not"])
        0.6666666666666666
    """
    check_references(labels, predictions)
    is_match = [
        _normalize_answer(text) in map(_normalize_answer, references)
        for references, text in zip(labels, predictions, strict=True)
    ]
    return float(np.mean(is_match)) if is_match else 0.0


def _normalize_answer(text: str) -> str:
    """Return an answer for comparison; one of punctuation alone stays as it is."""
    folded = _strip_white_space(text.casefold())
    return folded.strip(string.punctuation + " ") or folded


def bleu(
    labels: References, predictions: Sequence[str], *, tokenize: str = "13a"
) -> ScoreWithSignature:
    """Compute corpus BLEU (Papineni et al. 2002, aclanthology.org/P02-1040).

    Args:
        labels: the references.
        predictions: the texts.
        tokenize: sacrebleu's tokenizer: "13a", "zh", "ja-mecab", "flores200", "char", ...

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


def nearest_by_bleu(texts: Sequence[str], references: Sequence[str]) -> str:
    """Return the text with the highest sentence BLEU; of ties the first.

    Counts of n-grams that do not match are smoothed exponentially, and n-grams longer than the text
    are left out (Chen and Cherry 2014, aclanthology.org/W14-3346, methods 3 and effective order).

    Raises:
        ImportError: sacrebleu is not installed.
        ValueError: there is no text.
    """
    _require_library("sacrebleu", "BLEU")
    from sacrebleu.metrics.bleu import BLEU

    metric = BLEU(effective_order=True)
    return max(texts, key=lambda text: metric.sentence_score(text, references).score)


def chrf(
    labels: References, predictions: Sequence[str], *, word_order: int = 0
) -> ScoreWithSignature:
    """Compute corpus chrF (Popović 2015, aclanthology.org/W15-3049).

    Args:
        labels: the references.
        predictions: the texts.
        word_order: maximum word n-gram; 0: characters only, 2: chrF++.

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
    """Compute the mean F1 of ROUGE-1, -2 and -L (Lin 2004, aclanthology.org/W04-1013).

    Args:
        labels: the references.
        predictions: the texts.
        types: aggregation over several references: the best, for each of the three (section 2.1 of
            the paper), or the mean.
        use_stemmer: words count as the same if Porter's stems are.
        is_english: words are runs of a to z and digits, as in rouge-score, which splits "für".
            Otherwise, of letters and digits of any script.

    Raises:
        ImportError: rouge-score is not installed.
        ValueError: a text has no reference, or stemming is requested for other than English.
    """
    check_references(labels, predictions)
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
    for references, text in zip(labels, predictions, strict=True):
        scores = [scorer.score(reference, text) for reference in references]
        table = np.array([[score[name].fmeasure for name in ROUGE_TYPES] for score in scores])
        rows.append((table.max(0) if types == "best" else table.mean(0)).tolist())
    means = np.mean(rows, 0).tolist() if rows else [0.0] * len(ROUGE_TYPES)
    return dict(zip(ROUGE_TYPES, means, strict=True))


def generation_metrics(
    labels: References, predictions: Sequence[str], *, is_english: bool = True
) -> dict[str, float]:
    """Compute all generation metrics, with the default settings of the libraries.

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
    """Tokenizer interface of rouge-score."""

    def tokenize(self, text: str) -> list[str]:
        return _WORD_PATTERN.findall(text.lower())


def _strip_white_space(text: str) -> str:
    return " ".join(text.split())


def _reference_streams(labels: References, predictions: Sequence[str]) -> list[list[str | None]]:
    """Transpose references for sacrebleu: the first of all texts, the second, ...

    Missing references are None, which sacrebleu accepts despite its annotations.
    """
    check_references(labels, predictions)
    if not predictions:
        raise ValueError("there is no text to score")
    most = max(map(len, labels))
    return [[t[i] if i < len(t) else None for t in labels] for i in range(most)]


def check_references(labels: References, predictions: Sequence[str]) -> None:
    """Check that each text has a list of references.

    Raises:
        ValueError: one has none, or their numbers differ.
    """
    if len(labels) != len(predictions):
        raise ValueError(
            f"there are references for {len(labels)} texts, but {len(predictions)} texts"
        )
    for i, references in enumerate(labels):
        if isinstance(references, str) or not references:
            raise ValueError(f"text {i} must have a list of references, got {references!r}")


def _require_library(module: str, metric: str) -> None:
    if importlib.util.find_spec(module) is None:
        raise ImportError(f"{metric} needs {module}: pip install 'unmask[text-metrics]'")
