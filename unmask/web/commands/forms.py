"""Forms: the fields of a command, described for a page."""

from dataclasses import MISSING, Field, dataclass
from functools import cache
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin

from unmask.jobs.options.shell.from_dataclass import long_flag, shell_type_of
from unmask.options import flag_of, option_types
from unmask.web.commands.catalogue import (
    GROUPS,
    HIDDEN_FIELDS,
    find_command,
    group_of,
    options_of,
    parser_of_command,
)

FieldKind = Literal[
    "text", "number", "integer", "boolean", "choice", "list", "assignments", "path", "model"
]
"""What is entered. list: several of `items`; assignments: several KEY=VALUE."""

_METAVARS: dict[str, FieldKind] = {
    "MODEL": "model",
    "RUN": "model",
    "PATH": "path",
    "FILE": "path",
    "FOLDER": "path",
    "VECTORS": "path",
    "SOURCE": "path",
    "TARGET": "path",
    "PICTURE": "path",
}


@dataclass(frozen=True, kw_only=True)
class FormField:
    """A field of a form."""

    name: str
    flag: str
    """Its flag; of an argument, what stands for it in help texts."""
    help: str
    kind: FieldKind
    items: FieldKind | None
    """Of a list: the kind of each."""
    separator: str | None
    """Of a list: what no item may contain."""
    choices: tuple[str, ...]
    metavar: str
    """What stands for the value; may be empty."""
    default: Any
    """As JSON; None: not given."""
    shown_default: str
    """What holds if nothing is given; may be empty."""
    required: bool
    group: str


@dataclass(frozen=True, kw_only=True)
class Form:
    """The fields of a command."""

    command: str
    summary: str
    fields: tuple[FormField, ...]
    """In the order of groups; essential ones as the command lists them."""
    groups: tuple[str, ...]
    """Those that have fields, in their order."""
    out: str | None
    """Field of the folder or file that the command writes."""
    suggested_out: str | None

    def field(self, name: str) -> FormField | None:
        """Return a field by its name."""
        return next((one for one in self.fields if one.name == name), None)

    def to_json(self) -> dict[str, Any]:
        """Return the form as plain data."""
        plain = [vars(one) | {"choices": list(one.choices)} for one in self.fields]
        return vars(self) | {"fields": plain, "groups": list(self.groups)}


@cache
def describe_form(name: str) -> Form:
    """Describe the form of a command.

    Raises:
        ValueError: there is no such command.
    """
    command = find_command(name)
    options, order = options_of(name), [*GROUPS]
    found = [
        _describe(name, options_type, one)
        for options_type, some in options.offered.items()
        for one in some
        if one.name not in HIDDEN_FIELDS
    ]
    essential = command.essential
    found.sort(key=lambda one: order.index(one.group))
    found.sort(key=lambda f: essential.index(f.name) if f.name in essential else len(essential))
    return Form(
        command=name,
        summary=command.summary,
        fields=tuple(found),
        groups=tuple(one for one in order if any(f.group == one for f in found)),
        out=command.out,
        suggested_out=command.suggested_out,
    )


def _describe(name: str, options_type: type[Any], field: "Field[Any]") -> FormField:
    """Describe one field."""
    command, options = find_command(name), options_of(name)
    parameter = next(one for one in parser_of_command(name).params if one.name == field.name)
    kind, items = _kinds(options_type, field)
    default = plain_default(options.defaults[field.name])
    shell_type = shell_type_of(options_type, field)
    return FormField(
        name=field.name,
        flag=long_flag(field),
        help=options.help_of(options_type, field),
        kind=kind,
        items=items,
        separator=flag_of(field).separator,
        choices=get_args(shell_type) if get_origin(shell_type) is Literal else (),
        metavar=flag_of(field).metavar or "",
        default=default,
        shown_default=flag_of(field).shown_default or _shown(default),
        required=parameter.required or any(one.name == field.name for one in command.needed),
        group=group_of(command, field.name),
    )


def _kinds(options_type: type[Any], field: "Field[Any]") -> tuple[FieldKind, FieldKind | None]:
    """Return the kind of a field, and that of each item of a list."""
    settings, shell_type = flag_of(field), shell_type_of(options_type, field)
    if settings.is_assignments or settings.metavar == "KEY=VALUE":
        return "assignments", None
    of_text = _METAVARS.get(settings.metavar or "", "text")
    if settings.separator is not None or get_origin(shell_type) is list:
        return "list", of_text
    if get_origin(shell_type) is Literal:
        return "choice", None
    plain: dict[type[Any], FieldKind] = {bool: "boolean", int: "integer", float: "number"}
    if shell_type in plain:
        return plain[shell_type], None
    members = {*get_args(option_types(options_type)[field.name].type), shell_type} - {NoneType}
    return ("path" if of_text == "text" and Path in members else of_text), None


def plain_default(default: Any) -> Any:
    """Return a default as JSON; None: there is none."""
    if default is MISSING or default is None:
        return None
    if isinstance(default, bool | int | float):
        return default
    return list(default) if isinstance(default, tuple | list) else str(default)


def _shown(default: Any) -> str:
    if default is None or default == []:
        return ""
    return str(default).lower() if isinstance(default, bool) else str(default)
