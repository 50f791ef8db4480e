"""Figures of analyses: well-formed SVG with the texts of the findings, whatever these are."""

from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from small_models import make
from toy_text import corpus

import unmask
from unmask.analysis.behavior.accuracy import GroupAccuracy
from unmask.cli.main import run
from unmask.reports.analysis.figures.accuracy_plot import draw_accuracy_plot
from unmask.reports.analysis.figures.heat_map import HeatCell, draw_heat_map
from unmask.reports.analysis.figures.of_behavior import draw_pair_figures
from unmask.reports.analysis.figures.of_hidden_states import (
    draw_lens_figures,
    draw_similarity_figures,
)

HOSTILE = [
    "</text><script>alert(1)</script>", "a & b < c > \"d\" 'e'", "]]>", "<!--", "\x00\x1b[0m\u202e",
    "\ud800", "&amp;", "", "x" * 200,
]  # fmt: skip
SVG = "{http://www.w3.org/2000/svg}"
ALLOWED = {"svg", "title", "rect", "text", "g", "path", "circle", "polyline"}


def parsed(svg: str) -> ElementTree.Element:
    """Parse a figure, and check that it has nothing but marks and texts."""
    svg.encode("utf-8")
    root = ElementTree.fromstring(svg)
    assert root.tag == f"{SVG}svg"
    assert {one.tag.removeprefix(SVG) for one in root.iter()} <= ALLOWED
    for one in root.iter():
        assert not [name for name in one.attrib if name.startswith("on") or "href" in name]
        if one.tag == f"{SVG}circle":
            assert np.isfinite([float(one.attrib[name]) for name in ("cx", "cy")]).all()
    return root


def texts(root: ElementTree.Element) -> list[str]:
    return [one.text or "" for one in root.iter(f"{SVG}text")]


def test_a_heat_map_has_each_name_and_shade() -> None:
    cells = [[HeatCell(0.25, "25"), HeatCell(-1.0)], [HeatCell(0.9, "90"), HeatCell(2.0, "<")]]
    root = parsed(draw_heat_map("A & B", ["one", "two"], ["left", "right"], cells))
    assert set(texts(root)) == {"A & B", "one", "two", "left", "right", "25", "90", "<"}
    _, *fields = root.iter(f"{SVG}rect")  # the background first
    assert [one.attrib["fill-opacity"] for one in fields] == ["0.250", "1.000", "0.900", "1.000"]
    assert fields[0].attrib["fill"] != fields[1].attrib["fill"]
    x, y = ([float(one.attrib[name]) for one in fields] for name in "xy")
    assert (x[0], y[0], x[1], y[2]) == (x[2], y[1], x[3], y[3])
    width, height = map(float, root.attrib["viewBox"].split()[2:])
    assert max(x) + float(fields[0].attrib["width"]) <= width
    assert max(y) + float(fields[0].attrib["height"]) <= height


def test_accuracies_stand_on_a_scale() -> None:
    group = [
        GroupAccuracy(name=name, n_items=4, n_ties=0, accuracy=a, low=a - 0.1, high=a + 0.1)
        for name, a in (("all_words", 0.5), ("all_words", 0.75))
    ]
    root = parsed(draw_accuracy_plot("T", ["trained", "random"], [group], [0.5]))
    ticks = {one.text: float(one.attrib["x"]) for one in root.iter(f"{SVG}text")}
    marks = [float(one.attrib["cx"]) for one in root.iter(f"{SVG}circle")][2:]
    assert marks == [ticks["50"], ticks["75"]]
    assert "all words" in ticks


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_texts_stay_texts(text: str) -> None:
    cell = [[HeatCell(0.5, text)]]
    parsed(draw_heat_map(text, [text], [text], cell))
    group = GroupAccuracy(name=text, n_items=1, n_ties=0, accuracy=1.0, low=0.2, high=1.0)
    parsed(draw_accuracy_plot(text, [text], [[group]], [0.5]))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    make("bert", folder)
    return folder


@pytest.mark.thorough
def test_each_analysis_writes_its_figures(model: Path, tmp_path: Path) -> None:
    data, out = tmp_path / "text.txt", tmp_path / "out"
    data.write_text(corpus(6))
    hostile = "the </text><b> [MASK] & <sea>"
    analyses = [
        "lens:sentences=4", f"similarity:other={model},sentences=4", "saliency:steps=4",
        "contextuality:sentences=8,min_contexts=2", "senses:pseudo_words=2,per_word=4",
    ]  # fmt: skip
    found = unmask.probe(
        model, analysis=analyses, data=data, text=hostile, out=out, terminal=None, device="cpu"
    )
    pairs = unmask.probe(
        model, analysis="pairs:per_paradigm=2", out=tmp_path / "pairs", terminal=None
    )["pairs"]
    expected = {
        "lens-layers", "lens-text-1", "similarity-cka", "similarity-cka-random",
        "contextuality-layers", "senses-layers", "saliency-text-1",
    }  # fmt: skip
    written = {path.stem for path in out.glob("*.svg")}
    assert expected <= written
    for path in [*out.glob("*.svg"), *(tmp_path / "pairs").glob("*.svg")]:
        parsed(path.read_text(encoding="utf-8"))
    assert hostile in texts(parsed((out / "lens-text-1.svg").read_text()))
    assert {p.stem for p in (tmp_path / "pairs").glob("*.svg")} == {
        "pairs-phenomena", "pairs-paradigms",
    }  # fmt: skip
    for text in HOSTILE:
        similarity = replace(found["similarity"].findings, other=text, model=text)
        lens = replace(found["lens"].findings, model=text)
        figures = draw_similarity_figures(similarity) | draw_lens_figures(lens)
        figures |= draw_pair_figures(replace(pairs.findings, model=text))
        for svg in figures.values():
            parsed(svg)


def test_a_figure_that_is_there_is_not_overwritten(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "pairs-phenomena.svg").write_text("mine")
    assert run(["probe", str(model), "--analysis", "pairs", "--out", str(out)]) == 2
    assert "pairs-phenomena.svg: exists already" in capsys.readouterr().err
    assert (out / "pairs-phenomena.svg").read_text() == "mine"
