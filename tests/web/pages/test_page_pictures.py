"""Pictures on the page of new models, and files in the form of a command, in a browser."""

import base64
import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.web.pages.test_page_new_model import ANSWERS, open_page
from tests.web.served import Served, workbench

PREVIEW: dict[str, Any] = {
    "counts": {"pictures": 600, "captions": 0}, "labels": [["cat", 300], ["dog", 300]],
    "n_labels": 2, "complete": True, "problem": None,
}  # fmt: skip


def _png() -> str:
    image = pytest.importorskip("PIL.Image", reason="the extra 'images' is not installed")
    file = io.BytesIO()
    image.new("RGB", (4, 4), (200, 30, 30)).save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode("ascii")


def _model(name: str, family: str) -> dict[str, Any]:
    paper = {"title": "A Paper", "authors": "Doe, Roe", "year": 2022, "arxiv": "1"}
    return {
        "name": name, "family": family, "kind": "images", "parameters": 3_000_000, "paper": paper,
        "year": 2022, "note": "", "has_weights": False, "minutes_per_million_tokens": 3.0,
    }  # fmt: skip


def _hide(asked: dict[str, Any]) -> dict[str, Any]:
    if "file" not in asked:
        return ANSWERS["hide"](asked)
    if asked["model"] == "clip-mini":
        return {"error": "file: clip-mini learns from texts; give one", "field": "file"}
    views = [{"title": title, "png": _png()} for title in ("picture", "seen", "asked")]
    return {"picture": {"picture": f"{asked['number']}.png", "asks": ["masked"], "views": views,
                        "notes": {"targets": "49 of 64 patches"}}}  # fmt: skip


def _preview(asked: dict[str, Any]) -> dict[str, Any]:
    del asked
    picture = {"name": "cat/1.png", "label": "cat", "caption": None, "size": [4, 4], "png": _png()}
    return PREVIEW | {"pictures": [picture]}


MINE: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    **ANSWERS,
    "models": lambda asked: {"models": [*ANSWERS["models"](asked)["models"],
                                        _model("mae-mini", "mae"), _model("clip-mini", "clip")],
                             "families": {}},
    "hide": _hide,
    "preview_images": _preview,
}  # fmt: skip


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with workbench(tmp_path_factory.mktemp("root")) as one:
        yield one


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    def answer(route: Any) -> None:
        name = route.request.url.rpartition("/")[2]
        found = MINE[name](json.loads(route.request.post_data))
        route.fulfill(status=400 if "error" in found else 200, json=found)

    browser.route("**/api/call/*", answer)
    yield browser
    browser.unroute_all()


@pytest.mark.thorough
def test_pictures_are_looked_at_and_their_patches_hidden(page: Any, tmp_path: Path) -> None:
    open_page(page)
    page.locator("input[name=kind][value=images]").check()
    page.get_by_text("one folder for each label").wait_for()
    path = tmp_path / "animals.zip"
    path.write_bytes(b"PK\x05\x06" + 18 * b"\0")
    page.set_input_files("#text input[type=file]", path)
    page.locator("#hidden-patches figure").nth(2).wait_for()
    assert "cat: 300, dog: 300" in page.inner_text("#text")
    assert "few pictures: 600" in page.inner_text("#text")
    assert page.get_by_alt_text("What the model sees: 0.png").is_visible()
    page.get_by_role("button", name="Another picture").click()
    page.get_by_alt_text("What the model sees: 1.png").wait_for()
    page.select_option("#family", "clip")
    page.get_by_text("learns from captions, and these pictures have none").wait_for()
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="no axe")
    found = axe.Axe().run(page, options={"preload": False}).response["violations"]
    assert [one["id"] for one in found if one["impact"] in ("serious", "critical")] == []


def test_a_file_that_is_sent_becomes_the_value_of_its_field(page: Any, tmp_path: Path) -> None:
    page.goto(page.evaluate("location.origin") + "/#/command/prefer")
    path = tmp_path / "pairs.jsonl"
    path.write_text("{}\n")
    page.locator("[data-name=train] input[type=file]").set_input_files(path)
    line = "--train .unmask/files/pairs.jsonl"
    page.locator("[data-name=base] input").fill("gpt")
    page.locator(".copy code", has_text=line).wait_for()
