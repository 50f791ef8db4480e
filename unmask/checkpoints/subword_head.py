"""The subword head, in a separate file of a model saved without it (CANINE-S)."""

from pathlib import Path

import torch

from unmask.checkpoints.huggingface.read import LoadedModel
from unmask.checkpoints.tensors import read_tensors, to_float32_weight, write_tensors
from unmask.heads.model import Model
from unmask.heads.pretraining.subword_prediction import SubwordPrediction, SubwordPredictionHead

SUBWORD_HEAD_FILE = "subwords.safetensors"
"""File in a model's folder. The published models have none: the head is for the pretraining loss
(Clark et al. 2022, section 3.2.2), which `evaluate` needs."""
SUBWORD_HEAD = "subwords"


def write_subword_head(folder: Path, loaded_model: LoadedModel) -> None:
    """Write the subword head of a model, if it has one, to the model's folder."""
    for head in loaded_model.model.heads.values():
        if isinstance(head, SubwordPredictionHead):
            write_tensors(folder / SUBWORD_HEAD_FILE, dict(head.named_parameters()))


def add_subword_head(folder: Path, model: Model) -> None:
    """Add the subword head in a model's folder, if there is one, to the model.

    Raises:
        ValueError: the file is damaged, or does not fit the model.
    """
    if SUBWORD_HEAD not in model.head_specs:
        _put(folder, model)


def fill_subwords(folder: Path, model: Model) -> frozenset[str]:
    """Load a model's subword head from its folder, if any; return the names of its weights.

    Raises:
        ValueError: the file is damaged, or does not fit the model.
    """
    if not isinstance(model.head_specs.get(SUBWORD_HEAD), SubwordPrediction) or not _put(
        folder, model
    ):
        return frozenset()
    return frozenset(
        f"heads.{SUBWORD_HEAD}.{name}" for name, _ in model.heads[SUBWORD_HEAD].named_parameters()
    )


def _put(folder: Path, model: Model) -> bool:
    if not (folder / SUBWORD_HEAD_FILE).is_file():
        return False
    tensors = read_tensors(folder / SUBWORD_HEAD_FILE)
    rows = len(tensors["out.bias"]) if "out.bias" in tensors else 0
    shapes = {"out.weight": (rows, model.decoder_architecture.d_model), "out.bias": (rows,)}
    if rows < 1 or {name: tuple(x.shape) for name, x in tensors.items()} != shapes:
        raise ValueError(
            f"{folder / SUBWORD_HEAD_FILE}: must have out.weight [n "
            f"{model.decoder_architecture.d_model}] and out.bias [n], "
            f"got { {name: list(x.shape) for name, x in tensors.items()} }"
        )
    model.add_head(SUBWORD_HEAD, SubwordPrediction(output_vocab_size=rows))
    with torch.no_grad():
        for name, parameter in model.heads[SUBWORD_HEAD].named_parameters():
            parameter.copy_(to_float32_weight(name, tensors[name]))
    return True
