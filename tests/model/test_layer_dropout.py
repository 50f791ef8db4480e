"""Layers that are left out in training (Fan et al. 2020)."""

from dataclasses import replace

import pytest
import torch

from unmask.batch import Batch
from unmask.model.architecture import PRE_NORM
from unmask.model.backbones.transformer import Architecture, Transformer
from unmask.model.positions.learned import LearnedPositions
from unmask.model.requested_states import RequestedStates

A = Architecture(
    vocab_size=50,
    d_model=16,
    n_layers=4,
    n_heads=2,
    d_ff=32,
    position=LearnedPositions(8),
    norm_placement=PRE_NORM,
    dropout=0.0,
    attention_dropout=0.0,
    layer_dropout=0.2,
)
BATCH = Batch(inputs=torch.randint(50, (2, 8), generator=torch.Generator().manual_seed(0)))


def layers_with_gradient(stack: Transformer) -> list[bool]:
    """Say which layers a training step's backward reaches."""
    stack.zero_grad()
    stack(BATCH).sum().backward()
    return [
        layer.get_parameter("feed_forward.up.weight").grad is not None for layer in stack.layers
    ]


def test_one_layer_in_five_is_dropped_independently() -> None:
    torch.manual_seed(0)
    stack = Transformer(A).train()
    drawn = torch.tensor([layers_with_gradient(stack) for _ in range(500)]).float()
    assert drawn.mean(0).sub(0.8).abs().max() < 0.06  # 3.4 standard deviations
    assert torch.corrcoef(drawn.T).fill_diagonal_(0).abs().max() < 0.2


def test_dropped_layers_equal_a_shorter_stack() -> None:
    torch.manual_seed(0)
    stack = Transformer(A).train()
    state = torch.get_rng_state()
    kept = torch.tensor(layers_with_gradient(stack))
    assert 0 < kept.sum() < 4
    torch.set_rng_state(state)
    output = stack(BATCH)
    shorter = Transformer(replace(A, n_layers=int(kept.sum()), layer_dropout=0.0))
    shorter.load_state_dict(
        {n: x for n, x in stack.state_dict().items() if not n.startswith("layers.")}
        | {
            f"layers.{i}.{n}": x
            for i, j in enumerate(kept.nonzero().flatten().tolist())
            for n, x in stack.layers[j].state_dict().items()
        }
    )
    assert torch.equal(output, shorter(BATCH))


def test_evaluation_uses_all_layers_and_last_only_still_works() -> None:
    torch.manual_seed(0)
    stack = Transformer(replace(A, layer_dropout=0.99))
    assert all(layers_with_gradient(stack.eval()))
    stack.train()
    one = BATCH.with_feature(RequestedStates(selected_column=torch.tensor([3, 0])))
    assert stack(one).shape == (2, 1, 16)


def test_layer_dropout_must_be_below_one() -> None:
    with pytest.raises(ValueError, match="layer_dropout must be from 0 to below 1, got 1"):
        replace(A, layer_dropout=1.0)
