"""Inputs of commands: models, and texts of the command line, files or standard input."""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

from unmask.output import ProgressLine, ask_line, print_line

if TYPE_CHECKING:
    from unmask.inference.ensemble import Ensemble
    from unmask.inference.pipeline import Pipeline
    from unmask.jobs.options.shell.shared_options import NetworkOptions

ItemT = TypeVar("ItemT")
AnswerT = TypeVar("AnswerT")

TEXTS_PER_CALL = 256
"""Texts per call; outputs are printed before the next texts are read."""


def is_word_vectors(model: str) -> bool:
    """Return whether a MODEL is a file of word vectors."""
    from unmask.inference.vectors.load_word_vectors import is_word_vectors

    return is_word_vectors(model)


def is_finetuned(model: str) -> bool:
    """Return whether a MODEL is the folder of a fine-tuned model (maybe of word vectors)."""
    from unmask.files import read_json_object

    facts = Path(model) / "unmask.json"
    return facts.is_file() and read_json_object(facts).get("task") is not None


def with_ensemble(
    pipeline: "Pipeline",
    other_models: Sequence[str] | None,
    device: str,
    precision: Literal["float32", "bfloat16"] = "float32",
) -> "Pipeline | Ensemble":
    """Return the ensemble of a model and others; the model if there are none."""
    if not other_models:
        return pipeline
    from unmask.inference.ensemble import Ensemble

    others = (load_pipeline(model, device, precision=precision) for model in other_models)
    return Ensemble([pipeline, *others])


def load_pipeline(
    model: str,
    device: str,
    language: str | None = None,
    precision: Literal["float32", "bfloat16"] = "float32",
) -> "Pipeline":
    """Load a model for texts of a language, and print its missing and unused weights.

    Raises:
        ValueError: it cannot be told the language of a text, or does not have this one.
    """
    import unmask

    load = unmask.load  # with all that it imports
    from unmask.training.device.distributed import set_threads

    set_threads()
    pipeline = load(model).to(device, dtype=precision)
    for description, names in (
        ("missing weights, randomly initialized", pipeline.loaded_model.missing),
        ("unused weights", pipeline.loaded_model.unexpected),
    ):
        if names:
            ellipsis = f" and {len(names) - 4} more" if len(names) > 4 else ""
            print_line(f"{model}: {description}: {', '.join(names[:4])}{ellipsis}", sys.stderr)
    return pipeline if language is None else pipeline.with_text_language(language)


def load_network(options: "NetworkOptions") -> "Pipeline":
    """Load the network of a command, as `load_pipeline` does."""
    return load_pipeline(options.model, options.device, options.language, options.precision)


def read_texts(
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
        input_file: a file with one text per line.
        text_column: column of the text in records.
        encoding_errors: treatment of invalid UTF-8.
        keep_blank: whether blank lines are texts, so that outputs match lines.
    """
    from unmask.text.lines import BlankLines

    if texts:
        refuse_texts_and_input(texts, input_file)
        yield from map(check_utf8, texts)
        return
    if input_file is not None:
        from unmask.text.documents import read_rows
        from unmask.text.formats.records import MAX_RECORD_CHARACTERS

        read = read_rows(
            input_file,
            text_column=text_column,
            encoding_errors=encoding_errors,
            max_characters=MAX_RECORD_CHARACTERS,
        )
        found = ((int(one.location.rpartition(":")[2]), one.text) for one in read)
    else:
        found = read_standard_input(encoding_errors)
    number, blank_lines = 0, BlankLines()
    for number, text in found:
        if not text:
            blank_lines.add(number)
        if text or keep_blank:
            yield text
    if some := blank_lines.describe(number):
        how = "answered as the empty text" if keep_blank else "skipped"
        print_line(f"{input_file or 'standard input'}: blank lines are {how}: {some}", sys.stderr)


def refuse_texts_and_input(texts: Sequence[str] | None, input_file: Path | None) -> None:
    """Reject texts on the command line together with a file of texts."""
    if texts and input_file is not None:
        raise ValueError(f"give texts or --input, not both: got {texts[0]!r} and {input_file}")


def check_utf8(argument: str) -> str:
    """Check that an argument is valid UTF-8."""
    try:
        argument.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"not UTF-8 at character {error.start + 1} of {argument!a}") from None
    return argument


def read_turns(
    texts: Sequence[str], input_file: Path | None, text_column: str | None, encoding_errors: Any
) -> Iterator[str]:
    """Yield the user's turns in a chat: as `read_texts`, but asked for on a terminal.

    Blank lines are no turns, and there may be none at all.
    """
    if texts or input_file is not None:
        yield from read_texts(texts, input_file, text_column, encoding_errors)
    elif is_terminal_input():
        yield from _ask_for_turns()
    else:
        found = read_standard_input(encoding_errors, may_be_empty=True)
        yield from (text for _, text in found if text)


def is_terminal_input() -> bool:
    """Return whether standard input is typed."""
    return cast("Any", sys.stdin) is not None and sys.stdin.isatty()


def _ask_for_turns() -> Iterator[str]:
    """Yield lines that are typed, until Ctrl-D."""
    with suppress(ImportError):
        import readline  # noqa: F401  # pyright: ignore[reportUnusedImport] - edits lines
    print_line("a turn is one line; end with Ctrl-D", sys.stderr)
    while True:
        try:
            line = ask_line("> " if sys.stdout.isatty() else "")
        except EOFError:
            print_line("", sys.stderr)
            return
        if line.strip():
            yield check_utf8(line)


def read_standard_input(
    encoding_errors: Literal["strict", "replace"], *, may_be_empty: bool = False
) -> Iterator[tuple[int, str]]:
    """Yield the lines of standard input with their numbers; blank ones are empty."""
    from unmask.text.lines import replace_nul

    if cast("Any", sys.stdin) is None:
        raise ValueError("standard input is closed; give a text, or --input")
    if sys.stdin.isatty():
        print_line("reading standard input, one text per line; end with Ctrl-D", sys.stderr)
    empty = True
    from unmask.text.formats.records import MAX_RECORD_CHARACTERS

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
    if empty and not may_be_empty:
        raise ValueError("standard input: no text; give a text, or --input")


def answer_in_batches(
    items: Iterable[ItemT], answer: Callable[[list[ItemT]], Iterable[AnswerT]]
) -> Iterator[tuple[ItemT, AnswerT]]:
    """Process items in batches; yield each with its output.

    If the output is a file, the terminal shows progress.
    """
    iterator, n = iter(items), 0
    progress = ProgressLine(None if sys.stdout.isatty() else sys.stderr)
    while some := list(islice(iterator, TEXTS_PER_CALL)):
        try:
            answers = answer(some)
        except ValueError as error:
            if n:  # the error counts from the start of the batch
                raise ValueError(f"after the first {n:,} texts: {error}") from None
            raise
        yield from zip(some, answers, strict=True)
        n += len(some)
        done = n
        progress.show(lambda done=done: f"{done:,} texts{progress.rate(done)}")
    progress.clear()
