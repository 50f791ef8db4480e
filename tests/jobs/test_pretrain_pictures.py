"""Pretraining on pictures: the command's run, its data, resuming, and what is refused."""

import base64
import json
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import unmask
from unmask.checkpoints.huggingface.read import load_folder
from unmask.checkpoints.tensors import read_model_tensors
from unmask.images.store import ImageStore
from unmask.jobs.pretrain.apply_recipe import apply_recipe
from unmask.jobs.pretrain.data.check_labels import check_sequence_labels
from unmask.jobs.pretrain.data.pictures import open_or_make_pictures, picture_of_captions
from unmask.jobs.pretrain.resolve_options import RunOptions
from unmask.objectives.inputs.pictures import CLASS_ID, PATCH_ID, Pictures
from unmask.objectives.published import CAUSAL_LM
from unmask.reports.report_data import Picture, read_samples
from unmask.training.config import Recipe
from unmask.training.data.pictures import split_pictures
from unmask.training.device.distributed import World
from unmask.zoo.catalogue import MODELS, get_preset

SMALL = (
    "architecture.d_model=16", "architecture.n_layers=1", "architecture.n_heads=2",
    "architecture.d_ff=16", "batch_tokens=80", "image_size=[16,16]", "dev_fraction=0.2",
    "dropout=0", "precision=float32",
)  # fmt: skip
OF_PICTURES = {"pictures": {"augmentation": {"flip": 0.5}}}


def pretrain(data: Path, out: Path, *changes: Any, **options: Any) -> None:
    given: dict[str, Any] = {"steps": 4, **options}
    unmask.pretrain("vit-mini", data=data, out=out, quiet=True, changes=(*SMALL, *changes), **given)


@pytest.fixture(scope="module")
def arrays(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pictures") / "noise.npz"
    noise = np.random.default_rng(0).integers(0, 256, (30, 16, 16, 3), np.uint8)
    np.savez(path, images=noise)
    return path


@pytest.fixture(scope="module")
def captioned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("captioned")
    rows = ["image,caption"]
    for i in range(10):
        Image.new("RGB", (20, 12), (i * 20, 0, 0)).save(folder / f"{i}.png")
        rows += [f"{i}.png,a red picture of shade {i}", f"{i}.png,picture {i}"]
    rows.append("9.png,   ")
    (folder / "captions.csv").write_text("\n".join(rows) + "\n")
    return folder / "captions.csv"


def test_a_run_is_a_model_folder_with_its_pictures(arrays: Path, tmp_path: Path) -> None:
    pretrain(arrays, tmp_path / "run")
    assert len(ImageStore.open(tmp_path / "run/data/pictures", verify_contents=True)) == 30
    found = load_folder(tmp_path / "run")
    assert found.tokenizer is None
    record = json.loads((tmp_path / "run/unmask.json").read_text())
    assert record["finished"]
    assert (tmp_path / "run/report.html").is_file()


def test_resuming_gives_the_same_weights(arrays: Path, tmp_path: Path) -> None:
    pretrain(arrays, tmp_path / "whole", OF_PICTURES, steps=6)
    pretrain(arrays, tmp_path / "parts", OF_PICTURES, "checkpoint_every=3", steps=6)
    newest = sorted((tmp_path / "parts/checkpoints").iterdir())[-1]
    for file in newest.rglob("*"):
        if file.is_file():
            file.unlink()
    (tmp_path / "parts/model.safetensors").unlink()
    pretrain(arrays, tmp_path / "parts", OF_PICTURES, "checkpoint_every=3", steps=6, resume=True)
    whole, parts = (read_model_tensors(tmp_path / name) for name in ("whole", "parts"))
    assert all(torch.equal(x, parts[name]) for name, x in whole.items())


def test_workers_change_nothing(arrays: Path, tmp_path: Path) -> None:
    pretrain(arrays, tmp_path / "none", OF_PICTURES)
    pretrain(arrays, tmp_path / "two", OF_PICTURES, workers=2)
    none, two = (read_model_tensors(tmp_path / name) for name in ("none", "two"))
    assert all(torch.equal(x, two[name]) for name, x in none.items())


def test_bad_pictures_are_named_or_skipped_and_counted(
    captioned: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "pictures"
    folder.mkdir()
    for i in range(10):
        Image.new("RGB", (16, 16), (i * 20, 0, 0)).save(folder / f"{i}.png")
    (folder / "bad.png").write_bytes(b"no picture")
    with pytest.raises(ValueError, match=r"bad\.png"):
        pretrain(folder, tmp_path / "run")
    assert not (tmp_path / "run").exists() or not any((tmp_path / "run").iterdir())
    pretrain(folder, tmp_path / "run", {"pictures": {"bad": "skip"}})
    assert len(ImageStore.open(tmp_path / "run/data/pictures")) == 10


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("image_size=[18,16]", r"image_size = \[18, 16\]: a picture of 18 x 16 is not made of"),
        ("row_unit=stream", "a row is one picture"),
        ("sampling_exponent=0.5", "sources of pictures are not sampled"),
        ('pictures.bad="drop"', "pictures.bad"),
    ],
)
def test_what_is_of_texts_is_refused(
    arrays: Path, tmp_path: Path, change: str, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        pretrain(arrays, tmp_path / "run", change)


def test_models_of_texts_have_no_image_size(arrays: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="bert-mini reads texts, not pictures"):
        unmask.pretrain(
            "bert-mini", data=arrays, out=tmp_path / "x", steps=1, changes=["image_size=[16,16]"]
        )


def test_labels_are_a_task(arrays: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="finetune --task classify"):
        unmask.pretrain("vit-base-patch16-224", data=arrays, out=tmp_path / "x", steps=1)


def test_pictures_are_split_and_none_is_on_both_sides() -> None:
    train, dev = split_pictures(100, 0.1, seed=0)
    assert len(dev) == 10
    assert sorted((*train, *dev)) == list(range(100))
    assert not np.array_equal(dev, split_pictures(100, 0.1, seed=1)[1])
    assert len(split_pictures(3, 0.0, 0)[1]) == 0
    with pytest.raises(ValueError, match="leaves none to train on"):
        split_pictures(1, 0.5, 0)


@pytest.mark.parametrize("reads_source", [True, False])
def test_a_caption_is_a_row_with_its_picture(
    captioned: Path, tmp_path: Path, reads_source: bool
) -> None:
    vit, words = get_preset("vit-mini"), get_preset("gpt2-mini")
    preset = replace(vit, tokenizer=words.tokenizer, objective=CAUSAL_LM)
    recipe = Recipe(
        model="gpt2-mini", data=(str(captioned),), vocab_size=300, dev_fraction=0.2,
        batch_tokens=64,
    )  # fmt: skip
    options = RunOptions(output_folder=tmp_path / "run")
    corpus = open_or_make_pictures(recipe, preset, None, options)
    assert corpus.captions is not None
    assert corpus.tokenizer is not None
    assert picture_of_captions(corpus.store).tolist() == [i // 2 for i in range(20)]
    data = corpus.training_data(recipe, preset, CAUSAL_LM, 6, 0, World())
    if reads_source:
        data = replace(data, encoder_ids=corpus.stack.picture_ids)
    seen = []
    for batch in data.dev_batches():
        pictures = batch.feature(Pictures)
        assert pictures is not None
        for ids, pixels in zip(batch.inputs.tolist(), pictures.pixels, strict=True):
            text = corpus.tokenizer.decode([i for i in ids if i not in corpus.special_ids.all_ids])
            number = round(float(pixels[0].mean() + 1) * 255 / 2 / 20)
            seen.append(number)
            assert str(number) in text or len(ids) == 6, "cut captions have lost their number"
        if reads_source:
            assert batch.source is not None
            assert batch.source[0].tolist() == [CLASS_ID, *[PATCH_ID] * 64]
        else:
            assert batch.source is None
    assert len(set(seen)) == 2
    assert len(seen) == 4
    assert data.n_cut > 0
    again = open_or_make_pictures(recipe, preset, None, options)
    assert again.captions is not None
    assert np.array_equal(again.captions.document_spans, corpus.captions.document_spans)


@pytest.mark.parametrize(("batch_tokens", "is_noted"), [(7, True), (64, False)])
def test_batches_of_one_picture_and_text_are_noted(
    captioned: Path, tmp_path: Path, batch_tokens: int, is_noted: bool
) -> None:
    preset = get_preset("clip-mini")
    recipe = Recipe(
        model="clip-mini", data=(str(captioned),), vocab_size=600, dev_fraction=0.2,
        batch_tokens=batch_tokens,
    )  # fmt: skip
    corpus = open_or_make_pictures(recipe, preset, None, RunOptions(output_folder=tmp_path / "run"))
    data = corpus.training_data(recipe, preset, preset.objective, 20, 0, World())
    model = preset.build_without_memory()
    note = check_sequence_labels(data, model, has_initial_weights=False)
    assert note == (
        "contrast: a batch has one pair, hence no negatives; "
        "a greater batch_tokens (or micro_batch_tokens) has more"
        if is_noted
        else None
    )


def test_pictures_without_captions_are_refused(arrays: Path, tmp_path: Path) -> None:
    preset = replace(get_preset("vit-mini"), tokenizer=get_preset("gpt2-mini").tokenizer)
    recipe = Recipe(model="gpt2-mini", data=(str(arrays),))
    with pytest.raises(ValueError, match="none of 30 pictures has a caption"):
        open_or_make_pictures(recipe, preset, None, RunOptions(output_folder=tmp_path / "run"))


def test_the_report_shows_what_is_hidden_and_made(arrays: Path, tmp_path: Path) -> None:
    pretrain(arrays, tmp_path / "run")
    samples = read_samples(tmp_path / "run/samples.json")
    assert len(samples) == 6
    for sample in samples:
        assert isinstance(sample, Picture)
        titles = [title for title, _ in sample.panels]
        assert titles == ["picture", "seen", "before", "after"]
        whole, seen, before, after = (_pixels(png) for _, png in sample.panels)
        hidden = (seen == 128).all(-1)
        assert 0.3 < hidden.mean() < 0.9
        assert (whole[~hidden] == seen[~hidden]).all()
        assert (whole[~hidden] == after[~hidden]).all()
        assert (before[hidden] != after[hidden]).any()
    page = (tmp_path / "run/report.html").read_text()
    assert page.count("data:image/png;base64,") == 24


def _pixels(png: str) -> np.ndarray:
    return np.array(Image.open(BytesIO(base64.b64decode(png))))


@pytest.mark.parametrize("name", [n for n, p in MODELS.items() if p.reads_pictures and "mini" in n])
def test_every_small_preset_takes_another_size(name: str) -> None:
    preset = MODELS[name]
    recipe = Recipe(model=name, image_size=(2 * preset.architecture.picture_stack.patch_size,) * 2)
    changed = apply_recipe(preset, recipe).architecture.picture_stack
    assert changed.image_size == recipe.image_size
