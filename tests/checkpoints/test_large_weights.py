"""Weights that lie on disk while a model is converted."""

import errno
import os
from pathlib import Path

import pytest
import torch
from small_models import CARDS, make

from unmask.checkpoints import tensors
from unmask.checkpoints.huggingface.read import load_folder
from unmask.checkpoints.tensors import large_weights_on_disk
from unmask.cli.main import run


@pytest.mark.parametrize("format", ["huggingface", "unmask"])
@pytest.mark.parametrize("family", list(CARDS))
def test_converted_by_way_of_the_disk_the_bytes_are_the_same(family, format, tmp_path, monkeypatch):
    make(family, tmp_path / "model")
    made: list[bytes] = []
    for name, limit in {"memory": 1 << 30, "disk": 0}.items():
        monkeypatch.setattr(tensors, "_MAX_BYTES_IN_MEMORY", limit)
        words = ["convert", str(tmp_path / "model"), str(tmp_path / name), "--to", format]
        assert run(words) == 0
        made.append((tmp_path / name / "model.safetensors").read_bytes())
    assert made[0] == made[1]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["disk", "memory", "model"]


def test_what_is_read_within_lies_on_disk_beyond_a_limit(tmp_path, monkeypatch):
    make("bert", tmp_path / "model")
    whole = {n: p.detach() for n, p in load_folder(tmp_path / "model").model.named_parameters()}
    sizes = [x.nbytes for x in whole.values()]
    monkeypatch.setattr(tensors, "_MAX_BYTES_IN_MEMORY", sum(sizes) // 2)
    with large_weights_on_disk(tmp_path):
        model = load_folder(tmp_path / "model").model
    mapped = [p for p in model.parameters() if p.is_shared()]
    assert sum(sizes) / 4 < sum(p.nbytes for p in mapped) < sum(sizes) * 3 / 4
    with torch.no_grad():
        mapped[0].add_(1)  # they are weights like others
        mapped[0].sub_(1)
    for name, parameter in model.named_parameters():
        assert torch.allclose(parameter, whole[name], atol=1e-6)
    after = load_folder(tmp_path / "model").model
    assert not any(p.is_shared() for p in after.parameters())


@pytest.mark.parametrize(
    ("module", "name", "error", "said"),
    [
        (os, "posix_fallocate", OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), "no space left"),
        (torch, "from_file", RuntimeError("unable to mmap"), "cannot be mapped into memory"),
    ],
)
def test_a_disk_that_cannot_hold_them_is_named_and_nothing_is_left(
    module, name, error, said, tmp_path, monkeypatch, capsys
):
    def fail(*_, **__):
        raise error

    make("gpt2", tmp_path / "model")
    monkeypatch.setattr(tensors, "_MAX_BYTES_IN_MEMORY", 0)
    monkeypatch.setattr(module, name, fail)
    (tmp_path / "there").mkdir()
    capsys.readouterr()
    assert run(["convert", str(tmp_path / "model"), str(tmp_path / "there" / "new")]) == 2
    shown = capsys.readouterr().err
    assert shown.count("\n") == 1
    assert str(tmp_path / "there") in shown
    assert said in shown
    assert not list(Path(tmp_path / "there").iterdir())
