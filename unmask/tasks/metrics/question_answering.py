"""Metrics of short answers: SQuAD's exact match and F1, with questions that have no answer.

Rajpurkar et al. 2016, arXiv:1606.05250, section 6.1; Rajpurkar et al. 2018, arXiv:1806.03822.
Details follow the official scripts, versions 1.1 and 2.0, which multiply by 100. They remove
English articles from answers in any language (also in XQuAD: German "der" stays, "an" is removed),
and ASCII punctuation only.
"""

import re
import string
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Bool, Float

from unmask.tasks.metrics.regression import check_finite

_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)

AnswerMetric = Callable[[Sequence[str], str], float]
"""Score from 0 to 1 of a predicted answer ("": none) given the correct ones (none: no answer)."""


def normalize_answer(answer: str) -> str:
    """Lowercase, remove punctuation and articles, and collapse white space."""
    return " ".join(_ARTICLES.sub(" ", answer.lower().translate(_PUNCTUATION)).split())


def answer_exact_match(labels: Sequence[str], prediction: str) -> float:
    """Return 1 if a normalized answer is one of the correct ones, else 0."""
    return float(normalize_answer(prediction) in _normalize_labels(labels))


def answer_f1(labels: Sequence[str], prediction: str) -> float:
    """Compute the harmonic mean of word precision and recall, for the best correct answer.

    An answer that normalization leaves empty must match exactly (script 2.0; in 1.1 it is wrong).
    """
    words = normalize_answer(prediction).split()
    return max(_word_overlap_f1(label.split(), words) for label in _normalize_labels(labels))


def answer_metrics(
    labels: Sequence[Sequence[str]],
    predictions: Sequence[str],
    no_answer_scores: Float[np.ndarray, "n"] | None = None,
) -> dict[str, float]:
    """Compute all answer metrics, from 0 to 1; 0 without questions.

    `exact_match` and `answer_f1`; if some questions have no answer also both over those that have
    one (`has_answer_...`) and the share of the others left unanswered (`no_answer_exact_match`, by
    definition equal to its F1).

    Args:
        labels: the correct answers to each question; empty: it has no answer.
        predictions: the answer to each; "": no answer.
        no_answer_scores: confidence that a question has no answer. Adds `best_exact_match` and
            `best_answer_f1`, the scores if only questions with a score up to `best_..._threshold`
            are answered; `predictions` should then answer every question.

    Raises:
        FloatingPointError: a score is not finite.
    """
    metrics: dict[str, AnswerMetric] = {"exact_match": answer_exact_match, "answer_f1": answer_f1}
    scores = {
        name: np.array([m(t, s) for t, s in zip(labels, predictions, strict=True)], np.float64)
        for name, m in metrics.items()
    }
    has = np.array([bool(t) for t in labels], bool)
    results = {name: _mean(values) for name, values in scores.items()}
    if not has.all():
        results["has_answer_exact_match"] = _mean(scores["exact_match"][has])
        results["has_answer_f1"] = _mean(scores["answer_f1"][has])
        results["no_answer_exact_match"] = _mean(scores["exact_match"][~has])
    if no_answer_scores is not None and len(no_answer_scores):
        for name, values in scores.items():
            best, threshold = best_threshold(values, has, no_answer_scores)
            results |= {f"best_{name}": best, f"best_{name}_threshold": threshold}
    return results


def best_threshold(
    scores: Float[np.ndarray, "n"],
    has_answer: Bool[np.ndarray, "n"],
    no_answer_scores: Float[np.ndarray, "n"],
) -> tuple[float, float]:
    """Find the no-answer threshold: the best mean score and the lowest threshold that gives it.

    An unanswered question scores 1 if it has no answer, else 0. If answering none is best, the
    threshold is just below all scores (0 in the official script). Deviates: questions with equal
    no-answer scores are answered together; the official script adds them one by one in file order,
    which no threshold can.

    Args:
        scores: score of each answer if given; at least one.
        has_answer: whether the question has an answer.
        no_answer_scores: confidence that it has none.

    Raises:
        FloatingPointError: a score is not finite.
    """
    check_finite(no_answer_scores)
    order = np.argsort(no_answer_scores, kind="stable")
    ordered = no_answer_scores[order]
    last = np.flatnonzero(np.append(ordered[1:] != ordered[:-1], True))
    gained = np.cumsum((scores - ~has_answer)[order])[last]
    totals = (~has_answer).sum() + np.concatenate([[0.0], gained])
    thresholds = np.concatenate([[np.nextafter(ordered[0], -np.inf)], ordered[last]])
    best = int(totals.argmax())
    return float(totals[best] / len(scores)), float(thresholds[best])


def _normalize_labels(labels: Sequence[str]) -> list[str]:
    """Normalize correct answers and drop empty ones, as in script 2.0."""
    return [text for text in map(normalize_answer, labels) if text] or [""]


def _word_overlap_f1(label: Sequence[str], prediction: Sequence[str]) -> float:
    if not label or not prediction:
        return float(label == prediction)
    n_common = (Counter(label) & Counter(prediction)).total()
    return 2 * n_common / (len(label) + len(prediction))


def _mean(values: Float[np.ndarray, "n"]) -> float:
    return float(values.mean()) if len(values) else 0.0
