"""Declared: what a configuration says of a model, compared with the weights before it is built."""

import math
import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

from unmask.checkpoints.tensors import tensor_names
from unmask.model.architecture import Architecture, EncoderDecoderArchitecture
from unmask.model.names import Read
from unmask.published.card import Published

_LAYER = re.compile(r"backbone\.(?:(encoder|decoder)\.)?layers\.(\d+)\.")
_RANDOM = 2**24
"""So many weights may begin at random whatever a folder holds; more of them only where it holds as
many."""


def check_depth(folder: Path, card: Published, theirs: Mapping[str, Any]) -> None:
    """Refuse a configuration of more layers than the weights are of; only headers are read.

    Raises:
        ValueError: so it is.
    """
    held = _layers(card.names.ours_of(tensor_names(folder)))
    for side, stack in _stacks(card).items():
        if not stack.shared and side in held and held[side] < stack.n_layers:
            keys = [key.name for key in card.fields.keys.table.values() if key.kind == "layers"]
            said = ", ".join(f"{key} = {theirs[key]}" for key in keys if theirs.get(key))
            raise ValueError(
                f"{folder / 'config.json'}: {said or f'n_layers = {stack.n_layers}'}, but the "
                f"weights have {held[side]} layers{f' of the {side}' if side else ''}"
            )


def _layers(names: Iterable[str]) -> dict[str, int]:
    """Count layers by stack."""
    held: dict[str, int] = {}
    for name in names:
        if (found := _LAYER.match(name)) is not None:
            side = found[1] or ""
            held[side] = max(held.get(side, 0), int(found[2]) + 1)
    return held


def _stacks(card: Published) -> dict[str, Architecture]:
    a = card.architecture
    if isinstance(a, EncoderDecoderArchitecture):
        return {"encoder": a.encoder, "decoder": a.decoder}
    return {"": a}


def check_tied(
    where: Path,
    card: Published,
    theirs: Mapping[str, Any],
    state: Collection[str],
    *,
    language: bool,
) -> None:
    """Refuse tables that are not tied, of which the file holds one alone.

    The reference draws the other at random.

    Args:
        where: the folder.
        card: of the model.
        theirs: its configuration.
        state: names of the file's tensors.
        language: the model shall score tokens by weights of this file.

    Raises:
        ValueError: so it is.
    """
    if theirs.get("tie_word_embeddings") is not False or card.fields.always_tied(theirs):
        return
    if lacking := card.names.lacking(state, language=language):
        raise ValueError(
            f"{where / 'config.json'}: tie_word_embeddings = false, but the weights have no "
            f"{', '.join(lacking)}"
        )


def check_missing(where: Path, wanted: Mapping[str, torch.Size], read: Read) -> None:
    """Refuse heads that the folder does not hold, and that would be larger than all it holds.

    Raises:
        ValueError: so it is.
    """
    held = sum(x.numel() for x in read.tensors.values())
    sizes = {name: math.prod(wanted[name]) for name in read.missing}
    if (total := sum(sizes.values())) > max(held, _RANDOM):
        largest = max(sizes, key=lambda name: sizes[name])
        raise ValueError(
            f"{where}: {total:,} weights would begin at random, of {list(wanted[largest])} in "
            f"{largest}, where the folder holds {held:,}: is the number of labels right?"
        )
