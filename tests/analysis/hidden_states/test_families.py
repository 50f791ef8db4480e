"""Analyses of hidden states on every family: they work, or one line says why they are refused."""

import json
from pathlib import Path

import pytest
from toy_text import corpus

from unmask.checkpoints.huggingface.read import LoadedModel
from unmask.cli.main import run
from unmask.inference.export import save_model
from unmask.tokenizers.learn.tokenizer import train_tokenizer
from unmask.word_vectors.train.trainer import WordVectorMethod
from unmask.zoo.catalogue import MODELS, TEXT_MODELS

MINI = [name for name in TEXT_MODELS if name.endswith(("-mini", "-tiny"))]
STATIC = [name for name in MINI if isinstance(MODELS[name].objective, WordVectorMethod)]
NETWORKS = [name for name in MINI if name not in STATIC]
QUICK = ("bert-tiny", "lstm-mini", "elmo-mini", "cnn-mini", "t5-shared-mini")
REASONS = (
    "can be recorded of Transformer blocks only",
    "this model has no language-model head (heads:",
    "predicts tokens from a stream of queries",
    "does not tell apart layers that both stacks share",
    "the tokenizer has no mask token",
)
"""Why the lens refuses a family; the other analyses refuse none."""

networks = pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in NETWORKS]
)


def saved(name: str, folder: Path) -> Path:
    """Write a preset with random weights and a vocabulary of the toy language."""
    preset = MODELS[name]
    known = train_tokenizer(preset.tokenizer, corpus(20).splitlines())
    preset = preset.with_vocabulary(known.special_ids)
    loaded = LoadedModel(
        preset=preset, model=preset.build().initialize(0), tokenizer=known, label_names=(),
        missing=(), unexpected=(),
    )  # fmt: skip
    return save_model(loaded, folder)


def probe(analysis: str, model: Path, folder: Path) -> int:
    data, out = folder / "text.txt", folder / "out"
    data.write_text(corpus(8))
    arguments = ["probe", str(model), "--analysis", analysis, "--data", str(data), "--quiet"]
    return run([*arguments, "--out", str(out), "--device", "cpu"])


@networks
@pytest.mark.filterwarnings("ignore:the text suffices")
def test_networks(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = saved(name, tmp_path / "model")
    assert probe(f"similarity:other={model},sentences=4", model, tmp_path) == 0
    found = json.loads((tmp_path / "out" / "similarity.json").read_text())
    cka = found["to_other"]["cka"]
    assert [row[i] for i, row in enumerate(cka)] == pytest.approx([1.0] * len(cka), abs=1e-5)
    assert set(found["weight_changes"].values()) == {0.0}
    assert probe("contextuality:sentences=8,min_contexts=2", model, tmp_path) == 0
    layers = json.loads((tmp_path / "out" / "contextuality.json").read_text())["networks"]
    assert len(layers["trained"]) == len(layers["random"]) == len(cka)
    capsys.readouterr()
    code = probe("lens:sentences=3,shown=1", model, tmp_path)
    if code == 0:
        lens = json.loads((tmp_path / "out" / "lens.json").read_text())["networks"]["trained"]
        assert lens["layers"][-1]["agreement"] == 1
        return
    lines = capsys.readouterr().err.strip().splitlines()
    assert (code, len(lines)) == (2, 1), lines
    assert any(reason in lines[0] for reason in REASONS), lines
    assert not (tmp_path / "out" / "lens.json").exists()


def test_static_vectors_are_a_network_of_one_layer_without_context(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, model = tmp_path / "small.txt", tmp_path / "vectors"
    data.write_text(corpus(30))
    given = ["pretrain", STATIC[0], "--data", str(data), "--out", str(model), "--quiet"]
    assert run(given) == 0
    assert probe(f"similarity:other={model},sentences=4", model, tmp_path) == 0
    found = json.loads((tmp_path / "out" / "similarity.json").read_text())
    assert found["to_other"]["cka"] == [[pytest.approx(1)]]
    assert probe("contextuality:sentences=8,min_contexts=2", model, tmp_path) == 0
    found = json.loads((tmp_path / "out" / "contextuality.json").read_text())["networks"]
    for name in ("trained", "random"):
        assert [one["self_similarity"] for one in found[name]] == [pytest.approx(1, abs=1e-6)]
    capsys.readouterr()
    assert probe("lens", model, tmp_path) == 2
    assert "this model has no language-model head" in capsys.readouterr().err
