"""ONNX graphs of networks of pictures label and embed as the models that they were made of."""

from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
import pytest
import torch
from onnx_models import check_alike

import unmask
from unmask.batch import Batch
from unmask.checkpoints.huggingface.preprocessing import preset_preprocessing
from unmask.checkpoints.huggingface.read import LoadedModel
from unmask.heads.spec import HeadSpec
from unmask.inference.pipeline import Pipeline
from unmask.model.backbones.vision_transformer import VisionArchitecture, picture_batch
from unmask.tasks.task import Task, TaskColumns
from unmask.tokenizers.learn.tokenizer import picture_tokenizer
from unmask.zoo.catalogue import MODELS

LABELS = ("cat", "dog", "fox")
PICTURES = [*np.random.default_rng(0).integers(0, 256, (5, 40, 30, 3), np.uint8)]


def pipeline(name: str, *, labels: bool) -> Pipeline:
    """Make a network with weights large enough that differences show."""
    preset = MODELS[name]
    heads: dict[str, HeadSpec] = {}
    if labels:
        assert preset.classification_head is not None
        heads["label"] = replace(preset.classification_head, n_labels=len(LABELS))
    model = replace(preset, heads=heads).build().initialize(0).eval()
    torch.manual_seed(0)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    loaded = LoadedModel(
        preset=replace(preset, heads=heads), model=model, tokenizer=picture_tokenizer(),
        label_names=LABELS if labels else (), missing=(), unexpected=(),
        preprocessing=preset_preprocessing(preset),
    )  # fmt: skip
    columns = TaskColumns(texts=("image",), label="label")
    task = Task(task_kind="pictures", columns=columns, labels=LABELS)
    return Pipeline(loaded, task if labels else None)


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["vit-mini", "deit-mini"])
def test_labels_and_vectors_equal_those_of_the_model(name: str, tmp_path: Path) -> None:
    mine = pipeline(name, labels=True)
    theirs = unmask.load(mine.save(tmp_path / "onnx", format="onnx"))
    check_alike(theirs.predict(PICTURES), mine.predict(PICTURES))
    for pooling in ("first", "mean"):
        np.testing.assert_allclose(
            theirs.embed_pictures(PICTURES, pooling=pooling),
            mine.embed_pictures(PICTURES, pooling=pooling),
            atol=2e-5,
        )
    assert theirs.loaded_model.preprocessing == mine.loaded_model.preprocessing


@pytest.mark.thorough
def test_networks_without_a_head_have_vectors_in_8_bits(tmp_path: Path) -> None:
    mine = pipeline("vit-mini", labels=False)
    theirs = unmask.load(mine.save(tmp_path / "onnx", format="onnx", int8=True))
    ours, rounded = mine.embed_pictures(PICTURES), theirs.embed_pictures(PICTURES)
    assert 0 < abs(rounded - ours).max() < 0.1 * abs(ours).max()


@pytest.mark.thorough
def test_what_a_graph_does_not_read_is_refused(tmp_path: Path) -> None:
    mine = pipeline("vit-mini", labels=False)
    model = unmask.load(mine.save(tmp_path / "onnx", format="onnx")).model
    a = cast(VisionArchitecture, mine.model.architecture)
    pixels = torch.zeros(2, 3, 32, 32)
    hidden = torch.zeros(2, 64, dtype=torch.long)
    hidden[1, 7] = 1
    with pytest.raises(ValueError, match="an ONNX graph reads whole pictures"):
        model.hidden_states(picture_batch(pixels, a, hidden))
    with pytest.raises(ValueError, match="reads pictures, and the batch has none"):
        model.hidden_states(Batch(inputs=hidden))
    with pytest.raises(ValueError, match=r"onnxruntime does not run it: .*pixel_values"):
        model.hidden_states(picture_batch(torch.zeros(1, 3, 64, 64), a))


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("mae-mini", "masked autoencoders are not exported to ONNX; fine-tuned, their encoder is"),
        ("clip-mini", "networks that read pictures and texts are not exported to ONNX yet"),
        ("vit-gpt2-mini", "networks that read pictures and texts are not exported to ONNX yet"),
    ],
)
def test_other_networks_of_pictures_are_refused(name: str, reason: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"{name}: {reason}"):
        pipeline(name, labels=False).save(tmp_path / "onnx", format="onnx")
