"""The filters of Gopher: documents that do not look like text, or that repeat themselves."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unmask.text.cleaning.rule import Cleaned, removed_document
from unmask.text.cleaning.word_hashes import fold_windows, hash_exact_words

_BULLETS = ("•", "‣", "◦", "●", "○", "▪", "■", "-", "–", "*", "·")
_ELLIPSES = ("...", "…")
_SYMBOLS = re.compile(r"#|…|\.\.\.")
_LETTER = re.compile(r"[^\W\d_]")
_STOP_WORDS = ("the", "be", "to", "of", "and", "that", "have", "with")


@dataclass(frozen=True)
class GopherQuality:
    """Removal of documents that do not look like running text.

    Rae et al. 2021, arXiv:2112.11446, appendix A.1.1, "Quality filtering". Words are what white
    space parts.
    """

    min_words: int = 50
    """Words that a document must have."""
    max_words: int = 100_000
    """Words that it may have."""
    min_word_length: int | float = 3
    """Mean characters of a word, at least."""
    max_word_length: int | float = 10
    """Mean characters of a word, at most."""
    max_symbols: int | float = 0.1
    """Hash signs and ellipses by word, at most (each of them counted alone)."""
    max_bullets: int | float = 0.9
    """Fraction of lines that begin with a bullet, at most."""
    max_ellipses: int | float = 0.3
    """Fraction of lines that end with an ellipsis, at most."""
    min_alphabetic: int | float = 0.8
    """Fraction of words with a letter, at least."""
    min_stop_words: int = 2
    """Different stop words that a document must have. 0 for languages without a list."""
    stop_words: tuple[str, ...] = _STOP_WORDS
    """Stop words; the default is of English."""

    def clean(self, text: str) -> Cleaned:
        """Remove the document, or nothing."""
        reason = self._find_reason(text)
        return Cleaned(text) if reason is None else removed_document(f"gopher: {reason}", text)

    def _find_reason(self, text: str) -> str | None:
        words, lines = text.split(), text.split("\n")
        n, n_lines = len(words), len(lines)
        if n < self.min_words:
            return f"fewer than {self.min_words:,} words"
        if n > self.max_words:
            return f"more than {self.max_words:,} words"
        mean = sum(map(len, words)) / n
        if not self.min_word_length <= mean <= self.max_word_length:
            return f"mean word length not in {self.min_word_length:g} to {self.max_word_length:g}"
        symbols = Counter(_SYMBOLS.findall(text))
        hashes = symbols["#"]
        ellipses = symbols["..."] + symbols["…"]
        if max(hashes, ellipses) / n > self.max_symbols:
            return f"more than {self.max_symbols:g} symbols a word"
        if sum(line.lstrip().startswith(_BULLETS) for line in lines) / n_lines > self.max_bullets:
            return f"more than {self.max_bullets:.0%} of lines with bullets"
        if sum(line.rstrip().endswith(_ELLIPSES) for line in lines) / n_lines > self.max_ellipses:
            return f"more than {self.max_ellipses:.0%} of lines with ellipses"
        search = _LETTER.search
        if sum(search(word) is not None for word in words) / n < self.min_alphabetic:
            return f"fewer than {self.min_alphabetic:.0%} of words with a letter"
        if self._n_stop_words(words) < self.min_stop_words:
            return f"fewer than {self.min_stop_words} stop words"
        return None

    def _n_stop_words(self, words: Sequence[str]) -> int:
        if not self.min_stop_words:
            return 0
        present = {word.lower() for word in words}
        return sum(word in present for word in self.stop_words)


_TOP_NGRAMS = ((2, 0.20), (3, 0.18), (4, 0.16))
_DUPLICATE_NGRAMS = ((5, 0.15), (6, 0.14), (7, 0.13), (8, 0.12), (9, 0.11), (10, 0.10))


@dataclass(frozen=True)
class GopherRepetition:
    """Removal of documents that repeat lines or sequences of words.

    Rae et al. 2021, arXiv:2112.11446, appendix A.1.1, "Repetition removal", table A1: the fractions
    of lines (30 %) and of their characters (20 %) that were there before, of characters in the most
    frequent 2-, 3- and 4-gram (20, 18, 16 %), and of characters in 5- to 10-grams that were there
    before (15 to 10 %). Characters are those of words.

    Deviates: a line is a paragraph here, so both rows of the table are one.
    """

    scale: int | float = 1.0
    """Factor of all thresholds; 1.5 removes less."""

    def __post_init__(self) -> None:
        if not self.scale > 0:
            raise ValueError(f"scale must be above 0, got {self.scale}")

    def clean(self, text: str) -> Cleaned:
        """Remove the document, or nothing."""
        reason = self._find_reason(text)
        return Cleaned(text) if reason is None else removed_document(f"repetition: {reason}", text)

    def _find_reason(self, text: str) -> str | None:
        lines = text.split("\n")
        counts = Counter(lines)
        if len(counts) < len(lines):
            repeated = {line: n - 1 for line, n in counts.items() if n > 1}
            if sum(repeated.values()) / len(lines) > 0.3 * self.scale:
                return f"more than {0.3 * self.scale:.0%} of lines twice"
            if sum(len(line) * n for line, n in repeated.items()) / len(text) > 0.2 * self.scale:
                return f"more than {0.2 * self.scale:.0%} of characters in lines twice"
        hashes, lengths = hash_exact_words(text)
        total = int(lengths.sum())
        candidates = _repeated_windows(hashes, 2)
        for n, most in _TOP_NGRAMS:
            if _top_characters(hashes, lengths, n, candidates) > most * self.scale * total:
                return f"more than {most * self.scale:.0%} of characters in one {n}-gram"
        candidates = _repeated_windows(hashes, 5)
        for n, most in _DUPLICATE_NGRAMS:
            if not candidates.any():
                break
            candidates = _repeated_windows(hashes, n, candidates)
            if _repeated_characters(hashes, lengths, n, candidates) > most * self.scale * total:
                return f"more than {most * self.scale:.0%} of characters in {n}-grams twice"
        return None


def _repeated_windows(
    hashes: NDArray[np.uint64], n: int, candidates: NDArray[np.bool_] | None = None
) -> NDArray[np.bool_]:
    """Return where n-grams begin that are in the text twice or more.

    Of those that begin at `candidates` alone: an n-gram that is repeated begins with one that is.
    """
    repeated = np.zeros(max(len(hashes) - n + 1, 0), bool)
    if not len(repeated):
        return repeated
    begins = np.arange(len(repeated)) if candidates is None else np.flatnonzero(candidates)
    begins = begins[begins < len(repeated)]
    grams = fold_windows(hashes, begins, n)
    order = np.argsort(grams, kind="stable")
    same = np.diff(grams[order]) == 0
    repeated[begins[order[1:][same]]] = True
    repeated[begins[order[:-1][same]]] = True
    return repeated


def _top_characters(
    hashes: NDArray[np.uint64], lengths: NDArray[np.int64], n: int, candidates: NDArray[np.bool_]
) -> int:
    """Count characters in the most frequent n-gram; the longest of several. 0: none is twice."""
    begins = np.flatnonzero(candidates)
    begins = begins[begins + n <= len(hashes)]
    if not len(begins):
        return 0
    grams = fold_windows(hashes, begins, n)
    _, first, counts = np.unique(grams, return_index=True, return_counts=True)
    most = int(counts.max())
    if most < 2:
        return 0
    places = begins[first[counts == most]]
    return most * max(int(lengths[at : at + n].sum()) for at in places[:1000].tolist())


def _repeated_characters(
    hashes: NDArray[np.uint64], lengths: NDArray[np.int64], n: int, candidates: NDArray[np.bool_]
) -> int:
    """Count characters in n-grams that were there before, each character once."""
    begins = np.flatnonzero(candidates)
    if not len(begins):
        return 0
    grams = fold_windows(hashes, begins, n)
    order = np.argsort(grams, kind="stable")
    again = np.zeros(len(begins), bool)
    again[order[1:][np.diff(grams[order]) == 0]] = True
    covered = np.zeros(len(hashes) + 1, np.int64)
    np.add.at(covered, begins[again], 1)
    np.add.at(covered, begins[again] + n, -1)
    return int(lengths[np.cumsum(covered[:-1]) > 0].sum())
