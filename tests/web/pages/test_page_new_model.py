"""The page of new models, in a browser: with answers that are made up; slowly, with real ones."""

import csv
import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.web.served import Served, workbench

HOSTILE = "<img src=x onerror=alert(1)>"
HEADS_ERROR = "d_model 256 is not a multiple of n_heads 7"
READ_SECONDS = 180_000
"""Milliseconds: what asks the worker first waits until it has imported torch."""

PAPER = {"title": "A Paper", "authors": "Doe, Roe", "year": 2019, "arxiv": "1908.08962"}


def _model(name: str, family: str, kind: str, parameters: int) -> dict[str, Any]:
    return {
        "name": name, "family": family, "kind": kind, "parameters": parameters, "paper": PAPER,
        "year": 2019, "note": "", "has_weights": False, "minutes_per_million_tokens": 3.0,
    }  # fmt: skip


MODELS = [
    _model("bert-mini", "bert", "encoder", 5_529_090),
    _model("roberta-mini", "roberta", "encoder", 5_460_000),
    _model("bert-large-cased", "bert", "encoder", 335_000_000),
    _model("gpt2-mini", "gpt2", "decoder", 5_390_000),
    _model("word2vec-skipgram-mini", "word-vectors", "word vectors", 5_000_000),
]


def _choices(asked: dict[str, Any]) -> dict[str, Any]:
    is_vectors = asked["model"].startswith("word2vec")
    sizes = ["n_layers 4 Layers", "d_model 256 Width", "n_heads 4 Attention heads"]
    rows = [one.split(" ", 2) for one in (["d_model 100 Vector size"] if is_vectors else sizes)]
    return {
        "model": asked["model"],
        "sizes": [{"label": label, "help": "", "keys": [f"architecture.{key}"], "value": int(n)}
                  for key, n, label in rows],
        "tokenizer": "WordPiece", "lowercase": not asked["model"].startswith("roberta"),
        "vocab_size": 8192, "sequence_length": 128,
        "max_sequence_length": 512, "objective": "nsp", "asks": ["masked"],
        "has_epochs": is_vectors, "reads_texts": True, "reads_pictures": False,
    }  # fmt: skip


def _objectives(asked: dict[str, Any]) -> dict[str, Any]:
    del asked
    named = [("mlm", "masked language modeling", None), ("clm", "causal language modeling", None),
             ("plm", "permutation language modeling", "it has no such positions")]  # fmt: skip
    return {
        "objectives": [
            {"name": name, "description": text, "can": reason is None, "reason": reason,
             "options": [{"name": "rate", "value": 0.15}] if name == "mlm" else [],
             "follows": False}
            for name, text, reason in named
        ]
    }  # fmt: skip


def _plan(asked: dict[str, Any]) -> dict[str, Any]:
    if any("n_heads=7" in one for one in asked.get("changes", ())):
        return {"error": HEADS_ERROR, "field": None}
    steps = asked.get("steps", 1000)
    return {
        "parameters": 1_000_000 + steps, "hardware": {"memory_bytes": 2**33, "source": "measured"},
        "precision": "float32", "memory_bytes": {"total": 2**28}, "fits": True,
        "seconds": steps / 2, "tokens": 4096 * steps, "tokens_per_second": 8192, "steps": steps,
        "batch_tokens": 4096, "energy": {"kwh": 0.01, "watts": 12},
    }  # fmt: skip


def _hide(asked: dict[str, Any]) -> dict[str, Any]:
    words = asked["text"].split()
    tokens = [{"piece": w, "role": "shown", "asked": None, "segment": None} for w in words]
    tokens[0] = {"piece": "[MASK]", "role": "masked", "asked": words[0], "segment": None}
    return {
        "source": None, "inputs": tokens, "asks": [asked.get("objective", "own")],
        "sees": "every token attends to every token", "label": None, "weighting": None,
    }  # fmt: skip


def _tokenize(asked: dict[str, Any]) -> dict[str, Any]:
    tokens = [{"piece": w, "id": i} for i, w in enumerate(asked["text"].split())]
    return {"tokens": tokens, "tokens_per_word": 1.0, "algorithm": "WordPiece", "vocab_size": 8192}


def _preview(asked: dict[str, Any]) -> dict[str, Any]:
    text = f"{HOSTILE} The old king sat by the fire."
    name = Path(asked["files"][0]).name
    text = "Żółw szedł późno do łóżka." if name == "polski.txt" else text
    document = {"text": text, "characters": len(text), "cut": False, "location": f"{name}:1"}
    counts = {"documents": 1200, "characters": 5e6, "words": 9e5, "paragraphs": 1200, "replaced": 0}
    problem = None
    if name == "old.txt":
        problem = f"{name}:1: invalid UTF-8 at byte offset 0 (bf f3 b3 77: invalid start byte)"
        counts, document = dict.fromkeys(counts, 0), None
    if name.endswith(".csv") and "text_column" not in asked:
        problem = f"{name}:1: no column 'text', only 'id', 'body'; rename the one that has it"
        counts, document = dict.fromkeys(counts, 0), None
    return {"files": [{"name": name, "bytes": 5_000_000}], "documents": [document] if document
            else [], "counts": counts, "complete": problem is None, "problem": problem}  # fmt: skip


def _check(asked: dict[str, Any]) -> dict[str, Any]:
    number = asked["values"].get("minutes", 1)
    if isinstance(number, str) or number <= 0:
        line = "minutes must be above 0" if number == 0 else "'--minutes': must be a number"
        return {"problem": {"line": f"{line}, got {number}", "field": "minutes"}}
    return {"problem": None}


ANSWERS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "models": lambda _: {"models": MODELS, "families": {}},
    "preset_choices": _choices,
    "objective_choices": _objectives,
    "plan": _plan,
    "hide": _hide,
    "tokenize": _tokenize,
    "preview_text": _preview,
    "check_options": _check,
    "guess_encoding": lambda _: {"encoding": "windows-1250"},
    "rewrite_table": lambda _: {
        "name": "sheet-utf8.csv",
        "bytes": 9,
        "encoding": None,
        "separator": None,
        "sheet": "Arkusz1",
        "sheets": ["Arkusz1"],
        "header": 1,
    },
}
"""Answers of the worker, made up, so that a test takes no second of torch."""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with workbench(tmp_path_factory.mktemp("root")) as one:
        yield one


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """The page with nothing typed, and a worker that is made up."""

    def answer(route: Any) -> None:
        name = route.request.url.rpartition("/")[2]
        found = ANSWERS[name](json.loads(route.request.post_data))
        route.fulfill(status=400 if "error" in found else 200, json=found)

    browser.route("**/api/call/*", answer)
    open_page(browser)
    yield browser
    browser.unroute_all()


def open_page(page: Any, *, place: str = "new") -> None:
    base = page.evaluate("location.origin")
    page.goto(f"{base}/#/jobs")
    page.wait_for_selector("h1:has-text('Jobs')")
    page.goto(f"{base}/#/{place}")
    page.wait_for_selector("#model", timeout=READ_SECONDS)


def take_bundled(page: Any) -> None:
    page.get_by_label("The bundled one").check()
    page.wait_for_selector("#text .figures", timeout=READ_SECONDS)


def command_of(page: Any) -> str:
    return page.locator(".summary pre").first.inner_text()


def wait_for_command(page: Any, part: str) -> None:
    page.wait_for_function(
        "part => document.querySelector('.summary pre').textContent.includes(part)", arg=part
    )


def test_a_form_becomes_a_command_a_recipe_and_a_plan(page: Any) -> None:
    take_bundled(page)
    page.get_by_label("Layers").fill("2")
    page.get_by_label("Vocabulary").fill("4000")
    page.get_by_label("Unit of the length").select_option("steps")
    page.get_by_label("Length", exact=True).fill("500")
    page.get_by_label("Name").fill("mine")
    page.get_by_label("rate", exact=True).fill("0.3")
    wait_for_command(page, "mlm:rate=0.3")
    wait_for_command(page, "--out mine")
    command = command_of(page)
    assert command.startswith("unmask pretrain bert-mini --data demo:novels")
    for part in ("--steps 500", "--vocab-size 4000", "--set architecture.n_layers=2"):
        assert part in command
    page.get_by_text("As a recipe").click()
    page.wait_for_function(
        "() => document.querySelector('[aria-label=Recipe]').textContent.includes('n_layers = 2')"
    )
    page.wait_for_function(
        "() => /Parameters\\s*1 M[^]*Time\\s*4 min/"
        ".test(document.querySelector('.summary').innerText)"
    )


def test_what_is_hidden_is_shown_in_the_text_as_text(page: Any) -> None:
    take_bundled(page)
    page.wait_for_selector("#hidden .token.masked")
    tokens = page.locator("#hidden .tokens").first.inner_text()
    assert "[MASK]" in tokens
    assert "onerror=alert(1)>" in tokens
    assert page.locator("main img").count() == 0
    assert HOSTILE in page.locator("#text .documents").inner_text()
    page.get_by_label("Objective", exact=True).select_option("clm")
    page.wait_for_function(
        "() => document.querySelector('#hidden .facts')?.innerText.includes('clm')"
    )
    page.get_by_text("1 objective that this model does not support").click()
    assert "plm: it has no such positions" in page.locator("#hidden details").inner_text()


def test_an_error_is_beside_its_field_and_start_goes_there(page: Any) -> None:
    take_bundled(page)
    page.get_by_label("Attention heads").fill("7")
    page.wait_for_selector("#size .error-line:visible")
    assert page.locator("#size .error-line:visible").all_inner_texts() == [HEADS_ERROR]
    page.get_by_role("button", name="Start", exact=True).click()
    page.wait_for_function(
        "() => document.activeElement.closest('.field')?.dataset.name === 'architecture.n_heads'"
    )
    page.get_by_label("Attention heads").fill("")
    page.wait_for_selector("#size .error-line:visible", state="detached")
    page.get_by_label("Length", exact=True).fill("soon")
    page.get_by_role("button", name="Start", exact=True).click()
    line = page.locator("#length .error-line:visible")
    line.wait_for()
    assert "'--minutes': must be a number" in line.inner_text()


def test_a_length_of_nothing_is_refused_beside_it_before_the_start(page: Any) -> None:
    take_bundled(page)
    page.wait_for_selector(".summary .figures >> text=Time")
    length = page.get_by_label("Length", exact=True)
    length.fill("0")
    page.wait_for_selector("#length .error-line:visible")
    assert "minutes must be above 0" in page.inner_text("#length .error-line:visible")
    assert "Time" not in page.inner_text(".summary .figures")
    page.get_by_role("button", name="Start", exact=True).click()
    page.wait_for_function("() => document.activeElement.closest('[data-name=length]') !== null")
    assert page.url.endswith("#/new")
    length.fill("20")
    page.wait_for_selector(".summary .figures >> text=20 min")
    length.fill("2,5")  # as it is written in most of Europe
    wait_for_command(page, "--minutes 2.5")
    page.wait_for_selector("#length .error-line:visible", state="detached")
    length.fill("1,500")
    wait_for_command(page, "--minutes 1500")


def test_accents_are_kept_by_a_model_of_the_same_size(page: Any, tmp_path: Path) -> None:
    (tmp_path / "polski.txt").write_text("Żółw.")
    page.set_input_files("#text input[type=file]", tmp_path / "polski.txt")
    page.wait_for_selector("#model .notice:visible")
    assert "ó, ż, ź of your text become o, z, z" in page.inner_text("#model .notice")
    page.get_by_label("Layers").fill("2")
    page.get_by_role("button", name="Use RoBERTa in this size").click()
    wait_for_command(page, "pretrain roberta-mini")
    wait_for_command(page, "--set architecture.n_layers=2")
    assert "d_model" not in command_of(page)  # as wide as it is by itself
    page.wait_for_selector("#model .notice:visible", state="detached")


def test_what_is_typed_just_before_a_reload_stays(page: Any) -> None:
    take_bundled(page)
    page.get_by_text("Further options").click()
    page.locator("summary", has_text=re.compile("^Run$")).click()
    page.get_by_label("Seed").fill("7")
    page.get_by_label("Name").fill("at once")
    page.reload()
    page.wait_for_selector("#size input")
    assert page.get_by_label("Name").input_value() == "at once"
    assert page.evaluate("sessionStorage['form:pretrain-more']") == '{"seed":7}'


def test_a_late_answer_does_not_overwrite_a_later_one(page: Any) -> None:
    take_bundled(page)
    page.get_by_label("Unit of the length").select_option("steps")

    def answer(route: Any) -> None:
        asked = json.loads(route.request.post_data)
        if asked.get("steps") == 1_000_000:
            page.wait_for_timeout(900)
        route.fulfill(json=_plan(asked))

    page.route("**/api/call/plan", answer)
    page.get_by_label("Length", exact=True).fill("1000000")
    page.wait_for_timeout(450)  # it is asked
    page.get_by_label("Length", exact=True).fill("3000000")
    page.wait_for_timeout(2500)
    assert "4 M" in page.locator(".summary .figures").inner_text()


def test_a_run_without_a_text_is_not_started(page: Any) -> None:
    page.wait_for_selector("#size input")
    page.get_by_role("button", name="Start", exact=True).click()
    page.wait_for_selector("text=Choose a file with text first")
    assert page.evaluate("location.hash") == "#/new"


def test_a_column_of_a_table_is_offered(page: Any, tmp_path: Path) -> None:
    with (tmp_path / "rows.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["id", "body"], ["1", "A text."]])
    page.set_input_files("#text input[type=file]", tmp_path / "rows.csv")
    page.get_by_role("button", name="body", exact=True).click()
    page.wait_for_selector("#text .figures")
    wait_for_command(page, "--text body")


def test_other_encodings_are_guessed_and_spreadsheets_taken(page: Any, tmp_path: Path) -> None:
    (tmp_path / "old.txt").write_bytes("żółw".encode("windows-1250"))
    page.set_input_files("#text input[type=file]", tmp_path / "old.txt")
    page.wait_for_selector("button:has-text('Read it like this'):enabled")
    assert page.input_value("#charset") == "windows-1250"
    assert page.inner_text("#text .convert .text") == "żółw"
    page.get_by_role("button", name="Remove old.txt").click()
    (tmp_path / "sheet.xlsx").write_bytes(b"PK")
    page.set_input_files("#text input[type=file]", tmp_path / "sheet.xlsx")
    page.wait_for_selector("button[aria-label='Remove sheet.xlsx']")
    wait_for_command(page, "--data .unmask/files/sheet-utf8.csv")


def test_what_was_typed_stays(page: Any) -> None:
    take_bundled(page)
    page.get_by_label("Layers").fill("3")
    page.get_by_label("Name").fill("kept")
    page.wait_for_function("() => sessionStorage['new-model'].includes('kept')")
    open_page(page)
    page.wait_for_selector("#size input")
    assert page.get_by_label("Layers").input_value() == "3"
    assert page.get_by_label("Name").input_value() == "kept"
    page.reload()
    page.wait_for_selector("#size input")
    assert page.get_by_label("Layers").input_value() == "3"
    assert page.get_by_label("The bundled one").is_checked()


def test_all_is_cleared_and_had_back(page: Any) -> None:
    take_bundled(page)
    page.get_by_label("Layers").fill("3")
    page.get_by_text("Further options").click()
    page.locator("summary", has_text=re.compile("^Run$")).click()
    page.get_by_label("Seed").fill("many")
    page.get_by_text("Further options").click()
    page.get_by_role("button", name="Start", exact=True).click()
    page.wait_for_function(
        "() => document.activeElement.closest('.field')?.dataset.name === 'seed'"
    )
    page.get_by_role("button", name="Start afresh").click()
    page.wait_for_function("() => document.querySelector('input[value=own]').checked")
    page.wait_for_selector("#size input")
    assert page.get_by_label("Layers").input_value() == ""
    page.get_by_role("button", name="Undo").click()
    page.wait_for_function("() => document.querySelector('input[value=bundled]').checked")
    page.wait_for_selector("#size input")
    assert page.get_by_label("Layers").input_value() == "3"
    page.wait_for_function("() => sessionStorage['form:pretrain-more'] === '{\"seed\":\"many\"}'")


def test_word_vectors_have_epochs_and_no_length(page: Any) -> None:
    take_bundled(page)
    page.get_by_role("button", name="Use this: Word vectors").click()
    page.wait_for_selector("text=Vector size")
    wait_for_command(page, "word2vec-skipgram-mini")
    assert "--minutes" not in command_of(page)
    assert page.get_by_label("Length", exact=True).is_hidden()
    page.get_by_label("Vector size").fill("50")
    page.wait_for_function(
        "() => document.querySelector('.summary .figures').innerText.includes('410 k')"
    )
    figures = page.inner_text(".summary .figures")
    assert "900 k words" in figures
    assert "roughly, on one core" in figures


@pytest.mark.thorough
def test_the_page_is_usable_in_a_narrow_window_and_by_axe(page: Any) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    take_bundled(page)
    page.wait_for_selector("#hidden .token.masked")
    for width in (390, 1280):
        page.set_viewport_size({"width": width, "height": 844})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        found = axe.Axe().run(page, options={"preload": False}).response["violations"]
        assert [one["id"] for one in found if one["impact"] in ("serious", "critical")] == []


def run_state(served: Served, run: str) -> str:
    with served.client() as client:
        answer = client.get("/api/run", params={"run": run})
        return answer.json()["run"]["state"] if answer.status_code == 200 else "none"


def wait_until_finished(served: Served, run: str, seconds: float = 240) -> None:
    end = time.monotonic() + seconds
    while (state := run_state(served, run)) != "finished":
        assert time.monotonic() < end, state
        assert state != "crashed"
        time.sleep(0.5)


@pytest.mark.slow
def test_two_objectives_of_one_text_are_compared(
    served: Served, browser: Any, tmp_path: Path
) -> None:
    sentences = [f"Der Hund {i % 7} sah die Katze {i % 5}. Sie lief weg." for i in range(900)]
    (tmp_path / "eigenes.txt").write_text("\n\n".join(sentences), encoding="utf-8")
    page = browser
    open_page(page)
    page.set_input_files("#text input[type=file]", tmp_path / "eigenes.txt")
    page.wait_for_selector("#text .figures", timeout=READ_SECONDS)
    page.wait_for_selector("input[name=model][value=bert-tiny]", timeout=READ_SECONDS)
    page.locator("input[name=model][value=bert-tiny]").check()
    page.get_by_label("Layers").fill("1")
    page.get_by_label("Vocabulary").fill("300")
    page.get_by_label("Unit of the length").select_option("steps")
    page.get_by_label("Length", exact=True).fill("12")
    page.wait_for_selector("#hidden .token", timeout=READ_SECONDS)
    assert "katze" in page.locator("#hidden .tokens").first.inner_text()
    page.wait_for_selector(".summary .big", timeout=READ_SECONDS)
    page.wait_for_function(
        "() => /^bert-tiny-mlm/.test(document.querySelector('#length [data-name=out] input').value)"
    )
    page.get_by_role("button", name="Start", exact=True).click()
    page.wait_for_url(re.compile("#/run/bert-tiny-mlm$"))
    wait_until_finished(served, "bert-tiny-mlm")
    open_page(page, place="new?again=bert-tiny-mlm")
    page.wait_for_function(
        "() => document.querySelector('#objective')?.options.length > 5", timeout=READ_SECONDS
    )
    assert page.get_by_label("Layers").input_value() == "1"
    page.get_by_label("Objective", exact=True).select_option("clm")
    page.wait_for_function(
        "() => document.querySelector('#length [data-name=out] input').value === 'bert-tiny-clm'"
    )
    page.get_by_role("button", name="Start", exact=True).click()
    page.wait_for_url(re.compile("#/run/bert-tiny-clm$"))
    wait_until_finished(served, "bert-tiny-clm")


@pytest.mark.slow
def test_word_vectors_are_learned_from_here(served: Served, browser: Any) -> None:
    page = browser
    open_page(page)
    page.get_by_label("The bundled one").check()
    page.get_by_role("button", name="Use this: Word vectors").click()
    page.wait_for_selector("text=Vector size", timeout=READ_SECONDS)
    page.get_by_label("Vector size").fill("20")
    page.get_by_label("Epochs").fill("1")
    page.get_by_label("Name").fill("vectors")
    wait_for_command(page, "--out vectors")
    page.get_by_role("button", name="Start", exact=True).click()
    page.wait_for_url(re.compile("#/run/vectors$"))
    wait_until_finished(served, "vectors")
