"""Weights that become zero: the smallest, of all matrices together or of each."""

from pathlib import Path

import pytest
import torch
from small_models import make

from unmask.compression.prune import MagnitudePruning, layer_matrices
from unmask.heads.model import Model


@pytest.fixture
def model(tmp_path: Path) -> Model:
    return make("bert", tmp_path)[1].model


def zeros(model: Model) -> dict[str, float]:
    return {name: float((w == 0).float().mean()) for name, w in layer_matrices(model).items()}


@pytest.mark.parametrize("fraction", [0.0, 0.3, 0.9])
def test_each_matrix_loses_its_smallest_weights(model: Model, fraction: float) -> None:
    before = {name: w.detach().clone() for name, w in layer_matrices(model).items()}
    others = {n: w.detach().clone() for n, w in model.own_weights().items() if n not in before}
    MagnitudePruning(fraction=fraction, scope="layer").apply(model)
    for name, w in layer_matrices(model).items():
        gone = w == 0
        assert int(gone.sum()) == round(fraction * w.numel())
        assert torch.equal(w[~gone], before[name][~gone])
        if fraction:
            assert before[name][gone].abs().max() <= w[~gone].abs().min()
    assert all(torch.equal(w, others[n]) for n, w in model.own_weights().items() if n in others)


def test_global_pruning_removes_smallest_weights_overall(model: Model) -> None:
    matrices = layer_matrices(model)
    with torch.no_grad():
        next(iter(matrices.values())).mul_(100)  # the first one keeps nearly all
    total = sum(w.numel() for w in matrices.values())
    MagnitudePruning(fraction=0.5).apply(model)
    first, *rest = zeros(model).values()
    assert first < 0.02
    assert min(rest) > 0.45
    assert sum(int((w == 0).sum()) for w in matrices.values()) == round(total / 2)


def test_two_of_four_inputs_remain(model: Model) -> None:
    MagnitudePruning(pattern="2:4").apply(model)
    for w in layer_matrices(model).values():
        assert ((w.reshape(-1, 4) != 0).sum(1) == 2).all()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"fraction": 1.0}, "fraction must be from 0 to below 1, got 1"),
        ({"fraction": -0.1}, "fraction must be from 0 to below 1, got -0.1"),
        ({"pattern": "4:2"}, "pattern must be N:M with N below M"),
        ({"pattern": "half"}, "pattern must be N:M with N below M"),
    ],
)
def test_invalid_options_are_refused(fields: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MagnitudePruning(**fields)


def test_indivisible_pattern_is_refused(model: Model) -> None:
    with pytest.raises(ValueError, match=r"pattern 2:7: backbone.layers.0.* inputs, no multiple"):
        MagnitudePruning(pattern="2:7").apply(model)
