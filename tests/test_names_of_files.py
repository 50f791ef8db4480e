"""Names of files that are no UTF-8, as Linux allows: every command reads and writes such paths."""

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from toy_text import corpus

from unmask.cli.main import run

ODD = os.fsdecode(b"caf\xe9")
SMALL = (
    "architecture={d_model=16,d_ff=32,n_layers=1,n_heads=2}", "sequence_length=32",
    "batch_tokens=256",
    "vocab_size=200", "dev_fraction=0.1",
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


def run_command(capfd: pytest.CaptureFixture[str], *arguments: object, status: int = 0) -> str:
    """Run a command; return what it gave."""
    assert run([str(one) for one in arguments]) == status, arguments
    out, err = capfd.readouterr()
    assert "codec" not in err
    assert status == 0 or err.count("\n") == 1
    return err if status else out


def set_to(values: Sequence[str]) -> list[str]:
    return [word for value in values for word in ("--set", value)]


def test_every_command_accepts_unusual_file_names(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    text, rows, made = folder / f"{ODD}.txt", folder / f"{ODD}.csv", folder / f"run{ODD}"
    tuned, part = folder / f"tuned{ODD}", folder / f"part{ODD}"
    new = ("--steps", 2, "--quiet")
    run_command(capfd, "pretrain", "bert-tiny", "--data", text, "--out", made, *new, *set_to(SMALL))
    assert json.loads((made / "unmask.json").read_text())["recipe"]["data"] == [str(text)]
    run_command(capfd, "pretrain", "--out", made, "--resume", "--quiet")
    fine = ("finetune", made, "--task", "classify", "--train", rows, "--epochs", 1, "--quiet")
    run_command(capfd, *fine, "--out", tuned)
    run_command(capfd, *fine, "--out", part, "--tune", "lora", "--dev", rows)
    for one in (tuned, part):
        run_command(capfd, "evaluate", one, "--data", rows, "--json")
        assert run_command(capfd, "predict", one, "--input", rows).count("\n") == 20
        run_command(capfd, "show", one, "--json")
        run_command(capfd, "convert", one, folder / f"{one.name}-converted")
    run_command(capfd, "evaluate", made, "--data", text)
    run_command(capfd, "fill", made, "the [MASK] is", "--json")
    run_command(capfd, "embed", made, "--input", text, "--out", folder / f"{ODD}.npy")
    run_command(capfd, "report", made)
    run_command(capfd, "prepare", text, "--out", folder / f"p{ODD}", "--vocab-size", 200, "--quiet")
    output = run_command(capfd, "convert", made, folder / f"p{ODD}", status=2)
    assert output.startswith(f"unmask: {folder}/p{ODD}: ".replace(ODD, r"caf\udce9"))
    assert "not UTF-8" in run_command(capfd, "predict", tuned, ODD, status=2)


SUITE = """
name = "toys"
[[benchmarks]]
name = "Good or bad"
task = "classify"
files = [{train = "café.csv", dev = "café.csv", text = ["text"], label = "label"}]
"""
STUDY = """
question = "How much should be hidden?"
tasks = "café.toml"
tokens = 512
rows = 20
epochs = 1
seeds = 1
changes = ["batch_tokens=256", "sequence_length=32", "dev_fraction=0.1"]
cells = [{name = "little", model = "bert-tiny"}]
"""


@pytest.mark.thorough
def test_suites_and_studies_accept_unusual_file_names(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    text = folder / f"{ODD}.txt"
    (folder / "café.csv").write_bytes((folder / f"{ODD}.csv").read_bytes())  # TOML is UTF-8
    for name in ("café.toml", f"{ODD}.toml"):
        (folder / name).write_text(SUITE, encoding="utf-8")
    (folder / f"study{ODD}.toml").write_text(STUDY, encoding="utf-8")
    made, out = folder / f"run{ODD}", folder / f"suite{ODD}"
    new = ("--steps", 2, "--quiet")
    run_command(capfd, "pretrain", "bert-tiny", "--data", text, "--out", made, *new, *set_to(SMALL))
    suite = ("finetune", made, "--tasks", folder / f"{ODD}.toml", "--data", folder, "--epochs", 1)
    run_command(capfd, *suite, "--out", out, "--quiet")
    run_command(capfd, "finetune", "--out", out, "--resume", "--quiet")
    study = ("study", folder / f"study{ODD}.toml", "--data", text, "--tasks-data", folder)
    run_command(capfd, *study, "--out", folder / f"cells{ODD}", "--quiet")
    run_command(capfd, *study, "--out", folder / f"cells{ODD}", "--resume", "--quiet", "--json")


def test_align_accepts_unusual_file_names(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(60, 8))
    prediction_order, _ = np.linalg.qr(rng.normal(size=(8, 8)))
    for name, rows in (("a", vectors), ("b", vectors @ prediction_order)):
        words = (f"{name}{i} " + " ".join(f"{x:.5f}" for x in row) for i, row in enumerate(rows))
        (folder / f"{name}{ODD}.vec").write_text("60 8\n" + "\n".join(words) + "\n")
    pairs, out = folder / f"pairs{ODD}", folder / f"mapped{ODD}"
    pairs.write_text("".join(f"a{i}\tb{i}\n" for i in range(60)))
    both = [folder / f"{name}{ODD}.vec" for name in "ab"]
    run_command(
        capfd, "align", *both, "--dictionary", pairs, "--seed-pairs", 40, "--out", out, "--quiet"
    )
    assert json.loads((out / "align.json").read_text())
    run_command(capfd, "neighbors", out / "source.vec", "a1")
    run_command(
        capfd, "align", *both, "--anchors", pairs, "--semantic-shift", 3, "--quiet", status=2
    )


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "name", ["a b", "it's", 'say "so"', "two\nlines", "a;b|c&d", "[x]*?", "%s{0}"]
)
def test_names_with_special_characters_are_names(
    name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = "".join(f"the sun is {w} {i},{w}\n" for i in range(10) for w in ("good", "bad"))
    Path(f"{name}.csv").write_text(f"text,label\n{rows}")
    run_of = ("finetune", "bert-tiny", "--task", "classify", "--train", f"{name}.csv")
    run_command(capfd, *run_of, "--out", name, "--epochs", 1, "--max-length", 16, "--quiet")
    assert run_command(capfd, "predict", name, "--input", f"{name}.csv").count("\n") == 20
    run_command(capfd, "show", name)
    run_command(capfd, "report", name)
    lacking = run_command(capfd, "predict", name, "--input", f"no {name}.csv", status=2)
    assert lacking.startswith("unmask: no ")


@pytest.mark.thorough
def test_word_vector_commands_accept_unusual_file_names(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("numba")
    out, small = folder / f"v{ODD}", set_to(("objective.epochs=1", "architecture.d_model=8"))
    name = "word2vec-cbow-mini"
    run_command(
        capfd, "pretrain", name, "--data", folder / f"{ODD}.txt", "--out", out, "--quiet", *small
    )
    run_command(capfd, "neighbors", out, "the")
    run_command(capfd, "convert", out, folder / f"{ODD}.vec")
    run_command(capfd, "neighbors", folder / f"{ODD}.vec", "the")
