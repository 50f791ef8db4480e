"""The generator of a model is kept in a folder beside it, and read again."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from unmask.checkpoints.generator import FOLDER, add_generator, fill_generator, write_generator
from unmask.checkpoints.huggingface import Opened, open_folder, write_folder
from unmask.published.card import resized
from unmask.published.catalogue import MODELS


@pytest.mark.parametrize("name", ["electra-mini", "deberta-v3-mini", "coco-lm-mini"])
def test_a_model_and_its_generator_come_back(name: str, tmp_path: Path) -> None:
    card = MODELS[name]
    card = replace(card, architecture=resized(card.architecture, 50))
    model = card.build().initialize(1).eval()
    opened = Opened(card=card, model=model, tokenizer=None, labels=(), missing=(), extra=())
    write_folder(tmp_path, model, card, None)
    write_generator(tmp_path, opened)
    assert (tmp_path / FOLDER / "config.json").is_file()
    again = open_folder(tmp_path)
    assert FOLDER not in again.model.specs
    add_generator(tmp_path, again.model)
    ours, theirs = again.model.weights(), model.weights()
    assert ours.keys() == theirs.keys()
    assert all(torch.allclose(x, theirs[n], atol=1e-6) for n, x in ours.items())
    begun = open_folder(tmp_path, card.heads)  # as pretraining goes on from it
    fill_generator(tmp_path, begun.model)
    assert all(torch.allclose(x, theirs[n], atol=1e-6) for n, x in begun.model.weights().items())
