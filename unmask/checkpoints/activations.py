"""activations.json: how a model rounds the inputs of its linear layers, beside its weights."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from unmask.config import from_dict
from unmask.files import encode_utf8
from unmask.model.layers.quantized_inputs import (
    InputQuantization,
    RoundsInputs,
    attach_quantizations,
    input_names,
    quantized_inputs,
)
from unmask.saved_format import FORMAT, read_saved

ACTIVATIONS_FILE = "activations.json"
"""File of a model's folder; without it, inputs are not rounded."""


@dataclass(frozen=True)
class _ActivationsRecord:
    """Value of the file."""

    inputs: Mapping[str, InputQuantization]
    """By names of modules."""


def write_activations(folder: Path, model: RoundsInputs) -> None:
    """Write how a model rounds inputs into its folder, if it does."""
    found = quantized_inputs(model)
    if found:
        fields = ("bits", "low", "high", "symmetric")
        inputs = {n: {name: getattr(one, name) for name in fields} for n, one in found.items()}
        record = {"format": FORMAT, "inputs": inputs}
        text = json.dumps(record, indent=2, ensure_ascii=False) + "\n"
        (folder / ACTIVATIONS_FILE).write_bytes(encode_utf8(text))


def load_activations(folder: Path, model: RoundsInputs) -> None:
    """Let a model round inputs as its folder says; of heads that it does not have, none.

    Raises:
        ValueError: the file is damaged, or is of another model.
    """
    path = folder / ACTIVATIONS_FILE
    if not path.is_file():
        return
    plain = {key: value for key, value in read_saved(path).items() if key != "format"}
    found = from_dict(_ActivationsRecord, plain, str(path)).inputs
    known = set(input_names(model))
    try:
        attach_quantizations(
            model,
            {n: one for n, one in found.items() if n in known or not n.startswith("heads.")},
        )
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
