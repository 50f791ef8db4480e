"""The generator of a model is saved in a folder beside it, and loaded again."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from unmask.checkpoints.generator import (
    GENERATOR_FOLDER,
    add_generator,
    load_generator_weights,
    write_generator,
)
from unmask.checkpoints.huggingface.read import LoadedModel, load_folder
from unmask.checkpoints.huggingface.write import write_folder
from unmask.zoo.catalogue import MODELS


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", ["electra-mini", "deberta-v3-mini", "coco-lm-mini"])
def test_model_and_generator_round_trip(name: str, tmp_path: Path) -> None:
    preset = MODELS[name]
    preset = replace(preset, architecture=preset.architecture.with_vocab_size(50))
    model = preset.build().initialize(1).eval()
    loaded = LoadedModel(
        preset=preset, model=model, tokenizer=None, label_names=(), missing=(), unexpected=()
    )
    write_folder(tmp_path, model, preset, None)
    write_generator(tmp_path, loaded)
    assert (tmp_path / GENERATOR_FOLDER / "config.json").is_file()
    again = load_folder(tmp_path)
    assert GENERATOR_FOLDER not in again.model.head_specs
    add_generator(tmp_path, again.model)
    ours, theirs = again.model.own_weights(), model.own_weights()
    assert ours.keys() == theirs.keys()
    assert all(torch.allclose(x, theirs[n], atol=1e-6) for n, x in ours.items())
    started = load_folder(tmp_path, preset.heads)  # as pretraining goes on from it
    load_generator_weights(tmp_path, started.model)
    assert all(
        torch.allclose(x, theirs[n], atol=1e-6) for n, x in started.model.own_weights().items()
    )
