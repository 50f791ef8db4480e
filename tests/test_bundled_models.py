"""Bundled models: small, complete, opened by name wherever a model is accepted."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from toy_text import corpus

from unmask.batch import Batch, Visibility
from unmask.bundled.models import BUNDLED_MODELS
from unmask.checkpoints.huggingface.read import load_folder, resolve_model_folder
from unmask.cli import main as cli
from unmask.finetuning.initial_model.load import load_initial_model
from unmask.inference.open_model import load
from unmask.inference.pipeline import Pipeline
from unmask.jobs.catalogue.describe import describe
from unmask.jobs.pretrain.pretrain import pretrain
from unmask.tasks.task import Task, TaskColumns

NAME = "unmask-mini-en"
TASK = Task(
    task_kind="classify",
    columns=TaskColumns(texts=("text",), label="label"),
    labels=("no", "yes"),
    task_name="classify",
)
MASKED = (
    "objective={kind='Objective',select={kind='TokenMasking',rate=0.3},"
    "corrupt={kind='MaskInPlace',mask_probability=1.0,random_token_probability=0.0}}"
)
TEXTS = ["The old king saw the gate.", "“It’s late,” she said — and left.", "In 1984, 3–2."]
BLANKS = {
    "The film was directed [MASK] a young woman.": "by",
    "She took [MASK] hat and went away.": "her",
    "The team scored two [MASK] in the second half.": "goals",
    "He looked at her with his blue [MASK].": "eyes",
}


@pytest.fixture(scope="module")
def model() -> Pipeline:
    return load(NAME)


@pytest.mark.parametrize("name", BUNDLED_MODELS)
def test_bundled_model_is_complete_and_small(name: str) -> None:
    folder = BUNDLED_MODELS[name]
    assert (folder / "model.safetensors").stat().st_size <= 8_000_000
    assert sum(file.stat().st_size for file in folder.iterdir()) < 8_500_000
    loaded = load_folder(folder)
    assert loaded.tokenizer is not None
    assert loaded.tokenizer.vocab_size == loaded.model.vocab_size
    assert loaded.missing == loaded.unexpected == ()
    assert all(p.isfinite().all() for p in loaded.model.parameters())
    preset = (folder / "README.md").read_text(encoding="utf-8")
    for output in ("license", "CC BY-SA", "Wikipedia", "limits", "bigram"):
        assert output.lower() in preset.lower(), output
    for line in (folder / "log.jsonl").read_text(encoding="utf-8").splitlines():
        json.loads(line)


def test_it_fills_easy_blanks(model: Pipeline) -> None:
    for text, word in BLANKS.items():
        assert model.fill(text).blanks[0][0].text == word, text
    filled = model.fill("She opened the door and walked into the [MASK].").blanks[0]
    assert "room" in [candidate.text for candidate in filled]


def test_it_knows_typographic_and_keyboard_characters(model: Pipeline) -> None:
    unknown = model.tokenizer.special_ids.unknown
    for text in [*TEXTS, '"It\'s late," she said -- and left...']:
        assert unknown not in model.tokenizer.encode(text).ids, text


def test_hidden_states_and_tokens_equal_transformers(model: Pipeline) -> None:
    transformers = pytest.importorskip("transformers")
    folder = BUNDLED_MODELS[NAME]
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    reference = transformers.AutoModelForMaskedLM.from_pretrained(folder, dtype=torch.float32)
    for text in [*TEXTS, corpus(1)[:600]]:
        ids = theirs(text)["input_ids"]
        special = model.tokenizer.special_ids
        own = model.tokenizer.encode(text).ids.tolist()
        assert [*special.prefix, *own, *special.suffix] == ids
        with torch.no_grad():
            output = reference.eval()(torch.tensor([ids]), output_hidden_states=True)
            read = Batch(inputs=torch.tensor([ids]), visibility=Visibility())
            ours = model.model.hidden_states(read)
        torch.testing.assert_close(ours, output.hidden_states[-1], rtol=1e-4, atol=1e-4)


def test_folder_of_the_same_name_takes_precedence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert resolve_model_folder(NAME) == BUNDLED_MODELS[NAME]
    monkeypatch.chdir(tmp_path)
    (tmp_path / NAME).mkdir()
    assert resolve_model_folder(NAME) == Path(NAME)


def test_fine_tuning_starts_from_its_backbone(model: Pipeline) -> None:
    initial = load_initial_model(NAME, TASK, [])
    assert initial.is_pretrained
    ours = model.model.own_weights()
    for name, tensor in initial.build_model(0).own_weights().items():
        if name.startswith("backbone."):
            assert torch.equal(tensor, ours[name]), name


@pytest.mark.thorough
def test_pretraining_continues_from_it(tmp_path: Path, model: Pipeline) -> None:
    (tmp_path / "text.txt").write_text(corpus(), encoding="utf-8")
    after: Any = pretrain(
        "bert-mini",
        data=tmp_path / "text.txt",
        init_from=NAME,
        out=tmp_path / "run",
        steps=1,
        sequence_length=32,
        changes=["batch_tokens=256", "learning_rate=1e-9", MASKED],
        quiet=True,
        threads=1,
    )
    assert after.tokenizer.vocab_size == model.tokenizer.vocab_size
    for name, tensor in after.model.own_weights().items():
        torch.testing.assert_close(tensor, model.model.own_weights()[name], rtol=1e-4, atol=1e-4)
    with pytest.raises(ValueError, match=f"{NAME}: is no preset; to train from its weights"):
        pretrain(NAME, data=tmp_path / "text.txt", out=tmp_path / "other", quiet=True)


@pytest.mark.thorough
def test_it_is_listed_and_described(capsys: pytest.CaptureFixture[str], model: Pipeline) -> None:
    n = model.model.parameter_count()
    assert describe(NAME)["parameters"] == n
    assert str(BUNDLED_MODELS[NAME]) in describe(NAME)["note"]
    assert cli.run(["models", "--family", "bert"]) == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert first.startswith(NAME)
    assert "weights" in first
    assert cli.run(["models", "--family", "gpt2"]) == 0
    assert NAME not in capsys.readouterr().out


def test_its_path_is_resolved_without_torch() -> None:
    code = "import sys, unmask.bundled.models; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
