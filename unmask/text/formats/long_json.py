"""JSON records of many megabytes: parsed without their long strings, which are decoded in pieces.

A string of 100 MB takes 100 to 400 MB in Python by the widest of its characters, and reading a
record the plain way holds the line, its parts, and the decoded value at once. Here the line stays
UTF-8, long strings in it are replaced by short ones before it is parsed, and the one that is wanted
is decoded a piece at a time.
"""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

LONG_LINE_BYTES = 2**22
"""Lines of more bytes are read so."""
_LONG_STRING_BYTES = 2**16
_PIECE_BYTES = 2**20

_STRING = re.compile(rb'"([^"\\]*+(?:\\.[^"\\]*+)*+)"', re.DOTALL)
_WHOLE_ESCAPES = re.compile(rb"[^\\]*+(?:\\(?:u[0-9A-Fa-f]{4}|[^u])[^\\]*+)*+", re.DOTALL)
_HIGH_SURROGATE = re.compile(rb"\\u[dD][89abAB][0-9A-Fa-f]{2}\Z")


@dataclass(frozen=True)
class LongLine:
    """A long line of JSON."""

    line: bytearray
    """In UTF-8."""

    def without_long_strings(self) -> tuple[str, dict[str, tuple[int, int]]]:
        """Return the line with others in place of long strings, and where in it these are."""
        mark = "long"
        while mark.encode() in self.line:
            mark += "er"
        kept, spans, end = list[bytes](), dict[str, tuple[int, int]](), 0
        for found in _STRING.finditer(self.line):
            if found.end() - found.start() > _LONG_STRING_BYTES:
                name = f"{mark}{len(spans)}"
                spans[name] = found.span(1)
                kept += [bytes(self.line[end : found.start(1)]), name.encode()]
                end = found.end(1)
        kept.append(bytes(self.line[end:]))
        return b"".join(kept).decode(), spans

    def decoded(self, start: int, end: int) -> Iterator[str]:
        """Decode the inside of a string, in pieces that part no character.

        Raises:
            JSONDecodeError: it is malformed.
        """
        while start < end:
            cut = self._cut(start, end)
            yield json.loads(f'"{self.line[start:cut].decode()}"')
            start = cut

    def _cut(self, start: int, end: int) -> int:
        """Return where a piece ends: not within an escape, a pair of surrogates, or UTF-8."""
        most = start + _PIECE_BYTES
        if most >= end:
            return end
        whole = _WHOLE_ESCAPES.match(self.line, start, most)
        cut = start if whole is None else whole.end()
        while cut > start and self.line[cut] & 0xC0 == 0x80:
            cut -= 1
        # Behind an even number of backslashes it is an escape.
        pair = _HIGH_SURROGATE.search(self.line, max(start, cut - 6), cut)
        if pair is not None and self._backslashes_before(pair.start(), start) % 2 == 0:
            cut = pair.start()
        return cut if cut > start else end

    def _backslashes_before(self, at: int, start: int) -> int:
        n = 0
        while at - n > start and self.line[at - n - 1] == ord("\\"):
            n += 1
        return n


def join_lines(
    pieces: Iterator[str], too_long: Callable[[int], ValueError], most: int
) -> Iterator[tuple[int, str | bytearray]]:
    r"""Yield the lines of a text that comes in pieces, numbered from 1; long ones in UTF-8.

    Args:
        pieces: the text, every line end a "\n".
        too_long: what is raised of a line, by its number.
        most: characters of a line.
    """
    number, size, held = 1, 0, bytearray()
    for text in pieces:
        *whole, last = text.split("\n")
        for line in whole:
            if size + len(line) > most:
                raise too_long(number)
            yield number, _finished(held, line)
            number, size, held = number + 1, 0, bytearray()
        held += last.encode()
        size += len(last)
        if size > most:
            raise too_long(number)
    if size:
        yield number, _finished(held, "")


def _finished(held: bytearray, line: str) -> str | bytearray:
    if not held:
        return line
    held += line.encode()
    return held if len(held) > LONG_LINE_BYTES else held.decode()
