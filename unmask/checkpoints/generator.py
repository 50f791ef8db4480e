"""The generator that a model was trained with, in a folder beside it: a model of its own."""

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
"""Within the folder of a model."""
GENERATOR_KEY = "unmask_generator"
"""Where its config.json says how it stood beside the model."""
_HEAD_PREFIXES = {"backbone.": "network.", "heads.language.": "language."}
"""Names of its weights by itself -> in the head."""


def write_generator(folder: Path, loaded_model: LoadedModel) -> None:
    """Write the generator of a model, if it has one, into the model's folder."""
    found = [h for h in loaded_model.model.heads.values() if isinstance(h, GeneratorHead)]
    if not found or not isinstance(loaded_model.model.architecture, Architecture):
        return
    (head,) = found
    card = with_expressible_format(
        replace(
            loaded_model.preset,
            architecture=head.spec.generator_architecture(loaded_model.model.architecture),
            heads={"language": head.spec.language_head},
        )
    )
    alone = card.build()
    named = dict(head.named_parameters(remove_duplicate=False))
    for ours, here in _HEAD_PREFIXES.items():
        weights = {ours + n.removeprefix(here): x for n, x in named.items() if n.startswith(here)}
        alone.load_state_dict(weights, strict=False)
    write_folder(folder / GENERATOR_FOLDER, alone, card, loaded_model.tokenizer)
    path = folder / GENERATOR_FOLDER / "config.json"
    said = read_json_file(path) | {GENERATOR_KEY: write_record(to_dict(head.spec))}
    path.write_bytes(encode_utf8(json.dumps(said, indent=2, ensure_ascii=False) + "\n"))


def add_generator(folder: Path, model: Model) -> None:
    """Put the generator that is in a model's folder, if one does, beside the model.

    Raises:
        ValueError: its files are damaged, or do not fit the model.
    """
    if (folder / GENERATOR_FOLDER / "config.json").is_file():
        path = folder / GENERATOR_FOLDER / "config.json"
        location = f"{path}: {GENERATOR_KEY}"
        said = read_record(read_json_file(path).get(GENERATOR_KEY), location)
        model.add_head(
            GENERATOR_FOLDER,
            from_dict(Generator, said, location),
        )
        load_generator_weights(folder, model)


def load_generator_weights(folder: Path, model: Model) -> frozenset[str]:
    """Give a model's generator the weights that are in its folder, if they do; name them.

    What is learned is the difference of two tables for some: it is taken here.

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
    """Copy the weights of a generator's folder into a head; give their names within it."""
    found = load_folder(
        folder / GENERATOR_FOLDER, {"language": head.spec.language_head}
    ).model.own_weights()
    wanted = dict(head.named_parameters(remove_duplicate=False))
    for ours, here in _HEAD_PREFIXES.items():
        for name, x in found.items():
            if name.startswith(ours):
                _copy_tensor(wanted, here + name.removeprefix(ours), x, folder)
                yield here + name.removeprefix(ours)


def _copy_tensor(
    parameters: Mapping[str, nn.Parameter], name: str, tensor: Tensor, folder: Path
) -> None:
    if name not in parameters or parameters[name].shape != tensor.shape:
        raise ValueError(
            f"{folder / GENERATOR_FOLDER}: its tensor {name} does not fit the model beside it"
        )
    with torch.no_grad():
        parameters[name].copy_(tensor)
