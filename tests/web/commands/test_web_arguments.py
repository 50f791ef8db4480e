"""Values of forms are written as a command line, read back, and refused as it refuses them."""

import math
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from unmask.cli import main as cli
from unmask.web.commands.arguments import (
    FieldError,
    command_arguments,
    parse_command,
    shown_command,
)
from unmask.web.commands.catalogue import WEB_COMMANDS, parser_of_command
from unmask.web.commands.forms import FormField, describe_form

APP: Any = typer.main.get_command(cli.make_app(*WEB_COMMANDS))
FIELDS = {name: describe_form(name).fields for name in sorted(WEB_COMMANDS)}
TEXTS = st.one_of(
    st.sampled_from(["-", "--", "-x", "--steps", "--out=a", "a b", "'\"", "\n", "=", "a,b", "é"]),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1),
)
KEYS = st.from_regex(r"[a-z_]{1,8}(\.[a-z_]{1,8})?", fullmatch=True)


def values_of(field: FormField) -> st.SearchStrategy[Any]:
    """Return the values that a field allows."""
    texts = TEXTS.filter(lambda text: field.separator is None or field.separator not in text)
    plain: dict[str, st.SearchStrategy[Any]] = {
        "boolean": st.booleans(),
        "integer": st.integers(-(2**63), 2**63 - 1),
        "number": st.floats(-9e18, 9e18),
        "choice": st.sampled_from(field.choices or ("",)),
        "list": st.lists(texts, min_size=1, max_size=3),
        "assignments": st.lists(
            st.builds(lambda key, text: f"{key}={text}", KEYS, TEXTS), min_size=1, max_size=3
        ),
        "path": TEXTS.map(lambda text: str(Path(text))),
    }
    return plain.get(field.kind, TEXTS)


@st.composite
def filled_forms(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    """Draw a command and values of its form."""
    name = draw(st.sampled_from([*FIELDS]))
    fields = FIELDS[name]
    optional = [one for one in fields if not one.required]
    chosen = draw(st.lists(st.sampled_from(optional), unique_by=lambda one: one.name, max_size=6))
    required = [one for one in fields if one.required]
    return name, {one.name: draw(values_of(one)) for one in (*required, *chosen)}


@given(filled_forms())
def test_values_come_back_from_the_command_line(filled: tuple[str, dict[str, Any]]) -> None:
    name, values = filled
    arguments = command_arguments(name, values)
    defaults = {one.name: one.default for one in FIELDS[name]}
    changed = {key: value for key, value in values.items() if value != defaults[key]}
    assert parse_command(arguments) == (name, changed)
    read = APP.commands[name].make_context(name, list(arguments[1:])).params
    assert read == parser_of_command(name).make_context(name, list(arguments[1:])).params
    assert shlex.split(shown_command(arguments)) == ["unmask", *arguments]


def test_only_what_differs_is_written() -> None:
    values = {
        "model": "bert-mini", "data": ["a.txt", ""], "steps": "100", "seed": None, "objective": "",
        "resume": False, "workers": 0, "device": "auto", "out": "runs/pretrained", "teacher": [],
    }  # fmt: skip
    arguments = command_arguments("pretrain", values)
    assert arguments == ["pretrain", "bert-mini", "--data", "a.txt", "--steps", "100"]
    assert shown_command(arguments) == "unmask pretrain bert-mini --data a.txt --steps 100"


def test_lists_switches_and_assignments() -> None:
    values = {
        "base": "m", "task": "classify", "train": "a.csv", "labels": ["good", "so so"],
        "task_options": {"use_crf": False, "size": 3, "name": "true"}, "teacher": "t",
    }  # fmt: skip
    assert command_arguments("finetune", values)[1:] == [
        "m", "--task", "classify", "--train", "a.csv", "--labels", "good,so so",
        "--option", "use_crf=false", "--option", "size=3", "--option", 'name="true"',
        "--teacher", "t",
    ]  # fmt: skip
    probe = {"model": "m", "out": "o", "control": False}
    assert command_arguments("probe", probe) == ["probe", "m", "--out", "o", "--no-control"]
    generate = {"model": "m", "prompt": ["-1"], "early_stopping": True, "pictures": ["-p"]}
    assert command_arguments("generate", generate) == [
        "generate", "--prompt=-1", "--early-stopping", "true", "--", "m", "-p",
    ]  # fmt: skip


def test_words_of_the_shell_are_read_as_the_command_line_reads_them() -> None:
    line = "pretrain bert-mini a.txt b.txt --data c.txt --seed 3 --quiet --json --set a=1"
    assert parse_command(line.split()) == (
        "pretrain",
        {"model": "bert-mini", "data": ["c.txt", "a.txt", "b.txt"], "seed": 3, "changes": ["a=1"]},
    )
    with pytest.raises(ValueError, match="command must be one of"):
        parse_command([])
    with pytest.raises(ValueError, match="no such option: --stepz"):
        parse_command(["pretrain", "--stepz", "3"])
    with pytest.raises(ValueError, match="no such option: --help"):
        parse_command(["pretrain", "--help"])


REFUSED = [
    ("pretrain", {"model": "m", "data": ["a"], "steps": "ten"}, "steps", "m --steps ten"),
    ("pretrain", {"model": "m", "data": ["a"], "steps": 1.5}, "steps", "m --steps 1.5"),
    ("prefer", {"base": "m", "train": "a", "epochs": math.nan}, "epochs", "m --epochs nan"),
    ("prefer", {"base": "m", "train": "a", "epochs": math.inf}, "epochs", "m --epochs inf"),
    ("prefer", {"base": "m", "train": "a", "reads": "none"}, "reads", "m --reads none"),
    ("align", {"source": "a", "target": "b", "map": "x"}, "map", "a b --map x"),
    ("prefer", {"base": "m"}, "train", "m"),
    ("prefer", {"train": "m"}, "base", "--train m"),
    ("convert", {"model": "m"}, "target", "m"),
    ("compress", {"model": "m"}, "out", "m"),
    ("generate", {"model": "m", "prompt": ["a"], "early_stopping": "no"}, "early_stopping",
     "m --early-stopping no"),
    ("finetune", {"task": "classify"}, "base", "--task classify"),
    ("finetune", {"base": "m"}, "task", "m"),
    ("finetune", {"base": "m", "task": "classify", "train": "a", "task_options": ["x"]},
     "task_options", "m --task classify --train a --option x"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "values", "field", "line"), REFUSED)
def test_what_is_wrong_is_said_as_on_the_command_line(
    name: str,
    values: dict[str, Any],
    field: str,
    line: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(FieldError) as error:
        command_arguments(name, values)
    assert error.value.field == field
    assert str(error.value) == error.value.line
    assert cli.run([name, *line.split()]) == 2
    printed = capsys.readouterr().err.strip()
    printed = printed.removesuffix(f"; see unmask {name} --help")
    assert error.value.line == printed.removeprefix(f"unmask {name}: ").removeprefix("unmask: ")


@pytest.mark.parametrize(
    ("values", "field", "line"),
    [
        ({"stepz": 3}, "stepz", "unknown key 'stepz'; did you mean 'steps'? (known: "),
        ({"quiet": True}, "quiet", "unknown key 'quiet'"),
        ({"model": 3}, "model", "MODEL must be text, got 3"),
        ({"model": "a\0"}, "model", "MODEL must not contain NUL, got 'a\\x00'"),
        ({"model": "\ud800"}, "model", "MODEL: not UTF-8 at character 1 of '\\ud800'"),
        ({"steps": [1]}, "steps", "--steps must be a number, got [1]"),
        ({"steps": True}, "steps", "--steps must be a number, got True"),
        ({"steps": 2**64}, "steps", "--steps must be a number of at most 64 bits"),
        ({"resume": "on"}, "resume", "--resume must be true or false, got 'on'"),
        ({"data": [["a"]]}, "data", "--data must be text, got ['a']"),
        ({"changes": ["a"]}, "changes", "--set a: must be key=value or key.key=value"),
        ({"model": None}, "model", "missing argument 'MODEL'"),
        ({"data": [""]}, "data", "missing option '--data'"),
    ],
)
def test_what_json_alone_can_get_wrong(values: dict[str, Any], field: str, line: str) -> None:
    with pytest.raises(FieldError) as error:
        command_arguments("pretrain", {"model": "bert-mini", "data": ["a"]} | values)
    assert error.value.field == field
    assert error.value.line.startswith(line)
    assert "\n" not in error.value.line


def test_item_with_the_separator_is_refused() -> None:
    values = {"base": "m", "task": "classify", "train": "a", "labels": ["a,b"]}
    with pytest.raises(FieldError, match="--labels: each item must be without ',', got 'a,b'"):
        command_arguments("finetune", values)


def test_needed_fields_have_substitutes() -> None:
    assert command_arguments("pretrain", {"resume": True, "out": "r"})[1:] == [
        "--out", "r", "--resume",
    ]  # fmt: skip
    assert command_arguments("pretrain", {"model": "my.toml"})[1:] == ["my.toml"]
    assert command_arguments("finetune", {"base": "m", "tasks": "glue"})[1:] == [
        "m", "--tasks", "glue",
    ]  # fmt: skip
    for name, flag in (("predict", "argument 'TEXT'"), ("generate", "option '--prompt'")):
        with pytest.raises(FieldError, match=f"missing {flag}"):
            command_arguments(name, {"model": "m"})
