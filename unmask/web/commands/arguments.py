"""Values of a form <-> the words of a command line.

What is wrong is found by the command line's own parser, and said in its words.
"""

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from unmask.config import fits_64_bits, parse_change, to_expression, unknown_key_message
from unmask.jobs.options.shell.from_dataclass import UsageError, usage_text
from unmask.web.commands.catalogue import (
    NeededField,
    find_command,
    parser_of_command,
)
from unmask.web.commands.forms import Form, FormField, describe_form, plain_default


class FieldError(ValueError):
    """A value of a form that a command cannot take."""

    def __init__(self, field: str | None, line: str) -> None:
        """Say what is wrong, in one line, and with which field; None: with none alone."""
        super().__init__(line)
        self.field, self.line = field, line


def command_arguments(name: str, values: Mapping[str, Any]) -> list[str]:
    """Return the words of the command line, of values that differ from the defaults.

    None, empty texts and empty lists are not given. Numbers may be texts.

    Raises:
        ValueError: there is no such command.
        FieldError: a field is unknown or missing, or its value is not allowed.

    >>> command_arguments("hide", {"model": "bert-mini", "text": "The old king.", "seed": 3})
    ['hide', 'bert-mini', 'The old king.', '--seed', '3']
    """
    form = describe_form(name)
    fields = {one.name: one for one in form.fields}
    for key in values:
        if key not in fields:
            raise FieldError(key, unknown_key_message(key, fields))
    words = {key: _words(form, fields[key], value) for key, value in values.items()}
    words = {one: words[one] for one in fields if words.get(one)}
    _check_needed(form, words)
    parsed = _parse(name, _line_of(name, words))
    return [name, *_line_of(name, {n: w for n, w in words.items() if n in parsed})]


def parse_command(arguments: Sequence[str]) -> tuple[str, dict[str, Any]]:
    """Return the command of a command line, and the values of its form.

    Raises:
        ValueError: it is no command of the workbench, or an argument is not allowed.

    >>> parse_command(["hide", "bert-mini", "The old king.", "--seed", "3"])
    ('hide', {'model': 'bert-mini', 'text': 'The old king.', 'seed': 3})
    """
    name = arguments[0] if arguments else ""
    find_command(name)
    return name, _parse(name, arguments[1:])


def shown_command(arguments: Sequence[str]) -> str:
    """Return a command line as it is typed in a shell.

    >>> shown_command(["hide", "bert-mini", "The old king."])
    "unmask hide bert-mini 'The old king.'"
    """
    return shlex.join(("unmask", *arguments))


def _words(form: Form, field: FormField, value: Any) -> list[str]:
    """Return the words of one value, without its flag; of a switch, its flag."""
    if value is None or value == "" or value == []:
        return []
    if field.kind == "boolean":
        return _switch(form, field, value)
    if field.kind in ("list", "assignments"):
        texts = _texts(field, value)
        return [field.separator.join(texts)] if field.separator and texts else texts
    if isinstance(value, bool) and field.kind == "choice":
        value = json.dumps(value)
    if field.kind in ("integer", "number") and not isinstance(value, str):
        return [_number(field, value)]
    return [_text(field, value)]


def _number(field: FormField, value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise FieldError(field.name, f"{field.flag} must be a number, got {value!r:.100}")
    if isinstance(value, int) and not fits_64_bits(value):
        line = f"{field.flag} must be a number of at most 64 bits, got one of "
        raise FieldError(field.name, f"{line}{value.bit_length()} bits")
    is_whole = isinstance(value, float) and value.is_integer() and abs(value) < 1e15
    return str(int(value)) if is_whole else repr(value)


def _text(field: FormField, value: Any) -> str:
    """Check that a value is a text that an operating system can hand on."""
    if not isinstance(value, str):
        raise FieldError(field.name, f"{field.flag} must be text, got {value!r:.100}")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        where = f"at character {error.start + 1} of {value!a:.100}"
        raise FieldError(field.name, f"{field.flag}: not UTF-8 {where}") from None
    if "\0" in value:
        raise FieldError(field.name, f"{field.flag} must not contain NUL, got {value!r:.100}")
    return value


def _texts(field: FormField, value: Any) -> list[str]:
    """Return the items of a list, or assignments as texts; empty ones are not given."""
    if field.kind == "assignments" and isinstance(value, Mapping):
        value = [f"{key}={to_expression(one)}" for key, one in value.items()]
    items = list(value) if isinstance(value, list | tuple) else [value]
    texts = [_text(field, one) for one in items if one not in ("", None)]
    for text in texts:
        if field.separator is not None and field.separator in text:
            without = f"must be without {field.separator!r}"
            raise FieldError(field.name, f"{field.flag}: each item {without}, got {text!r:.100}")
        if field.kind == "assignments":
            try:
                parse_change(text)
            except ValueError as error:
                raise FieldError(field.name, f"{field.flag} {text}: {error}") from None
    return texts


def _switch(form: Form, field: FormField, value: Any) -> list[str]:
    """Return the flag that says yes or no."""
    is_on = {"true": True, "false": False}.get(value, value) if isinstance(value, str) else value
    if not isinstance(is_on, bool):
        raise FieldError(field.name, f"{field.flag} must be true or false, got {value!r:.100}")
    parameter = _parameters(form.command)[field.name]
    flags = parameter.opts if is_on else parameter.secondary_opts
    return [flags[-1]] if flags else []


def _line_of(name: str, words: Mapping[str, list[str]]) -> list[str]:
    """Return the words of all values with their flags: arguments, then options.

    Arguments are last, after `--`, where one might be taken for an option.
    """
    parameters, options = _parameters(name), list[str]()
    positions = [n for n, one in parameters.items() if one.param_type_name == "argument"]
    arguments = [text for one in positions for text in words.get(one, ())]
    for one, texts in words.items():
        parameter = parameters[one]
        if one in positions:
            continue
        for text in texts:
            options += [text] if parameter.is_flag else _option(parameter.opts[-1], text)
    if any(one.startswith("-") for one in arguments):
        return [*options, "--", *arguments]
    return [*arguments, *options]


def _option(flag: str, text: str) -> list[str]:
    return [f"{flag}={text}"] if text.startswith("-") else [flag, text]


def _parameters(name: str) -> dict[str, Any]:
    return {one.name: one for one in parser_of_command(name).params}


def _check_needed(form: Form, words: Mapping[str, list[str]]) -> None:
    """Check that fields are given without which a command would do nothing."""
    for one in find_command(form.command).needed:
        if not words.get(one.name) and not _is_replaced(one, words):
            raise FieldError(one.name, one.line or _missing(form.command, one.name))


def _is_replaced(needed: NeededField, words: Mapping[str, list[str]]) -> bool:
    has_recipe = any(one.endswith(".toml") for one in words.get("model", ()))
    return any(words.get(one) for one in needed.unless) or (needed.unless_recipe and has_recipe)


def _missing(name: str, field: str) -> str:
    parameter = _parameters(name)[field]
    if parameter.param_type_name == "argument":
        return f"missing argument {parameter.metavar!r}"
    return f"missing option {parameter.opts[-1]!r}"


def _parse(name: str, words: Sequence[str]) -> dict[str, Any]:
    """Return the values that words give, of those that differ from the defaults.

    Raises:
        FieldError: the command line's parser refuses a word.
    """
    try:
        values = parser_of_command(name).make_context(f"unmask {name}", list(words)).params
    except UsageError as error:
        parameter = getattr(error, "param", None)
        field = None if parameter is None else parameter.name
        raise FieldError(field, usage_text(error)) from None
    if more := values.pop("more", None):
        values["data"] = [*(values["data"] or ()), *more]
    given = [(one, _plain(one, values[one.name])) for one in describe_form(name).fields]
    return {one.name: value for one, value in given if value != one.default}


def _plain(field: FormField, value: Any) -> Any:
    """Return a parsed value as JSON; a list that is not given as its default."""
    if field.separator is not None and value:
        return value.split(field.separator)
    return field.default if value is None else plain_default(value)
