"""The command line: a thin layer over the functions of `import unmask`.

Nothing heavy is imported before it is needed.
"""

import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Annotated, Any, cast

import typer

from unmask.cli.errors import UsageError, error_line, show_warnings
from unmask.output import print_data, print_line, print_traceback
from unmask.training.interrupt import interrupt_on_signal

COMMANDS: Mapping[str, tuple[str, str]] = {
    "demo": (
        "pretraining",
        "Run the whole path on the bundled text: pretrain, fine-tune, write a report, in 8 "
        "minutes.",
    ),
    "models": ("catalogue", "List the bundled models and the presets of the catalogue."),
    "show": ("catalogue", "Describe a model: paper, architecture, parameters, FLOPs, memory."),
    "hide": (
        "catalogue",
        "Show the inputs and targets that a model's objective makes of a text or a picture.",
    ),
    "prepare": ("pretraining", "Tokenize a corpus into shards, once for many runs."),
    "plan": (
        "pretraining",
        "Plan a run before it starts: FLOPs, memory, time, energy, CO2e, price.",
    ),
    "pretrain": (
        "pretraining",
        "Pretrain a model on your text, from scratch or from given weights (--from).",
    ),
    "finetune": ("finetuning", "Fine-tune a model on labeled data."),
    "prefer": (
        "preferences",
        "Train a model on preferences: DPO and its kin on pairs, or PPO by a reward.",
    ),
    "augment": (
        "finetuning",
        "Make a new training table: a teacher's outputs as targets, or words replaced.",
    ),
    "evaluate": (
        "evaluation",
        "Evaluate a model on held-out text, on labeled data, or on tasks by prompting.",
    ),
    "predict": ("inference", "Predict labels, tags, numbers or answers with a fine-tuned model."),
    "fill": ("inference", "Predict the tokens at each [MASK] of a text."),
    "generate": (
        "generation",
        "Generate text: continuations of prompts, answers, chats, or descriptions of pictures.",
    ),
    "embed": ("inference", "Embed texts as vectors."),
    "convert": (
        "conversion",
        "Convert a model between formats, average its last checkpoints, or expand its vocabulary.",
    ),
    "compress": ("conversion", "Make a model smaller: weights of few bits, or fewer weights."),
    "probe": (
        "analysis",
        "Analyze what a model knows and where, beside the same network with random weights.",
    ),
    "neighbors": (
        "word_vectors",
        "Show the nearest words by their vectors, or the nearest sentences of a file.",
    ),
    "picture": ("word_vectors", "Plot word vectors in two dimensions."),
    "study": (
        "studies",
        "Compare pretraining, fine-tuning or compression under one budget.",
    ),
    "align": ("word_vectors", "Align two spaces of word vectors: two languages, or two periods."),
    "report": ("catalogue", "Rewrite the HTML report of a run."),
    "serve": (
        "workbench",
        "Open the workbench: a local page from which everything here can be done and watched.",
    ),
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
        context_settings={"max_content_width": 100},
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
    except (
        UsageError,
        ValueError,
        OSError,
        ImportError,
        FloatingPointError,
        KeyboardInterrupt,
        MemoryError,
        RuntimeError,
    ) as error:
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
