"""`unmask probe --analysis cloze`: files, page, and bad input in one line."""

import json
from pathlib import Path
from typing import Any

import pytest
from small_models import make

import unmask
from unmask.cli.main import run

FACTS = [
    {"relation": f"P{i}", "subject": a, "object": b, "sentence": f"{a} saw [MASK] <at> night."}
    for i in (1, 2)
    for a in ("he", "she")
    for b in ("sea", "gate", "gatehouse")
]
CHOICES = [
    {
        "question": {
            "stem": f"the king [MASK] {a}",
            "choices": [{"label": "A", "text": "saw"}, {"label": "B", "text": "the"}],
        },
        "answerKey": "A",
    }
    for a in ("her", "the sea")
]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folders = {family: tmp_path_factory.mktemp(family) for family in ("bert", "gpt2", "t5")}
    for family, folder in folders.items():
        make(family, folder)
    return folders


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def test_files_and_page_of_facts(folders: dict[str, Path], tmp_path: Path) -> None:
    out = tmp_path / "out"
    data = write(tmp_path / "facts.jsonl", FACTS)
    reports = unmask.probe(folders["bert"], analysis="cloze", data=data, out=out, terminal=None)
    pages = sorted(p.name for p in out.iterdir() if p.suffix != ".svg")
    assert pages == [
        "cloze.html",
        "cloze.json",
        "cloze.md",
    ]
    found = json.loads((out / "cloze.json").read_text())
    assert found == json.loads(json.dumps(reports["cloze"].json))
    assert (found["n_items"], found["n_in_data"], found["n_several_tokens"]) == (8, 12, 4)
    assert found["chance"] == {"P1": 0.5, "P2": 0.5}
    assert list(found["accuracies"]) == ["trained", "random", "frequent"]
    # relations have the same texts and the same answers: of each text, one answer is right
    trained = found["accuracies"]["trained"]
    assert [one["accuracy"] for one in trained["groups"]] == [0.5, 0.5]
    page = (out / "cloze.html").read_text()
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert "| P2 " in (out / "cloze.md").read_text()


def test_long_texts_are_left_out(folders: dict[str, Path], tmp_path: Path) -> None:
    long = {"sentence": "the sea " * 30 + "[MASK]"}
    data = write(tmp_path / "facts.jsonl", [*FACTS, FACTS[0] | long])
    found = unmask.probe(
        folders["bert"], analysis="cloze", data=data, out=tmp_path / "out", control=False,
        terminal=None,
    )["cloze"]  # fmt: skip
    assert (found.json["n_items"], found.json["n_too_long"]) == (8, 1)
    assert "Left out as longer than the model's positions: 1." in found.markdown


@pytest.mark.parametrize("family", ["bert", "gpt2", "t5"])
def test_multiple_choice_of_each_kind_of_model(
    family: str, folders: dict[str, Path], tmp_path: Path
) -> None:
    data = write(tmp_path / "tasks.jsonl", CHOICES)
    found = unmask.probe(
        folders[family], analysis="cloze:per_group=1", data=data, out=tmp_path / "out",
        terminal=None,
    )["cloze"].json  # fmt: skip
    assert (found["n_items"], found["n_in_data"]) == (1, 2)
    trained = found["accuracies"]["trained"]
    assert trained["overall"]["accuracy"] in (0, 1)
    assert (trained["first_groups"] is None) is (family == "gpt2")


@pytest.mark.parametrize("masking", ["answer", "token"])
def test_options_after_a_text(masking: str, folders: dict[str, Path], tmp_path: Path) -> None:
    rows = [
        {"input_prefix": "the king saw ", "options": ["the sea.", "her.", "a"], "numops": n}
        for n in (0, 0, 3)
    ]
    found = unmask.probe(
        folders["bert"], analysis=f"cloze:answer_masking={masking}", out=tmp_path / "out",
        data=write(tmp_path / "regular.jsonl", rows), terminal=None,
    )["cloze"].json  # fmt: skip
    groups = {"regular, 0 operations": 1 / 3, "regular, 3 operations": 1 / 3}
    assert found["chance"] == pytest.approx(groups, abs=1e-6)
    assert [one["n_items"] for one in found["accuracies"]["trained"]["groups"]] == [2, 1]


@pytest.mark.parametrize(
    ("analysis", "rows", "message"),
    [
        ("cloze:answer_masking=word", CHOICES, "answer_masking must be one of"),
        ("cloze:per_group=0", CHOICES, "per_group must be at least 1, or none, got 0"),
        ("cloze:templates=none.jsonl", FACTS, "none.jsonl: no such file"),
        ("cloze", [], "the file is empty"),
        ("cloze", [FACTS[0] | {"object": "gatehouse"}], "no text is left: of 1, 0 have answers"),
        ("cloze", [{"good": "a", "bad": "b"}], "need the columns question and answerKey, or"),
    ],
)
def test_bad_input_is_one_line(
    analysis: str,
    rows: list[dict[str, Any]],
    message: str,
    folders: dict[str, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    data, out = write(tmp_path / "data.jsonl", rows), tmp_path / "out"
    arguments = ["probe", str(folders["bert"]), "--analysis", analysis, "--data", str(data)]
    assert run([*arguments, "--out", str(out)]) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1, lines
    assert message in lines[0]
    assert not out.exists()


def test_data_are_needed(
    folders: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert run(["probe", str(folders["bert"]), "--analysis", "cloze", "--out", str(out)]) == 2
    assert "no data: name a file" in capsys.readouterr().err
