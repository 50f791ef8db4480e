"""The page on which models are tried: its own examples work, and what it says of them."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.web.served import Served, workbench

MILLISECONDS = 120_000


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with workbench(tmp_path_factory.mktemp("root")) as one:
        yield one


@pytest.fixture
def page(browser: Any, served: Served) -> Any:
    browser.goto(f"http://127.0.0.1:{served.port}/#/try/unmask-mini-en")
    browser.get_by_role("tab", name="Saliency").wait_for(timeout=MILLISECONDS)
    return browser


def panel_of(page: Any, tab: str, button: str) -> Any:
    """What a panel shows of its own example."""
    page.get_by_role("tab", name=tab).click()
    page.get_by_role("button", name=button, exact=True).click()
    output = page.locator(".output")
    page.get_by_text("Computing …").wait_for(state="detached", timeout=MILLISECONDS)
    assert page.locator("main [role=alert]").count() == 0
    return output


@pytest.mark.thorough
def test_the_example_of_each_panel_works(page: Any) -> None:
    filled = panel_of(page, "Fill blanks", "Fill")
    assert filled.locator("meter").count() == 8
    near = panel_of(page, "Similar texts", "Compare")
    assert near.locator("tbody tr").count() == 4
    attention = panel_of(page, "Attention", "Show")
    assert attention.get_by_label("Head").locator("option").first.inner_text().startswith("mean")
    saliency = panel_of(page, "Saliency", "Show")
    assert "Predicted" in saliency.inner_text()
    tokens = panel_of(page, "Tokenizer", "Cut")
    assert tokens.locator(".unknown .from").all_inner_texts() == ["🍕"]
    assert "Not in the vocabulary: 🍕" in tokens.inner_text()


def test_a_line_is_a_blank(page: Any) -> None:
    page.get_by_role("tab", name="Fill blanks").click()
    page.get_by_label("Text with blanks").fill("She ___ a book.")
    page.keyboard.press("Control+Enter")
    page.locator(".output meter").first.wait_for(timeout=MILLISECONDS)
    assert "___" not in page.locator(".output .text").inner_text()


def test_it_says_what_the_model_is_and_offers_no_twin(page: Any) -> None:
    assert "unmask-mini-en: bert, an encoder with 3.45 M parameters" in page.inner_text("main")
    assert page.get_by_label("Beside it").locator("option").all_inner_texts() == ["no other model"]
    page.get_by_text("What it cannot do, and why").click()
    assert "Generate: it does not write" in page.inner_text("main")
