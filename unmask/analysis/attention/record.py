"""Attention maps of every head, recorded from outside during a forward pass."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from unmask.batch import Batch
from unmask.generation.text_batches import evaluation_mode
from unmask.heads.model import Model
from unmask.model.layers.attention.attention import Attention
from unmask.model.recording import attention_modules, plain_attention, recordable_stacks

_TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-9}
"""Largest difference between the kernel's output and the plain one, of the largest number: both
round, in another order."""
_TOLERANCE_OF_HALF = 3e-2


@dataclass
class StackMaps:
    """The attention weights of one stack, a tensor for each layer, the first layer first."""

    self_attention: list[Float[Tensor, "b h t t"]] = field(default_factory=list[Tensor])
    cross_attention: list[Float[Tensor, "b h t s"]] = field(default_factory=list[Tensor])
    """Of a decoder to its encoder."""


@contextmanager
def record_attention_maps(backbone: Any) -> Generator[list[StackMaps]]:
    """Record the attention weights of each stack, in order, in the forward passes within.

    Weights are computed again from the inputs of each attention, by matrix products: a fused kernel
    does not give them. What they make of the values is asserted to equal the kernel's output, so
    that a map is what the network computed with. Dropout must be off.

    Raises:
        ValueError: the network does not consist of Transformer blocks; or keys are in a cache, as
            those of a learned prefix are.
    """
    stacks = recordable_stacks(backbone)
    records = [StackMaps() for _ in stacks]
    hooks: list[Any] = []
    try:
        for stack, record in zip(stacks, records, strict=True):
            for attention, is_cross in attention_modules(stack):
                maps = record.cross_attention if is_cross else record.self_attention
                hooks.append(attention.register_forward_hook(_recorder(maps)))
        yield records
    finally:
        for hook in hooks:
            hook.remove()


def attention_maps(model: Model, batch: Batch) -> list[StackMaps]:
    """Return the attention weights of every layer and head for a batch, stack by stack.

    An encoder-decoder has two stacks; without `targets` its decoder reads `batch.inputs`.

    Raises:
        ValueError: see `record_attention_maps`.
    """
    with evaluation_mode(model), record_attention_maps(model.backbone) as records:
        model.backbone(batch)
    return records


def _recorder(maps: list[Tensor]) -> Callable[..., None]:
    def keep(module: Attention, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, context, position_state, mask = inputs[:4]
        if context is None or (len(inputs) > 4 and inputs[4] is not None):
            raise ValueError(
                "attention maps are recorded of texts that are read at once: the keys of a cache, "
                "or of a learned prefix, are in no map"
            )
        plain = plain_attention(module, x, context, position_state, mask)
        largest = float(output.abs().amax()) + 1e-12
        difference = float((plain.output - output).abs().amax()) / largest
        assert difference <= _TOLERANCE.get(output.dtype, _TOLERANCE_OF_HALF), (
            f"the plain path differs from the kernel by {difference:.1e}"
        )
        maps.append(plain.weights)

    return keep
