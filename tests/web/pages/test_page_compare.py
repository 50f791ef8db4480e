"""Runs side by side, and studies, in a browser."""

import math
import shutil
import time
import tomllib
from collections.abc import Generator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode
from xml.etree import ElementTree

import pytest

from tests.web.runs.made_runs import SAVED, make_run, write_lines
from tests.web.served import Served, browser_page, workbench

SECONDS = 30_000
MANY = 50
STUDY_PAGE = """# rates

How much\\_?

| cell | loss |
| --- | ---: |
| little-seed-0 | 5.187 |
| little-seed-1 | 5.287 |
| much | 5.187 |

![Scores](plot.svg)
"""
PLOT = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 9 9"><rect width="9" height="9"/></svg>'
)


def lines_of(n: int, offset: float) -> Generator[dict[str, Any]]:
    for i in range(1, n + 1):
        loss = 3 + offset + 5 * math.exp(-i / 400) + 0.1 * math.sin(1.7 * i)
        yield {
            "step": 10 * i, "tokens": 40_960 * i, "loss": loss, "parts": {"masked": loss},
            "accuracy": {"masked": 1 / loss}, "rate": 1e-3, "gradient_norm": 1.5, "skipped": 0,
        }  # fmt: skip


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Generator[Served]:
    root = tmp_path_factory.mktemp("runs")
    for name, rate in {"a": 1e-3, "b": 2e-3, "<i>c</i>": 1e-3}.items():
        recipe = {"kind": "Recipe", "steps": 20, "learning_rate": rate}
        make_run(root / name, recipe=recipe)
    shutil.copytree(SAVED / "suite", root / "suite")
    shutil.copytree(SAVED / "study", root / "rates")
    (root / "rates" / "README.md").write_text(STUDY_PAGE)
    (root / "rates" / "plot.svg").write_text(PLOT)
    with workbench(root) as found:
        yield found


@pytest.fixture(scope="module")
def page(served: Served) -> Generator[Any]:
    with browser_page(served) as found:
        yield found


def open_page(page: Any, runs: list[str], **more: str) -> None:
    page.evaluate("location.hash = '#/jobs'")
    page.get_by_role("heading", name="Jobs", exact=True).wait_for()
    page.evaluate("sessionStorage.clear()")  # the page that was left has written what was typed
    query = urlencode([("runs", one) for one in runs] + [*more.items()])
    page.evaluate("address => { location.hash = address }", f"#/compare?{query}")
    page.get_by_role("heading", name="Compare", exact=True).wait_for()


def read_download(saved: Any) -> str:
    return Path(saved.value.path()).read_text()


def state_of(page: Any) -> dict[str, list[str]]:
    return parse_qs(page.evaluate("location.hash").partition("?")[2])


def test_curves_and_tables_of_runs(page: Any) -> None:
    open_page(page, ["a", "<i>c</i>", "b"])
    page.locator(".uplot canvas").wait_for(timeout=SECONDS)
    options = page.get_by_role("region", name="Options that differ")
    row = options.get_by_role("row", name="Learning rate").inner_text().split("\t")
    assert [one.strip() for one in row] == ["Learning rate", "0.001", "0.001", "0.002"]
    assert page.locator(".compare i").count() == 0
    reached = page.get_by_role("region", name="What they reached").inner_text()
    assert "Masked accuracy, held out" in reached
    label = page.locator(".plot[role=img]").get_attribute("aria-label")
    assert label.startswith("Loss, training (nats): a: 4.8 at step 20; <i>c</i>: 4.8 at step 20")


def test_runs_are_hidden_removed_and_added(page: Any) -> None:
    open_page(page, ["a", "b"])
    page.get_by_label("Show a", exact=True).uncheck()
    assert state_of(page)["hidden"] == ["a"]
    page.locator(".plot[aria-label*='b: ']:not([aria-label*='a: 4'])").wait_for()
    page.get_by_label("Remove a", exact=True).click()
    page.locator("[data-run=a]").wait_for(state="detached")
    assert state_of(page) == {"runs": ["b"]}
    page.get_by_label("Add runs").fill("how-long")
    page.get_by_role("button", name="Add suite/How-long").click()
    page.locator(".plot[aria-label*='seed-1']").wait_for(timeout=SECONDS)
    assert state_of(page)["runs"] == ["b", "suite/How-long"]
    page.reload()
    page.locator("[data-run='suite/How-long']").wait_for(timeout=SECONDS)


def test_columns_axes_smoothing_and_logarithm(page: Any) -> None:
    open_page(page, ["a", "b"])
    page.locator("#compare-column optgroup[label='Held out']").wait_for(
        state="attached", timeout=SECONDS
    )
    page.get_by_label("Show", exact=True).select_option("evaluation:masked_accuracy")
    page.get_by_label("Along").select_option("seconds")
    page.locator(".plot[aria-label*='a: 0.25 at time 0:10']").wait_for()
    page.get_by_label("Smoothing").fill("0.5")
    page.get_by_label("Logarithmic").check()
    page.wait_for_function("() => location.hash.includes('log=1')")
    kept = {key: values[0] for key, values in state_of(page).items() if key != "runs"}
    assert kept == {
        "part": "evaluation", "column": "masked_accuracy", "axis": "seconds", "smooth": "0.5",
        "log": "1",
    }  # fmt: skip
    page.get_by_role("button", name="Show as table").click()
    assert "0:10" in page.locator("figure table").inner_text()


def test_different_objectives_and_files_for_a_paper(page: Any, served: Served) -> None:
    for name in ("mlm", "rtd"):
        recipe = {"kind": "Recipe", "steps": 20, "objective": name, "learning_rate": 1e-3}
        make_run(served.root / f"=of {name}", recipe=recipe)
    open_page(page, ["=of mlm", "=of rtd"])
    page.get_by_text("The objectives differ: mlm, rtd.").wait_for(timeout=SECONDS)
    with page.expect_download() as saved:
        page.get_by_role("button", name="Download CSV: Loss, training").click()
    assert read_download(saved).splitlines()[:2] == [
        'run,step,"Loss, training (nats)"', "'=of mlm,1,4.99",
    ]  # fmt: skip
    with page.expect_download() as saved:
        page.get_by_role("button", name="Download SVG: Loss, training").click()
    assert saved.value.suggested_filename == "loss-training-nats.svg"
    drawing = ElementTree.fromstring(read_download(saved))
    texts = [one.text for one in drawing.iter("{http://www.w3.org/2000/svg}text")]
    assert {"Loss, training (nats)", "step", "=of mlm", "=of rtd"} <= set(texts)
    with page.expect_download() as saved:
        page.get_by_role("button", name="Download CSV: What they reached").click()
    lines = read_download(saved).splitlines()
    assert lines[0].startswith("Run,State,Kind,Model,Objective,Steps,Time,")
    assert lines[2].startswith("'=of rtd,finished,pretraining,bert-tiny,rtd,20 of 20,")


def test_nothing_chosen_says_what_to_do_and_runs_that_are_gone_are_named(page: Any) -> None:
    open_page(page, [])
    page.get_by_role("heading", name="No runs chosen").wait_for()
    page.get_by_role("button", name="Add a", exact=True).click()
    page.locator("[data-run=a]").wait_for(timeout=SECONDS)
    open_page(page, ["a", "gone"])
    page.get_by_text("No longer there: gone.").wait_for()


def test_the_page_of_a_study(page: Any) -> None:
    open_page(page, [])
    page.get_by_role("link", name="rates", exact=True).click()
    page.get_by_role("heading", name="rates", exact=True).wait_for()
    page.get_by_text("How much_?").wait_for()
    table = page.get_by_role("region", name="Results", exact=True).inner_text()
    assert table.split()[-4:] == ["little-seed-1", "5.287", "much", "5.187"]
    over = page.get_by_role("region", name="Over the seeds of pretraining").inner_text()
    assert "little (2 seeds)\t5.237 ± 0.071" in over
    with page.expect_download() as saved:
        page.get_by_role("button", name="Download CSV: results").click()
    assert saved.value.suggested_filename == "rates-results.csv"
    assert read_download(saved).splitlines()[1] == "little-seed-0,5.187"
    page.evaluate("location.hash = '#/run/rates'")  # its table is what a study is for
    page.get_by_role("link", name="Output and tags").click()
    page.get_by_role("link", name="Table and runs").click()
    image = page.get_by_alt_text("Scores")
    image.wait_for()
    page.wait_for_function("() => document.querySelector('img[alt=Scores]').naturalWidth > 0")
    page.get_by_role("link", name="Compare the curves of its cells").click()
    page.locator("[data-run='rates/pretrained/much']").wait_for(timeout=SECONDS)


@pytest.mark.slow
def test_a_study_is_started_from_a_form(page: Any) -> None:
    open_page(page, [])
    page.get_by_role("button", name="Show the published studies").click()
    page.get_by_role("button", name="Set up t5-rates").click(timeout=60_000)
    page.get_by_role("heading", name="Start t5-rates").wait_for()
    page.get_by_label("Out", exact=True).fill("../outside")
    page.get_by_role("button", name="Start", exact=True).click()
    page.locator(".error-line:visible", has_text="outside").wait_for()
    page.locator("summary", has_text="Training").last.click()
    page.get_by_label("Tokens", exact=True).fill("50000")
    page.locator("pre code", has_text="--tokens 50000").wait_for()


@pytest.mark.slow
def test_a_study_is_composed_and_checked(page: Any, served: Served) -> None:
    with served.client() as client:
        rows = "".join(f"text {i}\t{i % 2}\n" for i in range(40))
        client.put("/api/files/mine.tsv", content=f"sentence\tlabel\n{rows}".encode())
        client.put("/api/files/text.txt", content=b"A text.\n\nAnother one.\n")
    open_page(page, [])
    page.get_by_role("button", name="Compose a study").click()
    page.get_by_role("checkbox", name="bert-tiny with clm").uncheck(timeout=60_000)
    page.get_by_label("Another model").select_option("gpt-mini", timeout=60_000)
    page.get_by_role("checkbox", name="gpt-mini with rtd").uncheck(timeout=60_000)
    page.get_by_label("Question").fill('Which "is" best?')
    page.get_by_label("Pretraining seeds").fill("2")
    page.get_by_text("10 cells of").wait_for(timeout=60_000)
    study = tomllib.loads(page.get_by_label("Study as TOML").inner_text())
    assert study["question"] == 'Which "is" best?'
    assert [cell["name"] for cell in study["cells"]][:3] == [
        "bert-tiny-random", "bert-tiny-mlm-seed-0", "bert-tiny-mlm-seed-1",
    ]  # fmt: skip
    page.locator("summary", has_text="The same size").click()
    page.get_by_label("Width", exact=True).fill("65")
    page.get_by_text("d_model 65 is not a multiple of n_heads").wait_for(timeout=60_000)
    page.get_by_role("button", name="Start", exact=True).click()
    assert "#/compare" in page.evaluate("location.hash")
    page.get_by_label("Width", exact=True).fill("")
    page.get_by_text("10 cells of").wait_for(timeout=60_000)
    page.get_by_role("button", name="Start", exact=True).click()
    page.get_by_text("Choose a text that all are pretrained on.").wait_for()
    page.get_by_label("Table that all are fine-tuned on: a file").select_option(
        ".unmask/files/mine.tsv"
    )
    page.get_by_text("Task: classify. Text: sentence. Label: label.").wait_for(timeout=60_000)
    page.get_by_role("button", name="Close").click()


@pytest.mark.slow
def test_fifty_runs_of_two_thousand_points(page: Any, served: Served) -> None:
    for i in range(MANY):
        run = make_run(served.root / "many" / f"{i:02}")
        write_lines(run / "log.jsonl", lines_of(2000, i / 40))
    page.evaluate("location.hash = '#/'")
    page.locator(".card").first.wait_for()
    page.wait_for_timeout(1000)
    runs = [f"many/{i:02}" for i in range(MANY)]
    page.evaluate("location.hash = '#/jobs'")
    page.get_by_role("heading", name="Jobs", exact=True).wait_for()
    query = urlencode([("runs", one) for one in runs])
    begin = time.perf_counter()
    page.evaluate("address => { location.hash = address }", f"#/compare?{query}")
    page.locator(".uplot canvas").wait_for(timeout=SECONDS)
    seconds = time.perf_counter() - begin
    print(f"{MANY} runs drawn in {seconds:.2f} s")
    assert seconds < 10  # a second on a machine that does nothing else
    assert page.locator("[data-run]").count() == MANY


@pytest.mark.slow
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_no_serious_fault_for_those_who_do_not_see_curves(
    page: Any, served: Served, theme: str
) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="no axe")
    own = page.context.browser.new_page()  # the policy refuses styles that axe tries
    own.goto(served.address)
    open_page(own, ["a", "b", "suite/How-long"])
    own.evaluate("theme => { document.documentElement.dataset.theme = theme }", theme)
    own.get_by_role("region", name="Options that differ").wait_for(timeout=SECONDS)
    faults = axe.Axe().run(own).response["violations"]
    assert [one["id"] for one in faults if one["impact"] in ("serious", "critical")] == []
    own.set_viewport_size({"width": 390, "height": 844})
    own.wait_for_timeout(200)
    assert own.evaluate("document.documentElement.scrollWidth") <= 390
    own.close()
