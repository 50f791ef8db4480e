"""The layers of a network from the bottom to the top, each learned at a rate of its own."""

import re

from unmask.heads.model import Model

_LAYER_NAME = re.compile(r"^backbone\.(?:(encoder|decoder)\.)?(?:backward_)?layers\.(\d+)\.")
_ABOVE_LAYERS_NAME = re.compile(r"^heads\.|\.final_norm\.|^backbone\.(up|last)\.")
"""Modules above the last layer: in CANINE, the upsampling from the deep stack to characters."""
_EMBEDDING_NAME = re.compile(r"^backbone\.(?:(encoder|decoder)\.)?tokens\.")
_ADAPTER_PREFIX = "adapters."


def parameters_by_layer(model: Model) -> list[list[str]]:
    """Group the names of parameters by layer, from the bottom to the top.

    The groups are the embeddings, each layer (the encoder's, then the decoder's), and the final
    norm with the head.
    """
    stacks = {"encoder": 0, "decoder": 1}
    groups: dict[tuple[int, int], list[str]] = {}
    for name, _ in model.named_parameters():
        if name.startswith(_ADAPTER_PREFIX):
            continue
        found = _LAYER_NAME.match(name)
        if found:
            place = (1 + stacks.get(found[1] or "", 0), int(found[2]))
        elif _ABOVE_LAYERS_NAME.search(name):
            place = (3, 0)
        else:
            place = (0, 0)
        groups.setdefault(place, []).append(name)
    return [group for _, group in sorted(groups.items())]


def parameters_by_layer_with_tied_output(model: Model) -> list[list[str]]:
    """Group the names of parameters likewise, for a model that learns to name tokens.

    A table that the scores are tied to is learned with the head, not with what reads tokens (so the
    released code of Howard and Ruder 2018: `LanguageModel.get_layer_groups`).
    """
    groups = parameters_by_layer(model)
    if not any(spec.ties_output_embeddings for spec in model.head_specs.values()):
        return groups
    table = [name for group in groups for name in group if _EMBEDDING_NAME.match(name)]
    kept = [[name for name in group if name not in table] for group in groups]
    return [group for group in [*kept[:-1], [*kept[-1], *table]] if group]


def default_layerwise_lr_decay(n_groups: int) -> float:
    """Return the share of the rate of the group above that each of n groups has.

    1 / 2.6 of four (Howard and Ruder 2018, arXiv:1801.06146, section 3.2), and the same in all over
    any other number.
    """
    return (1 / 2.6) ** (4 / max(n_groups, 1))


def layerwise_lr_decay(groups: list[list[str]], decay: float) -> dict[str, float]:
    """Return the factor of each parameter's rate: of the top 1, and of each below `decay` times."""
    return {name: decay**depth for depth, group in enumerate(reversed(groups)) for name in group}
