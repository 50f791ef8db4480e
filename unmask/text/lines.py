r"""Bytes -> numbered lines of text, within bounded memory however long a line is.

A line ends at "\n", "\r\n", "\r\r\n" (what Windows makes of "\r\n" written as text) or a lone "\r".
Nothing else ends one: form feeds, vertical tabs, U+0085, U+2028 and U+2029 are white space within
it.
"""

import codecs
import re
import unicodedata
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal

from unmask.text.formats.decompress import read_decompressed

EncodingErrors = Literal["strict", "replace"]
"""What becomes of bytes that are not UTF-8, of NULs and of lone surrogates: an error, or U+FFFD."""

LinePart = tuple[int, str, bool]
"""A line's number, its text or a part of it, and whether the line continues in the next part."""

REPLACE_HINT = "(--encoding-errors replace reads on with U+FFFD in its place)"

SPACES_AND_TABS = re.compile("[ \t]+")
"""What parts words, and columns without tabs."""
LINE_END = re.compile("\r{0,2}\n|\r")
_LINE = re.compile("[^\n]+")
_RUNS_SHOWN = 8
"""Of blank lines, in a message."""
_CUT_SEARCH_CHARACTERS = (
    2**12
)  # characters searched for white space to cut at: what is longer is not a word
_CLUSTER_SEARCH_CHARACTERS = (
    2**5
)  # characters searched for a place between clusters, where there is no white space


def read_lines(
    path: Path, max_characters: int, encoding_errors: EncodingErrors = "strict"
) -> Iterator[LinePart]:
    r"""Yield the lines of a file without their ends, numbered from 1.

    A line of more than `max_characters` characters comes in parts, see `cut`.

    Raises:
        ValueError: the file is not UTF-8, holds a NUL, or its compression is damaged.
    """
    return split_lines(read_decoded(path, encoding_errors), max_characters)


def split_lines(pieces: Iterable[str], max_characters: int) -> Iterator[LinePart]:
    r"""Yield the lines of a text that comes in pieces, of which every line ends at "\n".

    See `read_lines`.
    """
    number, size, parts = 1, 0, list[str]()
    for text in pieces:
        *whole, last = text.split("\n")
        for line in whole:
            if parts:
                line = "".join([*parts, line])
            if len(line) > max_characters:
                *heads, line = split_long_text(line, max_characters)
                for head in heads:
                    yield number, head, True
            yield number, line, False
            number, size, parts = number + 1, 0, []
        parts.append(last)
        size += len(last)
        if size > max_characters:
            last, parts = "".join(parts), []
            *heads, last = split_long_text(last, max_characters)
            for head in heads:
                yield number, head, True
            size, parts = len(last), [last]
    if size:
        yield number, "".join(parts), False


def split_at_blanks(line: str) -> list[str]:
    """Part a line at spaces and tabs; all other white space (U+00A0, U+3000) is of words."""
    line = line.strip(" \t")
    return SPACES_AND_TABS.split(line) if line else []


def is_blank(line: str) -> bool:
    """Return whether there is nothing in a line but white space."""
    return not line or line.isspace()


class BlankLines:
    """The blank lines of a file, counted: the first runs of them, the last, and how many."""

    def __init__(self) -> None:
        self._runs: list[list[int]] = []
        self._last_run = [0, 0]
        self._n_lines = self._n_runs = 0

    def add(self, number: int) -> None:
        """Add a line; their numbers rise."""
        self._n_lines += 1
        if self._n_runs and self._last_run[1] == number - 1:
            self._last_run[1] = number
            return
        self._n_runs += 1
        self._last_run = [number, number]
        if self._n_runs <= _RUNS_SHOWN:
            self._runs.append(self._last_run)

    def describe(self, last_line: int) -> str:
        """List those before the last line of text, "3, 7-9 (4 lines)"; "" if there are none."""
        first, last = self._last_run
        behind = last - first + 1 if first > last_line else 0
        shown = [f"{a}-{b}" if b > a else str(a) for a, b in self._runs if a <= last_line]
        if self._n_runs - bool(behind) > _RUNS_SHOWN:
            shown.append("...")
        n = self._n_lines - behind
        return ", ".join(shown) + (f" ({n:,} lines)" if n > min(len(shown), _RUNS_SHOWN) else "")


def iter_paragraphs(text: str) -> Iterator[str]:
    """Yield the lines of a text that are not empty, without holding all of them."""
    if "\r" in text:
        text = LINE_END.sub("\n", text)
    for line in _LINE.finditer(text):
        yield line.group()


def with_newlines(pieces: Iterable[str]) -> Iterator[str]:
    r"""Yield a text that comes in pieces, every line end a "\n"."""
    held = ""
    for piece in pieces:
        text = held + piece
        n_held = len(text[-2:]) - len(text[-2:].rstrip("\r"))  # they may belong to a newline
        text, held = text[: len(text) - n_held], text[len(text) - n_held :]
        yield LINE_END.sub("\n", text) if "\r" in text else text
    yield LINE_END.sub("\n", held)


def split_long_text(text: str, max_characters: int) -> Iterator[str]:
    """Cut a text into parts of at most `max_characters`, at white space where there is any.

    The one character of white space at a cut is dropped. Where there is none a cut does not part a
    letter from its combining marks, nor emoji that are joined.
    """
    start = 0
    while len(text) - start > max_characters:
        end = _split_position(text, start, start + max_characters)
        yield text[start:end]
        start = end + text[end].isspace()
    yield text[start:] if start else text


def _split_position(text: str, start: int, end: int) -> int:
    for at in range(end, max(start, end - _CUT_SEARCH_CHARACTERS), -1):
        if text[at].isspace():
            return at
    for at in range(end, max(start, end - _CLUSTER_SEARCH_CHARACTERS), -1):
        joined = text[at - 1] == "\u200d" or text[at] == "\u200d"
        if not joined and not unicodedata.category(text[at]).startswith("M"):
            return at
    return end


def read_decoded(path: Path, encoding_errors: EncodingErrors = "strict") -> Iterator[str]:
    r"""Yield the text of a file in pieces, a byte order mark dropped, every line end a "\n".

    Raises:
        ValueError: the file is not UTF-8, holds a NUL, or its compression is damaged.
    """
    decoder = codecs.getincrementaldecoder("utf-8")(encoding_errors)
    n_bytes, n_lines, held, first = 0, 1, "", True
    for data, final in _with_last_flag(read_decompressed(path)):
        try:
            text = held + decoder.decode(data, final)
        except UnicodeDecodeError as error:
            before = held + error.object[: error.start].decode("utf-8", "replace")
            line = n_lines + len(LINE_END.findall(before))
            at = n_bytes + len(data) - len(error.object) + error.start
            raise ValueError(_not_utf8_message(f"{path}:{line}", at, error)) from error
        n_bytes += len(data)
        if first and text:
            text, first = text.removeprefix("\ufeff"), False
        # Two carriage returns may yet belong to a newline, and a line end must be seen whole.
        n_held = 0 if final else len(text[-2:]) - len(text[-2:].rstrip("\r"))
        text, held = text[: len(text) - n_held], text[len(text) - n_held :]
        if "\r" in text:
            text = LINE_END.sub("\n", text)
        if "\0" in text:
            line = n_lines + text.count("\n", 0, text.index("\0"))
            text = replace_nul(text, f"{path}:{line}", encoding_errors)
        n_lines += text.count("\n")
        yield text


def replace_nul(text: str, where: str, encoding_errors: EncodingErrors) -> str:
    """Replace the NULs of a text.

    Raises:
        ValueError: `encoding_errors` is "strict".
    """
    if encoding_errors == "strict":
        raise ValueError(
            f"{where}: a NUL character, which no text has: a binary file, or UTF-16? {REPLACE_HINT}"
        )
    return text.replace("\0", "\ufffd")


def _with_last_flag(items: Iterable[bytes]) -> Iterator[tuple[bytes, bool]]:
    """Yield each piece and whether it is the last; the last is an empty one."""
    for item in items:
        yield item, False
    yield b"", True


def _not_utf8_message(where: str, at: int, error: UnicodeDecodeError) -> str:
    found = error.object[error.start : error.start + 4]
    looks = "; it looks like UTF-16" if at == 0 and found[:2] in (b"\xff\xfe", b"\xfe\xff") else ""
    if at <= 1 and error.object[:2] == b"\x1f\x8b":
        looks = "; it looks like gzip: name it .gz"
    return (
        f"{where}: invalid UTF-8 at byte offset {at} ({found.hex(' ')}: {error.reason}){looks}; "
        f"convert the file to UTF-8 {REPLACE_HINT}"
    )
