"""Precision: what a network of each family reads in bfloat16 is near what it reads in float32."""

from dataclasses import replace

import pytest
import torch
from test_leak import FAMILIES, IN_ORDER, S, T, build

from unmask.batch import Batch, Visibility
from unmask.model.backbones.encoder_decoder import EncoderDecoderArchitecture

TOLERANCE = 0.1
"""Of the largest number; a number in bfloat16 has three digits, and a few layers add up."""


@pytest.mark.sample(12)
@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_hidden_states_in_bfloat16_are_near(family: str) -> None:
    model = build(family)
    torch.manual_seed(1)
    batch = Batch(
        inputs=torch.randint(0, 50, (1, T)), visibility=Visibility(causal=family in IN_ORDER)
    )
    if isinstance(model.architecture, EncoderDecoderArchitecture):
        batch = replace(batch, source=torch.randint(0, 50, (1, S)))
    exact = model.backbone(batch)
    rough = model.to(torch.bfloat16).backbone(batch)
    assert rough.dtype == torch.bfloat16
    assert 0 < (rough.float() - exact).abs().max() < TOLERANCE * exact.abs().max()
