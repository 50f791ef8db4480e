"""Pretraining with another objective than the preset's, up to a folder that others open."""

import importlib.util
import json
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from toy_text import corpus

from unmask.inference.open_model import load
from unmask.jobs.catalogue import hide as hiding
from unmask.jobs.catalogue.hide import hide
from unmask.jobs.pretrain.pretrain import pretrain
from unmask.zoo.objectives.adapt_preset import adapt_to_objective
from unmask.zoo.objectives.presets import OBJECTIVE_PRESETS

ROOT = Path(__file__).parents[2]


def _script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("table", ROOT / "scripts" / "objective_table.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SCRIPT = _script()
CARDS = {card.name: card for card in SCRIPT.cards()}
SMALL: Mapping[str, Any] = {
    "vocab_size": 300, "sequence_length": 32, "batch_tokens": 256, "micro_batch_tokens": None,
    "dev_fraction": 0.0,
}  # fmt: skip


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text(corpus())
    return path


def run(name: str, objective: str, text: Path, out: Path, *changes: str, **more: Any) -> Any:
    small = {**SMALL, "architecture": SCRIPT.tiny(CARDS[name].architecture)}
    more = {"steps": 2, "quiet": True, **more}
    return pretrain(
        name, data=text, out=out, objective=objective, changes=[small, *changes], threads=1, **more
    )


def test_causal_bert_equals_bert_lm_head_model_of_transformers(text: Path, tmp_path: Path) -> None:
    import transformers

    out = tmp_path / "run"
    run("bert-tiny", "clm", text, out)
    loaded = load(out)
    assert loaded.preset.objective.loss_terms == ("next_token",)
    assert isinstance(loaded.generate("the old king", max_new_tokens=5), str)
    theirs = transformers.BertLMHeadModel.from_pretrained(out).eval()
    assert theirs.config.is_decoder
    with torch.no_grad():
        assert SCRIPT.difference(loaded, theirs, "BertLMHeadModel") < 1e-5
    config = json.loads((out / "config.json").read_text())
    del config["unmask"]  # so a folder of others
    (out / "config.json").write_text(json.dumps(config))
    (out / "unmask.json").unlink()
    again = load(out)
    assert again.model.predicts_next_token
    assert again.model.language_head.spec.term == "next_token"
    assert torch.isfinite(torch.tensor(list(again.evaluate(text).loss.values()))).all()


def test_bidirectional_llama_is_saved_in_own_format_and_says_so(text: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    run("llama-mini", "mlm", text, out)
    assert load(out).fill("the old [MASK]").blanks
    assert "cannot express architecture.causal" in (out / "README.md").read_text()


@pytest.mark.thorough
def test_replaced_token_detection_on_other_backbone_keeps_its_generator(
    text: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    made = run("roberta-mini", "rtd:generator_size=0.5", text, out)
    loaded = load(out)
    assert set(loaded.model.head_specs) == {"generator", "replaced"}
    mine, theirs = made.model.own_weights(), loaded.model.own_weights()
    assert all(torch.equal(mine[name], theirs[name]) for name in mine)
    run("roberta-mini", "rtd:generator_size=0.5", text, out, resume=True)
    with pytest.raises(ValueError, match="a resumed run must be the same"):
        run("roberta-mini", "mlm", text, out, resume=True)


@pytest.mark.thorough
def test_short_run_has_published_share_of_warmup(
    text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = {"architecture": {"d_model": 32, "d_ff": 64, "n_layers": 1, "n_heads": 2}}
    for name, output in (
        (
            "bert-base-uncased",
            "a warm-up of 1 of 3 steps, the preset's share (10,000 of 1,000,000)",
        ),
        ("llama-7b", "the preset's 2,000 are of a longer run of unknown length"),
    ):
        pretrain(
            name, data=text, out=tmp_path / name, steps=3, threads=1,
            changes=[{**SMALL, "dev_fraction": 0.0, **more}],
        )  # fmt: skip
        assert output in capsys.readouterr().err
    with pytest.raises(ValueError, match="warm-up and decay take 50 steps, but steps is 3"):
        pretrain(
            "bert-base-uncased", data=text, out=tmp_path / "x", steps=3,
            changes=["schedule.warmup=50"],
        )  # fmt: skip


@pytest.mark.thorough
def test_inapplicable_preset_options_are_dropped_and_reported(
    text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = {**SMALL, "architecture": SCRIPT.tiny(CARDS["xlnet-mini"].architecture)}
    changes = [small, "architecture.position=Rotary"]
    pretrain(
        "xlnet-mini", data=text, out=tmp_path / "a", steps=1, objective="mlm", changes=changes,
        threads=1,
    )  # fmt: skip
    assert "row_unit = document, not the preset's stream" in capsys.readouterr().err
    small = {**SMALL, "architecture": SCRIPT.tiny(CARDS["bert-tiny"].architecture)}
    rotary = [small, "architecture.position=Rotary"]
    pretrain("bert-tiny", data=text, out=tmp_path / "b", steps=1, changes=rotary, threads=1)
    key = "init_previous_token_heads"
    assert f"{key} = 2 is not used: {key} needs" in capsys.readouterr().err
    with pytest.raises(ValueError, match=f"{key} needs"):
        pretrain(
            "bert-tiny", data=text, out=tmp_path / "c", steps=1, threads=1, quiet=True,
            changes=[*rotary, "init_previous_token_heads=2"],
        )  # fmt: skip


@pytest.mark.parametrize("objective", ["plm", "characters", "mlmm", "clm+nsp", "mlm:rate=7"])
def test_hide_and_pretrain_refuse_alike(
    objective: str, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hiding, "TOKENIZER_SAMPLE_CHARACTERS", 50_000)
    with pytest.raises(ValueError, match=objective.split(":")[0].split("+")[0]) as shown:
        hide("bert-tiny", "the old king saw the sea", objective=objective)
    with pytest.raises(ValueError, match=objective.split(":")[0].split("+")[0]) as refused:
        run("bert-tiny", objective, text, tmp_path / "run")
    assert str(shown.value) == str(refused.value)


@pytest.mark.thorough
def test_given_tokenizer_must_have_the_tokens_of_the_objective(text: Path, tmp_path: Path) -> None:
    run("gpt2-mini", "clm", text, tmp_path / "first")
    given = str(tmp_path / "first")
    small = {key: value for key, value in SMALL.items() if key != "vocab_size"}
    with pytest.raises(ValueError, match="first: the tokenizer has no mask token"):
        pretrain(
            "gpt2-mini", data=text, out=tmp_path / "second", objective="mlm", tokenizer=given,
            changes=[small], steps=1, quiet=True,
        )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("objective", SCRIPT.OBJECTIVES)
@pytest.mark.parametrize("name", CARDS)
def test_each_model_objective_pair_trains_or_has_a_reason(
    name: str, objective: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    out = tmp_path_factory.getbasetemp() / "table"
    out.mkdir(exist_ok=True)
    found = SCRIPT.tried(CARDS[name], objective, out)
    if found["result"] == "no":
        with pytest.raises(ValueError, match="does not support"):
            adapt_to_objective(CARDS[name], objective)
    else:
        assert found["same"]
        assert objective in OBJECTIVE_PRESETS
