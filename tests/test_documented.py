"""The pages work as their reader types them: from top to bottom, in a folder of their own.

There are the files that a page declares as the reader's, and those that its earlier blocks made.
"""

import ast
import io
import json
import lzma
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import documented
import pytest
import typer
from documented import DOCUMENTS, ROOT, Block, Command, own_files, toml_name

import unmask
import unmask.inference.vectors.load_word_vectors
import unmask.jobs.evaluate
import unmask.jobs.finetune

# Imported now, not in a test whose standard error is closed after it.
import unmask.jobs.word_vectors.draw_word_map
from unmask.bundled.demo import bundled_path
from unmask.bundled.models import BUNDLED_MODELS
from unmask.cli import main as cli
from unmask.tasks.suites.bundled import SUITES
from unmask.zoo.catalogue import MODELS

BLOCKS, COMMANDS = documented.blocks(), documented.commands()
OURS = [one for one in COMMANDS if one.words[:1] == ("unmask",)]
PAGES = [page for page in DOCUMENTS if any(block.document == page for block in BLOCKS)]
TUTORIALS = [page for page in PAGES if page.parent.name == "tutorials"]
NOT_RUN = {
    "benchmarks/": "repeats a measurement, in a clone with its data; see test_scripts.py",
    "python examples/": "see test_scripts.py",
    "runs/integration": "reads what an example makes; see test_scripts.py",
    "make ": "sets up an environment",
    "pip install": "installs",
    "unmask serve": "goes on until it is stopped",
    "s3://bucket": "is on remote storage",
    "unmask.inference.lm_eval": "fetches a data set of the harness from the Hub",
}
"""What marks a command that is not run, or a block of a measurement, and why."""
READ = re.compile(
    r"--(data|train|dev|test|input|ensemble|unlabeled|reward|teacher|from|tokenizer|tasks-data|"
    r"dictionary|sentences|expand|tasks|decontaminate)"
)
PATH = re.compile(r"[\w./*-]*(/|\.(txt|tsv|csv|jsonl?|conllu?|toml|vec|bin|npz|npy|jpg|xz))[\w*-]*")


def relative_name(document: Path) -> str:
    return str(document.relative_to(ROOT))


def of_block(block: Block) -> list[Command]:
    return [one for one in COMMANDS if one.block == block]


def is_run(block: Block, text: str) -> bool:
    return "python benchmarks/" not in block.text and not any(mark in text for mark in NOT_RUN)


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


def outputs(one: Command) -> list[str]:
    """Return the files and folders that a command makes."""
    words = one.words
    names = [words[i + 1] for i, word in enumerate(words[:-1]) if word in ("--out", "--page")]
    return [*names, words[3]] if words[1] == "convert" else names


def test_no_page_names_an_output_twice() -> None:
    names = Counter(
        (one.block.document.name, name)
        for one in OURS
        if "--resume" not in one.words
        for name in outputs(one)
    )
    assert [name for name, count in names.items() if count > 1] == []


def reads(one: Command) -> Iterator[str]:
    """List the files and models that a command reads, as far as its words show them."""
    words = one.words[2:]
    for i, word in enumerate(words):
        option = words[i - 1] if i else ""
        if READ.fullmatch(option) or (PATH.fullmatch(word) and not option.startswith("--")):
            names = re.split(r"[+,]", word)
            yield from (name.split("=")[-1] for name in names)
        elif i == 0 and one.words[1] in ("fill", "predict", "embed", "finetune", "compress"):
            yield word


def is_there(name: str, there: set[str]) -> bool:
    """Tell whether a name is known, or is in a known folder, or is a folder of what is known."""
    stem = name.split("*")[0].rstrip("/")
    known = [one.rstrip("/") for one in there]
    return stem == "." or any(f"{stem}/".startswith(f"{k}/") or k.startswith(stem) for k in known)


def python_outputs(text: str) -> set[str]:
    """Return the strings that Python writes to: what is kept, saved, copied, converted."""
    calls = r'out=|save\(|savez\(|Path\(|Writer\(|copy\([^"]*"\w+"\), |_vectors\(\w+, '
    return set(re.findall(rf'(?:{calls})"([^"]+)"', text))


@pytest.mark.parametrize("document", PAGES, ids=relative_name)
def test_what_a_page_reads_is_made_by_it_or_declared_at_its_top(document: Path) -> None:
    there = {*MODELS, *BUNDLED_MODELS, *SUITES, *own_files(document)}
    missing: list[str] = []
    for block in (block for block in BLOCKS if block.document == document):
        there |= {name for name in [toml_name(block)] if name}
        if block.language == "python":
            there |= python_outputs(block.text)
            names = re.findall(r'"([\w./-]+)"', block.text)
            missing += [f"{block.name}: {n}" for n in names
                        if PATH.fullmatch(n) and not is_there(n, there)]  # fmt: skip
        for one in of_block(block):
            if one.words[0] != "unmask" or not is_run(block, one.text):
                continue
            there |= set(outputs(one))
            names = [name for name in reads(one) if not re.match(r"(demo|hf):", name)]
            missing += [f"{one.name}: {name}" for name in names if not is_there(name, there)]
    assert missing == [], "\n".join(missing)


@pytest.mark.parametrize("document", DOCUMENTS, ids=relative_name)
def test_python_of_a_page_imports_unmask_and_formulas_are_plain(document: Path) -> None:
    python = "".join(b.text for b in BLOCKS if b.document == document and b.language == "python")
    imported = re.search(r"^(import|from) unmask\b", python, re.MULTILINE)
    assert imported or "unmask." not in python
    assert "$$" not in documented.FENCE.sub("", document.read_text(encoding="utf-8"))


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.name)
def test_blocks_are_well_formed(block: Block) -> None:
    if block.language == "json":
        assert all(json.loads(line) for line in block.text.splitlines() if line)
    elif block.language == "toml":
        assert toml_name(block), "the first line is `# NAME.toml: ...`"
        assert tomllib.loads(block.text)
    elif block.language == "python":
        for node in ast.walk(ast.parse(block.text)):
            if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "unmask":
                assert hasattr(unmask, node.attr), node.attr


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the files of all readers."""
    folder = tmp_path_factory.mktemp("made")
    documented.workspace(folder)
    with lzma.open(bundled_path("novels")) as novels:
        (folder / "novels.txt").write_bytes(novels.read(600_000).rpartition(b"\n")[0])
    return folder


def run_page(document: Path, capsys: Any) -> list[str]:
    """Run a page from top to bottom in the current folder; return what failed."""
    failed: list[str] = []
    names: dict[str, Any] = {}
    for block in (block for block in BLOCKS if block.document == document):
        if name := toml_name(block):
            Path(name).write_text(block.text, encoding="utf-8")
        if block.language == "python":
            try:
                exec(compile(block.text, block.name, "exec"), names)
            except Exception as error:
                failed.append(f"{block.name}: {type(error).__name__}: {error}")
        for one in of_block(block):
            if one.words[0] == "unmask" and is_run(block, one.text):
                status = cli.run(list(one.words[1:]))
                if status:
                    failed.append(f"{one.name}: {one.text}\n{capsys.readouterr().err[-1000:]}")
    capsys.readouterr()
    return failed


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"Hello!\n")))  # a chat
    return tmp_path


@pytest.mark.thorough
@pytest.mark.parametrize("document", PAGES, ids=relative_name)
def test_page_runs_from_top_to_bottom(
    document: Path, folder: Path, made: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    """Training is two steps of few tokens (`documented.scale`), and the novels are an eighth."""
    documented.scale(monkeypatch)
    novels = {"demo:novels": str(made / "novels.txt")}
    monkeypatch.setattr("unmask.text.documents.bundled_texts", lambda name: novels.get(name, name))
    documented.lay(document, folder, made)
    failed = run_page(document, capsys)
    assert failed == [], "\n".join(failed)


@pytest.mark.slow
@pytest.mark.parametrize("document", TUTORIALS, ids=relative_name)
def test_tutorial_runs_as_written(document: Path, folder: Path, capsys) -> None:
    failed = run_page(document, capsys)
    assert failed == [], "\n".join(failed)
