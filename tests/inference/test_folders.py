"""Folders that other people open."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from unmask.checkpoints.huggingface.read import LoadedModel, load_folder
from unmask.config import set_value, to_dict
from unmask.heads.classification.label_losses import (
    BinaryCrossEntropy,
    ChoiceCrossEntropy,
    CrossEntropy,
    LabelLoss,
)
from unmask.heads.classification.sequence_classification import SequenceClassification
from unmask.heads.tagging.bilstm_crf import BiLSTMCRF
from unmask.inference.export import (
    environment_record,
    model_card,
    read_run_file,
    save_model,
    write_run_file,
)
from unmask.zoo.catalogue import get_preset, is_preset_name


def tiny(name: str, **heads) -> LoadedModel:
    preset = get_preset(name)
    small = {"vocab_size": 50, "d_model": 16, "n_layers": 1, "n_heads": 2, "d_ff": 32}
    architecture = preset.architecture
    for stack in ("encoder.", "decoder.") if "encoder" in to_dict(architecture) else ("",):
        for key, value in small.items():
            architecture = set_value(architecture, f"{stack}{key}", value)
    preset = replace(preset, architecture=architecture, heads=heads or preset.heads)
    model = preset.build().initialize(0).eval()
    return LoadedModel(
        preset=preset, model=model, tokenizer=None, label_names=(), missing=(), unexpected=()
    )


@pytest.mark.parametrize("format", ["huggingface", "unmask"])
@pytest.mark.parametrize("name", ["bert-tiny", "gpt2-mini", "t5-mini"])
def test_saved_model_round_trips(name: str, format: str, tmp_path: Path) -> None:
    mine = tiny(name)
    folder = save_model(mine, tmp_path / "deep" / "er", format)
    theirs = load_folder(folder)
    assert theirs.missing == theirs.unexpected == ()
    a, b = mine.model.own_weights(), theirs.model.own_weights()
    assert a.keys() == b.keys()
    assert all(a[n].equal(b[n]) for n in a)
    assert (folder / "unmask.json").is_file() == (format == "unmask")


def test_run_record_is_kept(tmp_path: Path) -> None:
    folder = save_model(
        tiny("bert-tiny"), tmp_path / "m", "unmask", {"recipe": {"sequence_length": 7}}
    )
    facts = read_run_file(folder)
    assert (facts["kind"], facts["card"]) == ("model", "bert-tiny")
    assert facts["recipe"] == {"sequence_length": 7}


@pytest.mark.parametrize("format", ["huggingface", "unmask"])
@pytest.mark.parametrize("name", ["bert-tiny", "gpt2-mini"])
@pytest.mark.parametrize(
    ("n", "loss", "problem"),
    [
        (3, BinaryCrossEntropy(), "multi_label_classification"),
        (1, BinaryCrossEntropy(), "multi_label_classification"),
        (3, CrossEntropy(), "single_label_classification"),
        (1, CrossEntropy(), "regression"),
        (1, ChoiceCrossEntropy(), None),
    ],
)
def test_transformers_config_states_the_problem_type(
    n: int, loss: LabelLoss, problem: str | None, name: str, format: str, tmp_path: Path
) -> None:
    head = get_preset(name).classification_head
    assert head is not None
    mine = replace(
        tiny(name, label=replace(head, n_labels=n, loss=loss)), label_names=("a", "b", "c")[:n]
    )
    folder = save_model(mine, tmp_path / "m", format)
    assert json.loads((folder / "config.json").read_text()).get("problem_type") == problem
    again = load_folder(folder).preset.heads["label"]
    assert isinstance(again, SequenceClassification)
    assert isinstance(again.loss, BinaryCrossEntropy) == isinstance(loss, BinaryCrossEntropy)


def test_task_is_saved_in_either_format(tmp_path: Path) -> None:
    output = {"task": {"task_kind": "tag"}}
    for format in ("huggingface", "unmask"):
        folder = save_model(tiny("bert-tiny"), tmp_path / format, format, output)
        assert read_run_file(folder)["task"] == output["task"]


def test_model_card_of_own_head_says_what_opens_it() -> None:
    loaded = replace(tiny("bert-tiny", token_label=BiLSTMCRF(n_labels=2)), label_names=("a", "b"))
    output = model_card(loaded, {})
    assert "its head is BiLSTMCRF, which transformers lacks: it loads the" in output
    assert "library_name: unmask\n" in output


def test_foreign_folder_is_not_written_to(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.pdf").write_text("mine")
    with pytest.raises(ValueError, match="with files in it"):
        save_model(tiny("bert-tiny"), tmp_path / "mine")
    with pytest.raises(ValueError, match="is a file"):
        save_model(tiny("bert-tiny"), tmp_path / "mine" / "thesis.pdf")
    with pytest.raises(ValueError, match=r"format must be one of .*'unmask'.* got 'onnx'"):
        save_model(tiny("bert-tiny"), tmp_path / "new", "onnx")
    assert os.listdir(tmp_path / "mine") == ["thesis.pdf"]
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("name", "heads", "kind", "task_kind"),
    [
        ("bert-tiny", {}, "BertForPreTraining", "fill-mask"),
        ("gpt2-mini", {}, "GPT2LMHeadModel", "text-generation"),
        ("t5-mini", {}, "T5ForConditionalGeneration", "text-generation"),
        ("bert-tiny", {"label": 3}, "BertForSequenceClassification", "text-classification"),
    ],
)
def test_model_card_says_how_to_open_it(
    name: str, heads: dict[str, int], kind: str, task_kind: str
) -> None:
    preset = get_preset(name)
    specs = {}
    if heads:
        assert isinstance(preset.classification_head, SequenceClassification)
        specs = {"label": replace(preset.classification_head, n_labels=heads["label"])}
    loaded = replace(tiny(name, **specs), label_names=("a", "b", "c") if heads else ())
    output = model_card(loaded, {"trained on": "3 tokens"})
    assert f"model = {kind}.from_pretrained" in output
    assert f"pipeline_tag: {task_kind}\n" in output
    assert "- trained on: 3 tokens" in output
    assert ("labels: a, b, c" in output) == bool(heads)
    assert output.startswith("---\n")


def test_run_record_reads_back(tmp_path: Path) -> None:
    written = {"kind": "pretrain", "recipe": {"steps": 3}, "minutes": 2.5, "finished": False}
    write_run_file(tmp_path, written | {"environment": environment_record("cpu", 3)})
    facts = read_run_file(tmp_path)
    assert facts.items() >= written.items()
    assert facts["environment"]["threads"] == 3
    assert facts["versions"].keys() >= {"unmask", "torch", "python"}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (None, "not a run: it has no unmask.json"),
        (b"{", "unmask.json: not JSON"),
        (b"\xff", "unmask.json: not JSON"),
        (b"[1]", "lacks 'format'"),
        (b"{}", "lacks 'format'"),
        (
            json.dumps({"format": 3}).encode(),
            "format 3 is not read: this version of Unmask reads 2",
        ),
    ],
)
def test_folder_without_run_is_refused(data: bytes | None, message: str, tmp_path: Path) -> None:
    if data is not None:
        (tmp_path / "unmask.json").write_bytes(data)
    with pytest.raises(ValueError, match=message):
        read_run_file(tmp_path)


def test_name_is_a_preset_unless_it_is_a_path(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert is_preset_name("bert-mini")
    assert is_preset_name("bert-base")
    assert is_preset_name("bret-mini")  # and an unknown one
    assert not is_preset_name("hf:owner/name")
    assert not is_preset_name("runs/mine")
    (tmp_path / "bert-mini").mkdir()
    assert not is_preset_name("bert-mini")
