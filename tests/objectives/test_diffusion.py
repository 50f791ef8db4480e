"""Masked diffusion: the rate, the weights, and what the loss is an estimate of."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional as F
from vocabularies import BERT, T5, text

from unmask.batch import IGNORE_INDEX, Example
from unmask.batching.collate import pack_examples, pad_examples
from unmask.heads.language.language_modeling import LanguageModeling
from unmask.heads.model import Model
from unmask.model.backbones.transformer import Architecture
from unmask.objectives import published
from unmask.objectives.corrupt import DiffusionMasking
from unmask.objectives.features import WeightedTargets

DIFFUSION = published.MASKED_DIFFUSION


def weighted(example: Example) -> WeightedTargets:
    found = example.feature(WeightedTargets)
    assert found is not None
    return found


def draws(n_tokens: int, times: int) -> list[tuple[int, float]]:
    """Return the number of targets and the weight of many examples of a text."""
    rng, tokens = np.random.default_rng(0), text(np.full(n_tokens, 20))
    out = []
    for _ in range(times):
        e = DIFFUSION(tokens, BERT, rng)
        assert len(set(weighted(e).weight.tolist())) == 1
        out.append((int((e.targets != IGNORE_INDEX).sum()), float(weighted(e).weight[0])))
    return out


def test_rates_are_uniform_and_weights_are_inverse() -> None:
    found = np.array(draws(400, 1000))
    share, rate = found[:, 0] / 400, 1 / found[:, 1]
    assert rate.min() >= 0.001
    assert rate.max() <= 1
    assert abs(share.mean() - 0.5) < 0.05
    assert np.abs(np.quantile(rate, [0.25, 0.5, 0.75]) - [0.25, 0.5, 0.75]).max() < 0.06
    assert (np.abs(share - rate) <= 5 * np.sqrt(rate * (1 - rate) / 400) + 1e-9).all()


def test_all_targets_are_masked_and_special_tokens_not_counted() -> None:
    e = DIFFUSION(text(range(10, 40)), BERT, np.random.default_rng(2))
    is_target = e.targets != IGNORE_INDEX
    assert 0 < is_target.sum() < 30
    assert (e.inputs[is_target] == BERT.mask).all()
    assert (e.inputs[~is_target] != BERT.mask).all()
    assert weighted(e).n_tokens == 30


def test_expected_loss_equals_bound_over_masked_counts() -> None:
    """Let a target among k masked ones cost f(k): the bound is the mean of f(1) to f(n).

    The integral over t of 1/t times k times the probability of k masked tokens of n is 1 for each
    k, so each number of masked tokens counts alike.
    """
    cost = np.array([0.0, 1.0, 5.0, 2.0, 4.0])  # by k
    losses = [weight * k * cost[k] / 4 for k, weight in draws(4, 12_000)]
    assert abs(np.mean(losses) - cost[1:].mean()) < 0.12


A = Architecture(
    vocab_size=100, d_model=8, n_layers=1, n_heads=2, d_ff=16, dropout=0.0, attention_dropout=0.0
)


@torch.no_grad()
def expected_total(model: Model, examples: list[Example]) -> float:
    total = 0.0
    for e in examples:
        batch = pad_examples([e.without(WeightedTargets)], BERT)
        batch = replace(batch, target_positions=None, targets=batch.inputs)
        scores = model(batch, return_logits=True).logits["masked"]
        is_target = e.targets != IGNORE_INDEX
        own = e.feature(WeightedTargets)
        weight = torch.ones(len(is_target)) if own is None else torch.tensor(own.weight)
        losses = F.cross_entropy(
            scores[is_target], torch.tensor(e.targets[is_target]), reduction="none"
        )
        total += float((losses * weight[is_target]).sum())
    return total


@pytest.mark.parametrize("packed", [False, True])
def test_loss_is_weighted_and_divided_by_all_tokens(packed: bool) -> None:
    model = Model(A, {"language": LanguageModeling(term="masked")}).initialize(1)
    some = [DIFFUSION(text(range(10, 10 + n)), BERT, np.random.default_rng(n)) for n in (7, 30)]
    plain = published.MASKED_LM(text(range(10, 30)), BERT, np.random.default_rng(0))
    for examples, n in ((some, 37), ([*some, plain], 40)):
        batch = pack_examples(examples, BERT, 64) if packed else pad_examples(examples, BERT)
        prediction = model(batch, return_logits=True)
        term = prediction.terms["masked"]
        assert model.count_targets(batch) == {"masked": n}
        assert term.count == n
        assert float(term.total.detach()) == pytest.approx(
            expected_total(model, examples), rel=1e-4
        )
        is_target = int((batch.targets != IGNORE_INDEX).sum())
        assert len(prediction.logits["masked"]) == is_target
        term.loss.backward()
    assert torch.isfinite(model.backbone.tokens.weight.grad).all()


def test_text_without_masks_counts_with_zero_loss() -> None:
    model = Model(A, {"language": LanguageModeling(term="masked")}).initialize(1)
    all_shown = (DIFFUSION(text([10, 11]), BERT, np.random.default_rng(i)) for i in range(50))
    e = next(e for e in all_shown if (e.targets == IGNORE_INDEX).all())
    term = model(pad_examples([e], BERT)).terms["masked"]
    assert (float(term.total.detach()), term.count, int(term.n_correct)) == (0.0, 2, 0)


def test_invalid_options_are_refused() -> None:
    with pytest.raises(ValueError, match="min_rate must be above 0 and below 1, got 0"):
        DiffusionMasking(min_rate=0.0)
    with pytest.raises(ValueError, match="needs a mask"):
        DIFFUSION(text(range(10, 20)), replace(T5, sentinels=()), np.random.default_rng(0))
