r"""Where text leaves the program: what text may do there, one place for each channel.

Labels, words, names of files and of weights, what is logged and what a model generates come from
elsewhere, and may hold escape sequences, carriage returns, marks that turn the direction of what
follows, HTML or Markdown. Each channel has one function that makes such text harmless, and all that
is shown goes through it:

- a terminal: `print_line` (for people), `overwrite_line` (progress), `print_rich` (a table),
  `WarningFormatter` (warnings). Such lines are the same wherever they go: to a terminal, a file or
  a pipe.
- data on standard output: `print_data` and `print_json`. **What is piped is not altered**:
  generated text and paths go into a file or a pipe as they are, and only a terminal gets them made
  visible. JSON holds the same strings everywhere; what cannot be printed is written in it as
  `\u009b`.
- Markdown: `escape_markdown` (text), `markdown_code` (a code span), `python_literal` (a string in
  a Python block). The YAML before a model card has nothing from elsewhere in it, and needs none.
- tab-separated values: `escape_tsv`.
- HTML and SVG: `unmask.reports.markup`, where text is escaped because it is a `str`.

Made visible is what Unicode calls control, format, surrogate, private use or unassigned, and line
and paragraph separators: `\x1b`, `\u202e`. What joins letters or parts them (U+200C, U+200D),
without which Persian, Hindi and emoji are misspelled, stays, as do signs that Unicode counts as
format although they are seen (U+0600 and its like).
"""

import errno
import json
import logging
import os
import re
import sys
import time
import traceback
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, cast, runtime_checkable

_SECONDS_BETWEEN_REDRAWS, _SECONDS_BETWEEN_LINES = 0.2, 10.0
_INVISIBLE_CATEGORIES = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"))
_VISIBLE_FORMAT_CHARACTERS = frozenset(
    "\u200c\u200d\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd"
    "\U000110cd"
)
"""Joiners, and prepended concatenation marks (Unicode 15.1, PropList.txt)."""


@runtime_checkable
class OutputStream(Protocol):
    """The part of a text file that is used: `sys.stderr`, for instance."""

    def write(self, text: str, /) -> object:
        """Write some text."""
        ...

    def flush(self) -> object:
        """Show what was written."""
        ...

    def isatty(self) -> bool:
        """Return whether lines can be overwritten."""
        ...


# A terminal


def safe_line(text: str) -> str:
    """Return text that stays on one line of a terminal and does nothing else to it."""
    return _make_visible(text, "")


def safe_lines(text: str) -> str:
    """Return text that does nothing to a terminal but begin new lines and tabulate."""
    return _make_visible(text, "\n\t")


def is_invisible(character: str) -> bool:
    """Return whether a character would not be seen on a terminal, or would do something to it."""
    return (
        unicodedata.category(character) in _INVISIBLE_CATEGORIES
        and character not in _VISIBLE_FORMAT_CHARACTERS
    )


def escape_character(character: str) -> str:
    """Write a character as Python's literals do."""
    return character.encode("unicode_escape").decode("ascii")


def _make_visible(text: str, allowed: str) -> str:
    if text.isprintable():
        return text
    return "".join(escape_character(c) if c not in allowed and is_invisible(c) else c for c in text)


def ask_line(prompt: str = "") -> str:
    """Return a line that is typed on the terminal, after a prompt.

    Raises:
        EOFError: there is no further line.
    """
    return input(prompt)


def print_line(text: object, file: OutputStream | None = None, *, end: str = "\n") -> None:
    """Show a line for people; None: on standard output."""
    _write(safe_line(str(text)) + end, file)


def overwrite_line(text: object, file: OutputStream, previous_length: int = 0) -> int:
    """Write over a live line of `previous_length` characters; returns how many it has now."""
    shown = safe_line(str(text))
    # One write, the rest of the old line overwritten with spaces rather than erased first: nothing
    # flickers.
    _write("\r" + shown.ljust(previous_length), file)
    return len(shown)


def clear_line(file: OutputStream, length: int) -> None:
    """Take a live line of `length` characters away."""
    _write("\r" + " " * length + "\r", file)


class ProgressLine:
    """Where a job is: a line that is overwritten on a terminal; elsewhere, a line now and then."""

    def __init__(self, terminal: OutputStream | None, *, at_once: bool = False) -> None:
        self._stream = terminal
        self.is_terminal = terminal is not None and terminal.isatty()
        self._interval = _SECONDS_BETWEEN_REDRAWS if self.is_terminal else _SECONDS_BETWEEN_LINES
        self._shown_length = 0
        self._begin = time.monotonic()
        self._next_update = 0.0 if at_once else self._begin + self._interval

    def show(self, text: Callable[[], str], *, last: bool = False) -> None:
        """Show a text, unless one was just shown and this is not the last."""
        now = time.monotonic()
        if now >= self._next_update or last:
            self._next_update = now + self._interval
            self._write(text())

    def rate(self, count: int) -> str:
        """Format how many of `count` were done in a second: nothing in the first second."""
        seconds = time.monotonic() - self._begin
        return f", {count / seconds:,.0f} a second" if seconds >= 1 else ""

    def print_above(self, text: str) -> None:
        """Print a line that stays."""
        if self._stream is not None:
            self.clear()
            print_line(text, self._stream)
            self._next_update = 0.0

    def finish(self) -> None:
        """Leave the last text as it is."""
        if self._shown_length and self._stream is not None:
            print_line("", self._stream)
            self._shown_length = 0

    def clear(self) -> None:
        """Take the line away, of a terminal."""
        if self._shown_length and self._stream is not None:
            clear_line(self._stream, self._shown_length)
            self._shown_length = 0

    def _write(self, text: str) -> None:
        if self._stream is None:
            return
        if self.is_terminal:
            self._shown_length = overwrite_line(text, self._stream, self._shown_length)
        else:
            print_line(text, self._stream)


def print_rich(renderable: Any, width: int | None = None, *, wrap: bool = True) -> None:
    """Show what rich lays out, whose strings went through `line`; None: as wide as a terminal."""
    from rich.console import Console

    console = Console(highlight=False, markup=False, emoji=False, width=width)
    console.print(renderable, soft_wrap=not wrap)


def has_color() -> bool:
    """Return whether standard output shows colors."""
    from rich.console import Console

    return Console().color_system is not None


def terminal_width() -> int:
    """Count the columns of the terminal."""
    from rich.console import Console

    return Console().width


def print_table(
    title: str,
    names: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    footer: Sequence[str] = (),
    n_left_aligned: int = 1,
) -> None:
    """Show a table; all but its first columns, `n_left_aligned` of them, are to the right."""
    from rich.table import Table
    from rich.text import Text

    def shown(cells: Sequence[str]) -> list[Text]:
        return [Text(safe_line(cell)) for cell in cells]

    made = Table(title=Text(safe_line(title)) if title else None, title_justify="left")
    for n, name in enumerate(shown(names)):
        made.add_column(name, justify="left" if n < n_left_aligned else "right")
    for row in rows:
        made.add_row(*shown(row))
    if footer:
        made.add_section()
        made.add_row(*shown(footer))
    print_rich(made, None if sys.stdout.isatty() else 120)


class WarningFormatter(logging.Formatter):
    """Writes a warning as a line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return its message."""
        return safe_line(record.getMessage())


def print_traceback(
    error_type: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """Show where in the code an error comes from; a `sys.excepthook`."""
    _write(safe_lines("".join(traceback.format_exception(error_type, error, trace))), sys.stderr)


# Errors as one line

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
"""Errors of the operating system that a user can resolve."""
_MISTAKES = (ValueError, OSError, ImportError, FloatingPointError)
"""What the library raises where a user's input is wrong."""


def error_reason(error: BaseException) -> str | None:
    """Return the line that reports an error that a user can resolve; None for a bug."""
    if isinstance(error, MemoryError | RuntimeError):
        return _out_of_memory_line(error)
    if isinstance(error, OSError) and error.errno is not None:
        if error.errno not in _USER_ERRNOS:
            return None
        # For a failed renaming, the target: the source is a temporary file.
        name = error.filename if error.filename2 is None else error.filename2
        location = "" if name is None else f"{_user_path(os.fsdecode(name))}: "
        reason = error.strerror or os.strerror(error.errno)
        return f"{location}{reason[:1].lower()}{reason[1:]}"
    if isinstance(error, ModuleNotFoundError) and "pip install" not in str(error):
        extra = _extra_of(error.name or "")
        return str(error) if extra is None else f"{error}: pip install 'unmask[{extra}]'"
    return str(error) if isinstance(error, _MISTAKES) else None


_DISTRIBUTIONS = {"PIL": "pillow", "starlette": "fastapi"}
"""Modules that another distribution brings than the one of their name."""


def _extra_of(module: str) -> str | None:
    """Return the extra that installs a module; None: none does."""
    import importlib.metadata

    top = module.partition(".")[0]
    name = _DISTRIBUTIONS.get(top, top).replace("_", "-")
    try:
        requirements = importlib.metadata.requires("unmask") or ()
    except importlib.metadata.PackageNotFoundError:  # run from a folder of source, not installed
        return None
    for requirement in requirements:
        match = re.match(r"([\w-]+).*; extra == ['\"]([\w-]+)['\"]", requirement)
        if match and match[1].lower() == name.lower():
            return match[2]
    return None


_ALLOCATION_SIZE = re.compile(r"(?:tried|unable) to allocate ([\d.]+) ?([a-z]+)", re.IGNORECASE)


def _out_of_memory_line(error: Exception) -> str | None:
    """Return the line that reports a lack of memory; None for any other error.

    NumPy and Python raise MemoryError; torch a RuntimeError, for the processor and for a GPU.
    """
    text = str(error)
    refused = ("can't allocate memory", "out of memory")
    if not isinstance(error, MemoryError) and not any(one in text.lower() for one in refused):
        return None
    match = _ALLOCATION_SIZE.search(text)
    size = "" if match is None else f" {match[1].rstrip('.')} {match[2]}"
    if size.endswith("bytes"):
        size = f" {int(size.split()[0]) / 1e9:,.1f} GB"
    detail = f": cannot allocate{size}" if size else ""
    return f"out of memory{detail}; use shorter texts, smaller batches or a smaller model"


def _user_path(path: str) -> str:
    """Return a path; for a temporary file, its folder."""
    while any(p.startswith(".") and p.endswith(".part") for p in Path(path).parts):
        path = os.path.dirname(path)
    return path or "."


# Data on standard output


def print_data(text: object, *, end: str = "\n", flush: bool = False) -> None:
    """Give text as it is; on a terminal, made visible. `flush`: with all that was given before."""
    stream = cast("OutputStream | None", sys.stdout)
    shown = safe_lines(str(text)) if stream is not None and stream.isatty() else str(text)
    _write(shown + end, None, flush=flush)


def print_json(data: Mapping[str, Any] | Sequence[Any]) -> None:
    """Give data as a line of JSON."""
    _write(to_safe_json(data) + "\n", None)


def to_safe_json(data: Any) -> str:
    r"""Write data as JSON; what cannot be printed is there as `\u009b`, which is the same."""
    text = json.dumps(data, ensure_ascii=False, default=str)
    if text.isprintable():
        return text
    return "".join(json.dumps(c)[1:-1] if is_invisible(c) else c for c in text)


def _write(text: str, file: OutputStream | None, *, flush: bool = False) -> None:
    stream = cast("OutputStream | None", sys.stdout) if file is None else file
    if stream is None:  # it was closed before we began
        return
    if file is None:
        stream.write(text)
        if flush:  # much is written to standard output: it has a buffer
            stream.flush()
        return
    with suppress(OSError, ValueError):  # a terminal that was closed: the work continues without it
        stream.write(text)
        stream.flush()


# Markdown


_MARKDOWN_SPECIAL = re.compile(r"[\\`*\[\]<|~$]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|&(?=[#\w])")
_MARKDOWN_LINE_START = re.compile(r"^(?:[#>=]|[+-](?!\d))")
_MARKDOWN_LIST_NUMBER = re.compile(r"^(\d+)([.)])(?=\s|$)")
_MARKDOWN_LINKS = re.compile(r":(?=//)|(?i:(?<=www)\.)|@|:(?=[a-z+-][\w+-]*:)")
"""Before what GitHub makes links, mentions and pictures of."""


def escape_markdown(text: object) -> str:
    """Return text that stays text, on one line, in a paragraph, a heading, a list or a table.

    By backslashes (CommonMark 0.31, section 2.4), where there would be markup, HTML or a link
    (GitHub Flavored Markdown 0.29, sections 4.10 and 6.9).
    """
    shown = _MARKDOWN_SPECIAL.sub(
        r"\\\g<0>", safe_line(str(text)).lstrip(" ")
    )  # four of them begin code
    shown = _MARKDOWN_LINKS.sub(r"\\\g<0>", shown)
    return _MARKDOWN_LIST_NUMBER.sub(r"\1\\\2", _MARKDOWN_LINE_START.sub(r"\\\g<0>", shown))


def markdown_table(
    names: Sequence[str], rows: Iterable[Sequence[str]], *, right_align: bool = False
) -> list[str]:
    """Return the lines of a table of text; `right_align`: all but its first column are there."""
    rule = ["---", *["---:" if right_align else "---"] * (len(names) - 1)]
    shown = ([escape_markdown(cell) for cell in row] for row in (names, *rows))
    head, *body = (f"| {' | '.join(row)} |" for row in shown)
    return [head, f"| {' | '.join(rule)} |", *body]


def markdown_code(text: object) -> str:
    """Return text as a code span: its fence is longer than any run of backticks in it."""
    shown = safe_line(str(text))
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", shown)), default=0))
    edge = " " if shown[:1] in ("`", " ") or shown[-1:] in ("`", " ") else ""
    return f"{fence}{edge}{shown}{edge}{fence}"


def python_literal(text: str) -> str:
    """Return text as a string of Python's, on one line."""
    return safe_line(json.dumps(text, ensure_ascii=False))


# Tab-separated values


_TSV_ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})


def escape_tsv(text: str) -> str:
    """Return text that stays in its cell: backslash, tab and line ends are escaped."""
    return text.translate(_TSV_ESCAPES)
