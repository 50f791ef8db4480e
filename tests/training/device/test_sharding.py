"""Runs that processes divide among themselves equal those of whole copies."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from launched import TINY, pretrain, torchrun
from safetensors.torch import load_file
from toy_text import corpus

from tests.golden import golden_runs
from unmask.checkpoints.folder import find_damage, newest_checkpoint
from unmask.cli.main import run
from unmask.heads.model import Model
from unmask.inference.open_model import load
from unmask.jobs.pretrain.resumed_run import recipe_of
from unmask.planning.memory import MemorySettings, training_memory
from unmask.planning.rows import RowShape
from unmask.training.config import Recipe
from unmask.training.device.gathered_layers import separate_layers
from unmask.zoo.catalogue import get_preset

HERE = Path(__file__).parent
RUNS = [name for name, run in golden_runs.RUNS.items() if run.steps and not run.finetune]
QUICK = ("bert",)


def losses(run: Path) -> list[float]:
    lines = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    return [line["loss"] if "loss" in line else line["evaluation"]["loss"] for line in lines]


def check_equal_runs(one: Path, other: Path) -> None:
    """Losses are equal to 1e-6, weights as far as Muon's products, whose sums are in another order,
    let them be."""
    assert losses(other) == pytest.approx(losses(one), rel=1e-6)
    a, b = (load_file(run / "model.safetensors") for run in (one, other))
    assert a.keys() == b.keys()
    for name, tensor in a.items():
        torch.testing.assert_close(b[name], tensor, rtol=1e-4, atol=2e-5)


def train(folder: Path, names: list[str]) -> Path:
    (folder / "text.txt").write_text(corpus(40))
    torchrun(2, HERE / "sharded_runs.py", folder, *names)
    return folder


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tmp_path_factory.mktemp("quick"), list(QUICK))


@pytest.fixture(scope="module")
def catalogue(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tmp_path_factory.mktemp("all"), [name for name in RUNS if name not in QUICK])


@pytest.mark.thorough
@pytest.mark.parametrize("name", QUICK)
def test_divided_run_equals_that_of_whole_copies(quick: Path, name: str) -> None:
    check_equal_runs(quick / f"{name}-ddp", quick / f"{name}-fsdp")


@pytest.mark.thorough
@pytest.mark.parametrize("name", [name for name in RUNS if name not in QUICK])
def test_divided_run_of_each_family_equals_that_of_whole_copies(catalogue: Path, name: str) -> None:
    check_equal_runs(catalogue / f"{name}-ddp", catalogue / f"{name}-fsdp")


def test_each_process_holds_its_part_as_planned(quick: Path) -> None:
    """Weights, gradients and optimizer state are half of those of a whole copy, and what
    `unmask plan` says: but for the counts of steps, and tensors of odd length."""
    states = {
        (strategy, rank): json.loads(
            (quick / f"bert-{strategy}" / f".state-{rank}.json").read_text()
        )
        for strategy in ("ddp", "fsdp")
        for rank in (0, 1)
    }
    recipe = recipe_of(quick / "bert-fsdp")
    assert recipe is not None
    model = planned_model(quick / "bert-fsdp", recipe)
    for strategy in ("ddp", "fsdp"):
        settings = MemorySettings(precision="float32", strategy=strategy, n_devices=2)  # pyright: ignore[reportArgumentType]
        shape = RowShape(length=32, target_fraction=0.15)
        memory = training_memory(model, recipe.optimizer, shape, 64, settings)
        for part in ("weights", "gradients", "optimizer"):
            total = states[strategy, 0][part] + states[strategy, 1][part]
            planned = getattr(memory, part)
            assert total / 2 == pytest.approx(planned, rel=0.01), (strategy, part)


def planned_model(run: Path, recipe: Recipe) -> Model:
    return Model(load(run).model.architecture, get_preset(recipe.model).heads)


@pytest.mark.thorough
def test_checkpoint_of_two_processes_is_read_by_one_and_four(tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    pretrain(1, whole, "--steps", 8, "--checkpoint-every", 4)
    two = tmp_path / "two"
    pretrain(2, two, "--steps", 8, "--checkpoint-every", 4, "--strategy", "fsdp")
    check_equal_runs(whole, two)
    for n, strategy in ((1, "ddp"), (4, "fsdp"), (2, "ddp")):
        go_on(two, tmp_path / f"on-{n}-{strategy}", n, strategy)
        check_equal_runs(whole, tmp_path / f"on-{n}-{strategy}")
    go_on(whole, tmp_path / "from-one", 2, "fsdp")  # one that a single process has written
    check_equal_runs(whole, tmp_path / "from-one")


def go_on(run: Path, out: Path, n: int, strategy: str) -> None:
    """Go on with a copy of a run from its checkpoint in the middle."""
    shutil.copytree(run, out)
    (out / "model.safetensors").unlink()
    last = max((out / "checkpoints").glob("step-*"))
    shutil.rmtree(last)
    pretrain(n, out, "--steps", 8, "--strategy", strategy, "--resume")


@pytest.mark.thorough
def test_damaged_part_is_named_and_the_checkpoint_before_used(tmp_path: Path) -> None:
    run = tmp_path / "run"
    pretrain(2, run, "--steps", 8, "--checkpoint-every", 4, "--strategy", "fsdp")
    parts = sorted((run / "checkpoints" / "step-00000008").rglob("*.safetensors"))
    assert [p.parent.name for p in parts] == ["model"] * 2 + ["optimizer"] * 2
    for part in parts:
        before = part.read_bytes()
        for damaged in (before[:-1], before[:-1] + bytes([before[-1] ^ 1])):
            part.write_bytes(damaged)
            found, lines = newest_checkpoint(run, clean_up=False)
            assert found is not None
            assert found.step == 4
            assert f"{part.parent.name}/{part.name}" in lines[0]
        part.write_bytes(before)
    assert find_damage(run / "checkpoints" / "step-00000008") is None


@pytest.mark.thorough
def test_optimizers_of_divided_tensors_equal_those_of_whole_ones(tmp_path: Path) -> None:
    torchrun(2, HERE / "sharded_optimizers.py", tmp_path / "differences.json")
    differences = json.loads((tmp_path / "differences.json").read_text())
    assert set(differences) == {"AdamW", "LAMB", "Adafactor", "SGD", "Muon"}
    assert max(differences.values()) < 1e-6


def test_layers_that_share_weights_or_are_skipped_are_not_gathered_alone() -> None:
    with torch.device("meta"):
        bert = get_preset("bert-tiny").build()
        albert = get_preset("albert-mini").build()
        skipping = get_preset("bert-tiny")
    assert len(list(separate_layers(bert))) == 2
    assert not list(separate_layers(albert))
    architecture = replace(skipping.architecture, layer_dropout=0.1)  # pyright: ignore[reportCallIssue]
    with torch.device("meta"):
        dropped = Model(architecture, skipping.heads)
    assert not list(separate_layers(dropped))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--compress", "qat"), "strategy: a run that compresses while training must be ddp"),
        (("--teacher", "unmask-mini-en"), "strategy: a run with teachers must be ddp, got fsdp"),
    ],
)
def test_compression_and_teachers_need_whole_copies(
    tmp_path: Path, arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run_ = ["pretrain", *TINY, *arguments, "--steps", "2", "--strategy", "fsdp"]
    assert run([*run_, "--out", str(tmp_path / "run")]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
