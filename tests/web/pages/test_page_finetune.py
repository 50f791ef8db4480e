"""The page to fine-tune, and the results of a run: as someone with a table uses them."""

import csv
import json
import re
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import xlsxwriter

from tests.web.served import Served, workbench
from unmask.finetuning.methods.method import METHODS
from unmask.web.worker.calls.tables.spreadsheets import write_spreadsheet

ASSETS = Path(__file__).parents[3] / "unmask" / "web" / "assets" / "pages" / "finetuning"
HOSTILE = "<img src=x onerror=alert(1)>"
LABELS = ["praise", "complaint"]
READ_SECONDS = 120_000
"""Milliseconds: the first table waits for the worker, which imports torch."""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    root = tmp_path_factory.mktemp("root")
    write_run(root / "opinions")
    with workbench(root) as one:
        yield one


@pytest.fixture
def page(browser: Any) -> Any:
    return browser


def write_run(folder: Path) -> None:
    """A fine-tuned run between two labels, one of which is hostile."""
    folder.mkdir()
    labels = ["praise", HOSTILE]
    zeros = [0] * 101
    positives, negatives = [*zeros], [*zeros]
    positives[90], positives[40], negatives[10], negatives[60] = 8, 2, 9, 1
    errors = [
        {"text": f"Text {i} of the guests.", "truth": labels[i % 2], "predicted": labels[1 - i % 2],
         "probability": 0.9 - i / 100, "truth_probability": 0.1 + i / 100}
        for i in range(12)
    ]  # fmt: skip
    bins = [
        {"low": 0.5, "high": 0.75, "confidence": 0.6, "accuracy": 0.5, "count": 4},
        {"low": 0.75, "high": 1.0, "confidence": 0.9, "accuracy": 1.0, "count": 16},
    ]
    results = {
        "task": "classify guests.csv", "metric": "accuracy", "chance": 0.5,
        "arms": [{"name": "pretrained", "dev": [0.9, 0.8], "test": []},
                 {"name": "random initialization", "dev": [0.5, 0.6], "test": []}],
        "confusion": {"labels": labels, "counts": [[9, 1], [2, 8]]},
        "calibration": {"ece": 0.1, "brier": 0.2, "bins": bins},
        "probabilities": {"label": HOSTILE, "positives": positives, "negatives": negatives},
        "errors": errors, "wrong": 12,
        "search": [{"number": 1, "rate": 1e-4, "batch": 16, "score": 0.8, "seconds": 3.0},
                   {"number": 2, "rate": 1e-1, "batch": 16, "score": None, "seconds": 3.0}],
    }  # fmt: skip
    record = {"format": 2, "kind": "finetune", "card": "unmask-mini-en", "recipe": {}}
    (folder / "unmask.json").write_text(json.dumps(record))
    (folder / "results.json").write_text(json.dumps(results))
    (folder / "log.jsonl").write_text(json.dumps({"step": 1, "loss": 1.0}) + "\n")


def guests(folder: Path, n: int = 60) -> Path:
    """A spreadsheet as a person has it: names that are not the usual ones, a column half filled."""
    path = folder / "guests.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["comment", "opinion", "house", "answered"])
        for i in range(n):
            good = i % 2 == 0
            text = (
                f"The {'soup' if i % 3 else 'bread'} was {'lovely' if good else 'cold'}, day {i}."
            )
            rows.writerow([text, LABELS[not good], "north", "yes" if i % 3 == 0 else ""])
    return path


def address(served: Served, place: str) -> str:
    return f"http://127.0.0.1:{served.port}/#/{place}"


def column(name: str) -> str:
    return f"select[data-column={name}]"


def open_page(page: Any, served: Served, place: str) -> None:
    page.goto("about:blank")
    page.goto(address(served, place))


def upload(page: Any, path: Path) -> None:
    page.set_input_files(".finetune input[type=file] >> nth=0", path)
    page.wait_for_selector(".columns-table", timeout=READ_SECONDS)


def wait_until(page: Any, check: Callable[[], bool], seconds: float = 20) -> None:
    """Wait for something; the page's policy forbids to have it evaluated there."""
    end = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < end
        page.wait_for_timeout(50)


def test_all_ways_of_tuning_are_offered() -> None:
    text = (ASSETS / "tuning.js").read_text(encoding="utf-8")
    assert set(re.findall(r'^  \["(\w+)"', text, re.MULTILINE)) == set(METHODS)


def test_a_wrong_column_is_refused_beside_it_and_loses_nothing(
    page: Any, served: Served, tmp_path: Path
) -> None:
    open_page(page, served, "finetune")
    upload(page, guests(tmp_path))
    assert page.input_value(column("comment")) == "text"
    page.fill("[data-name=epochs] input", "2")
    page.select_option(column("answered"), "label")
    page.wait_for_selector("#columns-error:not([hidden])")
    assert "no label in column 'answered'" in page.inner_text("#columns-error")
    assert page.get_attribute(column("answered"), "aria-invalid") == "true"
    page.click(".start button.primary")
    assert page.evaluate("document.activeElement.dataset.column") == "answered"
    assert "/finetune" in page.url
    page.select_option(column("opinion"), "label")
    page.wait_for_selector("#columns-error", state="hidden")
    assert page.input_value(column("answered")) == ""
    assert page.input_value("[data-name=epochs] input") == "2"
    wait_until(page, lambda: "--label opinion --epochs 2" in page.inner_text(".start pre"))
    assert "54 examples are learned from, 6 are set aside" in page.inner_text(".plan")
    page.wait_for_function(
        "() => Object.values(sessionStorage).some((one) => one.includes('opinion'))"
    )
    page.reload()
    page.wait_for_selector(".columns-table")
    assert page.input_value(column("opinion")) == "label"
    assert page.input_value("[data-name=epochs] input") == "2"


def test_columns_and_tasks_are_told_and_may_be_changed(
    page: Any, served: Served, tmp_path: Path
) -> None:
    open_page(page, served, "finetune")
    upload(page, guests(tmp_path))
    assert "'comment' with 2 different labels" in page.inner_text("#task-reason")
    assert "'house' has the same value in every row" in page.inner_text(".warnings")
    page.select_option(column("comment"), "")
    assert "Which column holds the text?" in page.inner_text("#columns-error")
    page.select_option(column("comment"), "text")
    page.select_option(column("house"), "second")
    wait_until(page, lambda: page.input_value("#task") == "pairs")
    page.select_option(column("house"), "")
    wait_until(page, lambda: page.input_value("#task") == "classify")
    page.select_option("#task", "regress")
    page.wait_for_selector("#columns-error:not([hidden])")
    assert "must be a number" in page.inner_text("#columns-error")
    page.click("text=Guess again")
    page.wait_for_selector("#columns-error", state="hidden")
    page.check("#no-header")
    page.wait_for_selector(column("column1"))
    assert page.inner_text(".columns-table tbody tr >> nth=0").startswith("comment")


def test_options_are_told_at_the_heads(page: Any, served: Served, tmp_path: Path) -> None:
    path = tmp_path / "quiz.csv"
    rows = [f"Which {i}?,this {i},that {i},{i % 2}" for i in range(40)]
    path.write_text("\n".join(["stem,left,right,key", *rows]), encoding="utf-8")
    open_page(page, served, "finetune")
    upload(page, path)
    page.select_option("#task", "choose")
    page.wait_for_selector("#columns-error:not([hidden])")
    for name, role in (("left", "option"), ("right", "option"), ("key", "label"), ("stem", "text")):
        page.select_option(column(name), role)
    page.wait_for_selector("#columns-error", state="hidden")
    line = "--text stem --choices left --choices right --label key"
    wait_until(page, lambda: line in page.inner_text(".start pre"))
    assert "option 1" in page.inner_text(".label-counts")


def test_what_writes_is_learned_by_a_model_that_writes(
    page: Any, served: Served, tmp_path: Path
) -> None:
    path = tmp_path / "captions.csv"
    rows = [f"Ein Hund {i},A dog {i}" for i in range(40)]
    path.write_text("\n".join(["de,en", *rows]), encoding="utf-8")
    open_page(page, served, "finetune")
    upload(page, path)
    wait_until(page, lambda: page.input_value("#task") == "generate")
    wait_until(page, lambda: page.input_value("#model") == "t5-mini")
    assert page.locator("#model option[value=unmask-mini-en]").is_disabled()
    page.select_option("#task", "regress")
    wait_until(page, lambda: page.input_value("#model") == "unmask-mini-en")


def test_an_export_with_a_cover_and_a_title_is_read_and_forgets_the_files_of_another(
    page: Any, served: Served, tmp_path: Path
) -> None:
    open_page(page, served, "finetune")
    upload(page, guests(tmp_path))
    page.locator("summary", has_text="Held-out and test files").click()
    (tmp_path / "held.csv").write_text("comment,opinion\nThe soup was cold.,good\n")
    for at in (1, 2):
        page.set_input_files(f".finetune input[type=file] >> nth={at}", tmp_path / "held.csv")
    wait_until(page, lambda: "Tested at the end on held.csv" in page.inner_text(".plan"))
    (tmp_path / "held.csv").write_text("comment,Frage\nThe soup was cold.,good\n")
    page.set_input_files(".finetune input[type=file] >> nth=2", tmp_path / "held.csv")
    wait_until(page, lambda: "no column 'opinion'" in page.inner_text(".finetune"))
    page.get_by_role("button", name="Start", exact=True).click()
    wait_until(page, lambda: "no column 'opinion'" in page.inner_text(".start"))
    sheets = {"Cover": [["Report"]], "Data": [["Customer news", "", ""], [], ["text", "", "mood"]]}
    sheets["Data"] += [[f"The soup was lovely, day {i}.", "", LABELS[i % 2]] for i in range(40)]
    with xlsxwriter.Workbook(str(tmp_path / "desk.xlsx")) as book:
        for name, rows in sheets.items():
            sheet = book.add_worksheet(name)
            for i, row in enumerate(rows):
                sheet.write_row(i, 0, row)
    page.set_input_files(".finetune input[type=file] >> nth=0", tmp_path / "desk.xlsx")
    page.wait_for_selector(column("mood"), timeout=READ_SECONDS)
    assert "held" not in page.inner_text(".plan")
    assert page.input_value("[aria-label=Sheet]") == "Data"
    assert page.input_value("[aria-label='The header is in row']") == "3"
    page.fill("[aria-label='The header is in row']", "4")
    page.keyboard.press("Tab")
    page.wait_for_selector("select[data-column='The soup was lovely, day 0.']")
    page.fill("[aria-label='The header is in row']", "99")
    page.keyboard.press("Tab")
    wait_until(page, lambda: "desk.xlsx: row 99 is not one of its" in page.inner_text(".finetune"))
    uploads = page.locator(".uploads >> nth=0")
    uploads.locator("summary").click()
    page.wait_for_selector("[aria-label='Delete desk.xlsx']")
    assert not page.get_by_label("Delete desk-utf8.csv").count()
    uploads.get_by_label("Delete desk.xlsx").click()
    page.locator("dialog").get_by_role("button", name="Delete").click()
    folder = served.root / ".unmask" / "files"
    wait_until(page, lambda: not [*folder.glob("desk*")])
    wait_until(page, lambda: "Choose a file of examples" in page.inner_text(".plan"))


def test_tables_of_other_programs_are_read_and_explained(
    page: Any, served: Served, tmp_path: Path
) -> None:
    open_page(page, served, "finetune")
    sheet = tmp_path / "guests.xlsx"
    sheet.write_bytes(b"PK\x05\x06" + 18 * b"\0")
    page.set_input_files(".finetune input[type=file] >> nth=0", sheet)
    page.wait_for_selector("#train-error:not([hidden])", timeout=READ_SECONDS)
    assert "guests.xlsx: damaged, too large, or no spreadsheet" in page.inner_text("#train-error")
    rows = [[f"Było już późno, żółw nr {i}.", LABELS[i % 2]] for i in range(40)]
    write_spreadsheet(tmp_path / "dobre.xlsx", [["tekst", "kategoria"], *rows])
    page.set_input_files(".finetune input[type=file] >> nth=0", tmp_path / "dobre.xlsx")
    page.wait_for_selector(column("kategoria"))
    assert "read as a spreadsheet: the sheet Predictions" in page.inner_text(".notice >> nth=0")
    assert "żółw nr 0" in page.inner_text(".columns-table tbody")
    assert "do not seem to be English" in page.inner_text("[data-name=base]")
    lines = ["tekst;kategoria", *(";".join(row) for row in rows[:-1]), "Bez kategorii;"]
    (tmp_path / "excel.csv").write_bytes("\n".join(lines).encode("windows-1250"))
    page.set_input_files(".finetune input[type=file] >> nth=0", tmp_path / "excel.csv")
    page.wait_for_selector("text=separated by semicolons")
    assert page.input_value("[aria-label=Letters]") == "windows-1250"
    page.select_option("[aria-label=Letters]", "windows-1252")
    wait_until(page, lambda: "¿ó³w" in page.inner_text(".columns-table tbody"))
    page.select_option("[aria-label=Letters]", "windows-1250")
    wait_until(page, lambda: "żółw" in page.inner_text(".columns-table tbody"))
    assert "1 of 40 rows have no text or no label" in page.inner_text(".finetune")
    page.get_by_role("button", name="Leave this row out").click()
    wait_until(page, lambda: ".unmask/files/excel-complete.csv" in page.inner_text(".start pre"))
    assert "separated by semicolons" in page.inner_text(".finetune")  # it is still told


def test_errors_of_the_server_stand_beside_their_fields(
    page: Any, served: Served, tmp_path: Path
) -> None:
    open_page(page, served, "finetune")
    upload(page, guests(tmp_path))
    page.fill("[data-name=learning_rate] input", "fast")
    page.click(".start button.primary")
    page.wait_for_selector("[data-name=learning_rate] .error-line:not([hidden])")
    assert "--learning-rate" in page.inner_text("[data-name=learning_rate] .error-line")
    page.fill("[data-name=learning_rate] input", "")
    page.fill("[data-name=out] input", "opinions")
    page.click(".start button.primary")
    page.wait_for_selector("[data-name=out] .error-line:not([hidden])")
    assert page.evaluate("document.activeElement.value") == "opinions"


def test_results_are_shown_and_filtered(page: Any, served: Served) -> None:
    open_page(page, served, "run/opinions")
    page.wait_for_selector(".results")
    assert "85.0 ± 7.1 %" in page.inner_text(".results")
    assert page.locator(".errors article").count() == 10
    page.click(".confusion button >> nth=0")
    assert page.locator(".errors article").count() == 6
    cards = page.locator(".errors article").all_inner_texts()
    assert all(f"true {LABELS[0]}" in text and HOSTILE in text for text in cards)
    page.fill("[aria-label='Words in the text']", "Text 4 ")
    wait_until(page, lambda: page.locator(".errors article").count() == 1)
    assert "diverged" in page.inner_text("[aria-label='Search trials']")


@pytest.mark.parametrize(
    ("words", "counts", "sentence"),
    [
        (
            0.95,
            [[900, 100], [200, 800]],
            "better than the model by 10.0 points (± 1.8 points with 2,000 examples)",
        ),
        (
            0.85,
            [[9, 1], [2, 8]],
            "as good as the model, within the ± 22.1 points that 20 examples can tell",
        ),
        (0.5, [[900, 100], [200, 800]], "on the held-out examples. Always the most frequent"),
    ],
)
def test_a_bag_of_words_is_compared_within_what_the_examples_can_tell(
    page: Any, served: Served, words: float, counts: list[list[int]], sentence: str
) -> None:
    write_run(served.root / "words")
    path = served.root / "words" / "results.json"
    results = json.loads(path.read_text()) | {"bag_of_words": words}
    results["confusion"]["counts"] = counts
    path.write_text(json.dumps(results))
    open_page(page, served, "run/words")
    page.get_by_text(sentence).wait_for()
    shutil.rmtree(served.root / "words")


def test_the_threshold_decides_precision_and_recall(page: Any, served: Served) -> None:
    open_page(page, served, "run/opinions")
    page.wait_for_selector("#threshold")
    assert "Of 10 with the label" in page.inner_text(".threshold")
    assert "8 are found and 2 missed; 1 of 10 others" in page.inner_text(".threshold")
    assert "88.9 %" in page.inner_text(".threshold .figures")
    page.fill("#threshold", "30")
    assert "10 are found and 0 missed; 1 of 10" in page.inner_text(".threshold")
    page.fill("#threshold", "61")
    assert "100.0 %" in page.inner_text(".threshold .figures")
    page.click("text=Best F1")
    assert "10 are found" in page.inner_text(".threshold")
    page.select_option("#threshold-label", "praise")
    assert "Of 10 with the label praise, 9 are found" in page.inner_text(".threshold")


@pytest.mark.thorough
@pytest.mark.parametrize("theme", ["light", pytest.param("dark", marks=pytest.mark.slow)])
def test_no_accessibility_fault_and_no_sideways_scrolling(
    page: Any, served: Served, tmp_path: Path, theme: str
) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="no axe")
    page = page.context.browser.new_page()  # its own: the policy refuses styles that axe tries
    page.goto(served.address)
    page.evaluate(f"localStorage.setItem('theme', '{theme}')")
    for place, ready in (("finetune", ".finetune"), ("run/opinions", ".results")):
        open_page(page, served, place)
        page.wait_for_selector(ready)
        if place == "finetune":
            upload(page, guests(tmp_path))
            page.click("text=More ways")
        found = axe.Axe().run(page).response["violations"]
        serious = [one for one in found if one["impact"] in ("serious", "critical")]
        assert [(one["id"], one["nodes"][0]["html"]) for one in serious] == []
        page.set_viewport_size({"width": 390, "height": 844})
        page.wait_for_timeout(200)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        page.set_viewport_size({"width": 1280, "height": 900})
    page.close()


@pytest.mark.slow
def test_a_classifier_is_trained_from_a_table(page: Any, served: Served, tmp_path: Path) -> None:
    open_page(page, served, "finetune")
    upload(page, guests(tmp_path, 120))
    page.fill("[data-name=epochs] input", "1")
    page.select_option(column("opinion"), "label")
    page.fill("[data-name=out] input", "trained")
    page.wait_for_selector("#columns-error", state="hidden")
    page.click(".start button.primary")
    page.wait_for_url("**/run/trained")
    page.wait_for_selector(".results", timeout=300_000)
    assert "Confusion matrix" in page.inner_text(".results")
    assert page.locator("#threshold").count() == 1
    page.click("text=Train with fewer examples")
    page.wait_for_selector("text=trainings with fewer examples are in the queue")
    page.wait_for_selector("svg[aria-label*='with 54']", timeout=600_000)


@pytest.mark.slow
def test_a_refused_job_leads_back_to_its_form(page: Any, served: Served, tmp_path: Path) -> None:
    open_page(page, served, "finetune")
    upload(page, guests(tmp_path))
    page.select_option("#model", label="Another model …")
    page.fill("#model-name", "no-such-model")
    page.fill("[data-name=out] input", "refused")
    page.click(".start button.primary")
    page.wait_for_url("**/run/refused")
    page.click("text=Change and start again", timeout=120_000)
    page.wait_for_selector(".columns-table", timeout=READ_SECONDS)
    assert page.input_value("#model-name") == "no-such-model"
