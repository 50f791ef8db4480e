"""`check_options`: whether a run would take its options, before it is queued."""

import re
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unmask.config import from_dict
from unmask.finetuning.config import make_config
from unmask.finetuning.options.finetune import FinetuneOptions
from unmask.jobs.options.pretrain import PretrainOptions
from unmask.jobs.pretrain.resolve_options import resolve_options
from unmask.output import error_reason
from unmask.web.commands.arguments import FieldError, command_arguments
from unmask.web.commands.catalogue import options_of, parser_of_command
from unmask.web.commands.forms import describe_form

_OF_FILES = frozenset(("teacher", "distill", "compress", "resume", "out", "init_from"))
"""Options that only the run checks, as it opens what they name."""
_WORD = re.compile(r"--[\w-]+|[\w.]+")


@dataclass(frozen=True, kw_only=True)
class _CheckOptionsArguments:
    command: str
    values: Mapping[str, Any]


def check_options(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the problem that a run would have with its options: {"line", "field"}, or null.

    What files hold is not looked at. "field" is the one that the line names first, or null.
    Commands other than `pretrain` and `finetune` have none here.
    """
    given = from_dict(_CheckOptionsArguments, arguments)
    check = _CHECKS.get(given.command)
    try:
        if check is not None:
            check({key: one for key, one in given.values.items() if key not in _OF_FILES})
    except FieldError as error:
        return {"problem": {"line": error.line, "field": error.field}}
    except (ValueError, OSError) as error:
        line = error_reason(error) or str(error)
        fields = describe_form(given.command).fields
        names = {word: one.name for one in fields for word in (one.name, one.flag)}
        named = (names.get(word.rpartition(".")[2]) for word in _WORD.findall(line))
        return {"problem": {"line": line, "field": next(filter(None, named), None)}}
    return {"problem": None}


def _keywords(command: str, options_type: type[Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a command line as a class has them."""
    words = command_arguments(command, values)[1:]
    parsed = parser_of_command(command).make_context(f"unmask {command}", words).params
    return options_of(command).values_of(options_type, parsed)


def _check_pretrain(values: Mapping[str, Any]) -> None:
    keywords = _keywords("pretrain", PretrainOptions, values)
    keywords["out"] = Path(tempfile.gettempdir(), "unmask-new-run")
    resolve_options(PretrainOptions(**keywords))


def _check_finetune(values: Mapping[str, Any]) -> None:
    keywords = _keywords("finetune", FinetuneOptions, values)
    make_config(FinetuneOptions(**keywords), str(keywords["base"]))


_CHECKS: Mapping[str, Callable[[Mapping[str, Any]], None]] = {
    "pretrain": _check_pretrain,
    "finetune": _check_finetune,
}
