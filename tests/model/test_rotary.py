"""Rotary positions: rotated shares of a head, scaling for longer texts, cycles of schemes."""

import math

import pytest
import torch

from unmask.model.backbones.transformer import Architecture
from unmask.model.positions.rotary import LayerwiseRotary, LinearScaling, Llama3Scaling, Rotary

TINY = Architecture(vocab_size=9, d_model=16, n_layers=4, n_heads=1, d_ff=8)


def rotated(x: torch.Tensor, scheme: Rotary) -> torch.Tensor:
    """Turn pairs as complex numbers, place by place, in double precision."""
    t, width = x.shape[2], int(x.shape[3] * scheme.partial_rotary_factor)
    half = width // 2
    first, second = x[..., :half].double(), x[..., half:width].double()
    speed = scheme.theta ** (-torch.arange(half).double() / half)
    if scheme.scaling is not None:
        speed = scheme.scaling(speed)
    angle = torch.arange(t).double()[:, None] * speed
    z = torch.complex(first, second) * torch.polar(torch.ones_like(angle), angle)
    return torch.cat((z.real, z.imag, x[..., width:].double()), -1)


@pytest.mark.parametrize("share", [1.0, 0.5, 0.25])
@pytest.mark.parametrize(
    "scaling", [None, LinearScaling(4.0), Llama3Scaling(factor=4.0, original_max_positions=30)]
)
def test_rotation_equals_complex_multiplication(share, scaling) -> None:
    torch.manual_seed(0)
    scheme = Rotary(100.0, 40, share, scaling)
    module = scheme.build(TINY)
    x = torch.randn(2, 3, 11, 16)
    geometry = module.position_state(torch.zeros(2, 11, 16), 11)
    part = module.for_layer(0)
    assert torch.allclose(part.query(x, geometry).double(), rotated(x, scheme), atol=1e-5)
    assert torch.equal(part.key(x, geometry), part.query(x, geometry))
    # the last columns of a row, alone, have the angles of their places
    late = module.position_state(torch.zeros(2, 4, 16), 11)
    assert torch.allclose(
        part.key(x[:, :, 7:], late).double(), rotated(x, scheme)[:, :, 7:], atol=1e-5
    )


def test_llama3_scaling_slows_low_frequencies_only() -> None:
    scaling = Llama3Scaling(
        factor=8.0, low_frequency_factor=1.0, high_frequency_factor=4.0, original_max_positions=100
    )
    turns = torch.tensor([8.0, 4.0, 2.5, 1.0, 0.1])  # all around, within 100 places
    speed = turns * 2 * math.pi / 100
    share = scaling(speed) / speed
    assert torch.allclose(share, torch.tensor([1, 1, 0.5 + 0.5 / 8, 1 / 8, 1 / 8]))
    with pytest.raises(
        ValueError, match="high_frequency_factor must be above low_frequency_factor"
    ):
        Llama3Scaling(low_frequency_factor=2.0, high_frequency_factor=2.0)


def test_partial_rotation_must_be_whole_pairs() -> None:
    with pytest.raises(ValueError, match="5 of a head's 16 are no pairs"):
        Rotary(partial_rotary_factor=0.34).build(TINY)


def test_equal_schemes_of_a_layer_cycle_are_computed_once() -> None:
    near, far = Rotary(10.0, 40), Rotary(1000.0, 40, scaling=LinearScaling(8.0))
    module = LayerwiseRotary((near, near, far)).build(TINY)
    geometry = module.position_state(torch.zeros(1, 5, 16), 5)
    assert len(geometry) == 2
    x = torch.randn(1, 2, 5, 16)
    for i in range(6):
        alone = (far if i % 3 == 2 else near).build(TINY)
        expected = alone.for_layer(0).query(x, alone.position_state(torch.zeros(1, 5, 16), 5))
        assert torch.equal(module.for_layer(i).query(x, geometry), expected)
