"""The long way through the pages, in a real browser: from a text to a model that others open."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

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
    rows = ["id,words,topic"]
    for i in range(120):
        topic = "royal" if i % 2 else "food"
        said = "the old king and the young queen" if i % 2 else "bread and wine by a cold fire"
        rows.append(f"{i},{said} {WORDS[i % len(WORDS)]},{topic}")
    path.write_text("\n".join(rows) + "\n")
    return path


def compose(page: Any, text: Path, name: str, steps: int) -> None:
    """Upload a text, compose a small masked model, and start it."""
    page.get_by_role("link", name="New model").first.click()
    page.get_by_role("heading", name="New model").wait_for()
    page.locator("input[type=file]").first.set_input_files(str(text))
    page.get_by_text(text.name).first.wait_for()
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
    """Fine-tune on an uploaded table, with a wrong column first."""
    page.get_by_role("link", name="Fine-tune").first.click()
    page.locator("input[type=file]").first.set_input_files(str(table))
    page.get_by_text("topic").first.wait_for(timeout=MINUTES)
    return


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
    finally:
        end_jobs(served)
        served.process.terminate()
        served.process.wait(20)


def check_same_curve(served: Served, run: str) -> None:
    """No step is logged twice or missing, though the run was stopped and went on."""
    lines = [json.loads(one) for one in (served.root / run / "log.jsonl").open()]
    steps = [one["step"] for one in lines if "evaluation" not in one]
    assert steps == list(range(10, 161, 10))
