"""word2vec's binary vectors: a header, then each word, a space, and its numbers as float32.

The original program ends each vector with a newline, gensim does not; both are read.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from unmask.text.compressed import compression, pieces
from unmask.vectors.gathered import Gathered
from unmask.vectors.lines import HEADER
from unmask.vectors.space import Space

_NUMBER = np.dtype("<f4")
LONGEST = 2**16
"""Bytes of a word, or of the header."""
_SPACE = re.compile(rb"\s*")


class Source:
    """The bytes of a file, taken one after the other."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.offset = 0  # of what was taken
        self._pieces = pieces(path)
        self._held, self._at = b"", 0

    def take(self, n: int) -> bytes:
        """Take `n` bytes, or as many as there are."""
        found: list[bytes] = []
        while n > 0 and (self._at < len(self._held) or self._more()):
            some = self._held[self._at : self._at + n]
            found.append(some)
            self._at += len(some)
            self.offset += len(some)
            n -= len(some)
        return found[0] if len(found) == 1 else b"".join(found)

    def until(self, end: bytes, most: int = LONGEST) -> bytes | None:
        """Take what stands before a byte, and the byte itself; None if it does not come soon."""
        begin = 0
        while (at := self._held.find(end, self._at + begin)) < 0:
            begin = len(self._held) - self._at
            if begin > most or not self._more():
                return None
        found = self._held[self._at : at]
        self.offset += at + 1 - self._at
        self._at = at + 1
        return found if len(found) <= most else None

    def _more(self) -> bool:
        piece = next(self._pieces, b"")
        self._held, self._at = self._held[self._at :] + piece, 0
        return bool(piece)


def read_binary(path: Path, *, limit: int | None = None) -> Space:
    """Read vectors in word2vec's binary format.

    Raises:
        ValueError: the header is wrong, the file is truncated, or a number is not finite.
    """
    source = Source(path)
    line = source.until(b"\n")
    found = None if line is None else HEADER.fullmatch(line)
    if found is None or not int(found[1]) or not int(found[2]):
        raise ValueError(
            f"{path}: a header must say how many words there are and how many numbers each has, "
            "as in '400000 300'"
        )
    n_words, width = int(found[1]), int(found[2])
    says = f"its header says {n_words:,} words of {width:,} numbers"
    size = path.stat().st_size
    least = (1 if limit is not None else n_words) * (4 * width + 1)
    if (compression(path) is None and source.offset + least > size) or width > 2**24:
        raise ValueError(
            f"{path}: {says}, for which its {size:,} bytes are too few: it is truncated, or its "
            "header is wrong"
        )
    made = Gathered(
        path, width, lambda at: f"{path}: at byte {at}", f": it is damaged, or {says} wrongly"
    )
    while made.read < min(n_words, limit or n_words):
        begin = source.offset
        word = source.until(b" ")
        row = source.take(4 * width)
        if word is None or len(row) < 4 * width:
            raise ValueError(
                f"{path}: word {made.read + 1:,}, at byte {begin}, does not end: {says}, so it is "
                "truncated or damaged, or its header is wrong"
            )
        made.add(word.lstrip(b"\n"), np.frombuffer(row, _NUMBER), begin)
    if limit is None or limit >= n_words:
        _check_end(source, says)
    return made.space()


def write_binary(space: Space, words: list[bytes]) -> Iterator[bytes]:
    """Give the bytes of a file, with a newline after each vector as the original program has it."""
    yield f"{len(space)} {space.width}\n".encode()
    for word, row in zip(words, space.vectors, strict=True):
        yield word + b" " + row.astype(_NUMBER, copy=False).tobytes() + b"\n"


def _check_end(source: Source, says: str) -> None:
    """Check that there is nothing but white space behind the last vector."""
    at = source.offset
    rest = source.take(LONGEST)
    if _SPACE.fullmatch(rest) is None:
        raise ValueError(
            f"{source.path}: {says}, which end at byte {at}, but there is more: the header is wrong"
        )
