"""The generator that a model was trained with, in a folder beside it: a model of its own."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

from unmask.checkpoints.huggingface import Opened, open_folder, write_folder
from unmask.checkpoints.tensors import read_json
from unmask.config import from_dict, to_dict
from unmask.files import utf8
from unmask.heads.generator import Generator, GeneratorHead
from unmask.heads.model import Model
from unmask.model.architecture import Architecture
from unmask.published.own import worded

FOLDER = "generator"
"""Within the folder of a model."""
SPEC = "unmask_generator"
"""Where its config.json says how it stood beside the model."""
_OURS = {"backbone.": "network.", "heads.language.": "language."}
"""Names of its weights by itself -> in the head."""


def write_generator(folder: Path, opened: Opened) -> None:
    """Write the generator of a model, if it has one, into the model's folder."""
    found = [h for h in opened.model.heads.values() if isinstance(h, GeneratorHead)]
    if not found or not isinstance(opened.model.architecture, Architecture):
        return
    (head,) = found
    card = worded(
        replace(
            opened.card,
            architecture=head.spec.architecture(opened.model.architecture),
            heads={"language": head.spec.language},
        )
    )
    alone = card.build()
    named = dict(head.named_parameters(remove_duplicate=False))
    for ours, here in _OURS.items():
        weights = {ours + n.removeprefix(here): x for n, x in named.items() if n.startswith(here)}
        alone.load_state_dict(weights, strict=False)
    write_folder(folder / FOLDER, alone, card, opened.tokenizer)
    path = folder / FOLDER / "config.json"
    said = read_json(path) | {SPEC: to_dict(head.spec)}
    path.write_bytes(utf8(json.dumps(said, indent=2, ensure_ascii=False) + "\n"))


def add_generator(folder: Path, model: Model) -> None:
    """Put the generator that stands in a model's folder, if one does, beside the model.

    Raises:
        ValueError: its files are damaged, or do not fit the model.
    """
    if (folder / FOLDER / "config.json").is_file():
        said = read_json(folder / FOLDER / "config.json").get(SPEC)
        model.add(FOLDER, from_dict(Generator, said, f"{folder / FOLDER / 'config.json'}: {SPEC}"))
        fill_generator(folder, model)


def fill_generator(folder: Path, model: Model) -> frozenset[str]:
    """Give a model's generator the weights that stand in its folder, if they do; name them.

    What is learned is the difference of two tables for some: it is taken here.

    Raises:
        ValueError: its files are damaged, or do not fit the model.
    """
    filled = set[str]()
    for beside, head in model.heads.items():
        if not isinstance(head, GeneratorHead):
            continue
        if (folder / FOLDER / "config.json").is_file():
            for name in _fill(folder, head):
                filled.add(f"heads.{beside}.{name}")
        head.take_apart()
    return frozenset(filled)


def _fill(folder: Path, head: GeneratorHead) -> Iterator[str]:
    """Copy the weights of a generator's folder into a head; give their names within it."""
    found = open_folder(folder / FOLDER, {"language": head.spec.language}).model.weights()
    wanted = dict(head.named_parameters(remove_duplicate=False))
    for ours, here in _OURS.items():
        for name, x in found.items():
            if name.startswith(ours):
                _copy(wanted, here + name.removeprefix(ours), x, folder)
                yield here + name.removeprefix(ours)


def _copy(wanted: Mapping[str, nn.Parameter], name: str, tensor: Tensor, folder: Path) -> None:
    if name not in wanted or wanted[name].shape != tensor.shape:
        raise ValueError(f"{folder / FOLDER}: its tensor {name} does not fit the model beside it")
    with torch.no_grad():
        wanted[name].copy_(tensor)
