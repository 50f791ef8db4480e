"""Every option of every command that is a number refuses what no number can be, in one line."""

from pathlib import Path
from typing import get_args, get_type_hints

import pytest
from typer.models import OptionInfo

from unmask.cli import app, run

OPTIONS = [
    (command.callback.__name__, (option.default, *option.param_decls)[-1])
    for command in app.registered_commands
    for hint in get_type_hints(command.callback, include_extras=True).values()
    for kind, option in [(*get_args(hint), None, None)[:2]]
    if isinstance(option, OptionInfo) and {int, float} & {kind, *get_args(kind)}
]
BAD = ("nan", "inf", "-inf", "1e400", "1" + "0" * 30, "x", "", "1" * 5000)


def test_there_are_such_options() -> None:
    assert len(OPTIONS) > 50
    assert len({command for command, _ in OPTIONS}) > 8


def check(command: str, option: str, value: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([command, option, value]) == 2, (command, option)
    err = capsys.readouterr().err
    assert err.count("\n") == 1, (command, option)
    assert option in err, (command, option, err)


def test_what_is_no_number_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    for i, (command, option) in enumerate(OPTIONS):
        check(command, option, BAD[i % len(BAD)], capsys)


@pytest.mark.slow
@pytest.mark.parametrize("value", BAD)
def test_nothing_that_is_no_number_is_taken(value: str, capsys: pytest.CaptureFixture[str]) -> None:
    for command, option in OPTIONS:
        check(command, option, value, capsys)


BEGUN = {
    "pretrain": ("bert-tiny", "--data", "text.txt", "--out", "run", "--quiet"),
    "generate": ("no-such-model", "--prompt", "the"),
    "prepare": ("text.txt", "--out", "run", "--quiet"),
}
"""Words with which a command is complete."""


@pytest.mark.parametrize("command", BEGUN)
def test_what_cannot_be_negative_is_one_line_before_anything_is_made(
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text("the sun is good\n" * 9)
    for option in (option for name, option in OPTIONS if name == command):
        assert run([command, *BEGUN[command], f"{option}=-1"]) == 2, option
        err = capsys.readouterr().err
        assert err.count("\n") == 1, (option, err)
        assert "no such folder" not in err, (option, err)
    assert [path.name for path in tmp_path.iterdir()] == ["text.txt"]
