"""Words of texts as 64-bit numbers, many at once: what n-grams are compared by.

A word is a polynomial of its characters modulo 2^64, mixed by the last step of SplitMix64 (Steele
et al. 2014, doi:10.1145/2660193.2660195). Two different words are the same number with a
probability of 2^-64 or so.
"""

import sys
import unicodedata
from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

_BASE = 0x9E3779B97F4A7C15
_MAX_POWERS = 2**10
_NEWLINE = 10
_EXACT, _NORMALIZED = "exact", "normalized"
_SEPARATOR, _OF_WORD, _ALONE = 0, 1, 2
_UNSPACED = (
    (0x0E00, 0x0EFF), (0x1000, 0x109F), (0x1780, 0x17FF), (0x3040, 0x30FF), (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x3FFFF),
)  # fmt: skip
"""Scripts without spaces between words: Thai and Lao, Burmese, Khmer, kana, Han."""


def mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Spread each bit of numbers over all of them."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def hash_exact_words(text: str) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Return the number and the length in characters of each word, as white space parts them."""
    hashes, _, lengths = _hash_words(text.replace("\n", " "), _EXACT)
    return hashes, lengths


def hash_normalized_words(
    texts: Sequence[str],
) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Return the numbers of all words of all texts, and how many words each text has.

    Words are compared without case, punctuation and symbols; a letter of a script without spaces
    between words (Chinese, Japanese, Thai, Lao, Khmer, Burmese) is a word.
    """
    joined = "\n".join(text.replace("\n", " ") for text in texts).lower()
    if not joined.isascii():
        joined = unicodedata.normalize("NFKC", joined)
    hashes, counts, _ = _hash_words(joined, _NORMALIZED)
    return hashes, counts[: len(texts)]


def fold_windows(
    hashes: NDArray[np.uint64], begins: NDArray[np.int64], n: int
) -> NDArray[np.uint64]:
    """Return a number for the `n` words from each of `begins`."""
    result = np.zeros(len(begins), np.uint64)
    for i in range(n):
        result = (result + hashes[begins + i]) * np.uint64(_BASE)
    return mix(result)


def _hash_words(
    text: str, kinds: str
) -> tuple[NDArray[np.uint64], NDArray[np.int64], NDArray[np.int64]]:
    """Hash the words of texts, which newlines part.

    Returns:
        Numbers of the words, the number of words of each text, characters of each word.
    """
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")
    kind = _character_kinds(kinds)[codes]
    newlines = np.flatnonzero(codes == _NEWLINE)
    inside = kind != _SEPARATOR
    alone = kind == _ALONE
    before = np.zeros(len(codes), bool)  # whether a character before is of the same word
    before[1:] = inside[:-1] & ~alone[:-1] & ~alone[1:]
    begins = np.flatnonzero(inside & ~before)
    counts = np.bincount(np.searchsorted(newlines, begins), minlength=len(newlines) + 1).astype(
        np.int64
    )
    if not len(begins):
        return np.zeros(0, np.uint64), counts, np.zeros(0, np.int64)
    starts = (np.cumsum(inside) - 1)[begins]  # among the characters of words
    lengths = np.diff(starts, append=int(inside.sum()))
    positions = np.arange(int(inside.sum())) - np.repeat(starts, lengths)
    values = codes[inside].astype(np.uint64) + np.uint64(1)
    values *= _powers()[positions % _MAX_POWERS]
    return mix(np.add.reduceat(values, starts)), counts, lengths


@cache
def _powers() -> NDArray[np.uint64]:
    result = np.full(_MAX_POWERS, _BASE, np.uint64)
    result[0] = 1
    return np.multiply.accumulate(result)


@cache
def _character_kinds(kinds: str) -> NDArray[np.uint8]:
    """Return what each code point is: of a word, a separator, or a word alone."""
    result = np.full(sys.maxunicode + 1, _OF_WORD, np.uint8)
    if kinds == _EXACT:
        separators = [code for code in range(0x10000) if chr(code).isspace()]
    else:
        separators = [
            code for code in range(0x20000) if unicodedata.category(chr(code))[0] in "PSCZ"
        ]
        for first, last in _UNSPACED:
            result[first : last + 1] = _ALONE
    result[separators] = _SEPARATOR
    return result
