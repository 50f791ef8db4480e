"""Figures of short answers: by hand, and against the published rules written down once more."""

import math
import re
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unmask.tasks.metrics.question_answering import (
    answer_exact_match,
    answer_f1,
    answer_metrics,
    best_threshold,
    normalize_answer,
)

words = st.sampled_from(["the", "The", "a", "an", "cat", "Cat!", "theory", "dog's", "ÄN", "-", "x"])
texts = st.lists(words, max_size=5).map(" ".join)


def rule_normalized(text):
    """Rajpurkar et al. 2016, section 6.1: no articles, no punctuation; letter by letter."""
    kept = "".join(c for c in text.lower() if not (c.isascii() and c.isprintable()
                   and not c.isalnum() and c != " "))  # fmt: skip
    return " ".join(w for w in re.split(r"\s+", kept) if w not in ("a", "an", "the", ""))


def rule_f1(truth, said):
    truth, left = rule_normalized(truth).split(), rule_normalized(said).split()
    n_true, n_said = len(truth), len(left)
    if not n_true or not n_said:
        return float(truth == left)
    same = 0
    for word in left:
        if word in truth:
            truth.remove(word)
            same += 1
    if not same:
        return 0.0
    precision, recall = same / n_said, same / n_true
    return 2 * precision * recall / (precision + recall)


@given(texts)
def test_normalization_equals_squad_rules(text) -> None:
    assert normalize_answer(text) == rule_normalized(text)


@given(st.lists(texts.filter(rule_normalized), min_size=1, max_size=3), texts)
def test_metrics_are_the_best_over_gold_answers(truth, said) -> None:
    assert answer_f1(truth, said) == pytest.approx(max(rule_f1(t, said) for t in truth), abs=1e-12)
    expected = any(rule_normalized(t) == rule_normalized(said) for t in truth)
    assert answer_exact_match(truth, said) == expected


@pytest.mark.parametrize(
    ("text", "normalized"),
    [
        ("The Cat, sat.", "cat sat"),
        ("A-Team", "ateam"),  # punctuation goes first
        ("the-the", "thethe"),
        ("an  apple\tan hour\n", "apple hour"),
        ("der Hund", "der hund"),  # articles of other languages stay
        ("an der Elbe", "der elbe"),  # and this word is not an article
        ("“Quoted”", "“quoted”"),  # punctuation beyond ASCII stays
        ("theory", "theory"),
        ("The", ""),
    ],
)
def test_normalization_equals_hand_computation(text, normalized) -> None:
    assert normalize_answer(text) == normalized


def test_f1_equals_hand_computation() -> None:
    assert answer_f1(["the big black cat"], "black cat") == pytest.approx(2 * 2 / (3 + 2))
    assert answer_f1(["cat cat"], "cat") == pytest.approx(2 / 3)
    assert answer_f1(["dog", "a cat"], "The cat") == 1
    assert answer_f1([], "") == 1
    assert answer_f1([], "cat") == 0
    assert answer_f1(["cat"], "") == 0
    assert answer_exact_match([], "the") == 1  # nothing is left of it
    # of right answers, those of which nothing is left do not count, unless there is no other
    assert answer_exact_match(["the", "cat"], "a") == 0
    assert answer_f1(["the", "cat"], "") == 0
    assert answer_exact_match(["the"], "") == answer_f1(["the"], "") == 1


def test_answerable_and_unanswerable_are_also_scored_separately() -> None:
    truth = [["Paris"], ["the Rhine", "Rhine river"], [], []]
    output = ["paris.", "river Rhine", "", "Bonn"]
    assert answer_metrics(truth, output) == pytest.approx({
        "exact_match": 2 / 4, "answer_f1": 3 / 4, "has_answer_exact_match": 1 / 2,
        "has_answer_f1": 1.0, "no_answer_exact_match": 1 / 2,
    })  # fmt: skip
    assert answer_metrics(truth[:2], output[:2]) == pytest.approx(
        {"exact_match": 1 / 2, "answer_f1": 1}
    )
    assert answer_metrics([], []) == {"exact_match": 0.0, "answer_f1": 0.0}


def test_best_threshold_equals_hand_computation() -> None:
    truth = [["Paris"], ["Rhine"], [], []]
    output = ["Paris", "Elbe", "Bonn", "Ulm"]
    found = answer_metrics(truth, output, np.array([-2.0, -1.0, 0.5, 3.0]))
    assert found["exact_match"] == 1 / 4
    # answering the first alone: it is right, and both questions without an answer are
    assert found["best_exact_match"] == 3 / 4
    assert found["best_exact_match_threshold"] == -2
    assert found["best_answer_f1"] == 3 / 4


def test_never_answering_may_be_best() -> None:
    best, threshold = best_threshold(np.zeros(2), np.array([False, True]), np.array([1.0, 2.0]))
    assert best == 1 / 2
    assert threshold < 1
    assert math.isfinite(threshold)


rows = st.lists(
    st.tuples(st.sampled_from([0.0, 0.5, 1.0]), st.booleans(), st.integers(-3, 3)), min_size=1
)


@given(rows)
def test_best_threshold_is_optimal(rows) -> None:
    scores = np.array([score if has else 0.0 for score, has, _ in rows])
    has = np.array([has for _, has, _ in rows])
    doubt = np.array([float(d) for _, _, d in rows])

    def mean(threshold):
        return float(np.where(doubt <= threshold, scores, ~has).mean())

    best, threshold = best_threshold(scores, has, doubt)
    assert best == pytest.approx(mean(threshold))
    assert best == pytest.approx(max(mean(t) for t in np.arange(-4, 4)))


@settings(max_examples=40)
@given(rows.filter(lambda rows: len(rows) == len({d for _, _, d in rows})))
def test_best_score_equals_official_script_without_ties(rows) -> None:
    scores = np.array([score if has else 0.0 for score, has, _ in rows])
    has = np.array([has for _, has, _ in rows])
    doubt = np.array([float(d) for _, _, d in rows])
    total = best = int((~has).sum())  # nothing is answered; then one question after the other
    for i in sorted(range(len(rows)), key=lambda i: doubt[i]):
        total += scores[i] if has[i] else -1
        best = max(best, total)
    assert best_threshold(scores, has, doubt)[0] == pytest.approx(best / len(rows))


@settings(max_examples=30)
@given(st.text(max_size=12), st.text(max_size=12))
def test_any_two_texts_have_metrics(truth, said) -> None:
    found = answer_metrics([[truth]], [said])
    assert 0 <= found["exact_match"] <= found["answer_f1"] <= 1
    left, right = Counter(normalize_answer(truth).split()), Counter(normalize_answer(said).split())
    assert (found["answer_f1"] == 1) == (left == right)


def test_non_finite_null_scores_are_an_error() -> None:
    with pytest.raises(FloatingPointError, match="diverged"):
        answer_metrics([["a b"]], ["b"], np.array([np.inf]))
