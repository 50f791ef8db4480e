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

from unmask.channels import (
    Telling,
    cell,
    columns,
    give,
    give_json,
    render,
    tell,
    tell_traceback,
)
from unmask.channels import table as show_table
from unmask.training.stopping import interruptible, stop_status

if TYPE_CHECKING:
    from unmask.evaluation.likelihood import Evaluation
    from unmask.finetuning.in_domain import InDomain
    from unmask.finetuning.suite import SuiteRun
    from unmask.finetuning.tuned import Tuned
    from unmask.serving.ensemble import Ensemble
    from unmask.serving.pipeline import Answered, Pipeline
    from unmask.vectors.space import Neighbor

T = TypeVar("T")
A = TypeVar("A")

# Where it stands differs between versions of typer, but not that this one is made from it.
_UsageError = cast("type[Exception]", typer.BadParameter.__base__)

_TRAIN = frozenset(("pretrain", "finetune", "study", "demo", "align"))
"""Commands that learn something."""

_USERS = frozenset(
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
"""What the system answers that a user can do something about."""

TOGETHER = 256
"""Texts that are answered together; the answers are printed before the next are read."""

app = typer.Typer(
    name="unmask",
    help="Pretrain once, fine-tune many times: every family of pretrained language model, on your "
    "own text.",
    epilog="Exit status: 0 done; 2 a mistake of yours, told in one line; 1 anything else.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"max_content_width": 100},
)


def _option(*names: str, help: str, metavar: str | None = None, default: str | bool = True) -> Any:
    """Declare an option; `default` is what is said of it where it is not a value."""
    return typer.Option(
        *names, help=help, metavar=metavar, show_default=default, callback=_in_range
    )


def _in_range(value: Any) -> Any:
    """Refuse a number that no option can be: not finite, or beyond 64 bits."""
    if isinstance(value, int | float) and not -(2**63) <= value < 2**63:
        raise typer.BadParameter(f"must be a finite number of at most 64 bits, got {value}")
    return value


Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="A run's folder, a folder in the Hugging Face layout, hf:owner/name, unmask-mini-en, "
        "which is in this package, or the name of a card whose weights were published.",
    ),
]
Card = Annotated[
    str,
    typer.Argument(metavar="MODEL", help="A card's name (unmask models), or a model's folder."),
]
Data = Annotated[
    list[str] | None,
    _option(
        "--data",
        metavar="PATH",
        help="A file (.txt, .jsonl, .csv, .tsv, .parquet, each also .gz, .xz, .zst), a folder, a "
        "quoted pattern or hf:owner/name; may be given again.",
    ),
]
MoreData = Annotated[
    list[str] | None,
    typer.Argument(metavar="PATH", help="More data: what a shell makes of --data *.txt."),
]
Texts = Annotated[
    list[str] | None,
    typer.Argument(metavar="TEXT", help="Texts. None: --input, or a line each of stdin."),
]
Input = Annotated[
    Path | None,
    _option("--input", metavar="FILE", help="A text a line, or records as for --data."),
]
Together = Annotated[
    list[str] | None,
    _option("--with", metavar="MODEL", help="Also asked: the mean of their answers; several."),
]
Part = Annotated[
    str | None,
    _option("--part", metavar="NAME", help="Which task, of a model that learned a mixture."),
]
Column = Annotated[
    str | None,
    _option(
        "--text", metavar="COLUMN", help="Which column of records is the text.", default="text"
    ),
]
TextColumns = Annotated[
    list[str] | None,
    _option("--text", metavar="COLUMN", help="Of text in a file; of pairs, given twice."),
]
ChoiceColumns = Annotated[
    list[str] | None,
    _option("--choices", metavar="COLUMN", help="Of options to choose from; one or several."),
]
AllColumns = Annotated[
    str | None,
    _option("--columns", metavar="A,B,...", help="Names of all columns, without a header."),
]
Document = Annotated[
    Literal["blank", "line", "file"],
    _option("--document", help="What in .txt is a document: what blank lines part, a line..."),
]
Encoding = Annotated[
    Literal["strict", "replace"],
    _option("--encoding-errors", help="Of bytes that are not UTF-8, make an error or U+FFFD."),
]
SAMPLING = "Exponent of each source's share: 1 as it is, 0.3 raises small ones. A folder is one."
Asked = Annotated[
    str | None,
    _option(
        "--objective",
        metavar="NAME",
        help="Pretraining objective, e.g. mlm, clm, rtd, mlm:rate=0.3+nsp (docs/objectives.md).",
        default="the model's own",
    ),
]
Device = Annotated[str, _option("--device", metavar="NAME", help="auto, cpu, cuda, cuda:1, ...")]
Pooled = Annotated[
    Literal["mean", "first", "last", "ends"] | None,
    _option(
        "--pooling",
        help="Of which tokens a text's vector is made; ends: what both directions say last.",
        default="the card's: mean, of skip- and quick-thoughts last",
    ),
]
Layer = Annotated[
    int | None,
    _option("--layer", metavar="N", help="0: before the first block; -1: the last.", default="-1"),
]
Limit = Annotated[
    int | None,
    _option("--limit", metavar="N", help="Of word vectors: read the first N words alone."),
]
Vectors = Annotated[
    str,
    typer.Argument(
        metavar="VECTORS",
        help="A file of word vectors: word2vec's .vec and .bin, GloVe's .txt, each also .gz, .xz, "
        ".zst; fastText's model.bin.",
    ),
]
Folder = Annotated[
    str | None,
    _option("--tokenizer", metavar="FOLDER", help="A tokenizer to use instead of learning one."),
]
Seed = Annotated[int, _option("--seed", metavar="N", help="Of everything that is drawn.")]
Resume = Annotated[bool, _option("--resume", help="Go on with the run in --out.")]
Quiet = Annotated[bool, _option("--quiet", help="Show no progress, but warnings.")]
Json = Annotated[bool, _option("--json", help="Print JSON.")]


def main() -> None:
    """Run the command line as a program."""
    sys.excepthook = tell_traceback
    status = run(sys.argv[1:])
    # Python remembers that a signal broke off code that was made of a string, as that of a
    # dataclass is, and `python -m` then dies of SIGINT whatever the status; a new string clears it.
    exec("")
    raise SystemExit(status)


def run(arguments: Sequence[str]) -> int:
    """Run a command and return its exit status; what is a bug of ours is raised.

    0: done. 2: a mistake of the user's, told in one line on standard error. 130, 143 or 129: it was
    asked to stop by Ctrl-C, SIGTERM or a terminal that was closed. 1: anything else.
    """
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a name of a file may be no UTF-8
            cast("Any", stream).reconfigure(errors="backslashreplace")
    command = typer.main.get_command(app)
    try:
        with (
            interruptible(),
            _warnings(),
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
        trains = any(word in _TRAIN for word in arguments[:2])
        told = None if "--traceback" in arguments[:1] else _told(error, trains=trains)
        if told is None:
            raise
        line, status = told
        tell(_with_option(line, command, arguments), sys.stderr)
        return status
    return 0


_NAMED = re.compile(r"unmask: (\w+)(?=: | must | is | are )")


def _with_option(line: str, command: Any, arguments: Sequence[str]) -> str:
    """Name an option as it was written where the library names the argument that it became."""
    named = _NAMED.match(line)
    called = command.commands.get(next((w for w in arguments if not w.startswith("-")), ""))
    if named is None or called is None:
        return line
    written = {word.partition("=")[0] for word in arguments}
    written |= {word[:2] for word in arguments if re.match("-[a-z]", word)}
    options = [one for one in called.params if one.name.rstrip("_") == named[1]]
    found = [name for one in options for name in one.opts if name in written and name[0] == "-"]
    return f"unmask: {found[0]}{line[named.end() :]}" if found else line


def _told(error: BaseException, *, trains: bool) -> tuple[str, int] | None:
    """Return the line that tells of an error, and the exit status; None of a bug.

    A training that diverges has failed; a model that is opened and says numbers that are none is
    a wrong file.
    """
    if isinstance(error, _UsageError):
        return _usage(error), 2
    if isinstance(error, KeyboardInterrupt):
        return f"unmask: {str(error) or 'interrupted'}", stop_status()
    if isinstance(error, MemoryError | RuntimeError):
        line = _out_of_memory(error)
        return None if line is None else (f"unmask: {line}", 1)
    if isinstance(error, ChildProcessError) or (trains and isinstance(error, FloatingPointError)):
        return f"unmask: {error}", 1
    if isinstance(error, OSError) and error.errno is not None:
        if error.errno not in _USERS:
            return None
        # Of a renaming that failed, what was asked for: the other name is one of ours.
        name = error.filename if error.filename2 is None else error.filename2
        where = "" if name is None else f"{_place(os.fsdecode(name))}: "
        why = error.strerror or os.strerror(error.errno)
        return f"unmask: {where}{why[:1].lower()}{why[1:]}", 2
    return f"unmask: {error}", 2


_ALLOCATION = re.compile(r"(?:tried|unable) to allocate ([\d.]+) ?([a-z]+)", re.IGNORECASE)


def _out_of_memory(error: Exception) -> str | None:
    """Return the line that tells of memory that is not there; None of any other error.

    NumPy and Python raise MemoryError; torch a RuntimeError, of the processor and of a GPU.
    """
    text = str(error)
    refused = ("can't allocate memory", "out of memory")
    if not isinstance(error, MemoryError) and not any(one in text.lower() for one in refused):
        return None
    found = _ALLOCATION.search(text)
    size = "" if found is None else f" {found[1].rstrip('.')} {found[2]}"
    if size.endswith("bytes"):
        size = f" {int(size.split()[0]) / 1e9:,.1f} GB"
    wanted = f": there is no room for{size} more" if size else ""
    return f"out of memory{wanted}; shorter texts, smaller batches or a smaller model need less"


def _place(path: str) -> str:
    """Name a path, or the folder of one that is being written and yet without its name."""
    while any(p.startswith(".") and p.endswith(".part") for p in Path(path).parts):
        path = os.path.dirname(path)
    return path or "."


def _usage(error: Any) -> str:
    """Say what is wrong with the words of a command."""
    text = str(error.format_message()).rstrip(".").replace(": Value error, ", ": ")
    path = "unmask" if error.ctx is None else error.ctx.command_path
    return f"{path}: {text[:1].lower()}{text[1:]}; see {path} --help"


@contextmanager
def _warnings() -> Generator[None]:
    """Show each warning of the library once, in a line."""
    seen: set[str] = set()

    def new(record: logging.LogRecord) -> bool:
        text = record.getMessage()
        return not (text in seen or seen.add(text))

    handler, logger = logging.StreamHandler(), logging.getLogger("unmask")
    handler.setFormatter(Telling())
    handler.addFilter(new)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def _version(asked: bool) -> bool:
    if asked:
        import unmask

        give(unmask.__version__)
        raise typer.Exit
    return asked


@app.callback()
def options(
    traceback: Annotated[
        bool, _option("--traceback", help="Show where in the code an error comes from.")
    ] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Take what stands before the command; `run` has looked at it already."""


@app.command()
def demo(
    out: Annotated[
        Path, _option("--out", metavar="FOLDER", help="What an earlier call left there is kept.")
    ] = Path("demo-run"),
    minutes: Annotated[float, _option("--minutes", metavar="M", help="Of pretraining.")] = 4.0,
    seeds: Annotated[
        int, _option("--seeds", metavar="N", help="Of fine-tuning, from either kind of weights.")
    ] = 5,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """See it work: pretrain, fine-tune, write a report, in 8 minutes."""
    from unmask.serving.demo import demo as run

    found = run(out, minutes=minutes, seeds=seeds, quiet=quiet or as_json)
    if as_json:
        facts = {
            "folder": str(found.folder),
            "masked_accuracy": found.masked_accuracy,
            "bigram_accuracy": found.bigram_accuracy,
            "arms": found.tuned.summary(),
            "boxed": found.boxed.summary(),
            "seconds": found.seconds,
        }
        give_json(facts)


@app.command()
def models(
    family: Annotated[
        str | None, _option("--family", metavar="NAME", help="Only this one.")
    ] = None,
    as_json: Json = False,
) -> None:
    """List the models in this package and the catalogue."""
    from unmask.published.catalogue import MODELS
    from unmask.serving.describe import boxed, card_facts, card_line

    families = sorted({card.family for card in MODELS.values()})
    if family is not None and family not in families:
        raise ValueError(f"--family must be one of {', '.join(families)}, got {family!r}")
    cards = [card for card in [*boxed(), *MODELS.values()] if family in (None, card.family)]
    if as_json:
        give_json([card_facts(card) for card in cards])
        return
    for card in cards:
        tell(card_line(card))


@app.command()
def show(model: Card, as_json: Json = False) -> None:
    """Describe a model: paper, parts, parameters, FLOPs, memory."""
    from unmask.serving.describe import describe, text

    facts = describe(model)
    if as_json:
        give_json(facts)
        return
    for line in text(facts):
        tell(line)


@app.command()
def hide(
    model: Card,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="Hidden from; - reads stdin.")],
    objective: Asked = None,
    seed: Annotated[int, _option("--seed", metavar="N", help="Another hides other places.")] = 0,
    changes: Annotated[
        list[str] | None,
        _option("--set", metavar="KEY=VALUE", help="Of the objective: choose.rate=0.3."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show what a model would see of a text, and be asked."""
    import unmask

    given = _text(text)
    if text == "-":
        given = "\n".join(line for _, line in _standard_input("strict") if line)
    explanation = unmask.hidden(model, given, objective=objective, seed=seed, changes=changes or [])
    if as_json:
        give(explanation.to_json())
    else:
        render(explanation.render(columns()), wrap=False)


@app.command()
def prepare(
    corpus: Annotated[
        list[str],
        typer.Argument(metavar="PATH", help="Files, folders, quoted patterns, hf:owner/name."),
    ],
    out: Annotated[Path, _option("--out", metavar="FOLDER", help="A new one, or to go on in.")],
    model: Annotated[
        str, _option("--model", metavar="MODEL", help="Whose kind of tokenizer to learn.")
    ] = "bert-mini",
    tokenizer: Folder = None,
    vocab_size: Annotated[
        int | None, _option("--vocab-size", metavar="N", help="Of the learned tokenizer.")
    ] = None,
    character_coverage: Annotated[
        float | None,
        _option(
            "--character-coverage",
            metavar="X",
            help="Share of the text whose characters the learned tokenizer knows.",
        ),
    ] = None,
    objective: Asked = None,
    document: Document = "blank",
    text: Column = None,
    encoding_errors: Encoding = "strict",
    sampling: Annotated[
        float, _option("--sampling", metavar="X", help=f"{SAMPLING} Of what a tokenizer reads.")
    ] = 1.0,
    workers: Annotated[int, _option("--workers", metavar="N", help="Processes that tokenize.")] = 1,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Tokenize a corpus once for many runs."""
    import unmask

    shards = unmask.prepare(
        corpus,
        out=out,
        model=model,
        tokenizer=tokenizer,
        vocab_size=vocab_size,
        character_coverage=character_coverage,
        objective=objective,
        document=document,
        text=text,
        encoding_errors=encoding_errors,
        sampling=sampling,
        workers=workers,
        quiet=quiet,
    )
    facts = {
        "folder": str(out),
        "tokens": shards.n_tokens,
        "documents": shards.n_documents,
        "bytes": shards.n_bytes,
        "skipped": shards.n_skipped,
        "vocab_size": shards.tokenizer.size,
    }
    if as_json:
        give_json(facts)
        return
    tell(
        f"{out}: {shards.n_tokens:,} tokens in {shards.n_documents:,} documents, "
        f"{shards.n_bytes / max(shards.n_tokens, 1):.2f} bytes a token, "
        f"{shards.tokenizer.size:,} kinds of tokens"
    )


@app.command()
def pretrain(
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="MODEL",
            help="A card's name (unmask models), or a recipe file (.toml). Not needed with "
            "--resume.",
        ),
    ] = None,
    more: MoreData = None,
    data: Data = None,
    out: Annotated[Path, _option("--out", metavar="FOLDER", help="The run's folder.")] = Path(
        "runs/pretrained"
    ),
    steps: Annotated[
        int | None, _option("--steps", metavar="N", help="Steps of the optimizer.")
    ] = None,
    tokens: Annotated[
        int | None, _option("--tokens", metavar="N", help="Or: tokens to read, padding included.")
    ] = None,
    minutes: Annotated[
        float | None, _option("--minutes", metavar="M", help="Or: minutes to train.")
    ] = None,
    begin: Annotated[
        str | None,
        _option("--from", metavar="MODEL", help="Weights to go on from: a folder, hf:owner/name."),
    ] = None,
    tokenizer: Folder = None,
    vocab_size: Annotated[
        int | None, _option("--vocab-size", metavar="N", help="Of the learned tokenizer.")
    ] = None,
    length: Annotated[
        int | None, _option("--length", metavar="N", help="Tokens that are read together.")
    ] = None,
    document: Annotated[
        Literal["blank", "line", "file"] | None,
        _option("--document", help="What in .txt is a document: what blank lines part, a line..."),
    ] = None,
    text: Column = None,
    encoding_errors: Annotated[
        Literal["strict", "replace"] | None,
        _option("--encoding-errors", help="Of bytes that are not UTF-8, make an error or U+FFFD."),
    ] = None,
    sampling: Annotated[float | None, _option("--sampling", metavar="X", help=SAMPLING)] = None,
    seed: Annotated[
        int | None, _option("--seed", metavar="N", help="Of everything that is drawn.")
    ] = None,
    objective: Asked = None,
    checkpoint_every: Annotated[
        int | None, _option("--checkpoint-every", metavar="N", help="Steps.")
    ] = None,
    changes: Annotated[
        list[str] | None,
        _option("--set", metavar="KEY=VALUE", help="Any other key of the recipe: rate=5e-4."),
    ] = None,
    resume: Resume = False,
    workers: Annotated[
        int, _option("--workers", metavar="N", help="Processes that make batches.")
    ] = 0,
    device: Device = "auto",
    threads: Annotated[
        int | None, _option("--threads", metavar="N", help="That compute.", default="all cores")
    ] = None,
    tensorboard: Annotated[
        bool, _option("--tensorboard", help="Also write TensorBoard's files.")
    ] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Train a model on your text, from scratch or from given weights.

    Ctrl-C ends it after the step and keeps all; killed or not, --resume goes on to the same result.
    """
    import unmask

    pipeline = unmask.pretrain(
        model,
        data=[*(data or ()), *(more or ())],
        out=out,
        steps=steps,
        tokens=tokens,
        minutes=minutes,
        begin=begin,
        tokenizer=tokenizer,
        vocab_size=vocab_size,
        length=length,
        document=document,
        text=text,
        encoding_errors=encoding_errors,
        sampling=sampling,
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
        return  # of the processes that torchrun started, the first one speaks
    if as_json:
        parameters = pipeline.model.parameter_count()
        evaluation = _last_evaluation(out)
        give_json({"folder": str(out), "parameters": parameters, "evaluation": evaluation})
    else:
        tell(f"{out}: done; the report is {out / 'report.html'}")


def _last_evaluation(out: Path) -> dict[str, Any]:
    from unmask.serving.record import read_record

    evaluation = read_record(out).evaluation
    return {name: evaluation.last(name) for name in evaluation.columns}


@app.command()
def finetune(
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="MODEL",
            help="As for other commands, or the name of a card: then all weights are drawn at "
            "random. Not needed with --resume.",
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
        _option("--task", help="What is learned."),
    ] = None,
    train: Annotated[
        str | None,
        _option(
            "--train",
            metavar="FILE",
            help="Labelled rows: .tsv, .csv, .json, .jsonl, .parquet, .conllu, .conll; to generate "
            "also a mixture of tasks, .toml.",
        ),
    ] = None,
    tasks: Annotated[
        str | None,
        _option(
            "--tasks",
            metavar="SUITE",
            help="A run for each of as-text, choices, glue, imdb-few, nli, questions, sentiment, "
            "sick, summaries, tagger, tags, text-to-text, topics, trec-few, or of a .toml file, "
            "in place of --task and --train.",
        ),
    ] = None,
    data: Annotated[
        Path | None,
        _option("--data", metavar="FOLDER", help="Of the files of --tasks.", default="the Hub"),
    ] = None,
    dev: Annotated[
        str | None,
        _option(
            "--dev", metavar="FILE", help="Chooses the best state.", default="a tenth of --train"
        ),
    ] = None,
    test: Annotated[
        str | None, _option("--test", metavar="FILE", help="Scored once, at the end.")
    ] = None,
    out: Annotated[Path, _option("--out", metavar="FOLDER", help="The run's folder.")] = Path(
        "runs/finetuned"
    ),
    text: Annotated[
        list[str] | None,
        _option("--text", metavar="COLUMN", help="Of text; of pairs, given twice."),
    ] = None,
    label: Annotated[
        str | None, _option("--label", metavar="COLUMN", help="Of labels, numbers or tags.")
    ] = None,
    choices: Annotated[
        list[str] | None,
        _option("--choices", metavar="COLUMN", help="Of options to choose from; one or several."),
    ] = None,
    labels: Annotated[
        str | None,
        _option("--labels", metavar="A,B,...", help="All, in order.", default="those of --train"),
    ] = None,
    rows: Annotated[
        int | None,
        _option(
            "--rows", metavar="N", help="Learn from so many rows; --dev and --test are read whole."
        ),
    ] = None,
    columns: Annotated[
        str | None,
        _option("--columns", metavar="A,B,...", help="Names of all columns, without a header."),
    ] = None,
    options: Annotated[
        list[str] | None,
        _option("--option", metavar="KEY=VALUE", help="What else the task lets one choose."),
    ] = None,
    tune: Annotated[
        str,
        _option(
            "--tune",
            metavar="HOW",
            help="full, frozen, top, mix, gradual, bitfit, houlsby, pfeiffer, adamix, lora, ia3, "
            "prefix, prompt or source; with differences: lora:rank=4.",
        ),
    ] = "full",
    initialize: Annotated[
        Literal["pretrained", "random"], _option("--initialize", help="Weights to begin with.")
    ] = "pretrained",
    in_domain: Annotated[
        bool,
        _option(
            "--in-domain", help="First go on with pretraining on the text of the rows, unlabelled."
        ),
    ] = False,
    unlabeled: Annotated[
        list[str] | None,
        _option("--unlabeled", metavar="PATH", help="More text for --in-domain; several."),
    ] = None,
    in_domain_set: Annotated[
        list[str] | None,
        _option(
            "--in-domain-set",
            metavar="KEY=VALUE",
            help="Of --in-domain: epochs=10, or any key of its recipe: rate=1e-3.",
        ),
    ] = None,
    baseline: Annotated[
        bool, _option("--baseline", help="Also tune from random weights, and compare.")
    ] = False,
    metric: Annotated[
        str | None, _option("--metric", metavar="NAME", help="Chooses the best state.")
    ] = None,
    epochs: Annotated[
        float | None, _option("--epochs", metavar="N", help="Passes over the rows.")
    ] = None,
    batch: Annotated[int | None, _option("--batch", metavar="N", help="Rows a step.")] = None,
    rate: Annotated[
        float | None, _option("--rate", metavar="R", help="Peak learning rate.")
    ] = None,
    length: Annotated[
        int | None, _option("--length", metavar="N", help="Tokens read of a row, at most.")
    ] = None,
    batch_tokens: Annotated[
        int | None,
        _option("--batch-tokens", metavar="N", help="A step, padding included; not --batch."),
    ] = None,
    warmup: Annotated[
        float,
        _option(
            "--warmup", metavar="R", help="Share of the steps in which the rate rises, or steps."
        ),
    ] = 0.1,
    schedule: Annotated[
        Literal["linear", "inverse_square_root", "constant"] | None,
        _option("--schedule", help="How the rate then falls.", default="as in the model's paper"),
    ] = None,
    optimizer: Annotated[
        Literal["adamw", "adafactor"],
        _option("--optimizer", help="adafactor: relative rates, 1e-3 and constant as T5's."),
    ] = "adamw",
    average: Annotated[
        int,
        _option(
            "--average", metavar="N", help="Try the mean of the last N evaluated states at the end."
        ),
    ] = 0,
    weight_decay: Annotated[
        float, _option("--weight-decay", metavar="R", help="Of matrices, a step at rate 1.")
    ] = 0.01,
    class_weights: Annotated[
        Literal["balanced"] | None,
        _option("--class-weights", help="Rare labels count more while they are learned."),
    ] = None,
    auxiliary: Annotated[
        float | None,
        _option(
            "--auxiliary",
            metavar="R",
            help="Weight of a decoder's language-model loss.",
            default="0, of GPT 0.5",
        ),
    ] = None,
    dropout: Annotated[
        float | None, _option("--dropout", metavar="R", help="In place of the model's.")
    ] = None,
    name: Annotated[
        str | None,
        _option(
            "--name", metavar="NAME", help="What an encoder-decoder reads before a text: sst2."
        ),
    ] = None,
    evaluate_every: Annotated[
        int | None,
        _option("--evaluate-every", metavar="N", help="Steps.", default="an epoch, at most 1,000"),
    ] = None,
    patience: Annotated[
        int | None,
        _option("--patience", metavar="N", help="End after N evaluations without a better one."),
    ] = None,
    seed: Seed = 0,
    seeds: Annotated[
        int, _option("--seeds", metavar="N", help="So many runs, with mean and spread.")
    ] = 1,
    search: Annotated[
        int,
        _option("--search", metavar="N", help="Try so many rates and batch sizes first."),
    ] = 0,
    precision: Annotated[
        Literal["auto", "float32", "bfloat16"], _option("--precision", help="While training.")
    ] = "auto",
    tokenizer: Annotated[
        Path | None,
        _option(
            "--tokenizer", metavar="FOLDER", help="For a card's name.", default="one is learned"
        ),
    ] = None,
    vocabulary: Annotated[
        str | None,
        _option(
            "--vocabulary",
            metavar="KIND[:SIZE]",
            help="That a card's name learns from the rows: words, characters, bytes, unigram:8000, "
            "...",
            default="the card's kind",
        ),
    ] = None,
    encoding_errors: Encoding = "strict",
    resume: Resume = False,
    device: Device = "auto",
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Fine-tune a model on labelled rows.

    What is left open is decided from the rows and the model, and said. Ctrl-C keeps what was done;
    killed or not, --out FOLDER --resume alone goes on to the same result.
    """
    told = dict(locals())
    import unmask

    if resume and task is None and train is None and tasks is None:
        _check_alone(told)
        _go_on(out, model, device, quiet, as_json)
        return
    if model is None:
        raise ValueError("name the model to begin with; see unmask finetune --help")
    shared: dict[str, Any] = {
        "out": out,
        "rows": rows,
        "tune": tune,
        "initialize": initialize,
        "baseline": baseline,
        "epochs": epochs,
        "batch": batch,
        "rate": rate,
        "length": length,
        "batch_tokens": batch_tokens,
        "warmup": warmup,
        "schedule": schedule,
        "optimizer": optimizer,
        "average": average,
        "weight_decay": weight_decay,
        "class_weights": class_weights,
        "auxiliary": auxiliary,
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
    own: dict[str, Any] = {
        "task": task,
        "train": train,
        "dev": dev,
        "test": test,
        "text": text,
        "label": label,
        "choices": choices,
        "labels": labels,
        "columns": columns,
        "option": options,
        "metric": metric,
        "name": name,
        "in_domain": in_domain or None,
        "unlabeled": unlabeled,
        "in_domain_set": in_domain_set,
    }
    if tasks is not None:
        _finetune_suite(model, tasks, data, own, shared, as_json)
        return
    if task is None or train is None:
        raise ValueError("name --task and --train, or a suite of benchmarks with --tasks")
    if data is not None:
        raise ValueError("--data is where the files of --tasks are; labelled rows are --train")
    try:
        tuned = unmask.finetune(
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
            options=_options(options or ()),
            metric=metric,
            name=name,
            in_domain=_in_domain(in_domain, unlabeled, in_domain_set),
            **shared,
        )
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"{out}: stopped; go on with --resume") from None
    _show_tuned(tuned, out, as_json)


def _in_domain(
    asked: bool, unlabeled: Sequence[str] | None, changes: Sequence[str] | None
) -> "bool | InDomain":
    """Read what the stage between pretraining and the task is told."""
    if not asked:
        _refuse("", " is of --in-domain, which is not given", **{
            "unlabeled": unlabeled, "in-domain-set": changes,
        })  # fmt: skip
        return False
    from dataclasses import fields

    from unmask.config import from_dict
    from unmask.finetuning.in_domain import InDomain
    from unmask.training.recipe import parse

    told: dict[str, Any] = {"unlabeled": list(unlabeled or ()), "changes": []}
    own = {field.name for field in fields(InDomain)} - told.keys()
    for change in changes or ():
        if change.partition("=")[0].strip() in own:
            told |= parse(change)
        else:
            told["changes"].append(change)
    return from_dict(InDomain, told, "--in-domain-set")


def _check_alone(told: Mapping[str, Any]) -> None:
    """Refuse what the record of a run that is resumed says itself."""
    free = {"model", "out", "resume", "device", "quiet", "as_json"}
    for name, parameter in signature(finetune).parameters.items():
        if name not in free and told[name] != parameter.default:
            option = name.replace("_", "-").replace("options", "option")
            raise ValueError(
                "--resume without --task goes on as the run's own record says; leave out "
                f"--{option}, or give all options again"
            )


def _go_on(out: Path, model: str | None, device: str, quiet: bool, as_json: bool) -> None:
    """Go on with a run of fine-tuning, or with a suite of them."""
    from unmask.finetuning import suite
    from unmask.serving.finetune import go_on

    terminal = None if quiet else sys.stderr
    try:
        if (out / suite.FACTS).is_file():
            made = suite.go_on(out, model, device=device, terminal=terminal)
            _show_suite(made, out, as_json)
        else:
            _show_tuned(go_on(out, model, device=device, terminal=terminal), out, as_json)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"{out}: stopped; go on with --resume") from None


def _show_tuned(tuned: "Tuned", out: Path, as_json: bool) -> None:
    """Write the report of a run that is over, and say what came out."""
    import unmask
    from unmask.training.aside import for_the_report

    with for_the_report("report.html"):
        unmask.write_report(out)
    if as_json:
        runs = [
            {"arm": s.arm, "seed": s.seed, "dev": dict(s.dev), "test": dict(s.test)}
            for s in tuned.scored
        ]
        give_json({"folder": str(out), "metric": tuned.task.metric, "runs": runs})
        return
    for line in tuned.summary():
        tell(line)
    tell(f"{out}: done; the report is {out / 'report.html'}")


def _finetune_suite(
    model: str,
    tasks: str,
    data: Path | None,
    own: Mapping[str, Any],
    shared: Mapping[str, Any],
    as_json: bool,
) -> None:
    """Fine-tune on each benchmark of a suite, and show one table."""
    import unmask

    if given := [name for name, value in own.items() if value is not None]:
        raise ValueError(f"--tasks says itself what is learned from what; leave out --{given[0]}")
    out = shared["out"]
    try:
        made = unmask.finetune_suite(model, tasks=tasks, data=data, **shared)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"{out}: stopped; go on with --resume") from None
    _show_suite(made, out, as_json)


def _show_suite(made: "SuiteRun", out: Path, as_json: bool) -> None:
    """Write the report of each run of a suite that is over, and show the table."""
    import unmask
    from unmask.files import read_json
    from unmask.finetuning.suite import AVERAGE
    from unmask.training.aside import for_the_report

    for one in made.entries:
        if not one.error:
            with for_the_report(f"{one.folder}/report.html"):
                unmask.write_report(out / one.folder)
    if as_json:
        give_json(read_json(out / "suite.json"))
        return
    names, rows = made.rows()
    title = f"{made.suite}: {made.base}, tune={made.tune}"
    show_table(title, names, rows[:-1], foot=rows[-1], left=2)
    for note in made.notes:
        tell(note)
    tell(AVERAGE)
    tell(f"{out}: done")


def _options(given: Iterable[str]) -> dict[str, Any]:
    """Read KEY=VALUE."""
    from unmask.training.recipe import merge, parse

    found: dict[str, Any] = {}
    for text in given:
        try:
            found = merge(found, parse(text))
        except ValueError as error:
            raise ValueError(f"--option {text}: {error}") from None
    return found


@app.command()
def evaluate(
    model: Model,
    more: MoreData = None,
    data: Data = None,
    together: Together = None,
    part: Part = None,
    length: Annotated[
        int | None, _option("--length", metavar="N", help="Tokens that are read together.")
    ] = None,
    seed: Annotated[
        int, _option("--seed", metavar="N", help="Of the hidden places, or the examples.")
    ] = 0,
    memory: Annotated[
        int | None,
        _option(
            "--memory",
            metavar="N",
            help="Places before those that each layer remembers.",
            default="as in pretraining",
        ),
    ] = None,
    task: Annotated[
        list[str] | None,
        _option(
            "--task",
            metavar="NAME",
            help="What is done from a prompt alone, with --data its folder: lambada, blimp, "
            "zero-shot for all that are there, or a file (.toml); may be given again. Or "
            "similarity: of pairs of sentences, with --data their files.",
        ),
    ] = None,
    label: Annotated[
        str | None,
        _option(
            "--label", metavar="COLUMN", help="Of labels, numbers or tags; of similarity, too."
        ),
    ] = None,
    choices: ChoiceColumns = None,
    columns: AllColumns = None,
    pooling: Pooled = None,
    layer: Layer = None,
    shots: Annotated[
        str, _option("--shots", metavar="N,N", help="Of --task: examples before each question.")
    ] = "0",
    rows: Annotated[
        int | None,
        _option("--rows", metavar="N", help="Of --task: ask so many, evenly spaced in the file."),
    ] = None,
    stride: Annotated[
        int | None,
        _option("--stride", metavar="N", help="Of perplexity: tokens that a window asks."),
    ] = None,
    hide: Annotated[
        Literal["word", "token"],
        _option("--hide", help="From a masked model that is asked for a token: its word's rest."),
    ] = "word",
    document: Document = "blank",
    text: Annotated[
        list[str] | None,
        _option(
            "--text",
            metavar="COLUMN",
            help="Of text in held-out records, or labelled rows; of pairs, given twice.",
        ),
    ] = None,
    case: Annotated[
        Literal["auto", "keep", "lower"],
        _option(
            "--case",
            help="Of word vectors: how words of the data are looked up; auto: in lower case where "
            "the vectors know no other.",
        ),
    ] = "auto",
    limit: Limit = None,
    encoding_errors: Encoding = "strict",
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Score a model on held-out text, on labelled rows, or on tasks done from a prompt.

    One that was pretrained is asked what it was asked then; one that was fine-tuned labels the rows
    of a file, whose columns are those of its training file. With --task either goes on from
    prompts, or says which answer is likelier; or its vectors of sentences are compared, whatever
    it learned: with --task similarity. A file of word vectors is scored on files of word pairs with
    people's scores, and of analogies (in the format of questions-words.txt).
    """
    sources = [*(data or ()), *(more or ())]
    if task == ["similarity"]:
        others = {"rows": rows, "stride": stride, "length": length, "memory": memory, "text": text}
        _refuse("--task similarity; leave out ", shots=shots != "0", **others)
        how = {"label": label, "pooling": pooling, "layer": layer, "limit": limit}
        _evaluate_similarity(model, sources, device, encoding_errors, how, as_json)
        return
    vectors_of = {"pooling": pooling, "layer": layer}
    _refuse("", " is of --task similarity, which is not given", **vectors_of)
    named = {"label": label, "choices": choices, "columns": columns}
    if _names_vectors(model) and not _fine_tuned(model):
        others = {"rows": rows, "stride": stride, "length": length, "memory": memory, "text": text}
        others |= {"task": task, "with": together, "part": part} | named
        _refuse(f"{model}: word vectors; leave out ", shots=shots != "0", **others)
        _evaluate_space(model, sources, case, limit, encoding_errors, as_json)
        return
    _refuse(f"{model}: ", " is for a file of word vectors", case=case != "auto", limit=limit)
    if task:
        labelling = {"with": together, "part": part} | named
        _refuse("", " is for models that label, and not for --task", **labelling)
        how = {
            "seed": seed, "rows": rows, "length": length, "stride": stride, "memory": memory,
            "hide": hide,
        }  # fmt: skip
        _evaluate_tasks(_load(model, device), task, sources, shots, how, as_json)
        return
    _refuse("", " is of --task, which is not given", shots=shots != "0", rows=rows, stride=stride)
    if not sources:
        raise ValueError("no data: name held-out text, or labelled rows, with --data")
    pipeline = _load(model, device)
    if part is not None:
        pipeline = pipeline.part(part)
    if together or pipeline.labelled:
        if len(sources) > 1:
            raise ValueError(f"{model}: labels; give one file of labelled rows, got {len(sources)}")
        _refuse(f"{model}: labels; ", " is for held-out text", length=length, memory=memory)
        asked = _together(pipeline, together, device)
        scores = asked.score(
            sources[0],
            **_columns(text, choices, columns),
            label=label,
            encoding_errors=encoding_errors,
        )
        _show_scores((f"{name:20} {value:.4f}" for name, value in scores.items()), scores, as_json)
        return
    _refuse("", " is of labelled rows, and this model labels nothing", **named)
    if text is not None and len(text) > 1:
        raise ValueError(f"--text: held-out text is in one column, got {len(text)}")
    result = pipeline.evaluate(
        sources,
        length=length,
        seed=seed,
        memory=memory,
        document=document,
        text=None if text is None else text[0],
        encoding_errors=encoding_errors,
    )
    _show_scores(_scored(result), vars(result), as_json)


def _names_vectors(model: str) -> bool:
    """Say whether a MODEL is a file of word vectors."""
    from unmask.serving.spaces import is_vectors

    return is_vectors(model)


def _fine_tuned(model: str) -> bool:
    """Say whether a MODEL is the folder of a fine-tuned one, be it word vectors below its head."""
    from unmask.files import read_object

    facts = Path(model) / "unmask.json"
    return facts.is_file() and read_object(facts).get("task") is not None


def _evaluate_space(
    model: str,
    sources: Sequence[str],
    case: Literal["auto", "keep", "lower"],
    limit: int | None,
    encoding_errors: Literal["strict", "replace"],
    as_json: bool,
) -> None:
    """Score word vectors, and show tables."""
    import unmask
    from unmask.serving.spaces import plain, table

    if not sources:
        raise ValueError("no data: name files of word pairs or of analogies with --data")
    found = unmask.evaluate_space(
        model,
        sources,
        case=case,
        limit=limit,
        encoding_errors=encoding_errors,
        terminal=sys.stderr,
    )
    _show_scores(table(found), {"scores": [plain(one) for one in found]}, as_json)


def _evaluate_similarity(
    model: str,
    sources: Sequence[str],
    device: str,
    encoding_errors: Literal["strict", "replace"],
    how: Mapping[str, Any],
    as_json: bool,
) -> None:
    """Score sentences' vectors on pairs, and show one table."""
    import unmask
    from unmask.serving.sentences import table

    if not sources:
        raise ValueError("no data: name files of pairs of sentences and scores with --data")
    opened = model if _names_vectors(model) else _load(model, device)
    found = [
        unmask.evaluate_similarity(opened, path, encoding_errors=encoding_errors, **how)
        for path in sources
    ]
    _show_scores(table(found), {"scores": [vars(one) for one in found]}, as_json)


def _refuse(begin: str, end: str = "", /, **given: object) -> None:
    """Say, about its name, why the first of some options that was given may not be."""
    for name, value in given.items():
        if value is not None and value is not False:
            raise ValueError(f"{begin}--{name.replace('_', '-')}{end}")


def _evaluate_tasks(
    pipeline: "Pipeline",
    tasks: Sequence[str],
    sources: Sequence[str],
    shots: str,
    how: Mapping[str, Any],
    as_json: bool,
) -> None:
    """Score what is done from a prompt, and show one table."""
    import unmask
    from unmask.serving.evaluating import plain, table

    if len(sources) > 1:
        raise ValueError(f"--data must name one folder with --task, got {len(sources)}")
    try:
        counts = [int(n) for n in shots.split(",")]
    except ValueError:
        raise ValueError(f"--shots must be numbers with commas between, got {shots!r}") from None
    data = sources[0] if sources else None
    found = unmask.evaluate_tasks(
        pipeline, tasks, data=data, shots=counts, terminal=sys.stderr, **how
    )
    _show_scores(table(found), {"scores": [plain(one) for one in found]}, as_json)


def _show_scores(lines: Iterable[str], data: Mapping[str, Any], as_json: bool) -> None:
    """Print scores."""
    if as_json:
        give_json(data)
        return
    for line in lines:
        tell(line)


def _scored(result: "Evaluation") -> Iterator[str]:
    yield f"{result.documents:,} documents, {result.words:,} words, {result.tokens:,} tokens"
    for name, loss in result.loss.items():
        line = f"{name.replace('_', ' '):14} loss {loss:.4f}"
        if name in result.perplexity:
            line += f"  perplexity {result.perplexity[name]:,.2f}"
        if name in result.accuracy:
            line += f"  accuracy {result.accuracy[name]:.2%}"
        yield line + f"  of {result.asked[name]:,} asked"
    if result.word_perplexity is not None:
        yield f"perplexity per word {result.word_perplexity:,.2f}"
    if result.bits_per_byte is not None:
        yield f"bits per byte {result.bits_per_byte:.4f}"


@app.command()
def predict(
    model: Model,
    texts: Texts = None,
    together: Together = None,
    input: Annotated[
        Path | None,
        _option(
            "--input",
            metavar="FILE",
            help="Rows with the columns of training; or .txt, whose lines are read as TEXT is.",
        ),
    ] = None,
    text: TextColumns = None,
    choices: ChoiceColumns = None,
    columns: AllColumns = None,
    part: Part = None,
    encoding_errors: Encoding = "strict",
    device: Device = "auto",
    as_json: Annotated[bool, _option("--json", help="Print JSON, as it does anyway.")] = False,
) -> None:
    """Label texts with a fine-tuned model.

    Prints a line of JSON for each. A pair of texts is a line with a tab between them, as is a
    question and the text that answers it, or a text and its options; words to be tagged are parted
    by spaces. In a file, a pair is two columns: --text premise --text hypothesis.
    """
    if input is None:
        _refuse("", " is of --input, which is not given", text=text, choices=choices,
                columns=columns)  # fmt: skip
    pipeline = _load(model, device)
    pipeline = _together(pipeline if part is None else pipeline.part(part), together, device)
    given: Iterable[Any]
    if input is None:
        given = map(_reader(pipeline), _texts(texts, None, None, encoding_errors))
    else:
        _not_both(texts, input)
        how = _columns(text, choices, columns)
        given = pipeline.rows(input, **how, encoding_errors=encoding_errors)
    for text, answer in _answered(given, pipeline.predict):
        said = answer if isinstance(answer, dict) else {"number": answer}
        give_json({"text": text} | said)


def _columns(
    text: Sequence[str] | None, choices: Sequence[str] | None, columns: str | None
) -> dict[str, Sequence[str]]:
    """Return the columns of a file that are named."""
    names = () if columns is None else columns.split(",")
    return {"text": text or (), "choices": choices or (), "columns": names}


def _together(
    pipeline: "Pipeline", others: Sequence[str] | None, device: str
) -> "Pipeline | Ensemble":
    """Return what answers for a model and others; itself, where there are none."""
    if not others:
        return pipeline
    from unmask.serving.ensemble import Ensemble

    return Ensemble([pipeline, *(_load(other, device) for other in others)])


def _reader(pipeline: "Pipeline | Ensemble") -> Callable[[str], Any]:
    """Return what makes of a line what a model labels."""
    from unmask.finetuning.kinds.catalogue import TASK_KINDS
    from unmask.finetuning.predict import task_of

    task = pipeline.task or task_of(pipeline.opened)
    return partial(TASK_KINDS[task.does].files.line, task)


@app.command()
def fill(
    model: Model,
    texts: Texts = None,
    input: Input = None,
    text: Column = None,
    top_k: Annotated[int, _option("--top-k", metavar="K", help="Candidates for each blank.")] = 5,
    encoding_errors: Encoding = "strict",
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Say what may stand at each [MASK] of a text."""
    pipeline = _load(model, device)
    all_texts = _texts(texts, input, text, encoding_errors)
    for given, filled in _answered(all_texts, lambda some: pipeline.fill(some, top_k=top_k)):
        if as_json:
            blanks = [[vars(c) for c in blank] for blank in filled.blanks]
            give_json({"text": given, "filled": filled.text, "blanks": blanks})
            continue
        tell(filled.text)
        for i, blank in enumerate(filled.blanks, 1):
            number = f"{i}: " if len(filled.blanks) > 1 else ""
            tell(f"  {number}" + "   ".join(_candidate(c.text, c.probability) for c in blank))


def _candidate(text: str, probability: float | None) -> str:
    return (text or "(nothing)") if probability is None else f"{text} {probability:.1%}"


@app.command()
def generate(
    model: Model,
    prompt: Annotated[
        list[str] | None,
        _option("--prompt", metavar="TEXT", help="What to go on from, or to answer."),
    ] = None,
    input: Input = None,
    text: Column = None,
    begin: Annotated[
        str, _option("--begin", metavar="TEXT", help="What each answer begins with.")
    ] = "",
    choice: Annotated[
        list[str] | None,
        _option("--choice", metavar="TEXT", help="An answer to choose from; is given again."),
    ] = None,
    new_tokens: Annotated[
        int | None, _option("--new-tokens", metavar="N", help="At most so many.", default="50")
    ] = None,
    min_new_tokens: Annotated[
        int | None,
        _option("--min-new-tokens", metavar="N", help="The model may not end its text before."),
    ] = None,
    stop: Annotated[
        list[str] | None,
        _option("--stop", metavar="TEXT", help="End before it; may be given again."),
    ] = None,
    temperature: Annotated[
        float | None,
        _option(
            "--temperature", metavar="T", help="Draw tokens; 0: always the likeliest.", default="0"
        ),
    ] = None,
    top_k: Annotated[
        int | None, _option("--top-k", metavar="K", help="Draw among the K likeliest.")
    ] = None,
    top_p: Annotated[
        float | None,
        _option("--top-p", metavar="P", help="Draw among the fewest with this probability."),
    ] = None,
    min_p: Annotated[
        float | None,
        _option("--min-p", metavar="P", help="Draw among those P times as likely as the best."),
    ] = None,
    typical: Annotated[
        float | None,
        _option("--typical", metavar="P", help="Draw among the most typical of this probability."),
    ] = None,
    seed: Annotated[int | None, _option("--seed", metavar="N", help="Of what is drawn.")] = None,
    samples: Annotated[
        int | None,
        _option("--samples", metavar="N", help="Draw N texts, and print the likeliest."),
    ] = None,
    beams: Annotated[
        int | None, _option("--beams", metavar="N", help="Search among N texts side by side.")
    ] = None,
    best: Annotated[
        int | None, _option("--best", metavar="N", help="Print the N best of beams or samples.")
    ] = None,
    length_penalty: Annotated[
        float | None,
        _option(
            "--length-penalty",
            metavar="X",
            help="Beams are ranked by log-probability / tokens ** X.",
            default="1",
        ),
    ] = None,
    early_stopping: Annotated[
        Literal["true", "false", "never"] | None,
        _option(
            "--early-stopping",
            help="End the search with N texts (true), or if none seems better (never: is).",
            default="false",
        ),
    ] = None,
    repetition_penalty: Annotated[
        float | None,
        _option("--repetition-penalty", metavar="X", help="Above 1: avoid tokens there were."),
    ] = None,
    no_repeat: Annotated[
        int | None, _option("--no-repeat", metavar="N", help="Say no N tokens twice in a row.")
    ] = None,
    window: Annotated[
        bool, _option("--window", help="Read only the last tokens that fit, and go on beyond.")
    ] = False,
    draft: Annotated[
        str | None,
        _option("--draft", metavar="MODEL", help="A smaller model that guesses: the same, faster."),
    ] = None,
    guesses: Annotated[
        int | None, _option("--guesses", metavar="N", help="Of the draft at a time.", default="4")
    ] = None,
    source_language: Annotated[
        str | None,
        _option("--source-language", metavar="CODE", help="Of prompts, where a token says it."),
    ] = None,
    target_language: Annotated[
        str | None,
        _option("--target-language", metavar="CODE", help="Of answers.", default="the prompts'"),
    ] = None,
    stream: Annotated[
        bool | None,
        typer.Option(
            "--stream/--no-stream",
            help="Print text as it comes.",
            show_default="on a terminal, for one prompt",
        ),
    ] = None,
    encoding_errors: Encoding = "strict",
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Go on from a prompt; an encoder-decoder answers it."""
    early = {None: None, "true": True, "false": False, "never": "never"}
    named = {
        "new_tokens": new_tokens,
        "min_new_tokens": min_new_tokens,
        "stop": stop,
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "min_p": min_p,
        "typical": typical,
        "seed": seed,
        "samples": samples,
        "beams": beams,
        "best": best,
        "length_penalty": length_penalty,
        "early_stopping": early[early_stopping],
        "repetition_penalty": repetition_penalty,
        "no_repeat": no_repeat,
        "window": window or None,
    }
    settings = {name: value for name, value in named.items() if value is not None}
    say = _Say(settings, begin, choice or [], draft, guesses, stream, as_json)
    if target_language is not None and source_language is None:
        raise ValueError("--target-language is of answers: give --source-language, too")
    pipeline = _load(model, device)
    if source_language is not None:
        pipeline = pipeline.told(source_language, target_language)
    # All at once: what is drawn for a prompt that is given again depends on those before it.
    say(pipeline, list(_texts(prompt, input, text, encoding_errors)), device)


@dataclass(frozen=True)
class _Say:
    """What `generate` shall do with prompts; mistakes are told before a model is opened."""

    settings: Mapping[str, Any]
    begin: str
    choices: Sequence[str]
    draft: str | None
    guesses: int | None
    stream: bool | None
    as_json: bool

    def __post_init__(self) -> None:
        from unmask.generation.settings import decoding

        decoding(**self.settings)
        others = sorted(self.settings.keys() - {"beams"})
        if self.choices and (others or self.begin or self.draft is not None or self.stream):
            also = others or ["begin"] * bool(self.begin) or ["draft" if self.draft else "stream"]
            raise ValueError(
                f"--choice goes with --beams alone, got --{also[0].replace('_', '-')}, too"
            )
        if self.guesses is not None and self.draft is None:
            raise ValueError("--guesses is how many tokens a draft guesses: give --draft, too")
        for name in ("json", "best", "beams", "samples"):
            if self.stream and (self.as_json if name == "json" else name in self.settings):
                raise ValueError(f"--stream prints text as it comes: give --stream or --{name}")

    def __call__(self, pipeline: "Pipeline", prompts: Sequence[str], device: str) -> None:
        """Answer prompts."""
        goes_on = "next_token" in pipeline.card.objective.asks
        more: dict[str, Any] = dict(self.settings) | {"begin": self.begin}
        if self.draft is not None:
            smaller = _load(self.draft, device)
            more["draft"] = pipeline.draft(smaller, guesses=self.guesses or 4)
        if self.choices:
            beams = self.settings.get("beams")
            for prompt in prompts:
                found = pipeline.choose(prompt, self.choices, beams=beams)
                self._show(prompt, found, goes_on)
        elif self.settings.get("best", 1) > 1:
            for prompt, found in zip(prompts, pipeline.candidates(prompts, **more), strict=True):
                self._show(prompt, found, goes_on)
        elif self._streams(len(prompts)):
            _streamed(prompts[0] if goes_on else "", pipeline.stream(prompts[0], **more))
        else:
            for before, after in zip(prompts, pipeline.generate(prompts, **more), strict=True):
                if self.as_json:
                    give_json({"prompt": before, "text": after})
                else:
                    give(before + after if goes_on else after)
        if "draft" in more:
            made = more["draft"]
            tell(f"draft: {made.share:.0%} of {made.guessed:,} guesses accepted", sys.stderr)

    def _streams(self, prompts: int) -> bool:
        if self.stream is None:
            plain = not (self.as_json or self.settings.keys() & {"beams", "samples"})
            return plain and prompts == 1 and sys.stdout.isatty()
        if self.stream and prompts != 1:
            raise ValueError(f"--stream is for one prompt, got {prompts:,}")
        return self.stream

    def _show(self, prompt: str, found: Sequence["Answered"], goes_on: bool) -> None:
        """Print several answers, the best first, each with its score."""
        if self.as_json:
            give_json(
                {"prompt": prompt, "text": found[0].text, "best": [vars(one) for one in found]}
            )
            return
        for one in found:
            give(f"{one.score:.4f}\t{cell(prompt + one.text if goes_on else one.text)}")


def _streamed(before: str, pieces: Iterable[str]) -> None:
    """Print text as it comes; what was said stays whole when it is interrupted."""
    give(before, end="", now=True)
    try:
        for piece in pieces:
            give(piece, end="", now=True)
    finally:
        give("", now=True)


@app.command()
def embed(
    model: Model,
    texts: Texts = None,
    input: Input = None,
    text: Column = None,
    pooling: Annotated[
        Literal["mean", "first", "last", "ends", "none"] | None,
        _option(
            "--pooling",
            help="Of which tokens a text's vector is made; ends: what both directions say last; "
            "none: one for each.",
            default="the card's: mean, of skip- and quick-thoughts last",
        ),
    ] = None,
    layer: Layer = None,
    out: Annotated[
        Path | None, _option("--out", metavar="FILE", help="Write a NumPy array [n d] instead.")
    ] = None,
    limit: Limit = None,
    encoding_errors: Encoding = "strict",
    device: Device = "auto",
    as_json: Annotated[bool, _option("--json", help="Print JSON, as it does anyway.")] = False,
) -> None:
    """Turn texts into vectors.

    Prints a line of JSON for each, or writes a .npy file. Of a file of word vectors, a text's
    vector is the mean of those of its words.
    """
    if out is not None and pooling == "none":
        raise ValueError("--out takes one vector a text; --pooling none gives one a token")
    if out is not None and not out.parent.is_dir():
        raise FileNotFoundError(f"{out}: there is no folder {out.parent}")
    found = _answered(
        _texts(texts, input, text, encoding_errors, blanks=True),
        _encoder(model, device, pooling, layer, limit),
    )
    if out is not None:
        _write_array(out, [vector for _, vector in found])
        return
    for given, vector in found:
        give_json({"text": given, "vector": vector.tolist()})


def _encoder(
    model: str, device: str, pooling: str | None, layer: int | None, limit: int | None
) -> Callable[[list[str]], Iterable[Any]]:
    """Return what turns texts into vectors: a model, or word vectors."""
    how: dict[str, Any] = {"pooling": pooling}
    if _names_vectors(model):
        from unmask.serving.sentences import encoder

        encode = encoder(model, layer=layer, limit=limit, **how)
        return lambda texts: _said_of_zeros(encode(texts))
    _refuse(f"{model}: ", " is for a file of word vectors", limit=limit)
    return partial(_load(model, device).embed, layer=-1 if layer is None else layer, **how)


def _said_of_zeros(vectors: Any) -> Any:
    """Return vectors of texts, and say that some are of no word."""
    if not vectors.any(1).all():
        logging.getLogger("unmask").warning(
            "a text has no word that has a vector: all of its numbers are zero"
        )
    return vectors


def _write_array(path: Path, rows: Sequence[Any]) -> None:
    import io

    import numpy as np

    from unmask.files import write_whole

    buffer = io.BytesIO()
    np.save(buffer, np.stack(rows), allow_pickle=False)
    write_whole(path, buffer.getvalue())
    tell(f"{path}: {len(rows):,} vectors of {len(rows[0]):,} numbers", sys.stderr)


@app.command()
def convert(
    source: Model,
    target: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="A new one; of word vectors, a new file.")
    ],
    to: Annotated[
        Literal[
            "huggingface", "unmask", "elmo", "word2vec-text", "word2vec-binary", "glove", "fasttext"
        ]
        | None,
        _option(
            "--to",
            help="The first two open in transformers, but for heads that it lacks; both keep the "
            "task of a fine-tuned model, and unmask what pretraining asked. elmo is the layout of "
            "ELMo's own code. The others are of word vectors.",
            default="huggingface; of vectors, what the file's name says",
        ),
    ] = None,
    average: Annotated[
        int | None,
        _option(
            "--average",
            metavar="N",
            help="The mean of the last N checkpoints of a pretraining run.",
        ),
    ] = None,
    vectors: Annotated[
        str | None,
        _option(
            "--expand",
            metavar="VECTORS",
            help="Add the words of a file of vectors, mapped into the model's own: an encoder that "
            "knows them, and names no tokens.",
        ),
    ] = None,
    limit: Limit = None,
    white: Annotated[
        str | None,
        _option(
            "--white-space",
            metavar="TEXT",
            help="Of word vectors: write this for white space in words, _ for instance.",
            default="an error",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Convert a model between formats, average what a run passed last, or give it more words.

    Word vectors (.vec, .bin, .txt) are written for word2vec, gensim and fastText (word2vec-text),
    word2vec and gensim (word2vec-binary), or as GloVe has them; a run of fasttext also as
    fastText's own model (fasttext), with its n-grams.
    """
    as_model = Path(source).is_dir() and to in ("huggingface", "unmask")
    if _names_vectors(source) and not as_model:
        _refuse(f"{source}: word vectors; ", " is of a pretraining run", average=average)
        _refuse(f"{source}: word vectors; leave out ", expand=vectors)
        _convert_space(source, target, to, limit, white, as_json)
        return
    rest = {"limit": limit if vectors is None else None, "white_space": white}
    _refuse(f"{source}: ", " is for a file of word vectors", **rest)
    from unmask.checkpoints.huggingface import opens_where
    from unmask.serving.folders import check_mean, check_new, model_format, take_mean

    form = model_format(to)
    check_new(Path(target))
    if average is not None:
        check_mean(average)
    pipeline = _load(source, "cpu")
    if average is not None:
        take_mean(pipeline.model, Path(source), average)
    if vectors is not None:
        import unmask

        expanded = unmask.expand(pipeline, vectors, limit=limit)
        pipeline = expanded.pipeline
        tell(
            f"{expanded.added:,} words are new, by a map from {expanded.shared:,} that both knew",
            sys.stderr,
        )
    pipeline.save(target, format=form)
    opened = pipeline.opened
    if opened.tokenizer is None:
        tell(f"{source}: has no tokenizer, so {target} has none either", sys.stderr)
    note = opens_where(opened.card, opened.model.specs)
    if note is not None and form != "elmo":
        tell(f"{target}: {note}", sys.stderr)
    if as_json:
        facts = {"folder": target, "tokenizer": opened.tokenizer is not None}
        give_json(facts | {"missing": opened.missing, "extra": opened.extra})
    else:
        give(target)


def _convert_space(
    source: str, target: Path, to: str | None, limit: int | None, white: str | None, as_json: bool
) -> None:
    """Write word vectors in another format."""
    import unmask
    from unmask.serving.spaces import vectors_format

    form = vectors_format(to)
    try:
        space = unmask.convert_space(source, target, form=form, limit=limit, white=white)
    except ValueError as error:
        hint = " (--white-space _)" if "white space cannot be" in str(error) else ""
        hint = " (--to)" if "name the format" in str(error) else hint
        raise ValueError(f"{error}{hint}") from None
    facts = {"file": str(target), "words": len(space), "width": space.width}
    if as_json:
        give_json(facts)
    else:
        tell(f"{target}: {len(space):,} words, {space.width:,} numbers each")


@app.command()
def neighbors(
    vectors: Annotated[
        str,
        typer.Argument(
            metavar="VECTORS",
            help="A file of word vectors: word2vec's .vec and .bin, GloVe's .txt, each also .gz, "
            ".xz, .zst; fastText's model.bin. With --among also a MODEL.",
        ),
    ],
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="WORD",
            help="Of several, what is near to all of them together. With --among a sentence; of "
            "several, what is near to each.",
        ),
    ],
    k: Annotated[int, _option("-k", "--top-k", metavar="K", help="So many.")] = 10,
    minus: Annotated[
        list[str] | None,
        _option("--minus", metavar="WORD", help="To be far from; may be given again."),
    ] = None,
    multiply: Annotated[
        bool, _option("--multiply", help="3CosMul: multiply cosines, do not add vectors.")
    ] = False,
    among: Annotated[
        str | None,
        _option(
            "--among",
            metavar="FILE",
            help="Look for the nearest sentences of a file: a line each, or records as for --data.",
        ),
    ] = None,
    word: Annotated[
        str | None,
        _option(
            "--word",
            metavar="WORD",
            help="With --among: compare this word of each sentence, as it is used there.",
        ),
    ] = None,
    text: Column = None,
    pooling: Pooled = None,
    layer: Layer = None,
    limit: Limit = None,
    encoding_errors: Encoding = "strict",
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Show the words whose vectors are near to those of others, or the sentences of a file.

    What is to woman as king is to man? neighbors VECTORS king woman --minus man. Which lines of a
    file are like a sentence? neighbors MODEL --among FILE "A sentence." Where is a word used alike?
    neighbors MODEL --among FILE --word play "They play outside."
    """
    import unmask

    if among is not None:
        _refuse("--among is of sentences; leave out ", minus=minus, multiply=multiply)
        asked = [_text(word) for word in words]
        near = unmask.nearest_sentences(
            vectors if _names_vectors(vectors) else _load(vectors, device),
            asked,
            among,
            k,
            word=None if word is None else _text(word),
            pooling=pooling,
            layer=layer,
            limit=limit,
            text=text,
            encoding_errors=encoding_errors,
        )
        _show_nearest(asked, near, as_json)
        return
    _refuse(
        "", " is of --among, which is not given",
        word=word, text=text, pooling=pooling, layer=layer,
    )  # fmt: skip
    space = unmask.open_space(vectors, limit=limit)
    plus, taken = [_text(word) for word in words], [_text(word) for word in minus or ()]
    found = space.combine(plus, taken, k, "multiply" if multiply else "add")
    if as_json:
        near = [{"word": word, "score": score} for word, score in found]
        give_json({"plus": plus, "minus": taken, "neighbors": near})
        return
    for word, score in found:
        tell(f"{score:7.4f}  {word}")


def _show_nearest(
    asked: Sequence[str], near: Sequence[Sequence["Neighbor"]], as_json: bool
) -> None:
    """Show the nearest sentences of each of some, a line of JSON or a paragraph each."""
    for i, (sentence, found) in enumerate(zip(asked, near, strict=True)):
        if as_json:
            nearest = [{"text": one.word, "score": one.score} for one in found]
            give_json({"text": sentence, "neighbors": nearest})
            continue
        if len(asked) > 1:
            if i:
                tell("")
            tell(sentence)
        for one in found:
            tell(f"{one.score:7.4f}  {one.word}")


@app.command()
def picture(
    vectors: Vectors,
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="WORD", help="Those to draw. None, nor --words: the first 100."),
    ] = None,
    out: Annotated[
        Path, _option("--out", metavar="FILE", help="The picture to write, an SVG.")
    ] = Path("words.svg"),
    file: Annotated[
        Path | None, _option("--words", metavar="FILE", help="With more words, one a line.")
    ] = None,
    method: Annotated[
        Literal["pca", "tsne"],
        _option("--method", help="Keep directions (principal components), or neighbors (t-SNE)."),
    ] = "pca",
    seed: Annotated[int, _option("--seed", metavar="N", help="Of t-SNE.")] = 0,
    limit: Limit = None,
    as_json: Json = False,
) -> None:
    """Draw words in two dimensions of their vectors."""
    import unmask

    given = [_text(word) for word in words or ()]
    shown = unmask.picture(
        vectors,
        given,
        out=out,
        file=file,
        method=method,
        seed=seed,
        limit=limit,
        terminal=sys.stderr,
    )
    if as_json:
        give_json({"file": str(out), "words": shown})
    else:
        tell(f"{out}: {len(shown):,} words")


@app.command()
def study(
    name: Annotated[
        str,
        typer.Argument(
            metavar="STUDY",
            help="bart-noises, t5-objectives, t5-rates, t5-spans, t5-architectures, summaries, "
            "elmo-tags, ulmfit-stages, ulmfit-stages-trec, or a .toml file with a study.",
        ),
    ],
    more: MoreData = None,
    data: Data = None,
    out: Annotated[Path, _option("--out", metavar="FOLDER", help="The study's folder.")] = Path(
        "runs/study"
    ),
    tasks_data: Annotated[
        Path | None,
        _option("--tasks-data", metavar="FOLDER", help="Of the tasks' files.", default="the Hub"),
    ] = None,
    cells: Annotated[
        str | None,
        _option("--cells", metavar="A,B", help="Those to run now.", default="all"),
    ] = None,
    tokens: Annotated[
        int | None, _option("--tokens", metavar="N", help="That each cell reads.")
    ] = None,
    rows: Annotated[
        int | None, _option("--rows", metavar="N", help="Of each task that are learned from.")
    ] = None,
    epochs: Annotated[float | None, _option("--epochs", metavar="X", help="Of tuning.")] = None,
    seeds: Annotated[int | None, _option("--seeds", metavar="N", help="Of tuning.")] = None,
    resume: Resume = False,
    workers: Annotated[
        int, _option("--workers", metavar="N", help="Processes that make batches.")
    ] = 0,
    device: Device = "auto",
    threads: Annotated[
        int | None, _option("--threads", metavar="N", help="That pretrain.", default="all cores")
    ] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Compare ways to pretrain: under one budget, on the same text and tasks.

    A table and a picture are written after each cell; Ctrl-C loses nothing, --resume goes on.
    """
    import unmask
    from unmask.files import read_json

    made = unmask.run_study(
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
    names, rows_made = made.rows()
    if as_json:
        give_json(read_json(out / "study.json"))
    else:
        show_table(made.study.name, names, rows_made)
        tell(f"{out}: done; the table is {out / 'README.md'}, the picture {out / 'plot.svg'}")


@app.command()
def align(
    source: Annotated[
        Path,
        typer.Argument(metavar="SOURCE", help="A file of vectors; with --moved, the older one."),
    ],
    target: Annotated[Path, typer.Argument(metavar="TARGET", help="Another.")],
    dictionary: Annotated[
        Path | None,
        _option("--dictionary", metavar="FILE", help="Pairs of words to learn from, one a line."),
    ] = None,
    seeds: Annotated[
        int | None,
        _option("--seeds", metavar="N", help="Learn from its first N pairs; test on the others."),
    ] = None,
    numerals: Annotated[
        bool, _option("--numerals", help="Learn from the numerals that both have, instead.")
    ] = False,
    identical: Annotated[
        bool, _option("--identical", help="Learn from all words that both have, instead.")
    ] = False,
    anchors: Annotated[
        Path | None,
        _option("--anchors", metavar="FILE", help="Learn from these words, one a line, instead."),
    ] = None,
    lowercase: Annotated[
        bool, _option("--lowercase", help="Read dictionaries in lower case.")
    ] = False,
    test: Annotated[
        Path | None,
        _option("--test", metavar="FILE", help="Pairs to score by; a word may have several."),
    ] = None,
    map: Annotated[
        Literal["procrustes", "least-squares"],
        _option("--map", help="A rotation, or any matrix."),
    ] = "procrustes",
    prepare: Annotated[
        Literal["usual", "unit", "none"],
        _option("--prepare", help="Of vectors; usual: unit length, mean zero, unit length."),
    ] = "usual",
    self_learning: Annotated[
        Literal["none", "nearest", "csls", "stochastic"] | None,
        _option(
            "--self-learning",
            help="How the map finds more pairs.",
            default="csls for numerals or fewer pairs than dimensions, else none",
        ),
    ] = None,
    refine: Annotated[
        int,
        _option("--refine", metavar="N", help="Fit N times on words each other's nearest by CSLS."),
    ] = 0,
    frequent: Annotated[
        int | None,
        _option(
            "--frequent",
            metavar="N",
            help="The first N words learn by themselves, refine, and are listed as moved.",
            default="20000, 15000, 10000",
        ),
    ] = None,
    neighbors: Annotated[int, _option("--neighbors", metavar="K", help="Of CSLS.")] = 10,
    moved: Annotated[
        int | None, _option("--moved", metavar="N", help="List N words that moved most.")
    ] = None,
    least: Annotated[
        int | None,
        _option("--least", metavar="N", help="How often those must stand in the text, if known."),
    ] = None,
    limit: Annotated[
        int | None, _option("--limit", metavar="N", help="Read the first N words of each file.")
    ] = None,
    seed: Seed = 0,
    out: Annotated[
        Path | None, _option("--out", metavar="FOLDER", help="For the mapped vectors; a new one.")
    ] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Map one space of word vectors to another: languages, or times.

    With --moved: which words moved most between two times, or from one group to another.
    """
    import unmask

    made = unmask.align(
        source,
        target,
        dictionary=dictionary,
        seeds=seeds,
        numerals=numerals,
        identical=identical,
        anchors=anchors,
        lowercase=lowercase,
        test=test,
        map=map,
        prepare=prepare,
        self_learning=self_learning,
        refine=refine,
        frequent=frequent,
        neighbors=neighbors,
        moved=moved,
        least=least,
        limit=limit,
        seed=seed,
        out=out,
        terminal=None if quiet or as_json else sys.stderr,
    )
    if as_json:
        give_json(made.facts)
        return
    for (names, rows), left in ((made.rows(), 1), (made.moved_rows(), 4)):
        if rows:
            show_table("", names, rows, left=left)
    for line in made.told():
        tell(line)
    if out is not None:
        tell(f"{out}: done; source.vec and target.vec are in one space")


@app.command()
def report(
    run: Annotated[Path, typer.Argument(metavar="FOLDER", help="Of a run.")],
    as_json: Json = False,
) -> None:
    """Write a run's HTML report anew."""
    import unmask

    path = unmask.write_report(run)
    give_json({"report": path}) if as_json else give(path)


def _load(model: str, device: str) -> "Pipeline":
    """Open a model, and name the weights that its folder lacks or has too many."""
    import unmask

    pipeline = unmask.load(model).to(device)
    for what, names in (
        ("lacks weights, which are drawn at random", pipeline.opened.missing),
        ("has weights that are not used", pipeline.opened.extra),
    ):
        if names:
            more = f" and {len(names) - 4} more" if len(names) > 4 else ""
            tell(f"{model}: {what}: {', '.join(names[:4])}{more}", sys.stderr)
    return pipeline


def _texts(
    given: Sequence[str] | None,
    path: Path | None,
    column: str | None,
    errors: Any,
    *,
    blanks: bool = False,
) -> Iterator[str]:
    """Give texts that were named, those of a file, or the lines of standard input.

    Args:
        given: texts.
        path: of a file, each of whose lines is one text, and has one answer, however long it is.
        column: of its text.
        errors: what becomes of bytes that are not UTF-8.
        blanks: blank lines are texts too, so that answers without their text stand as the lines do.
    """
    if given:
        _not_both(given, path)
        yield from map(_text, given)
        return
    if path is not None:
        from unmask.text.corpus import rows
        from unmask.text.records import LONGEST

        read = rows(path, text=column, encoding_errors=errors, longest=LONGEST)
        found = ((one.where.rpartition(":")[2], one.text) for one in read)
    else:
        found = ((str(number), text) for number, text in _standard_input(errors))
    blank: list[str] = []
    for number, text in found:
        if not text:
            blank.append(number)
        if text or blanks:
            yield text
    if blank:
        some = ", ".join(blank[:8]) + (" ..." if len(blank) > 8 else "")
        how = "answered as the empty text" if blanks else "left out"
        tell(f"{path or 'standard input'}: blank lines are {how}: {some}", sys.stderr)


def _not_both(given: Sequence[str] | None, path: Path | None) -> None:
    if given and path is not None:
        raise ValueError(f"give texts or --input, not both: got {given[0]!r} and {path}")


def _text(given: str) -> str:
    """Check that a word of the command line is text."""
    try:
        given.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"not UTF-8 at character {error.start + 1} of {given!a}") from None
    return given


def _standard_input(errors: Literal["strict", "replace"]) -> Iterator[tuple[int, str]]:
    """Give the lines of standard input with their numbers; blank ones are empty."""
    from unmask.text.lines import without_nul

    if cast("Any", sys.stdin) is None:
        raise ValueError("standard input is closed; name a text, or --input")
    if sys.stdin.isatty():
        tell("reading standard input, a text a line; Ctrl-D ends it", sys.stderr)
    empty = True
    from unmask.text.records import LONGEST

    lines = iter(lambda: sys.stdin.buffer.readline(LONGEST + 1), b"")
    for number, line in enumerate(lines, 1):
        if len(line) > LONGEST:
            raise ValueError(f"standard input:{number}: a line of more than {LONGEST:,} bytes")
        try:
            text = line.decode("utf-8", errors)
        except UnicodeDecodeError as error:
            raise ValueError(
                f"standard input:{number}: invalid UTF-8 at byte {error.start + 1} of the line "
                "(--encoding-errors replace reads on with U+FFFD in its place)"
            ) from None
        if "\0" in text:
            text = without_nul(text, f"standard input:{number}", errors)
        empty = empty and not text.strip()
        yield number, text.rstrip("\r\n") if text.strip() else ""
    if empty:
        raise ValueError("standard input: no text in it; name a text, or --input")


def _answered(items: Iterable[T], ask: Callable[[list[T]], Iterable[A]]) -> Iterator[tuple[T, A]]:
    """Ask about some items at a time; give each with its answer."""
    rest, n = iter(items), 0
    while some := list(islice(rest, TOGETHER)):
        try:
            answers = ask(some)
        except ValueError as error:
            if n:  # it counts from the first of these
                raise ValueError(f"after the first {n:,} texts: {error}") from None
            raise
        yield from zip(some, answers, strict=True)
        n += len(some)


if __name__ == "__main__":
    main()
