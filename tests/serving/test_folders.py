"""Folders that other people open."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from unmask.checkpoints.huggingface import Opened, open_folder
from unmask.config import change, to_dict
from unmask.heads.labels import AnyOf, Choice, LabelLoss, Labels, OneOf
from unmask.heads.recurrent import RecurrentTags
from unmask.published.catalogue import published
from unmask.serving.folders import (
    environment,
    is_card,
    model_card,
    read_facts,
    save_model,
    write_facts,
)


def tiny(name: str, **heads) -> Opened:
    card = published(name)
    small = {"vocab_size": 50, "d_model": 16, "n_layers": 1, "n_heads": 2, "d_ff": 32}
    architecture = card.architecture
    for stack in ("encoder.", "decoder.") if "encoder" in to_dict(architecture) else ("",):
        for key, value in small.items():
            architecture = change(architecture, f"{stack}{key}", value)
    card = replace(card, architecture=architecture, heads=heads or card.heads)
    model = card.build().initialize(0).eval()
    return Opened(card=card, model=model, tokenizer=None, labels=(), missing=(), extra=())


@pytest.mark.parametrize("format", ["huggingface", "unmask"])
@pytest.mark.parametrize("name", ["bert-tiny", "gpt2-mini", "t5-mini"])
def test_a_saved_model_is_the_same_again(name: str, format: str, tmp_path: Path) -> None:
    mine = tiny(name)
    folder = save_model(mine, tmp_path / "deep" / "er", format)
    theirs = open_folder(folder)
    assert theirs.missing == theirs.extra == ()
    a, b = mine.model.weights(), theirs.model.weights()
    assert a.keys() == b.keys()
    assert all(a[n].equal(b[n]) for n in a)
    assert (folder / "unmask.json").is_file() == (format == "unmask")


def test_what_made_the_model_is_kept(tmp_path: Path) -> None:
    folder = save_model(tiny("bert-tiny"), tmp_path / "m", "unmask", {"recipe": {"length": 7}})
    facts = read_facts(folder)
    assert (facts["kind"], facts["card"]) == ("model", "bert-tiny")
    assert facts["recipe"] == {"length": 7}


@pytest.mark.parametrize("format", ["huggingface", "unmask"])
@pytest.mark.parametrize("name", ["bert-tiny", "gpt2-mini"])
@pytest.mark.parametrize(
    ("n", "loss", "problem"),
    [
        (3, AnyOf(), "multi_label_classification"),
        (1, AnyOf(), "multi_label_classification"),
        (3, OneOf(), "single_label_classification"),
        (1, OneOf(), "regression"),
        (1, Choice(), None),
    ],
)
def test_transformers_is_told_what_scores_of_labels_mean(
    n: int, loss: LabelLoss, problem: str | None, name: str, format: str, tmp_path: Path
) -> None:
    head = published(name).labels
    assert head is not None
    mine = replace(
        tiny(name, label=replace(head, n_labels=n, loss=loss)), labels=("a", "b", "c")[:n]
    )
    folder = save_model(mine, tmp_path / "m", format)
    assert json.loads((folder / "config.json").read_text()).get("problem_type") == problem
    again = open_folder(folder).card.heads["label"]
    assert isinstance(again, Labels)
    assert isinstance(again.loss, AnyOf) == isinstance(loss, AnyOf)


def test_the_task_stands_beside_a_model_in_either_format(tmp_path: Path) -> None:
    said = {"task": {"does": "tag"}}
    for format in ("huggingface", "unmask"):
        folder = save_model(tiny("bert-tiny"), tmp_path / format, format, said)
        assert read_facts(folder)["task"] == said["task"]


def test_the_card_says_of_a_head_of_ours_what_opens_it() -> None:
    opened = replace(tiny("bert-tiny", token_label=RecurrentTags(n_labels=2)), labels=("a", "b"))
    said = model_card(opened, {})
    assert "its head is RecurrentTags, which transformers does not have: that opens the" in said
    assert "library_name: unmask\n" in said


def test_no_folder_of_someone_else_is_written_to(tmp_path: Path) -> None:
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
    ("name", "heads", "kind", "does"),
    [
        ("bert-tiny", {}, "BertForPreTraining", "fill-mask"),
        ("gpt2-mini", {}, "GPT2LMHeadModel", "text-generation"),
        ("t5-mini", {}, "T5ForConditionalGeneration", "text-generation"),
        ("bert-tiny", {"label": 3}, "BertForSequenceClassification", "text-classification"),
    ],
)
def test_the_model_card_says_how_to_open_it(
    name: str, heads: dict[str, int], kind: str, does: str
) -> None:
    card = published(name)
    specs = {}
    if heads:
        assert isinstance(card.labels, Labels)
        specs = {"label": replace(card.labels, n_labels=heads["label"])}
    opened = replace(tiny(name, **specs), labels=("a", "b", "c") if heads else ())
    said = model_card(opened, {"trained on": "3 tokens"})
    assert f"model = {kind}.from_pretrained" in said
    assert f"pipeline_tag: {does}\n" in said
    assert "- trained on: 3 tokens" in said
    assert ("labels: a, b, c" in said) == bool(heads)
    assert said.startswith("---\n")


def test_what_a_run_is_can_be_read_again(tmp_path: Path) -> None:
    card = published("bert-tiny")
    around = environment("cpu", 3)
    more = {"minutes": 2.5}
    write_facts(tmp_path, "pretrain", {"steps": 3}, card, 7, around, finished=False, more=more)
    facts = read_facts(tmp_path)
    assert facts["recipe"] == {"steps": 3}
    assert (facts["card"], facts["parameters"], facts["finished"]) == ("bert-tiny", 7, False)
    assert (facts["environment"]["threads"], facts["minutes"]) == (3, 2.5)
    assert facts["versions"].keys() >= {"unmask", "torch", "python"}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (None, "not a run: it has no unmask.json"),
        (b"{", "unmask.json: not JSON"),
        (b"\xff", "unmask.json: not JSON"),
        (b"[1]", "lacks 'format'"),
        (b"{}", "lacks 'format'"),
        (json.dumps({"format": 2}).encode(), "format 2 is of a later version; this one reads 1"),
    ],
)
def test_what_is_no_run_is_refused(data: bytes | None, message: str, tmp_path: Path) -> None:
    if data is not None:
        (tmp_path / "unmask.json").write_bytes(data)
    with pytest.raises(ValueError, match=message):
        read_facts(tmp_path)


def test_a_name_is_a_card_unless_it_is_a_place(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert is_card("bert-mini")
    assert is_card("bert-base")
    assert is_card("bret-mini")  # and an unknown one
    assert not is_card("hf:owner/name")
    assert not is_card("runs/mine")
    (tmp_path / "bert-mini").mkdir()
    assert not is_card("bert-mini")
