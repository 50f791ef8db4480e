"""Diversity equals values computed by hand, and sacrebleu's where that is long."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sacrebleu.metrics.bleu import BLEU

from unmask.tasks.metrics.responses.diversity import distinct_n, self_bleu


@pytest.mark.parametrize(
    ("texts", "n", "expected"),
    [
        (["a b a b", "a b"], 1, 2 / 6),
        (["a b a b", "a b"], 2, 2 / 4),  # ab ba ab, ab: not across texts
        (["a b a b", "a b"], 3, 1.0),
        (["a b", "c"], 3, 0.0),
        (["one"], 1, 1.0),
        (["", " \n"], 1, 0.0),
        (["A a", "a."], 1, 1.0),  # case and punctuation are kept
    ],
)
def test_distinct_n_by_hand(texts: list[str], n: int, expected: float) -> None:
    assert distinct_n(texts, n) == pytest.approx(expected)


@given(st.lists(st.text("ab ", max_size=12), min_size=1, max_size=5), st.integers(1, 3))
def test_repeating_texts_keeps_what_is_distinct(texts: list[str], n: int) -> None:
    assert distinct_n(texts * 2, n) == pytest.approx(distinct_n(texts, n) / 2)


def test_self_bleu_by_hand() -> None:
    """Unigrams 4/5 and 4/6 of equal bigrams 3/4, 3/5, ... of texts that differ in a word."""
    texts = ["a b c d e", "a b c d f", "x y z u v w"]
    metric = BLEU(effective_order=True)
    rows = [
        metric.sentence_score("a b c d e", ["a b c d f", "x y z u v w"]).score,
        metric.sentence_score("a b c d f", ["a b c d e", "x y z u v w"]).score,
        metric.sentence_score("x y z u v w", ["a b c d e", "a b c d f"]).score,
    ]
    # the first two: (4/5 3/4 2/3 1/2)^(1/4), of the length of a reference
    assert rows[0] == rows[1] == pytest.approx(100 * 0.2**0.25)
    found = self_bleu(texts)
    assert found.value == pytest.approx(sum(rows) / 3)
    assert found.n_texts == 3
    assert "tok:13a" in found.signature
    assert "smooth:exp" in found.signature
    assert "eff:yes" in found.signature


def test_self_bleu_of_equal_and_of_unrelated_texts() -> None:
    assert self_bleu(["the cat sat on the mat"] * 4).value == 100
    assert self_bleu(["a", "b"]).value == 0
    assert self_bleu(["", ""]).value == 0


def test_self_bleu_samples_by_its_seed() -> None:
    texts = [f"{i} {i % 3} the cat" for i in range(30)]
    found = self_bleu(texts, max_texts=5, seed=1)
    assert found.n_texts == 5
    assert found == self_bleu(texts, max_texts=5, seed=1)
    values = {self_bleu(texts, max_texts=5, seed=seed).value for seed in range(4)}
    assert len(values) > 1


def test_too_few_texts_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^distinct-2 needs a text, got none$"):
        distinct_n([], 2)
    with pytest.raises(ValueError, match=r"^n must be at least 1, got 0$"):
        distinct_n(["a"], 0)
    with pytest.raises(ValueError, match=r"^Self-BLEU compares .* needs 2, got 1$"):
        self_bleu(["one"])
    with pytest.raises(ValueError, match=r"^max_texts must be at least 2, got 1$"):
        self_bleu(["one", "two"], max_texts=1)
