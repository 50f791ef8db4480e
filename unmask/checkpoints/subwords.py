"""The scores of hidden subwords, in a file beside a model that is kept without them (CANINE-S)."""

from pathlib import Path

import torch

from unmask.checkpoints.huggingface import Opened
from unmask.checkpoints.tensors import as_weight, read_tensors, write_tensors
from unmask.heads.model import Model
from unmask.heads.subwords import HiddenSubwords, HiddenSubwordsHead

FILE = "subwords.safetensors"
"""Within the folder of a model, beside the subwords themselves. The published models have none: the
scores are of the loss alone (Clark et al. 2022, section 3.2.2), and `evaluate` asks for it."""
NAME = "subwords"


def write_subwords(folder: Path, opened: Opened) -> None:
    """Write the scores of subwords of a model, if it has them, into the model's folder."""
    for head in opened.model.heads.values():
        if isinstance(head, HiddenSubwordsHead):
            write_tensors(folder / FILE, dict(head.named_parameters()))


def add_subwords(folder: Path, model: Model) -> None:
    """Put the scores that stand in a model's folder, if they do, beside the model.

    Raises:
        ValueError: the file is damaged, or does not fit the model.
    """
    if NAME not in model.specs:
        _put(folder, model)


def fill_subwords(folder: Path, model: Model) -> frozenset[str]:
    """Give a model's scores of subwords those of its folder, if there are; name what has them.

    Raises:
        ValueError: the file is damaged, or does not fit the model.
    """
    if not isinstance(model.specs.get(NAME), HiddenSubwords) or not _put(folder, model):
        return frozenset()
    return frozenset(f"heads.{NAME}.{name}" for name, _ in model.heads[NAME].named_parameters())


def _put(folder: Path, model: Model) -> bool:
    if not (folder / FILE).is_file():
        return False
    found = read_tensors(folder / FILE)
    rows = len(found["out.bias"]) if "out.bias" in found else 0
    shapes = {"out.weight": (rows, model.stack.d_model), "out.bias": (rows,)}
    if rows < 1 or {name: tuple(x.shape) for name, x in found.items()} != shapes:
        raise ValueError(
            f"{folder / FILE}: must hold out.weight [n {model.stack.d_model}] and out.bias [n], "
            f"got { {name: list(x.shape) for name, x in found.items()} }"
        )
    model.add(NAME, HiddenSubwords(size=rows))
    with torch.no_grad():
        for name, parameter in model.heads[NAME].named_parameters():
            parameter.copy_(as_weight(name, found[name]))
    return True
