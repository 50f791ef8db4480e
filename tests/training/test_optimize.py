import math
from dataclasses import replace

import pytest
import torch
import toy
from torch import nn

from unmask.training import loop
from unmask.training.device import distributed
from unmask.training.optimizers import build
from unmask.training.optimizers import config as optimizer_config
from unmask.training.optimizers.build import hidden_matrix_names, uses_weight_decay
from unmask.training.optimizers.master_weights import MasterWeights
from unmask.training.optimizers.muon import orthogonalize


def backward(model, step, scale=1.0):
    prediction = model(toy.rows(step))
    (prediction.loss * scale).backward()


def steps_of(config, n, dtype=torch.float32, rate=0.01):
    """Train a toy for n steps; return the masters after each step and the gradients of each."""
    model = toy.model().eval()
    weights = MasterWeights(model, dtype)
    optimizer = build.build_optimizer(config, model, weights)
    start = {name: t.clone() for name, t in weights.masters.items()}
    after, gradients = [], []
    for step in range(n):
        weights.begin_step()
        backward(model, step)
        weights.finish_backward(weights.has_gradient)
        gradients.append({name: g.clone() for name, g in weights.gradients.items()})
        optimizer.step(rate)
        weights.copy_to_model()
        after.append({name: t.clone() for name, t in weights.masters.items()})
    return start, after, gradients


def test_weight_decay_excludes_biases_norms_and_vectors():
    weights = MasterWeights(toy.model())
    assert {name for name, t in weights.masters.items() if not uses_weight_decay(name, t)} == {
        "backbone.up.bias",
        "backbone.norm.weight",
        "backbone.norm.bias",
        "backbone.unused.bias",
        "heads.masked.bias",
        "heads.label.bias",
    }
    assert not uses_weight_decay("attention.bias", torch.zeros(3, 3))


def test_hidden_matrices_exclude_heads_and_embeddings():
    assert hidden_matrix_names(toy.model()) == {
        "backbone.up.weight",
        "backbone.down.weight",
        "backbone.unused.weight",
    }


def test_tied_parameters_are_one():
    weights = MasterWeights(toy.model())
    assert "backbone.tokens.weight" in weights.masters
    assert "heads.masked.table.weight" not in weights.masters


def test_adamw_equals_torch():
    config = optimizer_config.AdamW(betas=(0.8, 0.9), eps=1e-5, weight_decay=0.3)
    _, after, _ = steps_of(config, 5)
    model = toy.model().eval()
    named = dict(model.named_parameters())
    reference = torch.optim.AdamW(
        [
            {
                "params": [p for n, p in named.items() if uses_weight_decay(n, p)],
                "weight_decay": 0.3,
            },
            {
                "params": [p for n, p in named.items() if not uses_weight_decay(n, p)],
                "weight_decay": 0.0,
            },
        ],
        lr=0.01,
        betas=(0.8, 0.9),
        eps=1e-5,
        foreach=False,
        fused=False,
    )
    for step in range(5):
        reference.zero_grad()
        backward(model, step)
        reference.step()
    for name, p in named.items():
        # The fused kernel orders the same operations otherwise.
        torch.testing.assert_close(after[-1][name], p.detach(), rtol=1e-5, atol=1e-7)


OPTIMIZERS = [
    optimizer_config.AdamW(),
    optimizer_config.LAMB(),
    optimizer_config.Muon(),
    optimizer_config.Adafactor(),
    optimizer_config.SGD(momentum=0.9, averaging_patience=1),
]


def test_lamb_equals_algorithm_2():
    config = optimizer_config.LAMB(betas=(0.8, 0.9), eps=1e-4, weight_decay=0.3)
    start, after, gradients = steps_of(config, 4, rate=0.02)
    for name, x in start.items():
        if "unused" in name:
            continue
        x = x.double()
        m, v = torch.zeros_like(x), torch.zeros_like(x)
        for t in range(1, 5):
            g = gradients[t - 1][name].double()
            m, v = 0.8 * m + 0.2 * g, 0.9 * v + 0.1 * g**2
            r = (m / (1 - 0.8**t)) / ((v / (1 - 0.9**t)) ** 0.5 + 1e-4)
            if x.ndim >= 2:
                r = r + 0.3 * x
                r = r * x.norm() / r.norm()
            x = x - 0.02 * r
            torch.testing.assert_close(after[t - 1][name].double(), x, rtol=1e-5, atol=1e-6)


def test_lamb_updates_zero_matrix_without_trust_ratio():
    model = nn.Linear(3, 2)
    nn.init.zeros_(model.weight)
    weights = MasterWeights(model)
    optimizer = build.build_optimizer(optimizer_config.LAMB(weight_decay=0.0), model, weights)
    weights.begin_step()
    model(torch.ones(1, 3)).sum().backward()
    weights.finish_backward(weights.has_gradient)
    optimizer.step(0.1)
    torch.testing.assert_close(model.weight.detach(), torch.full((2, 3), -0.1), rtol=1e-4, atol=0)


def test_adafactor_equals_algorithm_4():
    config = optimizer_config.Adafactor()
    start, after, gradients = steps_of(config, 4, rate=0.3)
    for name, x in start.items():
        if "unused" in name:
            continue
        x, rows, columns, square = x.double(), 0.0, 0.0, 0.0
        for t in range(1, 5):
            g = gradients[t - 1][name].double()
            kept = 1 - t**-0.8
            squares = g**2 + 1e-30
            if x.ndim > 1:
                rows = kept * rows + (1 - kept) * squares.sum(-1, keepdim=True)
                columns = kept * columns + (1 - kept) * squares.sum(-2, keepdim=True)
                v = rows @ columns / rows.sum()
            else:
                v = square = kept * square + (1 - kept) * squares
            u = g / v.sqrt()
            size = max(1e-3, x.pow(2).mean().sqrt())
            x = x - size * min(0.3, t**-0.5) * u / max(1.0, u.pow(2).mean().sqrt())
            torch.testing.assert_close(after[t - 1][name].double(), x, rtol=1e-4, atol=1e-5)


def test_adafactor_state_is_rows_and_columns():
    model = toy.model().eval()
    weights = MasterWeights(model)
    optimizer = build.build_optimizer(optimizer_config.Adafactor(), model, weights)
    weights.begin_step()
    backward(model, 0)
    weights.finish_backward(weights.has_gradient)
    optimizer.step(0.01)
    numbers = sum(t.numel() for t in optimizer.state_tensors().values())
    moved = [m for m in weights.masters.values() if m.grad is not None]
    assert numbers == sum((sum(m.shape) if m.ndim > 1 else m.numel()) + 1 for m in moved)
    assert all(bool(m.isfinite().all()) for m in moved)  # rows of a table that were never read


def test_muon_equals_orthogonalized_nesterov_at_adamw_scale():
    config = optimizer_config.Muon(momentum=0.9, weight_decay=0.5)
    start, after, gradients = steps_of(config, 3, rate=0.02)
    others, _, _ = steps_of(config.other_parameters, 3, rate=0.02)[1], None, None
    a, b, c = 3.4445, -4.7750, 2.0315
    for name, x in start.items():
        if "unused" in name:
            continue
        if name not in ("backbone.up.weight", "backbone.down.weight"):
            # Moved by AdamW: the first step, whose gradients are equal, shows it.
            torch.testing.assert_close(after[0][name], others[0][name], rtol=0, atol=0)
            continue
        x, m = x.double(), torch.zeros_like(x, dtype=torch.float64)
        for t in range(3):
            g = gradients[t][name].double()
            m = 0.9 * m + g
            u, s, v = torch.linalg.svd(g + 0.9 * m, full_matrices=False)
            s = s / s.norm()
            for _ in range(5):
                s = a * s + b * s**3 + c * s**5  # what the iteration does to singular values
            update = u @ torch.diag(s) @ v * 0.2 * math.sqrt(max(x.shape))
            x = x - 0.02 * 0.5 * x - 0.02 * update
            torch.testing.assert_close(after[t][name].double(), x, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("shape", [(8, 8), (3, 20), (20, 3), (1, 5)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_orthogonalization_brings_singular_values_near_one(shape, dtype):
    torch.manual_seed(0)
    values = torch.linalg.svdvals(orthogonalize(torch.randn(shape) * 1e3, dtype))
    assert values.min() > 0.5
    assert values.max() < 1.3


def test_orthogonalization_of_zeros_is_zero():
    assert not orthogonalize(torch.zeros(3, 4)).any()


@pytest.mark.parametrize("config", OPTIMIZERS)
def test_parameter_without_gradient_is_neither_updated_nor_decayed(config):
    start, after, _ = steps_of(config, 2)
    assert torch.equal(start["backbone.unused.weight"], after[-1]["backbone.unused.weight"])


@pytest.mark.parametrize("config", OPTIMIZERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_optimizer_state_round_trips_exactly(config, dtype):
    def trained(optimizer, model, weights, steps):
        for step in steps:
            weights.begin_step()
            backward(model, step)
            weights.finish_backward(weights.has_gradient)
            optimizer.step(0.01)
            weights.copy_to_model()

    model = toy.model().eval()
    weights = MasterWeights(model, dtype)
    optimizer = build.build_optimizer(config, model, weights)
    trained(optimizer, model, weights, range(3))
    kept = {name: t.clone() for name, t in optimizer.state_tensors().items()}
    masters = {name: t.clone() for name, t in weights.masters.items()}
    trained(optimizer, model, weights, range(3, 6))

    other = toy.model(1).eval()
    theirs = MasterWeights(other, dtype)
    for name, t in masters.items():
        theirs.masters[name].copy_(t)
    theirs.copy_to_model()
    again = build.build_optimizer(config, other, theirs)
    again.load_state(kept)
    assert all(torch.equal(kept[n], t) for n, t in again.state_tensors().items())
    trained(again, other, theirs, range(3, 6))
    assert all(torch.equal(t, theirs.masters[n]) for n, t in weights.masters.items())
    mine = optimizer.state_tensors()
    assert mine.keys() == again.state_tensors().keys()
    assert all(torch.equal(mine[n], t) for n, t in again.state_tensors().items())


@pytest.mark.parametrize("config", OPTIMIZERS)
def test_state_of_another_model_or_optimizer_is_an_error(config):
    model = toy.model()
    optimizer = build.build_optimizer(config, model, MasterWeights(model))
    for wrong in (
        {"backbone.tokens.weight.nothing": torch.zeros(toy.V, toy.D)},
        {"nobody.weight.mean": torch.zeros(2)},
        {"nobody.weight.momentum": torch.zeros(2)},
        {"backbone.up.weight.mean": torch.zeros(3), "backbone.up.weight.momentum": torch.zeros(3)},
    ):
        with pytest.raises(ValueError, match="memory does not fit this model"):
            optimizer.load_state(wrong)


def test_micro_batch_gradients_accumulate_in_float32():
    model, plain = toy.model().eval(), toy.model().eval().to(torch.bfloat16)
    weights = MasterWeights(model, torch.bfloat16)
    assert all(p.dtype == torch.bfloat16 for p in model.parameters())
    exact = {name: torch.zeros_like(g) for name, g in weights.gradients.items()}
    weights.begin_step()
    for step in range(50):
        backward(model, step)
        assert all(p.grad is None for p in model.parameters())
        plain.zero_grad()
        backward(plain, step)
        for name, p in plain.named_parameters():
            exact[name] += 0 if p.grad is None else p.grad.float()
    weights.finish_backward(weights.has_gradient)
    for name, g in weights.gradients.items():
        assert g.dtype == torch.float32
        assert torch.equal(g, exact[name])


def test_small_steps_are_not_lost_in_bfloat16():
    model = nn.Linear(1, 1, bias=False)
    nn.init.ones_(model.weight)
    weights = MasterWeights(model, torch.bfloat16)
    optimizer = build.build_optimizer(optimizer_config.AdamW(weight_decay=0.0), model, weights)
    for _ in range(100):  # each too small to move a 1 in bfloat16
        weights.begin_step()
        model(torch.ones(1, 1, dtype=torch.bfloat16)).sum().backward()
        weights.finish_backward(weights.has_gradient)
        optimizer.step(1e-4)
        weights.copy_to_model()
    assert weights.masters["weight"].item() == pytest.approx(0.99, abs=1e-4)
    assert model.weight.item() == pytest.approx(0.99, abs=0.004)


def test_gradient_norm_and_clipping():
    model = nn.Linear(2, 2)
    weights = MasterWeights(model)
    weights.begin_step()
    model(torch.tensor([[3.0, 4.0]])).sum().backward()
    weights.finish_backward(weights.has_gradient)
    norm = float(weights.gradient_norm())
    assert norm == pytest.approx(math.sqrt(2 * (9 + 16 + 1)))
    weights.clip_gradients(norm, 100.0)
    assert float(weights.gradient_norm()) == pytest.approx(norm)
    weights.clip_gradients(norm, 0.0)
    assert float(weights.gradient_norm()) == pytest.approx(norm)
    weights.clip_gradients(norm, 1.0)
    assert float(weights.gradient_norm()) == pytest.approx(1)


def test_gradient_is_cleared_after_its_step():
    model, fresh = toy.model().eval(), toy.model().eval()
    weights, others = MasterWeights(model), MasterWeights(fresh)
    unlabeled = replace(toy.rows(1), labels=None)
    for w, m, batches in (
        (weights, model, [toy.rows(0), unlabeled]),
        (others, fresh, [unlabeled]),
    ):
        for batch in batches:
            w.begin_step()
            m(batch).loss.backward()
            w.finish_backward(w.has_gradient)
    assert weights.masters["heads.label.weight"].grad is None
    assert torch.equal(weights.gradient_norm(), others.gradient_norm())
    assert torch.equal(weights.flat_gradient, others.flat_gradient)


def test_learning_rate_factors_apply_to_their_parameters():
    model = toy.model().eval()
    weights = MasterWeights(model)
    before = {name: t.clone() for name, t in weights.masters.items()}
    optimizer = build.build_optimizer(
        optimizer_config.AdamW(weight_decay=0.0),
        model,
        weights,
        learning_rate_factors={"backbone.up.weight": 0.0, "backbone.up.bias": 0.5},
    )
    weights.begin_step()
    backward(model, 0)
    weights.finish_backward(weights.has_gradient)
    optimizer.step(0.01)
    assert torch.equal(weights.masters["backbone.up.weight"], before["backbone.up.weight"])
    moved = (weights.masters["backbone.up.bias"] - before["backbone.up.bias"]).abs().max()
    assert moved == pytest.approx(0.005, rel=1e-3)


def test_frozen_parameters_keep_float32_values_without_gradient():
    model = toy.model().eval()
    model.backbone.requires_grad_(False)
    before = model.backbone.up.weight.detach().clone()
    weights = MasterWeights(model, torch.bfloat16)
    assert not any(name.startswith("backbone") for name in weights.gradients)
    optimizer = build.build_optimizer(optimizer_config.AdamW(), model, weights)
    weights.begin_step()
    backward(model, 0)
    weights.finish_backward(weights.has_gradient)
    optimizer.step(0.01)
    weights.copy_to_model()
    weights.restore_model()
    assert torch.equal(model.backbone.up.weight.detach(), before)


def test_release_returns_an_independent_float32_model():
    model = toy.model().eval()
    weights = MasterWeights(model, torch.bfloat16)
    weights.restore_model()
    assert all(p.dtype == torch.float32 and p.grad is None for p in model.parameters())
    backward(model, 0)
    assert model.backbone.up.weight.grad is not None
    assert model.heads["masked"].table.weight is model.backbone.tokens.weight


def test_model_without_trainable_parameters_can_be_stepped():
    model = toy.model()
    model.requires_grad_(False)
    weights = MasterWeights(model)
    optimizer = build.build_optimizer(optimizer_config.AdamW(), model, weights)
    weights.begin_step()
    weights.finish_backward(weights.has_gradient)
    optimizer.step(0.1)
    assert float(weights.gradient_norm()) == 0


def test_sgd_equals_torch():
    config = optimizer_config.SGD(momentum=0.9, weight_decay=0.0)
    start, after, gradients = steps_of(config, 3)
    name = "backbone.up.weight"
    x = torch.nn.Parameter(start[name].clone())
    theirs = torch.optim.SGD([x], lr=0.01, momentum=0.9)
    for step in range(3):
        x.grad = gradients[step][name].clone()
        theirs.step()
        torch.testing.assert_close(after[step][name], x.detach())


def test_weight_average_starts_when_evaluations_stop_improving():
    model = toy.model().eval()
    weights = MasterWeights(model)
    optimizer = build.build_optimizer(optimizer_config.SGD(averaging_patience=2), model, weights)
    name, seen = "backbone.up.weight", []
    for step, loss in enumerate([3.0, 2.0, 2.5, 2.4, 2.1, 2.2]):
        weights.begin_step()
        backward(model, step)
        weights.finish_backward(weights.has_gradient)
        optimizer.step(0.1)
        if optimizer.averaged_weights:
            seen.append(weights.masters[name].clone())
            torch.testing.assert_close(optimizer.averaged_weights[name], torch.stack(seen).mean(0))
        optimizer.update_dev_loss(loss)
    assert len(seen) == 1  # 2.1 was above 2.0, the best of all but the last two before it


def test_weight_average_is_swapped_in_and_out():
    run = toy.run(optimizer=optimizer_config.SGD(averaging_patience=1), steps=6)
    for report in loop.train(run):
        loop.report_dev_loss(run, float(report.step))
    name = "backbone.up.weight"
    now, mean = run.weights.masters[name].clone(), run.optimizer.averaged_weights[name].clone()
    assert not torch.equal(now, mean)
    with loop.averaged_weights(run):  # in the precision of this machine
        own = distributed.weight_dtype(run.recipe.precision)
        assert torch.equal(run.model.get_parameter(name), mean.to(own))
    assert torch.equal(run.weights.masters[name], now)
    assert torch.equal(loop.finish_run(run).get_parameter(name), mean)
