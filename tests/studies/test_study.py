"""A study: each cell is pretrained and tuned once, what is done is kept."""

import json
import math
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from toy_study import TASKS, write_tasks
from toy_text import corpus

from unmask.cli import main as cli
from unmask.config import to_dict
from unmask.finetuning.suite import BenchmarkResult
from unmask.jobs.pretrain import pretrain as pretraining
from unmask.jobs.pretrain import run_folder
from unmask.objectives.corrupt import MaskInPlace
from unmask.objectives.objective import Objective
from unmask.objectives.published import T5_BY_RATE, T5_BY_SPAN_LENGTH, T5_OBJECTIVES
from unmask.objectives.select import TokenMasking
from unmask.studies import run_study as running
from unmask.studies.page import draw_svg, format_markdown
from unmask.studies.published_studies import STUDIES, find_study
from unmask.studies.read_study import read_study
from unmask.studies.result import CellResult, StudyResult
from unmask.studies.run_study import _check_cell, run_study
from unmask.studies.study import Study, StudyCell
from unmask.tokenizers.spec import SpecialTokenIds

STUDY = """
question = "How much should be hidden?"
tasks = "toys.toml"
tokens = 768
rows = 20
epochs = 1
seeds = 2
changes = ["batch_tokens=256", "sequence_length=32", "dev_fraction=0.1"]
cells = [
    {name = "little", model = "bert-tiny"},
    {name = "much", model = "bert-tiny", changes = ["objective.select.rate=0.5"]},
]
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    write_tasks(tmp_path)
    (tmp_path / "rates.toml").write_text(STUDY, encoding="utf-8")
    return tmp_path


def run_toy_study(home: Path, **more: object) -> StudyResult:
    plain = {"data": home / "text.txt", "out": home / "out", "threads": 1, "terminal": None}
    return run_study(home / "rates.toml", **plain | more)


def steps_taken(folder: Path) -> int:
    return len((folder / "log.jsonl").read_text().splitlines())


def test_study_runs_cell_by_cell_and_resumes(home: Path, monkeypatch) -> None:
    made = run_toy_study(home, cells=["much"])
    (undone, done) = made.cell_results
    assert (undone.name, undone.loss, undone.scores) == ("little", None, ())
    assert done.loss is not None
    assert len(done.scores_of("Good or bad")) == len(done.averages(made.benchmarks)) == 2
    before = (home / "out/pretrained/much/model.safetensors").read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(pretraining, "take_steps", _interrupt)
        with pytest.raises(KeyboardInterrupt):
            run_toy_study(home, resume=True)
    whole = run_toy_study(home, resume=True)
    assert whole.cell_results[1].averages(whole.benchmarks) == done.averages(whole.benchmarks)
    assert (home / "out/pretrained/much/model.safetensors").read_bytes() == before
    assert all(len(one.averages(whole.benchmarks)) == 2 for one in whole.cell_results)
    facts = json.loads((home / "out/pretrained/much/unmask.json").read_text())
    assert facts["recipe"]["objective"]["objective"]["select"]["rate"] == 0.5
    assert facts["recipe"]["steps"] == 3
    made = [one.name for one in (home / "out/text").iterdir() if one.is_dir()]
    assert made == ["bert-tiny"]
    page = (home / "out/README.md").read_text()
    for one in whole.cell_results:
        assert f"| {one.name} | {one.parameters:,} | {one.loss:.3f} |" in page
    assert (home / "out/plot.svg").read_text() == draw_svg(whole)
    path = home / "rates.toml"
    path.write_text(path.read_text().replace("How much should be hidden?", "Which masking rate?"))
    again = run_toy_study(home, resume=True)  # in other words, the same study
    assert "Which masking rate?" in (home / "out/README.md").read_text()
    assert [one.averages(whole.benchmarks) for one in again.cell_results] == [
        o.averages(whole.benchmarks) for o in whole.cell_results
    ]


@pytest.mark.thorough
def test_cell_may_skip_pretraining_for_random_weights(home: Path) -> None:
    path = home / "rates.toml"
    path.write_text(STUDY.replace('{name = "little",', '{name = "none", token_factor = 0.0,'))
    result = run_toy_study(home)
    none, much = result.cell_results
    assert (none.loss, none.tokens, none.parameters) == (None, 0, much.parameters)
    assert len(none.averages(result.benchmarks)) == 2
    tuned = json.loads((home / "out/tuned/none/Good-or-bad/unmask.json").read_text())
    assert tuned["recipe"]["initialize"] == "random"
    page = (home / "out/README.md").read_text()
    average = np.mean(none.averages(result.benchmarks))
    assert f"| none | {none.parameters:,} |  | {average:.1f}" in page
    assert "Except for none: random weights" in page


VECTORS = """
question = "What do vectors of words give?"
tasks = "toys.toml"
tokens = 768
rows = 20
epochs = 1
seeds = 1
cells = [
    {name = "drawn", model = "word2vec-skipgram-mini", token_factor = 0.0},
    {name = "words", model = "word2vec-skipgram-mini", changes = ["objective.epochs=2"]},
]
"""


@pytest.mark.thorough
def test_cell_may_be_word_vectors(home: Path) -> None:
    (home / "rates.toml").write_text(VECTORS)
    result = run_toy_study(home)
    drawn, words = result.cell_results
    assert all(len(one.averages(result.benchmarks)) == 1 for one in (drawn, words))
    facts = json.loads((home / "out/pretrained/words/unmask.json").read_text())
    assert facts["recipe"]["objective"]["epochs"] == 2
    page = (home / "out/README.md").read_text()
    assert "Except for words: word vectors, trained on the whole text" in page
    assert "Except for drawn: random weights" in page
    with pytest.raises(ValueError, match=r"token_factor of glove-mini must be 0 or 1, got 0\.5"):
        StudyCell(name="half", model="glove-mini", token_factor=0.5)


def _interrupt(job: object) -> bool:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tokens": 999}, "this study has tokens = 768, not 999"),
        ({"data": "other.txt"}, r"this study reads \['.*text.txt'\]; give the same data"),
        ({"resume": False}, "holds a study already; continue it with --resume"),
        ({"cells": ["none"]}, r"rates has no cell 'none' \(it has little, much\)"),
        ({"seeds": 0}, "^--seeds must be at least 1, got 0"),
        ({"rows": -1}, "^--rows must be at least 1, got -1"),
        ({"tokens": 0}, "^--tokens must be at least 1, got 0"),
        ({"epochs": float("nan")}, "^--epochs must be above 0, got nan"),
        ({"epochs": float("inf")}, "^--epochs must be above 0, got inf"),
        ({"workers": -1}, "workers must be at least 0, got -1"),
        ({"threads": 0}, "threads must be at least 1, got 0"),
        ({"device": "cudaa"}, "device 'cudaa' cannot be used here"),
        ({"tasks_data": "tasks"}, "has its tasks from the Hub, not from .*tasks; give the same"),
    ],
)
def test_folder_of_another_study_is_refused(
    home: Path, change: dict, message: str, monkeypatch
) -> None:
    study = read_study(home / "rates.toml")
    (home / "out").mkdir()
    data, whole = [str(home / "text.txt")], to_dict(study)
    output = {"study": whole, "data": data, "tasks_data": None, "cells": []}
    (home / "out" / "study.json").write_text(json.dumps(output))
    if "tasks_data" in change:
        monkeypatch.chdir(home)
        (home / "tasks").mkdir()
        shutil.copy(home / "train.tsv", home / "tasks")
    with pytest.raises(ValueError, match=message):
        run_toy_study(home, **{"resume": True, **change})
    assert [one.name for one in (home / "out").iterdir()] == ["study.json"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "rate=0.5",
            "rate=0.4",
            r"a cell much with changes = \['obj.*=0.5'\], not \['obj.*=0.4'\]$",
        ),
        ('"much"', '"more"', "this study has the cells little, much, not little, more$"),
        (
            "sequence_length=32",
            "sequence_length=16",
            r"this study has changes = \[.*'sequence_length=32'.*'sequence_length=16'",
        ),
    ],
)
def test_changed_study_file_is_reported_with_the_change(home: Path, old, new, message) -> None:
    study = read_study(home / "rates.toml")
    (home / "out").mkdir()
    output = {"study": to_dict(study), "data": [str(home / "text.txt")], "cells": []}
    (home / "out" / "study.json").write_text(json.dumps(output))
    (home / "rates.toml").write_text(STUDY.replace(old, new))
    with pytest.raises(ValueError, match=message):
        run_toy_study(home, resume=True)


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ('{"study": 3}', r"out/study\.json: study must be a table, got 3"),
        ('{"study": {"cells": 3}}', "this study has kind = None, not 'Study'"),
        ("[]", r"out/study\.json: must be a JSON object, got list"),
        (None, "holds files, but not a study"),
    ],
)
def test_foreign_folder_is_left_alone(home: Path, output: str | None, message: str) -> None:
    (home / "out").mkdir()
    (home / "out" / ("mine.txt" if output is None else "study.json")).write_text(output or "")
    with pytest.raises(ValueError, match=message):
        run_toy_study(home, resume=True)
    assert len(list((home / "out").iterdir())) == 1


def test_malformed_results_are_reported_with_their_place(home: Path) -> None:
    study = read_study(home / "rates.toml")
    output = {"study": to_dict(study), "data": [str(home / "text.txt")], "cells": [{"name": 3}]}
    (home / "out").mkdir()
    (home / "out" / "study.json").write_text(json.dumps(output))
    with pytest.raises(ValueError, match=r"study\.json: cells\[0\]\.name must be str, got 3"):
        run_toy_study(home, resume=True)


@pytest.mark.thorough
def test_missing_report_is_rewritten(home: Path, monkeypatch) -> None:
    def die(folder: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(run_folder, "write_report", die)
        with pytest.raises(KeyboardInterrupt):
            run_toy_study(home, cells=["little"])
    run = home / "out/pretrained/little"
    assert json.loads((run / "unmask.json").read_text())["finished"]
    left = run / f".report.html.{'a' * 12}.part"
    left.write_text("half")
    run_toy_study(home, cells=["little"], resume=True)
    assert "</html>" in (run / "report.html").read_text()
    assert not left.exists()


@pytest.mark.trials("mistakes")
@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("objective.select.rate=0.5", "objective.select.rate=7"),
        ('name = "much"', 'name = "little"'),
        ('name = "much"', 'name = "../much"'),
        ('"toys.toml"', '"toys"'),
        ("bert-tiny", "bert-tinny"),
        ("bert-tiny", "unmask-mini-en"),
        ('name = "much"', 'name = "Little"'),
        ('name = "much"', f'name = "{"much" * 26}"'),
        ("rows = 20", "rows = 0"),
        ("epochs = 1", "epochs = nan"),
        ("epochs = 1", "epochs = inf"),
    ],
)
def test_mistake_is_reported_before_anything_runs(
    home: Path, line: str, message: str, capsys
) -> None:
    (home / "rates.toml").write_text(STUDY.replace(line, message), encoding="utf-8")
    folder = str(home / "out")
    result = [
        "study",
        str(home / "rates.toml"),
        "--data",
        str(home / "text.txt"),
        "--out",
        folder,
        "--quiet",
    ]
    status = cli.run(result)
    output = capsys.readouterr().err
    assert status == 2
    assert len(output.splitlines()) == 1
    assert "rates" in output
    assert message.split("=")[-1].strip(' "') in output
    assert not (home / "out").exists()


NAN = """objective = {kind = "Objective", corrupt = {kind = "MaskInPlace"},
              select = {kind = "TokenMasking", rate = nan}}"""


@pytest.mark.trials("mistakes")
@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            'changes = ["objective.select.rate=0.5"]',
            NAN.replace("\n             ", ""),
            r"rates\.toml: cells\[1\]\.objective\.select: rate must be above 0 .*, got nan$",
        ),
        (
            '"much"',
            '"a/b"',
            r"rates\.toml: cells\[1\]: name must be valid for a folder, .*, got 'a/b'$",
        ),
        (
            "batch_tokens=256",
            "batch_tokens=16",
            r"cell little: changes sequence_length=32: batch_tokens must be at least "
            r"sequence_length, 32, got 16$",
        ),
        ("=0.5", "=7", r"cell much: changes objective\..*=7: .* at most 1, got 7"),
    ],
)
def test_mistake_is_reported_with_its_place(home: Path, old: str, new: str, message: str) -> None:
    assert old in STUDY
    (home / "rates.toml").write_text(STUDY.replace(old, new))
    with pytest.raises(ValueError, match=message):
        run_toy_study(home)
    assert not (home / "out").exists()


@pytest.mark.parametrize(
    "change",
    ["steps=7", "model=bert-mini", "data=['x']", "vocab_size=500", "sampling_exponent=0.5"],
)
def test_options_set_by_the_study_are_refused(home: Path, change: str) -> None:
    (home / "rates.toml").write_text(STUDY.replace("dev_fraction=0.1", change))
    key = change.split("=")[0]
    with pytest.raises(ValueError, match=rf"rates.toml: .*changes: {key} cannot be changed"):
        run_toy_study(home)
    assert not (home / "out").exists()


def test_unknown_study_suggests_the_nearest() -> None:
    with pytest.raises(ValueError, match="unknown study 'bart-noise'; did you mean 'bart-noises'"):
        find_study("bart-noise")


@pytest.mark.thorough
def test_two_processes_share_the_cells(home: Path) -> None:
    location = home / "out/.running/little"
    location.mkdir(parents=True)
    script = (
        "import fcntl, sys; file = open(sys.argv[1], 'wb'); fcntl.lockf(file, fcntl.LOCK_EX); "
        "print('held', flush=True); sys.stdin.read()"
    )
    output = [sys.executable, "-c", script, str(location / ".lock")]
    with subprocess.Popen(
        output, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as another:
        assert another.stdout is not None
        assert another.stdout.readline() == "held\n"
        made = run_toy_study(home)
        assert [bool(one.scores) for one in made.cell_results] == [False, True]
        another.communicate()
    made = run_toy_study(home, resume=True)
    assert [bool(one.scores) for one in made.cell_results] == [True, True]


@pytest.mark.thorough
def test_finished_cells_are_not_reopened(home: Path) -> None:
    made = run_toy_study(home)
    assert all(one.is_done(made.benchmarks) for one in made.cell_results)
    assert {one.parameters for one in made.cell_results} == {made.cell_results[0].parameters} != {0}
    shutil.rmtree(home / "out/pretrained")
    shutil.rmtree(home / "out/tuned")
    assert run_toy_study(home, resume=True) == made


@pytest.mark.thorough
@pytest.mark.parametrize("cells", [("little",), ("little", "much")])
def test_failed_cell_is_reported_and_others_run(
    home: Path, monkeypatch, cells: tuple[str, ...]
) -> None:
    def diverge(base: Path, **_: object) -> None:
        if base.name in cells:
            raise ValueError("what the model says\nis not finite")
        raise ReachedError("in the next cell")

    monkeypatch.setattr(running, "finetune_suite", diverge)
    error, message = ReachedError, "in the next cell"
    if len(cells) == 2:
        error, message = ValueError, "rates: no cell could be run; little: what the model says is"
    with pytest.raises(error, match=message):
        run_toy_study(home)
    assert "- little was left out: what the model says is" in (home / "out/README.md").read_text()
    monkeypatch.undo()
    whole = run_toy_study(home, resume=True)
    assert all(one.is_done(whole.benchmarks) for one in whole.cell_results)


class ReachedError(Exception):
    """The next cell was begun."""


def test_unreadable_text_leaves_no_folder(home: Path) -> None:
    (home / "text.xyz").write_text("a")
    for name, error in (("text.xyz", ValueError), ("none.txt", FileNotFoundError)):
        with pytest.raises(error, match=name):
            run_toy_study(home, data=home / name)
        assert not (home / "out").exists()


SPECIAL = SpecialTokenIds(
    vocab_size=8292, pad=0, start=0, end=1, suffix=(1,), sentinels=tuple(range(8192, 8292))
)


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", [name for name in STUDIES if name != "smaller"])
def test_every_cell_of_a_published_study_can_be_built(name: str) -> None:
    study = STUDIES[name]
    assert study.name == name
    assert study.paper
    for cell in study.cells:
        preset, recipe = _check_cell(study, cell)
        with torch.device("meta"):
            assert 1e6 < preset.build().parameter_count() < 1e7
        if name == "elmo-tags":  # bytes and words are not counted alike
            continue
        assert recipe.sequence_length is not None
        # As many steps of as many rows, whatever a row holds.
        assert recipe.batch_tokens == 16 * recipe.sequence_length
        share = cell.token_factor if cell.text else bool(cell.token_factor)
        steps = share * study.tokens / (16 * 128) or 1
        assert math.ceil(study.token_budget(cell) / recipe.batch_tokens) == math.ceil(steps)


def test_t5_studies_equal_the_tables_of_the_paper() -> None:
    for name, table in {
        "t5-objectives": T5_OBJECTIVES, "t5-rates": T5_BY_RATE, "t5-spans": T5_BY_SPAN_LENGTH,
    }.items():  # fmt: skip
        none, *cells = STUDIES[name].cells
        assert (none.name, none.token_factor) == ("no-pretraining", 0)
        found = [_check_cell(STUDIES[name], cell)[0].objective for cell in cells]
        assert found == list(table.values())
        for key, cell in zip(table, cells, strict=True):
            assert cell.name.endswith(key if isinstance(key, str) else f"-{key:g}")


def test_t5_architectures_have_the_sizes_and_tokens_of_the_table() -> None:
    study = STUDIES["t5-architectures"]
    text: dict[str, set[int]] = {"denoising": set(), "language": set()}
    layers: dict[str, tuple[int, ...]] = {}
    for cell in study.cells:
        preset, recipe = _check_cell(study, cell)
        kind, objective = cell.name.split("+")
        text[objective].add(preset.objective.max_text_length(recipe.sequence_length or 0, SPECIAL))
        stacks = vars(preset.architecture)
        sides = [stacks[side] for side in ("encoder", "decoder") if side in stacks]
        layers[kind] = tuple(a.n_layers for a in sides or [preset.architecture])
        n = len(sides) or 1
        assert [a.d_model for a in sides or [preset.architecture]] == [128] * n
    assert [len(lengths) for lengths in text.values()] == [1, 1]
    assert layers == {
        "enc-dec": (2, 2), "shared": (2, 2), "half": (1, 1), "lm": (2,), "prefix-lm": (2,),
    }  # fmt: skip


def test_cell_objective_is_written_as_in_a_recipe(home: Path) -> None:
    own = 'changes = ["objective.select.rate=0.5"]'
    output = (
        'objective = {kind="Objective",select={kind="TokenMasking",rate=0.5},'
        'corrupt={kind="MaskInPlace"}}'
    )
    (home / "rates.toml").write_text(STUDY.replace(own, output), encoding="utf-8")
    study = read_study(home / "rates.toml")
    assert _check_cell(study, study.cells[1])[0].objective == Objective(
        TokenMasking(0.5), MaskInPlace()
    )
    output = output.replace("TokenMasking", "Tokenwide")
    (home / "rates.toml").write_text(STUDY.replace(own, output), encoding="utf-8")
    with pytest.raises(ValueError, match=r"rates.toml: cells\[1\].objective.select.kind must be"):
        read_study(home / "rates.toml")


def some(scores: dict[str, tuple[float, ...]]) -> StudyResult:
    cells = tuple(StudyCell(name=name, model="bert-tiny") for name in scores)
    study = Study(name="s", question="?", cells=cells, tasks="glue", tokens=1, seeds=2)
    outcomes = tuple(
        CellResult(name=name, parameters=5, loss=1.0, scores=_ran(own))
        for name, own in scores.items()
    )
    return StudyResult(study=study, benchmarks=("A", "B"), cell_results=outcomes)


def _ran(own: tuple[float, ...]) -> tuple[BenchmarkResult, ...]:
    return tuple(
        BenchmarkResult(
            name=name, folder=name, task="classify", metric="accuracy", dev=(s, s + 0.1)
        )
        for name, s in zip("AB", own, strict=False)
    )


def test_average_is_taken_per_seed() -> None:
    made = some({"x": (0.2, 0.6), "y": ()})
    assert made.cell_results[0].averages(made.benchmarks) == pytest.approx([40, 50])
    assert made.to_table()[1][0] == ["x", "5", "1.000", "25.0 ± 7.1", "65.0 ± 7.1", "45.0 ± 7.1"]
    assert made.to_table()[1][1][3:] == ["", "", ""]
    assert "| x | 5 | 1.000 | 25.0 ± 7.1 |" in format_markdown(made)


def test_task_missing_from_a_cell_is_reported() -> None:
    made = some({"x": (0.2, 0.6)})
    lacking = BenchmarkResult(
        name="B", folder="B", task="classify", error="b.tsv:3: a row has 1 field"
    )
    one = made.cell_results[0]
    made = made.with_result(replace(one, scores=(one.scores[0], lacking)))
    assert "- B was left out of x: b.tsv:3: a row has 1 field\n" in format_markdown(made)
    assert not made.cell_results[0].is_done(made.benchmarks)


def test_plot_has_a_dot_for_each_score() -> None:
    made = some({"x": (0.2, 0.6), "y": (0.4, 0.9)})
    root = ElementTree.fromstring(draw_svg(made))
    dots = [e for e in root.iter() if e.tag.endswith("circle")]
    assert len(dots) == 2 * 3 * 2  # cells, columns, seeds
    positions = np.array([[float(d.get("cx", "")), float(d.get("cy", ""))] for d in dots])
    left, right = positions[:4, 0].min(), positions[:4, 0].max()
    assert [positions[0, 0], positions[3, 0]] == [left, right]  # A: 20 of x, 50 of y
    assert positions[0, 1] == positions[1, 1] < positions[2, 1] == positions[3, 1]
    width = float(root.get("viewBox", "").split()[2])
    assert ((positions[:, 0] > 0) & (positions[:, 0] < width)).all()
    assert "x" in [e.text for e in root.iter() if e.tag.endswith("text")]


STAGES = """
question = "What does each stage give?"
tasks = "few.toml"
tokens = 512
epochs = 1
seeds = 1
changes = [
    "architecture.d_model=32", "architecture.d_ff=32", "batch_tokens=128", "sequence_length=16",
    "dev_fraction=0.1",
]
cells = [
    {name = "no-pretraining", model = "ulmfit-mini", token_factor = 0.0},
    {name = "no-domain", model = "ulmfit-mini", tune = "gradual"},
    {name = "all-stages", model = "ulmfit-mini", init_from = "no-domain", text = ["domain.txt"], \
     token_factor = 0.5, changes = ["schedule=SlantedTriangular", "layerwise_lr_decay=0.5"], \
     tune = "gradual"},
    {name = "plain", model = "ulmfit-mini", init_from = "all-stages", token_factor = 0.0},
]
"""


@pytest.fixture
def stages(home: Path) -> Path:
    (home / "few.toml").write_text(
        TASKS
        + TASKS.split("\n", 2)[2].replace('"Good or bad"', '"Few"').replace("[{", "[{", 1)
        + "rows = 4\n",
        encoding="utf-8",
    )
    (home / "stages.toml").write_text(STAGES, encoding="utf-8")
    (home / "domain.txt").write_text(corpus(40).replace("\n", "\n\n"), encoding="utf-8")
    return home


def staged(home: Path, **more: object) -> StudyResult:
    plain = {
        "data": home / "text.txt", "out": home / "out", "tasks_data": home, "threads": 1,
        "terminal": None,
    }  # fmt: skip
    return run_study(home / "stages.toml", **plain | more)


def facts(folder: Path) -> dict:
    return json.loads((folder / "unmask.json").read_text())


@pytest.mark.thorough
def test_cell_may_start_from_weights_of_another(stages: Path, monkeypatch) -> None:
    out = stages / "out"
    with monkeypatch.context() as patch:
        patch.setattr(running, "finetune_suite", _stop)
        with pytest.raises(KeyboardInterrupt):
            staged(stages, cells=["plain"])  # what it begins with is trained before
    assert sorted(one.name for one in (out / "pretrained").iterdir()) == ["all-stages", "no-domain"]
    before = (out / "pretrained/all-stages/model.safetensors").read_bytes()
    made = staged(stages, resume=True)
    assert (out / "pretrained/all-stages/model.safetensors").read_bytes() == before
    assert made.benchmarks == ("Good or bad", "Few")
    none, general, whole, plain = made.cell_results
    assert all(len(one.averages(made.benchmarks)) == 1 for one in made.cell_results)
    assert (none.loss, plain.loss, general.tokens) == (None, None, 512)
    assert whole.tokens == 256
    recipe = facts(out / "pretrained/all-stages")["recipe"]
    assert recipe["init_from"] == str(out / "pretrained/no-domain")
    assert recipe["layerwise_lr_decay"] == 0.5
    assert recipe["data"] == [str(out / "text/of-all-stages")]
    output = {
        name: facts(out / "tuned" / name / "Few")["recipe"] for name in ("all-stages", "plain")
    }
    assert [one["rows"] for one in output.values()] == [4, 4]
    assert [one["tune"]["kind"] for one in output.values()] == [
        "GradualUnfreezing",
        "FullFinetuning",
    ]
    assert {one["base"] for one in output.values()} == {str(out / "pretrained/all-stages")}
    page = (out / "README.md").read_text()
    assert "all-stages was initialized from no-domain and read 256 tokens of domain.txt" in page
    assert "no-domain was tuned by gradual." in page
    assert staged(stages, resume=True) == made


def _stop(*args: object, **options: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            'init_from = "no-domain"',
            'init_from = "plain"',
            "all-stages: init_from must be a cell before it",
        ),
        ('"domain.txt"', '"none.txt"', "cell all-stages reads none.txt, which is missing"),
        ('tune = "gradual"}', 'tune = "slow"}', "tune must be one of full, "),
    ],
)
def test_cell_that_cannot_start_is_reported(stages: Path, old: str, new: str, message: str) -> None:
    (stages / "stages.toml").write_text(STAGES.replace(old, new), encoding="utf-8")
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        staged(stages)
    assert not (stages / "out").exists()


@pytest.mark.thorough
def test_study_of_an_earlier_version_resumes(home: Path) -> None:
    made = run_toy_study(home)
    path = home / "out/study.json"
    record = json.loads(path.read_text())
    for cell in record["study"]["cells"]:
        for key in ("init_from", "text", "tune"):
            del cell[key]
    path.write_text(json.dumps(record))
    assert run_toy_study(home, resume=True).cell_results == made.cell_results
