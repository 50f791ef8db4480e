"""Names of files that are no UTF-8, as Linux allows: every command reads and writes such paths."""

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from toy_text import corpus

from unmask.cli import run

ODD = os.fsdecode(b"caf\xe9")
SMALL = (
    "architecture={d_model=16,d_ff=32,n_layers=1,n_heads=2}", "length=32", "batch_tokens=256",
    "vocab_size=200", "dev=0.1",
)  # fmt: skip

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="other systems have no such names of files"
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / ODD
    made.mkdir()
    (made / f"{ODD}.txt").write_text(corpus())
    rows = "".join(f"the sun is {w} {i},{w}\n" for i in range(10) for w in ("good", "bad"))
    (made / f"{ODD}.csv").write_text(f"text,label\n{rows}")
    return made


def does(capfd: pytest.CaptureFixture[str], *arguments: object, status: int = 0) -> str:
    """Run a command; return what it gave."""
    assert run([str(one) for one in arguments]) == status, arguments
    out, err = capfd.readouterr()
    assert "codec" not in err
    assert status == 0 or err.count("\n") == 1
    return err if status else out


def set_to(values: Sequence[str]) -> list[str]:
    return [word for value in values for word in ("--set", value)]


def test_every_command_takes_them(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    text, rows, made = folder / f"{ODD}.txt", folder / f"{ODD}.csv", folder / f"run{ODD}"
    tuned, part = folder / f"tuned{ODD}", folder / f"part{ODD}"
    new = ("--steps", 2, "--quiet")
    does(capfd, "pretrain", "bert-tiny", "--data", text, "--out", made, *new, *set_to(SMALL))
    assert json.loads((made / "unmask.json").read_text())["recipe"]["data"] == [str(text)]
    does(capfd, "pretrain", "--out", made, "--resume", "--quiet")
    fine = ("finetune", made, "--task", "classify", "--train", rows, "--epochs", 1, "--quiet")
    does(capfd, *fine, "--out", tuned)
    does(capfd, *fine, "--out", part, "--tune", "lora", "--dev", rows)
    for one in (tuned, part):
        does(capfd, "evaluate", one, "--data", rows, "--json")
        assert does(capfd, "predict", one, "--input", rows).count("\n") == 20
        does(capfd, "show", one, "--json")
        does(capfd, "convert", one, folder / f"{one.name}-converted")
    does(capfd, "evaluate", made, "--data", text)
    does(capfd, "fill", made, "the [MASK] is", "--json")
    does(capfd, "embed", made, "--input", text, "--out", folder / f"{ODD}.npy")
    does(capfd, "report", made)
    does(capfd, "prepare", text, "--out", folder / f"p{ODD}", "--vocab-size", 200, "--quiet")
    said = does(capfd, "convert", made, folder / f"p{ODD}", status=2)
    assert said.startswith(f"unmask: {folder}/p{ODD}: ".replace(ODD, r"caf\udce9"))
    assert "not UTF-8" in does(capfd, "predict", tuned, ODD, status=2)


def test_word_vectors_do(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("numba")
    pytest.importorskip("scipy")
    out, small = folder / f"v{ODD}", set_to(("objective.epochs=1", "architecture.d_model=8"))
    name = "word2vec-cbow-mini"
    does(capfd, "pretrain", name, "--data", folder / f"{ODD}.txt", "--out", out, "--quiet", *small)
    does(capfd, "neighbors", out, "the")
    does(capfd, "convert", out, folder / f"{ODD}.vec")
    does(capfd, "neighbors", folder / f"{ODD}.vec", "the")
