"""`unmask plan`: what it counts, prints and refuses; and the cost that a run records."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from toy_text import corpus

import unmask
from unmask.cli import main as cli
from unmask.jobs.catalogue.describe import describe
from unmask.planning.this_machine import EnergyMeter
from unmask.reports.page import write_report

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*arguments: object) -> tuple[int, str, str]:
        capsys.readouterr()
        status = cli.run([str(a) for a in arguments])
        return (status, *capsys.readouterr())

    return call


def test_plan_multiplies_its_factors() -> None:
    made = unmask.plan("bert-base-uncased", hardware="v100", devices=4, tokens=10**9, load=1)
    facts = made.to_json()
    assert facts["steps"] == -(-(10**9) // made.batch_tokens)
    assert facts["flops"] == pytest.approx(facts["flops_per_token"] * facts["tokens"])
    assert facts["seconds"] == pytest.approx(facts["flops"] / (4 * 125e12 * 0.4))
    assert facts["energy"]["watts"] == 4 * 300
    assert facts["energy"]["kwh"] == pytest.approx(1.58 * 1.2 * facts["seconds"] / 3600)
    assert facts["energy"]["price"] == pytest.approx(4 * 2.48 * facts["seconds"] / 3600)
    assert facts["memory_bytes"]["total"] == made.memory.total
    assert facts["fits"] is True
    assert facts["flops_6nd"] == 6 * facts["parameters"] * facts["tokens"]
    json.dumps(facts, allow_nan=False)


def test_flops_equal_those_of_show() -> None:
    """A decoder has a target at each token, so that nothing is sampled."""
    assert unmask.plan("gpt2-mini", hardware="a100").flops_per_token == pytest.approx(
        describe("gpt2-mini")["flops_per_token"]
    )


@pytest.mark.thorough
def test_devices_and_checkpointing_change_memory_and_time() -> None:
    one = unmask.plan("gpt2-mini", hardware="a100", steps=100)
    two = unmask.plan("gpt2-mini", hardware="a100", steps=100, devices=2)
    less = unmask.plan("gpt2-mini", hardware="a100", steps=100, checkpoint_activations=True)
    assert two.settings.strategy == "ddp"
    assert two.memory.activations == one.memory.activations // 2
    assert less.memory.activations < one.memory.activations
    assert less.seconds == pytest.approx(4 / 3 * one.seconds)


@pytest.mark.thorough
def test_teacher_adds_its_forward_and_its_weights(tmp_path: Path) -> None:
    kwargs: dict[str, Any] = {"hardware": "a100", "steps": 100}
    alone = unmask.plan("bert-mini", **kwargs)
    taught = unmask.plan("bert-mini", **kwargs, teacher="unmask-mini-en")
    teacher = unmask.load("unmask-mini-en").model
    forward = teacher.flops(alone.shape.length, alone.shape.target_fraction) / 3
    assert taught.flops_per_token == pytest.approx(alone.flops_per_token + forward)
    assert taught.memory.teachers == 4 * teacher.parameter_count()
    assert taught.memory.total == alone.memory.total + taught.memory.teachers
    twice = unmask.plan("bert-mini", **kwargs, teacher=["unmask-mini-en"] * 2)
    assert twice.memory.teachers == 2 * taught.memory.teachers
    with pytest.raises(FileNotFoundError, match="nowhere"):
        unmask.plan("bert-mini", **kwargs, teacher=tmp_path / "nowhere")


@pytest.mark.thorough
def test_insufficient_memory_is_reported(run: Run) -> None:
    status, out, _ = run("plan", "gpt3-175b", "--hardware", "h100")
    assert status == 0
    assert "DOES NOT FIT into 74.5 GiB" in out
    assert "\u202f" not in out


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "name", ["bert-mini", "t5-mini", "xlnet-mini", "canine-s-mini", "elmo-mini"]
)
def test_every_family_is_planned_on_this_cpu(run: Run, name: str) -> None:
    status, out, err = run("plan", name, "--steps", 10, "--json")
    assert (status, err) == (0, "")
    facts = json.loads(out)
    assert facts["hardware"]["kind"] == "cpu"
    assert facts["memory_bytes"]["process"] > 0
    assert facts["steps"] == 10
    assert 0 < facts["rows"]["target_fraction"] <= 1


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("bert-mini", "--hardware", "b200"), "hardware must be one of cpu, p100, v100"),
        (("bert-mini", "--hardware", "v10"), "did you mean v100?"),
        (("bert-mini", "--devices", 0), "devices must be from 1 to 1,000,000, got 0"),
        (("bert-mini", "--devices", 2, "--strategy", "single"), "strategy: 2 devices share a run"),
        (("bert-mini", "--utilization", 1.5), "utilization must be above 0 and at most 1, got 1.5"),
        (("bert-mini", "--watts", 0), "watts must be above 0, got 0"),
        (("bert-mini", "--pue", 0.9), "pue must be from 1 to 10, got 0.9"),
        (("bert-mini", "--grid", -1), "grid must be at least 0, got -1"),
        (("bert-mini", "--price", -1), "price must be at least 0, got -1"),
        (("bert-mini", "--hardware", "tpuv3", "--precision", "float32"), "tpuv3 has a peak for"),
        (("bert-mini", "--steps", 1, "--tokens", 1), "give one of steps, tokens and minutes"),
        (("bert-mini", "--steps", 0), "steps must be at least 1, got 0"),
        (("glove-mini",), "glove-mini learns word vectors"),
        (("bert-tinny",), "bert-tinny"),
    ],
)
def test_mistakes_are_one_line(run: Run, arguments: tuple[object, ...], message: str) -> None:
    status, out, err = run("plan", *arguments)
    assert (status, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.thorough
def test_finished_run_records_its_cost_and_the_plan(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(corpus())
    small = {"d_model": 32, "d_ff": 64, "n_layers": 1, "n_heads": 2}
    keys: dict[str, Any] = {"architecture": small, "vocab_size": 120, "batch_tokens": 256}
    unmask.pretrain(
        "bert-tiny", data=tmp_path / "text.txt", out=tmp_path / "run", steps=6,
        sequence_length=32, changes=[keys, {"dev_fraction": 0.1, "log_every": 3}], quiet=True,
    )  # fmt: skip
    cost = json.loads((tmp_path / "run" / "unmask.json").read_text())["cost"]
    planned = cost["planned"]
    assert 0 < cost["tokens"] <= planned["tokens"] == 6 * 256
    assert cost["flops"] == pytest.approx(planned["flops"] * cost["tokens"] / planned["tokens"])
    assert cost["peak_memory_bytes"] > planned["memory_bytes"]["weights"] > 0
    assert cost["energy_joules"] == pytest.approx(cost["watts"] * cost["seconds"] * cost["pue"])
    assert planned["seconds"] > 0
    page = write_report(tmp_path / "run").read_text()
    assert "planned: " in page
    assert "a year of human life" in page


def zone(folder: Path, name: str, used: int, limit: int = 1000) -> None:
    (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / name / "energy_uj").write_text(f"{used}\n")
    (folder / name / "max_energy_range_uj").write_text(f"{limit}\n")


def test_package_energy_counters_are_summed_and_may_wrap(tmp_path: Path) -> None:
    zone(tmp_path, "intel-rapl:0", 900)
    zone(tmp_path, "intel-rapl:1", 10)
    zone(tmp_path, "intel-rapl:0:0", 500)  # a part of a package
    meter = EnergyMeter(tmp_path)
    zone(tmp_path, "intel-rapl:0", 99)
    zone(tmp_path, "intel-rapl:1", 60)
    zone(tmp_path, "intel-rapl:0:0", 900)
    assert meter.joules() == pytest.approx((200 + 50) / 1e6)
    assert EnergyMeter(tmp_path / "none").joules() is None
    (tmp_path / "intel-rapl:1" / "energy_uj").unlink()
    assert meter.joules() is None
