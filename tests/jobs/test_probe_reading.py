"""`unmask probe --analysis reading`: files, page, and bad input in one line."""

import json
from pathlib import Path

import numpy as np
import pytest

import unmask
from unmask.cli.main import run

HEADER = "item,word,Subtlex_log10,length,context_length,prev_item,prev_word,prev_length"


def table(path: Path, measures: str = "RT,N400") -> Path:
    rng = np.random.default_rng(0)
    text = "the old king saw her brother at night once again a stranger feared the sea"
    words = text.split()
    rows = [f"{HEADER},{measures}"]
    for _ in range(3):
        for i, word in enumerate(words):
            before, previous = " ".join(words[:i]), " ".join(words[: max(i - 1, 0)])
            last = words[i - 1] if i else ""
            numbers = ",".join(f"{x:.3f}" for x in rng.normal(5, 1, 2))
            rows.append(
                f"{before},{word},{rng.normal():.3f},{len(word)},{i},{previous},{last},"
                f"{len(last)},{numbers}"
            )
    path.write_text("\n".join(rows))
    return path


def test_files_and_page(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    reports = unmask.probe(
        model, analysis="reading:measures=RT+N400,spillover=RT", data=table(tmp_path / "r.csv"),
        out=out, terminal=None,
    )  # fmt: skip
    assert sorted(p.name for p in out.iterdir()) == ["reading.html", "reading.json", "reading.md"]
    found = json.loads((out / "reading.json").read_text())
    assert found == json.loads(json.dumps(reports["reading"].json))
    assert (found["n_words"], found["n_too_long"], found["spillover"]) == (45, 0, ["RT"])
    assert list(found["networks"]) == ["trained", "random", "tokens"]
    trained, random, _ = found["networks"].values()
    # the first word of a sentence has none before it
    assert [one["n_words"] for one in trained["measures"].values()] == [42, 45]
    assert trained["measures"]["N400"]["r2_baseline"] == random["measures"]["N400"]["r2_baseline"]
    assert trained["mean_surprisal"] != random["mean_surprisal"]
    page = (out / "reading.html").read_text()
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert "| N400 " in (out / "reading.md").read_text()


def test_tokens_in_the_baseline_are_no_control(model: Path, tmp_path: Path) -> None:
    found = unmask.probe(
        model, analysis="reading:measures=RT,token_count=true", control=False,
        data=table(tmp_path / "r.csv"), out=tmp_path / "out", terminal=None,
    )["reading"].json  # fmt: skip
    assert list(found["networks"]) == ["trained"]
    assert found["token_count"] is True


@pytest.mark.parametrize(
    ("analysis", "message"),
    [
        ("reading:ending_masks=-1", "ending_masks must be at least 0, got -1"),
        ("reading", "need a column 'RTfirstfix'"),
        ("reading:measures=speed", "need a column 'speed'"),
    ],
)
def test_bad_input_is_one_line(
    analysis: str, message: str, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, out = table(tmp_path / "r.csv"), tmp_path / "out"
    arguments = ["probe", str(model), "--analysis", analysis, "--data", str(data)]
    assert run([*arguments, "--out", str(out)]) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1, lines
    assert message in lines[0]
    assert not out.exists()
