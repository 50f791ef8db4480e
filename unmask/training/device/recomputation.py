"""Activation checkpointing: of a layer only its input is kept, and it is computed again in its
backward (Chen et al. 2016, arXiv:1604.06174)."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from unmask.model.backbones.transformer import Block, Transformer


class LayerRecomputation:
    """The layers of a model, made to compute their activations again in their backward.

    The dropout of the second computation is that of the first, so that results are the same.
    """

    def __init__(self, model: nn.Module) -> None:
        _check_layers(model)
        self._layers = [layer for layer in model.modules() if isinstance(layer, Block)]
        if not self._layers:
            raise ValueError(
                "checkpoint_activations: this model has no Transformer layers to compute again"
            )
        for layer in self._layers:
            layer.forward = _recomputed(layer.forward)

    def remove(self) -> None:
        """Make them keep their activations again."""
        for layer in self._layers:
            del layer.__dict__["forward"]


def _check_layers(model: nn.Module) -> None:
    """Check that no layer changes what it computes from when it computes again.

    Raises:
        ValueError: one does.
    """
    for stack in model.modules():
        if isinstance(stack, Transformer) and stack.mix is not None:
            raise ValueError(
                "checkpoint_activations: layers that average those before them (DenseFormer) keep "
                "their activations"
            )


def _recomputed(forward: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def compute(*inputs: Any) -> Tensor:
        if not torch.is_grad_enabled():
            return forward(*inputs)
        result: Tensor = checkpoint(forward, *inputs, use_reentrant=False)
        return result

    return compute
