"""Which layers of a model are gathered one by one, when processes divide its weights."""

from collections import Counter
from collections.abc import Iterator

from torch import nn

from unmask.model.backbones.transformer import blocks


def separate_layers(model: nn.Module) -> Iterator[nn.Module]:
    """Yield the layers of the backbone that are gathered one by one.

    Their parameters have no other name, and all processes compute them in every step: none is
    skipped at random (LayerDrop), which processes draw by themselves.
    """
    n_names = Counter(id(p) for _, p in model.named_parameters(remove_duplicate=False))
    for layer in blocks(backbone(model)):
        if not layer.dropout and all(n_names[id(p)] == 1 for p in layer.parameters()):
            yield layer


def backbone(model: nn.Module) -> nn.Module:
    """Return the module of this name of a model; one without it has no layers that are known."""
    return dict(model.named_children()).get("backbone", nn.Identity())
