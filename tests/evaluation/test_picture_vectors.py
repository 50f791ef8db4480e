"""Vectors of pictures, retrieval, and classes by their names: CLIP in use."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn import functional as F

from tests.tokenizers.tokenizer_cases import story
from unmask.checkpoints.huggingface.preprocessing import preset_preprocessing
from unmask.checkpoints.huggingface.read import LoadedModel
from unmask.cli import main as cli
from unmask.images.records import ImageColumns
from unmask.inference.open_model import load
from unmask.inference.pipeline import Pipeline
from unmask.tokenizers.learn.tokenizer import picture_tokenizer, train_tokenizer
from unmask.tokenizers.spec import CLIP, TokenizerSpec
from unmask.tokenizers.vocabulary import LowercaseByteBPE
from unmask.zoo.catalogue import MODELS


def _pipeline(name: str, tokenizer: Any = None) -> Pipeline:
    preset = MODELS[name]
    if tokenizer is not None:
        preset = preset.with_vocabulary(tokenizer.special_ids)
    model = preset.build().initialize(0)
    torch.manual_seed(0)
    for parameter in model.backbone.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    loaded = LoadedModel(
        preset=preset, model=model.eval(), tokenizer=tokenizer, label_names=(), missing=(),
        unexpected=(), preprocessing=preset_preprocessing(preset),
    )  # fmt: skip
    return Pipeline(loaded)


@pytest.fixture(scope="module")
def clip() -> Pipeline:
    return _pipeline(
        "clip-mini", train_tokenizer(TokenizerSpec(LowercaseByteBPE(700), CLIP), [story()])
    )


@pytest.fixture(scope="module")
def folder(clip: Pipeline, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return clip.save(tmp_path_factory.mktemp("saved") / "clip")


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Draw labeled pictures, and a table of captions of four others."""
    root = tmp_path_factory.mktemp("pictures")
    for i, name in enumerate(("red", "blue")):
        (root / name).mkdir()
        for j in range(2):
            color = (250 - 40 * j, 0, 0) if i == 0 else (0, 0, 250 - 40 * j)
            Image.new("RGB", (30, 20 + j), color).save(root / name / f"{j}.png")
    (root / "table").mkdir()
    rows = ["image,split,caption"]
    for i in range(4):
        Image.new("RGB", (30, 20), (i * 60, 0, 90)).save(root / "table" / f"{i}.png")
        rows += [f"{i}.png,{'train' if i == 3 else 'test'},the old king {i}", f"{i}.png,x,a fox"]
    (root / "table" / "captions.csv").write_text("\n".join(rows) + "\n")
    return root


@torch.no_grad()
def test_vectors_and_probabilities_equal_transformers(
    clip: Pipeline, folder: Path, pictures: Path
) -> None:
    import transformers as hf

    reference: Any = hf.CLIPModel.from_pretrained(folder).eval()
    processor: Any = hf.CLIPProcessor.from_pretrained(folder)
    texts = ["The old KING said: no!", "a fox", "the " * 100]
    paths = sorted(pictures.glob("*/*.png"))
    read = processor(
        text=texts, images=[Image.open(p) for p in paths], return_tensors="pt", padding=True,
        truncation=True, max_length=clip.model.architecture.max_positions,
    )  # fmt: skip
    theirs = reference(**read)
    opened = load(folder)
    for ours, other in (
        (opened.embed(texts), theirs.text_embeds),
        (opened.embed_pictures(paths), theirs.image_embeds),
    ):
        found = F.normalize(torch.from_numpy(ours), dim=-1)
        torch.testing.assert_close(found, other, rtol=0, atol=2e-6)
    expected = theirs.logits_per_image.softmax(-1)
    for one, row in zip(opened.classify_by_names(paths, texts, ["{}"]), expected, strict=True):
        assert one["probability"] == pytest.approx(float(row.max()), rel=1e-4)
        np.testing.assert_allclose([*one["probabilities"].values()], row, rtol=1e-3, atol=1e-6)


def test_pictures_of_all_kinds_have_the_same_vector(clip: Pipeline, pictures: Path) -> None:
    path = pictures / "red" / "0.png"
    image = Image.open(path)
    vectors = clip.embed_pictures([path, str(path), image, np.asarray(image)])
    np.testing.assert_array_equal(vectors, np.repeat(vectors[:1], 4, 0))
    assert clip.embed_pictures(pictures / "red").shape == (2, 192)
    assert clip.embed_pictures([]).shape == (0, 192)
    many = clip.embed_pictures([*[pictures / "blue"] * 40, path])
    np.testing.assert_allclose(many[-1], vectors[0], rtol=0, atol=1e-5 * np.abs(vectors).max())


def test_retrieval_is_that_of_the_cosines(clip: Pipeline, pictures: Path) -> None:
    table = pictures / "table" / "captions.csv"
    found = clip.evaluate_retrieval(table, ImageColumns(where={"split": "test"}))
    assert found.to_dict()["pictures"] == found.to_dict()["captions"] == 3
    texts = torch.from_numpy(np.asarray(clip.embed([f"the old king {i}" for i in range(3)])))
    images = torch.from_numpy(clip.embed_pictures([table.parent / f"{i}.png" for i in range(3)]))
    scores = F.normalize(images, dim=-1) @ F.normalize(texts, dim=-1).T
    right = (scores.argmax(0) == torch.arange(3)).float().mean()
    assert found.scores.caption_to_image.recall_at[1].value == pytest.approx(float(right))


def test_names_of_labels_are_classes(clip: Pipeline, pictures: Path) -> None:
    records = [pictures / "red", pictures / "blue"]
    found = [one["label"] for one in clip.classify_by_names(records, ["blue", "red"])]
    right = sum(a == b for a, b in zip(found, ["red", "red", "blue", "blue"], strict=True)) / 4
    table = pictures / "labels.csv"
    names = [(name, j) for name in ("red", "blue") for j in range(2)]
    lines = [f"{name}/{j}.png,{name}" for name, j in names]
    table.write_text("\n".join(["image,label", *lines]))
    assert clip.evaluate_by_names(table) == {"accuracy": right}


def test_templates_are_averaged(clip: Pipeline, pictures: Path) -> None:
    paths = [pictures / "red"]
    several = clip.classify_by_names(paths, ["red", "blue"], ["a {}.", "the {} one"])
    one = clip.classify_by_names(paths, ["red", "blue"], ["a {}."])
    assert several[0]["probabilities"] != one[0]["probabilities"]
    again = clip.classify_by_names(paths, ["red", "blue"], ["a {}.", "a {}."])
    assert again[0]["probability"] == pytest.approx(one[0]["probability"], abs=1e-6)


@pytest.mark.parametrize(
    ("names", "templates", "message"),
    [
        (["red"], ["{}"], "two or more that differ"),
        (["red", "red"], ["{}"], "two or more that differ"),
        (["red", "blue"], ["a photo"], "for the class name once, got 'a photo'"),
        (["red", "blue"], [], "there must be a template"),
    ],
)
def test_wrong_classes_are_refused(
    clip: Pipeline, pictures: Path, names: list[str], templates: list[str], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        clip.classify_by_names(pictures / "red", names, templates)


@pytest.mark.parametrize("name", ["vit-mini", "mae-mini"])
def test_networks_of_pictures_alone_have_vectors(name: str, pictures: Path) -> None:
    vit = _pipeline(name, picture_tokenizer())
    path = pictures / "red" / "0.png"
    vector = vit.embed_pictures(path)
    assert vector.shape == (1, vit.model.architecture.d_model)
    assert not np.allclose(vector, vit.embed_pictures(path, pooling="mean"))
    with pytest.raises(ValueError, match="no space in which pictures and texts are compared"):
        vit.embed_pictures(path, pooling="projection")
    with pytest.raises(ValueError, match="reads pictures: use embed_pictures"):
        vit.embed("a")
    with pytest.raises(ValueError, match=f"{name}: it reads pictures, neither reads nor writes"):
        _ = _pipeline(name).tokenizer
    with pytest.raises(ValueError, match="no space in which pictures and texts are compared"):
        vit.classify_by_names(path, ["a", "b"])


def _run(capsys: pytest.CaptureFixture[str], *words: str | Path) -> tuple[int, str, str]:
    status = cli.run([*map(str, words)])
    out, err = capsys.readouterr()
    return status, out, err


def test_commands(folder: Path, pictures: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = pictures / "red" / "0.png"
    _, out, _ = _run(capsys, "embed", folder, path, "a fox")
    kinds = [next(iter(json.loads(line))) for line in out.splitlines()]
    assert kinds == ["image", "text"]
    _, out, _ = _run(capsys, "predict", folder, path, "--labels", "red,blue", "--template", "{}")
    assert {*json.loads(out)} == {"image", "label", "probability", "probabilities"}
    table = pictures / "table" / "captions.csv"
    _, out, _ = _run(capsys, "evaluate", folder, "--data", table, "--where", "split=test")
    assert out.splitlines()[0] == "3 pictures, 3 captions"
    assert "caption to picture: R@1" in out
    code, _, err = _run(capsys, "predict", folder, path)
    assert (code, "name two or more classes with --labels" in err) == (2, True)
    code, _, err = _run(
        capsys, "finetune", folder, "--task", "classify", "--train", pictures, "--out", "x"
    )
    assert (code, "is not fine-tuned" in err) == (2, True)
