"""A study in a real browser: composed, trained, stopped, gone on with, to its table."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.web.served import browser_page, workbench
from tests.web.test_workbench_long_way import MINUTES, write_table, write_text


def upload(page: Any, label: str, path: Path) -> None:
    """Choose a file in the place that has a label."""
    place = page.locator(".field", has=page.get_by_label(f"{label}: a file that is there"))
    place.locator("input[type=file]").set_input_files(str(path))
    place.get_by_text(path.name, exact=True).locator("visible=true").first.wait_for()


def wait_for_state(page: Any, state: str) -> None:
    page.locator(f".study h1 + p .chip.{state}").wait_for(timeout=5 * MINUTES)


@pytest.mark.thorough
def test_a_study_is_trained_from_its_form(tmp_path: Path) -> None:
    with workbench(tmp_path / "root") as served, browser_page(served) as page:
        page.get_by_role("link", name="Compare").click()
        page.get_by_role("button", name="Compose a study").click()
        page.get_by_label("Name", exact=True).fill("which")
        page.get_by_role("checkbox", name="bert-tiny with clm").uncheck(timeout=4 * MINUTES)
        upload(page, "Text that all are pretrained on", write_text(tmp_path / "text.txt"))
        upload(page, "Table that all are fine-tuned on", write_table(tmp_path / "table.csv"))
        page.get_by_text("Label: topic.").wait_for(timeout=4 * MINUTES)
        for label, value in {
            "Tokens of each": "8,000", "Pretraining seeds": "2", "Epochs": "1",
            "Fine-tuning seeds": "2",
        }.items():  # fmt: skip
            page.get_by_label(label, exact=True).fill(value)
        page.locator("summary", has_text="The same size").click()
        for label, value in {"Layers": "1", "Width": "32", "Feed-forward width": "64"}.items():
            page.get_by_label(label, exact=True).fill(value)
        page.get_by_text("5 cells of").wait_for(timeout=4 * MINUTES)
        page.get_by_role("button", name="Start", exact=True).click()
        wait_for_state(page, "running")
        page.get_by_role("button", name="Stop").click()
        wait_for_state(page, "stopped")
        page.get_by_role("button", name="Go on").click()
        wait_for_state(page, "finished")
        over = page.get_by_role("region", name="Over the seeds of pretraining").inner_text()
        assert "bert-tiny-rtd (2 seeds)" in over
        rows = page.get_by_role("region", name="Results", exact=True).get_by_role("row")
        texts = [row.split("\t") for row in rows.all_inner_texts()]
        assert [row[0] for row in texts] == [
            "cell", "bert-tiny-random", "bert-tiny-mlm-seed-0", "bert-tiny-mlm-seed-1",
            "bert-tiny-rtd-seed-0", "bert-tiny-rtd-seed-1",
        ]  # fmt: skip
        assert all("±" in row[-1] for row in texts[1:])
        page.get_by_text("always gives the most frequent answer").wait_for()
        page.get_by_role("link", name="Compare the curves of its cells").click()
        differ = page.get_by_text(re.compile("The objectives differ: (mlm, rtd|rtd, mlm)"))
        differ.wait_for(timeout=MINUTES)
        assert page.get_by_text("The texts differ").count() == 0
