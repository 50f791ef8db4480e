"""Packed linear maps: equal to `F.linear` for any number of rows, as far as their types allow."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from unmask.generation.decode import generate
from unmask.generation.decoding.packed_linear import PACKED_LINEARS, LinearPacker
from unmask.generation.settings import generation_config
from unmask.tokenizers.spec import SpecialTokenIds
from unmask.zoo.catalogue import MODELS

TOLERANCE = {"float32": 1e-6, "bfloat16": 1e-2, "int8": 1.5e-2}
"""Of the largest output: rounding of sums; of inputs, weights and outputs to 8 bits."""


@pytest.mark.parametrize("precision", TOLERANCE)
@pytest.mark.parametrize("width", [48, 43])
@pytest.mark.parametrize("biases", [(True, False), (False, False)])
def test_maps_side_by_side_equal_linear_maps(
    precision, biases: tuple[bool, bool], width: int
) -> None:
    if not PACKED_LINEARS[precision].is_supported():
        pytest.skip(f"this processor does not multiply in {precision}")
    torch.manual_seed(0)
    maps = [nn.Linear(width, n, bias=bias) for n, bias in zip((64, 33), biases, strict=True)]
    packer = LinearPacker(precision)
    packed = packer.pack(*maps)
    assert packer.pack(*maps) is packed
    with torch.no_grad():
        for n in (1, 5, 1, 40):  # the layout follows the rows
            x = torch.randn(n, width)
            expected = torch.cat([F.linear(x, one.weight, one.bias) for one in maps], 1)
            error = (packed(x).float() - expected).abs().max() / expected.abs().max()
            assert float(error) < TOLERANCE[precision]


def test_rows_of_zeros_stay_zeros_in_int8() -> None:
    if not PACKED_LINEARS["int8"].is_supported():
        pytest.skip("torch has no products in int8")
    packed = LinearPacker("int8").pack_weights([torch.zeros(32, 32)], [None])
    assert not bool(packed(torch.randn(2, 32)).any())


def test_precision_of_models_that_are_not_covered_is_refused() -> None:
    model = MODELS["lstm-mini"].build().eval()
    special = SpecialTokenIds(vocab_size=50, pad=0, start=1, end=2)
    with pytest.raises(ValueError, match='precision "int8" is for models in float32'):
        generate(model, [[5]], special, generation_config(precision="int8"))
