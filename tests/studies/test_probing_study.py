"""A study of probes: cells are pretrained, each layer is probed, what is done is kept."""

import json
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path

import pytest
from toy_study import write_tasks

from unmask.cli.main import run as run_command
from unmask.config import from_dict, to_dict
from unmask.studies.probing import run as probing
from unmask.studies.probing.page import draw_probing_plot, format_probing_page
from unmask.studies.probing.published import WHAT_LAYERS_KNOW
from unmask.studies.probing.result import ProbedResult, ProbingStudyResult, TaskProbes
from unmask.studies.probing.study import ProbedFile, ProbingStudy
from unmask.studies.published_studies import find_study
from unmask.studies.run_study import _check_cell, run_study

STUDY = """
kind = "ProbingStudy"
question = "What is learned from <few> tokens?"
tokens = 512
rows = 8
epochs = 2
changes = ["batch_tokens=256", "sequence_length=32", "dev_fraction=0.1"]
cells = [
    {name = "masked", model = "bert-tiny"},
    {name = "short", model = "bert-tiny", changes = ["objective.select.rate=0.3"]},
]
tasks = [
    {name = "tags", file = "trees.conllu", task = "tags"},
    {name = "names", file = "names.txt", task = "spans"},
    {name = "absent", file = "absent.txt", task = "labels", label_column = 2},
]
"""
TREE = (
    "1\tthe\t_\tDET\t_\t_\t2\tdet\t_\t_\n2\t{}\t_\tNOUN\t_\t_\t3\tnsubj\t_\t_\n"
    "3\tsaw\t_\tVERB\t_\t_\t0\troot\t_\t_\n"
)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    write_tasks(tmp_path)
    words = ["king", "ship", "gate", "sea"] * 4
    (tmp_path / "trees.conllu").write_text("\n".join(TREE.format(word) for word in words))
    (tmp_path / "names.txt").write_text(
        "\n".join(f"New B-{kind}\nYork I-{kind}\nsaw O\n{word} B-PER\n"
                  for word, kind in zip(words, ["LOC", "ORG"] * 8, strict=True))
    )  # fmt: skip
    (tmp_path / "layers.toml").write_text(STUDY, encoding="utf-8")
    return tmp_path


def run_toy_study(home: Path, **more: object) -> ProbingStudyResult:
    plain = {"data": home / "text.txt", "tasks_data": home, "out": home / "out", "threads": 1}
    result = run_study(home / "layers.toml", **plain | {"terminal": None} | more)
    assert isinstance(result, ProbingStudyResult)
    return result


def test_cells_are_pretrained_and_probed_and_a_stopped_study_goes_on(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    probe, calls = probing.probe, []

    def probe_once(*args: object, **options: object) -> object:
        if calls:
            raise KeyboardInterrupt
        calls.append(options)
        return probe(*args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(probing, "probe", probe_once)
        with pytest.raises(KeyboardInterrupt, match="continue with --resume"):
            run_toy_study(home)
    weights = (home / "out/pretrained/masked/model.safetensors").read_bytes()
    report = home / "out/probed/masked/tags/probes.json"
    found = report.read_bytes()
    (home / "out/probed/masked/names").mkdir()
    (home / "out/probed/masked/names/probes.html").write_text("half")  # killed while it wrote
    with pytest.raises(ValueError, match="holds a study already; continue it with --resume"):
        run_toy_study(home)
    with pytest.raises(ValueError, match="this study has rows = 8, not 5"):
        run_toy_study(home, resume=True, rows=5)
    result = run_toy_study(home, resume=True)
    assert (home / "out/pretrained/masked/model.safetensors").read_bytes() == weights
    assert report.read_bytes() == found
    assert result.benchmarks == ("tags", "names")  # the file of the third is missing
    for one in result.cell_results:
        assert one.is_done(result.benchmarks)
        assert one.loss is not None
        tags = one.probes_of("tags")
        assert tags is not None
        saved = json.loads((home / f"out/probed/{one.name}/tags/probes.json").read_text())
        layers = saved["tasks"]["tags"]["networks"]
        assert tags.accuracies == tuple(x["accuracy"] for x in layers["trained"]["layers"])
        assert tags.random_accuracies == tuple(x["accuracy"] for x in layers["random"]["layers"])
        assert len(tags.accuracies) == 3  # two layers
        assert tags.majority == 1  # each word has one part of speech
    page = (home / "out/README.md").read_text()
    assert f"| masked | {result.cell_results[0].parameters:,} |" in page
    assert r"\<few> tokens" in page
    assert (home / "out/plot.svg").read_text() == draw_probing_plot(result)
    again = run_toy_study(home, resume=True)
    assert again.cell_results == result.cell_results


def study_of(name: str) -> ProbingStudy:
    return replace(WHAT_LAYERS_KNOW, name=name, question="<script> | *why*?")


def test_page_and_picture_escape_names_and_show_what_is_missing() -> None:
    study = study_of("<b>|bold")
    probes = TaskProbes(
        name="entities", n_scored=9, majority=0.5, accuracies=(0.25, 0.75, 0.75),
        compressions=(1.0, 2.0, 1.5), random_accuracies=(0.5, 0.25, 0.25),
    )  # fmt: skip
    first, second, *others = (ProbedResult(name=cell.name) for cell in study.cells)
    cells = (
        replace(first, parameters=1234, loss=2.5, probes=(probes,)),
        replace(second, error="<i>loss</i> is nan"),
        *others,
    )
    result = ProbingStudyResult(study=study, benchmarks=("entities",), cell_results=cells)
    names, rows = result.to_table()
    assert names == ["cell", "parameters", "held-out loss", "entities", "layer", "random"]
    assert rows[0] == ["masked", "1,234", "2.500", "75.0", "1", "50.0"]
    assert rows[1][2:] == ["left out", "", "", ""]
    assert rows[-1] == ["baseline", "", "", "50.0", "", ""]
    page = format_probing_page(result)
    assert r"# \<b>\|bold" in page
    assert r"\<script> \| \*why\*?" in page
    assert r"\<i>loss\</i> is nan" in page
    assert "| masked | 25.0 | 75.0 | 75.0 |" in page
    svg = draw_probing_plot(result)
    ElementTree.fromstring(svg)
    assert "&lt;b&gt;" in svg
    assert "<b>" not in svg
    empty = replace(result, cell_results=tuple(ProbedResult(name=c.name) for c in study.cells))
    assert "##" not in format_probing_page(empty)
    ElementTree.fromstring(draw_probing_plot(empty))
    assert not cells[0].is_done(["entities", "chunks"])
    assert from_dict(ProbedResult, to_dict(cells[0])) == cells[0]


def test_every_cell_of_the_published_study_is_valid_and_its_files_differ_in_name(
    tmp_path: Path,
) -> None:
    study = find_study("what-layers-know")
    assert isinstance(study, ProbingStudy)
    sizes = set()
    for cell in study.cells:
        preset, recipe = _check_cell(study, cell)
        assert (recipe.sequence_length, recipe.batch_tokens) == (128, 1024)
        sizes.add(
            to_dict(preset.architecture).get("encoder", to_dict(preset.architecture))["d_model"]
        )
    assert sizes == {128}
    with pytest.raises(FileNotFoundError, match=r"has none of ud_english_ewt.*, conll2003"):
        study.find_files(tmp_path)
    with pytest.raises(ValueError, match="give their folder by --tasks-data"):
        study.find_files(None)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rows": 1}, "rows must be at least 2, got 1"),
        ({"epochs": 2.5}, "epochs must be a whole number of at least 1, got 2.5"),
        ({"tokens": 0}, "tokens must be at least 1, got 0"),
        ({"tasks": ()}, "tasks must be one or more"),
        ({"tasks": (ProbedFile(name="a", file="a.txt", task="spans"),) * 2}, "differ by name"),
        (
            {"cells": (replace(WHAT_LAYERS_KNOW.cells[0], token_factor=0.0),)},
            "cell masked: must be a pretrained network, got random weights",
        ),
        (
            {"cells": (replace(WHAT_LAYERS_KNOW.cells[0], tune="scalar_mix"),)},
            "tune is of studies that fine-tune",
        ),
    ],
)
def test_invalid_studies_are_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(WHAT_LAYERS_KNOW, **change)
    with pytest.raises(ValueError, match="name must be valid for a folder"):
        ProbedFile(name="../a", file="a.txt", task="tags")


def test_bad_options_are_one_line_and_nothing_is_written(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["study", str(home / "layers.toml"), "--data", str(home / "text.txt")]
    for more, message in (
        (["--tasks-data", str(home), "--seeds", "2"], "--seeds is of studies that fine-tune"),
        (["--tasks-data", str(home), "--base", "x"], "--base is of studies of one model"),
        (["--tasks-data", str(home), "--cells", "x"], "has no cell 'x' (it has masked, short)"),
        ([], "give their folder by --tasks-data"),
        (["--tasks-data", str(home / "out")], "has none of trees.conllu, names.txt, absent.txt"),
    ):
        assert run_command([*given, *more, "--out", str(home / "out"), "--quiet"]) == 2
        lines = capsys.readouterr().err.strip().splitlines()
        assert len(lines) == 1, lines
        assert message in lines[0]
        assert not (home / "out").exists()
