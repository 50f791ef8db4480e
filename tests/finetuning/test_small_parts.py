"""Runs that tune a small part: kilobytes in a folder, which open with the model below them."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import toy_models as toy

import unmask
from unmask.finetuning.methods import METHODS
from unmask.finetuning.tune import finetune

SMALL = [w for w in METHODS if w not in ("full", "frozen", "top", "gradual")]
PEFT = ("lora", "ia3", "prefix", "prompt")
TEXTS = ["the good cat", "a bad dog runs", "stone"]


def shares(answers) -> np.ndarray:
    return np.array([list(a["probabilities"].values()) for a in answers])


def tuned(word: str, folder: Path, family: str = "bert", **more):
    base = toy.pretrained(family, folder / "base")
    train = toy.write(folder / "train.tsv", toy.texts(32, 1))
    options = {"epochs": 2.0, "batch": 16, "rate": 3e-3, "terminal": None} | more
    return finetune(
        str(base), task="classify", train=train, dev=train, tune=word, out=folder / "run", **options
    )


@pytest.mark.parametrize("word", SMALL)
def test_a_small_part_is_saved_alone_and_opens_with_its_model(word: str, tmp_path: Path) -> None:
    run = tuned(word, tmp_path)
    assert not (tmp_path / "run" / "model.safetensors").exists()
    assert (tmp_path / "run" / "adapter_model.safetensors").stat().st_size < 100_000
    said = shares(run.predict(TEXTS))
    again = unmask.load(tmp_path / "run")
    assert again.labels == ("no", "yes")
    assert shares(again.predict(TEXTS)) == pytest.approx(said, abs=1e-6)
    finished = tuned(word, tmp_path, resume=True)
    assert shares(finished.predict(TEXTS)) == pytest.approx(said, abs=1e-6)


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")
@pytest.mark.parametrize("word", PEFT)
@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_a_run_opens_in_peft(word: str, family: str, tmp_path: Path) -> None:
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


@pytest.mark.parametrize("word", ["lora", "ia3", "bitfit"])
def test_a_part_that_fits_into_the_weights_is_exported_in_them(word: str, tmp_path: Path) -> None:
    from transformers import pipeline

    run = tuned(word, tmp_path)
    run.save(tmp_path / "whole")
    theirs = pipeline("text-classification", model=str(tmp_path / "whole"), top_k=None)
    for text, said in zip(TEXTS, run.predict(TEXTS), strict=True):
        found = {one["label"]: one["score"] for one in theirs([text])[0]}
        assert found == pytest.approx(said["probabilities"], abs=1e-4)
    assert shares(unmask.load(tmp_path / "whole").predict(TEXTS)) == pytest.approx(
        shares(run.predict(TEXTS)), abs=1e-5
    )


def test_a_part_that_does_not_fit_says_so(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cannot be put into the model's weights"):
        tuned("pfeiffer", tmp_path).save(tmp_path / "whole")
    assert not (tmp_path / "whole").exists()


def test_a_model_is_tuned_on_from_a_small_part(tmp_path: Path) -> None:
    first = tuned("lora", tmp_path)
    train = tmp_path / "train.tsv"
    second = finetune(
        str(tmp_path / "run"), task="classify", train=train, dev=train, epochs=1.0, rate=1e-30,
        terminal=None,
    )  # fmt: skip
    assert shares(second.predict(TEXTS)) == pytest.approx(shares(first.predict(TEXTS)), abs=1e-5)


def test_a_part_of_another_model_is_refused(tmp_path: Path) -> None:
    tuned("lora", tmp_path)
    other = toy.pretrained("bert", tmp_path / "other", seed=8)
    config = tmp_path / "run" / "adapter_config.json"
    said = json.loads(config.read_text()) | {"base_model_name_or_path": str(other)}
    config.write_text(json.dumps(said))
    with pytest.raises(ValueError, match="trained on another backbone"):
        unmask.load(tmp_path / "run")


def test_a_model_that_is_gone_is_named(tmp_path: Path) -> None:
    tuned("lora", tmp_path)
    (tmp_path / "base").rename(tmp_path / "moved")
    with pytest.raises(FileNotFoundError, match=r"its model is not at .*base; name its folder"):
        unmask.load(tmp_path / "run")


def test_a_small_part_needs_a_model_that_was_trained(tmp_path: Path) -> None:
    train = toy.write(tmp_path / "train.tsv", toy.texts(32, 1))
    with pytest.raises(ValueError, match="lora adds to a model that was trained, and bert-tiny"):
        finetune("bert-tiny", task="classify", train=train, tune="lora", terminal=None)
