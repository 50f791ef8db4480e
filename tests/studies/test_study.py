"""A study: each cell is pretrained and tuned once, what is done is kept."""

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest
from toy_text import corpus

from unmask import cli
from unmask.finetuning.suite import Ran
from unmask.serving import pretrain as pretraining
from unmask.studies.catalogue import STUDIES, find_study
from unmask.studies.run import run_study
from unmask.studies.show import draw, markdown
from unmask.studies.studied import Outcome, Studied
from unmask.studies.study import Cell, Study, read_study

TASKS = """
name = "toys"
[[benchmarks]]
name = "Good or bad"
task = "classify"
files = [{train = "train.tsv", dev = "train.tsv", text = ["text"], label = "label"}]
"""
STUDY = """
asks = "How much should be hidden?"
tasks = "toys.toml"
tokens = 768
rows = 20
epochs = 1
seeds = 2
changes = ["batch_tokens=256", "length=32", "dev=0.1"]
cells = [
    {name = "little", model = "bert-tiny"},
    {name = "much", model = "bert-tiny", changes = ["objective.choose.rate=0.5"]},
]
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "text.txt").write_text(corpus(60).replace("\n", "\n\n"), encoding="utf-8")
    lines = [f"{text}\t{'bad' if i % 2 else 'good'}" for i, text in enumerate(["a b", "c d"] * 10)]
    (tmp_path / "train.tsv").write_text("text\tlabel\n" + "\n".join(lines), encoding="utf-8")
    (tmp_path / "toys.toml").write_text(TASKS, encoding="utf-8")
    (tmp_path / "rates.toml").write_text(STUDY, encoding="utf-8")
    return tmp_path


def going(home: Path, **more: object) -> Studied:
    plain = {"data": home / "text.txt", "out": home / "out", "threads": 1, "terminal": None}
    return run_study(home / "rates.toml", **plain | more)


def steps_taken(folder: Path) -> int:
    return len((folder / "log.jsonl").read_text().splitlines())


def test_a_study_is_run_cell_by_cell_and_goes_on(home: Path, monkeypatch) -> None:
    made = going(home, cells=["much"])
    (undone, done) = made.outcomes
    assert (undone.name, undone.loss, undone.scores) == ("little", None, ())
    assert done.loss is not None
    assert len(done.of("Good or bad")) == len(done.averages()) == 2
    before = (home / "out/pretrained/much/model.safetensors").read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(pretraining, "_steps", _interrupt)
        with pytest.raises(KeyboardInterrupt):
            going(home, resume=True)
    whole = going(home, resume=True)
    assert whole.outcomes[1].averages() == done.averages()
    assert (home / "out/pretrained/much/model.safetensors").read_bytes() == before
    assert all(len(one.averages()) == 2 for one in whole.outcomes)
    facts = json.loads((home / "out/pretrained/much/unmask.json").read_text())
    assert facts["recipe"]["objective"]["objective"]["choose"]["rate"] == 0.5
    assert facts["recipe"]["steps"] == 3
    assert [one.name for one in (home / "out/text").iterdir()] == ["bert-tiny"]
    page = (home / "out/README.md").read_text()
    assert all(f"| {one.name} | {one.loss:.3f} |" in page for one in whole.outcomes)
    assert (home / "out/plot.svg").read_text() == draw(whole)
    again = going(home, resume=True)
    assert [one.averages() for one in again.outcomes] == [o.averages() for o in whole.outcomes]


def _interrupt(job: object) -> bool:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tokens": 999}, "this study has tokens = 768, not 999"),
        ({"data": "other.txt"}, r"this study reads \['.*text.txt'\]; give the same data"),
        ({"resume": False}, "holds a study already; go on with it by --resume"),
        ({"cells": ["none"]}, r"rates has no cell 'none' \(it has little, much\)"),
        ({"seeds": 0}, "tokens and seeds must be at least 1"),
    ],
)
def test_another_study_is_refused(home: Path, change: dict, message: str) -> None:
    study = read_study(home / "rates.toml")
    (home / "out").mkdir()
    from unmask.config import to_dict

    told = {"study": to_dict(study), "data": [str(home / "text.txt")], "cells": []}
    (home / "out" / "study.json").write_text(json.dumps(told))
    with pytest.raises(ValueError, match=message):
        going(home, **{"resume": True, **change})


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("objective.choose.rate=0.5", "objective.choose.rate=7"),
        ('name = "much"', 'name = "little"'),
        ('name = "much"', 'name = "../much"'),
        ('"toys.toml"', '"toys"'),
        ("bert-tiny", "bert-tinny"),
    ],
)
def test_a_mistake_is_told_before_anything_is_run(
    home: Path, line: str, message: str, capsys
) -> None:
    (home / "rates.toml").write_text(STUDY.replace(line, message), encoding="utf-8")
    folder = str(home / "out")
    told = [
        "study",
        str(home / "rates.toml"),
        "--data",
        str(home / "text.txt"),
        "--out",
        folder,
        "--quiet",
    ]
    status = cli.run(told)
    said = capsys.readouterr().err
    assert status == 2
    assert len(said.splitlines()) == 1
    assert "rates" in said
    assert message.split("=")[-1].strip(' "') in said
    assert not (home / "out").exists()


def test_an_unknown_study_is_told_with_the_nearest() -> None:
    with pytest.raises(ValueError, match="unknown study 'bart-noise'; did you mean 'bart-noises'"):
        find_study("bart-noise")


@pytest.mark.parametrize("name", STUDIES)
def test_every_cell_of_a_published_study_is_a_recipe(name: str) -> None:
    from unmask.studies.run import _check

    for cell in STUDIES[name].cells:
        _check(STUDIES[name], cell)


def some(scores: dict[str, tuple[float, ...]]) -> Studied:
    cells = tuple(Cell(name=name, model="bert-tiny") for name in scores)
    study = Study(name="s", asks="?", cells=cells, tasks="glue", tokens=1, seeds=2)
    outcomes = tuple(Outcome(name=name, loss=1.0, scores=_ran(own)) for name, own in scores.items())
    return Studied(study=study, benchmarks=("A", "B"), outcomes=outcomes)


def _ran(own: tuple[float, ...]) -> tuple[Ran, ...]:
    return tuple(
        Ran(name=name, folder=name, task="classify", metric="accuracy", dev=(s, s + 0.1))
        for name, s in zip("AB", own, strict=False)
    )


def test_the_average_is_of_each_seed() -> None:
    made = some({"x": (0.2, 0.6), "y": ()})
    assert made.outcomes[0].averages() == pytest.approx([40, 50])
    assert made.rows()[1][0] == ["x", "1.000", "25.0 ± 7.1", "65.0 ± 7.1", "45.0 ± 7.1"]
    assert made.rows()[1][1][2:] == ["", "", ""]
    assert "| x | 1.000 | 25.0 ± 7.1 |" in markdown(made)


def test_the_picture_has_a_dot_for_each_score_in_its_place() -> None:
    made = some({"x": (0.2, 0.6), "y": (0.4, 0.9)})
    root = ElementTree.fromstring(draw(made))
    dots = [e for e in root.iter() if e.tag.endswith("circle")]
    assert len(dots) == 2 * 3 * 2  # cells, columns, seeds
    places = np.array([[float(d.get("cx", "")), float(d.get("cy", ""))] for d in dots])
    left, right = places[:4, 0].min(), places[:4, 0].max()
    assert [places[0, 0], places[3, 0]] == [left, right]  # A: 20 of x, 50 of y
    assert places[0, 1] == places[1, 1] < places[2, 1] == places[3, 1]
    width = float(root.get("viewBox", "").split()[2])
    assert ((places[:, 0] > 0) & (places[:, 0] < width)).all()
    assert "x" in [e.text for e in root.iter() if e.tag.endswith("text")]
