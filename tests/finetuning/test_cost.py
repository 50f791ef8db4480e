"""A fine-tuning run records what it cost, beside what its first steps let expect."""

import json
from pathlib import Path

import pytest
import toy_models as toy

from unmask.finetuning import train_run
from unmask.jobs.finetune import finetune
from unmask.reports.page import write_report


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def tune(tmp_path: Path):
    train = toy.write(tmp_path / "train.tsv", toy.texts(96, 1))
    dev = toy.write(tmp_path / "dev.tsv", toy.texts(40, 2))
    base = toy.pretrained("bert", tmp_path / "base")

    def call(name: str, **more) -> dict:
        options = {"epochs": 2.0, "batch_size": 8, "learning_rate": 3e-3, "resume": False} | more
        finetune(
            base, task="classify", train=train, dev=dev, out=tmp_path / name, device="cpu",
            precision="float32", terminal=None, **options,
        )  # fmt: skip
        return json.loads((tmp_path / name / "unmask.json").read_text())["cost"]

    return call


def test_cost_is_that_of_all_runs(tune, tmp_path: Path) -> None:
    cost = tune("run", seeds=3)
    folders = [tmp_path / "run" / f"seed-{seed}" for seed in range(3)]
    logs = [[line for line in lines(f / "log.jsonl") if "tokens" in line] for f in folders]
    assert cost["tokens"] == sum(log[-1]["tokens"] for log in logs)
    clocks = [lines(f / "timing.jsonl") for f in folders]
    assert cost["seconds"] == pytest.approx(sum(clock[-1]["seconds"] for clock in clocks))
    assert cost["peak_memory_bytes"] >= max(clock[-1]["memory_bytes"] for clock in clocks)
    planned = cost["planned"]
    assert planned["tokens"] == pytest.approx(cost["tokens"], rel=0.1)  # lengths are of the mean
    assert planned["flops"] == pytest.approx(cost["flops"], rel=0.1)
    assert planned["measured_in"].startswith("steps 3 to 16")  # 14 of 72
    assert cost["energy_joules"] == pytest.approx(cost["watts"] * cost["seconds"] * cost["pue"])
    assert "planned: " in write_report(tmp_path / "run").read_text()


def test_short_job_is_not_planned(tune) -> None:
    cost = tune("run")
    assert cost["tokens"] > 0
    assert cost["seconds"] > 0
    assert "planned" not in cost


@pytest.mark.thorough
def test_resumed_run_counts_both_processes(tune, tmp_path: Path, monkeypatch) -> None:
    save, killed = train_run._save_checkpoint, []

    def save_and_stop(*arguments, **options):
        save(*arguments, **options)
        killed.append(True)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(train_run, "_save_checkpoint", save_and_stop)
        with pytest.raises(KeyboardInterrupt):
            tune("run", epochs=12.0)
    assert killed
    before = lines(tmp_path / "run" / "timing.jsonl")[-1]["seconds"]
    cost = tune("run", epochs=12.0, resume=True)
    clock = [line["seconds"] for line in lines(tmp_path / "run" / "timing.jsonl")]
    assert clock[-1] < cost["seconds"]
    assert cost["seconds"] == pytest.approx(before + clock[-1])
