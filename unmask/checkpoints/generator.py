"""The generator of a discriminator's pretraining, a separate model in a subfolder."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

from unmask.checkpoints.huggingface.read import LoadedModel, load_folder
from unmask.checkpoints.huggingface.write import write_folder
from unmask.checkpoints.tensors import read_json_file
from unmask.config import from_dict, to_dict
from unmask.files import encode_utf8
from unmask.heads.model import Model
from unmask.heads.pretraining.generator import Generator, GeneratorHead
from unmask.model.backbones.transformer import Architecture
from unmask.saved_format import read_record, write_record
from unmask.zoo.native_format import with_expressible_format

GENERATOR_FOLDER = "generator"
"""Subfolder of a model's folder."""
GENERATOR_KEY = "unmask_generator"
"""Key of config.json with the generator's settings."""
_HEAD_PREFIXES = {"backbone.": "network.", "heads.language.": "language."}
"""Prefixes of its weights in its own model -> in the head."""


def write_generator(folder: Path, loaded_model: LoadedModel) -> None:
    """Write the generator of a model, if it has one, to the model's folder."""
    generators = [h for h in loaded_model.model.heads.values() if isinstance(h, GeneratorHead)]
    if not generators or not isinstance(loaded_model.model.architecture, Architecture):
        return
    (head,) = generators
    card = with_expressible_format(
        replace(
            loaded_model.preset,
            architecture=head.spec.generator_architecture(loaded_model.model.architecture),
            heads={"language": head.spec.language_head},
        )
    )
    alone = card.build()
    parameters = dict(head.named_parameters(remove_duplicate=False))
    for prefix, head_prefix in _HEAD_PREFIXES.items():
        weights = {
            prefix + n.removeprefix(head_prefix): x
            for n, x in parameters.items()
            if n.startswith(head_prefix)
        }
        alone.load_state_dict(weights, strict=False)
    write_folder(folder / GENERATOR_FOLDER, alone, card, loaded_model.tokenizer)
    path = folder / GENERATOR_FOLDER / "config.json"
    config = read_json_file(path) | {GENERATOR_KEY: write_record(to_dict(head.spec))}
    path.write_bytes(encode_utf8(json.dumps(config, indent=2, ensure_ascii=False) + "\n"))


def add_generator(folder: Path, model: Model) -> None:
    """Add the generator in a model's folder, if there is one, to the model.

    Raises:
        ValueError: its files are damaged, or do not fit the model.
    """
    if (folder / GENERATOR_FOLDER / "config.json").is_file():
        path = folder / GENERATOR_FOLDER / "config.json"
        location = f"{path}: {GENERATOR_KEY}"
        record = read_record(read_json_file(path).get(GENERATOR_KEY), location)
        model.add_head(
            GENERATOR_FOLDER,
            from_dict(Generator, record, location),
        )
        load_generator_weights(folder, model)


def load_generator_weights(folder: Path, model: Model) -> frozenset[str]:
    """Load the weights of a model's generator from its folder, if any; return their names.

    Some models learn the difference of two tables, which is computed here.

    Raises:
        ValueError: its files are damaged, or do not fit the model.
    """
    filled = set[str]()
    for beside, head in model.heads.items():
        if not isinstance(head, GeneratorHead):
            continue
        if (folder / GENERATOR_FOLDER / "config.json").is_file():
            for name in _fill(folder, head):
                filled.add(f"heads.{beside}.{name}")
        head.to_embedding_difference()
    return frozenset(filled)


def _fill(folder: Path, head: GeneratorHead) -> Iterator[str]:
    """Copy the weights of a generator's folder into a head; yield their names in it."""
    generator_weights = load_folder(
        folder / GENERATOR_FOLDER, {"language": head.spec.language_head}
    ).model.own_weights()
    parameters = dict(head.named_parameters(remove_duplicate=False))
    for prefix, head_prefix in _HEAD_PREFIXES.items():
        for name, x in generator_weights.items():
            if name.startswith(prefix):
                _copy_tensor(parameters, head_prefix + name.removeprefix(prefix), x, folder)
                yield head_prefix + name.removeprefix(prefix)


def _copy_tensor(
    parameters: Mapping[str, nn.Parameter], name: str, tensor: Tensor, folder: Path
) -> None:
    if name not in parameters or parameters[name].shape != tensor.shape:
        raise ValueError(f"{folder / GENERATOR_FOLDER}: its tensor {name} does not fit the model")
    with torch.no_grad():
        parameters[name].copy_(tensor)
