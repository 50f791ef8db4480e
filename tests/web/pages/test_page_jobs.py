"""Jobs and the forms of other commands: what they say and write is shown."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.web.pages.test_pages_around import open_page
from tests.web.served import Served, workbench
from unmask.web.jobs.queue import JobQueue

SAID = "perplexity 203.77"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A workbench with jobs that are over: an evaluation, an analysis, a run that failed."""
    root = tmp_path_factory.mktemp("root")
    queue = JobQueue(root / ".unmask" / "jobs")
    for arguments, run, status in (
        (["evaluate", "a", "--data", "x.txt"], None, 0),
        (["probe", "a", "--out", "analysis"], "analysis", 0),
        (["pretrain", "bert-tiny", "--out", "broken"], "broken", 1),
    ):
        folder = queue.path(queue.add(arguments, run).id)
        (folder / "output.txt").write_text(f"1/2\r2/2\r{SAID} of {arguments[0]}\n")
        (folder / "started").touch()
        (folder / "exit.json").write_text(json.dumps({"status": status}))
    outside = tmp_path_factory.mktemp("outside") / "secret.txt"
    outside.write_text("x")
    (root / "analysis" / "deep").mkdir(parents=True)
    (root / "analysis" / "pairs.html").write_text("<h1>Pairs</h1><script>top.owned = 1</script>")
    (root / "analysis" / "deep" / "pairs.md").write_text("| a |")
    (root / "analysis" / "link").symlink_to(outside)
    with workbench(root) as one:
        yield one


@pytest.fixture
def page(browser: Any) -> Any:
    return browser


@pytest.mark.thorough
def test_what_a_command_says_is_beside_its_job(page: Any, served: Served) -> None:
    open_page(page, served, "jobs")
    page.locator("[data-job]", has_text="unmask evaluate a").get_by_text(
        f"{SAID} of evaluate", exact=True
    ).wait_for()
    page.get_by_role("link", name="Other commands").click()
    page.get_by_role("link", name=re.compile("^evaluate")).wait_for()


def test_the_focus_stays_in_the_queue(page: Any, served: Served) -> None:
    open_page(page, served, "jobs")
    page.get_by_role("button", name="Go on: broken").wait_for()
    page.get_by_role("button", name="Remove: broken").focus()
    page.keyboard.press("Enter")
    page.locator("[data-job]", has_text="broken").wait_for(state="detached")
    focused = page.evaluate("document.activeElement.getAttribute('aria-label')")
    assert focused.startswith("Remove: ")


def test_what_a_command_wrote_is_listed_and_sent(page: Any, served: Served) -> None:
    open_page(page, served, "run/analysis")
    files = page.get_by_role("region", name="Files")
    files.get_by_role("link", name="deep/pairs.md").wait_for()
    assert files.get_by_role("link").all_inner_texts() == ["deep/pairs.md", "pairs.html"]
    page.get_by_text(f"{SAID} of probe").wait_for()
    with page.expect_popup() as shown:
        files.get_by_role("link", name="pairs.html").click()
    shown.value.get_by_role("heading", name="Pairs").wait_for()
    shown.value.close()
    with served.client() as client:
        job = next(o for o in client.get("/api/jobs").json()["jobs"] if o["run"] == "analysis")
        sent = client.get(f"/api/jobs/{job['id']}/file", params={"name": "pairs.html"})
        assert "sandbox" in sent.headers["content-security-policy"]
        assert "attachment" not in sent.headers.get("content-disposition", "")
        saved = client.get(f"/api/jobs/{job['id']}/file", params={"name": "deep/pairs.md"})
        assert "attachment" in saved.headers["content-disposition"]
        for name in ("link", "../.unmask/secret", "none"):
            refused = client.get(f"/api/jobs/{job['id']}/file", params={"name": name})
            assert refused.status_code == 404


def test_files_and_models_are_chosen_in_the_form_of_a_command(page: Any, served: Served) -> None:
    with served.client() as client:
        client.put("/api/files/held.txt", content=b"a text")
    open_page(page, served, "command/evaluate")
    page.get_by_label("--data: a file that is there").select_option(label="held.txt")
    page.locator("pre code", has_text="It is shown here when").wait_for()
    field = page.get_by_label(re.compile("^Model"))
    names = page.locator(f"datalist#{field.get_attribute('list')} option")
    assert names.first.get_attribute("value") == "unmask-mini-en"
    field.fill("unmask-mini-en")
    page.locator(
        "pre code", has_text="evaluate unmask-mini-en --data .unmask/files/held.txt"
    ).wait_for()
