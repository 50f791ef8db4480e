"""`unmask probe --analysis pairs`: files, page, and bad input in one line."""

import json
from pathlib import Path
from typing import Any

import pytest
from small_models import make, tokenizer

import unmask
from unmask.cli.main import run
from unmask.evaluation.likelihood import continuation_likelihoods

ROWS = [
    {"sentence_good": f"the {a} saw {b}", "sentence_bad": f"the saw {b} {a}", "UID": f"order_{i}"}
    | {"linguistics_term": "word_<order>"}
    for i in (1, 2)
    for a in ("king", "gate", "sea")
    for b in ("her", "the ring")
]
ROWS.append(ROWS[0] | {"sentence_bad": ROWS[0]["sentence_good"], "UID": "tied"})


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "pairs.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in ROWS))
    return path


def test_files_and_page(model: Path, data: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    reports = unmask.probe(model, analysis="pairs", data=data, out=out, terminal=None)
    pages = sorted(p.name for p in out.iterdir() if p.suffix != ".svg")
    assert pages == [
        "pairs.html",
        "pairs.json",
        "pairs.md",
    ]
    found = json.loads((out / "pairs.json").read_text())
    assert found == json.loads(json.dumps(reports["pairs"].json))
    assert list(found["accuracies"]) == ["trained", "random", "fewer_tokens"]
    assert found["n_pairs"] == found["n_pairs_in_data"] == 13
    opened, known = unmask.load(model).model, tokenizer("bert")
    credits = []  # a plain loop, one sentence at a time
    for row in ROWS:
        good, bad = (
            continuation_likelihoods(opened, known, [""], [row[name]])[0].log_likelihood
            for name in ("sentence_good", "sentence_bad")
        )
        credits.append(0.5 if row["UID"] == "tied" else float(good > bad))
    trained = found["accuracies"]["trained"]
    assert trained["overall"]["accuracy"] == pytest.approx(sum(credits) / 13, abs=1e-6)
    assert [one["n_ties"] for one in trained["paradigms"]] == [0, 0, 1]
    assert trained["paradigms"][0]["accuracy"] == pytest.approx(sum(credits[:6]) / 6, abs=1e-6)
    lengths = [
        [len(known.encode(row[k])) for k in ("sentence_good", "sentence_bad")] for row in ROWS
    ]
    fewer = found["accuracies"]["fewer_tokens"]["overall"]
    assert fewer["n_ties"] == sum(good == bad for good, bad in lengths)
    page = (out / "pairs.html").read_text()
    assert "<order>" not in page
    assert "word &lt;order&gt;" in page
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert "| tied " in (out / "pairs.md").read_text()


def test_settings(model: Path, data: Path, tmp_path: Path) -> None:
    def probe(settings: str, name: str, **options: Any) -> dict[str, Any]:
        out = tmp_path / name
        return unmask.probe(
            model, analysis=f"pairs:{settings}", data=data, out=out, terminal=None, **options
        )["pairs"].json

    few = probe("per_paradigm=2,shown=0", "few", control=False)
    assert (few["n_pairs"], few["errors"]) == (5, [])
    assert list(few["accuracies"]) == ["trained", "fewer_tokens"]
    token = probe("per_paradigm=none,pll_masking=token", "token", control=False)
    assert token["n_pairs"] == 13
    assert token["likelihood"] != few["likelihood"]


@pytest.mark.parametrize(("compared", "word"), [("targets", "share"), ("contexts", "two contexts")])
def test_sentences_after_contexts(compared: str, word: str, model: Path, tmp_path: Path) -> None:
    row = {"Domain": "spatial", "Context1": "her <ring>", "Context2": "the sea"}
    data = tmp_path / "ewok.jsonl"
    data.write_text(json.dumps(row | {"Target1": "the king saw", "Target2": "the gate saw"}))
    found = unmask.probe(
        model, analysis=f"pairs:compared={compared}", data=data, out=tmp_path / "out", terminal=None
    )["pairs"]
    assert found.json["compared"] == compared
    assert [one["name"] for one in found.json["accuracies"]["trained"]["paradigms"]] == ["spatial"]
    assert word in found.markdown
    assert "her <ring>" not in found.html


def test_without_data_pairs_are_built_in(model: Path, tmp_path: Path) -> None:
    found = unmask.probe(
        model, analysis="pairs:per_paradigm=2", out=tmp_path / "out", control=False, terminal=None
    )["pairs"].json
    assert (found["data"], found["n_pairs"], found["n_pairs_in_data"]) == (
        "built-in pairs",
        20,
        404,
    )
    assert set(found["phenomenon_of"].values()) == {"negation", "roles"}


@pytest.mark.parametrize(
    ("settings", "rows", "message"),
    [
        ("pairs:per_paradigm=0", ROWS, "per_paradigm must be at least 1, or none, got 0"),
        ("pairs:shown=-1", ROWS, "shown must be at least 0"),
        ("pairs:pll_masking=letter", ROWS, "pll_masking must be"),
        (
            "pairs:compared=words",
            ROWS,
            "compared must be one of ['targets', 'contexts'], got 'words'",
        ),
        ("pairs:score=original", ROWS, "score"),
        ("pairs", [], "the file is empty"),
        ("pairs", [{"text": "a"}], "need a column sentence_good or good"),
        ("pairs", [{"good": "a", "bad": ""}], "bad must be a text"),
    ],
)
def test_bad_input_is_one_line(
    settings: str,
    rows: list[dict[str, str]],
    message: str,
    model: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    data, out = tmp_path / "data.jsonl", tmp_path / "out"
    data.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    arguments = ["probe", str(model), "--analysis", settings, "--data", str(data)]
    assert run([*arguments, "--out", str(out)]) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1, lines
    assert message in lines[0]
    assert not out.exists()


def test_a_model_without_a_language_head_is_refused(data: Path, tmp_path: Path) -> None:
    from dataclasses import replace

    from unmask.heads.model import Model
    from unmask.inference.pipeline import Pipeline
    from unmask.zoo.catalogue import get_preset

    folder = tmp_path / "model"
    make("bert", folder)
    loaded = unmask.load(folder).loaded_model
    bare = Model(get_preset("bert-tiny").architecture.with_vocab_size(200), {})
    with pytest.raises(ValueError, match="language"):
        unmask.probe(
            Pipeline(replace(loaded, model=bare)),
            analysis="pairs",
            data=data,
            out=tmp_path / "out",
            terminal=None,
        )
