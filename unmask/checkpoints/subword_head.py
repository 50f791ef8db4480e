"""The scores of hidden subwords, in a file beside a model that is kept without them (CANINE-S)."""

from pathlib import Path

import torch

from unmask.checkpoints.huggingface.read import LoadedModel
from unmask.checkpoints.tensors import read_tensors, to_float32_weight, write_tensors
from unmask.heads.model import Model
from unmask.heads.pretraining.subword_prediction import SubwordPrediction, SubwordPredictionHead

SUBWORD_HEAD_FILE = "subwords.safetensors"
"""Within the folder of a model, beside the subwords themselves. The published models have none: the
scores are of the loss alone (Clark et al. 2022, section 3.2.2), and `evaluate` asks for it."""
SUBWORD_HEAD = "subwords"


def write_subword_head(folder: Path, loaded_model: LoadedModel) -> None:
    """Write the scores of subwords of a model, if it has them, into the model's folder."""
    for head in loaded_model.model.heads.values():
        if isinstance(head, SubwordPredictionHead):
            write_tensors(folder / SUBWORD_HEAD_FILE, dict(head.named_parameters()))


def add_subword_head(folder: Path, model: Model) -> None:
    """Put the scores that are in a model's folder, if they do, beside the model.

    Raises:
        ValueError: the file is damaged, or does not fit the model.
    """
    if SUBWORD_HEAD not in model.head_specs:
        _put(folder, model)


def fill_subwords(folder: Path, model: Model) -> frozenset[str]:
    """Give a model's scores of subwords those of its folder, if there are; name what has them.

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
    found = read_tensors(folder / SUBWORD_HEAD_FILE)
    rows = len(found["out.bias"]) if "out.bias" in found else 0
    shapes = {"out.weight": (rows, model.decoder_architecture.d_model), "out.bias": (rows,)}
    if rows < 1 or {name: tuple(x.shape) for name, x in found.items()} != shapes:
        raise ValueError(
            f"{folder / SUBWORD_HEAD_FILE}: must hold out.weight [n "
            f"{model.decoder_architecture.d_model}] and out.bias [n], "
            f"got { {name: list(x.shape) for name, x in found.items()} }"
        )
    model.add_head(SUBWORD_HEAD, SubwordPrediction(output_vocab_size=rows))
    with torch.no_grad():
        for name, parameter in model.heads[SUBWORD_HEAD].named_parameters():
            parameter.copy_(to_float32_weight(name, found[name]))
    return True
