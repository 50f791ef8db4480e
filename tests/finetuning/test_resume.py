"""Fine-tuning that was killed goes on and gives the same bits."""

import json
import os
import signal
from pathlib import Path

import pytest
import torch
import toy_models as toy

from unmask.finetuning import single as tuning_module
from unmask.finetuning.tune import finetune
from unmask.finetuning.tuned import Tuned

FAST = {"epochs": 2.0, "batch": 16, "rate": 3e-3, "terminal": None, "precision": "float32"}


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    return {
        "train": toy.write(tmp_path / "train.tsv", toy.texts(96, 1)),
        "dev": toy.write(tmp_path / "dev.tsv", toy.texts(40, 2)),
    }


def quick(base: Path | str, files: dict[str, Path], **more) -> Tuned:
    return finetune(base, **({"task": "classify", "device": "cpu"} | files | FAST | more))


class Killed(Exception):
    """The process is gone."""


def killed(files, base: Path, out: Path, monkeypatch, at: int, **more) -> None:
    """Fine-tune, and die right after the checkpoint numbered `at` was saved."""
    save, n = tuning_module._save, 0

    def save_and_die(*args, **options):
        nonlocal n
        save(*args, **options)
        n += 1
        if n == at:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(tuning_module, "_save", save_and_die)
        with pytest.raises(Killed):
            quick(base, files, out=out, **more)


@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_run_that_was_killed_gives_the_same_bits(at, files, tmp_path, monkeypatch) -> None:
    base = toy.pretrained("bert", tmp_path / "base")
    more = {"seeds": 2, "epochs": 2.0}
    whole = quick(base, files, out=tmp_path / "whole", **more)
    out = tmp_path / "killed"
    killed(files, base, out, monkeypatch, at, **more)
    assert json.loads((out / "unmask.json").read_text())["finished"] is False
    with (out / "seed-0" / "log.jsonl").open("a") as log:
        log.write('{"step": 999}\n')  # what was logged after the checkpoint
    again = quick(base, files, out=out, resume=True, **more)
    assert again.scored == whole.scored
    for name, tensor in whole.opened.model.weights().items():
        assert torch.equal(tensor, again.opened.model.weights()[name]), name
    for name in ("log.jsonl", "seed-0/log.jsonl", "seed-1/log.jsonl", "results.json"):
        assert (out / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert not list(out.rglob("checkpoints"))
    done = quick(base, files, out=out, resume=True, **more)
    assert done.scored == whole.scored
    assert done.best == whole.best
    assert done.notes == whole.notes
    assert done.predict(["a good cat"]) == again.predict(["a good cat"])


def test_ctrl_c_ends_a_run_that_can_be_resumed(files, tmp_path, monkeypatch) -> None:
    base = toy.pretrained("bert", tmp_path / "base")
    whole = quick(base, files, out=tmp_path / "whole")
    train = tuning_module.loop.train

    def interrupted(run):
        for report in train(run):
            if report.step == 7:
                os.kill(os.getpid(), signal.SIGINT)
            yield report

    with monkeypatch.context() as patch:
        patch.setattr(tuning_module.loop, "train", interrupted)
        with pytest.raises(KeyboardInterrupt):
            quick(base, files, out=tmp_path / "out")
    again = quick(base, files, out=tmp_path / "out", resume=True)
    assert again.scored == whole.scored
    assert (tmp_path / "out" / "log.jsonl").read_bytes() == (
        tmp_path / "whole" / "log.jsonl"
    ).read_bytes()


def test_a_damaged_checkpoint_is_passed_over(files, tmp_path, monkeypatch) -> None:
    base = toy.pretrained("bert", tmp_path / "base")
    whole = quick(base, files, out=tmp_path / "whole", epochs=4.0)
    out = tmp_path / "out"
    killed(files, base, out, monkeypatch, 3, epochs=4.0)
    newest = sorted((out / "checkpoints").iterdir())[-1]
    path = newest / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-10])
    assert quick(base, files, out=out, resume=True, epochs=4.0).scored == whole.scored


def test_a_run_is_not_resumed_with_other_data_or_options(files, tmp_path, monkeypatch) -> None:
    base = toy.pretrained("bert", tmp_path / "base")
    out = tmp_path / "out"
    killed(files, base, out, monkeypatch, 1)
    with pytest.raises(ValueError, match="holds a run already; resume it"):
        quick(base, files, out=out)
    with pytest.raises(ValueError, match=r"this run has rate = 0\.003, not 0\.001"):
        quick(base, files, out=out, resume=True, rate=1e-3)
    toy.write(files["dev"], toy.texts(40, 3))
    with pytest.raises(ValueError, match="the dev data have changed"):
        quick(base, files, out=out, resume=True)
