"""The command line: a thin layer over the functions of `import unmask`.

Nothing heavy is imported before it is needed.
"""

import errno
import logging
import os
import re
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from inspect import signature
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, cast

import typer

from unmask.config import fits_64_bits
from unmask.output import (
    WarningFormatter,
    escape_tsv,
    print_data,
    print_json,
    print_line,
    print_rich,
    print_traceback,
    terminal_width,
)
from unmask.output import print_table as show_table
from unmask.training.interrupt import interrupt_on_signal, stop_exit_status

if TYPE_CHECKING:
    from unmask.evaluation.perplexity import HeldOutEvaluation
    from unmask.finetuning.methods.adapt_first import TaskAdaptivePretraining
    from unmask.finetuning.results.finetuned_model import FinetunedModel
    from unmask.finetuning.suite import SuiteResult
    from unmask.inference.ensemble import Ensemble
    from unmask.inference.generation import ScoredText
    from unmask.inference.pipeline import Pipeline
    from unmask.word_vectors.keyed_vectors import Neighbor

ItemT = TypeVar("ItemT")
AnswerT = TypeVar("AnswerT")

# Its module differs between versions of typer, but not that this class derives from it.
_UsageError = cast("type[Exception]", typer.BadParameter.__base__)

_TRAINING_COMMANDS = frozenset(("pretrain", "finetune", "study", "demo", "align"))
"""Commands that train something."""

_USER_ERRNOS = frozenset(
    (
        errno.EACCES,
        errno.EEXIST,
        errno.EFBIG,
        errno.EISDIR,
        errno.ELOOP,
        errno.EMFILE,
        errno.ENAMETOOLONG,
        errno.ENOENT,
        errno.ENOSPC,
        errno.ENOTDIR,
        errno.ENOTEMPTY,
        errno.EPERM,
        errno.EROFS,
        getattr(errno, "EDQUOT", errno.ENOSPC),
    )
)
"""Errors of the operating system that a user can do something about."""

TEXTS_PER_CALL = 256
"""Texts answered in one call; the answers are printed before the next texts are read."""

app = typer.Typer(
    name="unmask",
    help="Pretrain once, fine-tune many times: every family of pretrained language model, on your "
    "own text.",
    epilog="Exit status: 0 success; 2 invalid input or options, reported in one line; 130, 143 or "
    "129 stopped by a signal; 1 any other error.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"max_content_width": 100},
)


def _typer_option(
    *names: str, help: str, metavar: str | None = None, default: str | bool = True
) -> Any:
    """Declare an option; `default` is the text shown as its default, where it is not a value."""
    return typer.Option(
        *names, help=help, metavar=metavar, show_default=default, callback=_check_number
    )


def _check_number(value: Any) -> Any:
    """Refuse a number that no option can be: not finite, or beyond 64 bits."""
    if isinstance(value, int | float) and not fits_64_bits(value):
        raise typer.BadParameter(f"must be a finite number of at most 64 bits, got {value}")
    return value


ModelArgument = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="Model: a run folder, a folder in the Hugging Face layout, hf:owner/name, the "
        "bundled unmask-mini-en, or a catalogue name with published weights.",
    ),
]
PresetArgument = Annotated[
    str,
    typer.Argument(
        metavar="MODEL", help="Model: a catalogue name (see unmask models) or a model folder."
    ),
]
DataOption = Annotated[
    list[str] | None,
    _typer_option(
        "--data",
        metavar="PATH",
        help="Data source: a file (.txt, .jsonl, .csv, .tsv, .parquet, each also .gz, .xz, .zst), "
        "a folder, a quoted glob pattern or hf:owner/name. Repeatable.",
    ),
]
MoreDataArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="PATH",
        help="Further data sources, as for --data (so that the shell may expand --data *.txt).",
    ),
]
TextsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="TEXT",
        help="Input texts. Default: those of --input, or one per line of standard input.",
    ),
]
InputOption = Annotated[
    Path | None,
    _typer_option(
        "--input", metavar="FILE", help="Input file: one text per line, or records as for --data."
    ),
]
EnsembleOption = Annotated[
    list[str] | None,
    _typer_option(
        "--ensemble",
        metavar="MODEL",
        help="Further model of an ensemble, whose predicted probabilities (or numbers) are "
        "averaged. Repeatable.",
    ),
]
MixtureTaskOption = Annotated[
    str | None,
    _typer_option(
        "--mixture-task",
        metavar="NAME",
        help="Name of the task to use, of a model trained on a mixture of tasks.",
    ),
]
TextColumnOption = Annotated[
    str | None,
    _typer_option(
        "--text",
        metavar="COLUMN",
        help="Name of the column with the text, in records.",
        default="text",
    ),
]
TextColumnsOption = Annotated[
    list[str] | None,
    _typer_option(
        "--text",
        metavar="COLUMN",
        help="Name of the text column of --input. Give it twice for text pairs.",
    ),
]
ChoiceColumnsOption = Annotated[
    list[str] | None,
    _typer_option(
        "--choices",
        metavar="COLUMN",
        help="Name of a column with answer choices. Repeatable; one column may hold a list.",
    ),
]
ColumnNamesOption = Annotated[
    str | None,
    _typer_option(
        "--columns",
        metavar="A,B,...",
        help="Comma-separated names of all columns, for files without a header.",
    ),
]
DocumentOption = Annotated[
    Literal["blank", "line", "file"],
    _typer_option(
        "--document",
        help="Unit that forms one document in .txt files: blank (text between blank lines), line "
        "or file.",
    ),
]
EncodingErrorsOption = Annotated[
    Literal["strict", "replace"],
    _typer_option(
        "--encoding-errors",
        help="Handling of bytes that are not valid UTF-8: strict (error) or replace (by U+FFFD).",
    ),
]
SAMPLING_EXPONENT_HELP = (
    "Exponent of each source's size in its sampling probability. 1: proportional to size; 0.3: "
    "small sources are upsampled. A folder counts as one source."
)
ObjectiveOption = Annotated[
    str | None,
    _typer_option(
        "--objective",
        metavar="NAME",
        help="Pretraining objective, e.g. mlm, clm, rtd, mlm:rate=0.3+nsp (docs/objectives.md).",
        default="that of the model",
    ),
]
DeviceOption = Annotated[
    str, _typer_option("--device", metavar="NAME", help="Device: auto, cpu, cuda, cuda:1, ...")
]
PoolingOption = Annotated[
    Literal["mean", "first", "last", "ends"] | None,
    _typer_option(
        "--pooling",
        help="Pooling of token vectors into a text vector; ends: the final state of "
        "each direction.",
        default="that of the model: mean, or last for skip-thoughts and quick-thoughts",
    ),
]
LayerOption = Annotated[
    int | None,
    _typer_option(
        "--layer",
        metavar="N",
        help="Layer of the hidden states. 0: input to the first block; -1: the last layer.",
        default="-1",
    ),
]
LimitOption = Annotated[
    int | None,
    _typer_option(
        "--limit",
        metavar="N",
        help="Number of word vectors to read from the start of the file.",
        default="all",
    ),
]
VectorsArgument = Annotated[
    str,
    typer.Argument(
        metavar="VECTORS",
        help="Word vectors: word2vec .vec or .bin, GloVe .txt, each also .gz, .xz, .zst; or a "
        "fastText model.bin.",
    ),
]
TokenizerOption = Annotated[
    str | None,
    _typer_option(
        "--tokenizer",
        metavar="FOLDER",
        help="Folder of a tokenizer to use instead of training one.",
    ),
]
SeedOption = Annotated[
    int,
    _typer_option(
        "--seed",
        metavar="N",
        help="Random seed for initialization, data order, masking and dropout.",
    ),
]
ResumeOption = Annotated[
    bool, _typer_option("--resume", help="Continue the run in --out from its last checkpoint.")
]
QuietOption = Annotated[
    bool, _typer_option("--quiet", help="Hide progress; warnings are still shown.")
]
JsonOption = Annotated[bool, _typer_option("--json", help="Print the result as JSON.")]


def main() -> None:
    """Run the command line as a program."""
    sys.excepthook = print_traceback
    status = run(sys.argv[1:])
    # Python remembers that a signal broke off code that was made of a string, as that of a
    # dataclass is, and `python -m` then dies of SIGINT whatever the status; a new string clears it.
    exec("")
    raise SystemExit(status)


def run(arguments: Sequence[str]) -> int:
    """Run a command and return its exit status; a bug of ours is raised.

    0: success. 2: invalid input or options, reported in one line on standard error. 130, 143 or
    129: stopped by Ctrl-C, SIGTERM or a terminal that was closed. 1: any other error.
    """
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a name of a file may be no UTF-8
            cast("Any", stream).reconfigure(errors="backslashreplace")
    command = typer.main.get_command(app)
    try:
        with (
            interrupt_on_signal(),
            _show_warnings(),
            command.make_context("unmask", list(arguments or ["--help"])) as context,
        ):
            command.invoke(context)
            if cast("Any", sys.stdout) is not None:
                sys.stdout.flush()
    except typer.Exit as end:
        return end.exit_code
    except BrokenPipeError:  # whoever reads our output has enough of it
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 1
    except (
        _UsageError,
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
        report = None if show_traceback else _error_line(error, is_training=is_training)
        if report is None:
            raise
        line, status = report
        print_line(_name_option(line, command, arguments), sys.stderr)
        return status
    return 0


_ARGUMENT_AT_START = re.compile(r"unmask: (\w+)(?=: | must | is | are )")


def _name_option(line: str, command: Any, arguments: Sequence[str]) -> str:
    """Name an option as it was written where the library names the argument that it sets."""
    argument = _ARGUMENT_AT_START.match(line)
    called = command.commands.get(next((w for w in arguments if not w.startswith("-")), ""))
    if argument is None or called is None:
        return line
    written = {word.partition("=")[0] for word in arguments}
    written |= {word[:2] for word in arguments if re.match("-[a-z]", word)}
    # The library calls an argument as the parameter is called, or as the option is spelled.
    found = [
        flag
        for parameter, flags in _flags(called).items()
        if argument[1] in (parameter, *(flag.lstrip("-").replace("-", "_") for flag in flags))
        for flag in flags
        if flag in written
    ]
    return f"unmask: {found[0]}{line[argument.end() :]}" if found else line


def _flags(command: Any) -> dict[str, list[str]]:
    """Return the spellings of each option of a command, by the name of its parameter."""
    return {
        parameter.name: [name for name in parameter.opts if name.startswith("-")]
        for parameter in command.params
    }


def _flag(command: str, parameter: str) -> str:
    """Return the option of a command that sets a parameter, in its long spelling."""
    commands = cast("Any", typer.main.get_command(app)).commands
    return _flags(commands[command])[parameter][-1]


def _error_line(error: BaseException, *, is_training: bool) -> tuple[str, int] | None:
    """Return the line that reports an error, and the exit status; None for a bug.

    A training run that diverges has failed; a model that is opened and computes numbers that are
    not finite is a wrong file.
    """
    if isinstance(error, _UsageError):
        return _usage_error_line(error), 2
    if isinstance(error, KeyboardInterrupt):
        return f"unmask: {str(error) or 'interrupted'}", stop_exit_status()
    if isinstance(error, MemoryError | RuntimeError):
        line = _out_of_memory_line(error)
        return None if line is None else (f"unmask: {line}", 1)
    if isinstance(error, ChildProcessError) or (
        is_training and isinstance(error, FloatingPointError)
    ):
        return f"unmask: {error}", 1
    if isinstance(error, OSError) and error.errno is not None:
        if error.errno not in _USER_ERRNOS:
            return None
        # Of a failed renaming, the target: the other name is a temporary one of ours.
        name = error.filename if error.filename2 is None else error.filename2
        where = "" if name is None else f"{_user_path(os.fsdecode(name))}: "
        why = error.strerror or os.strerror(error.errno)
        return f"unmask: {where}{why[:1].lower()}{why[1:]}", 2
    return f"unmask: {error}", 2


_ALLOCATION_SIZE = re.compile(r"(?:tried|unable) to allocate ([\d.]+) ?([a-z]+)", re.IGNORECASE)


def _out_of_memory_line(error: Exception) -> str | None:
    """Return the line that reports a lack of memory; None for any other error.

    NumPy and Python raise MemoryError; torch a RuntimeError, for the processor and for a GPU.
    """
    text = str(error)
    refused = ("can't allocate memory", "out of memory")
    if not isinstance(error, MemoryError) and not any(one in text.lower() for one in refused):
        return None
    found = _ALLOCATION_SIZE.search(text)
    size = "" if found is None else f" {found[1].rstrip('.')} {found[2]}"
    if size.endswith("bytes"):
        size = f" {int(size.split()[0]) / 1e9:,.1f} GB"
    wanted = f": cannot allocate{size}" if size else ""
    return f"out of memory{wanted}; use shorter texts, smaller batches or a smaller model"


def _user_path(path: str) -> str:
    """Return a path, or the folder of a temporary one that is being written."""
    while any(p.startswith(".") and p.endswith(".part") for p in Path(path).parts):
        path = os.path.dirname(path)
    return path or "."


def _usage_error_line(error: Any) -> str:
    """Return the line that reports a wrong command line."""
    text = str(error.format_message()).rstrip(".").replace(": Value error, ", ": ")
    path = "unmask" if error.ctx is None else error.ctx.command_path
    return f"{path}: {text[:1].lower()}{text[1:]}; see {path} --help"


@contextmanager
def _show_warnings() -> Generator[None]:
    """Show each warning of the library once, in one line."""
    seen: set[str] = set()

    def new(record: logging.LogRecord) -> bool:
        text = record.getMessage()
        return not (text in seen or seen.add(text))

    handler, logger = logging.StreamHandler(), logging.getLogger("unmask")
    handler.setFormatter(WarningFormatter())
    handler.addFilter(new)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def _print_version(is_requested: bool) -> bool:
    if is_requested:
        import unmask

        print_data(unmask.__version__)
        raise typer.Exit
    return is_requested


@app.callback()
def global_options(
    traceback: Annotated[
        bool, _typer_option("--traceback", help="Show the Python traceback of an error.")
    ] = False,
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Take the options before the command; `run` has read them already."""


@app.command()
def demo(
    out: Annotated[
        Path,
        _typer_option(
            "--out",
            metavar="FOLDER",
            help="Output folder. Finished parts of an earlier run in it are reused.",
        ),
    ] = Path("demo-run"),
    minutes: Annotated[
        float, _typer_option("--minutes", metavar="M", help="Pretraining time in minutes.")
    ] = 4.0,
    seeds: Annotated[
        int,
        _typer_option(
            "--seeds",
            metavar="N",
            help="Number of fine-tuning runs from the pretrained and, likewise, from random "
            "weights.",
        ),
    ] = 5,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Run the whole path on the bundled text: pretrain, fine-tune, write a report, in 8 minutes."""
    from unmask.jobs.demo import demo as run

    result = run(out, minutes=minutes, seeds=seeds, quiet=quiet or as_json)
    if as_json:
        facts = {
            "folder": str(result.folder),
            "masked_accuracy": result.masked_accuracy,
            "bigram_accuracy": result.bigram_accuracy,
            "arms": result.finetuned.summary(),
            "boxed": result.bundled_finetuned.summary(),
            "seconds": result.seconds,
        }
        print_json(facts)


@app.command()
def models(
    family: Annotated[
        str | None,
        _typer_option("--family", metavar="NAME", help="Model family to list.", default="all"),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List the bundled models and the presets of the catalogue."""
    from unmask.jobs.describe import bundled_presets, preset_line, preset_to_dict
    from unmask.zoo.catalogue import MODELS

    families = sorted({card.family for card in MODELS.values()})
    if family is not None and family not in families:
        raise ValueError(f"--family must be one of {', '.join(families)}, got {family!r}")
    cards = [
        card for card in [*bundled_presets(), *MODELS.values()] if family in (None, card.family)
    ]
    if as_json:
        print_json([preset_to_dict(card) for card in cards])
        return
    for card in cards:
        print_line(preset_line(card))


@app.command()
def show(model: PresetArgument, as_json: JsonOption = False) -> None:
    """Describe a model: paper, architecture, parameters, FLOPs, memory."""
    from unmask.jobs.describe import describe, format_description

    facts = describe(model)
    if as_json:
        print_json(facts)
        return
    for line in format_description(facts):
        print_line(line)


@app.command()
def hide(
    model: PresetArgument,
    text: Annotated[
        str, typer.Argument(metavar="TEXT", help="Text to corrupt; - reads standard input.")
    ],
    objective: ObjectiveOption = None,
    seed: Annotated[
        int,
        _typer_option(
            "--seed", metavar="N", help="Random seed for target selection and corruption."
        ),
    ] = 0,
    changes: Annotated[
        list[str] | None,
        _typer_option(
            "--set",
            metavar="KEY=VALUE",
            help="Setting of the objective to change, e.g. select.rate=0.3. Repeatable.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show the inputs and targets that a model's objective makes of a text."""
    import unmask

    given = _check_utf8(text)
    if text == "-":
        given = "\n".join(line for _, line in _read_standard_input("strict") if line)
    explanation = unmask.hide(model, given, objective=objective, seed=seed, changes=changes or [])
    if as_json:
        print_data(explanation.to_json())
    else:
        print_rich(explanation.to_rich(terminal_width()), wrap=False)


@app.command()
def prepare(
    corpus: Annotated[
        list[str],
        typer.Argument(
            metavar="PATH",
            help="Data sources: files, folders, quoted glob patterns, hf:owner/name.",
        ),
    ],
    out: Annotated[
        Path,
        _typer_option(
            "--out",
            metavar="FOLDER",
            help="Output folder; an interrupted preparation in it is continued.",
        ),
    ],
    model: Annotated[
        str,
        _typer_option(
            "--model",
            metavar="MODEL",
            help="Catalogue name of the model whose type of tokenizer is trained.",
        ),
    ] = "bert-mini",
    tokenizer: TokenizerOption = None,
    vocab_size: Annotated[
        int | None,
        _typer_option(
            "--vocab-size",
            metavar="N",
            help="Vocabulary size of the trained tokenizer, in tokens.",
            default="that of the model",
        ),
    ] = None,
    character_coverage: Annotated[
        float | None,
        _typer_option(
            "--character-coverage",
            metavar="X",
            help="Fraction of the text's characters covered by the trained tokenizer's alphabet, "
            "above 0 and at most 1.",
            default="that of the model",
        ),
    ] = None,
    objective: ObjectiveOption = None,
    document_separator: DocumentOption = "blank",
    text_column: TextColumnOption = None,
    encoding_errors: EncodingErrorsOption = "strict",
    sampling_exponent: Annotated[
        float,
        _typer_option(
            "--sampling-exponent",
            metavar="X",
            help="Exponent of each source's size in its sampling probability, for training the "
            "tokenizer. 1: proportional to size; 0.3: small sources are upsampled. A folder "
            "counts as one source.",
        ),
    ] = 1.0,
    workers: Annotated[
        int, _typer_option("--workers", metavar="N", help="Number of tokenization processes.")
    ] = 1,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Tokenize a corpus into shards, once for many runs."""
    import unmask

    shards = unmask.prepare(
        corpus,
        out=out,
        model=model,
        tokenizer=tokenizer,
        vocab_size=vocab_size,
        character_coverage=character_coverage,
        objective=objective,
        document_separator=document_separator,
        text_column=text_column,
        encoding_errors=encoding_errors,
        sampling_exponent=sampling_exponent,
        workers=workers,
        quiet=quiet,
    )
    facts = {
        "folder": str(out),
        "tokens": shards.n_tokens,
        "documents": shards.n_documents,
        "bytes": shards.n_bytes,
        "skipped": shards.n_skipped,
        "vocab_size": shards.tokenizer.vocab_size,
    }
    if as_json:
        print_json(facts)
        return
    print_line(
        f"{out}: {shards.n_tokens:,} tokens in {shards.n_documents:,} documents, "
        f"{shards.n_bytes / max(shards.n_tokens, 1):.2f} bytes per token, "
        f"vocabulary size {shards.tokenizer.vocab_size:,}"
    )


@app.command()
def pretrain(
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="MODEL",
            help="Catalogue name (see unmask models), or a recipe file (.toml). Not needed with "
            "--resume.",
        ),
    ] = None,
    more: MoreDataArgument = None,
    data: DataOption = None,
    out: Annotated[
        Path, _typer_option("--out", metavar="FOLDER", help="Output folder of the run.")
    ] = Path("runs/pretrained"),
    steps: Annotated[
        int | None,
        _typer_option(
            "--steps", metavar="N", help="Number of optimizer steps.", default="that of the recipe"
        ),
    ] = None,
    tokens: Annotated[
        int | None,
        _typer_option(
            "--tokens",
            metavar="N",
            help="Training length in tokens read, padding included; instead of --steps.",
        ),
    ] = None,
    minutes: Annotated[
        float | None,
        _typer_option(
            "--minutes", metavar="M", help="Training length in minutes; instead of --steps."
        ),
    ] = None,
    init_from: Annotated[
        str | None,
        _typer_option(
            "--from",
            metavar="MODEL",
            help="Initial weights, with their tokenizer: a run folder, a Hugging Face folder, "
            "hf:owner/name or unmask-mini-en.",
        ),
    ] = None,
    tokenizer: TokenizerOption = None,
    vocab_size: Annotated[
        int | None,
        _typer_option(
            "--vocab-size",
            metavar="N",
            help="Vocabulary size of the trained tokenizer, in tokens.",
            default="that of the model",
        ),
    ] = None,
    sequence_length: Annotated[
        int | None,
        _typer_option(
            "--sequence-length",
            metavar="N",
            help="Maximum sequence length in tokens.",
            default="that of the recipe",
        ),
    ] = None,
    document_separator: Annotated[
        Literal["blank", "line", "file"] | None,
        _typer_option(
            "--document",
            help="Unit that forms one document in .txt files: blank (text between blank lines), "
            "line or file.",
            default="that of the recipe: blank",
        ),
    ] = None,
    text_column: TextColumnOption = None,
    encoding_errors: Annotated[
        Literal["strict", "replace"] | None,
        _typer_option(
            "--encoding-errors",
            help="Handling of bytes that are not valid UTF-8: strict (error) or replace (by "
            "U+FFFD).",
            default="that of the recipe: strict",
        ),
    ] = None,
    sampling_exponent: Annotated[
        float | None, _typer_option("--sampling-exponent", metavar="X", help=SAMPLING_EXPONENT_HELP)
    ] = None,
    seed: Annotated[
        int | None,
        _typer_option(
            "--seed",
            metavar="N",
            help="Random seed for initialization, data order, masking and dropout.",
            default="that of the recipe",
        ),
    ] = None,
    objective: ObjectiveOption = None,
    checkpoint_every: Annotated[
        int | None,
        _typer_option(
            "--checkpoint-every",
            metavar="N",
            help="Interval between checkpoints, in steps.",
            default="that of the recipe",
        ),
    ] = None,
    changes: Annotated[
        list[str] | None,
        _typer_option(
            "--set",
            metavar="KEY=VALUE",
            help="Any other key of the recipe, e.g. learning_rate=5e-4. Repeatable.",
        ),
    ] = None,
    resume: ResumeOption = False,
    workers: Annotated[
        int,
        _typer_option(
            "--workers",
            metavar="N",
            help="Number of data-loading processes; 0: in the main process.",
        ),
    ] = 0,
    device: DeviceOption = "auto",
    threads: Annotated[
        int | None,
        _typer_option(
            "--threads", metavar="N", help="Number of compute threads.", default="all cores"
        ),
    ] = None,
    tensorboard: Annotated[
        bool, _typer_option("--tensorboard", help="Write TensorBoard event files as well.")
    ] = False,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Pretrain a model on your text, from scratch or from given weights (--from).

    Ctrl-C stops after the current step and saves a checkpoint; --resume continues a stopped or
    killed run to the same result.
    """
    import unmask

    pipeline = unmask.pretrain(
        model,
        data=[*(data or ()), *(more or ())],
        out=out,
        steps=steps,
        tokens=tokens,
        minutes=minutes,
        init_from=init_from,
        tokenizer=tokenizer,
        vocab_size=vocab_size,
        sequence_length=sequence_length,
        document_separator=document_separator,
        text_column=text_column,
        encoding_errors=encoding_errors,
        sampling_exponent=sampling_exponent,
        seed=seed,
        objective=objective,
        checkpoint_every=checkpoint_every,
        changes=changes or [],
        resume=resume,
        workers=workers,
        device=device,
        threads=threads,
        tensorboard=tensorboard,
        quiet=quiet,
    )
    if os.environ.get("RANK", "0") != "0":
        return  # of the processes that torchrun started, only the first one prints
    if as_json:
        parameters = pipeline.model.parameter_count()
        evaluation = _last_evaluation(out)
        print_json({"folder": str(out), "parameters": parameters, "evaluation": evaluation})
    else:
        print_line(f"{out}: done; report in {out / 'report.html'}")


def _last_evaluation(out: Path) -> dict[str, Any]:
    from unmask.reports.report_data import read_report_data

    evaluation = read_report_data(out).evaluation_log
    return {name: evaluation.last(name) for name in evaluation.columns}


@app.command()
def finetune(
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="MODEL",
            help="Model, as for other commands; or any catalogue name, then with random weights. "
            "Not needed with --resume.",
        ),
    ] = None,
    task: Annotated[
        Literal[
            "classify",
            "pairs",
            "regress",
            "tag",
            "answer",
            "generate",
            "cloze",
            "choose",
            "multilabel",
        ]
        | None,
        _typer_option("--task", help="Type of task."),
    ] = None,
    train: Annotated[
        str | None,
        _typer_option(
            "--train",
            metavar="FILE",
            help="Training data: .tsv, .csv, .json, .jsonl, .parquet; for tagging .conllu, "
            ".conll; for generation also a mixture of tasks, .toml.",
        ),
    ] = None,
    tasks: Annotated[
        str | None,
        _typer_option(
            "--tasks",
            metavar="SUITE",
            help="Suite of benchmarks, with one run for each, instead of --task and --train: "
            "as-text, choices, glue, imdb-few, nli, questions, sentiment, sick, summaries, "
            "tagger, tags, text-to-text, topics, trec-few, or a .toml file.",
        ),
    ] = None,
    data: Annotated[
        Path | None,
        _typer_option(
            "--data",
            metavar="FOLDER",
            help="Folder with the files of the suite --tasks.",
            default="download from the Hub",
        ),
    ] = None,
    dev: Annotated[
        str | None,
        _typer_option(
            "--dev",
            metavar="FILE",
            help="Development data, for selecting the best checkpoint.",
            default="a tenth of --train",
        ),
    ] = None,
    test: Annotated[
        str | None,
        _typer_option("--test", metavar="FILE", help="Test data, scored once at the end."),
    ] = None,
    out: Annotated[
        Path, _typer_option("--out", metavar="FOLDER", help="Output folder of the run.")
    ] = Path("runs/finetuned"),
    text: Annotated[
        list[str] | None,
        _typer_option(
            "--text",
            metavar="COLUMN",
            help="Name of the text column. Give it twice for text pairs.",
            default="found by customary names",
        ),
    ] = None,
    label: Annotated[
        str | None,
        _typer_option(
            "--label",
            metavar="COLUMN",
            help="Name of the column with labels, numbers or tags.",
            default="found by customary names",
        ),
    ] = None,
    choices: Annotated[
        list[str] | None,
        _typer_option(
            "--choices",
            metavar="COLUMN",
            help="Name of a column with answer choices. Repeatable; one column may hold a list.",
        ),
    ] = None,
    labels: Annotated[
        str | None,
        _typer_option(
            "--labels",
            metavar="A,B,...",
            help="Comma-separated list of all labels, in order.",
            default="those of --train",
        ),
    ] = None,
    rows: Annotated[
        int | None,
        _typer_option(
            "--rows",
            metavar="N",
            help="Number of training rows, drawn at random; --dev and --test are read whole.",
            default="all",
        ),
    ] = None,
    columns: Annotated[
        str | None,
        _typer_option(
            "--columns",
            metavar="A,B,...",
            help="Comma-separated names of all columns, for files without a header.",
        ),
    ] = None,
    task_options: Annotated[
        list[str] | None,
        _typer_option(
            "--option",
            metavar="KEY=VALUE",
            help="Option of the task type, e.g. use_crf=false. Repeatable.",
        ),
    ] = None,
    tune: Annotated[
        str,
        _typer_option(
            "--tune",
            metavar="METHOD",
            help="Tuning method: full, frozen, top, scalar_mix, gradual, bitfit, houlsby, "
            "pfeiffer, adamix, lora, ia3, prefix, prompt or source_encoder; with settings: "
            "lora:rank=4.",
        ),
    ] = "full",
    initialize: Annotated[
        Literal["pretrained", "random"],
        _typer_option(
            "--initialize",
            help="Initial weights: pretrained, or random (same network and tokenizer).",
        ),
    ] = "pretrained",
    adapt_first: Annotated[
        bool,
        _typer_option(
            "--adapt-first",
            help="Continue pretraining on the unlabeled text of the training data first "
            "(task-adaptive pretraining).",
        ),
    ] = False,
    unlabeled: Annotated[
        list[str] | None,
        _typer_option(
            "--unlabeled",
            metavar="PATH",
            help="Further unlabeled text for --adapt-first, as for unmask pretrain --data. "
            "Repeatable.",
        ),
    ] = None,
    adapt_set: Annotated[
        list[str] | None,
        _typer_option(
            "--adapt-set",
            metavar="KEY=VALUE",
            help="Setting of --adapt-first: epochs=10, or any key of its recipe, e.g. "
            "learning_rate=1e-3. Repeatable.",
        ),
    ] = None,
    baseline: Annotated[
        bool,
        _typer_option(
            "--baseline",
            help="Fine-tune from random weights as well, with the same seeds, data and budget, "
            "and compare.",
        ),
    ] = False,
    metric: Annotated[
        str | None,
        _typer_option(
            "--metric",
            metavar="NAME",
            help="Metric for selecting the best checkpoint.",
            default="that of the task type",
        ),
    ] = None,
    epochs: Annotated[
        float | None,
        _typer_option(
            "--epochs",
            metavar="N",
            help="Number of passes over the training data.",
            default="3 to 20, for about 1,000 steps or more",
        ),
    ] = None,
    batch_size: Annotated[
        int | None,
        _typer_option(
            "--batch-size",
            metavar="N",
            help="Batch size in rows.",
            default="32; 16 with fewer than 2,000 rows",
        ),
    ] = None,
    learning_rate: Annotated[
        float | None,
        _typer_option(
            "--learning-rate",
            metavar="R",
            help="Peak learning rate.",
            default="derived from the model and --tune",
        ),
    ] = None,
    max_length: Annotated[
        int | None,
        _typer_option(
            "--max-length",
            metavar="N",
            help="Maximum input length in tokens.",
            default="512, or the model's maximum if smaller",
        ),
    ] = None,
    batch_tokens: Annotated[
        int | None,
        _typer_option(
            "--batch-tokens",
            metavar="N",
            help="Batch size in tokens, padding included; instead of --batch-size.",
        ),
    ] = None,
    warmup: Annotated[
        float,
        _typer_option(
            "--warmup",
            metavar="R",
            help="Length of the linear learning-rate warmup: a fraction of all steps if below 1, "
            "else a number of steps.",
        ),
    ] = 0.1,
    schedule: Annotated[
        Literal["linear", "inverse_square_root", "constant"] | None,
        _typer_option(
            "--schedule",
            help="Learning-rate decay after the warmup.",
            default="that of the model's paper, mostly linear; constant with adafactor",
        ),
    ] = None,
    optimizer: Annotated[
        Literal["adamw", "adafactor"],
        _typer_option(
            "--optimizer",
            help="Optimizer. adafactor: learning rate relative to each tensor's scale, 1e-3 and "
            "constant by default, as for T5.",
        ),
    ] = "adamw",
    average: Annotated[
        int,
        _typer_option(
            "--average",
            metavar="N",
            help="Number of last evaluated checkpoints to average at the end; the average is kept "
            "if it scores better. 0: none.",
        ),
    ] = 0,
    weight_decay: Annotated[
        float,
        _typer_option(
            "--weight-decay",
            metavar="R",
            help="Decoupled weight decay of weight matrices, multiplied by the learning rate.",
        ),
    ] = 0.01,
    class_weights: Annotated[
        Literal["balanced"] | None,
        _typer_option(
            "--class-weights",
            help="Weights of labels in the loss. balanced: rare labels weigh more.",
            default="equal",
        ),
    ] = None,
    lm_loss_weight: Annotated[
        float | None,
        _typer_option(
            "--lm-loss-weight",
            metavar="R",
            help="Weight of an auxiliary language-modeling loss, for decoders with a "
            "classification head.",
            default="0; GPT: 0.5",
        ),
    ] = None,
    dropout: Annotated[
        float | None,
        _typer_option(
            "--dropout",
            metavar="R",
            help="Dropout probability, instead of the model's.",
            default="that of the model",
        ),
    ] = None,
    task_name: Annotated[
        str | None,
        _typer_option(
            "--task-name",
            metavar="NAME",
            help="Task name put before each input of an encoder-decoder, e.g. sst2.",
            default="the task type",
        ),
    ] = None,
    evaluate_every: Annotated[
        int | None,
        _typer_option(
            "--evaluate-every",
            metavar="N",
            help="Interval between evaluations, in steps.",
            default="one epoch, at most 1,000",
        ),
    ] = None,
    patience: Annotated[
        int | None,
        _typer_option(
            "--patience",
            metavar="N",
            help="Number of evaluations without improvement before the run stops early.",
            default="no early stopping",
        ),
    ] = None,
    seed: SeedOption = 0,
    seeds: Annotated[
        int,
        _typer_option(
            "--seeds",
            metavar="N",
            help="Number of runs with consecutive seeds; mean and standard deviation are reported.",
        ),
    ] = 1,
    search: Annotated[
        int,
        _typer_option(
            "--search",
            metavar="N",
            help="Number of hyperparameter trials (learning rate, batch size) before the runs. 0: "
            "none.",
        ),
    ] = 0,
    precision: Annotated[
        Literal["auto", "float32", "bfloat16"],
        _typer_option("--precision", help="Floating-point precision of training."),
    ] = "auto",
    tokenizer: Annotated[
        Path | None,
        _typer_option(
            "--tokenizer",
            metavar="FOLDER",
            help="Folder of a tokenizer, for a catalogue name.",
            default="trained on the training data",
        ),
    ] = None,
    vocabulary: Annotated[
        str | None,
        _typer_option(
            "--vocabulary",
            metavar="KIND[:SIZE]",
            help="Type, and size in tokens, of the tokenizer trained for a catalogue name: words, "
            "characters, bytes, unigram:8000, ...",
            default="that of the model",
        ),
    ] = None,
    encoding_errors: EncodingErrorsOption = "strict",
    resume: ResumeOption = False,
    device: DeviceOption = "auto",
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Fine-tune a model on labeled data.

    Settings that are not given are derived from the data and the model, and printed. Ctrl-C keeps
    what is done; --out FOLDER --resume alone continues a stopped or killed run to the same result.
    """
    given = dict(locals())
    import unmask

    if resume and task is None and train is None and tasks is None:
        _check_resume_options(given)
        _resume_finetuning(out, model, device, quiet, as_json)
        return
    if model is None:
        raise ValueError("MODEL is missing; see unmask finetune --help")
    run_arguments: dict[str, Any] = {
        "out": out,
        "rows": rows,
        "tune": tune,
        "initialize": initialize,
        "baseline": baseline,
        "epochs": epochs,
        "batch_size": batch_size,
        "learning_rate": learning_rate,
        "max_length": max_length,
        "batch_tokens": batch_tokens,
        "warmup": warmup,
        "schedule": schedule,
        "optimizer": optimizer,
        "average": average,
        "weight_decay": weight_decay,
        "class_weights": class_weights,
        "lm_loss_weight": lm_loss_weight,
        "dropout": dropout,
        "evaluate_every": evaluate_every,
        "patience": patience,
        "seed": seed,
        "seeds": seeds,
        "search": search,
        "precision": precision,
        "tokenizer": tokenizer,
        "vocabulary": vocabulary,
        "encoding_errors": encoding_errors,
        "resume": resume,
        "device": device,
        "terminal": None if quiet else sys.stderr,
    }
    task_arguments: dict[str, Any] = {
        "task": task,
        "train": train,
        "dev": dev,
        "test": test,
        "text": text,
        "label": label,
        "choices": choices,
        "labels": labels,
        "columns": columns,
        "task_options": task_options,
        "metric": metric,
        "task_name": task_name,
        "adapt_first": adapt_first or None,
        "unlabeled": unlabeled,
        "adapt_set": adapt_set,
    }
    if tasks is not None:
        _finetune_suite(model, tasks, data, task_arguments, run_arguments, as_json)
        return
    if task is None or train is None:
        raise ValueError("give --task and --train, or a suite of benchmarks with --tasks")
    if data is not None:
        raise ValueError("--data is the folder of the files of --tasks; labeled data is --train")
    try:
        finetuned = unmask.finetune(
            model,
            task=task,
            train=train,
            dev=dev,
            test=test,
            text=text or (),
            label=label,
            choices=choices or (),
            labels=labels.split(",") if labels else (),
            columns=columns.split(",") if columns else (),
            task_options=_read_task_options(task_options or ()),
            metric=metric,
            task_name=task_name,
            adapt_first=_read_adaptation(adapt_first, unlabeled, adapt_set),
            **run_arguments,
        )
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"{out}: stopped; continue with --resume") from None
    _print_finetuned(finetuned, out, as_json)


def _read_adaptation(
    adapt_first: bool, unlabeled: Sequence[str] | None, changes: Sequence[str] | None
) -> "bool | TaskAdaptivePretraining":
    """Read the settings of task-adaptive pretraining."""
    if not adapt_first:
        _refuse_options(
            "finetune", "", " needs --adapt-first", unlabeled=unlabeled, adapt_set=changes
        )
        return False
    from dataclasses import fields

    from unmask.config import from_dict
    from unmask.finetuning.methods.adapt_first import TaskAdaptivePretraining
    from unmask.training.config import parse_change

    settings: dict[str, Any] = {"unlabeled": list(unlabeled or ()), "changes": []}
    own_fields = {field.name for field in fields(TaskAdaptivePretraining)} - settings.keys()
    for change in changes or ():
        if change.partition("=")[0].strip() in own_fields:
            settings |= parse_change(change)
        else:
            settings["changes"].append(change)
    return from_dict(TaskAdaptivePretraining, settings, "--adapt-set")


def _check_resume_options(given: Mapping[str, Any]) -> None:
    """Refuse options that the resumed run has saved itself."""
    allowed = {"model", "out", "resume", "device", "quiet", "as_json"}
    for name, parameter in signature(finetune).parameters.items():
        if name not in allowed and given[name] != parameter.default:
            raise ValueError(
                "--resume without --task uses the options saved in the run; leave out "
                f"{_flag('finetune', name)}, or give all options again"
            )


def _resume_finetuning(
    out: Path, model: str | None, device: str, quiet: bool, as_json: bool
) -> None:
    """Resume a fine-tuning run, or a suite of them."""
    from unmask.finetuning import suite
    from unmask.jobs.finetune import resume_finetuning

    terminal = None if quiet else sys.stderr
    try:
        if (out / suite.SUITE_FILE).is_file():
            suite_run = suite.resume_suite(out, model, device=device, terminal=terminal)
            _print_suite(suite_run, out, as_json)
        else:
            _print_finetuned(
                resume_finetuning(out, model, device=device, terminal=terminal), out, as_json
            )
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"{out}: stopped; continue with --resume") from None


def _print_finetuned(result: "FinetunedModel", out: Path, as_json: bool) -> None:
    """Write the report of a finished run, and print its scores."""
    import unmask
    from unmask.training.best_effort import best_effort

    with best_effort("report.html"):
        unmask.write_report(out)
    if as_json:
        runs = [
            {"arm": s.arm, "seed": s.seed, "dev": dict(s.dev), "test": dict(s.test)}
            for s in result.run_results
        ]
        print_json({"folder": str(out), "metric": result.task.metric, "runs": runs})
        return
    for line in result.summary():
        print_line(line)
    print_line(f"{out}: done; report in {out / 'report.html'}")


def _finetune_suite(
    model: str,
    suite: str,
    suite_data: Path | None,
    task_arguments: Mapping[str, Any],
    run_arguments: Mapping[str, Any],
    as_json: bool,
) -> None:
    """Fine-tune on each benchmark of a suite, and print one table."""
    import unmask

    if given := [name for name, value in task_arguments.items() if value is not None]:
        raise ValueError(
            "--tasks defines the task, its data and columns; leave out "
            f"{_flag('finetune', given[0])}"
        )
    out = run_arguments["out"]
    try:
        suite_run = unmask.finetune_suite(model, tasks=suite, data=suite_data, **run_arguments)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"{out}: stopped; continue with --resume") from None
    _print_suite(suite_run, out, as_json)


def _print_suite(suite_run: "SuiteResult", out: Path, as_json: bool) -> None:
    """Write the report of each run of a finished suite, and print the table."""
    import unmask
    from unmask.files import read_json
    from unmask.finetuning.suite import AVERAGE_NOTE
    from unmask.training.best_effort import best_effort

    for one in suite_run.benchmarks:
        if not one.error:
            with best_effort(f"{one.folder}/report.html"):
                unmask.write_report(out / one.folder)
    if as_json:
        print_json(read_json(out / "suite.json"))
        return
    names, rows = suite_run.table_rows()
    title = f"{suite_run.suite}: {suite_run.base}, --tune {suite_run.tune}"
    show_table(title, names, rows[:-1], footer=rows[-1], n_left_aligned=2)
    for note in suite_run.notes:
        print_line(note)
    print_line(AVERAGE_NOTE)
    print_line(f"{out}: done")


def _read_task_options(assignments: Iterable[str]) -> dict[str, Any]:
    """Read KEY=VALUE assignments."""
    from unmask.training.config import merge, parse_change

    options: dict[str, Any] = {}
    for text in assignments:
        try:
            options = merge(options, parse_change(text))
        except ValueError as error:
            raise ValueError(f"--option {text}: {error}") from None
    return options


@app.command()
def evaluate(
    model: ModelArgument,
    more: MoreDataArgument = None,
    data: DataOption = None,
    ensemble: EnsembleOption = None,
    mixture_task: MixtureTaskOption = None,
    sequence_length: Annotated[
        int | None,
        _typer_option(
            "--sequence-length",
            metavar="N",
            help="Window length in tokens; a longer prompt is cut at its beginning.",
            default="as in pretraining",
        ),
    ] = None,
    seed: Annotated[
        int,
        _typer_option(
            "--seed",
            metavar="N",
            help="Random seed for masked positions, or for in-context examples.",
        ),
    ] = 0,
    memory_length: Annotated[
        int | None,
        _typer_option(
            "--memory-length",
            metavar="N",
            help="Length of the recurrent memory before each segment, in tokens.",
            default="as in pretraining",
        ),
    ] = None,
    task: Annotated[
        list[str] | None,
        _typer_option(
            "--task",
            metavar="NAME",
            help="Task evaluated by prompting, with --data its folder: lambada, blimp, ..., "
            "zero-shot for all whose files are present, or a .toml file. Repeatable. Or "
            "similarity: sentence pairs, with --data their files.",
        ),
    ] = None,
    label: Annotated[
        str | None,
        _typer_option(
            "--label",
            metavar="COLUMN",
            help="Name of the column with labels, numbers or tags; with --task similarity, the "
            "human scores.",
        ),
    ] = None,
    choices: ChoiceColumnsOption = None,
    columns: ColumnNamesOption = None,
    pooling: PoolingOption = None,
    layer: LayerOption = None,
    shots: Annotated[
        str,
        _typer_option(
            "--shots",
            metavar="N,N",
            help="Number of in-context examples with --task, or several numbers separated by "
            "commas.",
        ),
    ] = "0",
    rows: Annotated[
        int | None,
        _typer_option(
            "--rows",
            metavar="N",
            help="Number of items of each --task, evenly spaced in the file.",
            default="all",
        ),
    ] = None,
    stride: Annotated[
        int | None,
        _typer_option(
            "--stride",
            metavar="N",
            help="Number of tokens scored per window, for perplexity with --task.",
            default="as many as fit",
        ),
    ] = None,
    pll_masking: Annotated[
        Literal["word", "token"],
        _typer_option(
            "--pll-masking",
            help="Tokens masked when a masked model scores a token (pseudo-log-likelihood): word "
            "(the token and the rest of its word to the right) or token (the token alone).",
        ),
    ] = "word",
    document_separator: DocumentOption = "blank",
    text: Annotated[
        list[str] | None,
        _typer_option(
            "--text",
            metavar="COLUMN",
            help="Name of the text column, of held-out records or labeled rows. Give it twice for "
            "text pairs.",
        ),
    ] = None,
    case: Annotated[
        Literal["auto", "keep", "lower"],
        _typer_option(
            "--case",
            help="Letter case in which words of the data are looked up, for word vectors. auto: "
            "lower case if the vectors contain no other.",
        ),
    ] = "auto",
    limit: LimitOption = None,
    encoding_errors: EncodingErrorsOption = "strict",
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Evaluate a model on held-out text, on labeled data, or on tasks by prompting.

    A pretrained model is evaluated on its own objective; a fine-tuned one on a file of labeled rows
    with the columns of its training file. With --task, either answers prompts by generation or by
    comparing likelihoods; with --task similarity, cosine similarities of its sentence vectors are
    compared with human scores. Word vectors are evaluated on word pairs with human similarity
    scores, and on analogies (in the format of questions-words.txt).
    """
    sources = [*(data or ()), *(more or ())]
    if task == ["similarity"]:
        others = {
            "rows": rows,
            "stride": stride,
            "sequence_length": sequence_length,
            "memory_length": memory_length,
            "text": text,
        }
        _refuse_options("evaluate", "--task similarity; leave out ", shots=shots != "0", **others)
        settings = {"label": label, "pooling": pooling, "layer": layer, "limit": limit}
        _evaluate_similarity(model, sources, device, encoding_errors, settings, as_json)
        return
    _refuse_options("evaluate", "", " needs --task similarity", pooling=pooling, layer=layer)
    row_columns = {"label": label, "choices": choices, "columns": columns}
    if _is_word_vectors(model) and not _is_finetuned(model):
        others = {
            "rows": rows,
            "stride": stride,
            "sequence_length": sequence_length,
            "memory_length": memory_length,
            "text": text,
        }
        others |= {"task": task, "ensemble": ensemble, "mixture_task": mixture_task} | row_columns
        _refuse_options(
            "evaluate", f"{model}: word vectors: leave out ", shots=shots != "0", **others
        )
        _evaluate_word_vectors(model, sources, case, limit, encoding_errors, as_json)
        return
    _refuse_options(
        "evaluate",
        f"{model}: ",
        " applies to word vectors only",
        case=case != "auto",
        limit=limit,
    )
    if task:
        for_finetuned = {"ensemble": ensemble, "mixture_task": mixture_task} | row_columns
        _refuse_options(
            "evaluate", "", " applies to fine-tuned models, not to --task", **for_finetuned
        )
        settings = {
            "seed": seed,
            "rows": rows,
            "sequence_length": sequence_length,
            "stride": stride,
            "memory_length": memory_length,
            "pll_masking": pll_masking,
        }
        _evaluate_tasks(_load_pipeline(model, device), task, sources, shots, settings, as_json)
        return
    _refuse_options("evaluate", "", " needs --task", shots=shots != "0", rows=rows, stride=stride)
    if not sources:
        raise ValueError("no data: give held-out text or labeled rows with --data")
    pipeline = _load_pipeline(model, device)
    if mixture_task is not None:
        pipeline = pipeline.mixture_task(mixture_task)
    if ensemble or pipeline.can_predict:
        if len(sources) > 1:
            raise ValueError(
                f"{model}: fine-tuned model: give one file of labeled rows, got {len(sources)}"
            )
        _refuse_options(
            "evaluate",
            f"{model}: fine-tuned model: ",
            " applies to held-out text only",
            sequence_length=sequence_length,
            memory_length=memory_length,
        )
        predictor = _with_ensemble(pipeline, ensemble, device)
        scores = predictor.score(
            sources[0],
            **_column_names(text, choices, columns),
            label=label,
            encoding_errors=encoding_errors,
        )
        _print_scores((f"{name:20} {value:.4f}" for name, value in scores.items()), scores, as_json)
        return
    _refuse_options(
        "evaluate", "", " applies to labeled rows, but this model is not fine-tuned", **row_columns
    )
    if text is not None and len(text) > 1:
        raise ValueError(f"--text: held-out text needs one column, got {len(text)}")
    result = pipeline.evaluate(
        sources,
        sequence_length=sequence_length,
        seed=seed,
        memory_length=memory_length,
        document_separator=document_separator,
        text_column=None if text is None else text[0],
        encoding_errors=encoding_errors,
    )
    _print_scores(_evaluation_lines(result), result.to_dict(), as_json)


def _is_word_vectors(model: str) -> bool:
    """Return whether a MODEL is a file of word vectors."""
    from unmask.inference.load_word_vectors import is_word_vectors

    return is_word_vectors(model)


def _is_finetuned(model: str) -> bool:
    """Return whether a MODEL is the folder of a fine-tuned model (maybe of word vectors)."""
    from unmask.files import read_json_object

    facts = Path(model) / "unmask.json"
    return facts.is_file() and read_json_object(facts).get("task") is not None


def _evaluate_word_vectors(
    model: str,
    sources: Sequence[str],
    case: Literal["auto", "keep", "lower"],
    limit: int | None,
    encoding_errors: Literal["strict", "replace"],
    as_json: bool,
) -> None:
    """Evaluate word vectors, and print tables."""
    import unmask
    from unmask.inference.load_word_vectors import format_word_vector_scores, score_to_dict

    if not sources:
        raise ValueError("no data: give files of word pairs or analogies with --data")
    scores = unmask.evaluate_word_vectors(
        model,
        sources,
        case=case,
        limit=limit,
        encoding_errors=encoding_errors,
        terminal=sys.stderr,
    )
    _print_scores(
        format_word_vector_scores(scores),
        {"scores": [score_to_dict(one) for one in scores]},
        as_json,
    )


def _evaluate_similarity(
    model: str,
    sources: Sequence[str],
    device: str,
    encoding_errors: Literal["strict", "replace"],
    settings: Mapping[str, Any],
    as_json: bool,
) -> None:
    """Evaluate sentence vectors on pairs, and print one table."""
    import unmask
    from unmask.inference.sentence_similarity import (
        format_similarity_scores,
        similarity_score_to_dict,
    )

    if not sources:
        raise ValueError("no data: give files of sentence pairs with scores with --data")
    encoder = model if _is_word_vectors(model) else _load_pipeline(model, device)
    scores = [
        unmask.evaluate_sentence_similarity(
            encoder, path, encoding_errors=encoding_errors, **settings
        )
        for path in sources
    ]
    as_data = {"scores": [similarity_score_to_dict(score) for score in scores]}
    _print_scores(format_similarity_scores(scores), as_data, as_json)


def _refuse_options(command: str, before: str, after: str = "", /, **given: object) -> None:
    """Refuse the first given option of a command, its flag between two halves of the message."""
    for parameter, value in given.items():
        if value is not None and value is not False:
            raise ValueError(f"{before}{_flag(command, parameter)}{after}")


def _evaluate_tasks(
    pipeline: "Pipeline",
    tasks: Sequence[str],
    sources: Sequence[str],
    shots: str,
    settings: Mapping[str, Any],
    as_json: bool,
) -> None:
    """Evaluate tasks by prompting, and print one table."""
    import unmask
    from unmask.jobs.evaluate import format_task_scores, task_score_to_dict

    if len(sources) > 1:
        raise ValueError(f"--data must be one folder with --task, got {len(sources)}")
    try:
        counts = [int(n) for n in shots.split(",")]
    except ValueError:
        raise ValueError(f"--shots must be integers separated by commas, got {shots!r}") from None
    data = sources[0] if sources else None
    scores = unmask.evaluate_tasks(
        pipeline, tasks, data=data, shots=counts, terminal=sys.stderr, **settings
    )
    _print_scores(
        format_task_scores(scores), {"scores": [task_score_to_dict(one) for one in scores]}, as_json
    )


def _print_scores(lines: Iterable[str], data: Mapping[str, Any], as_json: bool) -> None:
    """Print scores."""
    if as_json:
        print_json(data)
        return
    for line in lines:
        print_line(line)


def _evaluation_lines(result: "HeldOutEvaluation") -> Iterator[str]:
    yield f"{result.documents:,} documents, {result.words:,} words, {result.tokens:,} tokens"
    for name, loss in result.loss.items():
        line = f"{name.replace('_', ' '):14} loss {loss:.4f}"
        if name in result.perplexity:
            line += f"  perplexity {result.perplexity[name]:,.2f}"
        if name in result.accuracy:
            line += f"  accuracy {result.accuracy[name]:.2%}"
        yield line + f"  over {result.n_targets[name]:,} predictions"
    if result.word_perplexity is not None:
        yield f"perplexity per word {result.word_perplexity:,.2f}"
    if result.bits_per_byte is not None:
        yield f"bits per byte {result.bits_per_byte:.4f}"


@app.command()
def predict(
    model: ModelArgument,
    texts: TextsArgument = None,
    ensemble: EnsembleOption = None,
    input: Annotated[
        Path | None,
        _typer_option(
            "--input",
            metavar="FILE",
            help="Input file: rows with the columns of the training data; or .txt, each line as "
            "for TEXT.",
        ),
    ] = None,
    text: TextColumnsOption = None,
    choices: ChoiceColumnsOption = None,
    columns: ColumnNamesOption = None,
    mixture_task: MixtureTaskOption = None,
    encoding_errors: EncodingErrorsOption = "strict",
    device: DeviceOption = "auto",
    as_json: Annotated[
        bool, _typer_option("--json", help="Print JSON (always the case; accepted for uniformity).")
    ] = False,
) -> None:
    """Predict labels, tags, numbers or answers with a fine-tuned model.

    Prints one line of JSON per text. A text pair is one line with a tab in between, as is a
    question and its passage, or a text and its answer choices; words to be tagged are separated by
    spaces. In a file, a pair is two columns: --text premise --text hypothesis.
    """
    if input is None:
        _refuse_options(
            "predict", "", " needs --input", text=text, choices=choices, columns=columns
        )
    pipeline = _load_pipeline(model, device)
    pipeline = _with_ensemble(
        pipeline if mixture_task is None else pipeline.mixture_task(mixture_task), ensemble, device
    )
    inputs: Iterable[Any]
    if input is None:
        inputs = map(_line_reader(pipeline), _read_texts(texts, None, None, encoding_errors))
    else:
        _refuse_texts_and_input(texts, input)
        names = _column_names(text, choices, columns)
        inputs = pipeline.read_inputs(input, **names, encoding_errors=encoding_errors)
    for text, answer in _answer_in_batches(inputs, pipeline.predict):
        fields = answer if isinstance(answer, dict) else {"number": answer}
        print_json({"text": text} | fields)


def _column_names(
    text: Sequence[str] | None, choices: Sequence[str] | None, columns: str | None
) -> dict[str, Sequence[str]]:
    """Return the given names of columns, by their purpose."""
    names = () if columns is None else columns.split(",")
    return {"text": text or (), "choices": choices or (), "columns": names}


def _with_ensemble(
    pipeline: "Pipeline", other_models: Sequence[str] | None, device: str
) -> "Pipeline | Ensemble":
    """Return the ensemble of a model and others; the model itself where there are none."""
    if not other_models:
        return pipeline
    from unmask.inference.ensemble import Ensemble

    return Ensemble([pipeline, *(_load_pipeline(other, device) for other in other_models)])


def _line_reader(pipeline: "Pipeline | Ensemble") -> Callable[[str], Any]:
    """Return the function that makes a model's input of a line."""
    from unmask.finetuning.results.predict import infer_task
    from unmask.tasks.kinds.all_kinds import TASK_KINDS

    task = pipeline.task or infer_task(pipeline.loaded_model)
    return partial(TASK_KINDS[task.task_kind].reader.parse_line, task)


@app.command()
def fill(
    model: ModelArgument,
    texts: TextsArgument = None,
    input: InputOption = None,
    text_column: TextColumnOption = None,
    top_k: Annotated[
        int, _typer_option("--top-k", metavar="K", help="Number of candidates for each [MASK].")
    ] = 5,
    encoding_errors: EncodingErrorsOption = "strict",
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Predict the tokens at each [MASK] of a text."""
    pipeline = _load_pipeline(model, device)
    all_texts = _read_texts(texts, input, text_column, encoding_errors)
    for given, filled in _answer_in_batches(
        all_texts, lambda some: pipeline.fill(some, top_k=top_k)
    ):
        if as_json:
            blanks = [[vars(c) for c in blank] for blank in filled.blanks]
            print_json({"text": given, "filled": filled.text, "blanks": blanks})
            continue
        print_line(filled.text)
        for i, blank in enumerate(filled.blanks, 1):
            number = f"{i}: " if len(filled.blanks) > 1 else ""
            print_line(
                f"  {number}" + "   ".join(_format_candidate(c.text, c.probability) for c in blank)
            )


def _format_candidate(text: str, probability: float | None) -> str:
    return (text or "(empty)") if probability is None else f"{text} {probability:.1%}"


@app.command()
def generate(
    model: ModelArgument,
    prompt: Annotated[
        list[str] | None,
        _typer_option(
            "--prompt", metavar="TEXT", help="Prompt to continue or to answer. Repeatable."
        ),
    ] = None,
    input: InputOption = None,
    text_column: TextColumnOption = None,
    output_prefix: Annotated[
        str,
        _typer_option(
            "--output-prefix", metavar="TEXT", help="Text with which each output begins."
        ),
    ] = "",
    choice: Annotated[
        list[str] | None,
        _typer_option(
            "--choice",
            metavar="TEXT",
            help="Output to rank by its likelihood, instead of generating. Repeatable.",
        ),
    ] = None,
    max_new_tokens: Annotated[
        int | None,
        _typer_option(
            "--max-new-tokens",
            metavar="N",
            help="Maximum number of generated tokens.",
            default="50",
        ),
    ] = None,
    min_new_tokens: Annotated[
        int | None,
        _typer_option(
            "--min-new-tokens",
            metavar="N",
            help="Minimum number of tokens before the model may end the text.",
            default="0",
        ),
    ] = None,
    stop: Annotated[
        list[str] | None,
        _typer_option(
            "--stop", metavar="TEXT", help="Stop string; the text ends before it. Repeatable."
        ),
    ] = None,
    temperature: Annotated[
        float | None,
        _typer_option(
            "--temperature",
            metavar="T",
            help="Sampling temperature. 0: greedy decoding.",
            default="0",
        ),
    ] = None,
    top_k: Annotated[
        int | None,
        _typer_option(
            "--top-k", metavar="K", help="Number of most probable tokens to sample from."
        ),
    ] = None,
    top_p: Annotated[
        float | None,
        _typer_option(
            "--top-p",
            metavar="P",
            help="Cumulative probability of the most probable tokens to sample from (nucleus "
            "sampling), above 0 and at most 1.",
        ),
    ] = None,
    min_p: Annotated[
        float | None,
        _typer_option(
            "--min-p",
            metavar="P",
            help="Minimum probability of tokens to sample from, relative to the most probable "
            "one, above 0 and at most 1.",
        ),
    ] = None,
    typical_p: Annotated[
        float | None,
        _typer_option(
            "--typical-p",
            metavar="P",
            help="Cumulative probability of the tokens to sample from that are nearest to the "
            "expected information (locally typical sampling), above 0 and at most 1.",
        ),
    ] = None,
    seed: Annotated[
        int | None,
        _typer_option("--seed", metavar="N", help="Random seed for sampling.", default="0"),
    ] = None,
    samples: Annotated[
        int | None,
        _typer_option(
            "--samples",
            metavar="N",
            help="Number of sampled texts per prompt; the most likely is printed "
            "(sample-and-rank).",
        ),
    ] = None,
    beams: Annotated[
        int | None, _typer_option("--beams", metavar="N", help="Number of beams of beam search.")
    ] = None,
    n_best: Annotated[
        int | None,
        _typer_option(
            "--n-best",
            metavar="N",
            help="Number of best beams or samples to print, each with its score.",
            default="1",
        ),
    ] = None,
    length_penalty: Annotated[
        float | None,
        _typer_option(
            "--length-penalty",
            metavar="X",
            help="Exponent of the length by which a beam's log-probability is divided.",
            default="1",
        ),
    ] = None,
    early_stopping: Annotated[
        Literal["true", "false", "never"] | None,
        _typer_option(
            "--early-stopping",
            help="Stopping rule of beam search. true: as soon as N texts are complete; false: "
            "when no better one is likely; never: when no better one is possible.",
            default="false",
        ),
    ] = None,
    repetition_penalty: Annotated[
        float | None,
        _typer_option(
            "--repetition-penalty",
            metavar="X",
            help="Penalty on tokens that already occur, above 1 to avoid them.",
            default="1",
        ),
    ] = None,
    no_repeat_ngram_size: Annotated[
        int | None,
        _typer_option(
            "--no-repeat-ngram-size",
            metavar="N",
            help="Size of n-grams that may not be repeated, in tokens.",
        ),
    ] = None,
    window: Annotated[
        bool,
        _typer_option(
            "--window",
            help="Keep only the last tokens that fit the model's maximum length, and continue "
            "beyond it.",
        ),
    ] = False,
    draft: Annotated[
        str | None,
        _typer_option(
            "--draft",
            metavar="MODEL",
            help="Smaller draft model for speculative decoding: the same output distribution, "
            "faster.",
        ),
    ] = None,
    draft_tokens: Annotated[
        int | None,
        _typer_option(
            "--draft-tokens",
            metavar="N",
            help="Number of tokens proposed by the draft model at a time.",
            default="4",
        ),
    ] = None,
    source_language: Annotated[
        str | None,
        _typer_option(
            "--source-language",
            metavar="CODE",
            help="Language code of the prompts, for models with language tokens.",
        ),
    ] = None,
    target_language: Annotated[
        str | None,
        _typer_option(
            "--target-language",
            metavar="CODE",
            help="Language code of the outputs.",
            default="that of the prompts",
        ),
    ] = None,
    stream: Annotated[
        bool | None,
        typer.Option(
            "--stream/--no-stream",
            help="Print text as it is generated.",
            show_default="on a terminal, for one prompt",
        ),
    ] = None,
    encoding_errors: EncodingErrorsOption = "strict",
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Generate text: a decoder continues a prompt, an encoder-decoder answers it."""
    early = {None: None, "true": True, "false": False, "never": "never"}
    given = {
        "max_new_tokens": max_new_tokens,
        "min_new_tokens": min_new_tokens,
        "stop": stop,
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "min_p": min_p,
        "typical_p": typical_p,
        "seed": seed,
        "samples": samples,
        "beams": beams,
        "n_best": n_best,
        "length_penalty": length_penalty,
        "early_stopping": early[early_stopping],
        "repetition_penalty": repetition_penalty,
        "no_repeat_ngram_size": no_repeat_ngram_size,
        "window": window or None,
    }
    settings = {name: value for name, value in given.items() if value is not None}
    request = _GenerationRequest(
        settings, output_prefix, choice or [], draft, draft_tokens, stream, as_json
    )
    if target_language is not None and source_language is None:
        raise ValueError("--target-language needs --source-language")
    pipeline = _load_pipeline(model, device)
    if source_language is not None:
        pipeline = pipeline.with_languages(source_language, target_language)
    # All at once: the samples of a prompt that is given again depend on those before it.
    request(pipeline, list(_read_texts(prompt, input, text_column, encoding_errors)), device)


@dataclass(frozen=True)
class _GenerationRequest:
    """What `generate` does with prompts; mistakes are reported before a model is opened."""

    settings: Mapping[str, Any]
    output_prefix: str
    choices: Sequence[str]
    draft: str | None
    draft_tokens: int | None
    stream: bool | None
    as_json: bool

    def __post_init__(self) -> None:
        from unmask.generation.settings import generation_config

        generation_config(**self.settings)
        others = sorted(self.settings.keys() - {"beams"})
        if self.choices and (others or self.output_prefix or self.draft is not None or self.stream):
            also = (
                others
                or ["output_prefix"] * bool(self.output_prefix)
                or ["draft" if self.draft else "stream"]
            )
            raise ValueError(
                f"--choice can be combined with --beams only, got {_flag('generate', also[0])}"
            )
        if self.draft_tokens is not None and self.draft is None:
            raise ValueError("--draft-tokens needs --draft")
        for name in ("as_json", "n_best", "beams", "samples"):
            if self.stream and (self.as_json if name == "as_json" else name in self.settings):
                raise ValueError(f"--stream cannot be combined with {_flag('generate', name)}")

    def __call__(self, pipeline: "Pipeline", prompts: Sequence[str], device: str) -> None:
        """Answer prompts."""
        continues_prompt = "next_token" in pipeline.preset.objective.loss_terms
        options: dict[str, Any] = dict(self.settings) | {"output_prefix": self.output_prefix}
        if self.draft is not None:
            draft_model = _load_pipeline(self.draft, device)
            options["draft"] = pipeline.draft(draft_model, draft_tokens=self.draft_tokens or 4)
        if self.choices:
            beams = self.settings.get("beams")
            for prompt in prompts:
                found = pipeline.rank_choices(prompt, self.choices, beams=beams)
                self._print_candidates(prompt, found, continues_prompt)
        elif self.settings.get("n_best", 1) > 1:
            for prompt, found in zip(
                prompts, pipeline.generate_candidates(prompts, **options), strict=True
            ):
                self._print_candidates(prompt, found, continues_prompt)
        elif self._should_stream(len(prompts)):
            _print_stream(
                prompts[0] if continues_prompt else "", pipeline.stream(prompts[0], **options)
            )
        else:
            for before, after in zip(prompts, pipeline.generate(prompts, **options), strict=True):
                if self.as_json:
                    print_json({"prompt": before, "text": after})
                else:
                    print_data(before + after if continues_prompt else after)
        if "draft" in options:
            draft = options["draft"]
            accepted = f"{draft.acceptance_rate:.0%} of {draft.n_drafted:,}"
            print_line(f"draft: {accepted} proposed tokens accepted", sys.stderr)

    def _should_stream(self, n_prompts: int) -> bool:
        if self.stream is None:
            plain = not (self.as_json or self.settings.keys() & {"beams", "samples"})
            return plain and n_prompts == 1 and sys.stdout.isatty()
        if self.stream and n_prompts != 1:
            raise ValueError(f"--stream needs exactly one prompt, got {n_prompts:,}")
        return self.stream

    def _print_candidates(
        self, prompt: str, candidates: Sequence["ScoredText"], continues_prompt: bool
    ) -> None:
        """Print several answers, the best first, each with its score."""
        if self.as_json:
            print_json(
                {
                    "prompt": prompt,
                    "text": candidates[0].text,
                    "best": [vars(one) for one in candidates],
                }
            )
            return
        for one in candidates:
            text = prompt + one.text if continues_prompt else one.text
            print_data(f"{one.score:.4f}\t{escape_tsv(text)}")


def _print_stream(prefix: str, pieces: Iterable[str]) -> None:
    """Print text as it is generated; an interruption leaves whole lines."""
    print_data(prefix, end="", flush=True)
    try:
        for piece in pieces:
            print_data(piece, end="", flush=True)
    finally:
        print_data("", flush=True)


@app.command()
def embed(
    model: ModelArgument,
    texts: TextsArgument = None,
    input: InputOption = None,
    text_column: TextColumnOption = None,
    pooling: Annotated[
        Literal["mean", "first", "last", "ends", "none"] | None,
        _typer_option(
            "--pooling",
            help="Pooling of token vectors into a text vector; ends: the final state of "
            "each direction; none: one vector per token.",
            default="that of the model: mean, or last for skip-thoughts and quick-thoughts",
        ),
    ] = None,
    layer: LayerOption = None,
    out: Annotated[
        Path | None,
        _typer_option(
            "--out", metavar="FILE", help="Output file: a NumPy array [n d] instead of JSON."
        ),
    ] = None,
    limit: LimitOption = None,
    encoding_errors: EncodingErrorsOption = "strict",
    device: DeviceOption = "auto",
    as_json: Annotated[
        bool, _typer_option("--json", help="Print JSON (always the case; accepted for uniformity).")
    ] = False,
) -> None:
    """Embed texts as vectors.

    Prints one line of JSON per text, or writes a .npy file. With word vectors, a text's vector is
    the mean of its words' vectors.
    """
    if out is not None and pooling == "none":
        raise ValueError("--out needs one vector per text; --pooling none gives one per token")
    if out is not None and not out.parent.is_dir():
        raise FileNotFoundError(f"{out}: there is no folder {out.parent}")
    text_vectors = _answer_in_batches(
        _read_texts(texts, input, text_column, encoding_errors, keep_blank=True),
        _text_encoder(model, device, pooling, layer, limit),
    )
    if out is not None:
        _write_array(out, [vector for _, vector in text_vectors])
        return
    for given, vector in text_vectors:
        print_json({"text": given, "vector": vector.tolist()})


def _text_encoder(
    model: str, device: str, pooling: str | None, layer: int | None, limit: int | None
) -> Callable[[list[str]], Iterable[Any]]:
    """Return the function that turns texts into vectors, of a model or of word vectors."""
    options: dict[str, Any] = {"pooling": pooling}
    if _is_word_vectors(model):
        from unmask.inference.sentence_similarity import sentence_encoder

        encode = sentence_encoder(model, layer=layer, limit=limit, **options)
        return lambda texts: _warn_of_zero_vectors(encode(texts))
    _refuse_options("embed", f"{model}: ", " applies to word vectors only", limit=limit)
    return partial(
        _load_pipeline(model, device).embed, layer=-1 if layer is None else layer, **options
    )


def _warn_of_zero_vectors(vectors: Any) -> Any:
    """Return vectors of texts, and warn that some are of no known word."""
    if not vectors.any(1).all():
        logging.getLogger("unmask").warning(
            "a text contains no word with a vector: its vector is zero"
        )
    return vectors


def _write_array(path: Path, rows: Sequence[Any]) -> None:
    import io

    import numpy as np

    from unmask.files import write_atomically

    buffer = io.BytesIO()
    np.save(buffer, np.stack(rows), allow_pickle=False)
    write_atomically(path, buffer.getvalue())
    print_line(f"{path}: {len(rows):,} vectors of dimension {len(rows[0]):,}", sys.stderr)


@app.command()
def convert(
    source: ModelArgument,
    target: Annotated[
        Path,
        typer.Argument(
            metavar="FOLDER", help="Output folder, a new one; for word vectors, a new file."
        ),
    ],
    to: Annotated[
        Literal[
            "huggingface", "unmask", "elmo", "word2vec-text", "word2vec-binary", "glove", "fasttext"
        ]
        | None,
        _typer_option(
            "--to",
            help="Output format. huggingface and unmask open in transformers, except for heads "
            "that it lacks; both keep the task of a fine-tuned model, unmask also the pretraining "
            "objective. elmo: the layout of the released ELMo. The others are for word vectors.",
            default="huggingface; for word vectors, that of the file name",
        ),
    ] = None,
    average: Annotated[
        int | None,
        _typer_option(
            "--average",
            metavar="N",
            help="Number of last checkpoints of a pretraining run to average.",
        ),
    ] = None,
    vectors: Annotated[
        str | None,
        _typer_option(
            "--expand",
            metavar="VECTORS",
            help="Word vectors whose words are added to an encoder's vocabulary through a linear "
            "map; the result has no language-model head.",
        ),
    ] = None,
    limit: LimitOption = None,
    white_space: Annotated[
        str | None,
        _typer_option(
            "--white-space",
            metavar="TEXT",
            help="Replacement for white space within words, for word vectors, e.g. _.",
            default="white space is an error",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Convert a model between formats, average its last checkpoints, or expand its vocabulary.

    Word vectors (.vec, .bin, .txt) are written for word2vec, gensim and fastText (word2vec-text),
    for word2vec and gensim (word2vec-binary), or in the format of GloVe (glove); a fastText run
    also as a fastText model with its n-grams (fasttext).
    """
    as_model = Path(source).is_dir() and to in ("huggingface", "unmask")
    if _is_word_vectors(source) and not as_model:
        _refuse_options(
            "convert",
            f"{source}: word vectors: ",
            " applies to pretraining runs only",
            average=average,
        )
        _refuse_options("convert", f"{source}: word vectors: leave out ", vectors=vectors)
        _convert_word_vectors(source, target, to, limit, white_space, as_json)
        return
    rest = {"limit": limit if vectors is None else None, "white_space": white_space}
    _refuse_options("convert", f"{source}: ", " applies to word vectors only", **rest)
    from unmask.checkpoints.huggingface.differences import opening_note
    from unmask.inference.export import (
        average_checkpoints,
        check_average_count,
        check_new_folder,
        resolve_model_format,
    )

    model_format = resolve_model_format(to)
    check_new_folder(Path(target))
    if average is not None:
        check_average_count(average)
    pipeline = _load_pipeline(source, "cpu")
    if average is not None:
        average_checkpoints(pipeline.model, Path(source), average)
    if vectors is not None:
        import unmask

        expanded = unmask.expand_vocabulary(pipeline, vectors, limit=limit)
        pipeline = expanded.pipeline
        print_line(
            f"{expanded.n_added:,} words added through a linear map fitted on "
            f"{expanded.n_shared:,} shared words",
            sys.stderr,
        )
    pipeline.save(target, format=model_format)
    opened = pipeline.loaded_model
    if opened.tokenizer is None:
        print_line(f"{source}: has no tokenizer, so {target} has none either", sys.stderr)
    note = opening_note(opened.preset, opened.model.head_specs)
    if note is not None and model_format != "elmo":
        print_line(f"{target}: {note}", sys.stderr)
    if as_json:
        facts = {"folder": target, "tokenizer": opened.tokenizer is not None}
        print_json(facts | {"missing": opened.missing, "extra": opened.unexpected})
    else:
        print_data(target)


def _convert_word_vectors(
    source: str,
    target: Path,
    to: str | None,
    limit: int | None,
    white_space: str | None,
    as_json: bool,
) -> None:
    """Write word vectors in another format."""
    import unmask
    from unmask.inference.load_word_vectors import resolve_word_vector_format

    format_name = resolve_word_vector_format(to)
    try:
        space = unmask.convert_word_vectors(
            source, target, format_name=format_name, limit=limit, white_space=white_space
        )
    except ValueError as error:
        hint = " (--white-space _)" if "white space cannot be" in str(error) else ""
        hint = " (--to)" if "name the format" in str(error) else hint
        raise ValueError(f"{error}{hint}") from None
    facts = {"file": str(target), "words": len(space), "width": space.vector_size}
    if as_json:
        print_json(facts)
    else:
        print_line(f"{target}: {len(space):,} words, {space.vector_size:,} dimensions")


@app.command()
def neighbors(
    vectors: Annotated[
        str,
        typer.Argument(
            metavar="VECTORS",
            help="Word vectors: word2vec .vec or .bin, GloVe .txt, each also .gz, .xz, .zst; or a "
            "fastText model.bin. With --sentences also a MODEL.",
        ),
    ],
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="WORD",
            help="Query words; several are combined into one query. With --sentences, query "
            "sentences, each a query of its own.",
        ),
    ],
    top_k: Annotated[
        int, _typer_option("-k", "--top-k", metavar="K", help="Number of neighbors.")
    ] = 10,
    minus: Annotated[
        list[str] | None,
        _typer_option(
            "--minus",
            metavar="WORD",
            help="Word whose vector is subtracted from the query. Repeatable.",
        ),
    ] = None,
    multiply: Annotated[
        bool,
        _typer_option(
            "--multiply",
            help="Combine words by multiplying cosines (3CosMul) instead of adding vectors "
            "(3CosAdd).",
        ),
    ] = False,
    sentences_file: Annotated[
        str | None,
        _typer_option(
            "--sentences",
            metavar="FILE",
            help="File of candidate sentences: one per line, or records as for --data.",
        ),
    ] = None,
    word: Annotated[
        str | None,
        _typer_option(
            "--word",
            metavar="WORD",
            help="Word to compare in its context in each sentence, with --sentences.",
        ),
    ] = None,
    text_column: TextColumnOption = None,
    pooling: PoolingOption = None,
    layer: LayerOption = None,
    limit: LimitOption = None,
    encoding_errors: EncodingErrorsOption = "strict",
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Show the nearest words by their vectors, or the nearest sentences of a file.

    Analogy: what is to woman as king is to man? neighbors VECTORS king woman --minus man. Similar
    lines of a file: neighbors MODEL --sentences FILE "A sentence." Similar uses of a word:
    neighbors MODEL --sentences FILE --word play "They play outside."
    """
    import unmask

    if sentences_file is not None:
        _refuse_options("neighbors", "--sentences: leave out ", minus=minus, multiply=multiply)
        queries = [_check_utf8(word) for word in words]
        results = unmask.nearest_sentences(
            vectors if _is_word_vectors(vectors) else _load_pipeline(vectors, device),
            queries,
            sentences_file,
            top_k,
            word=None if word is None else _check_utf8(word),
            pooling=pooling,
            layer=layer,
            limit=limit,
            text_column=text_column,
            encoding_errors=encoding_errors,
        )
        _print_nearest_sentences(queries, results, as_json)
        return
    _refuse_options(
        "neighbors",
        "",
        " needs --sentences",
        word=word,
        text_column=text_column,
        pooling=pooling,
        layer=layer,
    )
    space = unmask.load_word_vectors(vectors, limit=limit)
    positive = [_check_utf8(word) for word in words]
    negative = [_check_utf8(word) for word in minus or ()]
    found = space.most_similar(positive, negative, top_k, "multiply" if multiply else "add")
    if as_json:
        near = [{"word": word, "score": score} for word, score in found]
        print_json({"plus": positive, "minus": negative, "neighbors": near})
        return
    for word, score in found:
        print_line(f"{score:7.4f}  {word}")


def _print_nearest_sentences(
    queries: Sequence[str], results: Sequence[Sequence["Neighbor"]], as_json: bool
) -> None:
    """Print the nearest sentences of each query, as a line of JSON or a paragraph each."""
    for i, (sentence, found) in enumerate(zip(queries, results, strict=True)):
        if as_json:
            nearest = [{"text": one.word, "score": one.score} for one in found]
            print_json({"text": sentence, "neighbors": nearest})
            continue
        if len(queries) > 1:
            if i:
                print_line("")
            print_line(sentence)
        for one in found:
            print_line(f"{one.score:7.4f}  {one.word}")


@app.command()
def picture(
    vectors: VectorsArgument,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="WORD",
            help="Words to plot. Default without --words: the first 100 of the file.",
        ),
    ] = None,
    out: Annotated[
        Path, _typer_option("--out", metavar="FILE", help="Output file, an SVG.")
    ] = Path("words.svg"),
    file: Annotated[
        Path | None,
        _typer_option("--words", metavar="FILE", help="File with further words, one per line."),
    ] = None,
    method: Annotated[
        Literal["pca", "tsne"],
        _typer_option(
            "--method",
            help="Projection: pca (principal components; keeps directions) or tsne (t-SNE; keeps "
            "neighbors).",
        ),
    ] = "pca",
    seed: Annotated[int, _typer_option("--seed", metavar="N", help="Random seed for t-SNE.")] = 0,
    limit: LimitOption = None,
    as_json: JsonOption = False,
) -> None:
    """Plot word vectors in two dimensions."""
    import unmask
    from unmask.word_vectors.projection import TSNE, PrincipalComponents

    projections = {"pca": PrincipalComponents(), "tsne": TSNE(seed)}

    given = [_check_utf8(word) for word in words or ()]
    shown = unmask.draw_word_map(
        vectors,
        given,
        out=out,
        file=file,
        projection=projections[method],
        limit=limit,
        terminal=sys.stderr,
    )
    if as_json:
        print_json({"file": str(out), "words": shown})
    else:
        print_line(f"{out}: {len(shown):,} words")


@app.command()
def study(
    name: Annotated[
        str,
        typer.Argument(
            metavar="STUDY",
            help="Study: bart-noises, t5-objectives, t5-rates, t5-spans, t5-architectures, "
            "summaries, elmo-tags, ulmfit-stages, ulmfit-stages-trec, or a .toml file.",
        ),
    ],
    more: MoreDataArgument = None,
    data: DataOption = None,
    out: Annotated[
        Path, _typer_option("--out", metavar="FOLDER", help="Output folder of the study.")
    ] = Path("runs/study"),
    tasks_data: Annotated[
        Path | None,
        _typer_option(
            "--tasks-data",
            metavar="FOLDER",
            help="Folder with the files of the tasks.",
            default="download from the Hub",
        ),
    ] = None,
    cells: Annotated[
        str | None,
        _typer_option(
            "--cells",
            metavar="A,B",
            help="Comma-separated cells of the study to run now.",
            default="all",
        ),
    ] = None,
    tokens: Annotated[
        int | None,
        _typer_option(
            "--tokens",
            metavar="N",
            help="Pretraining tokens per cell.",
            default="that of the study",
        ),
    ] = None,
    rows: Annotated[
        int | None,
        _typer_option(
            "--rows",
            metavar="N",
            help="Number of training rows per task.",
            default="that of the study",
        ),
    ] = None,
    epochs: Annotated[
        float | None,
        _typer_option(
            "--epochs",
            metavar="X",
            help="Number of fine-tuning epochs.",
            default="that of the study",
        ),
    ] = None,
    seeds: Annotated[
        int | None,
        _typer_option(
            "--seeds",
            metavar="N",
            help="Number of fine-tuning runs per cell and task.",
            default="that of the study",
        ),
    ] = None,
    resume: ResumeOption = False,
    workers: Annotated[
        int,
        _typer_option(
            "--workers",
            metavar="N",
            help="Number of data-loading processes; 0: in the main process.",
        ),
    ] = 0,
    device: DeviceOption = "auto",
    threads: Annotated[
        int | None,
        _typer_option(
            "--threads",
            metavar="N",
            help="Number of compute threads in pretraining.",
            default="all cores",
        ),
    ] = None,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Compare objectives, architectures or tuning methods under one budget.

    All are trained on the same text and fine-tuned on the same tasks.

    The table and the plot are updated after each cell; Ctrl-C loses nothing, --resume continues.
    """
    import unmask
    from unmask.files import read_json

    result = unmask.run_study(
        name,
        data=[*(data or ()), *(more or ())],
        out=out,
        tasks_data=tasks_data,
        cells=() if cells is None else cells.split(","),
        tokens=tokens,
        rows=rows,
        epochs=epochs,
        seeds=seeds,
        resume=resume,
        workers=workers,
        device=device,
        threads=threads,
        terminal=None if quiet else sys.stderr,
    )
    names, table_rows = result.to_table()
    if as_json:
        print_json(read_json(out / "study.json"))
    else:
        show_table(result.study.name, names, table_rows)
        print_line(f"{out}: done; table in {out / 'README.md'}, plot in {out / 'plot.svg'}")


@app.command()
def align(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="SOURCE", help="Source word vectors; with --semantic-shift, the older ones."
        ),
    ],
    target: Annotated[Path, typer.Argument(metavar="TARGET", help="Target word vectors.")],
    dictionary: Annotated[
        Path | None,
        _typer_option(
            "--dictionary", metavar="FILE", help="Seed dictionary: one pair of words per line."
        ),
    ] = None,
    seed_pairs: Annotated[
        int | None,
        _typer_option(
            "--seed-pairs",
            metavar="N",
            help="Number of pairs of the dictionary to learn from, the first ones; without --test "
            "the others are the test set.",
            default="all",
        ),
    ] = None,
    numerals: Annotated[
        bool,
        _typer_option(
            "--numerals", help="Use numerals in both vocabularies as the seed dictionary."
        ),
    ] = False,
    identical: Annotated[
        bool, _typer_option("--identical", help="Use all identical words as the seed dictionary.")
    ] = False,
    anchors: Annotated[
        Path | None,
        _typer_option(
            "--anchors",
            metavar="FILE",
            help="File with the identical words to use as the seed dictionary, one per line.",
        ),
    ] = None,
    lowercase: Annotated[
        bool, _typer_option("--lowercase", help="Convert dictionaries to lower case.")
    ] = False,
    test: Annotated[
        Path | None,
        _typer_option(
            "--test",
            metavar="FILE",
            help="Test dictionary: one pair of words per line; a word may have several "
            "translations.",
        ),
    ] = None,
    map: Annotated[
        Literal["procrustes", "least-squares"],
        _typer_option(
            "--map", help="Linear map: procrustes (orthogonal) or least-squares (unconstrained)."
        ),
    ] = "procrustes",
    normalize: Annotated[
        Literal["unit-center-unit", "unit", "none"],
        _typer_option(
            "--normalize",
            help="Normalization of the vectors. unit-center-unit: unit length, mean centering, "
            "unit length again.",
        ),
    ] = "unit-center-unit",
    self_learning: Annotated[
        Literal["none", "nearest", "csls", "stochastic"] | None,
        _typer_option(
            "--self-learning",
            help="Induction of further dictionary pairs by the map itself: nearest neighbors, "
            "CSLS in both directions, or stochastic.",
            default="csls with numerals or fewer pairs than dimensions, else none",
        ),
    ] = None,
    refine: Annotated[
        int,
        _typer_option(
            "--refine",
            metavar="N",
            help="Number of Procrustes refinement iterations on mutual CSLS nearest neighbors.",
        ),
    ] = 0,
    vocabulary_cutoff: Annotated[
        int | None,
        _typer_option(
            "--vocabulary-cutoff",
            metavar="N",
            help="Number of most frequent words used in self-learning, refinement and "
            "--semantic-shift.",
            default="20000, 15000 and 10000",
        ),
    ] = None,
    csls_k: Annotated[
        int, _typer_option("--csls-k", metavar="K", help="Number k of neighbors in CSLS.")
    ] = 10,
    semantic_shift: Annotated[
        int | None,
        _typer_option(
            "--semantic-shift",
            metavar="N",
            help="Number of words with the largest semantic shift to list.",
        ),
    ] = None,
    min_count: Annotated[
        int | None,
        _typer_option(
            "--min-count",
            metavar="N",
            help="Minimum corpus frequency of listed words, where the files contain counts.",
        ),
    ] = None,
    limit: Annotated[
        int | None,
        _typer_option(
            "--limit",
            metavar="N",
            help="Number of word vectors to read from the start of each file.",
            default="all",
        ),
    ] = None,
    seed: SeedOption = 0,
    out: Annotated[
        Path | None,
        _typer_option(
            "--out", metavar="FOLDER", help="Output folder for the aligned vectors, a new one."
        ),
    ] = None,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Align two spaces of word vectors: two languages, or two periods.

    With --semantic-shift: list the words whose vectors changed most between two periods or groups.
    """
    import unmask

    aligned = unmask.align(
        source,
        target,
        dictionary=dictionary,
        seed_pairs=seed_pairs,
        numerals=numerals,
        identical=identical,
        anchors=anchors,
        lowercase=lowercase,
        test=test,
        map=map,
        normalize=normalize,
        self_learning=self_learning,
        refine=refine,
        vocabulary_cutoff=vocabulary_cutoff,
        csls_k=csls_k,
        semantic_shift=semantic_shift,
        min_count=min_count,
        limit=limit,
        seed=seed,
        out=out,
        terminal=None if quiet or as_json else sys.stderr,
    )
    if as_json:
        print_json(aligned.summary)
        return
    for (names, rows), left in ((aligned.score_table(), 1), (aligned.shift_table(), 4)):
        if rows:
            show_table("", names, rows, n_left_aligned=left)
    for line in aligned.notes():
        print_line(line)
    if out is not None:
        print_line(f"{out}: done; source.vec and target.vec share one space")


@app.command()
def report(
    run: Annotated[Path, typer.Argument(metavar="FOLDER", help="Run folder.")],
    as_json: JsonOption = False,
) -> None:
    """Rewrite the HTML report of a run."""
    import unmask

    path = unmask.write_report(run)
    print_json({"report": path}) if as_json else print_data(path)


def _load_pipeline(model: str, device: str) -> "Pipeline":
    """Load a model, and print its missing and unused weights."""
    import unmask

    pipeline = unmask.load(model).to(device)
    for what, names in (
        ("missing weights, randomly initialized", pipeline.loaded_model.missing),
        ("unused weights", pipeline.loaded_model.unexpected),
    ):
        if names:
            more = f" and {len(names) - 4} more" if len(names) > 4 else ""
            print_line(f"{model}: {what}: {', '.join(names[:4])}{more}", sys.stderr)
    return pipeline


def _read_texts(
    texts: Sequence[str] | None,
    input_file: Path | None,
    text_column: str | None,
    encoding_errors: Any,
    *,
    keep_blank: bool = False,
) -> Iterator[str]:
    """Yield the given texts, those of a file, or the lines of standard input.

    Args:
        texts: texts.
        input_file: a file, each of whose lines is one text with one answer, however long it is.
        text_column: column of its text.
        encoding_errors: what becomes of bytes that are not UTF-8.
        keep_blank: blank lines are texts too, so that answers stand in the rows of the lines.
    """
    from unmask.text.lines import BlankLines

    if texts:
        _refuse_texts_and_input(texts, input_file)
        yield from map(_check_utf8, texts)
        return
    if input_file is not None:
        from unmask.text.documents import read_rows
        from unmask.text.records import MAX_RECORD_CHARACTERS

        read = read_rows(
            input_file,
            text_column=text_column,
            encoding_errors=encoding_errors,
            max_characters=MAX_RECORD_CHARACTERS,
        )
        found = ((int(one.location.rpartition(":")[2]), one.text) for one in read)
    else:
        found = _read_standard_input(encoding_errors)
    number, blank_lines = 0, BlankLines()
    for number, text in found:
        if not text:
            blank_lines.add(number)
        if text or keep_blank:
            yield text
    if some := blank_lines.describe(number):
        how = "answered as the empty text" if keep_blank else "left out"
        print_line(f"{input_file or 'standard input'}: blank lines are {how}: {some}", sys.stderr)


def _refuse_texts_and_input(texts: Sequence[str] | None, input_file: Path | None) -> None:
    if texts and input_file is not None:
        raise ValueError(f"give texts or --input, not both: got {texts[0]!r} and {input_file}")


def _check_utf8(argument: str) -> str:
    """Check that an argument is text."""
    try:
        argument.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"not UTF-8 at character {error.start + 1} of {argument!a}") from None
    return argument


def _read_standard_input(
    encoding_errors: Literal["strict", "replace"],
) -> Iterator[tuple[int, str]]:
    """Yield the lines of standard input with their numbers; blank ones are empty."""
    from unmask.text.lines import replace_nul

    if cast("Any", sys.stdin) is None:
        raise ValueError("standard input is closed; give a text, or --input")
    if sys.stdin.isatty():
        print_line("reading standard input, one text per line; end with Ctrl-D", sys.stderr)
    empty = True
    from unmask.text.records import MAX_RECORD_CHARACTERS

    lines = iter(lambda: sys.stdin.buffer.readline(MAX_RECORD_CHARACTERS + 1), b"")
    for number, line in enumerate(lines, 1):
        if len(line) > MAX_RECORD_CHARACTERS:
            raise ValueError(
                f"standard input:{number}: a line of more than {MAX_RECORD_CHARACTERS:,} bytes"
            )
        try:
            text = line.decode("utf-8", encoding_errors)
        except UnicodeDecodeError as error:
            raise ValueError(
                f"standard input:{number}: invalid UTF-8 at byte {error.start + 1} of the line "
                "(--encoding-errors replace reads it as U+FFFD)"
            ) from None
        if "\0" in text:
            text = replace_nul(text, f"standard input:{number}", encoding_errors)
        empty = empty and not text.strip()
        yield number, text.rstrip("\r\n") if text.strip() else ""
    if empty:
        raise ValueError("standard input: no text; give a text, or --input")


def _answer_in_batches(
    items: Iterable[ItemT], answer: Callable[[list[ItemT]], Iterable[AnswerT]]
) -> Iterator[tuple[ItemT, AnswerT]]:
    """Answer some items at a time; yield each with its answer."""
    rest, n = iter(items), 0
    while some := list(islice(rest, TEXTS_PER_CALL)):
        try:
            answers = answer(some)
        except ValueError as error:
            if n:  # the error counts from the first of these
                raise ValueError(f"after the first {n:,} texts: {error}") from None
            raise
        yield from zip(some, answers, strict=True)
        n += len(some)


if __name__ == "__main__":
    main()
