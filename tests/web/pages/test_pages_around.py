"""The frame and the pages without a form of their own: runs, a run, jobs, try, export, commands."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.web.served import Served, workbench

HOSTILE = "<img src=x onerror=document.title='owned'>"
PAGES = ("", "run/tale", "jobs", "try/unmask-mini-en", "export/unmask-mini-en", "command/prepare",
         "command", "nothing", "run/%E0%A4%A")  # fmt: skip
READ_MILLISECONDS = 120_000


def write_run(folder: Path, n: int = 40) -> None:
    """A run that is not finished, whose texts are hostile."""
    folder.mkdir(parents=True)
    record = {
        "format": 2, "kind": "pretrain", "card": HOSTILE, "parameters": 1_234_567,
        "recipe": {"steps": 800, "learning_rate": 0.001, "text": HOSTILE},
    }  # fmt: skip
    (folder / "unmask.json").write_text(json.dumps(record))
    (folder / "README.md").write_text(HOSTILE)
    samples = [{"kind": "Generate", "prompt": HOSTILE, "before": "x", "after": HOSTILE}]
    (folder / "samples.json").write_text(json.dumps(samples))
    log = [
        {"step": 10 * i, "loss": 9.0 - i / 10, "parts": {"masked": 9.0 - i / 10},
         "accuracy": {"masked": i / 100}, "rate": 0.001, "gradient_norm": 1.0, "skipped": 0}
        for i in range(1, n)
    ]  # fmt: skip
    log.append({"step": 10 * n, "evaluation": {"loss": 5.0, "masked_accuracy": 0.3}})
    clock = [{"step": 10 * i, "seconds": i, "tokens_per_second": 1000.0, "total_steps": 800}
             for i in range(1, n)]  # fmt: skip
    for name, lines in (("log.jsonl", log), ("timing.jsonl", clock)):
        (folder / name).write_text("".join(json.dumps(one) + "\n" for one in lines))


def write_job(root: Path, n: int, status: int, line: str) -> None:
    """A job that has ended."""
    folder = root / ".unmask" / "jobs" / f"{n:014}-aaaaaa"
    folder.mkdir(parents=True)
    job = {"arguments": line.split(), "run": "told", "created": float(n)}
    (folder / "job.json").write_text(json.dumps(job))
    (folder / "output.txt").write_text("unmask: this run has steps = 7, not 9\n" if status else "")
    (folder / "exit.json").write_text(json.dumps({"status": status, "ended": n + 1.0}))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    root = tmp_path_factory.mktemp("root")
    write_run(root / "tale")
    write_job(root, 1, 0, "pretrain bert-tiny --data demo:novels --steps 7 --out told")
    write_job(root, 2, 2, "pretrain --out told --steps 9 --resume")
    write_run(root / "told")
    with workbench(root) as one:
        yield one


@pytest.fixture
def page(browser: Any) -> Any:
    return browser


def open_page(page: Any, served: Served, place: str) -> None:
    page.goto("about:blank")
    page.goto(f"http://127.0.0.1:{served.port}/#/{place}")
    page.locator("main:not([aria-busy]) h1, main:not([aria-busy]) .empty").first.wait_for()
    page.locator("main [aria-busy]").wait_for(state="detached", timeout=READ_MILLISECONDS)


def wait_for(page: Any, condition: str) -> None:
    for _ in range(200):
        if page.evaluate(condition):
            return
        page.wait_for_timeout(50)
    raise AssertionError(condition)


def test_hostile_texts_are_shown_as_texts(page: Any, served: Served) -> None:
    open_page(page, served, "run/tale")
    page.locator("details", has_text="settings").first.locator("summary").click()
    assert HOSTILE in page.inner_text("main")
    open_page(page, served, "")
    assert HOSTILE in page.inner_text("main")
    assert page.locator("main img").count() == 0
    assert "owned" not in page.title()


def test_a_refusal_is_shown_and_training_goes_on_in_a_new_run(page: Any, served: Served) -> None:
    open_page(page, served, "run/told")
    page.get_by_text("this run has steps = 7, not 9").first.wait_for()
    page.goto(f"http://127.0.0.1:{served.port}/#/new?again=told&from=told")
    line = "unmask pretrain bert-tiny --data demo:novels --steps 7 --out told-further --from told"
    page.get_by_text(line).first.wait_for(timeout=READ_MILLISECONDS)
    assert page.evaluate("location.hash") == "#/new"
    shutil.rmtree(served.root / "told")


def test_large_letters_and_a_chart_that_fills_the_screen(page: Any, served: Served) -> None:
    open_page(page, served, "run/tale")
    size = "getComputedStyle(document.documentElement).fontSize"
    before = page.evaluate(size)
    page.get_by_role("button", name="Large letters").click()
    page.reload()
    page.locator(".chart canvas").first.wait_for()
    assert float(page.evaluate(size)[:-2]) > float(before[:-2])
    small = page.locator(".chart canvas").first.bounding_box()["height"]
    page.get_by_role("button", name="Loss: full screen").click()
    page.get_by_text("Leave full screen").wait_for()
    assert page.locator(".chart canvas").first.bounding_box()["height"] > small
    page.get_by_role("button", name="Loss: full screen").click()
    page.get_by_text("Leave full screen").wait_for(state="detached")
    page.get_by_role("button", name="Large letters").click()
    assert page.evaluate(size) == before


def test_what_was_opened_stays_open_while_a_run_grows(page: Any, served: Served) -> None:
    open_page(page, served, "run/tale")
    settings = page.locator("details", has_text="settings").first
    settings.locator("summary").click()
    page.get_by_role("button", name="Tags").focus()
    with (served.root / "tale" / "log.jsonl").open("a") as file:
        file.write(json.dumps({"step": 500, "loss": 1.0}) + "\n")
    page.locator(".plot[aria-label*='step 500']").first.wait_for(timeout=15_000)
    page.wait_for_timeout(1_000)  # the head is drawn again after it
    assert settings.get_attribute("open") is not None
    assert page.evaluate("document.activeElement.textContent") == "Tags"


@pytest.mark.thorough
def test_runs_are_filtered_tagged_deleted_and_taken_back(page: Any, served: Served) -> None:
    write_run(served.root / "other")
    open_page(page, served, "")
    page.get_by_role("link", name="other", exact=True).wait_for()
    n = len(page.get_by_role("heading", level=3).all())
    assert f"{n} runs" in page.inner_text("main")
    page.get_by_label("Filter runs").fill("tale")
    page.get_by_text(f"1 of {n} runs").wait_for()
    open_page(page, served, "run/other")
    page.get_by_role("button", name="Tags").click()
    page.locator("dialog input").fill("first, second")
    page.get_by_role("button", name="Save").click()
    page.locator(".chip", has_text="second").wait_for()
    page.get_by_role("button", name="Delete").click()
    page.get_by_text("other was deleted.").wait_for()
    assert not (served.root / "other").exists()
    page.get_by_role("button", name="Undo").click()
    page.get_by_role("link", name="other", exact=True).wait_for()
    assert (served.root / "other" / "log.jsonl").is_file()


def test_several_runs_are_tagged_deleted_and_taken_back_at_once(page: Any, served: Served) -> None:
    for name in ("one-x", "two-x"):
        write_run(served.root / name)
    open_page(page, served, "")
    page.get_by_label("Filter runs").fill("-x")
    page.get_by_role("button", name="Choose both").click()
    page.get_by_role("button", name="Tag", exact=True).click()
    page.locator("dialog input").fill("term paper")
    page.get_by_role("button", name="Save").click()
    page.locator(".card .chip", has_text="term paper").nth(1).wait_for()
    page.get_by_role("button", name="Delete").click()
    page.get_by_text("2 runs were deleted.").wait_for()
    assert not (served.root / "one-x").exists()
    page.get_by_role("button", name="Undo").click()
    page.get_by_role("link", name="two-x", exact=True).wait_for()
    assert (served.root / "one-x").is_dir()


def test_a_curve_grows_as_its_log_does(page: Any, served: Served) -> None:
    write_run(served.root / "grows", n=10)
    open_page(page, served, "run/grows")
    plot = page.locator(".chart .plot").first
    plot.locator("canvas").wait_for()
    assert "step 90" in plot.get_attribute("aria-label")
    with (served.root / "grows" / "log.jsonl").open("a") as log:
        log.write('{"step": 100, "loss": 3.5}\n')
    page.locator(".chart .plot[aria-label*='3.5 at step 100']").wait_for()
    page.get_by_role("button", name="Show as table").first.click()
    assert "3.5" in page.locator(".chart .scroll table").first.inner_text()


def test_the_keyboard_and_both_themes(page: Any, served: Served) -> None:
    open_page(page, served, "")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Enter")
    assert page.evaluate("[document.activeElement.id, location.hash]") == ["content", "#/"]
    before = page.evaluate("getComputedStyle(document.body).color")
    page.get_by_role("button", name="Dark").click()
    assert page.evaluate("getComputedStyle(document.documentElement).colorScheme") == "dark"
    assert page.evaluate("getComputedStyle(document.body).color") != before
    page.reload()
    page.get_by_role("button", name="Light").click()


def test_back_and_reload_have_scroll_filters_and_chosen_runs_again(
    page: Any, served: Served
) -> None:
    for name in ("back-x", "back-y"):
        write_run(served.root / name)
    page.set_viewport_size({"width": 390, "height": 500})
    open_page(page, served, "")
    page.get_by_label("Filter runs").fill("back")
    page.get_by_label("Choose back-x to compare").check()
    page.get_by_label("Kind of run").select_option("pretrain")
    page.evaluate("scrollTo(0, 250)")
    wait_for(page, "history.state?.top > 200")
    page.get_by_role("link", name="back-y", exact=True).click()
    page.get_by_role("heading", name="back-y", level=1).wait_for()
    assert page.evaluate("scrollY") == 0
    for again in (page.go_back, page.reload):
        again()
        page.get_by_role("link", name="Compare 1").wait_for()
        wait_for(page, "scrollY > 200")
        assert page.get_by_label("Filter runs").input_value() == "back"
        assert page.get_by_label("Kind of run").input_value() == "pretrain"
        assert page.get_by_label("Choose back-x to compare").is_checked()
    for name in ("back-x", "back-y"):
        shutil.rmtree(served.root / name)


def test_a_page_that_could_not_be_shown_is_shown_when_the_server_is_back(
    page: Any, served: Served
) -> None:
    open_page(page, served, "jobs")
    page.context.set_offline(True)
    page.evaluate("() => { location.hash = '#/run/tale'; }")
    page.get_by_text("This page cannot be shown").wait_for()
    page.context.set_offline(False)
    page.get_by_role("heading", name="tale", level=1).wait_for()


@pytest.mark.thorough
@pytest.mark.parametrize("place", PAGES)
def test_no_accessibility_fault_and_no_sideways_scrolling(
    browser: Any, served: Served, place: str
) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="no axe")
    own = browser.context.browser.new_page()  # its own: the policy refuses styles that axe tries
    own.goto(served.address)
    for width in (390, 1280):
        own.set_viewport_size({"width": width, "height": 844})
        open_page(own, served, place)
        assert own.evaluate("document.documentElement.scrollWidth") <= width
        found = axe.Axe().run(own).response["violations"]
        faults = [
            (one["id"], [node["html"][:200] for node in one["nodes"]])
            for one in found
            if one["impact"] in ("serious", "critical")
        ]
        assert faults == []
    own.close()


@pytest.mark.parametrize(
    ("place", "asked"),
    [
        ("compare?runs=tale", "**/api/runs"),
        ("try/unmask-mini-en", "**/api/call/describe"),
        ("teach", "**/api/runs"),
    ],
)
def test_a_page_that_is_left_writes_no_address(
    page: Any, served: Served, place: str, asked: str
) -> None:
    """An answer that comes after the reader has gone on changes neither page nor address."""
    open_page(page, served, "jobs")
    held: list[Any] = []
    page.route(asked, lambda route, _: held.append(route))
    page.evaluate("(place) => { location.hash = `#/${place}`; }", place)
    for _ in range(100):
        if held:
            break
        page.wait_for_timeout(50)
    page.evaluate("() => { location.hash = '#/jobs'; }")
    for route in held:
        route.continue_()
    page.unroute(asked)
    page.get_by_role("heading", name="Jobs", level=1).wait_for()
    page.wait_for_timeout(300)
    assert held
    assert page.evaluate("location.hash") == "#/jobs"
    assert page.get_by_role("heading", level=1).all_inner_texts() == ["Jobs"]
