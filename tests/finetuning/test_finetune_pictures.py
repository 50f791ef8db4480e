"""Labels of pictures: the whole way from files to a model that transformers opens."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import unmask
from unmask.checkpoints.tensors import read_model_tensors
from unmask.finetuning.results.score_groups import score_groups
from unmask.images.reading import picture_records
from unmask.jobs.finetune import resume_finetuning
from unmask.tasks.kinds.pictures import PictureTaskOptions
from unmask.zoo.catalogue import MODELS, get_preset

EDGE = 16
COLORS = {"blue": (20, 30, 200), "green": (30, 190, 40), "red": (210, 20, 30)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Noisy pictures of three colors, each in the folder of its name."""
    root, rng = tmp_path_factory.mktemp("colors"), np.random.default_rng(0)
    for split, n in (("train", 12), ("dev", 6)):
        for name, color in COLORS.items():
            (root / split / name).mkdir(parents=True)
            for i in range(n):
                noise = rng.normal(0, 20, (20, 24, 3)) + np.array(color)
                pixels = np.clip(noise, 0, 255).astype(np.uint8)
                Image.fromarray(pixels).save(root / split / name / f"{i}.png")
    return root


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small pretrained network of patches."""
    root = tmp_path_factory.mktemp("base")
    noise = np.random.default_rng(1).integers(0, 256, (20, EDGE, EDGE, 3), np.uint8)
    np.savez(root / "noise.npz", images=noise)
    sizes = ("d_model=16", "n_layers=2", "n_heads=2", "d_ff=32")
    changes = [f"architecture.{size}" for size in sizes]
    unmask.pretrain(
        "vit-mini", data=root / "noise.npz", out=root / "run", steps=2, quiet=True,
        changes=[*changes, f"image_size=[{EDGE},{EDGE}]", "batch_tokens=68"],
    )  # fmt: skip
    return root / "run"


def tune(base: Path | str, folder: Path, out: Path | None = None, **options: Any) -> Any:
    given: dict[str, Any] = {
        "epochs": 8.0, "learning_rate": 3e-3, "batch_size": 6, "terminal": None, **options,
    }  # fmt: skip
    return unmask.finetune(
        base, task="classify", train=folder / "train", dev=folder / "dev", out=out, **given
    )


def test_it_learns_and_transformers_opens_it(base: Path, folder: Path, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    tuned = tune(base, folder, tmp_path / "run")
    assert tuned.best_run.dev["accuracy"] > 0.9
    assert tuned.task.labels == tuple(sorted(COLORS))
    card = (tmp_path / "run" / "README.md").read_text()
    assert "pipeline_tag: image-classification" in card
    assert "fine-tuned to label pictures" in card
    assert 'predict(["picture.png"])' in card
    theirs = transformers.ViTForImageClassification.from_pretrained(tmp_path / "run")
    process = transformers.ViTImageProcessorPil.from_pretrained(tmp_path / "run")
    files = sorted((folder / "dev").rglob("*.png"))
    with torch.no_grad():
        pixels = process([Image.open(f) for f in files], return_tensors="pt")
        logits = theirs(**pixels).logits
    ours = unmask.load(tmp_path / "run").predict(files)
    for record, row in zip(ours, logits.softmax(-1), strict=True):
        assert theirs.config.id2label[int(row.argmax())] == record["label"]
        assert abs(float(row.max()) - record["probability"]) < 1e-5
    scores = unmask.load(tmp_path / "run").score(folder / "dev")
    assert scores["accuracy"] == tuned.best_run.dev["accuracy"]
    loaded, files = unmask.load(tmp_path / "run").loaded_model, {"a": folder / "dev"}
    groups = score_groups(loaded, files | {"b": folder / "train"}, task=tuned.task)
    assert [(one.name, one.n_rows) for one in groups] == [("a", 18), ("b", 36)]
    assert groups[0].metrics == pytest.approx(scores, rel=1e-6)
    assert groups[0].most_frequent == pytest.approx(1 / 3)
    with pytest.raises(ValueError, match="must be left out: run reads pictures"):
        score_groups(loaded, files, by="split", task=tuned.task)


def test_predictions_are_the_same_for_files_arrays_and_folders(base: Path, folder: Path) -> None:
    tuned = tune(base, folder, epochs=1.0)
    files = sorted((folder / "dev/red").iterdir())
    by_file = tuned.predict(files)
    opened = [Image.open(f) for f in files]
    assert tuned.predict(opened) == by_file
    assert tuned.predict([np.asarray(one) for one in opened]) == by_file
    assert tuned.predict([folder / "dev/red"]) == by_file
    assert tuned.predict([]) == []
    with pytest.raises(ValueError, match="picture 1 must be a path, a picture, or uint8 pixels"):
        tuned.predict([np.zeros((3, 3))])
    assert [record.name for record in picture_records([folder / "dev/red"])] == [
        f.name for f in files
    ]


@pytest.mark.thorough
def test_an_interrupted_run_goes_on_to_the_same_weights(
    base: Path, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"epochs": 4.0, "task_options": {"flip": 0.5, "crop": "pad"}}
    tune(base, folder, tmp_path / "whole", **options)
    from unmask.finetuning import train_run

    save, times = train_run._save_checkpoint, []  # pyright: ignore[reportPrivateUsage]

    def save_and_stop(run: Any, where: Path, *more: Any, **done: Any) -> None:
        save(run, where, *more, **done)
        times.append(1)
        if len(times) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(train_run, "_save_checkpoint", save_and_stop)
    with pytest.raises(KeyboardInterrupt):
        tune(base, folder, tmp_path / "parts", **options)
    monkeypatch.setattr(train_run, "_save_checkpoint", save)
    tune(base, folder, tmp_path / "parts", **options, resume=True)
    whole, parts = (read_model_tensors(tmp_path / name) for name in ("whole", "parts"))
    assert all(torch.equal(x, parts[name]) for name, x in whole.items())


def test_positions_of_another_size_are_interpolated(base: Path, folder: Path) -> None:
    tuned = tune(base, folder, epochs=1.0, task_options={"image_size": 24})
    assert tuned.loaded_model.preset.architecture.image_size == (24, 24)
    assert tuned.loaded_model.preprocessing.size == (24, 24)
    assert tuned.loaded_model.model.backbone.position.table.shape[1] == 37
    with pytest.raises(ValueError, match=r"options.image_size = 18: a picture of 18 x 18 is not"):
        tune(base, folder, epochs=1.0, task_options={"image_size": 18})


def test_augmentation_is_drawn_by_seed_and_reading(base: Path, folder: Path) -> None:
    plain = PictureTaskOptions()
    assert plain.augmentation is None
    assert replace(plain, flip=0.5).augmentation is not None
    one, same, other = (
        tune(base, folder, epochs=1.0, seed=seed, task_options={"flip": 0.5, "crop": "resized"})
        for seed in (0, 0, 1)
    )

    def weights(tuned: Any) -> torch.Tensor:
        return tuned.loaded_model.model.heads["label"].out.weight

    assert torch.equal(weights(one), weights(same))
    assert not torch.equal(weights(one), weights(other))


@pytest.mark.parametrize(
    "name", [n for n, p in MODELS.items() if not p.reads_texts and "mini" in n]
)
def test_small_presets_start_from_random_weights(name: str, folder: Path) -> None:
    if get_preset(name).classification_head is None:
        pytest.skip("has no classification head")
    tuned = tune(name, folder, epochs=1.0, rows=6, task_options={"image_size": 32})
    assert 0 <= tuned.best_run.dev["accuracy"] <= 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"vocabulary": "words"}, "vocabulary is of texts, and .* reads pictures; leave it out"),
        ({"task_options": {"flip": 2.0}}, "flip must be 0 to 1, got 2"),
        ({"task_options": {"pooling": "max"}}, "pooling .*max"),
        (
            {"task_options": {"distillation_token": True}},
            "options.distillation_token: .* has none; DeiT's networks have, as deit-mini",
        ),
        ({"label": "class"}, "label|class"),
    ],
)
def test_wrong_options_are_one_line(
    base: Path, folder: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message) as error:
        tune(base, folder, **options)
    assert "\n" not in str(error.value)


def test_other_tasks_and_models_of_texts_are_refused(base: Path, folder: Path) -> None:
    with pytest.raises(ValueError, match="reads pictures: task must be classify, got 'tag'"):
        unmask.finetune(base, task="tag", train=folder / "train", terminal=None)
    with pytest.raises(ValueError, match="task = pictures: bert-mini reads texts, not pictures"):
        unmask.finetune("bert-mini", task="pictures", train=folder / "train", terminal=None)


def test_pictures_that_cannot_be_read_are_named_or_skipped(base: Path, tmp_path: Path) -> None:
    for name, color in COLORS.items():
        (tmp_path / "train" / name).mkdir(parents=True)
        for i in range(4):
            Image.new("RGB", (EDGE, EDGE), color).save(tmp_path / "train" / name / f"{i}.png")
    (tmp_path / "train/red/bad.png").write_bytes(b"nothing")
    run = {"epochs": 1.0, "terminal": None, "task": "classify", "train": tmp_path / "train"}
    with pytest.raises(ValueError, match=r"bad\.png"):
        unmask.finetune(base, **run)
    tuned = unmask.finetune(base, **run, task_options={"bad": "skip"}, out=tmp_path / "run")
    assert any("bad.png" in note for note in tuned.notes)
    record = json.loads((tmp_path / "run/unmask.json").read_text())
    assert record["data"]["train"]["rows"] + record["data"]["dev"]["rows"] == 12


@pytest.mark.parametrize("tune_by", ["lora", "bitfit", "frozen"])
def test_what_trains_less_is_read_again(
    base: Path, folder: Path, tmp_path: Path, tune_by: str
) -> None:
    tuned = tune(base, folder, tmp_path / "run", tune=tune_by, epochs=1.0)
    files = sorted((folder / "dev/red").iterdir())
    again = unmask.load(tmp_path / "run").predict(files)
    for record, expected in zip(again, tuned.predict(files), strict=True):
        assert abs(record["probability"] - expected["probability"]) < 1e-6


def test_an_adapter_reads_pictures_of_its_networks_size(base: Path, folder: Path) -> None:
    with pytest.raises(ValueError, match="image_size = 24: an adapter belongs to the network"):
        tune(base, folder, tune="lora", task_options={"image_size": 24})


def test_a_recorded_run_goes_on_without_its_options(base: Path, tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (20, EDGE, EDGE, 3), np.uint8)
    np.savez(tmp_path / "noise.npz", images=noise, labels=np.arange(20) % 2)
    tuned = unmask.finetune(
        base, task="classify", train=tmp_path / "noise.npz", out=tmp_path / "run", epochs=1.0,
        terminal=None,
    )  # fmt: skip
    again = resume_finetuning(tmp_path / "run", terminal=None)
    assert again.best_run == tuned.best_run


def test_an_adapter_is_tuned_further(base: Path, folder: Path, tmp_path: Path) -> None:
    tune(base, folder, tmp_path / "adapter", tune="lora", epochs=1.0)
    tuned = tune(str(tmp_path / "adapter"), folder, epochs=1.0)
    assert tuned.task.labels == tuple(sorted(COLORS))
