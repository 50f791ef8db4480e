"""Compression while training: what the model computes with, and what its weights learn from it."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from small_models import make
from torch import Tensor

from unmask.batch import Batch, Visibility
from unmask.compression.config import (
    GradualPruning,
    KeepZeros,
    MovementPruning,
    QuantizationAware,
    TrainingCompression,
    check_training_methods,
)
from unmask.compression.prune import layer_matrices
from unmask.compression.quantize import Quantize
from unmask.compression.while_training import build_transforms, encoded_names, pruned_fraction
from unmask.heads.model import Model
from unmask.training import loop
from unmask.training.config import Recipe
from unmask.training.optimizers.config import SGD
from unmask.training.resume import restore_run, save_checkpoint, trained_tensors
from unmask.training.run import TrainingRun
from unmask.training.schedules import Constant

SIZES: dict[str, Any] = {
    "hidden_size": 32, "intermediate_size": 64,
    "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
}  # fmt: skip
METHODS: dict[str, tuple[TrainingCompression, ...]] = {
    "qat": (QuantizationAware(bits=4.0, group=16),),
    "qat, activations": (QuantizationAware(activations=4, activation_symmetric=False),),
    "qat late": (QuantizationAware(bits=2.0, start=0.5),),
    "gradual": (GradualPruning(fraction=0.6, interval=2),),
    "gradual, global": (GradualPruning(fraction=0.6, interval=2, scope="global"),),
    "movement": (MovementPruning(fraction=0.6),),
    "movement, rarely": (MovementPruning(fraction=0.6, interval=3, scope="global"),),
    "soft movement": (MovementPruning(threshold=0.2, penalty=5.0, start=0.0),),
    "both": (GradualPruning(fraction=0.5, start=0.0), QuantizationAware(bits=8.0)),
}


def batches(cursor: Any) -> Iterator[tuple[list[Batch], Any]]:
    step = 0 if cursor is None else cursor
    while True:
        generator = torch.Generator().manual_seed(step)
        ids = torch.randint(5, 90, (4, 12), generator=generator)
        positions = torch.arange(0, 48, 5)
        step += 1
        yield (
            [
                Batch(
                    inputs=ids,
                    targets=ids.roll(1, 1),
                    target_positions=positions,
                    visibility=Visibility(),
                )
            ],
            step,
        )


def started(folder: Path, methods: tuple[TrainingCompression, ...], **changes: Any) -> TrainingRun:
    if not (folder / "config.json").exists():
        make("bert", folder, "BertForMaskedLM", **SIZES)
    from unmask.checkpoints.huggingface.read import load_folder

    model = load_folder(folder).model.requires_grad_(True)
    recipe = Recipe(
        model="bert-tiny",
        precision="float32",  # some processors also multiply in bfloat16
        **{"steps": 10, "compression": methods, "learning_rate": 0.01, "dropout": 0.0} | changes,
    )
    return loop.start_run(recipe, model, batches)


def model_of(run: TrainingRun) -> Model:
    assert isinstance(run.model, Model)
    return run.model


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", METHODS)
def test_resumed_run_equals_uninterrupted_run(name: str, tmp_path: Path) -> None:
    whole = started(tmp_path / "model", METHODS[name])
    for _ in loop.train(whole):
        pass
    broken = started(tmp_path / "model", METHODS[name])
    (tmp_path / "run").mkdir()
    for report in loop.train(broken):
        if report.step == 5:
            save_checkpoint(broken, tmp_path / "run")
            break
    again = started(tmp_path / "model", METHODS[name])
    from unmask.checkpoints.folder import newest_checkpoint

    checkpoint, _ = newest_checkpoint(tmp_path / "run")
    assert checkpoint is not None
    restore_run(again, checkpoint)
    for _ in loop.train(again):
        pass
    mine, theirs = trained_tensors(again), trained_tensors(whole)
    assert [n for n in mine if not torch.equal(mine[n], theirs[n])] == []
    state, other = again.weights.transform_state(), whole.weights.transform_state()
    assert state.keys() == other.keys()
    assert all(torch.equal(x, other[n]) for n, x in state.items())
    for run in (again, whole):
        loop.finish_run(run)
    a, b = model_of(again).own_weights(), model_of(whole).own_weights()
    assert all(torch.equal(x, b[n]) for n, x in a.items())


def test_forward_uses_codes_and_weights_get_gradients(
    tmp_path: Path,
) -> None:
    method = QuantizationAware(bits=3.0, group=8)
    settings: dict[str, Any] = {
        "optimizer": SGD(momentum=0.0, weight_decay=0.0),
        "schedule": Constant(warmup=0.0),
        "max_grad_norm": 0.0,
        "steps": 1,
    }
    run = started(tmp_path / "model", (method,), **settings)
    before = {n: w.clone() for n, w in run.weights.masters.items()}
    model = model_of(run)
    quantize = Quantize(bits=3.0, group=8)
    expected = {
        n: quantize.encode(before[n], is_embedding=e).decode()
        for n, e in encoded_names(model).items()
    }
    # What a model with these weights would have for a gradient.
    plain = started(tmp_path / "model", (), **settings)
    with torch.no_grad():
        for name, p in plain.model.named_parameters():
            p.copy_(expected.get(name, before[name]))
    (batch,), _ = next(batches(None))
    (term,) = model_of(plain).train()(batch).terms.values()
    gradients = torch.autograd.grad(
        term.total / term.count,
        list(model_of(plain).parameters()),
        allow_unused=True,
    )
    seen: dict[str, Tensor] = {}

    def remember(module: Any, inputs: Any) -> None:
        for name, p in module.named_parameters():
            seen.setdefault(name, p.detach().clone())  # after the last step it runs once more

    hook = model.register_forward_pre_hook(remember)
    next(iter(loop.train(run)))
    hook.remove()
    for name, weights in expected.items():
        torch.testing.assert_close(seen[name], weights, rtol=1e-6, atol=1e-7)
        assert not torch.equal(weights, before[name])
    names = [name for name, _ in model_of(plain).named_parameters()]
    for name, gradient in zip(names, gradients, strict=True):
        moved = before[name] if gradient is None else before[name] - 0.01 * gradient
        torch.testing.assert_close(run.weights.masters[name], moved, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("bits", [8.0, 4.0, 2.0, 1.58, 1.0])
def test_trained_codes_are_written_losslessly(bits: float, tmp_path: Path) -> None:
    run = started(tmp_path / "model", (QuantizationAware(bits=bits),), steps=3)
    for _ in loop.train(run):
        pass
    loop.finish_run(run)
    for name, is_embedding in encoded_names(model_of(run)).items():
        w = dict(model_of(run).named_parameters())[name].detach()
        form = Quantize(bits=bits, clipping="exact")
        codes = form.encode(w, is_embedding=is_embedding).decode()
        torch.testing.assert_close(codes, w, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("method", [METHODS["gradual"], METHODS["movement"], METHODS["both"]])
def test_sparsity_follows_the_schedule(
    method: tuple[TrainingCompression, ...], tmp_path: Path
) -> None:
    run = started(tmp_path / "model", method, steps=20)
    for report in loop.train(run):
        shares = [float((w == 0).float().mean()) for w in layer_matrices(model_of(run)).values()]
        pruning = method[0]
        assert isinstance(pruning, GradualPruning | MovementPruning)
        done = min(max((report.step + 1) / 20, 0.05), 1.0)
        start, end = pruning.start, pruning.end
        part = min(max((done - start) / (end - start), 0.0), 1.0)
        expected = pruning.fraction * (1 - (1 - part) ** 3)
        if (report.step + 1) % pruning.interval == 0:
            assert sum(shares) / len(shares) == pytest.approx(expected, abs=0.01)
    loop.finish_run(run)
    for w in layer_matrices(model_of(run)).values():
        assert float((w == 0).float().mean()) == pytest.approx(pruning.fraction, abs=0.01)


def test_cubic_schedule_equals_formula() -> None:
    method = GradualPruning(fraction=0.9, start=0.2, end=0.7)
    got = [pruned_fraction(method, step, 100) for step in (1, 20, 45, 70, 100)]
    assert got == pytest.approx([0, 0, 0.9 * (1 - 0.5**3), 0.9, 0.9])


def test_movement_scores_follow_gradient_times_weight(tmp_path: Path) -> None:
    method = MovementPruning(fraction=0.5, start=0.0, end=0.0)
    run = started(tmp_path / "model", (method,))
    (transform,) = build_transforms((method,), run.model)
    weights = {n: w.detach().clone() for n, w in layer_matrices(model_of(run)).items()}
    generator = torch.Generator().manual_seed(1)
    first: dict[str, Tensor] = {n: torch.zeros_like(w).double() for n, w in weights.items()}
    second, scores = ({n: x.clone() for n, x in first.items()} for _ in range(2))
    for t in range(1, 5):
        transform.update(weights, t, 100)
        for name, w in weights.items():
            mask = transform.state_tensors()[f"mask.{name}"].bool()
            torch.testing.assert_close(transform.forward(name, w), w * mask)
            gradient = torch.randn(w.shape, generator=generator)
            passed = gradient.clone()
            transform.backward(name, w, passed)
            torch.testing.assert_close(passed, gradient * mask)
            of_score = gradient.double() * w.double()
            first[name] = 0.9 * first[name] + 0.1 * of_score
            second[name] = 0.999 * second[name] + 0.001 * of_score**2
            corrected = first[name] / (1 - 0.9**t), second[name] / (1 - 0.999**t)
            scores[name] -= 0.5 * 0.01 * corrected[0] / (corrected[1].sqrt() + 1e-8)
        transform.take_step(0.5)
    found = transform.state_tensors()
    for name, expected in scores.items():
        torch.testing.assert_close(found[f"score.{name}"].double(), expected, rtol=1e-4, atol=1e-8)
    transform.update(weights, 5, 100)
    for name, s in scores.items():
        mask = transform.state_tensors()[f"mask.{name}"].bool()
        assert int(mask.sum()) == math.ceil(mask.numel() / 2)
        assert s[mask].min() >= s[~mask].max() - 1e-9


@pytest.mark.thorough
def test_penalty_increases_sparsity(tmp_path: Path) -> None:
    zeros: list[float] = []
    for penalty in (0.0, 1e5):
        method = MovementPruning(
            threshold=0.45, penalty=penalty, score_learning_rate=0.1, start=0.0, end=0.2
        )
        run = started(tmp_path / "model", (method,), steps=30)
        for _ in loop.train(run):
            pass
        found = [float((w == 0).float().mean()) for w in layer_matrices(model_of(run)).values()]
        zeros.append(sum(found) / len(found))
    assert zeros[0] < zeros[1]


def test_pruned_weights_stay_zero(tmp_path: Path) -> None:
    make("bert", tmp_path / "model", "BertForMaskedLM", **SIZES)
    from unmask.checkpoints.huggingface.read import load_folder

    model = load_folder(tmp_path / "model").model.requires_grad_(True)
    masks = {n: torch.rand_like(w) < 0.5 for n, w in layer_matrices(model).items()}
    with torch.no_grad():
        for name, w in layer_matrices(model).items():
            w.mul_(masks[name])
    recipe = Recipe(model="bert-tiny", steps=5, compression=(KeepZeros(),), learning_rate=0.01)
    run = loop.start_run(recipe, model, batches)
    for _ in loop.train(run):
        pass
    loop.finish_run(run)
    for name, w in layer_matrices(model).items():
        assert torch.equal(w != 0, masks[name])


def test_non_finite_weights_are_reported_as_without_compression(tmp_path: Path) -> None:
    run = started(tmp_path / "model", METHODS["qat"], learning_rate=9.0, max_skipped_steps=2)
    with torch.no_grad():
        next(iter(run.weights.masters.values())).fill_(math.inf)
    with pytest.raises(FloatingPointError, match="was not finite"):
        for _ in loop.train(run):
            pass


@pytest.mark.parametrize(
    ("methods", "message"),
    [
        ((QuantizationAware(), QuantizationAware()), "at most one method that prunes"),
        ((QuantizationAware(), KeepZeros()), "then at most one that quantizes"),
        ((GradualPruning(), MovementPruning()), "at most one method that prunes"),
    ],
)
def test_incompatible_methods_are_refused(
    methods: tuple[TrainingCompression, ...], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        check_training_methods(methods)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: GradualPruning(fraction=1.0), "fraction must be from 0 to below 1, got 1"),
        (lambda: GradualPruning(start=0.8, end=0.2), "in this order, got 0.8, 0.2"),
        (lambda: GradualPruning(interval=0), "interval must be at least 1, got 0"),
        (lambda: MovementPruning(threshold=1.0), "threshold must be between 0 and 1, got 1"),
        (lambda: MovementPruning(penalty=1.0), "needs a threshold"),
        (lambda: QuantizationAware(start=1.0), "start must be from 0 to below 1, got 1"),
        (lambda: QuantizationAware(bits=5.0), "bits must be one of"),
    ],
)
def test_impossible_settings_are_refused(build: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build()
