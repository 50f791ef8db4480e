"""Vectors as text: a line for each word, behind a header (word2vec, fastText) or not (GloVe).

A line is a word and its numbers with spaces (or tabs) between. A word may hold spaces, as some of
GloVe's do: the numbers are the last fields of a line.
"""

import re
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from jaxtyping import Float

from unmask.text.formats.decompress import compression_suffix, read_decompressed
from unmask.word_vectors.formats.accumulator import VectorAccumulator
from unmask.word_vectors.keyed_vectors import KeyedVectors

HEADER_PATTERN = re.compile(rb"\s*(\d{1,18})[ \t]+(\d{1,18})\s*")
"""What a header says: how many words, and how many numbers each has."""

_BOM = b"\xef\xbb\xbf"
_MAX_LINE_BYTES = 2**26  # bytes of a line: a million numbers
_LINES_PER_WRITE = 2**10  # lines that are written together


def read_text_vectors(path: Path, *, header: bool, limit: int | None = None) -> KeyedVectors:
    """Read vectors in text format.

    Args:
        path: path of the file.
        header: whether the first line has the numbers of words and dimensions.
        limit: maximum number of words.

    Raises:
        ValueError: a line has too few or too many numbers or a field that is not a number, a number
            is not finite, or the header is wrong.
    """
    lines = _lines(path)
    number, line = next(lines, (1, b""))
    line = line.removeprefix(_BOM)
    n_words: int | None = None
    if header:
        n_words, width = _parse_header(path, line, limit)
    else:
        width = _vector_size(f"{path}:{number}", line)
    says = "as the header says" if header else "as on the first line"
    made = VectorAccumulator(path, width, lambda place: f"{path}:{place}")
    most = min((n for n in (n_words, limit) if n is not None), default=None)
    with warnings.catch_warnings():  # what NumPy before 2.3 says of text that holds other things
        warnings.simplefilter("error", DeprecationWarning)
        if not header:
            made.add(*_parse_row(line, width, f"{path}:{number}", says), number)
        while most is None or made.n_read < most:
            number, line = next(lines, (0, b""))
            if not number:
                break
            made.add(*_parse_row(line, width, f"{path}:{number}", says), number)
    if n_words is not None and made.n_read < (most or 0):
        raise ValueError(
            f"{path}: its header says {n_words:,} words, but it holds {made.n_read:,}: it is "
            "truncated, or its header is wrong"
        )
    if most == n_words and (more := next(lines, None)) is not None:
        raise ValueError(f"{path}:{more[0]}: its header says {n_words:,} words, but there are more")
    return made.to_keyed_vectors()


def ends_in_number(head: bytes) -> bool:
    """Return whether the first line ends in a number."""
    fields = head.split(b"\n", 1)[0].split()
    return len(fields) > 1 and _is_number(fields[-1])


def write_text_vectors(space: KeyedVectors, words: list[bytes], *, header: bool) -> Iterator[bytes]:
    """Yield the lines of a file, each number with the fewest digits that identify it in float32."""
    if header:
        yield f"{len(space)} {space.vector_size}\n".encode()
    form = b" %.9g" * space.vector_size
    for start in range(0, len(space), _LINES_PER_WRITE):
        rows = shortest_decimals(space.vectors[start : start + _LINES_PER_WRITE]).tolist()
        said = [word + form % tuple(row) for word, row in zip(words[start:], rows, strict=False)]
        yield b"\n".join([*said, b""])


def shortest_decimals(numbers: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
    """Return in float64 what is the same in float32 and has the fewest decimal digits, of 6 to 9.

    Nine digits say any number of float32; a number that came from a file has often five.
    """
    wide = numbers.astype(np.float64)
    with np.errstate(divide="ignore"):
        first = np.floor(np.log10(np.abs(wide)))  # which power of ten the first digit is of
    first[~np.isfinite(first)] = 0
    found = wide.copy()
    for digits in (8, 7, 6):
        power = digits - 1 - first
        # Up to 10^22 powers of ten are exact in float64, and so are quotients rounded once.
        scale = 10.0 ** np.abs(power)
        up = power >= 0
        whole = np.rint(np.where(up, wide * scale, wide / scale))
        short = np.where(up, whole / scale, whole * scale)
        same = short.astype(np.float32) == numbers
        found[same] = short[same]
    return found


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    r"""Yield lines without their ends ("\n" or "\r\n"), numbered; empty ones only end a file."""
    empty = 0
    for number, line in enumerate(_line_chunks(path), 1):
        line = line.rstrip(b"\r")
        if not line or line.isspace():
            empty = empty or number
            continue
        if empty:
            raise ValueError(f"{path}:{empty}: an empty line among the words")
        yield number, line


def _line_chunks(path: Path) -> Iterator[bytes]:
    held: list[bytes] = []
    size, number = 0, 1
    for piece in read_decompressed(path):
        first, *others = piece.split(b"\n")
        held.append(first)
        size += len(first)
        if size > _MAX_LINE_BYTES:
            raise ValueError(
                f"{path}:{number}: a line of more than {_MAX_LINE_BYTES:,} bytes: no text of "
                "vectors"
            )
        if others:
            yield b"".join(held)
            yield from others[:-1]
            held, size = others[-1:], len(others[-1])
            number += len(others)
    yield b"".join(held)


def _parse_header(path: Path, line: bytes, limit: int | None) -> tuple[int, int]:
    found = HEADER_PATTERN.fullmatch(line)
    if found is None or not int(found[1]) or not int(found[2]):
        said = line[:60].decode("utf-8", "backslashreplace")
        raise ValueError(
            f"{path}:1: a header says how many words there are and how many numbers each has, "
            f"as in '400000 300', got {said!r}"
        )
    n_words, width = int(found[1]), int(found[2])
    size = path.stat().st_size
    if limit is None and compression_suffix(path) is None and n_words * width * 2 > size:
        raise ValueError(
            f"{path}:1: its header says {n_words:,} words of {width:,} numbers, for which its "
            f"{size:,} bytes are too few: it is truncated, or its header is wrong"
        )
    if width > _MAX_LINE_BYTES:
        raise ValueError(f"{path}:1: its header says {width:,} numbers a word")
    return n_words, width


def _vector_size(where: str, line: bytes) -> int:
    """Count the numbers at the end of the first line, of which the word is none."""
    fields = line.split()
    width = 0
    while width < len(fields) - 1 and _is_number(fields[-1 - width]):
        width += 1
    if not width:
        said = line[:60].decode("utf-8", "backslashreplace")
        raise ValueError(f"{where}: a line must be a word and its numbers, got {said!r}")
    return width


def _parse_row(
    line: bytes, width: int, where: str, width_source: str
) -> tuple[bytes, Float[np.ndarray, "d"]]:
    """Part a line into its word and numbers."""
    spaced = line.replace(b"\t", b" ") if b"\t" in line else line
    at = spaced.find(b" ")
    if at >= 0:
        try:
            row = np.fromstring(spaced[at:], np.float32, sep=" ")
        except (ValueError, DeprecationWarning):
            pass
        else:
            if len(row) == width and 0 not in line:
                return line[:at], row
    return _parse_unusual_row(line, width, where, width_source)


def _parse_unusual_row(
    line: bytes, width: int, where: str, width_source: str
) -> tuple[bytes, Float[np.ndarray, "d"]]:
    """Read a line whose word holds spaces, or say what is wrong with it."""
    if b"\0" in line:
        raise ValueError(f"{where}: a NUL, which no text has: is the file binary, or damaged?")
    if b"\r" in line:
        raise ValueError(f"{where}: a carriage return in a line: is it the file's only line end?")
    fields = line.split()
    n_numbers = 0
    while n_numbers < len(fields) - 1 and _is_number(fields[-1 - n_numbers]):
        n_numbers += 1
    word = b" ".join(fields[: len(fields) - n_numbers]).decode("utf-8", "backslashreplace")
    shown = word if len(word) <= 40 else f"{word[:40]}..."
    if n_numbers < width and len(fields) > width:
        wrong = next(f for f in reversed(fields) if not _is_number(f))
        said = wrong[:40].decode("utf-8", "backslashreplace")
        raise ValueError(
            f"{where}: {said!r} is no number; {width} must follow a word, {width_source}"
        )
    if n_numbers != width:
        # That a word with spaces in it ends in a number is less likely than a broken line.
        raise ValueError(
            f"{where}: {shown!r} is followed by {n_numbers:,} numbers, not by {width:,}, "
            f"{width_source}"
        )
    parts = line.rsplit(None, width)
    return parts[0], np.array([float(part) for part in parts[1:]], dtype=np.float32)


def _is_number(field: bytes) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return b"_" not in field
