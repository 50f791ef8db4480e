"""The tutorials run as they are written: files, Python and commands, in order, in a fresh folder.

A block of TOML is written to the file that its first line names. What a tutorial shows of the
output is in blocks of `text`, which are not compared: numbers differ between machines.
"""

import re
import tomllib
from pathlib import Path
from typing import Any

import documented
import pytest
import typer
from documented import ROOT, Block, Command

from unmask.cli import main as cli

TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.md"))
BLOCKS = documented.blocks(TUTORIALS)
COMMANDS = documented.commands(TUTORIALS)
LANGUAGES = {"sh", "python", "toml", "text"}


def toml_name(block: Block) -> str:
    """Return the file that a block of TOML is: `# NAME.toml: ...` is its first line."""
    first = re.match(r"# ([\w-]+\.toml):", block.text)
    assert first is not None, f"{block.name}: the first line names no file"
    return first[1]


def test_every_block_is_run_or_shown() -> None:
    assert [path.stem for path in TUTORIALS] == [
        "compare-objectives", "few-labels", "own-domain", "teach"
    ]  # fmt: skip
    assert {block.language for block in BLOCKS} == LANGUAGES
    assert {one.words[0] for one in COMMANDS} == {"unmask"}


@pytest.mark.parametrize("one", COMMANDS, ids=lambda one: one.name)
def test_documented_commands_and_options_exist(one: Command) -> None:
    group: Any = typer.main.get_command(cli.make_app(*cli.COMMANDS))
    command = group.commands[one.words[1]]
    context = command.make_context(one.words[1], list(one.words[2:]), resilient_parsing=False)
    assert context.params


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.name)
def test_files_and_python_are_well_formed(block: Block) -> None:
    if block.language == "toml":
        assert toml_name(block)
        assert tomllib.loads(block.text)
    elif block.language == "python":
        assert compile(block.text, block.name, "exec")


@pytest.mark.slow
@pytest.mark.parametrize("document", TUTORIALS, ids=lambda path: path.stem)
def test_tutorial_runs_as_written(
    document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TERM", "dumb")
    names: dict[str, Any] = {}
    for block in documented.blocks([document]):
        if block.language == "toml":
            Path(toml_name(block)).write_text(block.text, encoding="utf-8")
        elif block.language == "python":
            exec(compile(block.text, block.name, "exec"), names)
        for one in COMMANDS:
            if one.block == block:
                assert cli.run(list(one.words[1:])) == 0, f"{one.name}: {one.text}"
