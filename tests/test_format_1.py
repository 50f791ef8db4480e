"""Runs saved in format 1 open, and answer as they did when they were saved.

`tests/format_1/make.py` made the runs, `tests/format_1/README.md` says what is in them. Numbers
were written with seven to nine places. On another machine sums of floats are taken in another
order: with the kernels for no vector instructions at all, on the machine that made them, no number
of the small runs was farther than 3e-7 of it from what was written, and none of the bundled model
farther than 2e-5. Hence 1e-4; a weight at another place changes the first digit.
"""

import json
import lzma
import math
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from format_1.asked import answers

import unmask
from unmask.cli.main import run
from unmask.config import from_dict
from unmask.jobs.pretrain.resolve_options import preset_recipe
from unmask.saved_format import from_format_1
from unmask.training.config import Recipe
from unmask.zoo.catalogue import MODELS

HERE = Path(__file__).parent / "format_1"
SAVED = HERE / "saved"
RELATIVE, ABSOLUTE = 1e-4, 1e-6
SEVERAL = ("suite", "study", "stopped")
"""Folders of several models, or of one that is not finished."""
NAMES = sorted(path.stem for path in SAVED.glob("*.json") if path.stem not in SEVERAL)
CARDS = json.loads(lzma.decompress((HERE / "cards.json.xz").read_bytes()))
BESIDE = {"Progress": frozenset({"format", "logs", "seed", "precision", "optimizer", "versions"})}
"""Keys that stand in a table with those of a type."""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("format") / "1"
    shutil.copytree(HERE, home, ignore=shutil.ignore_patterns("__pycache__"))
    for path in (home / "text").iterdir():  # as if they had just been checked out
        path.touch()
    return home


@pytest.fixture(autouse=True)
def _there(home: Path, monkeypatch: pytest.MonkeyPatch):
    """Runs name their text and the model that they began with relative to the folder."""
    monkeypatch.chdir(home)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def expected(name: str) -> Any:
    return json.loads((SAVED / f"{name}.json").read_text())


def differences(now: Any, was: Any, where: str = "") -> list[str]:
    """Say where two plain values differ by more than rounding."""
    if isinstance(was, dict) and isinstance(now, dict):
        odd = [f"{where}.{key}: is only in one" for key in now.keys() ^ was.keys()]
        return odd + [
            x for k in was if k in now for x in differences(now[k], was[k], f"{where}.{k}")
        ]
    if isinstance(was, list) and isinstance(now, list | tuple):
        odd = [f"{where}: {len(now)} of {len(was)}"] if len(now) != len(was) else []
        both = enumerate(zip(now, was, strict=False))
        return odd + [x for i, (a, b) in both for x in differences(a, b, f"{where}.{i}")]
    numbers = isinstance(was, float) and isinstance(now, int | float)
    if numbers and math.isclose(now, was, rel_tol=RELATIVE, abs_tol=ABSOLUTE):
        return []
    return [] if now == was else [f"{where}: {now!r}, not {was!r}"]


def test_comparison_detects_differences() -> None:
    was = {"a": [1.0, {"b": "c"}], "n": None}
    assert differences({"a": (1.0 + 1e-6, {"b": "c"}), "n": None}, was) == []
    for now in ({"a": [1.001, {"b": "c"}], "n": None}, {"a": [1.0], "n": None}, {"a": was["a"]}):
        assert differences(now, was)
    assert differences({"a": [1.0, {"b": "d"}], "n": None}, was) == [".a.1.b: 'd', not 'c'"]


def kinds_in(plain: Any) -> Iterator[tuple[str, frozenset[str]]]:
    """Give the kind and the fields of each table in plain data that has a kind."""
    if isinstance(plain, dict):
        if isinstance(plain.get("kind"), str) and not plain["kind"].islower():
            yield plain["kind"], frozenset(plain) - {"kind"}
        for value in plain.values():
            yield from kinds_in(value)
    elif isinstance(plain, list):
        for value in plain:
            yield from kinds_in(value)


def test_every_saved_name_is_listed() -> None:
    listed: dict[str, list[frozenset[str]]] = {}
    for one in json.loads((HERE / "names.json").read_text())["types"]:
        listed.setdefault(one["type"], []).append(frozenset(one["fields"]))
    plain = [CARDS, *(json.loads(path.read_text()) for path in SAVED.glob("*/**/*.json"))]
    found = {*kinds_in(plain)}
    assert len(found) > 80
    unseen = [
        f"{name}: {sorted(had)}"
        for name, had in found
        if not any(had - BESIDE.get(name, frozenset()) <= known for known in listed.get(name, ()))
    ]
    assert unseen == []


def test_preset_recipes_and_heads_translate_to_current_format() -> None:
    assert len(CARDS) > 150
    for name, plain in CARDS.items():
        preset = MODELS[name]
        assert from_dict(Recipe, from_format_1(plain["recipe"])) == preset_recipe(name)
        architecture = from_format_1(plain["architecture"])
        assert from_dict(type(preset.architecture), architecture) == preset.architecture
        assert (
            from_dict(type(preset.tokenizer), from_format_1(plain["tokenizer"])) == preset.tokenizer
        )
        for head, spec in preset.heads.items():
            assert from_dict(type(spec), from_format_1(plain["heads"][head])) == spec


def test_there_is_a_run_of_each_kind() -> None:
    found = {path.name for path in SAVED.iterdir() if path.is_dir()} | {"unmask-mini-en"}
    assert found == {*NAMES, *SEVERAL}
    facts = [json.loads(path.read_text()) for path in SAVED.rglob("unmask.json")]
    assert {one["format"] for one in facts} == {1}
    assert {one["kind"] for one in facts} == {"pretrain", "finetune"}


@pytest.mark.sample(6)
@pytest.mark.parametrize("name", NAMES)
def test_old_run_answers_as_recorded(name: str) -> None:
    folder = name if name == "unmask-mini-en" else f"saved/{name}"
    assert differences(answers(folder, tags=name == "tags"), expected(name)) == []


def test_stopped_old_run_resumes_to_the_recorded_result(home: Path) -> None:
    out = home / "saved" / "stopped"
    assert run(["pretrain", "--out", str(out), "--resume", "--quiet"]) == 0
    log = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    assert differences(log, expected("stopped")["log"]) == []
    assert differences(answers("saved/stopped"), answers("saved/bert")) == []


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", ["lora", "suite"])
def test_finished_old_job_counts_as_finished(name: str, home: Path) -> None:
    out = home / "saved" / name
    before = {p: p.read_bytes() for p in out.rglob("*.safetensors")}
    assert run(["finetune", "--out", str(out), "--resume", "--quiet"]) == 0
    assert {p: p.read_bytes() for p in out.rglob("*.safetensors")} == before
    if name == "suite":
        facts = json.loads((out / "suite.json").read_text())
        assert facts["average"] == expected("suite")["average"]
        assert [one["name"] for one in facts["entries"]] == expected("suite")["entries"]
        for folder in sorted(path.parent for path in out.glob("*/unmask.json")):
            assert unmask.load(folder).predict(["the sea"])


def test_finished_old_study_counts_as_finished(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home / "text")
    out = home / "saved" / "study"
    before = {p: p.read_bytes() for p in out.rglob("*.safetensors")}
    made = unmask.run_study("rates.toml", data="text.txt", out=out, resume=True, terminal=None)
    assert {p: p.read_bytes() for p in out.rglob("*.safetensors")} == before
    assert {one.name: one.loss for one in made.cell_results} == expected("study")["losses"]


@pytest.mark.parametrize("name", ["bert", "electra", "unilm", "elmo", "lora", "tags", "words"])
def test_report_of_an_old_run_is_written(name: str, home: Path) -> None:
    page = home / "saved" / name / "report.html"
    assert run(["report", str(page.parent)]) == 0
    assert "<svg" in page.read_text()


@pytest.mark.thorough
def test_new_run_starts_from_an_old_one(tmp_path: Path) -> None:
    more = {"steps": 1, "threads": 1, "quiet": True}
    small = [
        {
            "batch_tokens": 512,
            "dev_fraction": 0.1,
            "sequence_length": 32,
            "precision": "float32",
        }
    ]
    unmask.pretrain(
        "bert-tiny",
        data="text/text.txt",
        init_from="saved/bert",
        out=tmp_path / "on",
        changes=small,
        **more,
    )
    saved = unmask.load("saved/bert").save(tmp_path / "again", format="unmask")
    assert differences(answers(str(saved)), expected("bert")) == []
