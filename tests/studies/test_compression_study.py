"""Studies of compression: ways to make one model smaller, scored and measured beside it."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from toy_study import TASKS, write_tasks

import unmask
from unmask.config import from_dict, to_dict
from unmask.finetuning.suite import BenchmarkResult
from unmask.studies.compression import measure, run
from unmask.studies.compression.measure import WORDS_PER_TEXT, timed_texts
from unmask.studies.compression.published import SMALLER
from unmask.studies.compression.result import (
    CompressedResult,
    CompressionStudyResult,
    Measurements,
)
from unmask.studies.compression.study import CompressionCell, CompressionStudy
from unmask.studies.read_study import read_study
from unmask.studies.run_study import run_study

STUDY = """
kind = "CompressionStudy"
question = "What does each way cost?"
tasks = "toys.toml"
recipe = "bert-tiny"
tokens = 512
changes = ["batch_tokens=256", "sequence_length=32", "dev_fraction=0.1"]
rows = 20
epochs = 1
seeds = 2
cells = [
    {name = "whole"},
    {name = "int4", finish = ["quantize:bits=4,group=16"]},
    {name = "heads", compress = ["heads:fraction=0.5"], tune_distill = ["soft"]},
    {name = "student", compress = ["layers:keep=1"], initialize = "random", token_factor = 1.0, distill = ["soft", "cosine"]},
    {name = "aware", tune_compress = ["qat:bits=2"], finish = ["packed"]},
]
"""  # noqa: E501


@pytest.fixture
def home(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.setattr(measure, "N_ROUNDS", 1)
    monkeypatch.setattr(measure, "BATCH_SIZES", (1, 2))
    monkeypatch.setattr(measure, "_peak_memory", lambda folder, texts: 1_000_000)
    write_tasks(tmp_path)
    (tmp_path / "ways.toml").write_text(STUDY, encoding="utf-8")
    unmask.pretrain(
        "bert-tiny", data=tmp_path / "text.txt", out=tmp_path / "base", steps=2, quiet=True,
        changes=["batch_tokens=256", "sequence_length=32", "architecture.n_layers=2"],
    )  # fmt: skip
    return tmp_path


def running(home: Path, **more: object) -> CompressionStudyResult:
    plain = {"data": home / "text.txt", "out": home / "out", "threads": 1, "terminal": None}
    plain["base"] = str(home / "base")
    result = run_study(home / "ways.toml", **plain | more)
    assert isinstance(result, CompressionStudyResult)
    return result


@pytest.mark.thorough
def test_each_way_is_scored_measured_and_resumed(home: Path, monkeypatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(run, "compress", _interrupt)
        with pytest.raises(KeyboardInterrupt, match="stopped; continue with --resume"):
            running(home)
    result = running(home, resume=True)
    assert [r.error for r in result.cell_results] == [""] * 5
    whole, int4, heads, student, aware = result.cell_results
    assert all(
        len(r.averages(result.benchmarks)) == 2 and r.measurements for r in result.cell_results
    )
    base = unmask.load(home / "base").model
    assert whole.parameters == int4.parameters == aware.parameters
    assert student.parameters < heads.parameters < whole.parameters
    sizes = [r.measurements.disk_bytes for r in result.cell_results if r.measurements]
    assert sizes[1] < sizes[0]
    assert sizes[4] < sizes[1]
    tuned = json.loads((home / "out/tuned/heads/Good-or-bad-1/unmask.json").read_text())
    assert tuned["recipe"]["seed"] == 1
    assert tuned["recipe"]["distillation"]["teacher"] == [
        str(home / "out/tuned/whole/Good-or-bad-1")
    ]
    pretrained = json.loads((home / "out/pretrained/student/unmask.json").read_text())
    assert pretrained["recipe"]["distillation"]["teacher"] == [str(home / "base")]
    assert not (home / "out/tuned/int4").exists()  # the whole model's are made smaller
    start = unmask.load(home / "out/compressed/student.random").model
    kept = unmask.load(home / "out/compressed/student").model
    assert start.parameter_count() == kept.parameter_count() < base.parameter_count()
    assert not np.allclose(_table(start), _table(kept))
    page = (home / "out/README.md").read_text()
    assert all(f"**{r.name}**" in page for r in result.cell_results)
    assert (
        "layers:keep=1; random weights; pretrained on 512 tokens with the base as teacher" in page
    )
    for name in ("plot.svg", "size.svg"):
        assert (home / "out" / name).read_text().startswith("<svg")
    before = (home / "out/study.json").read_bytes()
    again = running(home, resume=True)
    assert again == result
    assert (home / "out/study.json").read_bytes() == before


def _table(model) -> np.ndarray:
    return model.backbone.tokens.weight.detach().numpy()


def _interrupt(*args: object, **options: object) -> None:
    raise KeyboardInterrupt


def test_averages_wait_for_all_tasks() -> None:
    scores = [
        BenchmarkResult(name=name, folder=name, task="classify", metric="accuracy", dev=(0.5, x))
        for name, x in (("a", 0.7), ("b", 0.9))
    ]
    assert CompressedResult(name="one", scores=(scores[0],)).averages(("a", "b")) == []
    averages = CompressedResult(name="one", scores=(*scores,)).averages(("a", "b"))
    assert averages == pytest.approx([50.0, 80.0])


@pytest.mark.thorough
def test_way_that_fails_is_left_out_and_others_run(home: Path) -> None:
    path = home / "ways.toml"
    path.write_text(STUDY.replace("layers:keep=1", "layers:keep=9"))
    result = running(home, cells=["student", "int4"], seeds=1)
    by_name = {r.name: r for r in result.cell_results}
    assert "9" in by_name["student"].error
    assert by_name["whole"].averages(result.benchmarks)
    assert by_name["int4"].averages(result.benchmarks)
    assert not by_name["heads"].averages(result.benchmarks)
    assert "student was left out" in (home / "out/README.md").read_text()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (('{name = "whole"}', '{name = "whole", finish = ["int8"]}'), "the first is the whole"),
        (('["heads:fraction=0.5"]', '["heds"]'), "heds"),
        (('tune_compress = ["qat:bits=2"]', 'tune_compress = ["qat:bits=5"]'), "bits"),
        (('tune_distill = ["soft"]', 'tune_distill = ["sof"]'), "sof"),
        (("token_factor = 1.0, ", ""), "give token_factor"),
        (("seeds = 2", "seeds = 0"), "seeds must be at least 1, got 0"),
        (("tokens = 512", "tokens = 0"), "tokens must be at least 1, got 0"),
        (('{name = "int4"', '{name = "WHOLE"'), "cells has two 'WHOLE'"),
        (
            ('kind = "CompressionStudy"', 'kind = "comparison"'),
            "kind must be one of Study, Comp",
        ),
        (('kind = "CompressionStudy"', ""), "recipe"),
    ],
)
def test_invalid_study_is_refused_in_one_line(
    change: tuple[str, str], message: str, tmp_path: Path
) -> None:
    path = tmp_path / "ways.toml"
    assert change[0] in STUDY
    path.write_text(STUDY.replace(*change))
    with pytest.raises(ValueError, match=message) as error:
        read_study(path)
    assert str(error.value).startswith(str(path))
    assert "\n" not in str(error.value)


@pytest.mark.thorough
def test_tasks_without_development_file_or_texts_are_refused(home: Path) -> None:
    (home / "toys.toml").write_text(TASKS.replace('dev = "train.tsv", ', ""))
    with pytest.raises(ValueError, match="Good or bad has no other file to be scored on"):
        running(home)
    (home / "toys.toml").write_text(TASKS.replace("classify", "regress"))
    with pytest.raises(ValueError, match="has no task classify"):
        running(home)
    with pytest.raises(ValueError, match="--base is of studies of one model; t5-rates"):
        run_study("t5-rates", data=home / "text.txt", out=home / "o", base="x", terminal=None)
    (home / "toys.toml").write_text(TASKS)
    with pytest.raises(FileNotFoundError, match="nothing-here: no such folder"):
        running(home, base="nothing-here")
    assert not (home / "out").exists()


def test_published_study_survives_plain_data() -> None:
    assert from_dict(CompressionStudy, json.loads(json.dumps(to_dict(SMALLER)))) == SMALLER
    assert len({cell.name for cell in SMALLER.cells}) == len(SMALLER.cells) > 25


def test_pareto_front_has_what_no_other_beats() -> None:
    def result(name: str, score: float, size: int) -> CompressedResult:
        one = from_dict(CompressedResult, {"name": name, "scores": [
            {"name": "t", "folder": "t", "task": "classify", "metric": "accuracy", "dev": [score]}
        ]})  # fmt: skip
        return replace(one, measurements=Measurements(disk_bytes=size))

    results = [result("whole", 0.9, 9), result("good", 0.9, 4), result("bad", 0.5, 5),
               result("small", 0.6, 2)]  # fmt: skip
    cells = tuple(CompressionCell(name=one.name) for one in results[:1])
    study = replace(SMALLER, cells=cells)
    outcome = CompressionStudyResult(study=study, benchmarks=("t",), cell_results=tuple(results))
    assert [one.name for one in outcome.pareto_front()] == ["good", "small"]
    assert outcome.share_of_whole(results[3]) == pytest.approx(0.6 / 0.9)
    assert outcome.share_of_whole(CompressedResult(name="new")) is None


def test_timed_texts_have_equal_numbers_of_words() -> None:
    texts = timed_texts(["one two", "three"], 5)
    assert len(texts) == 5
    assert {len(text.split()) for text in texts} == {WORDS_PER_TEXT}
    assert set(texts[0].split()) == {"one", "two", "three"}


@pytest.mark.slow
def test_peak_memory_is_that_of_a_process_of_its_own(tmp_path: Path) -> None:
    rows = "\n".join(f"{text}\t{'bad' if i % 2 else 'good'}" for i, text in enumerate("abcd" * 5))
    (tmp_path / "t.tsv").write_text("text\tlabel\n" + rows)
    unmask.finetune("unmask-mini-en", task="classify", train=tmp_path / "t.tsv",
                    out=tmp_path / "run", epochs=1.0, terminal=None)  # fmt: skip
    code = (
        "from pathlib import Path\n"
        "from unmask.studies.compression.measure import _peak_memory\n"
        "if __name__ == '__main__':\n"
        f"    print(_peak_memory(Path({str(tmp_path / 'run')!r}), ['a b'] * 4))\n"
    )
    (tmp_path / "measure.py").write_text(code)
    done = subprocess.run(
        [sys.executable, tmp_path / "measure.py"], check=True, capture_output=True, text=True
    )
    assert 1e6 < int(done.stdout) < 1e9
