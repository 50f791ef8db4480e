"""Hidden states and attention of every layer, recorded from outside during a forward pass."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from unmask.model.architecture import require_support
from unmask.model.backbones.transformer import Transformer
from unmask.model.layers.attention.attention import (
    Attention,
    AttentionMask,
    scatter_rows,
    split_heads,
)
from unmask.model.layers.attention.block_local_mask import BlockLocalMask, Window


@dataclass(frozen=True)
class AttentionRecord:
    """What one layer's self-attention computed."""

    queries: Float[Tensor, "b h t e"]
    keys: Float[Tensor, "b g s e"]
    values: Float[Tensor, "b g s e"]
    scores: Float[Tensor, "b h t s"]
    """Scores before the softmax, with the position scheme's bias and without the mask."""
    mask: Bool[Tensor, "#b 1 t s"] | None
    """True where a key is visible. None: all are."""

    @property
    def weights(self) -> Float[Tensor, "b h t s"]:
        """The attention weights, without dropout."""
        return self.log_softmax(self.scores).exp()

    def log_softmax(self, scores: Float[Tensor, "b _ t s"]) -> Float[Tensor, "b _ t s"]:
        """Return the log-softmax of scores of the same tokens over the visible keys."""
        if self.mask is not None:
            scores = scores.masked_fill(~self.mask, torch.finfo(scores.dtype).min)
        return scores.log_softmax(-1)


@dataclass
class StackRecord:
    """What one stack of Transformer blocks computed."""

    hidden_states: list[Float[Tensor, "b t d"]] = field(default_factory=list[Tensor])
    """Input of the first layer, output of each layer but the last, and the stack's output, before
    its dropout."""
    attention: list[AttentionRecord] = field(default_factory=list[AttentionRecord])
    """Self-attention of each layer."""


def recordable_stacks(backbone: Any) -> list[Transformer]:
    """Return the stacks of a network whose layers can be recorded.

    Raises:
        ValueError: it does not consist of Transformer blocks.
    """
    stacks = list(backbone.stacks)
    for stack in stacks:
        require_support(stack, "layer_records")
    return stacks


@contextmanager
def record_layers(
    backbone: Any, *, hidden_states: bool = True, attention: bool = False
) -> Generator[list[StackRecord]]:
    """Record what the layers compute, for each stack in order, in the forward passes within.

    Each pass appends to the records. With `attention`, scores are computed a second time, from the
    same queries and keys: a fused kernel does not give them.

    Raises:
        ValueError: the network does not consist of Transformer blocks, or an attention has no
            matrix of scores (a window of a long text, global tokens).
    """
    stacks = recordable_stacks(backbone)
    records = [StackRecord() for _ in stacks]
    hooks: list[Any] = []
    try:
        for stack, record in zip(stacks, records, strict=True):
            if hidden_states:
                hooks += [_hook_input(layer, record) for layer in stack.layers]
                hooks.append(_hook_output(stack.final_norm, record))
            if attention:
                blocks: list[Any] = list(stack.layers)
                # layers may share one module, whose hook is called for each of them
                own = dict.fromkeys(block.attention for block in blocks)
                hooks += [_hook_attention(attention, record) for attention in own]
        yield records
    finally:
        for hook in hooks:
            hook.remove()


def _hook_input(module: nn.Module, record: StackRecord) -> Any:
    def keep(module: nn.Module, inputs: tuple[Any, ...]) -> None:
        record.hidden_states.append(inputs[0])

    return module.register_forward_pre_hook(keep)


def _hook_output(module: nn.Module, record: StackRecord) -> Any:
    def keep(module: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> None:
        record.hidden_states.append(output)

    return module.register_forward_hook(keep)


def _hook_attention(attention: Attention, record: StackRecord) -> Any:
    def keep(module: Attention, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, context, position_state, mask = inputs[:4]
        record.attention.append(record_attention(module, x, context, position_state, mask))

    return attention.register_forward_hook(keep)


def record_attention(
    attention: Attention,
    x: Float[Tensor, "b t d"],
    context: Float[Tensor, "b s d"] | None,
    position_state: Any,
    attention_mask: AttentionMask,
) -> AttentionRecord:
    """Return what an attention computes from its inputs, by matrix products.

    Raises:
        ValueError: it has no matrix of scores.
    """
    if context is None or attention_mask.block_local_mask is not None or attention.wide is not None:
        raise ValueError(
            "this attention has no matrix of all scores: its keys are in a cache, its window is "
            "split into blocks, or it has global tokens"
        )
    return _record_scores(attention, x, context, position_state, attention_mask)


def _record_scores(
    attention: Attention,
    x: Float[Tensor, "b t d"],
    context: Float[Tensor, "b s d"],
    position_state: Any,
    attention_mask: AttentionMask,
) -> AttentionRecord:
    place = attention.place
    q = place.query(attention.split_heads(attention.q_norm(attention.q(x))), position_state)
    k = place.key(attention.split_heads(attention.k_norm(attention.k(context))), position_state)
    v = attention.split_heads(attention.v(context))
    keys = k.repeat_interleave(q.shape[1] // k.shape[1], 1)
    scores = q @ keys.mT * attention.scoring.scale
    if (cap := attention.scoring.softcap) is not None:
        scores = (scores / cap).tanh() * cap
    if (local := attention_mask.block_local_mask) is not None:
        # blocks are computed without a bias
        return AttentionRecord(q, k, v, scores, _mask_of_blocks(local, scores))
    bias = place.bias(q, k, position_state, attention)
    scores = scores if bias is None else scores + bias
    additive = attention_mask.additive(q, q.shape[2], k.shape[2])
    mask = None if additive is None else additive == 0
    return AttentionRecord(q, k, v, scores, mask)


def _mask_of_blocks(
    local: BlockLocalMask, scores: Float[Tensor, "b h t s"]
) -> Bool[Tensor, "#b 1 t s"] | None:
    """Return the mask of all pairs that equals attention within blocks."""
    (t, s), device = scores.shape[-2:], scores.device
    window = Window(local.window, local.dilation, visible_columns=local.global_positions)
    return local.visibility.to_mask(t, s, near=window.to_mask(t, s, device), device=device)


@dataclass(frozen=True)
class AttentionOutput:
    """The weights of an attention, and what it makes of them by matrix products."""

    weights: Float[Tensor, "b h t s"]
    """Zero where a key is not visible; each row sums to 1."""
    output: Float[Tensor, "b t d"]


def plain_attention(
    attention: Attention,
    x: Float[Tensor, "b t d"],
    context: Float[Tensor, "b s d"],
    position_state: Any,
    attention_mask: AttentionMask,
) -> AttentionOutput:
    """Compute an attention without its kernel, windows in blocks and global tokens included."""
    record = _record_scores(attention, x, context, position_state, attention_mask)
    weights = record.weights
    y = weights @ record.values.repeat_interleave(weights.shape[1] // record.values.shape[1], 1)
    queries = attention_mask.global_queries
    if (wide := attention.wide) is not None and queries is not None:
        rows = wide.weights(x, context, queries)  # [b h g s]
        weights = scatter_rows(weights, rows, queries.columns)
        y = scatter_rows(y, rows @ split_heads(wide.v(context), wide.d_head), queries.columns)
    y = y.transpose(1, 2).flatten(2)
    if attention.gate is not None and attention.gating is not None:
        y = y * attention.gating(attention.gate(x))
    return AttentionOutput(weights, attention.o(attention.inside(y)))


def attention_modules(stack: Transformer) -> list[tuple[Attention, bool]]:
    """Return each attention of a stack once, and whether it attends to an encoder."""
    blocks: list[Any] = list(stack.layers)
    pairs = [(block.attention, False) for block in blocks]
    pairs += [(block.cross, True) for block in blocks if block.cross is not None]
    return list(dict.fromkeys(pairs))
