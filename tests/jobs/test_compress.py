"""A compressed model's folder: smaller, opened by everything, and refused where it is damaged."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from small_models import make

import unmask
from unmask.checkpoints.packed import PACKED_RECORD, PACKED_WEIGHTS
from unmask.cli.main import run
from unmask.compression.prune import layer_matrices
from unmask.compression.quantize import Quantize

METHODS = ("int8", "int4", "int3", "int2", "quantize:bits=1.58", "quantize:bits=1", "prune")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make("bert", tmp_path / "model")
    return tmp_path / "model"


@pytest.mark.sample(7)
@pytest.mark.parametrize("family", ["bert", "gpt2", "t5", "bart"])
@pytest.mark.parametrize("method", METHODS)
def test_compressed_model_is_smaller_with_decoded_weights(
    family: str, method: str, tmp_path: Path
) -> None:
    _, before = make(family, tmp_path / "model")
    result = unmask.compress(tmp_path / "model", method=[method], out=tmp_path / "small")
    assert result.bytes_after < result.bytes_before
    assert not (tmp_path / "small" / "model.safetensors").exists()
    loaded = unmask.load(tmp_path / "small")
    assert loaded.loaded_model.missing == ()
    mine, theirs = loaded.model.own_weights(), before.model.own_weights()
    assert mine.keys() == theirs.keys()
    if method == "prune":
        kept = {name: w != 0 for name, w in mine.items()}
        assert all(torch.equal(w[kept[n]], theirs[n][kept[n]]) for n, w in mine.items())
        shares = [float((w == 0).float().mean()) for w in layer_matrices(loaded.model).values()]
        assert sum(shares) / len(shares) > 0.4
        return
    if method == "int8":  # at most half a step of 127 away
        for name, w in mine.items():
            assert (w - theirs[name]).abs().max() <= theirs[name].abs().max() / 127
    # What is written again as floats, for other libraries, are the same weights.
    loaded.save(tmp_path / "again")
    again = unmask.load(tmp_path / "again").model.own_weights()
    assert all(torch.equal(again[name], w) for name, w in mine.items())


def test_two_methods_in_sequence(folder: Path, tmp_path: Path) -> None:
    unmask.compress(folder, method=["prune:fraction=0.5", "int8"], out=tmp_path / "small")
    facts = json.loads((tmp_path / "small" / "unmask.json").read_text())
    assert [one["method"] for one in facts["compression"]] == ["prune", "quantize"]
    model = unmask.load(tmp_path / "small").model
    assert all(float((w == 0).float().mean()) > 0.4 for w in layer_matrices(model).values())
    note = unmask.describe(str(tmp_path / "small"))["note"]
    assert "compressed by prune (fraction 0.5" in note
    assert "open in Unmask alone" in (tmp_path / "small" / "README.md").read_text()


def test_earlier_compressions_are_recorded(folder: Path, tmp_path: Path) -> None:
    unmask.compress(folder, method=["prune:fraction=0.3"], out=tmp_path / "first")
    unmask.compress(tmp_path / "first", method="int8", out=tmp_path / "second")
    note = unmask.describe(str(tmp_path / "second"))["note"]
    assert "prune (fraction 0.3" in note
    assert "quantize (bits 8" in note


def test_open_model_is_not_changed(folder: Path, tmp_path: Path) -> None:
    loaded = unmask.load(folder)
    before = {name: w.clone() for name, w in loaded.model.own_weights().items()}
    unmask.compress(loaded, method=["prune:fraction=0.9"], out=tmp_path / "small")
    assert all(torch.equal(w, before[name]) for name, w in loaded.model.own_weights().items())


def test_command_prints_sizes(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["compress", str(folder), "--method", "int4", "--out", str(tmp_path / "a")]) == 0
    assert "times smaller" in capsys.readouterr().out
    arguments = ["compress", str(folder), "--method", "int8", "--out", str(tmp_path / "b")]
    assert run([*arguments, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["bytes_after"] < printed["bytes_before"]
    assert run(["fill", str(tmp_path / "b"), "the [MASK]"]) == 0


@pytest.mark.trials("mistakes")
@pytest.mark.parametrize(
    ("methods", "message"),
    [
        ([], "no method"),
        (
            ["smaller"],
            "method must be one of int8, .*quantize, gptq, prune, .*, got 'smaller'",
        ),
        (["quantize:bits=5"], "bits must be one of"),
        (["int8", "prune"], "quantize must be the last method"),
        (["prune:fraction=2"], "fraction must be from 0 to below 1"),
        (["quantize:depth=3"], "depth"),
    ],
)
def test_mistakes_are_one_line_and_leave_nothing(
    methods: list[str], message: str, folder: Path, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=message):
        unmask.compress(folder, method=methods, out=tmp_path / "small")
    assert not (tmp_path / "small").exists()


def damaged(folder: Path, change: Any) -> None:
    path = folder / PACKED_RECORD
    record = json.loads(path.read_text())
    change(record["tensors"])
    path.write_text(json.dumps(record))
    (folder / "unmask.json").unlink()  # which knows the file's checksum


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t[min(t)].update(levels=16), "has the shape"),
        (lambda t: t[min(t)].update(shape=[10**9, 10**6]), "has the shape"),
        (lambda t: t[min(t)].update(shape=[]), "shape must be of sizes from 1"),
        (lambda t: t[min(t)].update(kind="Pickle"), "kind must be one of"),
        (lambda t: t[min(t)].update(levels=7), "levels"),
        (lambda t: t.update(more=t[min(t)]), "no tensor more:codes"),
        (lambda t: t.pop(min(t)), "the weights lack 1 tensors"),
    ],
)
def test_record_contradicting_the_tensors_is_refused(
    change: Any, message: str, folder: Path, tmp_path: Path
) -> None:
    unmask.compress(folder, method=["int8"], out=tmp_path / "small")
    damaged(tmp_path / "small", change)
    with pytest.raises(ValueError, match=message):
        unmask.load(tmp_path / "small")


def test_flipped_bit_is_detected(folder: Path, tmp_path: Path) -> None:
    unmask.compress(folder, method=[Quantize(bits=4.0)], out=tmp_path / "small")
    path = tmp_path / "small" / PACKED_WEIGHTS
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)
    with pytest.raises(ValueError, match="truncated or damaged"):
        unmask.load(tmp_path / "small")
