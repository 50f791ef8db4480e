"""What there is to know of a model."""

from pathlib import Path

import pytest
from toy_text import corpus

from unmask.jobs.catalogue.describe import describe, format_description, preset_line, preset_to_dict
from unmask.jobs.pretrain.pretrain import pretrain
from unmask.zoo.catalogue import MODELS


def test_preset_is_described_with_its_costs() -> None:
    facts = describe("bert-base-uncased")
    assert facts["parameters"] == 110_106_428
    assert facts["memory_bytes"]["inference_float32"] == 4 * 110_106_428
    # Kaplan et al. 2020: six for each of the 85 million weights of the blocks, and the rest more.
    assert 6 * 85e6 < facts["flops_per_token"] < 6 * 130e6


def test_training_memory_counts_unsaved_parameters() -> None:
    facts = describe("canine-s-mini")
    scores = 8192 * (256 + 1)
    assert facts["memory_bytes"]["training"] == 18 * (facts["parameters"] + scores)


@pytest.mark.sample(13)
@pytest.mark.quick(*{card.family: name for name, card in MODELS.items()}.values())
@pytest.mark.parametrize("name", MODELS)
def test_every_preset_has_a_summary_line_and_a_page(name: str) -> None:
    preset = MODELS[name]
    assert preset_line(preset).startswith(f"{name} ")
    assert len(preset_line(preset)) < 80
    facts = describe(name)
    assert facts.keys() > preset_to_dict(preset).keys()
    lines = list(format_description(facts))
    assert lines[0] == name
    assert f"{preset.n_parameters:,}" in "\n".join(lines)
    assert not any("\u202f" in line for line in lines)


def test_page_omits_costs_of_tables_without_network() -> None:
    pages = {
        name: list(format_description(describe(name)))
        for name in ("lstm-medium", "glove-mini", "t5-mini")
    }
    fields = {
        name: {line.split()[0] for line in page if line.startswith("  ")}
        for name, page in pages.items()
    }
    transformers = {
        "n_heads", "norm", "norm_placement", "activation", "attention_dropout", "attention_window",
    }  # fmt: skip
    assert transformers <= fields["t5-mini"]
    assert not fields["lstm-medium"] & transformers
    assert {"d_ff", "dropout", "cell"} <= fields["lstm-medium"]
    assert not fields["glove-mini"] & {*transformers, "d_ff", "dropout", "cell"}
    assert any(line.startswith("to train") for line in pages["lstm-medium"])
    assert not any("to train" in line for line in pages["glove-mini"])


@pytest.mark.thorough
def test_run_is_described_by_its_own_recipe(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(corpus())
    pretrain(
        "bert-tiny", data=tmp_path / "text.txt", out=tmp_path / "run", steps=2, quiet=True,
        changes=[
            "architecture={d_model=32,d_ff=64,n_heads=2}", "vocab_size=300", "sequence_length=32",
            "batch_tokens=256", "learning_rate=0.002", "dev_fraction=0.1",
            "objective.select.rate=0.4",
        ],
    )  # fmt: skip
    facts = describe(str(tmp_path / "run"))
    assert (facts["length"], facts["batch_tokens"], facts["rate"]) == (32, 256, 0.002)
    assert facts["training"]["steps"] == 2
    assert "learning_rate" not in facts["training"]
    assert "rate=0.4" in next(
        line for line in format_description(facts) if line.startswith("objective")
    )


def test_unknown_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"unknown model 'gpt2-midi'; did you mean 'gpt2-mini'\?"):
        describe("gpt2-midi")
    with pytest.raises(FileNotFoundError, match="runs/none: no such folder"):
        describe("runs/none")


def test_tokenizer_of_a_folder_is_its_own() -> None:
    found = describe("unmask-mini-en")
    assert found["tokenizer"] == {"algorithm": "WordPiece", "vocab_size": 8192}
    assert any("WordPiece of 8,192 tokens" in line for line in format_description(found))
    assert describe("bert-mini")["tokenizer"]["vocabulary"]["kind"] == "WordPiece"
