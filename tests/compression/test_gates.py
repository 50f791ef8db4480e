"""Hard Concrete gates of attention heads: formulas, gradients, closing and removal."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
import toy_models as toy
from masked_batches import batches
from small_models import make

import unmask
from unmask.checkpoints.huggingface.read import load_folder
from unmask.compression.config import HeadGates
from unmask.compression.masks.gates import (
    GatedHeads,
    final_gates,
    open_probabilities,
    remove_closed_heads,
    sample_derivatives,
    sample_gates,
)
from unmask.compression.structure.widths import gated_projections
from unmask.heads.model import Model
from unmask.jobs.finetune import finetune
from unmask.training import loop
from unmask.training.config import Recipe
from unmask.training.resume import restore_run, save_checkpoint
from unmask.training.run import TrainingRun

SIZES: dict[str, Any] = {
    "hidden_size": 32, "intermediate_size": 32, "num_attention_heads": 4,
    "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
}  # fmt: skip


def test_samples_are_those_of_the_paper() -> None:
    log_alpha = torch.linspace(-6, 6, 25, dtype=torch.float64)
    noise = torch.rand(25, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    got = sample_gates(log_alpha, noise)
    for x, u, g in zip(log_alpha.tolist(), noise.tolist(), got.tolist(), strict=True):
        s = 1 / (1 + math.exp(-(math.log(u) - math.log(1 - u) + x) / (2 / 3)))
        assert g == pytest.approx(min(1, max(0, s * 1.2 - 0.1)), abs=1e-12)
    assert 0 in got and 1 in got  # noqa: PT018 - both ends of the clipped interval occur


def test_derivatives_equal_automatic_ones() -> None:
    log_alpha = torch.linspace(-4, 4, 41, dtype=torch.float64, requires_grad=True)
    noise = torch.rand(41, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    (expected,) = torch.autograd.grad(sample_gates(log_alpha, noise).sum(), log_alpha)
    torch.testing.assert_close(sample_derivatives(log_alpha.detach(), noise), expected)


def test_probability_of_an_open_gate_is_that_of_samples() -> None:
    u = (torch.arange(200_000, dtype=torch.float64) + 0.5) / 200_000  # all quantiles
    for x in (-3.0, -1.0, 0.0, 2.0):
        log_alpha = torch.full_like(u, x)
        share = float((sample_gates(log_alpha, u) > 0).double().mean())
        assert float(open_probabilities(log_alpha[:1])) == pytest.approx(share, abs=1e-5)
        s = 1 / (1 + math.exp(-x))
        assert float(final_gates(log_alpha[:1])) == pytest.approx(min(1, max(0, s * 1.2 - 0.1)))
    closed = math.log(0.1 / 1.1)  # sigmoid(log a) = 1 / 12
    below_and_above = torch.tensor([closed - 1e-9, closed + 1e-9], dtype=torch.float64)
    assert (final_gates(below_and_above) > 0).tolist() == [False, True]


def opened(folder: Path) -> Model:
    if not (folder / "config.json").exists():
        make("bert", folder, "BertForMaskedLM", **SIZES)
    return load_folder(folder).model.requires_grad_(True)


def test_a_step_has_the_gradient_of_loss_and_penalty(tmp_path: Path) -> None:
    model = opened(tmp_path / "model").double()
    method = HeadGates(penalty=0.3, initial=0.5)
    gates = GatedHeads(method, model)
    ((batch,), _) = next(batches(0))
    gates.update({}, 1, 100)
    parameters = {name: p.detach().clone() for name, p in model.named_parameters()}
    logs = {n: gates.state_tensors()[f"log_alpha.{n}"].requires_grad_() for n in gates.names}
    replaced = {
        name: parameters[name] * sample_gates(x, gates._noise[name]).repeat_interleave(8)
        for name, x in logs.items()
    }
    terms = torch.func.functional_call(model, parameters | replaced, (batch,)).terms.values()
    loss = torch.stack([term.total / term.count for term in terms]).sum()
    total = loss + 0.3 * torch.stack([open_probabilities(x).sum() for x in logs.values()]).sum()
    expected = torch.autograd.grad(total, list(logs.values()), retain_graph=True)
    of_weights = torch.autograd.grad(loss, list(replaced.values()))
    before = {name: x.detach().clone() for name, x in logs.items()}
    for x in logs.values():
        x.requires_grad_(False)
    for name, gradient in zip(replaced, of_weights, strict=True):
        gates.backward(name, parameters[name], gradient)
    gates._optimizer = torch.optim.SGD(list(logs.values()), 1.0)
    gates.take_step(1.0)
    for (name, x), gradient in zip(before.items(), expected, strict=True):
        moved = (x - logs[name]) / method.gate_learning_rate
        torch.testing.assert_close(moved, gradient, rtol=1e-5, atol=1e-8)  # a float32 loss


def started(folder: Path, **fields: Any) -> TrainingRun:
    recipe = Recipe(
        model="bert-tiny", steps=12, compression=(HeadGates(**fields),), learning_rate=0.01,
        dropout=0.0,
    )  # fmt: skip
    return loop.start_run(recipe, opened(folder), batches)


@pytest.mark.thorough
def test_resumed_run_is_bitwise_equal(tmp_path: Path) -> None:
    fields = {"gate_learning_rate": 0.5}
    whole, broken = (started(tmp_path / "model", **fields) for _ in range(2))
    for _ in loop.train(whole):
        pass
    (tmp_path / "run").mkdir()
    for report in loop.train(broken):
        if report.step == 5:
            save_checkpoint(broken, tmp_path / "run")
            break
    again = started(tmp_path / "model", **fields)
    from unmask.checkpoints.folder import newest_checkpoint

    checkpoint, _ = newest_checkpoint(tmp_path / "run")
    assert checkpoint is not None
    restore_run(again, checkpoint)
    for _ in loop.train(again):
        pass
    mine, theirs = again.weights.transform_state(), whole.weights.transform_state()
    assert mine.keys() == theirs.keys()
    assert all(torch.equal(x, theirs[name]) for name, x in mine.items())
    for run in (again, whole):
        loop.finish_run(run)
    assert isinstance(again.model, Model)
    assert isinstance(whole.model, Model)
    other = whole.model.own_weights()
    assert all(torch.equal(x, other[n]) for n, x in again.model.own_weights().items())


@pytest.mark.parametrize("penalty", [0.0, 1e4])
def test_a_penalty_closes_heads(penalty: float, tmp_path: Path) -> None:
    run = started(tmp_path / "model", penalty=penalty, gate_learning_rate=2.0 if penalty else 0.05)
    for _ in loop.train(run):
        pass
    loop.finish_run(run)
    assert isinstance(run.model, Model)
    for weight, n in gated_projections(run.model, "gates").values():
        n_closed = int((weight.unflatten(1, (n, -1)) == 0).all(2).all(0).sum())
        assert n_closed == (n if penalty else 0)


def test_removed_heads_change_no_number(tmp_path: Path) -> None:
    make("bert", tmp_path / "model", "BertForMaskedLM", **SIZES)
    whole = load_folder(tmp_path / "model")
    with torch.no_grad():
        for i, (weight, n) in enumerate(gated_projections(whole.model, "gates").values()):
            weight.unflatten(1, (n, -1))[:, : i + 1] = (
                0  # of the second layer two heads, of the third three
            )
    small = remove_closed_heads(whole, [HeadGates()])
    assert [n for _, n in gated_projections(small.model, "gates").values()] == [3, 2, 1]
    ((batch,), _) = next(batches(0))
    outputs = [one.model.backbone(batch) for one in (whole, small)]
    torch.testing.assert_close(outputs[1], outputs[0], rtol=1e-5, atol=1e-6)  # order of sums
    assert remove_closed_heads(whole, []) is whole


@pytest.mark.thorough
def test_fine_tuning_removes_closed_heads(tmp_path: Path) -> None:
    base = toy.pretrained("bert", tmp_path / "base")
    train = toy.write(tmp_path / "train.tsv", toy.texts(64, 1))
    tuned = finetune(
        base, task="classify", train=train, dev=train, epochs=2.0, batch_size=8, terminal=None,
        compression=["gates:penalty=100,gate_learning_rate=1"], out=tmp_path / "run",
        precision="float32", device="cpu",
    )  # fmt: skip
    again = load_folder(tmp_path / "run").model
    for model in (tuned.loaded_model.model, again):
        assert [n for _, n in gated_projections(model, "gates").values()] == [1, 1]
    texts = [text for text, _ in toy.texts(5, 3)]
    assert tuned.predict(texts) == unmask.load(tmp_path / "run").predict(texts)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"penalty": -1.0}, "penalty must be from 0 to 1e6, got -1"),
        ({"initial": 11.0}, "initial must be from -10 to 10, got 11"),
        ({"end": 1.5}, "end must be from 0 to 1, got 1.5"),
        ({"seed": -1}, "seed must be from 0 to below"),
    ],
)
def test_impossible_settings_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        HeadGates(**fields)
