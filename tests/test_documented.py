"""Documented commands work: commands and Python of the documents, scripts of the folders.

All of it is read by the command line's own parser; what answers in a moment is run, too. The rest,
which trains something small, is run by `make test-all` (marked slow).
"""

import ast
import json
import os
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import documented
import pytest
import typer
from documented import DOCUMENTS, MODELS, OF_DOCUMENT, ROOT, TUNED, Block, Command

import unmask
import unmask.inference.vectors.load_word_vectors
import unmask.jobs.evaluate
import unmask.jobs.finetune

# Imported now, not in a test whose standard error is closed after it.
import unmask.jobs.word_vectors.draw_word_map
from unmask.cli import main as cli

BLOCKS, COMMANDS = documented.blocks(), documented.commands()
PYTHON = [block for block in BLOCKS if block.language == "python"]
OURS = [one for one in COMMANDS if one.words[:1] == ("unmask",)]
NOT_RUN = {
    "make": "sets up an environment of its own",
    "pip": "installs",
    "...": "is shortened",
    "serve": "goes on until it is stopped",
    "s3://bucket/tokens": "is on remote storage",
    "unmask.inference.lm_eval": "fetches a data set of the harness from the Hub",
}
"""What marks a command that is not run, and why."""
BINARY = ("GoogleNews-vectors-negative300.bin", "vectors.bin")
TRAINS = ("pretrain", "finetune", "prefer", "study")
NAMES = {"docs/generation.md": ("smaller",), "docs/vectors.md": ("model",)}
"""Of Python: what a reader has already."""


def relative_name(document: Path) -> str:
    return str(document.relative_to(ROOT))


def why_not(one: Command) -> str | None:
    return next((why for mark, why in NOT_RUN.items() if mark in one.words), None)


def test_each_document_has_commands_and_blocks() -> None:
    assert len(OURS) > 60
    assert {block.language for block in BLOCKS} <= documented.LANGUAGES
    known = ("unmask", "python", "make", "pip", "curl")
    assert [one.text for one in COMMANDS if one.words[0] not in known] == []


@pytest.mark.parametrize("one", OURS, ids=lambda one: one.name)
def test_documented_commands_and_options_exist(one: Command) -> None:
    group: Any = typer.main.get_command(cli.make_app(*cli.COMMANDS))
    command = group.commands[one.words[1]]
    context = command.make_context(one.words[1], list(one.words[2:]), resilient_parsing=False)
    assert context.params


def test_no_page_names_an_output_twice() -> None:
    outputs = Counter(
        (one.block.document.name, one.words[one.words.index("--out") + 1])
        for one in OURS
        if "--out" in one.words and "--resume" not in one.words
    )
    repeated = [name for name, count in outputs.items() if count > 1]
    assert len(repeated) <= 4, repeated  # may only go down


@pytest.mark.parametrize("document", DOCUMENTS, ids=relative_name)
def test_python_of_a_page_imports_unmask_and_formulas_are_plain(document: Path) -> None:
    python = "".join(block.text for block in PYTHON if block.document == document)
    imported = re.search(r"^(import|from) unmask\b", python, re.MULTILINE)
    assert imported or "unmask." not in python
    assert "$$" not in documented.FENCE.sub("", document.read_text(encoding="utf-8"))


@pytest.mark.parametrize("block", PYTHON, ids=lambda b: b.name)
def test_documented_python_names_exist(block: Block) -> None:
    for node in ast.walk(ast.parse(block.text)):
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "unmask":
            assert hasattr(unmask, node.attr), node.attr


@pytest.mark.parametrize("block", [b for b in BLOCKS if b.language == "json"], ids=lambda b: b.name)
def test_documented_json_can_be_read(block: Block) -> None:
    assert all(json.loads(line) for line in block.text.splitlines() if line)


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Iterator[Path]:
    """A workspace with the files and models that documents name."""
    home, here = tmp_path_factory.mktemp("home"), Path.cwd()
    documented.workspace(home)
    os.chdir(home)
    patch = pytest.MonkeyPatch()
    patch.setenv("TERM", "dumb")
    documented.scale(patch)
    yield home
    patch.undo()
    os.chdir(here)


def model(folder: str) -> str:
    """Make a stand-in for a model that a document names, unless it is there."""
    if folder in MODELS and not Path(folder).exists():
        unmask.pretrain(MODELS[folder], data="corpus.txt", out=folder, quiet=True)
    if folder in TUNED and not Path(folder).exists():
        unmask.finetune(
            model("runs/bert"), task="classify", train="sms.tsv", out=folder, terminal=None
        )
    if folder == "elmo_2x4096_512_2048cnn_2xhighway" and not Path(folder).exists():
        assert cli.run(["convert", model("runs/elmo"), folder, "--to", "elmo"]) == 0
    if folder in BINARY and not Path(folder).exists():
        assert cli.run(["convert", "vectors.vec", folder]) == 0
    return folder


def lay(document: Path) -> None:
    """Write the labelled files anew: documents call different ones alike."""
    documented.labeled(Path())
    for name, text in OF_DOCUMENT.get(document.name, {}).items():
        documented.put(Path(name), text)


def run(one: Command, capsys: Any) -> None:
    """Run a command of a document as it is printed."""
    words = list(one.words[1:])
    made = words[words.index("--out") + 1] if "--out" in words else None
    made = words[2] if words[0] == "convert" else made
    for word in words:
        if word != made:
            model(word.rstrip("/"))
    if made is not None and "--resume" not in words:
        shutil.rmtree(made, ignore_errors=True) if Path(made).is_dir() else None
        Path(made).unlink(missing_ok=True) if Path(made).is_file() else None
    status = cli.run(words)
    output = capsys.readouterr()
    assert status == 0, f"{one.name}: {one.text}\n{output.err[-2000:]}"


@pytest.mark.parametrize(
    "one", [c for c in OURS if c.words[1] not in TRAINS and c.block.document.name == "README.md"],
    ids=lambda one: one.name,
)  # fmt: skip
def test_fast_commands_run(one: Command, home: Path, capsys) -> None:
    lay(one.block.document)
    run(one, capsys)


@pytest.mark.slow
@pytest.mark.parametrize("document", DOCUMENTS, ids=relative_name)
def test_all_commands_of_a_document_run_in_order(document: Path, home: Path, capsys) -> None:
    lay(document)
    failed, block = [], None
    for one in COMMANDS:
        if one.block != block:  # what an example made is not what the next one is about
            documented.of_vectors(home)
            block = one.block
        if one.block.document != document or one.words[0] != "unmask" or why_not(one):
            continue
        try:
            run(one, capsys)
        except (AssertionError, Exception) as error:
            failed.append(f"{one.name}: {one.text}\n    {type(error).__name__}: {error}"[:1500])
    assert failed == [], "\n".join(failed)


@pytest.mark.slow
@pytest.mark.parametrize("block", PYTHON, ids=lambda b: b.name)
def test_python_blocks_of_documents_run(block: Block, home: Path) -> None:
    if "MultiAdapter(" in block.text:  # of one base, each tuned in a small part
        for name in TUNED[:2]:
            shutil.rmtree(name, ignore_errors=True)
            base, data = model("runs/bert"), "sms.tsv"
            unmask.finetune(base, task="classify", train=data, out=name, tune="lora", terminal=None)
    made = re.findall(r'out="([^"]+)"|convert_word_vectors\(\w+, "([^"]+)"', block.text)
    for name in filter(None, (name for names in made for name in names)):
        shutil.rmtree(name) if Path(name).is_dir() else Path(name).unlink(missing_ok=True)
    for name in (*MODELS, *TUNED, *BINARY):
        if f'"{name}"' in block.text and name not in {one for names in made for one in names}:
            model(name)
    given: dict[str, Any] = {"unmask": unmask}
    for name in NAMES.get(relative_name(block.document), ()):
        given[name] = unmask.load(model("runs/gpt"))
    exec(compile(block.text, block.name, "exec"), given)
