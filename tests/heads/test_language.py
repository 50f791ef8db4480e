import math
from itertools import pairwise

import pytest
import torch
from torch.nn import functional as F

from unmask.batch import IGNORE_INDEX, Batch
from unmask.heads.language import linear_cross_entropy as fused
from unmask.heads.language.language_modeling import LanguageModeling
from unmask.heads.language.linear_cross_entropy import linear_cross_entropy
from unmask.heads.model import Model
from unmask.model.backbones.transformer import Architecture

TINY = Architecture(
    vocab_size=23, d_model=8, n_layers=1, n_heads=2, d_ff=16, dropout=0.0, attention_dropout=0.0
)


@pytest.mark.parametrize("rows", [1, 4, 100])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("cap", [None, 3.0])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_loss_and_gradients_equal_cross_entropy_for_any_chunk_size(
    rows, biased, cap, smoothing, monkeypatch
) -> None:
    monkeypatch.setattr(fused, "ROWS_PER_CHUNK", rows)
    torch.manual_seed(0)
    leaves = [torch.randn(11, 8), torch.randn(23, 8), torch.randn(23)]
    leaves = [x.double().requires_grad_() for x in leaves]
    hidden, weight, bias = leaves if biased else (*leaves[:2], None)
    targets = torch.randint(0, 23, (11,))
    total, right = linear_cross_entropy(
        hidden, weight, bias, targets, softcap=cap, label_smoothing=smoothing
    )
    scores = F.linear(hidden, weight, bias)
    scores = scores if cap is None else cap * torch.tanh(scores / cap)
    expected = F.cross_entropy(scores, targets, reduction="sum", label_smoothing=smoothing)
    assert torch.allclose(total.double(), expected)
    assert int(right) == int((scores.argmax(-1) == targets).sum())
    leaves = leaves if biased else leaves[:2]
    ours = torch.autograd.grad(total * 0.3, leaves)
    theirs = torch.autograd.grad(expected * 0.3, leaves)
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(ours, theirs, strict=True))


def test_label_smoothing_applies_in_training_only() -> None:
    torch.manual_seed(0)
    hidden, targets = torch.randn(5, 8), torch.randint(0, 23, (5,))
    plain, smooth = (
        Model(TINY, {"language": LanguageModeling(label_smoothing=x)}).initialize(1).language_head
        for x in (0.0, 0.3)
    )
    assert torch.equal(
        plain.eval().loss(hidden, targets)[0], smooth.eval().loss(hidden, targets)[0]
    )
    expected = F.cross_entropy(smooth.logits(hidden), targets, reduction="sum", label_smoothing=0.3)
    assert torch.allclose(smooth.train().loss(hidden, targets)[0], expected)
    with pytest.raises(ValueError, match="smoothing must be at least 0 and below 1, got 1"):
        LanguageModeling(label_smoothing=1.0)


def test_very_unlikely_target_has_finite_loss() -> None:
    total, _ = linear_cross_entropy(
        torch.ones(1, 1), torch.tensor([[500.0], [0.0]]), None, torch.tensor([1])
    )
    assert float(total) == pytest.approx(500.0)


@pytest.mark.parametrize("chunk", [1, 46, 2**20])
def test_of_equal_logits_the_first_is_the_prediction(chunk, monkeypatch) -> None:
    monkeypatch.setattr(fused, "CPU_CHUNK_LOGITS", chunk)
    bias = torch.zeros(23)
    for targets, right in (([0, 1, 22], 1), ([0, 0, 0], 3), ([5, 6, 7], 0)):
        total, found = linear_cross_entropy(
            torch.ones(3, 8), torch.zeros(23, 8), bias, torch.tensor(targets)
        )
        assert (int(found), float(total)) == (right, pytest.approx(3 * math.log(23)))
    bias[[4, 9]] = 1.0
    targets = torch.tensor([4, 9, 0])
    _, found = linear_cross_entropy(torch.ones(3, 8), torch.zeros(23, 8), bias, targets)
    assert int(found) == 1


@pytest.mark.trials("numbers")
def test_no_targets_give_zero_loss_and_gradients() -> None:
    model = Model(TINY, {"language": LanguageModeling(transform="gelu", bias=True)}).initialize()
    batch = Batch(
        inputs=torch.ones(2, 3, dtype=torch.long),
        targets=torch.full((2, 3), IGNORE_INDEX),
        target_positions=torch.zeros(0, dtype=torch.long),
    )
    prediction = model(batch)
    assert model.count_targets(batch) == {"next_token": 0}
    assert float(prediction.loss.detach()) == 0
    prediction.loss.backward()
    assert all(p.grad is None or not p.grad.any() for p in model.parameters())


def test_target_position_without_target_is_refused() -> None:
    model = Model(TINY, {"language": LanguageModeling()})
    batch = Batch(
        inputs=torch.ones(1, 2, dtype=torch.long), targets=torch.tensor([[3, IGNORE_INDEX]])
    )
    with pytest.raises(ValueError, match="without a target"):
        model(batch)


def test_micro_batch_terms_add_up_to_the_batch() -> None:
    model = Model(TINY, {"language": LanguageModeling()}).initialize(1)
    torch.manual_seed(0)
    inputs, targets = torch.randint(0, 23, (2, 5, 6))
    targets[torch.rand(5, 6) < 0.5] = IGNORE_INDEX

    def term(rows: slice):
        is_target = (targets[rows].flatten() != IGNORE_INDEX).nonzero()[:, 0]
        batch = Batch(inputs=inputs[rows], targets=targets[rows], target_positions=is_target)
        return model(batch).terms["next_token"]

    whole = term(slice(0, 5))
    parts = [term(slice(a, b)) for a, b in pairwise((0, 1, 3, 5))]
    assert sum(p.count for p in parts) == whole.count
    assert float(sum(p.total.detach() for p in parts)) == pytest.approx(
        float(whole.total.detach()), rel=1e-6
    )


def test_logits_are_those_of_target_positions() -> None:
    model = Model(TINY, {"language": LanguageModeling(bias=True)}).initialize(1)
    inputs = torch.arange(6)[None]
    columns = torch.tensor([1, 4])
    targets = torch.where(torch.tensor([0, 1, 0, 0, 1, 0]) == 1, inputs, IGNORE_INDEX)
    prediction = model(
        Batch(inputs=inputs, targets=targets, target_positions=columns), return_logits=True
    )
    every = model.language_head.logits(model.hidden_states(Batch(inputs=inputs)))
    assert torch.allclose(prediction.logits["next_token"], every[0, columns], atol=1e-6)


def test_tied_head_adds_no_parameters_and_copies_stay_tied() -> None:
    import copy

    tied = Model(TINY, {"language": LanguageModeling()})
    assert not list(tied.heads["language"].parameters())
    clone = copy.deepcopy(tied)
    assert clone.language_head.weight is clone.backbone.embedding_table.weight
    assert clone.language_head.weight is not tied.language_head.weight
    untied = Model(TINY, {"language": LanguageModeling(tie_embeddings=False)})
    assert untied.parameter_count() == tied.parameter_count() + 23 * 8
