"""Metrics of short answers: SQuAD's exact match and F1, with questions that have no answer.

Rajpurkar et al. 2016, arXiv:1606.05250, section 6.1; Rajpurkar et al. 2018, arXiv:1806.03822.
Details are those of the official scripts, versions 1.1 and 2.0, whose figures are these times 100.
They take English articles out of answers in any language (XQuAD is scored so too: of German, "der"
stays and "an" goes), and punctuation of ASCII alone.
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
"""From the right answers (none: there is no answer) and the predicted one ("": none) to 0 to 1."""


def normalize_answer(answer: str) -> str:
    """Lower case, take out punctuation, then articles, and join what is left by single spaces."""
    return " ".join(_ARTICLES.sub(" ", answer.lower().translate(_PUNCTUATION)).split())


def answer_exact_match(labels: Sequence[str], prediction: str) -> float:
    """Return whether an answer is one of the right ones, once normalized: 1 or 0."""
    return float(normalize_answer(prediction) in _normalize_labels(labels))


def answer_f1(labels: Sequence[str], prediction: str) -> float:
    """Compute the harmonic mean of precision and recall of words; of right answers the best.

    Where nothing is left of an answer after normalization it is right or wrong as a whole (script
    2.0; in 1.1 it is wrong).
    """
    words = normalize_answer(prediction).split()
    return max(_word_overlap_f1(right.split(), words) for right in _normalize_labels(labels))


def answer_metrics(
    labels: Sequence[Sequence[str]],
    predictions: Sequence[str],
    no_answer_scores: Float[np.ndarray, "n"] | None = None,
) -> dict[str, float]:
    """Compute all metrics of answers, from 0 to 1; 0 of nothing.

    `exact_match` and `answer_f1`; where some questions have no answer also the two over those that
    have one (`has_answer_...`) and the share of the others that were not answered
    (`no_answer_exact_match`, by definition equal to its F1).

    Args:
        labels: the right answers to each question, one of which is enough; none: it has no answer.
        predictions: the answer to each; "": it has none.
        no_answer_scores: how sure it is that a question has none. Then also `best_exact_match` and
            `best_answer_f1`, had those questions alone been answered whose score is at most
            `best_..._threshold`; `predictions` should then hold an answer to every question.

    Raises:
        FloatingPointError: a score is not finite.
    """
    metrics: dict[str, AnswerMetric] = {"exact_match": answer_exact_match, "answer_f1": answer_f1}
    each = {
        name: np.array([m(t, s) for t, s in zip(labels, predictions, strict=True)], np.float64)
        for name, m in metrics.items()
    }
    has = np.array([bool(t) for t in labels], bool)
    found = {name: _mean(values) for name, values in each.items()}
    if not has.all():
        found["has_answer_exact_match"] = _mean(each["exact_match"][has])
        found["has_answer_f1"] = _mean(each["answer_f1"][has])
        found["no_answer_exact_match"] = _mean(each["exact_match"][~has])
    if no_answer_scores is not None and len(no_answer_scores):
        for name, values in each.items():
            best, at = best_threshold(values, has, no_answer_scores)
            found |= {f"best_{name}": best, f"best_{name}_threshold": at}
    return found


def best_threshold(
    scores: Float[np.ndarray, "n"],
    has_answer: Bool[np.ndarray, "n"],
    no_answer_scores: Float[np.ndarray, "n"],
) -> tuple[float, float]:
    """Find up to which no-answer score to answer: the best mean score, and the least threshold.

    A question that is not answered scores 1 if it has no answer, else 0. Where it is best to answer
    none, the threshold is just below all of them (0 in the official script).
    Deviates: questions of equal no-answer scores are answered together; the official script tries
    each in turn, in the order of the file, which no threshold does.

    Args:
        scores: of the answers, were they given; at least one.
        has_answer: whether the question has an answer.
        no_answer_scores: how sure it is that it has none.

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
    """Normalize right answers; those of which nothing is left go, as in the script 2.0."""
    return [text for text in map(normalize_answer, labels) if text] or [""]


def _word_overlap_f1(label: Sequence[str], prediction: Sequence[str]) -> float:
    if not label or not prediction:
        return float(label == prediction)
    same = (Counter(label) & Counter(prediction)).total()
    return 2 * same / (len(label) + len(prediction))


def _mean(values: Float[np.ndarray, "n"]) -> float:
    return float(values.mean()) if len(values) else 0.0
