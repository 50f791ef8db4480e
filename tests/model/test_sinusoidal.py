"""Sines and cosines of places: the paper's formula, in both orders."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from unmask.model.initialize import GlorotInit
from unmask.model.positions.sinusoidal import Sinusoidal
from unmask.zoo.catalogue import MODELS

SIZES = replace(MODELS["transformer-mini"].architecture.encoder, d_model=12, n_heads=2)


def formula(position: int, width: int) -> tuple[list[float], list[float]]:
    """Vaswani et al. 2017, section 3.5, number by number."""
    angles = [position / 10_000 ** (2 * i / width) for i in range(width // 2)]
    return [math.sin(a) for a in angles], [math.cos(a) for a in angles]


@pytest.mark.parametrize("positions", [[[0, 1, 2, 7]], [[0, 1, 0, 999], [3, 2, 1, 0]]])
def test_values_equal_formula(positions: list[list[int]]) -> None:
    position = torch.tensor(positions)
    halves = Sinusoidal(1000).build(SIZES).embed(position)
    pairs = Sinusoidal(1000, layout="pairs").build(SIZES).embed(position)
    assert halves.shape == pairs.shape == (*position.shape, 12)
    for row, column in np.ndindex(*position.shape):
        sines, cosines = formula(positions[row][column], 12)
        expected = torch.tensor(sines + cosines)
        assert torch.allclose(halves[row, column], expected, atol=1e-6, rtol=0)
        in_turn = torch.tensor([x for both in zip(sines, cosines, strict=True) for x in both])
        assert torch.allclose(pairs[row, column], in_turn, atol=1e-6, rtol=0)


def test_sinusoids_have_no_parameters_and_a_maximum_length() -> None:
    module = Sinusoidal(8).build(SIZES)
    assert not list(module.parameters())
    assert not module.state_dict()
    with pytest.raises(ValueError, match="9 tokens is longer than the model's 8 positions"):
        module.embed(torch.arange(9)[None])


def test_odd_width_is_refused() -> None:
    with pytest.raises(ValueError, match="must be even, got 13"):
        Sinusoidal().build(replace(SIZES, d_model=13, n_heads=1))


def test_initialization_equals_released_code() -> None:
    model = MODELS["transformer-mini"].build().initialize(0)
    up = model.backbone.encoder.layers[0].feed_forward.up
    assert isinstance(model.backbone.encoder.a.initializer, GlorotInit)
    assert float(up.weight.detach().abs().max()) <= math.sqrt(6 / (256 + 1024))
    assert float(up.weight.detach().var()) == pytest.approx(2 / (256 + 1024), rel=0.02)
    assert not up.bias.detach().any()
    table = model.backbone.tokens.weight.detach()
    assert float(table.var()) == pytest.approx(1 / 256, rel=0.02)
