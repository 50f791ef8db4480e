"""Results and predictions of tasks other than classification, in a browser; no model is opened."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.web.served import Served, workbench

ERROR = {"text": "A man walks. | A man runs.", "truth": "4.5", "predicted": "2", "marked": None}
RESULTS: dict[str, dict[str, Any]] = {
    "names": {
        "task": "tag names.conll", "metric": "entity_f1", "chance": 0.0,
        "arms": [{"name": "pretrained", "dev": [0.7], "test": [],
                  "metrics": {"token_accuracy": {"dev": [0.95], "test": []}}}],
        "confusion": {"labels": ["B-PER", "O"], "counts": [[3, 1], [0, 9]]},
        "found": [{"label": "PER", "found": 3, "missed": 1, "invented": 0}],
        "errors": [], "wrong": 1,
    },
    "likeness": {
        "task": "regress pairs.tsv", "metric": "pearson", "chance": 0.0,
        "arms": [{"name": "pretrained", "dev": [0.8], "test": [],
                  "metrics": {"mean_squared_error": {"dev": [1.25], "test": []}}}],
        "errors": [ERROR | {"truth": f"{i}"} for i in (9, 5, 3)], "wrong": 3,
    },
    "chats": {
        "task": "instruct chats.jsonl", "metric": "loss", "chance": None,
        "arms": [{"name": "pretrained", "dev": [2.5], "test": []}],
        "errors": [{"text": "Name a color.", "truth": "Blue.", "predicted": ""}], "wrong": 1,
    },
}  # fmt: skip
PREDICTIONS: dict[str, tuple[dict[str, Any], dict[str, Any], list[Any], str]] = {
    "pairs": (
        {"texts": ["premise", "hypothesis"]},
        {"label": "no", "probabilities": {"no": 0.9, "yes": 0.1}},
        [["A man is playing a guitar.", "Someone makes music."]], "Label: no",
    ),
    "answer": (
        {"texts": ["question", "context"]},
        {"answer": "Warsaw", "start": 24, "end": 30, "probability": 0.5, "candidates": []},
        [{"question": "Where was she born?",
          "context": "Marie Curie was born in Warsaw. She studied in Paris."}],
        "Answer: Warsaw (50.0 %)",
    ),
    "choose": (
        {"texts": ["context"], "choices": ["choices"]}, {"index": 0, "probabilities": [0.75, 0.25]},
        [{"context": "The man turned on the faucet, therefore",
          "choices": ["water flowed from the spout.", "the toilet filled with water."]}],
        "Best: water flowed from the spout.",
    ),
    "prefer": (
        {"texts": ["chosen", "rejected"]},
        {"index": 0, "probabilities": [0.75, 0.25], "rewards": [1.0, -0.1]},
        [{"prompt": "Can you help me with my homework?",
          "responses": ["Of course. What is it about?", "No, do it yourself."]}],
        "Best: Of course.",
    ),
    "regress": (
        {"texts": ["first", "second"]}, {"number": 4.25},
        [["A man is playing a guitar.", "Someone makes music."]], "4.25",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    root = tmp_path_factory.mktemp("root")
    for name, results in RESULTS.items():
        write_run(root / name, results)
    with workbench(root) as one:
        yield one


@pytest.fixture
def page(browser: Any) -> Any:
    return browser


def write_run(folder: Path, results: dict[str, Any]) -> None:
    folder.mkdir()
    record = {"format": 2, "kind": "finetune", "card": "unmask-mini-en", "recipe": {}}
    (folder / "unmask.json").write_text(json.dumps(record))
    (folder / "results.json").write_text(json.dumps(results))
    (folder / "log.jsonl").write_text(json.dumps({"step": 1, "loss": 1.0}) + "\n")


def results_of(page: Any, served: Served, run: str) -> str:
    page.goto("about:blank")
    page.goto(f"http://127.0.0.1:{served.port}/#/run/{run}")
    page.wait_for_selector(".results")
    return page.inner_text(".results")


@pytest.mark.thorough
def test_entities_and_other_measures_are_shown(page: Any, served: Served) -> None:
    text = results_of(page, served, "names")
    assert "Entity F1, held out" in text
    assert "70.0 %" in text
    assert "always" not in text.lower()  # of a constant answer that reaches nothing
    assert "95.0 %" in page.inner_text("[aria-label='Other measures']")
    assert page.inner_text("[aria-label=Entities] tbody td >> nth=0") == "PER"


def test_numbers_are_told_by_how_far_they_are_off(page: Any, served: Served) -> None:
    text = results_of(page, served, "likeness")
    assert "3 predictions, the farthest off first" in text
    assert "off by 7" in text
    assert "Mean squared error" in text


def test_what_was_not_written_is_not_called_wrong(page: Any, served: Served) -> None:
    text = results_of(page, served, "chats")
    assert "expected least" in text
    assert "wrote" not in text


@pytest.mark.parametrize("task", PREDICTIONS)
def test_each_task_asks_for_what_it_reads(page: Any, served: Served, task: str) -> None:
    columns, record, inputs, shown = PREDICTIONS[task]
    ability = {"can": True, "task": task, "labels": [], "columns": {"choices": [], **columns}}
    facts = {"line": "A model", "parameters": 1000, "abilities": {"predict": ability}}
    asked: list[Any] = []

    def answer(route: Any) -> None:
        asked.append(route.request.post_data_json)
        route.fulfill(json={"task": task, "predictions": [record]})

    page.route("**/api/call/describe", lambda route: route.fulfill(json=facts))
    page.route("**/api/call/predict", answer)
    try:
        page.goto("about:blank")
        page.goto(f"http://127.0.0.1:{served.port}/#/try/names")
        page.get_by_role("button", name="Predict", exact=True).click()
        page.get_by_text(shown).wait_for()
        assert asked[0]["inputs"] == inputs
    finally:
        page.unroute("**/api/call/describe")
        page.unroute("**/api/call/predict")
