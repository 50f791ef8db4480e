"""`unmask probe --analysis senses`: files, page, and bad input in one line."""

import json
from pathlib import Path

import pytest

import unmask
from unmask.cli.main import run

ROWS = [
    {
        "word": word, "indices": "1-2", "sentence1": f"the {word} saw <b>",
        "sentence2": f"{other} the {word} at night", "label": label,
    }
    for word in ("king", "sea")
    for other, label in (("her", "T"), ("old", "F"))
]  # fmt: skip


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "pairs.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in ROWS))
    return path


def test_files_and_page(model: Path, data: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    reports = unmask.probe(
        model, analysis="senses:words=king+sea,shown=2,nearest=2", data=data, out=out, terminal=None
    )
    found = json.loads((out / "senses.json").read_text())
    assert found == json.loads(json.dumps(reports["senses"].json))
    assert list(found["networks"]) == ["trained", "whitened", "random"]
    assert (found["n_train"], found["n_scored"], found["majority"]) == (2, 2, 0.5)
    assert len(found["neighbors"]) == 4
    assert {one["occurrence"]["word"] for one in found["neighbors"]} == {"king", "sea"}
    page, text = (out / "senses.html").read_text(), (out / "senses.md").read_text()
    assert "&lt;b&gt;" in page
    assert "saw <b>" not in page
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert "by layer" in text


def test_pseudo_words_of_a_text(model: Path, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    words = ("king", "gate", "night", "ring")
    text.write_text(" ".join(f"He saw the {w} and {i} of it." for i in range(12) for w in words))
    found = unmask.probe(
        model, analysis="senses:pseudo_words=2,per_word=8", data=text, out=tmp_path / "out",
        control=False, terminal=None,
    )["senses"]  # fmt: skip
    assert found.json["are_pseudo_words"]
    assert (found.json["n_train"], found.json["n_scored"]) == (8, 8)
    assert list(found.json["networks"]) == ["trained", "whitened"]
    assert "pseudo-words (two words of a text taken for one" in found.markdown


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("pairs=1", "pairs must be at least 4, got 1"),
        ("pseudo_words=1", "pseudo_words must be 0, or 2 or more"),
        ("per_word=6", "per_word must be a multiple of 4, got 6"),
        ("corpus=text.txt", "corpus is searched for words: name some"),
        ("words=ship", "'ship' in fewer than two sentences"),
        ("pseudo_words=2", "pseudo-words need 4 words"),
    ],
)
def test_bad_settings_are_one_line(
    settings: str, message: str, model: Path, data: Path, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    out = tmp_path / "out"
    if settings.startswith("pseudo_words=2"):
        data = tmp_path / "text.txt"
        data.write_text("The old king saw the sea at night.")
    arguments = ["probe", str(model), "--analysis", f"senses:{settings}", "--data", str(data)]
    assert run([*arguments, "--out", str(out)]) == 2
    lines = capsys.readouterr().err.strip().splitlines()[-1:]
    assert message in lines[0]
    assert not out.exists()
