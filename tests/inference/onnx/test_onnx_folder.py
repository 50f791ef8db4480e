"""ONNX folders answer as the model that they were made of; damaged and foreign ones are refused."""

import importlib.util
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx_models import check_alike, tiny
from small_models import texts

import unmask
from unmask.cli import main as cli
from unmask.files import write_atomically
from unmask.generation.decoding import common_prefix
from unmask.heads.spec import HeadSpec
from unmask.heads.tagging.bilstm_crf import BiLSTMCRF
from unmask.inference.onnx import export, quantize
from unmask.inference.onnx.quantize import uses_reduced_range
from unmask.inference.onnx.session import OnnxSession
from unmask.inference.pipeline import Pipeline
from unmask.zoo.catalogue import get_preset
from unmask.zoo.preset import question_answering_head, token_classification_head

TEXTS = [*texts(7, seed=3), "a"]


def pipeline(name: str, head: str | None = None, n_labels: int = 3, **more: Any) -> Pipeline:
    preset = get_preset(name)
    if head is None:
        return Pipeline(tiny(name))
    assert preset.classification_head is not None
    specs: dict[str, HeadSpec] = {
        "label": replace(preset.classification_head, n_labels=n_labels, **more),
        "token_label": replace(token_classification_head(preset), n_labels=n_labels),
        "spans": question_answering_head(preset),
    }
    names = ("yes", "no", "perhaps")[:n_labels] if head != "spans" else ()
    return Pipeline(tiny(name, {head: specs[head]}, label_names=names))


@pytest.fixture(scope="module")
def labelling(tmp_path_factory: pytest.TempPathFactory) -> tuple[Pipeline, Path]:
    """Write a classifier once."""
    mine = pipeline("bert-tiny", "label")
    return mine, mine.save(tmp_path_factory.mktemp("onnx") / "label", format="onnx")


@pytest.fixture
def damaged(labelling: tuple[Pipeline, Path], tmp_path: Path) -> Path:
    """Copy the folder, without the hashes that would reveal a changed file."""
    folder = tmp_path / "damaged"
    shutil.copytree(labelling[1], folder)
    facts = json.loads((folder / "unmask.json").read_text())
    del facts["files"]
    (folder / "unmask.json").write_text(json.dumps(facts))
    return folder


@pytest.mark.thorough
def test_classifier_predicts_as_its_model(labelling: tuple[Pipeline, Path], capfd) -> None:
    mine, folder = labelling
    theirs = unmask.load(folder)
    for one, other in zip(mine.predict(TEXTS), theirs.predict(TEXTS), strict=True):
        assert isinstance(one, dict)
        assert isinstance(other, dict)
        assert one["label"] == other["label"]
        assert other["probabilities"] == pytest.approx(one["probabilities"], abs=1e-5)
    for pooling in ("mean", "first", "last"):
        np.testing.assert_allclose(
            theirs.embed(TEXTS, pooling=pooling), mine.embed(TEXTS, pooling=pooling), atol=2e-5
        )
    np.testing.assert_allclose(theirs.logits(TEXTS), mine.logits(TEXTS), atol=2e-5)
    assert cli.run(["predict", str(folder), TEXTS[0]]) == 0
    assert json.loads(capfd.readouterr().out)["label"] == mine.predict(TEXTS[0])[0]["label"]  # type: ignore[index]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bert-tiny", "modernbert-mini", "gpt2-mini", "albert-mini"])
@pytest.mark.parametrize("head", ["label", "token_label", "spans"])
def test_every_head_predicts_as_its_model(name: str, head: str, tmp_path: Path) -> None:
    mine = pipeline(name, head)
    theirs = unmask.load(mine.save(tmp_path / "m", format="onnx"))
    assert theirs.label_names == mine.label_names
    given: list[Any] = list(TEXTS)
    if head == "token_label":
        given = [text.split() for text in TEXTS]
    if head == "spans":
        given = [{"question": "who", "context": text} for text in TEXTS]
    check_alike(theirs.predict(given), mine.predict(given))


@pytest.mark.slow
def test_regression_and_pairs_predict_as_their_models(tmp_path: Path) -> None:
    mine = pipeline("roberta-mini", "label", n_labels=1)
    theirs = unmask.load(mine.save(tmp_path / "m", format="onnx"))
    pairs = list(zip(TEXTS, reversed(TEXTS), strict=True))
    assert theirs.predict(pairs) == pytest.approx(mine.predict(pairs), abs=1e-4)


@pytest.mark.thorough
@pytest.mark.quick("bert-tiny-compare", "gpt2-mini-both")
@pytest.mark.parametrize(
    ("name", "pooling"),
    [
        ("bert-tiny", "compare"), ("deberta-mini", "compare"), ("modernbert-mini", "compare"),
        ("mpnet-mini", "compare"), ("gpt2-mini", "compare"), ("gpt2-mini", "both"),
        ("llama-mini", "both"),
    ],
)  # fmt: skip
def test_heads_of_two_texts_predict_as_their_models(
    name: str, pooling: str, tmp_path: Path
) -> None:
    mine = pipeline(name, "label", pooling=pooling)
    theirs = unmask.load(mine.save(tmp_path / "m", format="onnx"))
    pairs = list(zip(TEXTS, reversed(TEXTS), strict=True))
    check_alike(theirs.predict(pairs), mine.predict(pairs))
    check_alike(theirs.predict(pairs[:1]), mine.predict(pairs[:1]))
    np.testing.assert_allclose(theirs.embed(TEXTS), mine.embed(TEXTS), atol=2e-5)
    with pytest.raises(ValueError, match="compares two texts, and one is read"):
        theirs.predict(TEXTS)


@pytest.mark.slow
def test_decoder_generates_as_its_model(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(common_prefix, "MIN_SAVED_TOKENS", 1)
    mine = pipeline("llama-mini")
    theirs = unmask.load(mine.save(tmp_path / "m", format="onnx"))
    settings: dict[str, Any]
    for settings in ({}, {"beams": 3}, {"temperature": 0.8, "seed": 3}, {"window": True}):
        generated = theirs.generate(TEXTS, max_new_tokens=9, **settings)
        assert generated == mine.generate(TEXTS, max_new_tokens=9, **settings)
    alike = [f"{TEXTS[0]} {letter}" for letter in "abc"]
    assert theirs.generate(alike, max_new_tokens=9) == mine.generate(alike, max_new_tokens=9)
    draft = theirs.draft(mine, draft_tokens=3)
    assert theirs.generate(TEXTS[0], draft=draft) == mine.generate(TEXTS[0])
    ranked = [p.rank_choices(TEXTS[0], [" a b", " c", " a d"]) for p in (mine, theirs)]
    assert [one.text for one in ranked[0]] == [one.text for one in ranked[1]]
    np.testing.assert_allclose(theirs.embed(TEXTS), mine.embed(TEXTS), atol=2e-5)
    with pytest.raises(ValueError, match="only reads forward"):
        theirs.fill("a [MASK]")
    with pytest.raises(ValueError, match="logits of the last token alone"):
        theirs.logits("a")


@pytest.mark.thorough
@pytest.mark.parametrize("int8", [False, True])
def test_large_weights_are_in_a_file_of_their_own(int8: bool, tmp_path: Path, monkeypatch) -> None:
    mine = pipeline("bert-tiny")
    whole = unmask.load(mine.save(tmp_path / "whole", format="onnx", int8=int8))
    for module in (export, quantize):
        monkeypatch.setattr(module, "MAX_FILE_BYTES", 1_000)
    folder = mine.save(tmp_path / "parts", format="onnx", int8=int8)
    names = {"model.onnx", "model.onnx.data"}
    assert {one.name for one in folder.glob("*.onnx*")} == names
    assert len({(folder / name).stat().st_mode for name in names}) == 1
    np.testing.assert_array_equal(unmask.load(folder).embed(TEXTS), whole.embed(TEXTS))


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", ["bert-tiny", "llama-mini"])
def test_tied_table_is_stored_once(name: str, tmp_path: Path) -> None:
    mine = pipeline(name)
    graph = onnx.load(mine.save(tmp_path / "m", format="onnx") / "model.onnx").graph
    vocabulary = mine.model.architecture.vocab_size
    tables = [one for one in graph.initializer if vocabulary in one.dims and len(one.dims) == 2]
    tied = mine.model.head_specs["language"].ties_output_embeddings
    assert len(tables) == (1 if tied else 2)


@pytest.mark.thorough
def test_blanks_are_filled_and_8_bits_are_close(tmp_path: Path, capfd) -> None:
    mine = pipeline("bert-tiny")
    folder = mine.save(tmp_path / "m", format="onnx", int8=True)
    theirs = unmask.load(folder)
    blanks = [f"{text} [MASK] {text}" for text in TEXTS] + ["[MASK] a [MASK]"]
    for one, other in zip(mine.fill(blanks, top_k=40), theirs.fill(blanks, top_k=40), strict=True):
        for some, others in zip(one.blanks, other.blanks, strict=True):
            found = {c.text: c.probability or 0 for c in others}
            assert sum(abs((c.probability or 0) - found.get(c.text, 0)) for c in some) < 0.3
    close = zip(theirs.logits(TEXTS), mine.logits(TEXTS), strict=True)
    assert all(np.abs(one - other).max() < 0.1 * np.abs(other).max() for one, other in close)
    with pytest.raises(ValueError, match="has no language-model head"):
        _ = theirs.model.language_head
    graph = onnx.load(folder / "model.onnx").graph
    sizes = {one.name: np.prod(one.dims) for one in graph.initializer}
    kinds = {one.name: one.data_type for one in graph.initializer}
    large = [name for name, n in sizes.items() if n >= 32 * 32]
    integers = (TensorProto.INT8, TensorProto.UINT8)
    assert large
    assert all(kinds[name] in integers for name in large)
    scales = [name for name in sizes if name.endswith("_scale") and sizes[name] > 1]
    assert scales  # per channel
    vocabulary = mine.model.architecture.vocab_size
    assert sum(vocabulary in one.dims and len(one.dims) == 2 for one in graph.initializer) == 1
    record = json.loads((folder / "unmask.json").read_text())["onnx"]
    assert record["reduce_range"] == uses_reduced_range()
    rows = tmp_path / "rows.tsv"
    rows.write_text("text\tlabel\na\tyes\nb\tno\n")
    for arguments, wrong in (
        (["evaluate", folder, "--data", __file__], "does not support evaluation"),
        (["embed", folder, "a", "--layer", "0"], "the last layer alone"),
        (["fill", folder, "a [MASK]", "--device", "cuda"], "device must be auto or cpu"),
        (["convert", folder, tmp_path / "x"], "does not support conversion"),
        (["predict", folder, "a"], "no head that labels"),
        (["compress", folder, "--method", "int8", "--out", tmp_path / "y"], "has no weights"),
        (
            [
                "finetune",
                folder,
                "--task",
                "classify",
                "--train",
                rows,
                "--dev",
                rows,
                "--out",
                tmp_path / "z",
            ],
            "no weights",
        ),
        (["generate", folder, "--prompt", "a"], "does not generate"),
    ):
        assert cli.run([str(a) for a in arguments]) == 2
        error = capfd.readouterr().err
        assert wrong in error
        assert error.count("\n") == 1, error
    assert not (tmp_path / "y").exists()
    assert cli.run(["show", str(folder)]) == 0


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("flags", "reduced"),
    [("flags : avx2 fma", True), ("flags : avx2 avx512_vnni", False), ("flags: avx_vnni", False)],
)
def test_seven_bits_are_used_without_vnni(
    flags: str, reduced: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_atomically(tmp_path / "cpuinfo", f"processor : 0\n{flags}\n")
    monkeypatch.setattr(quantize, "_CPU_INFO", tmp_path / "cpuinfo")
    monkeypatch.setattr(quantize.platform, "machine", lambda: "x86_64")
    assert uses_reduced_range() == reduced
    monkeypatch.setattr(quantize.platform, "machine", lambda: "aarch64")
    assert not uses_reduced_range()


def _truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-999])


def _garble(path: Path) -> None:
    path.write_bytes(b"\xff" * 300)


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _custom_operator(path: Path) -> None:
    model = onnx.load(path)
    model.graph.node[0].domain = "evil.example"
    model.opset_import.append(helper.make_opsetid("evil.example", 1))
    onnx.save(model, path)


def _weights_elsewhere(location: str) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        (path.parent.parent / "secret").write_bytes(bytes(10**5))
        model = onnx.load(path)
        tensor = next(one for one in model.graph.initializer if len(one.raw_data) > 999)
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value=location.format(path.parent.parent))
        onnx.save(model, path)

    return change


def _another_graph(path: Path) -> None:
    node = helper.make_node("Identity", ["x"], ["y"])
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [1]) for n in "xy")
    onnx.save(helper.make_model(helper.make_graph([node], "g", [x], [y])), path)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_truncate, "damaged"),
        (_garble, "truncated or damaged"),
        (_empty, "its graph is empty"),
        (Path.unlink, "missing"),
        (_custom_operator, "custom operators are never loaded"),
        (_weights_elsewhere("../secret"), "weights must be in its own folder, got '../secret'"),
        (_weights_elsewhere("{}/secret"), "weights must be in its own folder"),
        (_weights_elsewhere("weights"), "missing"),
        (_another_graph, "the graph has no"),
    ],
)
def test_damaged_or_hostile_graph_is_one_line(
    damage: Callable[[Path], None], message: str, damaged: Path, capfd
) -> None:
    damage(damaged / "model.onnx")
    assert cli.run(["predict", str(damaged), "a"]) == 2
    error = capfd.readouterr().err
    assert message in error
    assert str(damaged) in error
    assert error.count("\n") == 1, error


@pytest.mark.thorough
def test_changed_file_and_missing_library_are_named(
    labelling: tuple[Pipeline, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd
) -> None:
    folder = tmp_path / "m"
    shutil.copytree(labelling[1], folder)
    _truncate(folder / "model.onnx")
    assert cli.run(["predict", str(folder), "a"]) == 2
    assert "model.onnx: truncated or damaged" in capfd.readouterr().err
    missing: Callable[..., Any] = lambda name: None if name == "onnxruntime" else True  # noqa: E731
    monkeypatch.setattr(importlib.util, "find_spec", missing)
    for arguments in (
        ["predict", labelling[1], "a"],
        ["convert", "x", folder / "y", "--to", "onnx"],
    ):
        if arguments[1] == "x":
            arguments[1] = "unmask-mini-en"
        assert cli.run([str(a) for a in arguments]) == 2
        assert 'pip install "unmask[onnx]"' in capfd.readouterr().err
    assert not (folder / "y").exists()


@pytest.mark.thorough
def test_unexportable_model_is_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    preset = get_preset("bert-tiny")
    crf = Pipeline(
        replace(tiny(preset.name, {"token_label": BiLSTMCRF(n_labels=2)}), label_names=("a", "b"))
    )
    with pytest.raises(ValueError, match="BiLSTM-CRF head"):
        crf.save(tmp_path / "m", format="onnx")
    with pytest.raises(ValueError, match="int8 is of format onnx alone"):
        crf.save(tmp_path / "m", int8=True)
    assert not (tmp_path / "m").exists()


def test_file_is_refused_as_a_folder(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"model\.onnx: missing"):
        OnnxSession(tmp_path)
