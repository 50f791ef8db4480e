"""Initialization of attention heads that attend to the adjacent tokens, or to the same token."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from unmask.model.architecture import Backbone
from unmask.model.backbones.transformer import Block, Transformer
from unmask.model.layers.attention.attention import Attention
from unmask.model.positions.learned import LearnedPositionsModule
from unmask.model.positions.relative_bias import RelativePositionBiasModule

MIN_FREQUENCY, MAX_FREQUENCY = 0.02, 0.9 * math.pi
"""Frequencies of the sinusoids: the smallest as a fraction of the largest, and the largest in
radians per position."""
SINUSOID_AMPLITUDE = 2.0
"""Amplitude of the sinusoids, in standard deviations of the embedding table."""
PREVIOUS_TOKEN_BIAS = 4.0
"""Increase of the relative position bias, in nats."""
SAME_TOKEN_SCORE = 8.0
"""Approximate score of a token with itself, in nats."""
_REQUIREMENTS = (
    "init_previous_token_heads needs one stack with learned position embeddings or relative "
    "position biases; use 0"
)


@torch.no_grad()
def init_previous_token_heads(stacks: Sequence[Backbone], n_layers: int) -> None:
    """Initialize two heads of the first layers to attend to the previous and the next token.

    A masked language model with randomly initialized position embeddings must first learn which
    positions are adjacent. Until then it predicts by word frequency alone; a small model may need a
    million tokens for that (docs/log.md, 2026-11-21 and 2026-11-22). Here the first `d_head`
    dimensions of each position embedding are initialized to sinusoids of the position. The keys of
    the two heads are these dimensions; their queries are the same, rotated by one position. A
    projection of embeddings to the hidden size is initialized to the identity on these dimensions.
    All other weights are random, and all weights are trained.

    Relative position biases (T5) of the adjacent positions are increased, in all layers, since
    layers share them; in a causal stack, only the bias of the previous position. In a decoder with
    cross-attention, the second head of the first layers is initialized to attend to the same token
    in the source. To generate the tokens after a sentinel, a decoder must both find the sentinel in
    the source and attend to the token after it there; neither helps without the other (docs/log.md,
    2026-11-23).

    Raises:
        ValueError: a stack has neither position embeddings at least as wide as a head nor relative
            position biases, or no two heads of an even size.
    """
    check_previous_token_heads(stacks)
    tables: dict[Tensor, Tensor] = {}
    biases: set[nn.Embedding] = set()
    for stack in _flat_stacks(stacks):
        if isinstance(stack.position, RelativePositionBiasModule):
            if stack.position.table not in biases:  # likewise, in the buckets of the first
                _bias_adjacent_positions(stack, stack.position)
            biases.add(stack.position.table)
            for block in stack.layers[:n_layers]:
                if isinstance(block, Block) and block.cross is not None:
                    _init_token_matching(block.cross)
            continue
        table = _position_table(stack)
        width = stack.a.d_head
        if table not in tables:  # two stacks may share it
            tables[table] = _write_sinusoids(table, width)
        if isinstance(stack.widen, nn.Linear):
            _init_projection_identity(stack.widen, width)
        for block in stack.layers[:n_layers]:
            assert isinstance(block, Block)
            _init_rotated_queries_keys(
                block.attention.q.weight, block.attention.k.weight, tables[table]
            )


def check_previous_token_heads(stacks: Sequence[Backbone]) -> None:
    """Check that the stacks support this initialization.

    Raises:
        ValueError: they do not.
    """
    widths: dict[Tensor, int] = {}
    for stack in _flat_stacks(stacks):
        if isinstance(stack.position, RelativePositionBiasModule):
            if stack.a.n_heads < 2:
                raise ValueError(
                    f"init_previous_token_heads needs two heads, got {stack.a.n_heads}; use 0"
                )
            continue
        width = widths.setdefault(_position_table(stack), stack.a.d_head)
        if width != stack.a.d_head:
            raise ValueError(
                "init_previous_token_heads needs one head_dim in all networks that share position "
                f"embeddings, got {width} and {stack.a.d_head}; use 0"
            )


def _flat_stacks(stacks: Sequence[Backbone]) -> list[Transformer]:
    """List the single stacks; an encoder is followed by its decoder."""
    transformers: list[Transformer] = []
    for stack in stacks:
        pair = stack.a.is_encoder_decoder
        for part in (stack.encoder_stack, stack.decoder_stack) if pair else (stack,):
            biased = isinstance(part, Transformer) and isinstance(
                part.position, RelativePositionBiasModule
            )
            if not isinstance(part, Transformer) or (pair and not biased):
                raise ValueError(_REQUIREMENTS)
            transformers.append(part)
    return transformers


def _bias_adjacent_positions(stack: Transformer, position: RelativePositionBiasModule) -> None:
    """Increase the biases of the adjacent positions, one for each of the first two heads."""
    before, behind = position.bucket(torch.tensor([[-1, 1]]))[0].tolist()
    position.table.weight[before, 0] += PREVIOUS_TOKEN_BIAS
    if not position.scheme.causal:
        position.table.weight[behind, 1] += PREVIOUS_TOKEN_BIAS


def _init_token_matching(cross_attention: Attention) -> None:
    """Let the second head attend to the same token: its queries are its keys, times a factor."""
    head = slice(cross_attention.d_head, 2 * cross_attention.d_head)
    keys = cross_attention.k.weight[head]
    # the squared norm of a key for an input of unit variance
    cross_attention.q.weight[head] = (
        SAME_TOKEN_SCORE / (cross_attention.scale * keys.square().sum()) * keys
    )


def _position_table(stack: Transformer) -> Tensor:
    """Return the position embeddings of a stack, after checking that they and the heads fit."""
    a, position = stack.a, stack.position
    if not isinstance(position, LearnedPositionsModule):
        raise ValueError(_REQUIREMENTS)
    if a.n_heads < 2 or a.d_head % 2:
        raise ValueError(
            "init_previous_token_heads needs two heads and an even head_dim, got "
            f"{a.n_heads} and {a.d_head}; use 0"
        )
    if a.d_embed < a.d_head:
        raise ValueError(
            "init_previous_token_heads needs position embeddings as wide as a head, "
            f"{a.d_head}, got {a.d_embed}; use 0"
        )
    return position.table.weight


def _init_projection_identity(projection: nn.Linear, width: int) -> None:
    """Initialize a projection to the identity on the first `width` dimensions."""
    projection.weight[:width] = 0
    projection.weight[:width, :width] = torch.eye(width)
    projection.bias[:width] = 0


def _write_sinusoids(table: Tensor, width: int) -> Tensor:
    """Make the first `width` dimensions sinusoids of the position; return their frequencies."""
    fraction = torch.arange(width // 2) / max(width // 2 - 1, 1)
    frequencies = MAX_FREQUENCY * MIN_FREQUENCY**fraction
    angle = torch.arange(len(table))[:, None] * frequencies
    amplitude = SINUSOID_AMPLITUDE * table.std()
    table[:, 0:width:2] = amplitude * angle.sin()
    table[:, 1:width:2] = amplitude * angle.cos()
    return frequencies


def _init_rotated_queries_keys(q: Tensor, k: Tensor, angles: Tensor) -> None:
    """Map keys of heads 0 and 1 to the sinusoids, queries to those of adjacent positions."""
    width = 2 * len(angles)
    for head, step in enumerate((-1, 1)):
        queries, keys = (weight[head * width : (head + 1) * width] for weight in (q, k))
        queries[:], keys[:] = 0, 0
        for i, angle in enumerate(angles.tolist()):
            cos, sin = math.cos(angle * step), math.sin(angle * step)
            pair = slice(2 * i, 2 * i + 2)
            queries[pair, pair] = torch.tensor([[cos, sin], [-sin, cos]])
        keys[:, :width] = torch.eye(width)
