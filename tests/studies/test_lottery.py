"""A lottery study: rounds of pruning and rewinding, controls, and going on after a kill."""

import json
import shutil
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import toy_models as toy
from toy_text import corpus

from unmask.checkpoints.huggingface.read import load_folder
from unmask.checkpoints.tensors import read_tensors
from unmask.cli.main import run as run_command
from unmask.compression.prune import layer_matrices
from unmask.finetuning import train_run as tuning_module
from unmask.studies.lottery.published import LOTTERY_STUDIES
from unmask.studies.lottery.result import LotteryResult
from unmask.studies.lottery.study import LotteryStudy
from unmask.studies.run_study import run_study

TASKS = """
name = "toys"
[[benchmarks]]
name = "Good or bad"
task = "classify"
files = [{train = "train.tsv", dev = "dev.tsv", test = "dev.tsv", text = ["text"], label = "label"}]
"""
STUDY = """
kind = "LotteryStudy"
question = "Is there a ticket?"
tasks = "toys.toml"
sparsities = [0.4, 0.8]
epochs = 1
seeds = 1
arms = ["ticket", "random-mask"]
"""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lottery")
    toy.write(folder / "train.tsv", toy.texts(32, 1))
    toy.write(folder / "dev.tsv", toy.texts(16, 2))
    toy.pretrained("bert", folder / "base")
    (folder / "toys.toml").write_text(TASKS)
    (folder / "tickets.toml").write_text(f'base = "{folder / "base"}"\n{STUDY}')
    return folder


def going(folder: Path, out: Path, **more: Any) -> LotteryResult:
    keywords: dict[str, Any] = {"out": out, "threads": 1, "device": "cpu", "terminal": None}
    result = run_study(folder / "tickets.toml", **keywords | more)
    assert isinstance(result, LotteryResult)
    return result


def matrices(folder: Path) -> dict[str, torch.Tensor]:
    return {n: w.detach() for n, w in layer_matrices(load_folder(folder).model).items()}


class Killed(BaseException):
    """The process is gone."""


@pytest.mark.thorough
def test_rounds_controls_and_a_killed_study(
    shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = going(shared, tmp_path / "whole")
    runs = tmp_path / "whole/runs/Good-or-bad"
    base = matrices(shared / "base")
    total = sum(w.numel() for w in base.values())
    first, second = (matrices(runs / f"ticket-{x}/seed-0") for x in (40, 80))
    zeros = [sum(int((w == 0).sum()) for w in ticket.values()) for ticket in (first, second)]
    assert zeros == [round(0.4 * total), round(0.8 * total)]
    assert all(bool((second[name][w == 0] == 0).all()) for name, w in first.items())
    dense = matrices(runs / "dense/seed-0")
    largest = torch.cat([w.abs().flatten() for w in dense.values()]).sort().values
    kept = torch.cat([dense[n].abs()[w != 0] for n, w in first.items()])
    assert kept.min() >= largest[round(0.4 * total) - 1]
    random = matrices(runs / "random-mask-80/seed-0")
    for name, w in random.items():
        assert int((w == 0).sum()) == int((second[name] == 0).sum())
    assert any(not torch.equal(w == 0, second[n] == 0) for n, w in random.items())
    assert len(whole.scores) == 5
    table = (tmp_path / "whole/README.md").read_text()
    score = whole.scores_of("Good or bad", "random-mask", 0.8, "test")
    assert "| Good or bad | test | 80 % |" in table
    assert f" {score[0]:.1f} |" in table
    ElementTree.fromstring((tmp_path / "whole/plot.svg").read_text())

    save, n = tuning_module._save_checkpoint, iter(range(100))

    def save_and_die(*args: Any, **options: Any) -> None:
        save(*args, **options)
        if next(n) == 2:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(tuning_module, "_save_checkpoint", save_and_die)
        with pytest.raises(Killed):
            going(shared, tmp_path / "killed", cells=["ticket"])
    assert 0 < len(json.loads((tmp_path / "killed/study.json").read_text())["scores"]) < 3
    with pytest.raises(ValueError, match="holds a study already; continue it with --resume"):
        going(shared, tmp_path / "killed")
    with pytest.raises(ValueError, match=r"this study has epochs = 1.0, not 2"):
        going(shared, tmp_path / "killed", epochs=2.0, resume=True)
    again = going(shared, tmp_path / "killed", resume=True, cells=["ticket"])
    assert again.scores == tuple(x for x in whole.scores if x.arm in ("dense", "ticket"))
    for path in (tmp_path / "killed/runs/Good-or-bad").rglob("model.safetensors"):
        other = runs / path.relative_to(tmp_path / "killed/runs/Good-or-bad")
        mine, theirs = read_tensors(path), read_tensors(other)
        assert all(torch.equal(x, theirs[name]) for name, x in mine.items())


@pytest.mark.thorough
def test_masks_of_pretraining_are_shared_by_tasks(shared: Path, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text(corpus(60).replace("\n", "\n\n"))
    changes = 'changes = ["batch_tokens=256", "sequence_length=32", "dev_fraction=0.1"]'
    for name in ("toys.toml", "train.tsv", "dev.tsv"):
        shutil.copy(shared / name, tmp_path / name)
    plain = (shared / "tickets.toml").read_text().replace(', "random-mask"', "")
    (tmp_path / "tickets.toml").write_text(f'{plain}masks_of = "text"\ntokens = 768\n{changes}\n')
    with pytest.raises(ValueError, match="reads text: give it by --data"):
        going(tmp_path, tmp_path / "out")
    result = going(tmp_path, tmp_path / "out", data=text)
    assert [(one.arm, one.sparsity) for one in result.scores] == [
        ("dense", 0.0), ("ticket", 0.4), ("ticket", 0.8),
    ]  # fmt: skip
    runs = tmp_path / "out/runs"
    assert sorted(one.name for one in (runs / "text").iterdir()) == ["dense", "ticket-40"]
    of_text, of_task = (
        matrices(runs / "text/ticket-40"),
        matrices(runs / "Good-or-bad/ticket-40/seed-0"),
    )
    assert all(torch.equal(w == 0, of_task[name] == 0) for name, w in of_text.items())


@pytest.mark.thorough
def test_from_random_weights_the_control_has_another_seed(shared: Path, tmp_path: Path) -> None:
    study = LotteryStudy(
        name="scratch", question="", tasks=str(shared / "toys.toml"), base=str(shared / "base"),
        initialize="random", sparsities=(0.5,), rewind=0.5, epochs=1.0, seeds=1,
        arms=("ticket", "random-weights"),
    )  # fmt: skip
    result = run_study(study, out=tmp_path / "out", terminal=None, device="cpu", cells=["ticket"])
    assert isinstance(result, LotteryResult)
    assert len(result.scores) == 2
    run_study(study, out=tmp_path / "out", terminal=None, device="cpu", resume=True)
    runs = tmp_path / "out/runs/Good-or-bad"
    facts = [
        json.loads((runs / name / "seed-0/unmask.json").read_text())["recipe"]
        for name in ("ticket-50", "random-weights-50")
    ]
    assert [one["initialize"] for one in facts] == ["random", "random"]
    assert facts[0]["seed"] != facts[1]["seed"]
    assert facts[0]["compression"][0]["start"] == 0.5


def test_masks_of_heads_and_sublayers(shared: Path, tmp_path: Path) -> None:
    study = LotteryStudy(
        name="heads", question="", tasks=str(shared / "toys.toml"), base=str(shared / "base"),
        unit="blocks", sparsities=(0.5,), epochs=1.0, seeds=1, arms=("ticket", "random-mask"),
    )  # fmt: skip
    result = run_study(study, out=tmp_path / "out", terminal=None, device="cpu")
    assert isinstance(result, LotteryResult)
    assert len(result.scores) == 3
    runs = tmp_path / "out/runs/Good-or-bad"
    for arm in study.arms:
        found = matrices(runs / f"{arm}-50/seed-0")
        assert sum(not bool(w.any()) for n, w in found.items() if n.endswith("down.weight")) == 1
        heads = [
            w.unflatten(1, (2, -1)) for n, w in found.items() if n.endswith("attention.o.weight")
        ]
        assert sum(int((w == 0).all(2).all(0).sum()) for w in heads) == 2


def test_published_studies_name_benchmarks_that_there_are() -> None:
    from unmask.tasks.suites.bundled import SUITES

    for study in LOTTERY_STUDIES.values():
        assert set(study.benchmarks) <= {one.name for one in SUITES[study.tasks].benchmarks}
        assert study.seeds == 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sparsities": ()}, "sparsities must not be empty"),
        ({"sparsities": (0.5, 0.4)}, "sparsities must rise from above 0, got 0.5, 0.4"),
        ({"sparsities": (0.5, 1.0)}, "sparsities must be from 0 to below 1, got 1"),
        ({"rewind": 1.0}, "rewind must be from 0 to below 1, got 1"),
        ({"seeds": 0}, "seeds must be at least 1, got 0"),
        ({"masks_of": "text", "initialize": "random"}, 'needs initialize = "pretrained"'),
        ({"arms": ()}, "arms must be one or more"),
    ],
)
def test_impossible_studies_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(LOTTERY_STUDIES["lottery"], **changes)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["lottery", "--cells", "none"], "lottery has no cell 'none' (it has ticket, random-mask"),
        (["lottery", "--data", "text.txt"], "lottery reads no text: leave --data out"),
        (["lottery", "--rows", "0"], "--rows must be at least 1, got 0"),
        (["lotery"], "unknown study 'lotery'; did you mean 'lottery'?"),
    ],
)
def test_bad_options_are_refused_in_one_line(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert run_command(["study", *arguments, "--out", str(out)]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert message in line
    assert not out.exists()
