"""Comparison of a configuration with the weights before the model is built."""

import math
import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

from unmask.checkpoints.tensors import tensor_names
from unmask.model.backbones.transformer import Architecture
from unmask.model.exchange.weight_names import MatchedWeights
from unmask.zoo.preset import Published

_LAYER_NAME = re.compile(r"backbone\.(?:(encoder|decoder)\.)?layers\.(\d+)\.")
_MAX_RANDOM_WEIGHTS = 2**24
"""Number of randomly initialized weights that is always allowed; more only if as many are
loaded."""


def check_depth(folder: Path, preset: Published, config: Mapping[str, Any]) -> None:
    """Reject a configuration with more layers than the weights; only headers are read.

    Raises:
        ValueError: so it is.
    """
    n_layers = _count_layers(preset.weight_names.internal_names(tensor_names(folder)))
    for side, stack in preset.architecture.stacks.items():
        shared = isinstance(stack, Architecture) and bool(stack.layers.shared_sublayers)
        if not shared and side in n_layers and n_layers[side] < stack.n_layers:
            keys = [
                key.name
                for key in preset.config_mapping.config_keys.table.values()
                if key.value_type == "layers"
            ]
            settings = ", ".join(f"{key} = {config[key]}" for key in keys if config.get(key))
            raise ValueError(
                f"{folder / 'config.json'}: {settings or f'n_layers = {stack.n_layers}'}, but the "
                f"weights have {n_layers[side]} layers{f' of the {side}' if side else ''}"
            )


def _count_layers(names: Iterable[str]) -> dict[str, int]:
    """Count layers by stack."""
    n_layers: dict[str, int] = {}
    for name in names:
        if (match := _LAYER_NAME.match(name)) is not None:
            side = match[1] or ""
            n_layers[side] = max(n_layers.get(side, 0), int(match[2]) + 1)
    return n_layers


def check_tied(
    folder: Path,
    preset: Published,
    config: Mapping[str, Any],
    tensor_names: Collection[str],
    *,
    language_head: bool,
) -> None:
    """Reject untied tables of which the file has only one.

    Args:
        folder: the folder.
        preset: preset of the model.
        config: its configuration.
        tensor_names: names of the file's tensors.
        language_head: whether the model needs a language head from this file.

    Raises:
        ValueError: so it is.
    """
    if config.get("tie_word_embeddings") is not False or preset.config_mapping.ties_embeddings(
        config
    ):
        return
    if missing := preset.weight_names.missing_untied(tensor_names, language_head=language_head):
        raise ValueError(
            f"{folder / 'config.json'}: tie_word_embeddings = false, but the weights have no "
            f"{', '.join(missing)}"
        )


def check_missing(
    folder: Path, expected_shapes: Mapping[str, torch.Size], matched: MatchedWeights
) -> None:
    """Reject heads that the folder lacks and that are larger than all loaded weights.

    Raises:
        ValueError: so it is.
    """
    n_loaded = sum(x.numel() for x in matched.tensors.values())
    sizes = {name: math.prod(expected_shapes[name]) for name in matched.missing}
    if (total := sum(sizes.values())) > max(n_loaded, _MAX_RANDOM_WEIGHTS):
        largest = max(sizes, key=lambda name: sizes[name])
        raise ValueError(
            f"{folder}: {total:,} weights would be random, of "
            f"{list(expected_shapes[largest])} in "
            f"{largest}, but the folder has {n_loaded:,}: is the number of labels right?"
        )
