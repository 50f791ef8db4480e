"""`unmask plan`: what it counts, prints and refuses; and the cost that a run records."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from toy_text import corpus

import unmask
from unmask import machine_memory
from unmask.cli import main as cli
from unmask.jobs.catalogue.describe import describe
from unmask.jobs.pretrain import plan as planned_run
from unmask.planning.plan import MeasuredStep
from unmask.planning.run_cost import accelerator
from unmask.planning.this_machine import EnergyMeter
from unmask.reports.page import write_report
from unmask.web.worker.calls.planning import plan as page_plan

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
    step_seconds = facts["flops"] / facts["steps"] / (4 * 125e12 * 0.4)
    assert facts["step_seconds"] == pytest.approx(step_seconds)
    # Forward passes on 65,536 held-out tokens every 500 steps, and on the last step's batch again.
    evaluated = (facts["steps"] - 1) // 500 * 65_536 / made.batch_tokens + 1
    assert facts["seconds"] == pytest.approx(step_seconds * (facts["steps"] + evaluated / 3))
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


@pytest.mark.thorough
@pytest.mark.parametrize(
    "name", ["bert-mini", "t5-mini", "xlnet-mini", "canine-s-mini", "elmo-mini"]
)
def test_every_family_is_planned_on_this_cpu(run: Run, name: str) -> None:
    status, out, err = run("plan", name, "--steps", 10, "--json")
    assert (status, err) == (0, "")
    facts = json.loads(out)
    assert facts["hardware"]["kind"] == "cpu"
    assert facts["memory_bytes"]["process"] > 0
    assert facts["measured"]["seconds"] == facts["step_seconds"] > 0
    assert facts["measured"]["working_bytes"] > 0
    assert facts["notes"] == []
    assert facts["steps"] == 10
    assert 0 < facts["rows"]["target_fraction"] <= 1


SMALL: dict[str, Any] = {
    "architecture": {"d_model": 128, "d_ff": 512, "n_layers": 1, "n_heads": 2},
    "vocab_size": 120,
    "batch_tokens": 512,
    "sequence_length": 32,
}


def test_measured_plan_is_finite_and_scales_with_steps_and_batch() -> None:
    made = unmask.plan("bert-tiny", steps=100, changes=[SMALL])
    assert made.measured is not None
    assert "512 positions" in made.measured.source
    assert math.isfinite(made.seconds)
    assert made.seconds == pytest.approx(made.step_seconds * (100 + 1 / 3))
    assert made.peak_share > 0
    assert made.measured.working_bytes == made.memory.working
    json.dumps(made.to_json(), allow_nan=False)
    twice = MeasuredStep(seconds=2 * made.step_seconds, source="twice")
    slower = made.with_measured(twice)
    assert slower.seconds == pytest.approx(2 * made.seconds)
    assert slower.energy.kwh == pytest.approx(2 * (made.energy.kwh or 0))
    assert slower.memory == made.memory


def test_trial_leaves_random_numbers_as_they_are() -> None:
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    unmask.plan("bert-tiny", steps=2, changes=[SMALL])
    assert torch.equal(torch.rand(3), expected)


def test_large_networks_and_given_shares_are_not_tried(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("it was tried")

    monkeypatch.setattr(planned_run, "try_training", refuse)
    status, out, _ = run("plan", "gpt3-175b", "--steps", 1, "--precision", "float32")
    assert status == 0
    assert "computed, not measured: a step with one row of 2,048 tokens takes more than" in out
    given = unmask.plan("bert-tiny", steps=2, utilization=0.2, changes=[SMALL])
    assert (given.measured, given.notes, given.peak_share) == (None, (), 0.2)


def test_other_hardware_is_planned_by_given_numbers(run: Run) -> None:
    own = ("plan", "bert-mini", "--hardware", "b900", "--peak-tflops", 2250, "--memory-gb", 192)
    status, out, err = run(*own)
    assert (status, err) == (0, "")
    assert "b900, 2.25 PFLOP/s" in out
    assert "unknown: give --watts" in out
    assert "CO2e" not in out
    facts = json.loads(run(*own, "--json")[1])
    assert facts["hardware"]["memory_bytes"] == 192 * 10**9
    assert facts["energy"]["watts"] is None
    assert facts["energy"]["kwh"] is None
    facts = json.loads(run(*own, "--watts", 1000, "--price", 6, "--json")[1])
    assert facts["energy"]["kwh"] == pytest.approx(1.58 * facts["seconds"] / 3600)
    assert facts["energy"]["price"] == pytest.approx(6 * facts["seconds"] / 3600)
    known = unmask.plan("bert-mini", hardware="a100", memory_gb=40, steps=1)
    assert known.settings.hardware.memory_bytes == 40 * 10**9
    assert known.settings.hardware.watts == 400


def test_accelerators_are_known_by_whole_words() -> None:
    peak = {"bfloat16": 1e14}
    h100 = accelerator("NVIDIA H100 80GB HBM3", peak, 85 * 10**9)
    assert (h100.name, h100.watts, h100.peak("bfloat16")) == ("h100", 700, 1e14)
    assert accelerator("NVIDIA GeForce RTX 4090", peak, 25 * 10**9).name == "rtx4090"
    for name in ("NVIDIA A1000", "NVIDIA GeForce RTX 4090 Laptop GPU", "mps"):
        other = accelerator(name, peak, 8 * 10**9)
        assert (other.name, other.watts, other.memory_bytes) == (name, None, 8 * 10**9)


@pytest.mark.trials("mistakes")
@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("bert-mini", "--hardware", "b900"), "hardware must be one of cpu, p100, v100"),
        (("bert-mini", "--hardware", "v100", "--precision", "bfloat16"), "v100 has a peak for"),
        (("bert-mini", "--precision", "float16"), "this processor trains in float32 or bfloat16"),
        (("bert-mini", "--hardware", "v10"), "did you mean 'v100'"),
        (("bert-mini", "--hardware", "b900"), "with --peak-tflops and --memory-gb"),
        (("bert-mini", "--hardware", "b900", "--peak-tflops", 0, "--memory-gb", 1), "above 0"),
        (("bert-mini", "--peak-tflops", 1), "cpu is this one, and measured"),
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
    assert planned["measured_in"] == "steps 3 to 5"
    page = write_report(tmp_path / "run").read_text()
    assert "planned: " in page
    assert "by the run&#x27;s steps 3 to 5" in page or "by the run's steps 3 to 5" in page
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


def test_page_and_command_count_the_process() -> None:
    """The peak of 12 steps of bert-tiny on 2 MB of text was 534 MiB; to a factor of 1.5."""
    given = {"model": "bert-tiny", "steps": 12, "precision": "float32"}
    total = page_plan(given)["memory_bytes"]["total"] / 2**20
    assert 534 / 1.5 < total < 534 * 1.5


def test_memory_of_a_control_group_limits_that_of_the_machine(tmp_path: Path) -> None:
    group = tmp_path / "sys/fs/cgroup/box"
    (tmp_path / "proc/self").mkdir(parents=True)
    group.mkdir(parents=True)
    (tmp_path / "proc/meminfo").write_text("MemTotal: 4000 kB\nMemAvailable: 3000 kB\n")
    (tmp_path / "proc/self/cgroup").write_text("0::/box\n")
    assert machine_memory.available_bytes(tmp_path) == 3000 * 1024
    (group / "memory.max").write_text("2048000\n")
    (group / "memory.current").write_text("1024000\n")
    (group / "memory.stat").write_text("anon 5\ninactive_file 24000\n")
    assert machine_memory.available_bytes(tmp_path) == 2048000 - 1000000
    assert machine_memory.total_bytes(tmp_path) == 2048000
    assert machine_memory.available_bytes(tmp_path / "none") is None
