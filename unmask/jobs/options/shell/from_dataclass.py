"""Commands made from dataclasses of options: each field becomes an option with help."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, Field, fields
from functools import wraps
from inspect import Parameter, Signature
from types import NoneType
from typing import Annotated, Any, Literal, cast, get_args, get_origin

import typer

from unmask.config import fits_64_bits
from unmask.options import (
    choices_of,
    default_of,
    flag_of,
    is_sequence,
    option_docs,
    option_types,
)

# Its module differs between versions of typer, but this class always derives from it.
UsageError = cast("type[Exception]", typer.BadParameter.__base__)

_BACKTICKS = re.compile(r"`([^`]+)`")
_NONE = re.compile(r" None: .*?\.(?= |$)")
_NO_NUMBER = re.compile(r"Input should be a valid (number|integer)\b.*")
_NUMBERS = {"number": "must be a number", "integer": "must be a whole number"}
_BOOLEANS = {"true": True, "false": False}


class ShellOptions:
    """The options of a command: the fields of dataclasses, as far as they are of plain values."""

    def __init__(
        self,
        *options_types: type[Any],
        defaults: Mapping[str, Any] | None = None,
        without: Iterable[str] = (),
    ) -> None:
        """Find the fields of dataclasses that have an option.

        Args:
            options_types: the dataclasses.
            defaults: replacements of the fields' defaults; required fields may become optional.
            without: fields without an option.
        """
        self.flags = {f.name: long_flag(f) for one in options_types for f in fields(one)}
        """Long flags of all fields, by name."""
        self.offered = {one: _offered(one, without) for one in options_types}
        """Fields that have an option, by their class."""
        self.defaults = {f.name: default_of(f) for some in self.offered.values() for f in some}
        """Default of each option; MISSING: it must be given."""
        self.defaults |= defaults or {}

    def signature(self) -> Signature:
        """Return the signature of a function of all options, as typer reads it."""
        return Signature(
            [_parameter(self, one, f) for one, some in self.offered.items() for f in some]
        )

    def values_of(self, options_type: type[Any], values: Mapping[str, Any]) -> dict[str, Any]:
        """Convert the words of the command line for the job, of the fields of a class."""
        return {
            f.name: _value(options_type, f, values[f.name], self.defaults[f.name])
            for f in self.offered[options_type]
        }

    def help_of(self, options_type: type[Any], field: "Field[Any]") -> str:
        """Return the help text of an option, which names others by their flags.

        Sentences on None are dropped: they are for Python.
        """
        text = _NONE.sub("", option_docs(options_type).get(field.name, ""))
        return _BACKTICKS.sub(lambda match: self.flags.get(match[1], match[1]), text)


def command(
    options_type: type[Any],
    *more_types: type[Any],
    defaults: Mapping[str, Any] | None = None,
    without: Iterable[str] = (),
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Convert a function to a typer command with the fields of dataclasses as options.

    The function receives the values of the first class as a dict, the keywords of the job, and an
    instance of each further class.

    Args:
        options_type: the options of the job.
        more_types: options of the command line only.
        defaults: replacements of the fields' defaults; required fields may become optional.
        without: fields without an option.
    """
    options = ShellOptions(options_type, *more_types, defaults=defaults, without=without)

    def decorate(run: Callable[..., None]) -> Callable[..., None]:
        @wraps(run)
        def callback(**values: Any) -> None:
            more = (one(**options.values_of(one, values)) for one in more_types)
            run(options.values_of(options_type, values), *more)

        return _with_signature(callback, options.signature())

    return decorate


def parser_of(options: ShellOptions) -> Any:
    """Return a typer command that reads the words of a command line, and does nothing."""

    def callback(**values: Any) -> None:
        """Do nothing."""

    app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    app.command()(_with_signature(callback, options.signature()))
    return typer.main.get_command(app)


def _with_signature(function: Callable[..., None], signature: Signature) -> Callable[..., None]:
    annotated: Any = function
    annotated.__signature__ = signature
    annotated.__annotations__ = {n: one.annotation for n, one in signature.parameters.items()}
    return function


def _offered(options_type: type[Any], without: Iterable[str]) -> "list[Field[Any]]":
    """Return the fields with plain values: arguments, then options.

    Arguments of base classes come before a class's own, options after them.
    """
    flags = option_types(options_type)
    by_name = {
        f.name: f
        for f in fields(options_type)
        if f.name not in without and flags[f.name].type is not None
    }
    arguments = _names(options_type, own_first=False)
    options = _names(options_type, own_first=True)
    return [
        *(by_name[n] for n in arguments if n in by_name and flag_of(by_name[n]).is_argument),
        *(by_name[n] for n in options if n in by_name and not flag_of(by_name[n]).is_argument),
    ]


def _names(options_type: type[Any], *, own_first: bool) -> list[str]:
    own_names = list(vars(options_type).get("__annotations__", {}))
    bases = [n for base in options_type.__bases__ for n in _names(base, own_first=own_first)]
    return list(dict.fromkeys([*own_names, *bases] if own_first else [*bases, *own_names]))


def long_flag(field: "Field[Any]") -> str:
    """Return the long flag of an option, or the metavar of an argument."""
    flag_metadata = flag_of(field)
    if flag_metadata.is_argument:
        return flag_metadata.metavar or field.name.upper()
    name = flag_metadata.names[-1] if flag_metadata.names else f"--{field.name.replace('_', '-')}"
    return name.partition("/")[0]


def _parameter(options: ShellOptions, options_type: type[Any], field: "Field[Any]") -> Parameter:
    """Return the signature parameter of an option or argument for typer."""
    flag_metadata = flag_of(field)
    shell_type = shell_type_of(options_type, field)
    help_text, default = options.help_of(options_type, field), options.defaults[field.name]
    is_repeated = get_origin(shell_type) is list
    if is_repeated or (shell_type is str and default == ()):
        default = MISSING if default is MISSING else None
    if is_repeated and not flag_metadata.is_argument:
        help_text += " Repeatable."
    if flag_metadata.is_argument:
        info = typer.Argument(metavar=flag_metadata.metavar, help=help_text, callback=check_number)
    else:
        info = typer.Option(
            *(flag_metadata.names or (long_flag(field),)),
            help=help_text,
            metavar=flag_metadata.metavar or _metavar(shell_type),
            show_default=flag_metadata.shown_default or True,
            callback=check_number,
        )
    annotation = shell_type if default is not None else shell_type | None
    return Parameter(
        field.name,
        Parameter.KEYWORD_ONLY,
        default=Parameter.empty if default is MISSING else default,
        annotation=Annotated[annotation, info],
    )


def shell_type_of(options_type: type[Any], field: "Field[Any]") -> Any:
    """Return the type of the value of an option on the command line."""
    option_type, flag_metadata = option_types(options_type)[field.name].type, flag_of(field)
    if flag_metadata.separator is not None:
        return str
    if flag_metadata.is_assignments or is_sequence(option_type):
        return list[str]
    members = set(get_args(option_type) or (option_type,)) - {NoneType}
    if choices := choices_of(option_type):
        booleans = tuple(_BOOLEANS) if bool in members else ()
        return Literal[(*booleans, *choices)]
    if get_origin(option_type) is not None and len(members) > 1:
        return next(one for one in (float, str) if one in members)
    return next(iter(members))


def _metavar(shell_type: Any) -> str | None:
    return {int: "N", float: "X"}.get(shell_type)


def usage_text(error: Any) -> str:
    """Return what a usage error of typer says, without the command."""
    text = str(error.format_message()).rstrip(".").replace(": Value error, ", ": ")
    text = _NO_NUMBER.sub(lambda match: _NUMBERS[match[1]], text)
    return f"{text[:1].lower()}{text[1:]}"


def check_number(value: Any) -> Any:
    """Reject numbers that are not finite or exceed 64 bits."""
    if isinstance(value, int | float) and not fits_64_bits(value):
        raise typer.BadParameter(f"must be a finite number of at most 64 bits, got {value}")
    return value


def _value(options_type: type[Any], field: "Field[Any]", value: Any, default: Any) -> Any:
    """Convert the value of an option for the job."""
    flag_metadata, option_type = flag_of(field), option_types(options_type)[field.name].type
    if value is None:
        return None if default is MISSING else default
    if flag_metadata.separator is not None:
        return tuple(value.split(flag_metadata.separator))
    if flag_metadata.is_assignments:
        return _read_assignments(value, long_flag(field))
    if isinstance(value, list):
        return tuple(value)
    if bool in get_args(option_type) and isinstance(value, str):
        return _BOOLEANS.get(value, value)
    return value


def default_values(*options_types: type[Any]) -> dict[str, Any]:
    """Return the defaults of options, by name."""
    return {f.name: default_of(f) for one in options_types for f in fields(one)}


def refuse_options(
    options_type: type[Any], before: str, after: str = "", /, **given: object
) -> None:
    """Reject the first given option, with its flag between two parts of the message.

    Raises:
        ValueError: an option is given.
    """
    flags = {f.name: long_flag(f) for f in fields(options_type)}
    for name, value in given.items():
        if value is not None and value is not False and value != ():
            raise ValueError(f"{before}{flags[name]}{after}")


def _read_assignments(assignments: Iterable[str], flag_name: str) -> dict[str, Any]:
    """Read KEY=VALUE assignments."""
    from unmask.config import parse_change
    from unmask.training.config import merge

    options: dict[str, Any] = {}
    for text in assignments:
        try:
            options = merge(options, parse_change(text))
        except ValueError as error:
            raise ValueError(f"{flag_name} {text}: {error}") from None
    return options
