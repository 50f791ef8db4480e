"""Runs of `unmask prefer` that are killed or stopped go on to equal weights."""

import os
import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kills import check, tree
from safetensors.numpy import load_file, save_file
from tiny_runs import (
    LABELED,
    PAIRS,
    PROMPTS,
    make_base,
    make_classifier,
    prefer,
    weights,
    write_rows,
)
from trials import Trials

from unmask.preferences.config import make_prefer_config
from unmask.preferences.job import run as job
from unmask.preferences.options import PreferOptions
from unmask.training.log import TrainingLog


class Killed(BaseException):
    """Ends a run where it is, as a signal would."""


PPO = "ppo:epochs=2,minibatches=2"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("home")
    make_base("gpt2", folder / "base")
    make_classifier(folder)
    for name, rows in (("pairs", PAIRS), ("labeled", LABELED), ("prompts", PROMPTS)):
        write_rows(folder / f"{name}.jsonl", rows)
    return folder


def options(home: Path, method: str, **more: Any) -> dict[str, Any]:
    """Return the options of a run of three batches, with a checkpoint after each."""
    is_online = method.startswith(("ppo", "rloo", "best"))
    name = "prompts" if is_online else "labeled" if method == "kto" else "pairs"
    found: dict[str, Any] = {
        "train": home / f"{name}.jsonl", "dev": home / f"{name}.jsonl", "method": method,
        "max_length": 96, "max_response_length": 5, "batch_size": 4, "evaluate_every": 1,
        "dev_prompts": 2, "learning_rate": 1e-2,
    }  # fmt: skip
    if is_online:
        found["reward"] = f"{home / 'classifier'}:good"
    return found | more


def words(home: Path, out: Path, method: str, **more: Any) -> list[object]:
    """Return the same options as words of the command line."""
    given = options(home, method, **more)
    named = ((f"--{name.replace('_', '-')}", value) for name, value in given.items())
    return [home / "base", *(word for pair in named for word in pair), "--out", out]


def same_weights(a: Path, b: Path) -> bool:
    one, other = weights(a), weights(b)
    return one.keys() == other.keys() and all(np.array_equal(one[k], other[k]) for k in one)


METHODS = {
    "dpo": {"reference": "cache"}, "kto": {}, PPO: {}, "rloo:responses=2": {"tune": "lora:rank=2"},
}  # fmt: skip


@pytest.mark.quick("dpo", PPO)
@pytest.mark.thorough
@pytest.mark.parametrize("method", METHODS)
def test_a_run_that_is_killed_at_any_write_ends_alike(
    method: str, home: Path, tmp_path: Path, trials: Trials
) -> None:
    def run(_: Path, out: Path, again: bool) -> object:
        given = options(home, method, **METHODS[method])
        base = home / "base"
        config = make_prefer_config(PreferOptions(base, out=out, **given))
        return job.run_preferences(config, out, resume=again and out.exists())

    def some(instants: list[str]) -> set[int]:
        return {*range(0, len(instants), max(len(instants) // 8, 1)), len(instants) - 1}

    check(run, home, tmp_path / "out", some, trials)


@pytest.fixture
def whole(home: Path, tmp_path: Path) -> Path:
    """Return the folder of a run that was never interrupted."""
    assert prefer(*words(home, tmp_path / "whole", PPO), "--quiet") == 0
    return tmp_path / "whole"


@pytest.mark.thorough
def test_a_run_that_is_killed_within_a_batch_of_responses_ends_alike(
    home: Path, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"
    child = os.fork()
    if child == 0:  # it is killed in the second of the four steps of the second batch
        log = TrainingLog.__call__

        def die(self: TrainingLog, report: Any) -> None:
            log(self, report)
            if report.step == 6:
                os.kill(os.getpid(), signal.SIGKILL)

        TrainingLog.__call__ = die
        prefer(*words(home, out, PPO), "--quiet")
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert sorted(p.name for p in (out / "checkpoints").glob("step-*"))[-1].endswith("4")
    less_memory = "unmask.preferences.job.prepare.max_micro_batch_tokens"
    monkeypatch.setattr(less_memory, lambda *_: 40)  # what fits changes no result
    assert prefer(*words(home, out, PPO), "--resume", "--quiet") == 0
    assert same_weights(out, whole)
    assert (out / "responses.jsonl").read_bytes() == (whole / "responses.jsonl").read_bytes()
    assert (out / "log.jsonl").read_bytes() == (whole / "log.jsonl").read_bytes()


@pytest.mark.thorough
def test_ctrl_c_ends_where_a_batch_ends(
    home: Path, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    log, out = TrainingLog.__call__, tmp_path / "run"

    def press_ctrl_c(self: TrainingLog, report: Any) -> None:
        log(self, report)
        if report.step == 2:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(TrainingLog, "__call__", press_ctrl_c)
    assert prefer(*words(home, out, PPO), "--quiet") == 130
    assert capsys.readouterr().err == f"unmask: {out}: stopped; continue with --resume\n"
    (saved,) = (out / "checkpoints").glob("step-*")
    assert saved.name.endswith("4")
    assert not (out / "model.safetensors").exists()
    assert prefer(*words(home, out, PPO), "--resume", "--quiet") == 0
    assert same_weights(out, whole)


@pytest.fixture(scope="module")
def killed(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a run that was killed after its first step."""
    log, out = TrainingLog.__call__, tmp_path_factory.mktemp("killed") / "run"

    def die(self: TrainingLog, report: Any) -> None:
        log(self, report)
        raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TrainingLog, "__call__", die)
        with pytest.raises(Killed):
            prefer(*words(home, out, "dpo", evaluate_every=2), "--quiet")
    return out


@pytest.fixture
def begun(killed: Path, tmp_path: Path) -> Path:
    """Return a copy of that folder."""
    return shutil.copytree(killed, tmp_path / "run")


CHANGES = {
    "learning_rate": ("1e-3", "this run has learning_rate = 0.01, got 0.001"),
    "method": ("dpo:beta=0.2", "this run has method"),
    "seed": ("1", "this run has seed = 0, got 1"),
    "tune": ("lora", "this run has tune"),
    "judge": ("{home}/classifier:good", "this run has judge = None"),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_a_run_does_not_go_on_with_other_options(
    name: str, home: Path, begun: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    value, message = CHANGES[name]
    given = words(home, begun, "dpo", evaluate_every=2)
    before = tree(begun)
    # The last of two equal options counts.
    changed = f"--{name.replace('_', '-')}", value.format(home=home)
    assert prefer(*given, *changed, "--resume") == 2
    assert message in _one_line(capsys)
    assert tree(begun) == before


def _one_line(capsys: pytest.CaptureFixture[str]) -> str:
    err = capsys.readouterr().err
    assert err.count("\n") == 1, err
    return err


def test_a_run_does_not_go_on_with_other_data_or_another_model(
    home: Path, begun: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = words(home, begun, "dpo", evaluate_every=2)
    before, rows = tree(begun), home / "pairs.jsonl"
    kept = rows.read_bytes()
    write_rows(rows, [{**row, "chosen": row["chosen"] + " sees"} for row in PAIRS])
    assert prefer(*given, "--resume") == 2
    rows.write_bytes(kept)
    assert "the data of this run changed since it began" in _one_line(capsys)
    model = home / "base" / "model.safetensors"
    kept = model.read_bytes()
    model.write_bytes(kept[:-1] + bytes([kept[-1] ^ 1]))
    assert prefer(*given, "--resume") == 2
    model.write_bytes(kept)
    assert "the model of this run changed since it began" in _one_line(capsys)
    assert prefer(*given) == 2
    assert "holds a run already" in _one_line(capsys)
    assert tree(begun) == before
    shutil.copytree(home / "base", tmp_path / "other")
    assert prefer(tmp_path / "other", *given[1:], "--resume") == 2
    assert "this run has base" in _one_line(capsys)
    assert prefer(*given[:-1], tmp_path / "nothing", "--resume") == 2
    assert "has no run to continue" in _one_line(capsys)
    assert prefer(*given, "--resume", "--quiet") == 0
    assert prefer(*given, "--resume", "--quiet") == 0  # a finished run is shown again


def test_an_option_that_is_left_out_is_noticed(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def die(self: TrainingLog, report: Any) -> None:
        raise Killed

    out, text = tmp_path / "run", tmp_path / "text.txt"
    text.write_text("the cat runs\n\na dog sees the fox\n")
    given = words(home, out, PPO, judge=f"{home / 'classifier'}:bad", text=text)
    with monkeypatch.context() as patch:
        patch.setattr(TrainingLog, "__call__", die)
        with pytest.raises(Killed):
            prefer(*given, "--quiet")
    for option in ("--judge", "--text"):
        i = given.index(option)
        assert prefer(*given[:i], *given[i + 2 :], "--resume") == 2
        assert f"this run has {option[2:]} = " in _one_line(capsys)
    text.write_text("the cat runs\n\na dog sees the king\n")
    assert prefer(*given, "--resume") == 2
    assert "the text of this run changed" in _one_line(capsys)


@pytest.mark.thorough
def test_a_changed_reward_is_noticed(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def die(self: TrainingLog, report: Any) -> None:
        raise Killed

    out = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(TrainingLog, "__call__", die)
        with pytest.raises(Killed):
            prefer(*words(home, out, PPO), "--quiet")
    given = words(home, out, PPO)
    make_classifier(tmp_path, seed=1)
    capsys.readouterr()
    (home / "classifier").rename(home / "kept")
    shutil.copytree(tmp_path / "classifier", home / "classifier")
    assert prefer(*given, "--resume") == 2
    shutil.rmtree(home / "classifier")
    (home / "kept").rename(home / "classifier")
    assert "the reward or judge of this run changed" in _one_line(capsys)


@pytest.mark.thorough
@pytest.mark.parametrize("what", ["changed", "cut", "other"])
def test_scores_of_the_reference_are_computed_again_where_they_are_not_those_of_the_run(
    what: str, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compute, out, log = tmp_path / "compute", tmp_path / "run", TrainingLog.__call__
    assert prefer(*words(home, compute, "dpo"), "--quiet") == 0

    def die(self: TrainingLog, report: Any) -> None:
        log(self, report)
        raise Killed

    given = words(home, out, "dpo", reference="cache")
    with monkeypatch.context() as patch:
        patch.setattr(TrainingLog, "__call__", die)
        with pytest.raises(Killed):
            prefer(*given, "--quiet")
    path, other = (out / f"reference-{name}.safetensors" for name in ("train", "dev"))
    data, known = path.read_bytes(), load_file(path)
    if what == "cut":
        path.write_bytes(data[:-7])
    elif what == "other":
        shutil.copy(other, path)
    else:
        key = known["key"].copy()
        key[0] ^= 1
        save_file({"key": key, "log_probabilities": known["log_probabilities"] + 1}, path)
    assert prefer(*given, "--resume", "--quiet") == 0
    assert same_weights(out, compute)  # scores are kept as float32, as they are computed
    for name, tensor in load_file(path).items():
        np.testing.assert_array_equal(tensor, known[name])
