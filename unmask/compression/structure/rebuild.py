"""Rebuild: a model of another architecture with weights that are given."""

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from unmask.checkpoints.huggingface.read import LoadedModel
from unmask.heads.spec import HeadSpec
from unmask.model.architecture import BackboneArchitecture
from unmask.zoo.catalogue import MODELS
from unmask.zoo.native_format import NATIVE_PREFIX, with_expressible_format, with_family_format


def rebuild(
    loaded_model: LoadedModel,
    architecture: BackboneArchitecture,
    tensors: Mapping[str, Tensor],
    heads: Mapping[str, HeadSpec] | None = None,
) -> LoadedModel:
    """Return a model of another architecture with all weights given, by our names.

    The format of its folders is that of its family, where that has words for the architecture, or
    ours.

    Args:
        loaded_model: gives preset, tokenizer and names of labels.
        architecture: of the new model.
        tensors: its weights, as `Model.own_weights` names them.
        heads: its heads. None: those of `loaded_model`.

    Raises:
        ValueError: a weight is missing, has no place, or is of another shape.
    """
    specs = loaded_model.model.head_specs if heads is None else heads
    kept = {name: specs.get(name, spec) for name, spec in loaded_model.preset.heads.items()}
    preset = replace(loaded_model.preset, architecture=architecture, heads=kept)
    if preset.config_mapping.model_type.startswith(NATIVE_PREFIX):  # which may not be needed now
        family = next(one for one in MODELS.values() if one.family == preset.family)
        preset = with_family_format(preset, family)
    model = preset.build(specs).initialize()
    wanted = dict(model.named_parameters())
    for name in sorted(wanted.keys() ^ tensors.keys()):
        raise ValueError(f"{name} {'is missing' if name in wanted else 'has no place'}")
    for name, parameter in wanted.items():
        if parameter.shape != tensors[name].shape:
            raise ValueError(
                f"{name} must have the shape {list(parameter.shape)}, got "
                f"{list(tensors[name].shape)}"
            )
        with torch.no_grad():
            parameter.copy_(tensors[name])
    trained = {n: p.requires_grad for n, p in loaded_model.model.named_parameters()}
    for name, parameter in wanted.items():
        parameter.requires_grad_(trained.get(name, True))
    return replace(
        loaded_model, preset=with_expressible_format(preset), model=model.eval(), source=None
    )


def check_no_adapters(loaded_model: LoadedModel, method: str) -> None:
    """Check that a model has no adapters, which are of its old shapes.

    Raises:
        ValueError: it has.
    """
    if loaded_model.model.adapters:
        raise ValueError(
            f"{method}: the model has adapters; merge them first: unmask convert MODEL FOLDER"
        )
