"""Activation checkpointing changes no number, and is refused where it cannot be."""

from pathlib import Path

import pytest
from toy_text import corpus

import unmask
from tests.golden import golden_runs
from unmask.cli.main import run

RUNS = [
    name
    for name, one in golden_runs.RUNS.items()
    if one.steps and not one.finetune and name not in ("lstm", "elmo", "ulmfit", "skip-thoughts")
]
QUICK = ("bert", "t5")
WITHOUT_LAYERS = ("lstm-mini", "elmo-mini")


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in QUICK else pytest.mark.thorough) for n in RUNS]
)
@pytest.mark.filterwarnings("ignore")  # of four steps on a small text much may be said
def test_run_with_checkpointed_activations_is_the_same(name: str, tmp_path: Path) -> None:
    golden, text = golden_runs.RUNS[name], tmp_path / "text.txt"
    text.write_text(corpus(40))
    changes = golden_runs._changes(golden) | {"log_every": 1}
    for i, again in enumerate((False, True)):
        unmask.pretrain(
            golden.card, data=text, out=tmp_path / str(i), steps=4, changes=[changes], threads=1,
            quiet=True, checkpoint_activations=again,
        )  # fmt: skip
    for file in ("log.jsonl", "model.safetensors"):
        assert (tmp_path / "0" / file).read_bytes() == (tmp_path / "1" / file).read_bytes()


@pytest.mark.parametrize("model", WITHOUT_LAYERS)
def test_model_without_layers_to_compute_again_is_refused(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = tmp_path / "text.txt"
    text.write_text(corpus(40))
    command = ["pretrain", model, "--data", str(text), "--steps", "2", "--quiet"]
    assert run([*command, "--checkpoint-activations", "--out", str(tmp_path / "run")]) == 2
    assert "--checkpoint-activations: this model has no" in capsys.readouterr().err


def test_layers_that_are_averaged_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = tmp_path / "text.txt"
    text.write_text(corpus(40))
    command = ["pretrain", "gpt-bert-mini", "--data", str(text), "--steps", "2", "--quiet"]
    assert run([*command, "--checkpoint-activations", "--out", str(tmp_path / "run")]) == 2
    assert "(DenseFormer) keep their activations" in capsys.readouterr().err
