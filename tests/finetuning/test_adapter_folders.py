"""Runs that train few parameters: folders of kilobytes, which open with their base model."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import toy_models as toy

import unmask
from unmask.adapters.lora import LoRA
from unmask.finetuning.methods.method import METHODS
from unmask.jobs.finetune import finetune

SMALL = [w for w in METHODS if w not in ("full", "frozen", "top", "gradual", "source_encoder")]
PEFT = ("lora", "ia3", "prefix", "prompt")
TEXTS = ["the good cat", "a bad dog runs", "stone"]


def shares(answers) -> np.ndarray:
    return np.array([list(a["probabilities"].values()) for a in answers])


def tuned(word: str, folder: Path, family: str = "bert", **more):
    base = toy.pretrained(family, folder / "base")
    train = toy.write(folder / "train.tsv", toy.texts(32, 1))
    options = {"epochs": 2.0, "batch_size": 16, "learning_rate": 3e-3, "terminal": None} | more
    return finetune(
        str(base), task="classify", train=train, dev=train, tune=word, out=folder / "run", **options
    )


@pytest.mark.sample(1)
@pytest.mark.quick("lora", "prefix", "mix")
@pytest.mark.parametrize("word", SMALL)
def test_adapter_is_saved_alone_and_opens_with_its_base(word: str, tmp_path: Path) -> None:
    run = tuned(word, tmp_path)
    assert not (tmp_path / "run" / "model.safetensors").exists()
    assert (tmp_path / "run" / "adapter_model.safetensors").stat().st_size < 100_000
    predictions = shares(run.predict(TEXTS))
    again = unmask.load(tmp_path / "run")
    assert again.label_names == ("no", "yes")
    assert shares(again.predict(TEXTS)) == pytest.approx(predictions, abs=1e-6)
    finished = tuned(word, tmp_path, resume=True)
    assert shares(finished.predict(TEXTS)) == pytest.approx(predictions, abs=1e-6)


@pytest.mark.thorough
def test_adapter_of_an_open_model_names_its_base_folder(tmp_path: Path) -> None:
    base = toy.pretrained("bert", tmp_path / "base")
    train = toy.write(tmp_path / "train.tsv", toy.texts(32, 1))
    options: dict[str, Any] = {
        "task": "classify", "train": train, "dev": train, "tune": LoRA(rank=2), "epochs": 1.0,
        "learning_rate": 3e-3, "terminal": None,
    }  # fmt: skip
    by_name = finetune(str(base), out=tmp_path / "by_name", **options)
    open_model = unmask.load(base)
    run = finetune(open_model, out=tmp_path / "open", **options)
    config = json.loads((tmp_path / "open" / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == str(base)
    assert (shares(run.predict(TEXTS)) == shares(by_name.predict(TEXTS))).all()
    assert run.predict(TEXTS[0]) == run.predict(TEXTS[:1])
    again = unmask.load(tmp_path / "open")
    assert shares(again.predict(TEXTS)) == pytest.approx(shares(run.predict(TEXTS)), abs=1e-6)
    with pytest.raises(ValueError, match="open is an adapter itself: merge it into a model first"):
        finetune(again, out=tmp_path / "on_top", **options)
    assert not (tmp_path / "on_top").exists()
    with torch.no_grad():
        next(open_model.model.parameters()).add_(1.0)
    with pytest.raises(ValueError, match=r"changed in memory and differs from .*base: save it"):
        finetune(open_model, out=tmp_path / "changed", **options)
    assert not (tmp_path / "changed").exists()
    assert finetune(open_model, **options).folder is None


@pytest.mark.sample(1)
@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")
@pytest.mark.parametrize("word", PEFT)
@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_run_opens_in_peft(word: str, family: str, tmp_path: Path) -> None:
    from peft import PeftModel
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    run = tuned(word, tmp_path, family)
    base = AutoModelForSequenceClassification.from_pretrained(tmp_path / "base")
    theirs = PeftModel.from_pretrained(base, tmp_path / "run").eval()
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "base")
    for text in TEXTS:  # one by one: PEFT's GPT-2 does not see padding behind a prompt
        with torch.no_grad():
            logits = theirs(**tokenizer(text, return_tensors="pt")).logits
        expected = logits.softmax(-1).numpy()
        assert shares(run.predict([text])) == pytest.approx(expected, abs=1e-4)


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")
@pytest.mark.parametrize("base", ["a folder", "unmask-mini-en"])
def test_model_card_of_adapter_shows_peft_code(base: str, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    folder = str(toy.pretrained("bert", tmp_path / "base")) if base == "a folder" else base
    train = toy.write(tmp_path / "train.tsv", toy.texts(16, 1))
    run = finetune(
        folder, task="classify", train=train, dev=train, tune="lora", out=tmp_path / "run",
        epochs=1.0, learning_rate=3e-2, terminal=None, task_options={"pooling": "first"},
    )  # fmt: skip
    preset = (tmp_path / "run" / "README.md").read_text(encoding="utf-8")
    assert ("`unmask convert unmask-mini-en BASE`" in preset) == (folder == base)
    unmask.load(folder).save(tmp_path / "BASE")
    code = preset.split("```python\n")[-1].split("```")[0]
    known = {"this folder": str(tmp_path / "run"), "BASE": str(tmp_path / "BASE")}
    for name, position in known.items():
        code = code.replace(f'"{name}"', repr(position))
    there: dict[str, Any] = {}
    exec(code, there)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "BASE")
    with torch.no_grad():
        logits = there["model"].eval()(**tokenizer(TEXTS[1], return_tensors="pt")).logits
    assert logits.softmax(-1).numpy() == pytest.approx(shares(run.predict([TEXTS[1]])), abs=1e-4)


@pytest.mark.sample(1)
@pytest.mark.parametrize("word", ["lora", "ia3", "bitfit"])
def test_mergeable_adapter_is_exported_in_the_weights(word: str, tmp_path: Path) -> None:
    from transformers import pipeline

    run = tuned(word, tmp_path)
    run.save(tmp_path / "whole")
    theirs = pipeline("text-classification", model=str(tmp_path / "whole"), top_k=None)
    for text, predictions in zip(TEXTS, run.predict(TEXTS), strict=True):
        found = {one["label"]: one["score"] for one in theirs([text])[0]}
        assert found == pytest.approx(predictions["probabilities"], abs=1e-4)
    assert shares(unmask.load(tmp_path / "whole").predict(TEXTS)) == pytest.approx(
        shares(run.predict(TEXTS)), abs=1e-5
    )


@pytest.mark.thorough
def test_unmergeable_adapter_is_refused_for_export(tmp_path: Path) -> None:
    word = "pfeiffer"
    message = rf"^{word} cannot be merged .* LoRA, IA3 and BitFit can.* folder can be copied"
    with pytest.raises(ValueError, match=message):
        tuned(word, tmp_path).save(tmp_path / "whole")
    assert not (tmp_path / "whole").exists()


@pytest.mark.thorough
def test_tuning_continues_from_an_adapter(tmp_path: Path) -> None:
    first = tuned("lora", tmp_path)
    train = tmp_path / "train.tsv"
    second = finetune(
        str(tmp_path / "run"),
        task="classify",
        train=train,
        dev=train,
        epochs=1.0,
        learning_rate=1e-30,
        terminal=None,
    )
    assert shares(second.predict(TEXTS)) == pytest.approx(shares(first.predict(TEXTS)), abs=1e-5)


@pytest.mark.sample(1)
@pytest.mark.parametrize("word", ["lora", "bitfit"])
def test_adapter_may_have_other_labels_than_its_base(word: str, tmp_path: Path) -> None:
    tuned("full", tmp_path)  # two labels
    rows = [(text, str(i % 3)) for i, (text, _) in enumerate(toy.texts(24, 2))]
    train = toy.write(tmp_path / "three.tsv", rows)
    run = finetune(
        str(tmp_path / "run"), task="classify", train=train, dev=train, tune=word,
        out=tmp_path / "three", epochs=1.0, batch_size=8, learning_rate=3e-3, terminal=None,
    )  # fmt: skip
    again = unmask.load(tmp_path / "three")
    assert again.label_names == ("0", "1", "2")
    assert shares(again.predict(TEXTS)) == pytest.approx(shares(run.predict(TEXTS)), abs=1e-6)


def test_adapter_of_another_base_is_refused(tmp_path: Path) -> None:
    tuned("lora", tmp_path)
    other = toy.pretrained("bert", tmp_path / "other", seed=8)
    config = tmp_path / "run" / "adapter_config.json"
    record = json.loads(config.read_text()) | {"base_model_name_or_path": str(other)}
    config.write_text(json.dumps(record))
    with pytest.raises(ValueError, match=r"adapter_config\.json: truncated or damaged.*on purpose"):
        unmask.load(tmp_path / "run")
    facts = tmp_path / "run" / "unmask.json"
    kept = json.loads(facts.read_text())
    del kept["files"]["adapter_config.json"]
    facts.write_text(json.dumps(kept))
    with pytest.raises(ValueError, match="trained on another backbone"):
        unmask.load(tmp_path / "run")


def test_missing_base_model_is_named(tmp_path: Path) -> None:
    tuned("lora", tmp_path)
    (tmp_path / "base").rename(tmp_path / "moved")
    with pytest.raises(FileNotFoundError, match=r"its base model is not at .*base: move it there"):
        unmask.load(tmp_path / "run")


def test_adapter_needs_pretrained_weights(tmp_path: Path) -> None:
    train = toy.write(tmp_path / "train.tsv", toy.texts(32, 1))
    with pytest.raises(ValueError, match="lora needs pretrained weights, and bert-tiny"):
        finetune("bert-tiny", task="classify", train=train, tune="lora", terminal=None)


@pytest.mark.sample(1)
@pytest.mark.parametrize("word", ["prefix", "prompt"])
def test_texts_are_truncated_to_positions_left_by_virtual_tokens(word: str, tmp_path: Path) -> None:
    base = toy.pretrained("bert", tmp_path / "base")
    most = json.loads((base / "config.json").read_text())["max_position_embeddings"]
    rows = [(f"good {'cat ' * most}", "yes"), ("bad dog", "no")] * 4
    train = toy.write(tmp_path / "train.tsv", rows)
    output = {"task": "classify", "train": train, "dev": train, "epochs": 1.0, "terminal": None}
    run = finetune(str(base), tune=f"{word}:n_virtual_tokens=7", out=tmp_path / "run", **output)
    assert run.task.max_length == min(512, most - 7)
    assert "have more than" in " ".join(run.notes)
    assert len(unmask.load(tmp_path / "run").predict([rows[0][0]])) == 1
    with pytest.raises(ValueError, match=f"at most {most - 7}, the positions of .* less 7 of"):
        finetune(str(base), tune=f"{word}:n_virtual_tokens=7", max_length=most, **output)
