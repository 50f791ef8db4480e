"""word2vec's binary vectors: a header, then each word, a space, and its numbers as float32.

The original program ends each vector with a newline, gensim does not; both are read.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from jaxtyping import Float

from unmask.text.formats.decompress import compression_suffix, read_decompressed
from unmask.word_vectors.formats.accumulator import VectorAccumulator
from unmask.word_vectors.formats.text import HEADER_PATTERN
from unmask.word_vectors.keyed_vectors import KeyedVectors

_FLOAT32 = np.dtype("<f4")
MAX_WORD_BYTES = 2**16
"""Bytes of a word, or of the header."""
_SPACE = re.compile(rb"\s*")
_NEVER = re.compile(rb"[\0\t\n\r]")  # word2vec's own program ends words at them
_LARGE, _APART = 1e9, 1e12
_SPACED = (
    "holds a space, at which this format ends a word: it cannot be read; write it as "
    "word2vec-text, or with _ for spaces"
)


class ByteReader:
    """The bytes of a file, taken one after the other."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.offset = 0  # of what was taken
        self._pieces = read_decompressed(path)
        self._held, self._at = b"", 0

    def read(self, n: int) -> bytes:
        """Take `n` bytes, or as many as there are."""
        found: list[bytes] = []
        while n > 0 and (self._at < len(self._held) or self._more()):
            some = self._held[self._at : self._at + n]
            found.append(some)
            self._at += len(some)
            self.offset += len(some)
            n -= len(some)
        return found[0] if len(found) == 1 else b"".join(found)

    def read_until(self, end: bytes, max_bytes: int = MAX_WORD_BYTES) -> bytes | None:
        """Return the text before a byte, and consume the byte; None if it is not near."""
        begin = 0
        while (at := self._held.find(end, self._at + begin)) < 0:
            begin = len(self._held) - self._at
            if begin > max_bytes or not self._more():
                return None
        found = self._held[self._at : at]
        self.offset += at + 1 - self._at
        self._at = at + 1
        return found if len(found) <= max_bytes else None

    def _more(self) -> bool:
        piece = next(self._pieces, b"")
        self._held, self._at = self._held[self._at :] + piece, 0
        return bool(piece)


class _WordFraming:
    """Words as they come, each checked to begin where the row before it ends.

    A word with a space would end too early: what is read as its numbers would begin with the rest
    of it, and the next word with the last bytes of its numbers.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.read = 0
        self.parted: bool | None = None  # whether a newline precedes each word but the first
        self.before, self.row, self.other = b"", b"", b""

    def word(self, data: bytes, row: bytes) -> bytes:
        """Return a word without the newline before it.

        Raises:
            ValueError: it holds what no word of this format can, or the one before it did.
        """
        self.read += 1
        parted, word = data.startswith(b"\n"), data.lstrip(b"\n")
        if self.read > 1:
            self._check(word, parted)
        if (odd := _NEVER.search(word)) is not None:
            raise ValueError(
                f"{self.path}: word {self.read:,} ({_printable(word)}) holds the byte "
                f"0x{odd[0].hex()}, which no word of a binary file can: it is damaged, or a word "
                f"before it {_SPACED}"
            )
        self.before, self.row, self.other = word, row, self.row
        return word

    def _check(self, word: bytes, parted: bool) -> None:
        if (rest := _rest(self.row, word, self.other)) is not None:
            whole = self.before + b" " + rest
            raise ValueError(f"{self.path}: word {self.read - 1:,} ({_printable(whole)}) {_SPACED}")
        if self.read == 2:
            self.parted = parted
        elif parted != self.parted:
            found, others = ("a", "none") if parted else ("no", "one")
            raise ValueError(
                f"{self.path}: {found} newline stands before word {self.read:,} "
                f"({_printable(word)}), and {others} before those before it: it is damaged, or a "
                "word "
                f"before it {_SPACED}"
            )


def _rest(row: bytes, after: bytes, other: bytes) -> bytes | None:
    """Return the end of a word inside what was read as numbers, if there is one.

    That is so if the numbers start with text and a space, the next word is text at the same offset,
    and the magnitudes of the numbers do not fit a vector or other rows: with shifted bytes,
    exponents are arbitrary.
    """
    at = -1
    while (at := row.find(b" ", at + 1, len(after))) >= 0 and _is_text(row[:at]):
        if _is_text(after[at + 1 :].lstrip(b"\n")):
            return row[:at] if _odd(row, other) else None
    return None


def _odd(row: bytes, other: bytes) -> bool:
    sizes, usual = _sizes(row), _sizes(other)
    if not len(sizes):
        return False
    least, most = float(sizes.min()), float(sizes.max())
    if not most < np.inf or most > _APART * least:
        return True
    scale = float(usual.max()) if len(usual) else 1.0
    return not scale / _LARGE < most < scale * _LARGE


def _sizes(row: bytes) -> Float[np.ndarray, "d"]:
    """Return the sizes of numbers, without zeros."""
    with np.errstate(invalid="ignore"):
        sizes = np.abs(np.frombuffer(row, _FLOAT32).astype(np.float64))
    return sizes[sizes != 0]


def _is_text(data: bytes) -> bool:
    try:
        return data.decode().isprintable()
    except UnicodeDecodeError:
        return False


def _printable(word: bytes) -> str:
    text = word.decode("utf-8", "backslashreplace")
    return repr(text if len(text) <= 40 else f"{text[:40]}...")


def read_binary(path: Path, *, limit: int | None = None) -> KeyedVectors:
    """Read vectors in word2vec's binary format.

    Raises:
        ValueError: the header is wrong, the file is truncated, a word holds a space or a NUL, or a
            number is not finite.
    """
    source = ByteReader(path)
    line = source.read_until(b"\n")
    found = None if line is None else HEADER_PATTERN.fullmatch(line)
    if found is None or not int(found[1]) or not int(found[2]):
        raise ValueError(
            f"{path}: a header must say how many words there are and how many numbers each has, "
            "as in '400000 300'"
        )
    n_words, width = int(found[1]), int(found[2])
    says = f"its header says {n_words:,} words of {width:,} numbers"
    size = path.stat().st_size
    least = (1 if limit is not None else n_words) * (4 * width + 1)
    if (compression_suffix(path) is None and source.offset + least > size) or width > 2**24:
        raise ValueError(
            f"{path}: {says}, for which its {size:,} bytes are too few: it is truncated, or its "
            "header is wrong"
        )
    made = VectorAccumulator(
        path, width, lambda at: f"{path}: at byte {at}", f": it is damaged, or {says} wrongly"
    )
    framed = _WordFraming(path)
    while made.n_read < min(n_words, limit or n_words):
        begin = source.offset
        word = source.read_until(b" ")
        row = source.read(4 * width)
        if word is None or len(row) < 4 * width:
            raise ValueError(
                f"{path}: word {made.n_read + 1:,}, at byte {begin}, does not end: {says}, so it "
                "is truncated or damaged, or its header is wrong"
            )
        made.add(framed.word(word, row), np.frombuffer(row, _FLOAT32), begin)
    if limit is None or limit >= n_words:
        _check_at_end(source, says)
    return made.to_keyed_vectors()


def write_binary(space: KeyedVectors, words: list[bytes]) -> Iterator[bytes]:
    """Yield the bytes of a file, with a newline after each vector as in the original program."""
    yield f"{len(space)} {space.vector_size}\n".encode()
    for word, row in zip(words, space.vectors, strict=True):
        yield word + b" " + row.astype(_FLOAT32, copy=False).tobytes() + b"\n"


def _check_at_end(source: ByteReader, says: str) -> None:
    """Check that there is nothing but white space behind the last vector."""
    at = source.offset
    rest = source.read(MAX_WORD_BYTES)
    if _SPACE.fullmatch(rest) is None:
        raise ValueError(
            f"{source.path}: {says}, which end at byte {at}, but there is more: the header is wrong"
        )
