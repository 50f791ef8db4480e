"""A whole file is answered, and comes back as a spreadsheet and as CSV."""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from small_models import make, texts

from unmask.jobs.finetune import finetune
from unmask.web.worker.calls.tables.predicting import uncomputed
from unmask.web.worker.calls.tables.spreadsheets import read_spreadsheet, write_spreadsheet
from unmask.web.worker.table import load_call


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("tuned")
    make("bert", home / "base")
    lines = [f"{text}\t{'ab'[i % 2]}\t{i}.5" for i, text in enumerate(texts(12))]
    (home / "rows.tsv").write_text("\n".join(["tekst\tkategoria\tocena", *lines]) + "\n")
    for kind, label in (("classify", "kategoria"), ("regress", "ocena")):
        finetune(
            home / "base", task=kind, train=home / "rows.tsv", dev=home / "rows.tsv",
            out=home / kind, epochs=1.0, terminal=None, text="tekst", label=label,
        )  # fmt: skip
    return home


def answers(model: Path, file: Path, text: Sequence[str] = ()) -> list[dict[str, Any]]:
    given = {"model": str(model), "file": str(file), "text": list(text)}
    return [*load_call("predict_file")(given)]  # type: ignore[arg-type]


def test_rows_keep_their_columns_and_get_an_answer(tuned: Path, tmp_path: Path) -> None:
    path = tmp_path / "nowe-utf8.csv"
    rows = [f'{i},"{text}",{"" if i else "a"}' for i, text in enumerate(texts(70))]
    path.write_text("\n".join(["nr,uwagi,kategoria", *rows, "70, ,b"]) + "\n")
    *before, told = answers(tuned / "classify", path, ["uwagi"])
    assert [(one["done"], one["of"]) for one in before] == [(0, 70), (64, 70)]
    assert [one["name"] for one in told["files"]] == ["nowe-predicted.xlsx", "nowe-predicted.csv"]
    assert (told["n_rows"], told["skipped"], told["compared"]) == (71, 1, 1)
    assert sum(n for _, n in told["counts"]) == 70
    sheet = read_spreadsheet(tmp_path / "nowe-predicted.xlsx").rows
    assert sheet[0] == ["nr", "uwagi", "kategoria", "predicted", "probability", "a", "b"]
    assert sheet[1][1] == texts(70)[0]
    assert sheet[1][3] in ("a", "b")
    assert float(sheet[1][4]) >= 0.5
    assert sheet[71][:3] == ["70", " ", "b"]
    data = (tmp_path / "nowe-predicted.csv").read_bytes()
    assert data.startswith(b"\xef\xbb\xbf")  # Excel needs it
    plain = [*csv.reader(data.decode("utf-8-sig").splitlines())]
    assert len(plain) == 72
    assert plain[1][:4] == sheet[1][:4]


def test_numbers_and_lines_of_text_are_answered(tuned: Path, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("the old king\n\nthe sea\n")
    told = answers(tuned / "regress", tmp_path / "a.txt", ["text"])[-1]
    assert (told["columns"], told["counts"]) == (["text", "predicted"], [])
    assert all(isinstance(row[1], float) for row in told["rows"])
    with pytest.raises(ValueError, match="no column 'x'"):
        answers(tuned / "classify", tmp_path / "a.txt", ["x"])
    with pytest.raises(ValueError, match="no head that labels texts"):
        answers(tuned / "base", tmp_path / "a.txt")


def test_a_spreadsheet_holds_what_it_can(tmp_path: Path) -> None:
    rows = [["a", 1, 2.5, None, True, "=1"], ["<&>\x00 ę", "x" * 40_000, "", " b ", "line\nline"]]
    write_spreadsheet(tmp_path / "a.xlsx", rows)
    found = read_spreadsheet(tmp_path / "a.xlsx").rows
    assert found == [
        ["a", "1", "2.5", "", "True", "=1"],
        ["<&>\x00 ę", "x" * 32_767, "", " b ", "line\nline"],
    ]


@pytest.mark.trials("hostile files")
@pytest.mark.parametrize(
    "text",
    ["=1+1", "=cmd|' /C calc'!A0", "+1+1", "-1+cmd|' /C calc'!A0", "@SUM(A1)", "\t=1", "\r=1"],
)
def test_label_that_a_spreadsheet_would_compute_is_text(text: str) -> None:
    assert uncomputed(text) == f"'{text}"


@pytest.mark.parametrize("value", ["-3", "+3.5", "-", "a=1", "", 3, -3.5, "-1e5"])
def test_numbers_and_other_texts_stay_as_they_are(value: object) -> None:
    assert uncomputed(value) == (f"'{value}" if value == "-" else value)
