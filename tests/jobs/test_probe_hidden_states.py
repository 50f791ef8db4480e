"""`unmask probe` of hidden states: files and pages of each analysis, and bad input in one line."""

import json
from pathlib import Path

import numpy as np
import pytest
from small_models import make

import unmask
from unmask.cli.main import run


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("models")
    kinds = {
        "masked": ("bert", "BertForMaskedLM"),
        "decoder": ("gpt2", None),
        "both": ("t5", None),
        "nothing": ("bert", "BertModel"),
    }
    for name, (family, kind) in kinds.items():
        make(family, folder / name, kind)
    return {name: folder / name for name in kinds}


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.txt"
    some = ["The <i>dog</i> sees the cat and sleeps.", "A king sees the old dog near the house."]
    path.write_text(" ".join(some * 4), encoding="utf-8")
    return path


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", ["masked", "decoder", "both"])
def test_lens(name: str, models: dict[str, Path], corpus: Path, tmp_path: Path) -> None:
    text = "the <b> sees" if name == "decoder" else "the [MASK] <b> sees"
    out = tmp_path / "out"
    report = unmask.probe(
        models[name], analysis="lens:sentences=4,masks=2", data=corpus, text=text, out=out,
        terminal=None,
    )["lens"]  # fmt: skip
    pages = sorted(p.name for p in out.iterdir() if p.suffix != ".svg")
    assert pages == [
        "lens.html",
        "lens.json",
        "lens.md",
    ]
    found = json.loads((out / "lens.json").read_text())
    assert found == json.loads(json.dumps(report.json))
    trained, control = found["networks"]["trained"], found["networks"]["random"]
    assert [one["layer"] for one in trained["layers"]] == [0, 1, 2, 3]
    assert trained["layers"] != control["layers"]
    assert trained["layers"][-1]["agreement"] == 1
    page = (out / "lens.html").read_text()
    assert "&lt;b&gt;" in page
    assert "<b> sees" not in page
    assert "http://" not in page.replace("http://www.w3.org", "")


def test_lens_of_given_texts_alone(models: dict[str, Path], tmp_path: Path) -> None:
    report = unmask.probe(
        models["masked"], analysis="lens", text="the [MASK] sees", out=tmp_path / "out",
        terminal=None,
    )["lens"]  # fmt: skip
    assert report.json["n_positions"] == 0
    assert report.json["networks"]["trained"]["layers"] == []
    assert len(report.table[1]) == 4


def refused(given: list[str], message: str, out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["probe", *given, "--quiet", "--out", str(out)]) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1, lines
    assert message in lines[0]
    assert not out.exists()


def test_bad_input_of_the_lens(
    models: dict[str, Path], corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, arguments, message in (
        ("masked", [], "no texts: name a file"),
        ("nothing", ["--data", str(corpus)], "no language-model head"),
        ("masked", ["--text", "the dog"], "must have one [MASK]"),
        ("decoder", ["--text", "the [MASK]"], "must have words and no [MASK]"),
        ("decoder", ["--data", str(tmp_path / "none.txt")], "none.txt"),
    ):
        given = [str(models[name]), "--analysis", "lens", *arguments]
        refused(given, message, tmp_path / "out", capsys)
    given = [str(models["masked"]), "--analysis", "lens:masks=0", "--data", str(corpus)]
    refused(given, "masks must be at least 1", tmp_path / "out", capsys)


@pytest.mark.parametrize("name", ["masked", "decoder", "both"])
def test_similarity(name: str, models: dict[str, Path], corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    analysis = f"similarity:other={models[name]}"
    report = unmask.probe(models[name], analysis=analysis, data=corpus, out=out, terminal=None)[
        "similarity"
    ]
    found = json.loads((out / "similarity.json").read_text())
    assert found == json.loads(json.dumps(report.json))
    for matrix in found["to_other"].values():  # of itself
        assert [matrix[i][i] for i in range(4)] == pytest.approx([1.0] * 4, abs=1e-6)
    assert min(found["to_random"]["cka"][i][i] for i in range(1, 4)) < 0.99
    assert set(found["weight_changes"].values()) == {0}
    page = (out / "similarity.html").read_text()
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert "Layers" in page


def test_similarity_of_other_architectures(
    models: dict[str, Path], corpus: Path, tmp_path: Path
) -> None:
    report = unmask.probe(
        models["masked"], analysis=f"similarity:other={models['both']}", data=corpus,
        out=tmp_path / "out", control=False, terminal=None,
    )["similarity"]  # fmt: skip
    assert np.shape(report.json["to_other"]["cka"]) == (4, 4)
    assert report.json["to_random"] is None


def test_bad_input_of_similarity(
    models: dict[str, Path], corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = f"similarity:other={models['both']}"
    for analysis, arguments, message in (
        ("similarity", ["--data", str(corpus)], "other must name a model"),
        (other, [], "no data: name a file"),
        ("similarity:other=nowhere", ["--data", str(corpus)], "nowhere"),
        (f"{other},sentences=0", ["--data", str(corpus)], "sentences must be at least 1"),
    ):
        given = [str(models["masked"]), "--analysis", analysis, *arguments]
        refused(given, message, tmp_path / "out", capsys)


@pytest.mark.parametrize("name", ["masked", "decoder", "both"])
def test_contextuality(name: str, models: dict[str, Path], corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    analysis = "contextuality:min_contexts=3"
    report = unmask.probe(models[name], analysis=analysis, data=corpus, out=out, terminal=None)[
        "contextuality"
    ]
    found = json.loads((out / "contextuality.json").read_text())
    assert found == json.loads(json.dumps(report.json))
    assert list(found["networks"]) == ["trained", "whitened", "random"]
    assert all(len(layers) == 4 for layers in found["networks"].values())
    page = (out / "contextuality.html").read_text()
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert "Self-similarity" in page


def test_bad_input_of_contextuality(
    models: dict[str, Path], corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for analysis, arguments, message in (
        ("contextuality", [], "no data: name a file"),
        ("contextuality:sentences=1", ["--data", str(corpus)], "sentences must be at least 2"),
        ("contextuality:min_contexts=9", ["--data", str(corpus)], "no word is in 9 of 8 sentences"),
    ):
        given = [str(models["masked"]), "--analysis", analysis, *arguments]
        refused(given, message, tmp_path / "out", capsys)
