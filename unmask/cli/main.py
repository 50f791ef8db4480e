"""The command line: a thin layer over the functions of `import unmask`.

Nothing heavy is imported before it is needed.
"""

import gc
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Annotated, Any, cast

import typer

from unmask.cli.errors import error_line, show_warnings
from unmask.jobs.options.shell.summaries import SUMMARIES
from unmask.output import print_data, print_line, print_traceback
from unmask.training.interrupt import interrupt_on_signal

_MODULES = {
    "pretraining": "demo prepare plan pretrain",
    "catalogue": "models show hide report",
    "finetuning": "finetune augment",
    "preferences": "prefer",
    "evaluation": "evaluate",
    "inference": "predict fill embed",
    "generation": "generate",
    "conversion": "convert compress",
    "analysis": "probe",
    "word_vectors": "neighbors picture align",
    "studies": "study",
    "workbench": "serve",
}
"""The commands of each module of `commands/`."""
COMMANDS: Mapping[str, tuple[str, str]] = {
    name: (module, summary)
    for name, summary in SUMMARIES.items()
    for module, names in _MODULES.items()
    if name in names.split()
}
"""Module and summary of each command; a module is imported when its command is called."""
_TRAINING_COMMANDS = frozenset(("pretrain", "finetune", "prefer", "study", "demo", "align"))
"""Commands that train something."""


def make_app(*names: str) -> typer.Typer:
    """Return the app with some commands loaded, and summaries of the others."""
    app = typer.Typer(
        name="unmask",
        help="Pretrain once, fine-tune many times: every family of pretrained language model, on "
        "your own text.",
        epilog="Exit status: 0 success; 2 invalid input or options, reported in one line; 130, "
        "143 or 129 stopped by a signal; 1 any other error.",
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        # typer imports pydantic to make a bool of a --help that is not given
        context_settings={"max_content_width": 100, "default_map": {"help": False}},
    )
    app.callback()(_global_options)
    for name, (_, summary) in COMMANDS.items():
        loaded = load_command(name) if name in names else _do_nothing
        app.command(name, help=None if name in names else summary)(loaded)
    return app


def load_command(name: str) -> Callable[..., None]:
    """Return the function of a command."""
    module = import_module(f"unmask.cli.commands.{COMMANDS[name][0]}")
    return getattr(module, name)


def _do_nothing() -> None:
    """Placeholder of a command that is not called."""


def main() -> None:
    """Run the command line as a program."""
    sys.excepthook = print_traceback
    status = run(sys.argv[1:])
    # Python remembers a signal that interrupted code compiled from a string, as in dataclasses, and
    # `python -m` then dies of SIGINT for any status; a new string clears it.
    exec("")
    gc.freeze()  # no search for garbage in what ends with the process
    raise SystemExit(status)


def run(arguments: Sequence[str]) -> int:
    """Run a command and return its exit status; bugs are raised.

    0: success. 2: invalid input or options, reported in one line on standard error. 130, 143 or
    129: stopped by Ctrl-C, SIGTERM or a terminal that was closed. 1: any other error.
    """
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # file names may be invalid UTF-8
            cast("Any", stream).reconfigure(errors="backslashreplace")
    called = next((word for word in arguments if not word.startswith("-")), "")
    command = typer.main.get_command(make_app(called))
    try:
        with (
            interrupt_on_signal(),
            show_warnings(),
            command.make_context("unmask", list(arguments or ["--help"])) as context,
        ):
            command.invoke(context)
            if cast("Any", sys.stdout) is not None:
                sys.stdout.flush()
    except typer.Exit as end:
        return end.exit_code
    except BrokenPipeError:  # the reader closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 1
    except (Exception, KeyboardInterrupt) as error:
        is_training = any(word in _TRAINING_COMMANDS for word in arguments[:2])
        show_traceback = "--traceback" in arguments[:1]
        report = None if show_traceback else error_line(error, is_training=is_training)
        if report is None:
            raise
        line, status = report
        print_line(_name_option(line, command, arguments), sys.stderr)
        return status
    return 0


_ARGUMENT_AT_START = re.compile(r"unmask: (\w+)(?=: | must | is | are )")


def _name_option(line: str, command: Any, arguments: Sequence[str]) -> str:
    """Replace an argument name of the library by the option as written."""
    argument = _ARGUMENT_AT_START.match(line)
    called = command.commands.get(next((w for w in arguments if not w.startswith("-")), ""))
    if argument is None or called is None:
        return line
    written = {word.partition("=")[0] for word in arguments}
    written |= {word[:2] for word in arguments if re.match("-[a-z]", word)}
    # The library uses the parameter's name, or the option's spelling.
    match = [
        flag
        for parameter, flags in _flags(called).items()
        if argument[1] in (parameter, *(flag.lstrip("-").replace("-", "_") for flag in flags))
        for flag in flags
        if flag in written
    ]
    return f"unmask: {match[0]}{line[argument.end() :]}" if match else line


def _flags(command: Any) -> dict[str, list[str]]:
    """Return the spellings of each option of a command, by parameter name."""
    return {
        parameter.name: [name for name in parameter.opts if name.startswith("-")]
        for parameter in command.params
    }


def _print_version(is_requested: bool) -> bool:
    if is_requested:
        import unmask

        print_data(unmask.__version__)
        raise typer.Exit
    return is_requested


def _global_options(
    traceback: Annotated[
        bool, typer.Option("--traceback", help="Show the Python traceback of an error.")
    ] = False,
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Accept the options before the command, which `run` has read."""
