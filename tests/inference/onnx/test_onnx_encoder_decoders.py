"""Encoder-decoders as two graphs give the numbers, texts and labels of their models."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto
from onnx_models import ENCODER_DECODERS, check_alike, tiny
from small_models import texts
from torch import Tensor

import unmask
from unmask.batch import Batch, Visibility
from unmask.cli import main as cli
from unmask.heads.model import Model
from unmask.heads.spec import HeadSpec
from unmask.inference.onnx.encoder_decoder_graphs import split_encoder_decoder
from unmask.inference.onnx.export import write_graph
from unmask.inference.onnx.model import OnnxModel
from unmask.inference.onnx.record import DECODER_FILE, ENCODER_FILE, MODEL_FILE, OnnxRecord
from unmask.inference.onnx.session import OnnxSession
from unmask.inference.pipeline import Pipeline
from unmask.tasks.task import Task, TaskColumns
from unmask.zoo.catalogue import get_preset
from unmask.zoo.preset import question_answering_head, token_classification_head

TEXTS = [*texts(7, seed=3), "a"]
TOLERANCE = 1e-5
"""Of float32, relative to the largest number: sums are in another order."""
SIZES = [(b, s, t) for b in (1, 7, 32) for s, t in ((1, 17), (17, 1), (128, 3), (3, 128))]
NOT_EXPORTED = {"evolved-transformer", "meena"}
MORE = {
    "t5-v1_1": "t5-v1_1-mini", "ul2": "ul2-mini", "byt5": "byt5-mini", "t5-half": "t5-half-mini",
    "mass": "mass-mini",
}  # fmt: skip
"""Models that differ in their parts from the first of their family."""
NAMES = {f: n for f, n in ENCODER_DECODERS.items() if f not in NOT_EXPORTED} | MORE


def close(ours: Tensor, theirs: Tensor) -> None:
    scale = max(1.0, float(theirs.abs().max()))
    assert float((ours - theirs).abs().max()) < TOLERANCE * scale


def exported(model: Model, folder: Path) -> OnnxModel:
    record = OnnxRecord(graph="encoder_decoder", head="language")
    with torch.no_grad():
        write_graph(model, record, folder / MODEL_FILE)
    split_encoder_decoder(folder)
    encoder, decoder = (OnnxSession(folder, file) for file in (ENCODER_FILE, DECODER_FILE))
    specs = {"language": model.head_specs["language"]}
    return OnnxModel(model.architecture, specs, encoder, record, decoder)


def random_mask(b: int, n: int, draw: torch.Generator) -> Tensor:
    """Return the documents [b n] of texts with padding after them; the first has none."""
    lengths = torch.randint(1, n + 1, (b,), generator=draw)
    lengths[0] = n
    return (torch.arange(n) < lengths[:, None]).long() - 1


@pytest.mark.thorough
@pytest.mark.quick("bart")
@pytest.mark.parametrize("family", sorted(NAMES))
@torch.no_grad()
def test_encoder_and_decoder_steps_equal_the_model(family: str, tmp_path: Path) -> None:
    model = tiny(NAMES[family]).model
    theirs = exported(model, tmp_path)
    draw = torch.Generator().manual_seed(1)
    for b, s, t in SIZES:
        source = torch.randint(0, model.vocab_size, (b, s), generator=draw)
        documents = random_mask(b, s, draw)
        prefix = random_mask(b, t, draw).flip(1)  # prompts end together
        caches = [one.backbone.new_cache(4) for one in (model, theirs)]
        for n_new, n_last in ((t, 1), (1, 1), (3, 3)):
            inputs = torch.randint(0, model.vocab_size, (b, n_new), generator=draw)
            if caches[0].length:
                prefix = torch.cat((prefix, torch.zeros_like(inputs)), 1)
            batch = Batch(
                inputs=inputs,
                visibility=Visibility(document=prefix if b > 1 else None, causal=True),
                position_ids=((prefix >= 0).cumsum(1) - 1).clamp(min=0)[:, -n_new:],
                source=source,
                source_visibility=Visibility(document=documents if b > 1 else None),
            )
            ours, expected = (
                one.next_token_logits(batch, cache, n_last)
                for one, cache in zip((theirs, model), reversed(caches), strict=True)
            )
            close(ours, expected)
        close(
            theirs.backbone.encode(batch)[documents == 0],
            model.backbone.encode(batch)[documents == 0],
        )
        for cache in caches:
            cache.crop(cache.length - 2)
            cache.select_rows(torch.tensor([b - 1, 0]))
        assert caches[0].length == caches[1].length == t + 2


def label_pipeline(head: str, name: str = "bart-mini") -> Pipeline:
    preset = get_preset(name)
    assert preset.classification_head is not None
    specs: dict[str, HeadSpec] = {
        "label": replace(preset.classification_head, n_labels=3),
        "token_label": replace(token_classification_head(preset), n_labels=3),
        "spans": question_answering_head(preset),
    }
    names = ("yes", "no", "perhaps") if head != "spans" else ()
    return Pipeline(tiny(name, {head: specs[head]}, label_names=names))


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["bart-mini", "t5-mini"])
def test_text_is_generated_as_by_the_model(
    name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    mine = Pipeline(tiny(name))
    folder = mine.save(tmp_path / "m", format="onnx")
    theirs = unmask.load(folder)
    settings: dict[str, Any]
    for settings in (
        {},
        {"beams": 3},
        {"temperature": 0.8, "seed": 3},
        {"temperature": 0.8, "samples": 2},
    ):
        generated = theirs.generate(TEXTS, max_new_tokens=9, **settings)
        assert generated == mine.generate(TEXTS, max_new_tokens=9, **settings)
    draft = theirs.draft(mine, draft_tokens=3)
    assert theirs.generate(TEXTS[0], draft=draft) == mine.generate(TEXTS[0])
    ranked = [p.rank_choices(TEXTS[0], [" a b", " c", " a d"]) for p in (mine, theirs)]
    assert [one.text for one in ranked[0]] == [one.text for one in ranked[1]]
    blank = f"{TEXTS[0]} [MASK] {TEXTS[1]}"
    assert theirs.fill(blank).text == mine.fill(blank).text
    for pooling in ("mean", "first", "none"):
        for one, other in zip(
            theirs.embed(TEXTS, pooling=pooling), mine.embed(TEXTS, pooling=pooling), strict=True
        ):
            np.testing.assert_allclose(one, other, atol=2e-5)
    np.testing.assert_allclose(theirs.logits(TEXTS), mine.logits(TEXTS), atol=2e-4)
    record = json.loads((folder / "unmask.json").read_text())
    assert record["onnx"]["graph"] == "encoder_decoder"
    assert {"encoder.onnx", "decoder.onnx", "model.onnx.data"} <= record["files"].keys()
    assert not (folder / "model.onnx").exists()
    assert cli.run(["generate", str(folder), "--prompt", TEXTS[0], "--max-new-tokens", "5"]) == 0
    assert capfd.readouterr().out
    check_refusals(folder, capfd)


def check_refusals(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    cases: tuple[tuple[Sequence[Any], str], ...] = (
        (["evaluate", folder, "--data", __file__], "does not support evaluation"),
        (["embed", folder, "a", "--layer", "0"], "the last layer alone"),
        (["convert", folder, folder.with_name("x")], "does not support conversion"),
        (["predict", folder, "a"], "no head that labels"),
    )
    for arguments, wrong in cases:
        assert cli.run([str(a) for a in arguments]) == 2
        error = capfd.readouterr().err
        assert wrong in error
        assert error.count("\n") == 1, error
    decoder = folder / DECODER_FILE
    decoder.write_bytes(decoder.read_bytes()[:-99])
    assert cli.run(["generate", str(folder), "--prompt", "a"]) == 2
    error = capfd.readouterr().err
    assert "decoder.onnx: truncated or damaged" in error
    assert error.count("\n") == 1, error


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["bart-mini", "t5-mini", "t5-shared-mini", "t5-v1_1-mini"])
def test_weights_of_8_bits_are_close_and_stored_once(name: str, tmp_path: Path) -> None:
    mine = Pipeline(tiny(name))
    folder = mine.save(tmp_path / "m", format="onnx", int8=True)
    theirs = unmask.load(folder)
    ours, expected = (np.stack(list(one.embed(TEXTS))) for one in (theirs, mine))
    assert np.abs(ours - expected).max() < 0.1 * np.abs(expected).max()
    assert len(theirs.generate(TEXTS, max_new_tokens=4)) == len(TEXTS)
    tables = set[int]()
    for file in (ENCODER_FILE, DECODER_FILE):
        graph = onnx.load(folder / file, load_external_data=False).graph
        for one in graph.initializer:
            if np.prod(one.dims) < 32 * 32:
                continue
            assert one.data_type in (TensorProto.INT8, TensorProto.UINT8), one.name
            stored = {entry.key: entry.value for entry in one.external_data}
            assert stored["location"] == "model.onnx.data"
            if mine.model.vocab_size in one.dims:
                tables.add(int(stored["offset"]))
    tied = mine.model.head_specs["language"].ties_output_embeddings
    assert len(tables) == (1 if tied else 2)


@pytest.mark.thorough
@pytest.mark.parametrize("head", ["label", "token_label", "spans"])
def test_every_head_predicts_as_its_model(head: str, tmp_path: Path) -> None:
    mine = label_pipeline(head)
    folder = mine.save(tmp_path / "m", format="onnx")
    theirs = unmask.load(folder)
    assert json.loads((folder / "unmask.json").read_text())["onnx"]["graph"] == "source_text"
    given: list[Any] = list(TEXTS)
    if head == "token_label":
        given = [text.split() for text in TEXTS]
    if head == "spans":
        given = [{"question": "who", "context": text} for text in TEXTS]
    check_alike(theirs.predict(given), mine.predict(given))
    np.testing.assert_allclose(theirs.embed(TEXTS), mine.embed(TEXTS), atol=2e-5)
    with pytest.raises(ValueError, match="does not generate"):
        theirs.generate("a")


@pytest.mark.thorough
def test_labels_in_words_and_texts_are_predicted_as_by_the_model(tmp_path: Path) -> None:
    columns = TaskColumns(texts=("text",), label="label")
    rows = tmp_path / "rows.tsv"
    rows.write_text("text\tlabel\na\tthe\nb\tday\n")
    loaded = tiny("t5-mini")
    words = Task(task_kind="classify", columns=columns, labels=("the", "day"), max_length=64)
    mine = Pipeline(loaded, words)
    theirs = unmask.load(mine.save(tmp_path / "words", format="onnx"))
    check_alike(theirs.predict(TEXTS), mine.predict(TEXTS))
    check_alike(theirs.score(rows), mine.score(rows))
    writes = Task(
        task_kind="generate", columns=columns, max_length=64, metric="rougeL",
        options={"max_target_length": 6},
    )  # fmt: skip
    mine, theirs = Pipeline(loaded, writes), type(theirs)(theirs.loaded_model, writes)
    assert theirs.predict(TEXTS) == mine.predict(TEXTS)
    check_alike(theirs.score(rows), mine.score(rows))
