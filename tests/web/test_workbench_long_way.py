"""The long way through the pages, in a real browser: from a text to a model that others open."""

import json
import re
import zipfile
from pathlib import Path
from typing import Any

import pytest

import unmask
from tests.web.served import Served, browser_page, end_jobs, start_workbench

WORDS = [
    "the",
    "old",
    "king",
    "sat",
    "by",
    "a",
    "cold",
    "fire",
    "and",
    "the",
    "young",
    "queen",
    "asked",
    "for",
    "bread",
    "and",
    "wine",
]
MINUTES = 60_000  # milliseconds


def write_text(path: Path) -> Path:
    """A text of some thousand words in a fixed order that is not all the same."""
    words = [WORDS[(i * i + i // 7) % len(WORDS)] for i in range(12_000)]
    lines = [" ".join(words[i : i + 12]) + "." for i in range(0, len(words), 12)]
    paragraphs = ["\n".join(lines[i : i + 8]) for i in range(0, len(lines), 8)]
    path.write_text("\n\n".join(paragraphs) + "\n")
    return path


def write_table(path: Path) -> Path:
    rows = ["said,topic,answered"]
    for i in range(120):
        topic = "royal" if i % 2 else "food"
        said = "the old king and the young queen" if i % 2 else "bread and wine by a cold fire"
        rows.append(f"{said} {WORDS[i % len(WORDS)]} {i},{topic},{'yes' if i % 3 == 0 else ''}")
    path.write_text("\n".join(rows) + "\n")
    return path


def compose(page: Any, text: Path, name: str, steps: int) -> None:
    """Upload a text, compose a small masked model, and start it."""
    page.get_by_role("link", name="New model").first.click()
    page.get_by_role("heading", name="New model").wait_for()
    page.locator("input[type=file]").first.set_input_files(str(text))
    page.get_by_text(text.name).locator("visible=true").first.wait_for()
    page.locator("input[name=model][value=bert-tiny]").check(timeout=MINUTES)
    page.get_by_label("Length", exact=True).fill(str(steps))
    page.get_by_label("Unit of the length").select_option("steps")
    page.get_by_label("Name *").fill(name)
    page.get_by_text("unmask pretrain").first.wait_for(timeout=MINUTES)
    page.get_by_role("button", name="Start", exact=True).click()
    page.get_by_role("heading", name=name, level=1).wait_for(timeout=MINUTES)


def steps_taken(page: Any) -> int:
    text = page.locator(".figures").inner_text()
    found = re.search(r"Steps\s+([\d,]+)", text)
    return int(found[1].replace(",", "")) if found else 0


def wait_for_step(page: Any, step: int) -> None:
    for _ in range(600):
        if steps_taken(page) > step:
            return
        page.wait_for_timeout(200)
    raise AssertionError(f"no step after {step}: {page.locator('main').inner_text()[:2000]}")


def wait_for_state(page: Any, state: str) -> None:
    page.locator("main .chip", has_text=state).first.wait_for(timeout=4 * MINUTES)


def finetune(page: Any, table: Path, name: str) -> None:
    """Fine-tune the run on an uploaded table, with a wrong column first."""
    page.get_by_role("link", name="Fine-tune", exact=True).first.click()
    page.locator(".finetune input[type=file]").first.set_input_files(str(table))
    page.locator(".columns-table").wait_for(timeout=2 * MINUTES)
    page.locator("select[data-column=answered]").select_option("label")
    page.locator("#columns-error", has_text="no label in column 'answered'").wait_for()
    page.locator("select[data-column=topic]").select_option("label")
    page.locator("#columns-error").wait_for(state="hidden")
    page.locator("[data-name=epochs] input").fill("2")
    page.locator("[data-name=out] input").fill(name)
    page.locator(".start button.primary").click()
    page.get_by_role("heading", name=name, level=1).wait_for(timeout=MINUTES)
    wait_for_state(page, "finished")
    page.get_by_role("heading", name="Results").wait_for(timeout=MINUTES)


def try_out(page: Any) -> None:
    """Predict a label with the fine-tuned model."""
    page.get_by_role("link", name="Try", exact=True).last.click()
    page.get_by_role("tab", name="Predict").wait_for(timeout=2 * MINUTES)
    page.get_by_label("Texts, one on each line").fill("the old king and the young queen sat")
    page.get_by_role("button", name="Predict", exact=True).click()
    page.get_by_text("Label:").wait_for(timeout=2 * MINUTES)


def open_home(page: Any) -> None:
    """Open the list of the runs, and wait for it: until then the page before is still there."""
    page.get_by_role("link", name="Runs", exact=True).click()
    page.get_by_role("heading", name="Runs", level=1).wait_for(timeout=MINUTES)


def compare(page: Any, *names: str) -> None:
    open_home(page)
    for name in names:
        page.get_by_label(f"Choose {name} to compare").check()
    page.get_by_role("link", name=f"Compare {len(names)}").click()
    page.get_by_role("heading", name="Compare", level=1).wait_for(timeout=MINUTES)
    for name in names:
        page.locator("main").get_by_text(name).first.wait_for(timeout=MINUTES)


def export(page: Any, name: str, folder: Path) -> Path:
    """Download a run in the layout of Hugging Face, and return its folder."""
    open_home(page)
    page.locator("main").get_by_role("link", name=name, exact=True).click()
    page.get_by_role("heading", name=name, level=1).wait_for(timeout=MINUTES)
    page.get_by_role("link", name="Export").click()
    page.get_by_role("button", name="Write Hugging Face").click(timeout=2 * MINUTES)
    with page.expect_download(timeout=2 * MINUTES) as started:
        page.get_by_role("link", name="Download").click(timeout=2 * MINUTES)
    path = folder / f"{name}.zip"
    started.value.save_as(path)
    with zipfile.ZipFile(path) as archive:
        archive.extractall(folder / f"exported-{name}")
    (exported,) = (folder / f"exported-{name}").iterdir()
    return exported


@pytest.mark.thorough
@pytest.mark.parametrize(("width", "height"), [(1280, 900), (390, 844)], ids=["desk", "phone"])
def test_the_long_way(tmp_path: Path, width: int, height: int) -> None:
    root = tmp_path / "root"
    served = start_workbench(root)
    try:
        with browser_page(served, width=width, height=height) as page:
            compose(page, write_text(tmp_path / "tale.txt"), "mine", steps=160)
            page.locator(".chart canvas").first.wait_for(timeout=2 * MINUTES)
            wait_for_step(page, 0)
            seen = steps_taken(page)
        served.kill()
        served = start_workbench(root, port=served.port)
        with browser_page(served, width=width, height=height) as page:
            page.get_by_role("link", name="mine").first.click()
            wait_for_step(page, seen)
            wait_for_state(page, "running")
            page.get_by_role("button", name="Stop", exact=True).click()
            wait_for_state(page, "stopped")
            stopped = steps_taken(page)
            assert stopped < 160
            page.get_by_role("button", name="Go on", exact=True).click()
            wait_for_state(page, "finished")
            assert steps_taken(page) == 160
            check_same_curve(served, "mine")
            finetune(page, write_table(tmp_path / "table.csv"), "tuned")
            try_out(page)
            compare(page, "mine", "tuned")
            exported, classifier = (export(page, name, tmp_path) for name in ("mine", "tuned"))
    finally:
        end_jobs(served)
        served.process.terminate()
        served.process.wait(20)
    transformers = pytest.importorskip("transformers")
    model = transformers.AutoModelForMaskedLM.from_pretrained(exported)
    tokenizer = transformers.AutoTokenizer.from_pretrained(exported)
    assert model(**tokenizer("the old [MASK]", return_tensors="pt")).logits.isfinite().all()
    text = "the old king and the young queen sat"
    (ours,) = unmask.load(root / "tuned").predict([text])
    classify = transformers.pipeline("text-classification", str(classifier), device="cpu")
    theirs = {each["label"]: each["score"] for each in classify(text, top_k=None)}
    assert theirs == pytest.approx(ours["probabilities"], abs=1e-5)


def check_same_curve(served: Served, run: str) -> None:
    """No step is logged twice or missing, though the run was stopped and went on."""
    text = (served.root / run / "log.jsonl").read_text()
    lines = [json.loads(one) for one in text.splitlines()]
    steps = [one["step"] for one in lines if "evaluation" not in one]
    assert steps == list(range(10, 161, 10))
