"""Masks of another model: lottery tickets and their controls."""

from pathlib import Path
from typing import Any

import pytest
import torch
from masked_batches import batches
from small_models import make
from torch import Tensor

from unmask.checkpoints.huggingface.read import LoadedModel
from unmask.checkpoints.tensors import write_tensors
from unmask.cli.main import run as run_command
from unmask.compression.config import GivenMask, MaskSource
from unmask.compression.masks.given import MaskPruning, read_masks
from unmask.compression.prune import MagnitudePruning, layer_matrices
from unmask.heads.model import Model
from unmask.training import loop
from unmask.training.config import Recipe
from unmask.training.optimizers.config import AdamW
from unmask.training.run import TrainingRun

SIZES: dict[str, Any] = {
    "hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 2,
    "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
}  # fmt: skip


@pytest.fixture
def opened(tmp_path: Path) -> LoadedModel:
    loaded_model = make("bert", tmp_path / "model", "BertForMaskedLM", **SIZES)[1]
    loaded_model.model.requires_grad_(True)
    return loaded_model


def random_masks(model: Model, path: Path, fraction: float = 0.5) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(5)
    masks = {
        name: torch.rand(w.shape, generator=generator) >= fraction
        for name, w in layer_matrices(model).items()
    }
    write_tensors(path, {name: mask.float() for name, mask in masks.items()})
    return masks


def copies(model: Model) -> dict[str, Tensor]:
    return {name: w.detach().clone() for name, w in layer_matrices(model).items()}


@pytest.mark.parametrize("scope", ["global", "layer"])
def test_a_mask_is_of_the_smallest_weights_of_its_source(
    scope: Any, opened: LoadedModel, tmp_path: Path
) -> None:
    given = read_masks(
        MaskSource(source=str(tmp_path / "model"), fraction=0.4, scope=scope), opened.model
    )
    own = MagnitudePruning(fraction=0.4, scope=scope).masks(opened.model)
    assert given.keys() == own.keys()
    assert all(torch.equal(mask, own[name]) for name, mask in given.items())


def test_zeros_of_a_round_are_zeros_of_the_next(opened: LoadedModel, tmp_path: Path) -> None:
    random_masks(opened.model, tmp_path / "masks.safetensors", 0.3)
    source = str(tmp_path / "masks.safetensors")
    first = read_masks(MaskSource(source=source), opened.model)
    second = read_masks(MaskSource(source=source, fraction=0.6), opened.model)
    assert all(not bool((second[name] & ~mask).any()) for name, mask in first.items())
    n_zero = sum(int((~mask).sum()) for mask in second.values())
    assert n_zero == round(0.6 * sum(mask.numel() for mask in second.values()))


def test_a_shuffled_mask_has_as_many_zeros_in_each_matrix(
    opened: LoadedModel, tmp_path: Path
) -> None:
    masks = random_masks(opened.model, tmp_path / "masks.safetensors")
    source = str(tmp_path / "masks.safetensors")
    found = [read_masks(MaskSource(source=source, shuffle=s), opened.model) for s in (1, 1, 2)]
    for name, mask in masks.items():
        assert [int(one[name].sum()) for one in found] == [int(mask.sum())] * 3
        assert torch.equal(found[0][name], found[1][name])
        assert not torch.equal(found[0][name], mask)
        assert not torch.equal(found[0][name], found[2][name])


def test_a_ticket_has_the_weights_of_the_start(opened: LoadedModel, tmp_path: Path) -> None:
    before = copies(opened.model)
    masks = random_masks(opened.model, tmp_path / "masks.safetensors")
    MaskPruning(source=str(tmp_path / "masks.safetensors")).restructure(opened)
    for name, w in layer_matrices(opened.model).items():
        assert torch.equal(w, before[name] * masks[name])


def started(model: Model, *methods: GivenMask) -> TrainingRun:
    recipe = Recipe(
        model="bert-tiny", steps=8, compression=methods, learning_rate=0.01, dropout=0.0,
        optimizer=AdamW(weight_decay=0.01),
    )  # fmt: skip
    return loop.start_run(recipe, model, batches)


@pytest.mark.sample(1)
@pytest.mark.parametrize("n_dense", [0, 3])
def test_a_ticket_goes_on_from_the_weights_of_an_early_step(
    n_dense: int, opened: LoadedModel, tmp_path: Path
) -> None:
    masks = random_masks(opened.model, tmp_path / "masks.safetensors")
    dense = started(make("bert", tmp_path / "model", "BertForMaskedLM", **SIZES)[1].model)
    assert isinstance(dense.model, Model)
    early = copies(dense.model)
    for report in loop.train(dense):
        if report.step == n_dense:
            early = copies(dense.model)
    method = GivenMask(source=str(tmp_path / "masks.safetensors"), start=n_dense / 8)
    ticket = started(opened.model, method)
    if n_dense == 0:  # before the first step there are already zeros
        ticket.weights.update_transforms(1, 8)
        ticket.weights.copy_to_model()
        for name, w in layer_matrices(opened.model).items():
            assert torch.equal(w, early[name] * masks[name])
    for report in loop.train(ticket):
        if report.step == n_dense:
            for name, w in layer_matrices(opened.model).items():
                assert torch.equal(w, early[name] * masks[name])
    loop.finish_run(ticket)
    for name, w in layer_matrices(opened.model).items():
        assert bool((w[~masks[name]] == 0).all())
        assert bool((w[masks[name]] != early[name][masks[name]]).any())


@pytest.mark.parametrize(
    ("element", "message"),
    [
        ("mask", "mask lacks source"),
        ("mask:source=none-here", "none-here: no such folder"),
        ("mask:source=masks.safetensors", "backbone.layers.0.attention.q.weight of shape [16, 16]"),
        ("mask:source=model,fraction=1", "fraction must be from 0 to below 1, got 1"),
        ("mask:source=model,shuffle=-1", "shuffle must be a seed, at least 0, got -1"),
    ],
)
def test_bad_masks_are_refused_in_one_line(
    element: str, message: str, opened: LoadedModel, tmp_path: Path, capsys: Any, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    write_tensors(tmp_path / "masks.safetensors", {"x": torch.zeros(2)})
    status = run_command(["compress", "model", "--method", element, "--out", "small"])
    assert status == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1
    assert message in lines[0]
    assert not (tmp_path / "small").exists()


def test_a_start_must_be_before_the_end() -> None:
    with pytest.raises(ValueError, match="start must be from 0 to below 1, got 1"):
        GivenMask(source="run", start=1.0)
