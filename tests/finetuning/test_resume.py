"""Fine-tuning that was killed resumes and gives the same bits."""

import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
import toy_models as toy
from small_models import make

from unmask.checkpoints.huggingface.read import load_folder
from unmask.checkpoints.tensors import read_tensors
from unmask.cli import main as cli
from unmask.finetuning import train_run as tuning_module
from unmask.finetuning.results.finetuned_model import FinetunedModel
from unmask.jobs.finetune import finetune, resume_finetuning
from unmask.training.log import TrainingLog

FAST = {
    "epochs": 2.0,
    "batch_size": 16,
    "learning_rate": 3e-3,
    "terminal": None,
    "precision": "float32",
}


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    return {
        "train": toy.write(tmp_path / "train.tsv", toy.texts(96, 1)),
        "dev": toy.write(tmp_path / "dev.tsv", toy.texts(40, 2)),
    }


def quick(base, files: dict[str, Path], **more) -> FinetunedModel:
    return finetune(base, **({"task": "classify", "device": "cpu"} | files | FAST | more))


class Killed(Exception):
    """The process is gone."""


def killed(files, base, out: Path, monkeypatch, at: int, **more) -> None:
    """Fine-tune, and die right after the checkpoint numbered `at` was saved."""
    save, n = tuning_module._save_checkpoint, 0

    def save_and_die(*args, **options):
        nonlocal n
        save(*args, **options)
        n += 1
        if n == at:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(tuning_module, "_save_checkpoint", save_and_die)
        with pytest.raises(Killed):
            quick(base, files, out=out, **more)


@pytest.mark.sample(1)
@pytest.mark.parametrize("at", [1, 2, 3])
def test_killed_and_resumed_run_is_bitwise_equal(at, files, tmp_path, monkeypatch) -> None:
    base = toy.pretrained("bert", tmp_path / "base")
    more = {"seeds": 2, "epochs": 2.0}
    whole = quick(base, files, out=tmp_path / "whole", **more)
    out = tmp_path / "killed"
    killed(files, base, out, monkeypatch, at, **more)
    assert json.loads((out / "unmask.json").read_text())["finished"] is False
    with (out / "seed-0" / "log.jsonl").open("a") as log:
        log.write('{"step": 999}\n')  # what was logged after the checkpoint
    again = quick(base, files, out=out, resume=True, **more)
    assert again.run_results == whole.run_results
    for name, tensor in whole.loaded_model.model.own_weights().items():
        assert torch.equal(tensor, again.loaded_model.model.own_weights()[name]), name
    for name in ("log.jsonl", "seed-0/log.jsonl", "seed-1/log.jsonl", "results.json"):
        assert (out / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert not list(out.rglob("checkpoints"))
    done = quick(base, files, out=out, resume=True, **more)
    assert done.run_results == whole.run_results
    assert done.best_run == whole.best_run
    assert done.notes == whole.notes
    assert done.predict(["a good cat"]) == again.predict(["a good cat"])


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("tune", "precision"),
    [
        ("frozen", "float32"),
        ("gradual", "float32"),
        ("bitfit", "bfloat16"),
        ("adamix", "float32"),
        ("lora", "bfloat16"),
        ("prompt", "float32"),
    ],
)
def test_every_method_resumes_bitwise_equal(tune, precision, files, tmp_path, monkeypatch) -> None:
    base = toy.pretrained("bert", tmp_path / "base")
    more = {"tune": tune, "precision": precision}
    whole = quick(base, files, out=tmp_path / "whole", **more)
    out = tmp_path / "killed"
    killed(files, base, out, monkeypatch, 1, **more)
    again = quick(base, files, out=out, resume=True, **more)
    assert again.run_results == whole.run_results
    theirs, mine = whole.loaded_model.model.state_dict(), again.loaded_model.model.state_dict()
    assert [name for name in theirs if not torch.equal(theirs[name], mine[name])] == []
    assert (out / "log.jsonl").read_bytes() == (tmp_path / "whole" / "log.jsonl").read_bytes()


@pytest.mark.thorough
@pytest.mark.parametrize("tune", ["full", "lora:rank=2"])
def test_run_resumes_by_its_record(tune, files, tmp_path, monkeypatch) -> None:
    base = toy.pretrained("bert", tmp_path / "base")
    more = {"tune": tune, "rows": 64, "seeds": 2, "class_weights": {"yes": 2.0}}
    whole = quick(base, files, out=tmp_path / "whole", **more)
    out = tmp_path / "killed"
    killed(files, base, out, monkeypatch, 2, **more)
    with pytest.raises(ValueError, match=r"this run has base = .*base', not 'bert-tiny'"):
        resume_finetuning(out, "bert-tiny", device="cpu", terminal=None)
    again = resume_finetuning(out, str(base), device="cpu", terminal=None)
    assert again.run_results == whole.run_results
    for name, tensor in whole.loaded_model.model.state_dict().items():
        assert torch.equal(tensor, again.loaded_model.model.state_dict()[name]), name
    assert (
        resume_finetuning(out, device="cpu", terminal=None).run_results == whole.run_results
    )  # it is finished
    facts, theirs = (json.loads((d / "unmask.json").read_text()) for d in (out, tmp_path / "whole"))
    assert facts["recipe"] == theirs["recipe"]


def test_run_from_open_model_refuses_another_initial_model(files, tmp_path, monkeypatch) -> None:
    base = load_folder(toy.pretrained("bert", tmp_path / "base"))
    killed(files, base, tmp_path / "out", monkeypatch, 1)
    with pytest.raises(ValueError, match="its initial model was in memory"):
        resume_finetuning(tmp_path / "out", terminal=None)
    with pytest.raises(ValueError, match="none: has no run to continue"):
        resume_finetuning(tmp_path / "none", terminal=None)


@pytest.mark.thorough
def test_command_resumes_without_other_options(files, tmp_path, monkeypatch, capsys) -> None:
    base, out = toy.pretrained("bert", tmp_path / "base"), tmp_path / "out"
    whole = quick(base, files)
    killed(files, base, out, monkeypatch, 1)
    words = ["finetune", "--out", str(out), "--resume", "--device", "cpu"]
    assert cli.run([*words, "--epochs", "3"]) == 2
    assert "leave out --epochs" in capsys.readouterr().err
    assert cli.run([*words, "--option", "pooling=mean"]) == 2
    assert "leave out --option" in capsys.readouterr().err
    assert cli.run(["finetune", "--task", "classify", "--train", "x.tsv"]) == 2
    assert "MODEL is missing" in capsys.readouterr().err
    assert cli.run([*words, "--json", "--quiet"]) == 0
    output = json.loads(capsys.readouterr().out)
    assert output["runs"][0]["dev"] == dict(whole.best_run.dev)


def test_checkpoint_holds_tuned_parameters_only(files, tmp_path, monkeypatch) -> None:
    base, out = toy.pretrained("bert", tmp_path / "base"), tmp_path / "out"
    killed(files, base, out, monkeypatch, 1, tune="lora")
    (checkpoint,) = (out / "checkpoints").iterdir()
    held = read_tensors(checkpoint / "model.safetensors")
    assert held
    assert {name.split(".")[0] for name in held} == {"adapters", "heads"}
    assert set(held) == set(read_tensors(checkpoint / "best.safetensors"))
    small = sum(path.stat().st_size for path in checkpoint.iterdir())
    assert small < (base / "model.safetensors").stat().st_size


@pytest.mark.thorough
@pytest.mark.parametrize("at", [1, 3])  # in the first run, and after its end
@pytest.mark.parametrize("tune", ["lora", "bitfit"])
def test_run_is_not_resumed_on_another_model(at, tune, files, tmp_path, monkeypatch) -> None:
    base, out = toy.pretrained("bert", tmp_path / "base"), tmp_path / "out"
    more = {"tune": tune, "seeds": 2}
    killed(files, base, out, monkeypatch, at, **more)
    done = json.loads(next((out / "seed-0").rglob("progress.json")).read_text())["done"]
    assert done == (at == 3)
    shutil.rmtree(base)
    toy.pretrained("bert", base, seed=8)
    with pytest.raises(
        ValueError, match=r"step-\d+: the weights that are not trained have changed"
    ):
        quick(base, files, out=out, resume=True, **more)
    shutil.rmtree(base)
    toy.pretrained("bert", base)
    assert len(quick(base, files, out=out, resume=True, **more).run_results) == 2


@pytest.mark.thorough
def test_ctrl_c_ends_a_resumable_run(files, tmp_path, monkeypatch) -> None:
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
    assert again.run_results == whole.run_results
    assert (tmp_path / "out" / "log.jsonl").read_bytes() == (
        tmp_path / "whole" / "log.jsonl"
    ).read_bytes()


@pytest.mark.thorough
def test_damaged_checkpoint_is_skipped(files, tmp_path, monkeypatch) -> None:
    base = toy.pretrained("bert", tmp_path / "base")
    whole = quick(base, files, out=tmp_path / "whole", epochs=4.0)
    out = tmp_path / "out"
    killed(files, base, out, monkeypatch, 3, epochs=4.0)
    newest = sorted((out / "checkpoints").iterdir())[-1]
    path = newest / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-10])
    assert quick(base, files, out=out, resume=True, epochs=4.0).run_results == whole.run_results


@pytest.mark.trials("data and workers")
@pytest.mark.thorough
def test_run_is_not_resumed_with_other_data_or_options(files, tmp_path, monkeypatch) -> None:
    base = toy.pretrained("bert", tmp_path / "base")
    out = tmp_path / "out"
    killed(files, base, out, monkeypatch, 1)
    with pytest.raises(ValueError, match="holds a run already; resume it"):
        quick(base, files, out=out)
    with pytest.raises(ValueError, match=r"this run has learning_rate = 0\.003, not 0\.001"):
        quick(base, files, out=out, resume=True, learning_rate=1e-3)
    toy.write(files["dev"], toy.texts(40, 3))
    with pytest.raises(ValueError, match="the dev data have changed"):
        quick(base, files, out=out, resume=True)


WORDS = ("cat", "dog", "king", "fox")
OF_CONVERSATIONS = {
    "instruct": [], "instruct-messages": ["--tune", "lora:rank=2"],
    "instruct-sharegpt": ["--option", "chat_template=none"],
    "instruct-mixture": ["--option", "packing=pack"],
    "prefer": ["--tune", "lora:rank=2"], "prefer-ranked": ["--option", "margin=0.1"],
    "prefer-seeds": ["--seeds", "2"],
}  # fmt: skip


def conversations(folder: Path) -> dict[str, Path]:
    """Make a decoder, and files of conversations in some of their formats."""
    make("gpt2", folder / "base", n_positions=128)
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in OF_CONVERSATIONS}
    for i in range(24):
        asked = f"the {WORDS[i % 4]} sees" + " a fox" * (i % 3)
        good, bad = f"the {WORDS[i // 4 % 4]} runs", f"a {WORDS[(i + 1) % 4]}"
        turns = [asked, good, "the dog", bad]
        rows["instruct"].append({"instruction": asked, "input": "", "output": good})
        rows["instruct-messages"].append({
            "messages": [{"role": ("user", "assistant")[n % 2], "content": turn}
                         for n, turn in enumerate(turns)]
        })  # fmt: skip
        rows["instruct-sharegpt"].append({
            "conversations": [{"from": ("human", "gpt")[n % 2], "value": turn}
                              for n, turn in enumerate(turns)]
        })  # fmt: skip
        rows["prefer"].append({"prompt": asked, "chosen": good, "rejected": bad, "margin": i / 8})
        rows["prefer-ranked"].append({"prompt": asked, "responses": [good, bad, "the"]})
    rows["prefer-seeds"] = rows["prefer"]
    found = {name: folder / f"{name}.jsonl" for name in rows}
    for name, path in found.items():
        path.write_text("".join(json.dumps(row) + "\n" for row in rows[name]))
    found["instruct-mixture"] = folder / "mixture.toml"
    found["instruct-mixture"].write_text(
        '[tasks.one]\ntrain = "instruct.jsonl"\n[tasks.two]\ntrain = "instruct-messages.jsonl"\n'
    )
    return found


def run_until_step(words: list[str], step: int) -> int:
    """Run a command in a child that kills itself when a step is made; return its status."""
    child = os.fork()
    if child == 0:
        log, n = TrainingLog.__call__, 0

        def die(self: TrainingLog, report: object) -> None:
            nonlocal n
            log(self, report)
            n += 1
            if n == step:
                os.kill(os.getpid(), signal.SIGKILL)

        TrainingLog.__call__ = die
        cli.run(words)
        os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.thorough
@pytest.mark.parametrize("name", OF_CONVERSATIONS)
def test_task_of_conversations_that_is_killed_within_a_step_ends_alike(name, tmp_path) -> None:
    data = str(conversations(tmp_path)[name])
    words = [
        "finetune", str(tmp_path / "base"), "--task", name.partition("-")[0], "--train", data,
        "--epochs", "2", "--batch-size", "4", "--evaluate-every", "2", "--max-length", "96",
        "--learning-rate", "1e-2", "--device", "cpu", "--quiet", *OF_CONVERSATIONS[name], "--out",
    ]  # fmt: skip
    whole, out = tmp_path / "whole", tmp_path / "killed"
    assert cli.run([*words, str(whole)]) == 0
    assert run_until_step([*words, str(out)], 7) == -signal.SIGKILL
    saved = sorted(path.name for path in out.glob("**/checkpoints/step-*"))
    assert saved
    assert 0 < int(saved[-1].removeprefix("step-")) < 7
    assert cli.run(["finetune", "--out", str(out), "--resume", "--device", "cpu", "--quiet"]) == 0
    names = ["model.safetensors", "adapter_model.safetensors", "log.jsonl", "results.json"]
    found = [whole / n for n in names if (whole / n).is_file()]
    assert len(found) >= 3
    for path in found:
        assert (out / path.name).read_bytes() == path.read_bytes(), path.name
