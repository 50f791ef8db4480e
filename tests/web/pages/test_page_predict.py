"""Predicting a whole file on the page Try: as someone with a spreadsheet does it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from small_models import make, texts

from tests.web.served import Served, workbench
from unmask.jobs.finetune import finetune
from unmask.web.worker.calls.tables.spreadsheets import read_spreadsheet

READ_SECONDS = 120_000
"""Milliseconds: the model waits for the worker, which imports torch."""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    root = tmp_path_factory.mktemp("root")
    make("bert", root / "base")
    lines = [f"{text}\t{'ab'[i % 2]}" for i, text in enumerate(texts(12))]
    (root / "rows.tsv").write_text("\n".join(["tekst\tkategoria", *lines]) + "\n")
    finetune(
        root / "base", task="classify", train=root / "rows.tsv", dev=root / "rows.tsv",
        out=root / "tuned", text="tekst", label="kategoria", epochs=1.0, terminal=None,
    )  # fmt: skip
    with workbench(root) as one:
        yield one


@pytest.mark.thorough
def test_a_file_comes_back_with_answers(browser: Any, served: Served, tmp_path: Path) -> None:
    page = browser
    page.goto(f"http://127.0.0.1:{served.port}/#/try/tuned")
    page.wait_for_selector(".predict-file", timeout=READ_SECONDS)
    start = page.get_by_role("button", name="Predict all rows")
    assert start.is_disabled()
    rows = [f"{i};{text} żółw" for i, text in enumerate(texts(70))]
    path = tmp_path / "nowe.csv"
    path.write_bytes("\n".join(["nr;uwagi", *rows, "70; "]).encode("windows-1250"))
    page.set_input_files(".predict-file input[type=file]", path)
    page.wait_for_selector("text=71 rows; the text is in")
    assert page.input_value("[aria-label='Column of texts']") == "uwagi"  # the file has no "tekst"
    start.click()
    page.wait_for_selector("text=70 rows have an answer")
    assert "1 row has no text" in page.inner_text(".predict-file")
    assert "żółw" in page.inner_text(".predicted-rows")
    with page.expect_download() as download:
        page.get_by_role("link", name="Download for Excel").click()
    assert download.value.suggested_filename == "nowe-predicted.xlsx"
    download.value.save_as(tmp_path / "saved.xlsx")
    found = read_spreadsheet(tmp_path / "saved.xlsx").rows
    assert found[0] == ["nr", "uwagi", "predicted", "probability", "a", "b"]
    assert found[1][1].endswith("żółw")
    assert found[1][2] in ("a", "b")
    with page.expect_download() as download:
        page.get_by_role("link", name="Download as CSV").click()
    assert download.value.suggested_filename == "nowe-predicted.csv"


@pytest.mark.thorough
def test_a_file_that_cannot_be_read_says_so(browser: Any, served: Served, tmp_path: Path) -> None:
    page = browser
    page.goto(f"http://127.0.0.1:{served.port}/#/try/tuned")
    page.wait_for_selector(".predict-file", timeout=READ_SECONDS)
    (tmp_path / "broken.xlsx").write_bytes(b"PK\x05\x06" + 18 * b"\0")
    page.set_input_files(".predict-file input[type=file]", tmp_path / "broken.xlsx")
    page.wait_for_selector(".predict-file .error-line:visible")
    assert "damaged, too large, or no spreadsheet" in page.inner_text(
        ".predict-file .error-line:visible"
    )
    assert page.get_by_role("button", name="Predict all rows").is_disabled()
