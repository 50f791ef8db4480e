"""Figures of texts: those of the libraries, and by hand where that is short."""

import importlib.util

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rouge_score.rouge_scorer import RougeScorer
from sacrebleu import corpus_bleu, corpus_chrf

from unmask.tasks.metrics import generation
from unmask.tasks.metrics.generation import bleu, chrf, exact_match, generation_metrics, rouge

SAID = ["the cat sat on the mat today", "a dog barked", "für Elise"]
ONE = [["the cat sat on a mat today"], ["the dog barked loudly"], ["für Elise"]]


def test_bleu_and_chrf_equal_sacrebleu_with_signature() -> None:
    stream = [t[0] for t in ONE]
    assert bleu(ONE, SAID).value == pytest.approx(corpus_bleu(SAID, [stream]).score)
    assert bleu(ONE, SAID).signature.startswith("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|")
    assert bleu(ONE, SAID, tokenize="char").value > bleu(ONE, SAID).value
    assert chrf(ONE, SAID).value == pytest.approx(corpus_chrf(SAID, [stream]).score)
    assert "nw:2" in chrf(ONE, SAID, word_order=2).signature


def test_texts_may_have_different_numbers_of_references() -> None:
    several = [[*ONE[0], SAID[0]], ONE[1], [*ONE[2], "x", "y"]]
    assert bleu(several, SAID).value > bleu(ONE, SAID).value
    assert "nrefs:var" in bleu(several, SAID).signature
    assert chrf(several, SAID).value > chrf(ONE, SAID).value


def test_correct_text_scores_best() -> None:
    right = [[text] for text in SAID]
    found = generation_metrics(right, SAID)
    # ROUGE-2 of one word is 0, and of "für" rouge-score keeps "f" and "r"
    assert found == pytest.approx({
        "exact_match": 1, "bleu": 100, "chrf": 100, "rouge1": 1, "rouge2": 1, "rougeL": 1,
    })  # fmt: skip


def test_rouge_equals_hand_computation() -> None:
    found = rouge([["a b c d"]], ["a c d"])
    assert found["rouge1"] == pytest.approx(2 * 3 / 7)
    assert found["rouge2"] == pytest.approx(2 * 1 / 5)
    assert found["rougeL"] == pytest.approx(2 * 3 / 7)
    assert rouge([], []) == {"rouge1": 0.0, "rouge2": 0.0, "rougeL": 0.0}


def test_several_references_give_best_or_mean() -> None:
    truth, output = [["a b c d", "a c d"]], ["a c d"]
    assert rouge(truth, output)["rouge1"] == pytest.approx(1)
    assert rouge(truth, output, types="mean")["rouge1"] == pytest.approx((1 + 6 / 7) / 2)


words = st.sampled_from(["a", "b", "c", "cats", "ran", "running"])
sentences = st.lists(words, min_size=1, max_size=8).map(" ".join)


@settings(max_examples=30)
@given(st.lists(sentences, min_size=1, max_size=3), sentences, st.booleans())
def test_rouge_equals_rouge_score(truth, output, stem) -> None:
    names = ["rouge1", "rouge2", "rougeL"]
    theirs = RougeScorer(names, use_stemmer=stem).score_multi(truth, output)
    expected = {name: theirs[name].fmeasure for name in names}
    assert rouge([truth], [output], use_stemmer=stem) == pytest.approx(expected)


def test_non_english_letters_are_kept_if_requested() -> None:
    truth, output = [["Füße"]], ["Fähe"]
    assert rouge(truth, output)["rouge1"] > 0  # "f" and "e" are words
    assert rouge(truth, output, is_english=False)["rouge1"] == 0
    assert rouge(truth, ["füße!"], is_english=False)["rouge1"] == 1
    with pytest.raises(ValueError, match="stem=True is for English"):
        rouge(truth, output, is_english=False, use_stemmer=True)


def test_exact_match_ignores_white_space_only() -> None:
    assert exact_match([["a b", "c"], ["A"], ["x"]], [" a\tb\n", "a", "x"]) == 2 / 3
    assert exact_match([], []) == 0


@pytest.mark.parametrize("score", [bleu, chrf, rouge, exact_match])
def test_text_without_references_is_an_error(score) -> None:
    with pytest.raises(ValueError, match=r"text 1 must have a list of references, got \[\]"):
        score([["a"], []], ["a", "b"])
    with pytest.raises(ValueError, match="text 0 must have a list of references, got 'a'"):
        score(["a"], ["a"])
    with pytest.raises(ValueError, match="references for 1 texts, but 2 texts"):
        score([["a"]], ["a", "b"])


@pytest.mark.parametrize("score", [bleu, chrf])
def test_bleu_and_chrf_of_no_text_are_an_error(score) -> None:
    with pytest.raises(ValueError, match="no text to score"):
        score([], [])


@pytest.mark.parametrize(
    ("score", "module"), [(bleu, "sacrebleu"), (chrf, "sacrebleu"), (rouge, "rouge_score")]
)
def test_missing_library_is_named(score, module, monkeypatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=rf"needs {module}: pip install 'unmask\[text-metrics\]'"):
        score([["a"]], ["a"])
    assert generation.exact_match([["a"]], ["a"]) == 1
