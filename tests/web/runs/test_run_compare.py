"""Runs side by side."""

import dataclasses
import json
import shutil
from pathlib import Path

import pytest
from made_runs import SAVED, make_run, workplace

from unmask.config import to_dict
from unmask.objectives.published import BART, ELECTRA, MASKED_LM
from unmask.reports.formatting import NARROW_SPACE
from unmask.web.runs.compare import compare_runs, compare_series
from unmask.web.runs.index import RunIndex
from unmask.web.runs.summary import objective_name


def recipe(rate: float, **more: object) -> dict[str, object]:
    return {"kind": "Recipe", "steps": 20, "learning_rate": rate, **more}


def test_options_that_differ_and_figures(tmp_path: Path) -> None:
    place = workplace(tmp_path)
    adam = {"kind": "AdamW", "betas": [0.9, 0.98]}
    data = str(tmp_path / "text")
    make_run(tmp_path / "a", recipe=recipe(1e-3, optimizer=adam, data=data, seed=1))
    make_run(tmp_path / "b", recipe=recipe(2e-3, optimizer={"kind": "SGD"}, data=data, seed=1))
    found = compare_runs(place, RunIndex(place), ["b", "a", "b"])
    assert [run.id for run in found.runs] == ["b", "a"]
    assert {row.key: row.values for row in found.options} == {
        "learning_rate": ("0.002", "0.001"), "optimizer": ("SGD", "AdamW"),
        "optimizer.betas": (None, "0.9, 0.98"),
    }  # fmt: skip
    assert found.options[0].name == "Learning rate"
    assert found.n_equal_options == 5
    assert [(row.name, row.values) for row in found.figures] == [
        ("Masked accuracy, held out", (f"25.0{NARROW_SPACE}%",) * 2),
        ("Masked loss, held out", (f"4.00{NARROW_SPACE}nats",) * 2),
    ]
    assert "parts.masked" in found.columns["training"]
    assert found.columns["evaluation"] == ("loss", "masked_loss", "masked_accuracy")
    assert "seconds" in found.columns["timing"]
    shown = json.dumps(dataclasses.asdict(found))
    assert str(tmp_path) not in shown


def test_curves_of_a_column_one_for_each_seed(tmp_path: Path) -> None:
    place = workplace(tmp_path)
    make_run(tmp_path / "a", steps=50)
    shutil.copytree(SAVED / "suite", tmp_path / "suite")
    index = RunIndex(place)
    curves = compare_series(index, ["a", "suite/How-long"], "loss", max_points=25)
    assert [(c.run_id, c.seed) for c in curves] == [
        ("a", ""), ("suite/How-long", "seed-0"), ("suite/How-long", "seed-1"),
    ]  # fmt: skip
    assert len(curves[0].steps) == len(curves[0].values) <= 25
    evaluated = compare_series(index, ["a", "suite/How-long"], "masked_loss", "evaluation")
    assert [(c.run_id, c.steps, c.values) for c in evaluated] == [("a", [50.0], [4.0])]


def test_runs_without_a_record_are_compared(tmp_path: Path) -> None:
    place = workplace(tmp_path)
    make_run(tmp_path / "a")
    (make_run(tmp_path / "b") / "unmask.json").write_text("{")
    (make_run(tmp_path / "c") / "unmask.json").unlink()
    for name in ("suite", "study", "tags"):
        shutil.copytree(SAVED / name, tmp_path / name)
    found = compare_runs(place, RunIndex(place), ["a", "b", "c", "suite", "study", "tags"])
    assert {row.values[1:3] for row in found.options} == {(None, None)}
    assert found.runs[1].notes


def test_number_of_runs_is_limited(tmp_path: Path) -> None:
    place = workplace(tmp_path)
    index = RunIndex(place)
    for ids in ([], [str(n) for n in range(61)]):
        with pytest.raises(ValueError, match=f"1 to 60 can be compared, got {len(ids)}"):
            compare_runs(place, index, ids)
    with pytest.raises(FileNotFoundError, match="none: no such run"):
        compare_series(index, ["none"], "loss")


def test_what_cannot_be_compared_is_said(tmp_path: Path) -> None:
    place = workplace(tmp_path)
    objectives = {"a": "mlm", "b": to_dict(MASKED_LM), "c": to_dict(ELECTRA), "d": "mlm:rate=0.3"}
    for name, objective in objectives.items():
        make_run(tmp_path / name, recipe=recipe(1e-3, objective=objective, vocab_size=512))
    make_run(tmp_path / "e", recipe=recipe(1e-3, objective="mlm", vocab_size=99, data="x"))
    index = RunIndex(place)
    same = compare_runs(place, index, ["a", "b"])
    assert (same.notes, same.options) == ((), ())
    assert [run.objective for run in same.runs] == ["mlm", "mlm"]
    (note,) = compare_runs(place, index, ["a", "c", "d"]).notes
    assert note.startswith("The objectives differ: mlm, rtd, mlm:rate=0.3. ")
    assert "weighted sum" in note
    notes = compare_runs(place, index, ["a", "e"]).notes
    assert [note.partition(":")[0] for note in notes] == [
        "The tokenizers differ", "The texts differ",
    ]  # fmt: skip
    shutil.copytree(SAVED / "study", tmp_path / "study")  # its text is tokenized for each kind
    for name in ("p", "q"):
        shards = recipe(1e-3, objective="mlm", data=f"study/text/{name}")
        make_run(tmp_path / "study" / "pretrained" / name, recipe=shards)
    inside = [f"study/pretrained/{name}" for name in ("p", "q")]
    (note,) = compare_runs(place, index, inside).notes
    assert note.startswith("The tokenizers differ")
    for name, train in (("f", "x.tsv"), ("g", "y.tsv")):
        table = {"kind": "FinetuneRecipe", "task": "classify", "train": train}
        make_run(tmp_path / name, recipe=table, kind="finetune")
    (note,) = compare_runs(place, index, ["a", "f", "g"]).notes
    assert note == "The tasks or their files differ: their scores are not of the same rows."
    table = {"kind": "FinetuneRecipe", "task": "classify", "train": "x.tsv", "lm_loss_weight": 0.5}
    make_run(tmp_path / "h", recipe=table, kind="finetune")
    (note,) = compare_runs(place, index, ["f", "h"]).notes
    assert note.endswith("(lm_loss_weight): compare the scores.")


def test_objectives_without_a_name_have_that_of_their_parts() -> None:
    assert objective_name({}) == ""
    assert objective_name({"objective": to_dict(BART)}) == "DenoisingObjective"
    parts = {"kind": "Objective", "select": {"kind": "Mine"}, "corrupt": {"kind": "Yours"}}
    assert objective_name({"objective": parts}) == "Mine, Yours"
