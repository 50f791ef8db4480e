"""Which layers of a model are gathered one by one, when processes divide its weights."""

from collections import Counter
from collections.abc import Iterator
from typing import Protocol, runtime_checkable

from torch import nn

from unmask.model.backbones.transformer import Block, Transformer


@runtime_checkable
class HasBackbone(Protocol):
    """A model with a backbone, whose layers are gathered one after the other."""

    backbone: nn.Module


def separate_layers(model: nn.Module) -> Iterator[nn.Module]:
    """Yield the layers of the backbone that are gathered one by one.

    Their parameters have no other name, and all processes compute them in every step: none is
    skipped at random (LayerDrop), which processes draw by themselves.
    """
    if not isinstance(model, HasBackbone):
        return
    n_names = Counter(id(p) for _, p in model.named_parameters(remove_duplicate=False))
    for stack in model.backbone.modules():
        if not isinstance(stack, Transformer) or stack.a.layer_dropout:
            continue
        for layer in stack.layers:
            if isinstance(layer, Block) and all(n_names[id(p)] == 1 for p in layer.parameters()):
                yield layer
