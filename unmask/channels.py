r"""Where text leaves the program: what text may do there, one place for each channel.

Labels, words, names of files and of weights, what is logged and what a model generates come from
elsewhere, and may hold escape sequences, carriage returns, marks that turn the direction of what
follows, HTML or Markdown. Each channel has one function that makes such text harmless, and all that
is shown goes through it:

- a terminal: `tell` (a line for people), `over` (a line that is overwritten), `render` (a table),
  `Telling` (warnings). Such lines are the same wherever they go: to a terminal, a file or a pipe.
- data on standard output: `give` and `give_json`. **What is piped is not altered**: generated text
  and paths go into a file or a pipe as they are, and only a terminal gets them made visible. JSON
  holds the same strings everywhere; what cannot be printed is written in it as `\u009b`.
- Markdown: `markdown` (text), `code` (a code span), `literal` (a string in a Python block). The
  YAML before a model card has nothing from elsewhere in it, and needs none.
- tab-separated values: `cell`.
- HTML and SVG: `unmask.serving.markup`, where text is escaped because it is a `str`.

Made visible is what Unicode calls control, format, surrogate, private use or unassigned, and line
and paragraph separators: `\x1b`, `\u202e`. What joins letters or parts them (U+200C, U+200D),
without which Persian, Hindi and emoji are misspelled, stays, as do signs that Unicode counts as
format although they are seen (U+0600 and its like).
"""

import json
import logging
import re
import sys
import traceback
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Protocol, cast, runtime_checkable

_UNSEEN = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"))
_KEPT = frozenset(
    "\u200c\u200d\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd"
    "\U000110cd"
)
"""Joiners, and prepended concatenation marks (Unicode 15.1, PropList.txt)."""


@runtime_checkable
class Stream(Protocol):
    """The part of a text file that is used: `sys.stderr`, for instance."""

    def write(self, text: str, /) -> object:
        """Write some text."""
        ...

    def flush(self) -> object:
        """Show what was written."""
        ...

    def isatty(self) -> bool:
        """Say whether lines can be overwritten."""
        ...


# A terminal


def line(text: str) -> str:
    """Return text that stays on one line of a terminal and does nothing else to it."""
    return _visible(text, "")


def lines(text: str) -> str:
    """Return text that does nothing to a terminal but begin new lines and tabulate."""
    return _visible(text, "\n\t")


def unseen(character: str) -> bool:
    """Say whether a character would not be seen on a terminal, or would do something to it."""
    return unicodedata.category(character) in _UNSEEN and character not in _KEPT


def escaped(character: str) -> str:
    """Write a character as Python's literals do."""
    return character.encode("unicode_escape").decode("ascii")


def _visible(text: str, kept: str) -> str:
    if text.isprintable():
        return text
    return "".join(escaped(c) if c not in kept and unseen(c) else c for c in text)


def tell(text: object, file: Stream | None = None, *, end: str = "\n") -> None:
    """Show a line for people; None: on standard output."""
    _write(line(str(text)) + end, file)


def over(text: object, file: Stream, was: int = 0) -> int:
    """Write over a live line of `was` characters; returns how many it has now."""
    shown = line(str(text))
    # One write, the rest of the old line overwritten with spaces rather than erased first: nothing
    # flickers.
    _write("\r" + shown.ljust(was), file)
    return len(shown)


def clear(file: Stream, was: int) -> None:
    """Take a live line of `was` characters away."""
    _write("\r" + " " * was + "\r", file)


def render(renderable: Any, width: int | None = None, *, wrap: bool = True) -> None:
    """Show what rich lays out, whose strings went through `line`; None: as wide as a terminal."""
    from rich.console import Console

    console = Console(highlight=False, markup=False, emoji=False, width=width)
    console.print(renderable, soft_wrap=not wrap)


def columns() -> int:
    """Count the columns of the terminal."""
    from rich.console import Console

    return Console().width


def table(
    title: str,
    names: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    foot: Sequence[str] = (),
    left: int = 1,
) -> None:
    """Show a table; all but its first columns, `left` of them, stand to the right."""
    from rich.table import Table
    from rich.text import Text

    def shown(cells: Sequence[str]) -> list[Text]:
        return [Text(line(cell)) for cell in cells]

    made = Table(title=Text(line(title)) if title else None, title_justify="left")
    for n, name in enumerate(shown(names)):
        made.add_column(name, justify="left" if n < left else "right")
    for row in rows:
        made.add_row(*shown(row))
    if foot:
        made.add_section()
        made.add_row(*shown(foot))
    render(made, None if sys.stdout.isatty() else 120)


class Telling(logging.Formatter):
    """Writes a warning as a line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return its message."""
        return line(record.getMessage())


def tell_traceback(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """Show where in the code an error comes from; a `sys.excepthook`."""
    _write(lines("".join(traceback.format_exception(kind, error, trace))), sys.stderr)


# Data on standard output


def give(text: object, *, end: str = "\n", now: bool = False) -> None:
    """Give text as it is; on a terminal, made visible. `now`: with all that was given before."""
    stream = cast("Stream | None", sys.stdout)
    shown = lines(str(text)) if stream is not None and stream.isatty() else str(text)
    _write(shown + end, None, now=now)


def give_json(data: Mapping[str, Any] | Sequence[Any]) -> None:
    """Give data as a line of JSON."""
    _write(plain_json(data) + "\n", None)


def plain_json(data: Any) -> str:
    r"""Write data as JSON; what cannot be printed stands there as `\u009b`, which is the same."""
    text = json.dumps(data, ensure_ascii=False, default=str)
    if text.isprintable():
        return text
    return "".join(json.dumps(c)[1:-1] if unseen(c) else c for c in text)


def _write(text: str, file: Stream | None, *, now: bool = False) -> None:
    stream = cast("Stream | None", sys.stdout) if file is None else file
    if stream is None:  # it was closed before we began
        return
    if file is None:
        stream.write(text)
        if now:  # much is written to standard output: it has a buffer
            stream.flush()
        return
    with suppress(OSError, ValueError):  # a terminal that was closed: the work goes on without it
        stream.write(text)
        stream.flush()


# Markdown


_ALWAYS = re.compile(r"[\\`*\[\]<|~$]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|&(?=[#\w])")
_FIRST = re.compile(r"^(?:[#>=]|[+-](?!\d))")
_NUMBER = re.compile(r"^(\d+)([.)])(?=\s|$)")
_LINKS = re.compile(r":(?=//)|(?i:(?<=www)\.)|@|:(?=[a-z+-][\w+-]*:)")
"""Before what GitHub makes links, mentions and pictures of."""


def markdown(text: object) -> str:
    """Return text that stays text, on one line, in a paragraph, a heading, a list or a table.

    By backslashes (CommonMark 0.31, section 2.4), where there would be markup, HTML or a link
    (GitHub Flavored Markdown 0.29, sections 4.10 and 6.9).
    """
    shown = _ALWAYS.sub(r"\\\g<0>", line(str(text)).lstrip(" "))  # four of them begin code
    shown = _LINKS.sub(r"\\\g<0>", shown)
    return _NUMBER.sub(r"\1\\\2", _FIRST.sub(r"\\\g<0>", shown))


def markdown_table(
    names: Sequence[str], rows: Iterable[Sequence[str]], *, right: bool = False
) -> list[str]:
    """Return the lines of a table of text; `right`: all but its first column stand there."""
    rule = ["---", *["---:" if right else "---"] * (len(names) - 1)]
    shown = ([markdown(cell) for cell in row] for row in (names, *rows))
    head, *body = (f"| {' | '.join(row)} |" for row in shown)
    return [head, f"| {' | '.join(rule)} |", *body]


def code(text: object) -> str:
    """Return text as a code span: its fence is longer than any run of backticks in it."""
    shown = line(str(text))
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", shown)), default=0))
    edge = " " if shown[:1] in ("`", " ") or shown[-1:] in ("`", " ") else ""
    return f"{fence}{edge}{shown}{edge}{fence}"


def literal(text: str) -> str:
    """Return text as a string of Python's, on one line."""
    return line(json.dumps(text, ensure_ascii=False))


# Tab-separated values


_CELLS = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})


def cell(text: str) -> str:
    """Return text that stays in its cell: backslash, tab and line ends are escaped."""
    return text.translate(_CELLS)
