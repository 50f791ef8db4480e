"""Declared: what a configuration says of a model, compared with the weights before it is built."""

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
"""So many weights may begin at random whatever a folder holds; more of them only where it holds as
many."""


def check_depth(folder: Path, preset: Published, config: Mapping[str, Any]) -> None:
    """Refuse a configuration of more layers than the weights are of; only headers are read.

    Raises:
        ValueError: so it is.
    """
    held = _count_layers(preset.weight_names.internal_names(tensor_names(folder)))
    for side, stack in preset.architecture.stacks.items():
        shared = isinstance(stack, Architecture) and bool(stack.layers.shared_sublayers)
        if not shared and side in held and held[side] < stack.n_layers:
            keys = [
                key.name
                for key in preset.config_mapping.config_keys.table.values()
                if key.value_type == "layers"
            ]
            said = ", ".join(f"{key} = {config[key]}" for key in keys if config.get(key))
            raise ValueError(
                f"{folder / 'config.json'}: {said or f'n_layers = {stack.n_layers}'}, but the "
                f"weights have {held[side]} layers{f' of the {side}' if side else ''}"
            )


def _count_layers(names: Iterable[str]) -> dict[str, int]:
    """Count layers by stack."""
    held: dict[str, int] = {}
    for name in names:
        if (found := _LAYER_NAME.match(name)) is not None:
            side = found[1] or ""
            held[side] = max(held.get(side, 0), int(found[2]) + 1)
    return held


def check_tied(
    folder: Path,
    preset: Published,
    config: Mapping[str, Any],
    tensor_names: Collection[str],
    *,
    language_head: bool,
) -> None:
    """Refuse tables that are not tied, of which the file holds one alone.

    The reference draws the other at random.

    Args:
        folder: the folder.
        preset: of the model.
        config: its configuration.
        tensor_names: names of the file's tensors.
        language_head: the model shall score tokens by weights of this file.

    Raises:
        ValueError: so it is.
    """
    if config.get("tie_word_embeddings") is not False or preset.config_mapping.ties_embeddings(
        config
    ):
        return
    if lacking := preset.weight_names.missing_untied(tensor_names, language_head=language_head):
        raise ValueError(
            f"{folder / 'config.json'}: tie_word_embeddings = false, but the weights have no "
            f"{', '.join(lacking)}"
        )


def check_missing(
    folder: Path, expected_shapes: Mapping[str, torch.Size], matched: MatchedWeights
) -> None:
    """Refuse heads that the folder does not hold, and that would be larger than all it holds.

    Raises:
        ValueError: so it is.
    """
    held = sum(x.numel() for x in matched.tensors.values())
    sizes = {name: math.prod(expected_shapes[name]) for name in matched.missing}
    if (total := sum(sizes.values())) > max(held, _MAX_RANDOM_WEIGHTS):
        largest = max(sizes, key=lambda name: sizes[name])
        raise ValueError(
            f"{folder}: {total:,} weights would begin at random, of "
            f"{list(expected_shapes[largest])} in "
            f"{largest}, where the folder holds {held:,}: is the number of labels right?"
        )
