"""The page for lectures, in a browser."""

from collections.abc import Generator
from typing import Any
from urllib.parse import parse_qs

import pytest

from tests.web.served import Served, browser_page, workbench

SLIDE = ".slide:not([aria-busy]) h2"
SECONDS = 60_000


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Generator[Served]:
    with workbench(tmp_path_factory.mktemp("runs")) as found:
        yield found


@pytest.fixture(scope="module")
def page(served: Served) -> Generator[Any]:
    with browser_page(served) as found:
        yield found


def open_page(page: Any, address: str) -> None:
    page.evaluate("location.hash = '#/jobs'")
    page.get_by_role("heading", name="Jobs", exact=True).wait_for()
    page.evaluate("sessionStorage.clear()")  # the page that was left has written what was typed
    page.evaluate("address => { location.hash = address }", address)
    page.locator(SLIDE).wait_for(timeout=SECONDS)


def state_of(page: Any) -> dict[str, str]:
    query = parse_qs(page.evaluate("location.hash").partition("?")[2])
    return {key: values[0] for key, values in query.items()}


def wait_for_lesson(page: Any, name: str) -> None:
    page.locator(SLIDE, has_text=name).wait_for(timeout=SECONDS)


@pytest.mark.thorough
def test_a_lesson_its_answers_and_a_new_draw(page: Any) -> None:
    open_page(page, "#/teach?text=The+cat+sat+on+the+mat.")
    targets = page.locator(".spots .asked")
    before = targets.all_text_contents()
    assert before
    page.get_by_role("button", name="Show answers").click()
    page.locator(".answers").first.wait_for()
    assert page.locator(".answers").count() == len(before)
    assert "%" in page.locator(".answers .share").first.text_content()
    page.get_by_role("button", name="New draw").click()
    page.get_by_text("draw 2").wait_for()
    assert state_of(page)["seed"] == "1"
    page.get_by_role("button", name="Hide targets").click()
    page.locator(".spots .asked", has_text="?").first.wait_for()
    assert page.locator(".answer.right").count() == 0


def test_keys_step_present_and_leave(page: Any) -> None:
    open_page(page, "#/teach?model=bert-mini&answers=")
    page.get_by_role("button", name="Present").click()
    page.locator(".stage.present").wait_for()
    page.keyboard.press("ArrowRight")
    wait_for_lesson(page, "RoBERTa")
    page.keyboard.press("ArrowLeft")
    wait_for_lesson(page, "BERT")
    page.keyboard.press("w")
    assert page.locator(".stage.sight .sightmap").is_visible()
    page.keyboard.press("n")
    page.get_by_text("draw 2").wait_for()
    page.wait_for_function(
        "() => parseFloat(getComputedStyle(document.querySelector('.spoken')).fontSize) >= 24"
    )
    page.keyboard.press("Escape")
    page.locator(".stage:not(.present)").wait_for()
    assert page.evaluate("document.activeElement.textContent") == "Present"


def test_the_two_keys_of_a_remote_go_through_a_lesson_and_back(page: Any) -> None:
    open_page(page, "#/teach?model=bert-mini&text=The+cat+sat+on+the+mat.&targets=0")
    page.get_by_role("button", name="Present").click()
    page.locator(".spots .asked", has_text="?").first.wait_for()
    answers, sight = page.locator(".answers").first, page.locator(".stage.sight")
    page.keyboard.press("PageDown")
    page.locator(".spots .asked", has_text="?").first.wait_for(state="detached")
    page.keyboard.press(" ")
    answers.wait_for(timeout=SECONDS)
    page.keyboard.press("PageDown")
    sight.wait_for()
    page.keyboard.press("ArrowDown")
    page.locator(".sightmap tr.chosen th:focus").wait_for()
    page.keyboard.press("PageDown")
    wait_for_lesson(page, "RoBERTa")
    page.locator(".stage.sight").wait_for(state="detached")
    page.locator(".spots .asked", has_text="?").first.wait_for()
    page.keyboard.press("PageUp")
    wait_for_lesson(page, "BERT")
    page.keyboard.press("F5")  # the key by which a remote begins
    page.keyboard.press("b")
    assert page.locator(".stage.blank .slide").is_hidden()
    page.keyboard.press("PageDown")
    page.locator(".stage.present:not(.blank) .slide").wait_for()
    page.keyboard.press("Escape")


def test_another_text_is_written_while_presenting(page: Any) -> None:
    open_page(page, "#/teach?model=bert-mini&shown=1")
    page.get_by_role("button", name="Present").click()
    assert page.get_by_label("Your text").is_hidden()
    page.keyboard.press("e")
    page.keyboard.insert_text("I like 今天 and 🍕.")
    page.keyboard.press("Enter")
    page.get_by_text("Not in the vocabulary of this tokenizer").wait_for()
    assert page.locator(".unknown-parts span").all_inner_texts() == ["今", "天", "🍕"]
    assert page.get_by_label("Your text").is_hidden()
    assert page.locator(".stage.present").is_visible()
    page.keyboard.press("e")
    page.keyboard.insert_text("No model reads as much as this at once. " * 30)
    page.keyboard.press("Enter")
    page.get_by_text("the model reads at most 128").first.wait_for(timeout=SECONDS)
    assert not page.locator(".slide.stale").count()  # all but the answers is shown
    page.keyboard.press("Escape")


def test_who_sees_whom_in_words(page: Any) -> None:
    open_page(page, "#/teach?model=gpt2-mini&text=The+cat+sat")
    wait_for_lesson(page, "GPT")
    rows = page.locator(".sightmap tbody th")
    rows.first.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    assert "cat” sees" in page.locator(".spoken").text_content()
    assert page.locator(".sightmap tr.chosen td.seen").count() == 3
    assert state_of(page)["model"] == "gpt2-mini"
    page.get_by_text("and there is no run of gpt2-mini yet").first.wait_for()


def test_an_address_brings_the_same_back(page: Any) -> None:
    address = (
        "#/teach?model=bert-mini&text=A+dog+barked+at+me.&seed=3&shown=1&set=select.rate%3D0.6"
    )
    open_page(page, address)
    slider = page.get_by_label("Share of words that are hidden")
    assert slider.input_value() == "0.6"
    tokens = page.locator(".spots").first.inner_text()
    assert tokens.count("↓") or page.locator(".spots .asked").count() >= 3
    page.locator("pre code", has_text="--set select.rate=0.6").wait_for()
    page.reload()
    page.locator(SLIDE).wait_for(timeout=SECONDS)
    assert page.locator(".spots").first.inner_text() == tokens
    slider.fill("0.2")
    page.locator("pre code", has_text="select.rate=0.2").wait_for()
    assert state_of(page)["set"] == "select.rate=0.2"


def test_an_empty_text_is_refused_beside_the_field_and_kept(page: Any) -> None:
    open_page(page, "#/teach?model=bert-mini")
    page.get_by_label("Your text").fill(" ")
    page.get_by_text("the text is empty: there is nothing to hide").wait_for()
    assert page.get_by_label("Your text").get_attribute("aria-invalid") == "true"
    page.get_by_label("Your text").fill("<b>No</b> markup.")
    page.locator("#teach-error").wait_for(state="hidden")
    assert page.locator(".slide b").count() == 0
    page.get_by_role("link", name="Runs", exact=True).click()
    page.get_by_role("heading", name="Runs", exact=True).wait_for()
    page.get_by_role("link", name="Teach").click()
    page.locator(SLIDE).wait_for(timeout=SECONDS)
    assert page.get_by_label("Your text").input_value() == "<b>No</b> markup."


@pytest.mark.slow
def test_every_lesson_is_shown(page: Any) -> None:
    open_page(page, "#/teach?shown=1")
    for name in ("RoBERTa", "ELECTRA", "GPT", "UniLM", "XLNet", "T5", "BART", "BERT"):
        page.get_by_role("button", name="Next").click()
        wait_for_lesson(page, name)
        assert page.locator("#teach-error").is_hidden()
        assert page.locator(".sightmap").count() == (2 if name in ("XLNet", "T5", "BART") else 1)
    for name in ("both sides", "left to right", "right to left", "source, then target"):
        page.evaluate("location.hash = '#/teach?model=unilm-mini'")
        wait_for_lesson(page, "UniLM")
        page.get_by_role("button", name=name).click()
        page.locator(".variants [aria-pressed=true]", has_text=name).wait_for(timeout=SECONDS)


@pytest.mark.slow
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_no_serious_fault_for_those_who_do_not_see(page: Any, served: Served, theme: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="no axe")
    own = page.context.browser.new_page()  # the policy refuses styles that axe tries
    own.goto(served.address)
    open_page(own, "#/teach?shown=1")
    own.evaluate("theme => { document.documentElement.dataset.theme = theme }", theme)
    for name in ("BERT", "T5"):
        own.get_by_role("button", name=name, exact=True).click()
        wait_for_lesson(own, name)
        faults = axe.Axe().run(own).response["violations"]
        assert [one["id"] for one in faults if one["impact"] in ("serious", "critical")] == []
    own.close()


@pytest.mark.slow
def test_a_narrow_window_scrolls_down_alone(page: Any) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    for model in ("bert-mini", "t5-mini", "bart-mini"):
        open_page(page, f"#/teach?model={model}&shown=1")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.set_viewport_size({"width": 1280, "height": 900})
