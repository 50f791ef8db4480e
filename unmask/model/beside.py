"""Heads that begin by looking at the place beside each place."""

import math

import torch
from torch import Tensor, nn

from unmask.model.positions import LearnedModule
from unmask.model.transformer import Block, Transformer

SLOWEST, FASTEST = 0.02, 0.9 * math.pi
"""Of the sinusoids, in radians a place: the slowest as a share of the fastest."""
LOUDNESS = 2.0
"""Of the sinusoids, in standard deviations of the table that they are written into."""


@torch.no_grad()
def look_beside(stack: nn.Module, layers: int) -> None:
    """Let two heads of the first layers begin by looking at the place before and the one after.

    A masked model whose places are vectors of no order must find out first which is next to which,
    and knows no more than how frequent words are until it has; a small one may need a million
    tokens for that (docs/log.md, 2026-11-21 and 2026-11-22). Here a head's width of each place's
    vector begins as sinusoids of its number; the two heads' keys are these numbers, their queries
    the same turned by one place. All else is random, and all of it is trained.

    Raises:
        ValueError: the stack has no such table of places as wide as the hidden states, or no two
            heads of an even width.
    """
    position = stack.position if isinstance(stack, Transformer) else None
    if not isinstance(stack, Transformer) or not isinstance(position, LearnedModule):
        raise ValueError("look_beside needs one stack that adds learned vectors of places; use 0")
    a = stack.a
    if a.d_embed != a.d_model:
        raise ValueError(
            f"look_beside needs vectors of places as wide as the hidden states, {a.d_model}, got "
            f"{a.d_embed}; use 0"
        )
    if a.n_heads < 2 or a.d_head % 2:
        raise ValueError(
            "look_beside needs two heads and an even head width, got "
            f"{a.n_heads} and {a.d_head}; use 0"
        )
    turns = _write_sinusoids(position.table.weight, a.d_head)
    for block in stack.layers[:layers]:
        assert isinstance(block, Block)
        _turn(block.attention.q.weight, block.attention.k.weight, turns)


def _write_sinusoids(table: Tensor, width: int) -> Tensor:
    """Make the first `width` numbers of each place sinusoids; return radians a place of each."""
    share = torch.arange(width // 2) / max(width // 2 - 1, 1)
    turns = FASTEST * SLOWEST**share
    angle = torch.arange(len(table))[:, None] * turns
    loud = LOUDNESS * table.std()
    table[:, 0:width:2] = loud * angle.sin()
    table[:, 1:width:2] = loud * angle.cos()
    return turns


def _turn(q: Tensor, k: Tensor, turns: Tensor) -> None:
    """Make keys of heads 0 and 1 the sinusoids, queries the same one place back, and forth."""
    width = 2 * len(turns)
    for head, step in enumerate((-1, 1)):
        queries, keys = (weight[head * width : (head + 1) * width] for weight in (q, k))
        queries[:], keys[:] = 0, 0
        for i, turn in enumerate(turns.tolist()):
            cos, sin = math.cos(turn * step), math.sin(turn * step)
            pair = slice(2 * i, 2 * i + 2)
            queries[pair, pair] = torch.tensor([[cos, sin], [-sin, cos]])
        keys[:, :width] = torch.eye(width)
