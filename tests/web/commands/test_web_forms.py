"""Forms describe every option of a command, as the command line has it."""

import inspect
import json
import subprocess
import sys
from typing import Any, get_args

import pytest

from unmask.cli import main as cli
from unmask.web.commands.catalogue import GROUPS, HIDDEN_FIELDS, WEB_COMMANDS, options_of
from unmask.web.commands.forms import FieldKind, describe_form

NAMES = sorted(WEB_COMMANDS)


def shell_parameters(signature: inspect.Signature) -> list[tuple[Any, ...]]:
    """Return what typer reads of a signature."""
    found: list[tuple[Any, ...]] = []
    for one in signature.parameters.values():
        kind, info = get_args(one.annotation)
        found.append((one.name, one.default, kind, info.param_decls, info.metavar, info.help))
    return found


def test_web_commands_are_those_of_the_command_line() -> None:
    other = {"models", "serve", "show", "neighbors", "picture", "report"}
    assert {*cli.COMMANDS} - {*WEB_COMMANDS} == other
    assert all(one.summary == cli.COMMANDS[name][1] for name, one in WEB_COMMANDS.items())


@pytest.mark.parametrize("name", NAMES)
def test_options_are_those_of_the_command_line(name: str) -> None:
    written = inspect.signature(cli.load_command(name))
    assert shell_parameters(options_of(name).signature()) == shell_parameters(written)


@pytest.mark.parametrize("name", NAMES)
def test_every_field_has_what_a_page_shows(name: str) -> None:
    form = describe_form(name)
    for one in form.fields:
        assert one.group in GROUPS, one
        assert one.kind in get_args(FieldKind), one
        assert one.help, one
        assert "`" not in one.help, one
        assert (one.kind == "choice") == bool(one.choices), one
        assert (one.kind == "list") == (one.items is not None), one
        assert (one.default is None) == (one.default in (None,)), one
    offered = {f.name for some in options_of(name).offered.values() for f in some}
    assert {one.name for one in form.fields} == offered - HIDDEN_FIELDS
    assert form.fields[0].name == WEB_COMMANDS[name].essential[0]
    essential = [one.name for one in form.fields if one.group == "essential"]
    assert tuple(essential) == WEB_COMMANDS[name].essential
    order = [form.groups.index(one.group) for one in form.fields]
    assert order == sorted(order)
    assert form.out is None or form.field(form.out) is not None
    assert (form.out is None) == (form.suggested_out is None)
    assert json.loads(json.dumps(form.to_json())) == form.to_json()


def test_groups_name_fields_that_there_are() -> None:
    fields = {one.name for name in NAMES for one in describe_form(name).fields}
    listed = [name for names in GROUPS.values() for name in names.split()]
    assert sorted(listed) == sorted({*listed})
    assert {*listed} - fields == set()


def test_kinds_of_fields() -> None:
    pretrain, finetune = describe_form("pretrain"), describe_form("finetune")
    found = {one.name: (one.kind, one.items) for one in (*pretrain.fields, *finetune.fields)}
    assert {name: found[name] for name in ("base", "steps", "minutes", "resume", "out")} == {
        "base": ("model", None),
        "steps": ("integer", None),
        "minutes": ("number", None),
        "resume": ("boolean", None),
        "out": ("path", None),
    }
    assert found["teacher"] == ("list", "model")
    assert found["data"] == ("path", None)  # of a suite; of pretraining it is a list
    assert found["changes"] == found["task_options"] == ("assignments", None)
    assert found["task"] == ("choice", None)
    assert found["objective"] == ("text", None)
    stopping = describe_form("generate").field("early_stopping")
    assert stopping is not None
    assert stopping.choices == ("true", "false", "never")


def test_defaults_and_required_fields() -> None:
    form = describe_form("pretrain")
    required = [one.name for one in form.fields if one.required]
    assert required == ["model", "data"]
    steps, out = form.field("steps"), form.field("out")
    assert steps is not None
    assert out is not None
    assert (steps.default, steps.shown_default) == (None, "that of the recipe")
    assert (out.default, out.flag, out.metavar) == ("runs/pretrained", "--out", "FOLDER")
    assert "--resume" in out.help
    assert [one.name for one in describe_form("convert").fields if one.required] == [
        "model",
        "target",
    ]


def test_unknown_command_is_refused() -> None:
    with pytest.raises(ValueError, match=r"command must be one of demo, .*, got 'train'"):
        describe_form("train")


def test_no_form_imports_torch() -> None:
    code = f"""
import sys
from unmask.web.commands import arguments, forms, recipe
for name in {NAMES}:
    forms.describe_form(name)
arguments.command_arguments("hide", {{"model": "bert-mini", "text": "a"}})
recipe.recipe_toml({{"model": "bert-mini", "data": ["a"]}})
print([one for one in ("torch", "transformers", "sklearn", "scipy") if one in sys.modules])
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
