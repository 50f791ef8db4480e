"""Activation checkpointing (Chen et al. 2016, arXiv:1604.06174).

Of a layer only its input is kept, and it is computed again in its backward.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from unmask.model.backbones.transformer import blocks
from unmask.model.layers.depth_weighted_average import DepthWeightedAverage


class LayerRecomputation:
    """The layers of a model, made to compute their activations again in their backward.

    The dropout of the second computation is that of the first, so that results are the same.

    Raises:
        ValueError: the model has no Transformer layers, or such as cannot compute again.
    """

    def __init__(self, model: nn.Module) -> None:
        self._layers = blocks(model)
        if not self._layers:
            raise ValueError(
                "checkpoint_activations: this model has no Transformer layers to compute again"
            )
        if any(isinstance(part, DepthWeightedAverage) for part in model.modules()):
            raise ValueError(
                "checkpoint_activations: layers that are averaged with those before them "
                "(DenseFormer) keep their activations"
            )
        for layer in self._layers:
            layer.forward = _recomputed(layer.forward)

    def remove(self) -> None:
        """Make them keep their activations again."""
        for layer in self._layers:
            del layer.__dict__["forward"]


def _recomputed(forward: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def compute(*inputs: Any) -> Tensor:
        if not torch.is_grad_enabled():
            return forward(*inputs)
        result: Tensor = checkpoint(forward, *inputs, use_reentrant=False)
        return result

    return compute
