"""Heads that begin by looking at the place beside each place."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from unmask.model.positions import LearnedModule
from unmask.model.transformer import Block, Transformer

SLOWEST, FASTEST = 0.02, 0.9 * math.pi
"""Of the sinusoids, in radians a place: the slowest as a share of the fastest."""
LOUDNESS = 2.0
"""Of the sinusoids, in standard deviations of the table that they are written into."""


@torch.no_grad()
def look_beside(stacks: Sequence[nn.Module], layers: int) -> None:
    """Let two heads of the first layers begin by looking at the place before and the one after.

    A masked model whose places are vectors of no order must find out first which is next to which,
    and knows no more than how frequent words are until it has; a small one may need a million
    tokens for that (docs/log.md, 2026-11-21 and 2026-11-22). Here a head's width of each place's
    vector begins as sinusoids of its number; the two heads' keys are these numbers, their queries
    the same turned by one place. A map that widens vectors begins by handing these numbers on. All
    else is random, and all of it is trained.

    Raises:
        ValueError: a stack has no such table of places at least as wide as a head, or no two heads
            of an even width.
    """
    tables: dict[Tensor, Tensor] = {}
    for stack in stacks:
        table = _places_of(stack)
        assert isinstance(stack, Transformer)
        width = stack.a.d_head
        if table not in tables:  # two stacks may have it in common
            tables[table] = _write_sinusoids(table, width)
        if 2 * len(tables[table]) != width:
            raise ValueError(
                "look_beside needs heads of one width in all networks that share places, got "
                f"{2 * len(tables[table])} and {width}; use 0"
            )
        if isinstance(stack.widen, nn.Linear):
            _hand_on(stack.widen, width)
        for block in stack.layers[:layers]:
            assert isinstance(block, Block)
            _turn(block.attention.q.weight, block.attention.k.weight, tables[table])


def _places_of(stack: nn.Module) -> Tensor:
    """Return the table of a stack's places, if it and the heads are such as are needed."""
    position = stack.position if isinstance(stack, Transformer) else None
    if not isinstance(stack, Transformer) or not isinstance(position, LearnedModule):
        raise ValueError("look_beside needs one stack that adds learned vectors of places; use 0")
    a = stack.a
    if a.n_heads < 2 or a.d_head % 2:
        raise ValueError(
            "look_beside needs two heads and an even head width, got "
            f"{a.n_heads} and {a.d_head}; use 0"
        )
    if a.d_embed < a.d_head:
        raise ValueError(
            f"look_beside needs vectors of places as wide as a head, {a.d_head}, got {a.d_embed}; "
            "use 0"
        )
    return position.table.weight


def _hand_on(widen: nn.Linear, width: int) -> None:
    """Let the first numbers of what is widened be those that come in."""
    widen.weight[:width] = 0
    widen.weight[:width, :width] = torch.eye(width)
    widen.bias[:width] = 0


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
