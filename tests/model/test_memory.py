"""What a memory of earlier states lets a network see, and what it does not."""

from dataclasses import replace

import pytest
import torch

from unmask.batch import Batch, Visibility
from unmask.model.architecture import PRE_NORM
from unmask.model.backbones.transformer import Architecture, Transformer
from unmask.model.positions.learned import LearnedPositions
from unmask.model.positions.relative_bias import RelativePositionBias
from unmask.model.positions.rotary import Rotary
from unmask.model.positions.transformer_xl import TransformerXLPositions
from unmask.objectives.features import Recurrence, RecurrenceMemory

A = Architecture(
    vocab_size=50,
    d_model=16,
    n_layers=3,
    n_heads=2,
    d_ff=16,
    position=TransformerXLPositions(),
    causal=True,
    dropout=0.0,
    attention_dropout=0.0,
)
CAUSAL = Visibility(causal=True)


def make_stack(a: Architecture) -> Transformer:
    torch.manual_seed(0)
    stack = Transformer(a).double()
    for p in stack.parameters():
        torch.nn.init.normal_(p, std=0.3)
    return stack.eval()


def in_parts(
    stack: Transformer, ids: torch.Tensor, step: int, memory: RecurrenceMemory | None
) -> torch.Tensor:
    """Hidden states of a text that is read `step` tokens at a time."""
    batches = [
        Batch(inputs=part, visibility=CAUSAL, features=(Recurrence(memory=memory),))
        for part in ids.split(step, 1)
    ]
    return torch.cat([stack(batch) for batch in batches], 1)


@pytest.mark.parametrize(
    "a",
    [
        A,
        replace(A, norm_placement=PRE_NORM),
        replace(A, position=TransformerXLPositions(clamp_length=3)),
        replace(A, attention_window=(4,)),
        replace(A, position=RelativePositionBias(8, 16, causal=True)),
    ],
    ids=["after", "before", "clamped", "window", "buckets"],
)
@torch.no_grad()
def test_segments_with_full_memory_equal_whole_text(a: Architecture) -> None:
    stack, ids = make_stack(a), torch.randint(50, (2, 12))
    whole = stack(Batch(inputs=ids, visibility=CAUSAL))
    for step in (1, 3, 5):
        assert torch.allclose(in_parts(stack, ids, step, RecurrenceMemory(12)), whole, atol=1e-9)
    assert not torch.allclose(in_parts(stack, ids, 3, None), whole, atol=1e-3)
    if not a.attention_window:
        assert not torch.allclose(in_parts(stack, ids, 3, RecurrenceMemory(2)), whole, atol=1e-6)


@torch.no_grad()
def test_memory_reach_grows_per_layer() -> None:
    """With 4 places remembered, 2 read at a time: a token sees 4 to 5 back in each layer."""
    stack, ids = make_stack(A), torch.randint(50, (1, 20))
    whole = in_parts(stack, ids, 2, RecurrenceMemory(4))
    for position in range(20):
        other = ids.clone()
        other[0, position] = (other[0, position] + 1) % 50
        moved = (in_parts(stack, other, 2, RecurrenceMemory(4)) - whole).abs().sum(-1)[0] > 1e-12
        start = position // 2 * 2  # of the two that are read together
        furthest = start + 2 * (1 + 2 * A.n_layers)
        expected = [position <= i < furthest for i in range(20)]
        assert moved.tolist() == expected


def test_no_gradient_flows_into_the_memory() -> None:
    stack, memory = make_stack(A), RecurrenceMemory(4)
    stack(
        Batch(
            inputs=torch.randint(50, (1, 4)),
            visibility=CAUSAL,
            features=(Recurrence(memory=memory),),
        )
    )
    assert len(memory) == 4
    assert not any(states.requires_grad for states in memory.hidden_states)
    stack(
        Batch(
            inputs=torch.randint(50, (1, 3)),
            visibility=CAUSAL,
            features=(Recurrence(memory=memory),),
        )
    ).sum().backward()
    assert stack.tokens.weight.grad is not None
    assert (stack.tokens.weight.grad.abs().sum(-1) > 0).sum() <= 3


def test_memory_keeps_the_last_positions() -> None:
    memory = RecurrenceMemory(3)
    for start in (0, 4):
        memory.update(0, torch.arange(start, start + 4.0)[None, :, None])
    assert memory.hidden_states[0].flatten().tolist() == [5, 6, 7]


@pytest.mark.parametrize("position", [LearnedPositions(20), Rotary()])
def test_absolute_positions_refuse_a_memory(position) -> None:
    stack = make_stack(replace(A, position=position))
    with pytest.raises(ValueError, match="do not extend over a memory"):
        stack(
            Batch(
                inputs=torch.zeros(1, 3, dtype=torch.long),
                features=(Recurrence(memory=RecurrenceMemory(4)),),
            )
        )


def test_memory_of_other_rows_is_refused() -> None:
    stack, memory = make_stack(A), RecurrenceMemory(4)
    stack(
        Batch(
            inputs=torch.randint(50, (2, 4)),
            visibility=CAUSAL,
            features=(Recurrence(memory=memory),),
        )
    )
    with pytest.raises(ValueError, match="the memory is of 2 rows, but 3 are to go on"):
        stack(
            Batch(
                inputs=torch.randint(50, (3, 4)),
                visibility=CAUSAL,
                features=(Recurrence(memory=memory),),
            )
        )
    with pytest.raises(ValueError, match="at least 1 place, got 0"):
        RecurrenceMemory(0)
