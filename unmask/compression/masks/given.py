"""Masks that are given: the zeros, or the smallest weights, of another model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch
from jaxtyping import Bool
from torch import Tensor

from unmask.adapters.folder import open_model_or_adapter
from unmask.batch import Batch
from unmask.checkpoints.huggingface.read import LoadedModel, resolve_model_folder
from unmask.checkpoints.tensors import read_tensors
from unmask.compression.config import MaskSource
from unmask.compression.prune import largest_of_each, layer_matrices
from unmask.compression.structure.rebuild import check_no_adapters
from unmask.heads.model import Model

_MASK_SUFFIX = ".safetensors"


@dataclass(frozen=True, kw_only=True)
class MaskPruning(MaskSource):
    """Weights that are zero in another model with the same layers become zero.

    With the start of a training as the model and a trained run as the source this is a lottery
    ticket (Frankle and Carbin 2019, arXiv:1803.03635, section 1).
    """

    makes_smaller: ClassVar[bool] = False
    makes_zeros: ClassVar[bool] = True
    uses_texts: ClassVar[bool] = False

    def restructure(self, loaded_model: LoadedModel, batches: Sequence[Batch] = ()) -> LoadedModel:
        """Return the model itself, with weights that are zero now.

        Raises:
            FileNotFoundError: there is no such source.
            ValueError: it has other layers, or the model has adapters.
        """
        check_no_adapters(loaded_model, "mask")
        matrices = layer_matrices(loaded_model.model)
        with torch.no_grad():
            for name, mask in read_masks(self, loaded_model.model).items():
                matrices[name].mul_(mask)
        return loaded_model


def read_masks(source: MaskSource, model: Model) -> dict[str, Bool[Tensor, "o i"]]:
    """Return which weights of each matrix within a model's layers stay.

    Raises:
        FileNotFoundError: there is no such source.
        ValueError: the model has no such matrices, or the source has others.
    """
    matrices = layer_matrices(model)
    if not matrices:
        raise ValueError("mask: this model has no matrices within layers to prune")
    theirs = _read_matrices(source.source)
    for name, weight in matrices.items():
        found = theirs.get(name)
        if found is None or found.shape != weight.shape:
            got = "none" if found is None else f"[{', '.join(map(str, found.shape))}]"
            raise ValueError(
                f"mask: {source.source} must have {name} of shape "
                f"[{', '.join(map(str, weight.shape))}], got {got}"
            )
    weights = {name: theirs[name].to(weight.device).float() for name, weight in matrices.items()}
    if source.fraction is None:
        masks = {name: weight != 0 for name, weight in weights.items()}
    else:
        magnitudes = {name: weight.abs() for name, weight in weights.items()}
        masks = largest_of_each(magnitudes, source.fraction, source.scope)
    return masks if source.shuffle is None else shuffle_masks(masks, source.shuffle)


def shuffle_masks(
    masks: Mapping[str, Bool[Tensor, "o i"]], seed: int
) -> dict[str, Bool[Tensor, "o i"]]:
    """Return random masks with as many zeros in each matrix as given ones."""
    generator = torch.Generator().manual_seed(seed)
    found: dict[str, Bool[Tensor, "o i"]] = {}
    for name, mask in masks.items():
        order = torch.randperm(mask.numel(), generator=generator).to(mask.device)
        found[name] = mask.flatten()[order].view_as(mask)
    return found


def _read_matrices(source: str) -> Mapping[str, Tensor]:
    """Return the matrices of a source by our names.

    Raises:
        FileNotFoundError: there is no such folder or file.
        ValueError: it cannot be read, or is an adapter.
    """
    path = Path(source)
    if path.suffix == _MASK_SUFFIX and not path.is_dir():
        return read_tensors(path)
    loaded_model = open_model_or_adapter(resolve_model_folder(source))
    check_no_adapters(loaded_model, f"mask: {source}")
    return {name: w.detach() for name, w in layer_matrices(loaded_model.model).items()}
