"""`unmask probe`: the files of an analysis of attention, its page, and bad input in one line."""

import json
from pathlib import Path

import numpy as np
import pytest
from small_models import make

import unmask
from unmask.cli.main import run
from unmask.inference.pipeline import Pipeline
from unmask.reports.analysis.attention_view import KEPT_WEIGHTS, encode_maps

WORDS = (
    "1\tthe\tthe\tDET\t_\t_\t2\tdet\t_\t_\n2\t{}\t_\tNOUN\t_\t_\t3\tnsubj\t_\t_\n"
    "3\t{}\t_\tVERB\t_\t_\t0\troot\t_\t_\n4\t{}\t_\tADV\t_\t_\t3\tadvmod\t_\t_\n"
)
SETTINGS = "attention:min_count=1,sentences=6"


@pytest.fixture
def trees(tmp_path: Path) -> Path:
    path = tmp_path / "trees.conllu"
    rows = [WORDS.format(a, b, c) for a in ("dog", "<b>") for b in ("sees", "falls") for c in "xyz"]
    path.write_text("\n".join(rows), encoding="utf-8")
    return path


def test_files_and_page_of_an_analysis(model: Path, trees: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    reports = unmask.probe(
        model, analysis=SETTINGS, data=trees, out=out, text="the <i>dog</i>", terminal=None
    )
    assert sorted(p.name for p in out.iterdir() if p.suffix != ".svg") == [
        "attention.html", "attention.json", "attention.md",
    ]  # fmt: skip
    found = json.loads((out / "attention.json").read_text())
    assert found == json.loads(json.dumps(reports["attention"].json))
    assert found["n_train"] == found["n_test"] == 6
    assert list(found["networks"]) == ["trained", "random"]
    trained, control = found["networks"].values()
    assert {one["relation"] for one in trained["relations"]} == {"all", "det", "nsubj", "advmod"}
    assert trained["statistics"] != control["statistics"]
    assert trained["parser"]["offset"] == control["parser"]["offset"] > 0
    page = (out / "attention.html").read_text()
    assert "<i>dog" not in page.replace("\\u003ci", "")
    data = page.partition('id="attention-data">')[2].partition("</script>")[0]
    assert json.loads(data)[0]["texts"][0]["labels"] == ["[CLS]", "the", "<i>dog</i>", "[SEP]"]
    assert "http://" not in page.replace("http://www.w3.org", "")
    table = (out / "attention.md").read_text()
    assert "| nsubj " in table
    assert "random weights" in table


def test_weights_of_a_page_are_bytes() -> None:
    maps = np.random.default_rng(0).dirichlet(np.ones(200), (2, 200))
    data = np.frombuffer(encode_maps(maps, 0), np.uint8).reshape(2, 200, 200)
    assert np.abs(data / 255 - maps).max() <= 0.5 / 255 + 1e-9
    part = encode_maps(maps, KEPT_WEIGHTS)
    assert len(part) == 2 * 200 * KEPT_WEIGHTS * 3
    columns = np.frombuffer(part[len(part) // 3 :], "<u2").reshape(2, 200, KEPT_WEIGHTS)
    assert (columns[..., 0] == maps.argmax(-1)).all()


def test_bad_input_is_one_line_and_nothing_is_written(
    model: Path, trees: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flat, empty, alone = (tmp_path / f"{name}.conllu" for name in ("flat", "empty", "alone"))
    flat.write_text("1\tthe\t_\t_\t_\t_\t_\t_\t_\t_\n")
    empty.write_text("")
    alone.write_text(WORDS.format("a", "b", "c"))
    table = tmp_path / "table.tsv"
    table.write_text("text\tlabel\na\tb\n")
    vectors = tmp_path / "some.vec"
    vectors.write_text("1 2\nthe 0.5 0.5\n")
    out, name = tmp_path / "out", ["--analysis", "attention"]
    for arguments, message in (
        ([str(model), "--data", str(trees)], "no analysis: name one"),
        ([str(model), "--data", str(trees), "--analysis", "dreams"], "one of attention, ali"),
        ([str(model), *name], "no data: name a file"),
        ([str(model), "--data", str(trees), "--analysis", "attention:sentences=0"], "at least 1"),
        ([str(model), "--data", str(flat), *name], "no dependency tree"),
        ([str(model), "--data", str(empty), *name], "empty"),
        ([str(model), "--data", str(alone), *name], "cannot be halved"),
        ([str(model), "--data", str(table), *name], "read from .conllu"),
        ([str(model), "--data", str(tmp_path / "none.conllu"), *name], "no such file"),
        ([str(model), "--data", str(trees), *name, "--text", " "], "has no word"),
        ([str(vectors), "--data", str(trees), *name], "is a file; a model is a folder"),
    ):
        assert run(["probe", *arguments, "--out", str(out)]) == 2
        lines = capsys.readouterr().err.strip().splitlines()
        assert len(lines) == 1, lines
        assert message in lines[0]
        assert not out.exists()


def test_a_network_without_attention_is_refused(trees: Path, tmp_path: Path, model: Path) -> None:
    from dataclasses import replace

    from unmask.heads.model import Model
    from unmask.zoo.catalogue import get_preset

    loaded = unmask.load(model).loaded_model
    lstm = Model(get_preset("lstm-mini").architecture.with_vocab_size(200), {})
    pipeline = Pipeline(replace(loaded, model=lstm))
    with pytest.raises(ValueError, match="Transformer blocks only"):
        unmask.probe(pipeline, analysis=SETTINGS, data=trees, out=tmp_path / "out", terminal=None)


def test_files_are_not_overwritten(model: Path, trees: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "attention.md").write_text("mine")
    with pytest.raises(ValueError, match=r"attention\.md: exists already"):
        unmask.probe(model, analysis=SETTINGS, data=trees, out=out, terminal=None)


def test_alignment_of_two_parallel_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, out = tmp_path / "t5", tmp_path / "out"
    make("t5", folder)
    (tmp_path / "a.en").write_text("The dog sleeps.\nA cat.\n" * 3)
    (tmp_path / "a.de").write_text("Der Hund schl\u00e4ft.\nEine Katze.\n" * 3, encoding="utf-8")
    words = tmp_path / "en-de.tsv"
    words.write_text("dog\tHund\ncat\tKatze\n")
    data = f"{tmp_path / 'a.en'}+{tmp_path / 'a.de'}"
    wanted = ["--analysis", f"alignment:dictionary={words}"]
    assert run(["probe", str(folder), *wanted, "--data", data, "--out", str(out), "--quiet"]) == 0
    assert "the diagonal" in capsys.readouterr().out
    found = json.loads((out / "alignment.json").read_text())
    trained = found["networks"]["trained"]
    assert (found["n_train"], found["n_test"], trained["words"]) == (3, 3, 3)
    assert trained["diagonal"] == 0
    assert "Error rate of each head" in (out / "alignment.html").read_text()
    words.write_text("Hund\tdog\nKatze\tcat\n")
    again = ["--data", data, "--out", str(tmp_path / "again")]
    for arguments, message in (
        ([str(folder), *wanted, *again], "in the other direction"),
        (["unmask-mini-en", *wanted, *again], "only encoder-decoders have"),
        ([str(folder), *wanted, "--data", str(words), *again[2:]], "two parallel files"),
        ([str(folder), "--analysis", "alignment", *again], "dictionary"),
    ):
        assert run(["probe", *arguments]) == 2
        lines = capsys.readouterr().err.strip().splitlines()
        assert len(lines) == 1, lines
        assert message in lines[0]
    assert not (tmp_path / "again").exists()
