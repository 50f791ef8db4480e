"""`unmask probe --analysis judgments`: files, page, and bad input in one line."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

import unmask
from unmask.analysis.behavior.sentences import sentence_likelihoods
from unmask.cli.main import run

TEXTS = ["the sea\tthe gate", "a <fox>\ta king", "her ring\tthe gatehouse", "A\tthe", "fox\tsea"]
ROWS = [{"sentences": one, "ratio": i / 5} for i, one in enumerate(TEXTS)]


def write(path: Path, rows: Sequence[Mapping[str, object]]) -> Path:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def test_files_and_page(model: Path, tmp_path: Path) -> None:
    data, out = write(tmp_path / "new_words.jsonl", ROWS), tmp_path / "out"
    reports = unmask.probe(
        model, analysis="judgments:pll_masking=token", data=data, out=out, terminal=None
    )
    names = sorted(p.name for p in out.iterdir() if p.suffix != ".svg")
    assert names == ["judgments.html", "judgments.json", "judgments.md"]
    found = json.loads((out / "judgments.json").read_text())
    assert found == json.loads(json.dumps(reports["judgments"].json))
    assert list(found["networks"]) == ["trained", "random", "fewer_tokens"]
    opened = unmask.load(model)
    for text, item in zip(TEXTS, found["items"], strict=True):
        first, second = (
            one.log_likelihood
            for one in sentence_likelihoods(
                opened.model, opened.tokenizer, text.split("\t"), pll_masking="token"
            )
        )
        assert item["preference"] == pytest.approx(first - second, abs=1e-4)
    page = (out / "judgments.html").read_text()
    assert "<fox>" not in page
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert "| new words " in (out / "judgments.md").read_text()


@pytest.mark.parametrize(
    ("settings", "rows", "message"),
    [
        ("judgments:pll_masking=letter", ROWS, "pll_masking must be one of"),
        ("judgments", [], "the file is empty"),
        ("judgments", [{"good": "a"}], "judgments need a column 'sentences'"),
    ],
)
def test_bad_input_is_one_line(
    settings: str,
    rows: list[dict[str, object]],
    message: str,
    model: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    data, out = write(tmp_path / "rows.jsonl", rows), tmp_path / "out"
    arguments = ["probe", str(model), "--analysis", settings, "--data", str(data)]
    assert run([*arguments, "--out", str(out)]) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1, lines
    assert message in lines[0]
    assert not out.exists()
