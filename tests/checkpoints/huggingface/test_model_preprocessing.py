"""The preprocessing of pictures travels with a model, in the file that transformers reads."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from unmask.checkpoints.huggingface.preprocessing import preset_preprocessing
from unmask.checkpoints.huggingface.read import LoadedModel, load_folder
from unmask.images.preprocessor_config import CONFIG_FILE
from unmask.inference.export import save_model
from unmask.zoo.catalogue import get_preset

pytest.importorskip("transformers")


def loaded(name: str) -> LoadedModel:
    preset = get_preset(name)
    return LoadedModel(
        preset=preset, model=preset.build().initialize(0), tokenizer=None, label_names=(),
        missing=(), unexpected=(), preprocessing=preset_preprocessing(preset),
    )  # fmt: skip


def test_is_read_again_as_it_was_written(tmp_path: Path) -> None:
    model = loaded("vit-mini")
    assert model.preprocessing is not None
    other = replace(model.preprocessing, mean=(0.1, 0.2, 0.3), resampling="bicubic")
    save_model(replace(model, preprocessing=other), tmp_path / "m")
    assert load_folder(tmp_path / "m").preprocessing == other


def test_transformers_prepares_pictures_alike(tmp_path: Path) -> None:
    import transformers

    save_model(loaded("vit-mini"), tmp_path / "m")
    pixels = np.random.default_rng(0).integers(0, 256, (50, 70, 3), np.uint8)
    theirs = transformers.ViTImageProcessorPil.from_pretrained(tmp_path / "m")(
        Image.fromarray(pixels), return_tensors="np"
    )["pixel_values"][0]
    own = load_folder(tmp_path / "m").preprocessing
    assert own is not None
    assert np.allclose(own.normalize(own.pixels(pixels)), theirs, atol=1e-6)


def test_a_folder_without_it_gets_that_of_its_size(tmp_path: Path) -> None:
    save_model(loaded("vit-mini"), tmp_path / "m")
    (tmp_path / "m" / CONFIG_FILE).unlink()
    found = load_folder(tmp_path / "m").preprocessing
    assert found is not None
    assert found == preset_preprocessing(get_preset("vit-mini"))


def test_a_model_of_texts_has_none(tmp_path: Path) -> None:
    save_model(loaded("bert-mini"), tmp_path / "m")
    assert load_folder(tmp_path / "m").preprocessing is None
    assert not (tmp_path / "m" / CONFIG_FILE).exists()
