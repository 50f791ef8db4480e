"""Curves of removal equal probabilities of masked texts; areas equal formulas."""

from pathlib import Path

import numpy as np
import pytest
import torch
from small_models import make

from unmask.analysis.saliency.analyze import (
    ALL_METHODS,
    SaliencySettings,
    baseline_embedding,
    explain,
    rank_correlations,
    resolve_baseline,
)
from unmask.analysis.saliency.decisions import EmbeddedDecision
from unmask.analysis.saliency.faithfulness import (
    FRACTIONS,
    RemovalCurve,
    mean_curve,
    named_words,
    removal_curve,
)
from unmask.analysis.saliency.labels import label_decisions
from unmask.finetuning.results.predict import infer_task, make_items

TEXTS = ["the dog sees the old cat and sleeps near the house", "a cat sees", "the dog"]


def test_the_most_important_words_are_named_first() -> None:
    words = np.array([0.1, 3.0, -2.0, 3.0, 0.5, 0.0, 0.2, 0.3, 0.4, 0.6])
    named = named_words(words)
    assert named.sum(1).tolist() == [1, 1, 1, 2, 5]  # 1, 5, 10, 20 and 50 % of ten, rounded up
    assert named[0].nonzero().flatten().tolist() == [1]  # the first of equals
    assert named[3].nonzero().flatten().tolist() == [1, 3]
    assert named[4].nonzero().flatten().tolist() == [1, 3, 4, 8, 9]


def test_area_is_that_of_the_paper() -> None:
    curve = RemovalCurve(np.array([0.1, 0.2, 0.3, 0.4, 0.5]), np.array([0.5, 0.4, 0.3, 0, 0]), 0.6)
    assert curve.area == pytest.approx((1.5 / 6, 1.8 / 6))
    both = mean_curve([curve, RemovalCurve(np.zeros(5), np.zeros(5), 0.0)])
    assert both.area == pytest.approx((0.75 / 6, 0.9 / 6))


def test_curves_are_what_the_reference_says_of_masks(tmp_path: Path) -> None:
    reference, loaded = make("bert", tmp_path, "BertForSequenceClassification", num_labels=3)
    tokenizer = loaded.tokenizer
    assert tokenizer is not None
    task = infer_task(loaded)
    removed = baseline_embedding(loaded.model, tokenizer, "mask")
    (decision,) = label_decisions(loaded, task, make_items(task, TEXTS[:1]))
    assert decision is not None
    one = EmbeddedDecision(loaded.model, decision, removed)
    words = np.random.default_rng(0).normal(size=one.n_words)
    curve = removal_curve(one, words)
    ids = torch.from_numpy(decision.pieces.token_ids)[None]
    owner = torch.from_numpy(decision.pieces.word_of_token)

    def probabilities(kept: set[int]) -> torch.Tensor:
        stays = torch.tensor([int(word) in kept or word < 0 for word in owner])
        with torch.no_grad():
            logits = reference(input_ids=torch.where(stays, ids, tokenizer.special_ids.mask)).logits
        return logits.softmax(-1)[0]

    every = set(range(one.n_words))
    whole = probabilities(every)
    label = int(whole.argmax())
    order = sorted(every, key=lambda word: -words[word])
    for i, fraction in enumerate(FRACTIONS):
        named = set(order[: int(np.ceil(fraction * len(order)))])
        lost = float(whole[label] - probabilities(every - named)[label])
        assert curve.comprehensiveness[i] == pytest.approx(lost, abs=1e-5)
        lost = float(whole[label] - probabilities(named)[label])
        assert curve.sufficiency[i] == pytest.approx(lost, abs=1e-5)
    assert curve.nothing == pytest.approx(
        float(whole[label] - probabilities(set())[label]), abs=1e-5
    )


def test_all_methods_of_all_texts(tmp_path: Path) -> None:
    _, loaded = make("bert", tmp_path, "BertForSequenceClassification", num_labels=3)
    tokenizer = loaded.tokenizer
    assert tokenizer is not None
    task, settings = infer_task(loaded), SaliencySettings(steps=8, draws=3)
    found = label_decisions(loaded, task, make_items(task, TEXTS))
    decisions = [one for one in found if one is not None]
    texts, scores = explain(loaded.model, tokenizer, decisions, ALL_METHODS, settings, 0)
    again, _ = explain(loaded.model, tokenizer, decisions, ALL_METHODS, settings, 0)
    assert texts == again
    assert [one.method for one in scores] == [*ALL_METHODS, "random"]
    random = scores[-1]
    assert random.above_random == random.below_random == (0, 0)
    for one in scores:
        low, high = one.above_random
        assert low <= one.comprehensiveness_area - random.comprehensiveness_area <= high
    # with the same weights, a method attributes the same: a rank correlation of 1
    removed = baseline_embedding(loaded.model, tokenizer, "mask")
    same = rank_correlations(texts, loaded.model, decisions, removed, scores, 8)
    assert [one.rank_correlation for one in same[:-1]] == pytest.approx([1.0] * 4)
    assert same[-1].rank_correlation is None


def test_baselines(tmp_path: Path) -> None:
    _, loaded = make("bert", tmp_path / "bert", "BertForSequenceClassification")
    tokenizer = loaded.tokenizer
    assert tokenizer is not None
    assert resolve_baseline(tokenizer, None) == "mask"
    table, special = loaded.model.backbone.embedding_table.weight, tokenizer.special_ids
    for name, row in (("mask", table[special.mask]), ("pad", table[special.pad])):
        assert torch.equal(baseline_embedding(loaded.model, tokenizer, name), row)
    assert not baseline_embedding(loaded.model, tokenizer, "zero").any()
    _, decoder = make("gpt2", tmp_path / "gpt2")
    assert decoder.tokenizer is not None
    assert resolve_baseline(decoder.tokenizer, None) == "zero"
    with pytest.raises(ValueError, match="pad or zero for a tokenizer without a mask, got mask"):
        resolve_baseline(decoder.tokenizer, "mask")
