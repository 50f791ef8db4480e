"""Where the sentences of many paragraphs start, most of them found at once.

A text is looked at as an array of characters. Of a stop by itself (none before or behind it) these
cases are certain, the others are left to `sentences`:

- no end: `.`, `!`, `?` and `\u2026` before a letter, a digit, or the end of the paragraph, before
  which a quote or bracket may be
- an end: `.` behind a word of 2 to 24 ASCII letters, the last of them small, that is no
  abbreviation, and before a space and a capital
- an end: `!` and `?` behind an ASCII letter, and before a space and a capital
- an end: all three behind an ASCII letter and before a quote or bracket, a space and a capital
"""

from functools import cache

import numpy as np
from jaxtyping import Bool, Int, UInt32

from unmask.text.sentences import ABBREVIATIONS, CLOSING_QUOTES, STOPS, spans_between

_N_TABLE_CODES = 2**16
_MAX_LETTERS, _MAX_ABBREVIATION = 24, 8
_PART_CHARACTERS = 2**19
"""Characters that are looked at together, at least."""
_MARGIN = "\n" * (_MAX_LETTERS + 1)
"""Around the text, so that what is around a stop can be looked up."""


def sentence_starts(text: str) -> tuple[Int[np.ndarray, "s"], Int[np.ndarray, "p"]]:
    r"""Return where the sentences of a text start, and which of these start a paragraph.

    They are those of `sentence_spans` of each paragraph.

    Args:
        text: paragraphs, separated by "\n"; blank ones have no sentence.
    """
    found, at = list[tuple[np.ndarray, np.ndarray]](), 0
    while at < len(text):
        line_end = text.find("\n", at + _PART_CHARACTERS)
        end = len(text) if line_end < 0 else line_end
        sentences, paragraphs = _starts_in_part(text[at:end])
        found.append((sentences + at, paragraphs + at))
        at = end + 1
    if not found:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    sentences, paragraphs = map(np.concatenate, zip(*found, strict=True))
    return sentences, paragraphs


def _starts_in_part(text: str) -> tuple[Int[np.ndarray, "s"], Int[np.ndarray, "p"]]:
    text = f"{_MARGIN}{text}{_MARGIN}"
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.dtype("<u4"))
    line_ends = np.flatnonzero(codes == ord("\n"))
    begins = np.append(0, line_ends[:-1] + 1)
    stops, following = _find_stops(codes)
    is_plain = ~_characters("white")[_low(codes[begins])]
    is_plain[np.searchsorted(line_ends, stops[following == 0])] = False
    known = following[is_plain[np.searchsorted(line_ends, stops)]]
    sentences, paragraphs = [begins[is_plain], known], [begins[is_plain]]
    others = np.flatnonzero(~is_plain & (line_ends > begins))
    spans = np.stack([begins[others], line_ends[others]], axis=1)
    for (begin, end), (i, j) in zip(
        spans.tolist(), np.searchsorted(stops, spans).tolist(), strict=True
    ):
        behind = following[i:j]
        relative = np.where(behind > 0, behind - begin, 0).tolist()
        here = zip((stops[i:j] - begin).tolist(), relative, strict=True)
        found = spans_between(text[begin:end], here)
        starts = np.array([begin + start for start, _ in found], np.int64)
        sentences.append(starts)
        paragraphs.append(starts[:1])
    n = len(_MARGIN)
    return np.sort(np.concatenate(sentences)) - n, np.sort(np.concatenate(paragraphs)) - n


def _find_stops(
    codes: UInt32[np.ndarray, "c"],
) -> tuple[Int[np.ndarray, "s"], Int[np.ndarray, "s"]]:
    """Return where sentences may end, and where the next one starts if that is certain, else 0."""
    stops = np.flatnonzero(_characters("stop")[_low(codes)])
    follows = np.append(False, np.diff(stops) == 1)
    single = ~(follows | np.append(follows[1:], False))
    mark, next_one, second, third = (codes[stops + i] for i in range(4))
    simple = single & _characters("simple stop")[_low(mark)]
    no_end = (next_one == ord("\n")) | _characters("letter or digit")[_low(next_one)]
    behind_letter, is_word = _is_letter(codes[stops - 1]), _behind_word(codes, stops)
    closed = _characters("closing")[_low(next_one)] & behind_letter
    no_end |= closed & (second == ord("\n"))
    quoted = closed & (second == ord(" ")) & _is_capital(third)
    plain = (next_one == ord(" ")) & _is_capital(second) & ((mark != ord(".")) | is_word)
    ends = simple & (mark != ord("\u2026")) & behind_letter & (plain | quoted)
    following = np.where(ends, stops + 2 + quoted, 0)
    looked_at = ~follows & ~(simple & no_end)
    return stops[looked_at], following[looked_at]


def _behind_word(
    codes: UInt32[np.ndarray, "c"], stops: Int[np.ndarray, "s"]
) -> Bool[np.ndarray, "s"]:
    """Return which stops stand behind a word that is no abbreviation."""
    n_letters = np.zeros(len(stops), np.int64)
    number = np.zeros(len(stops), np.uint64)  # of its letters
    places = np.arange(len(stops))
    for i in range(_MAX_LETTERS):
        letters = codes[stops[places] - 1 - i]
        goes_on = _is_letter(letters)
        places, letters = places[goes_on], letters[goes_on]
        if i < _MAX_ABBREVIATION:
            small = letters.astype(np.uint64) | np.uint64(0x20)
            number[places] |= small << np.uint64(8 * i)
        n_letters[places] += 1
    before = codes[stops - 1 - n_letters]
    known = np.isin(number, _abbreviations()) & (n_letters <= _MAX_ABBREVIATION)
    is_small = codes[stops - 1] >= ord("a")
    return (n_letters > 1) & is_small & _characters("white")[_low(before)] & ~known


@cache
def _abbreviations() -> np.ndarray:
    words = [word for word in ABBREVIATIONS if word.isascii() and word.isalpha()]
    assert max(map(len, words)) <= _MAX_ABBREVIATION
    return np.array([int.from_bytes(word.encode(), "big") for word in words], np.uint64)


def _is_capital(codes: UInt32[np.ndarray, "s"]) -> Bool[np.ndarray, "s"]:
    return (codes >= ord("A")) & (codes <= ord("Z"))


def _is_letter(codes: UInt32[np.ndarray, "s"]) -> Bool[np.ndarray, "s"]:
    return _is_capital(codes & np.uint32(0xFFFFFFDF))


def _low(codes: UInt32[np.ndarray, "s"]) -> UInt32[np.ndarray, "s"]:
    return np.minimum(codes, np.uint32(_N_TABLE_CODES))


@cache
def _characters(kind: str) -> Bool[np.ndarray, "c"]:
    """Return which code points are of a kind; of those beyond the table none is."""
    is_kind = {
        "stop": STOPS.__contains__,
        "simple stop": ".!?\u2026".__contains__,
        "closing": CLOSING_QUOTES.__contains__,
        "white": str.isspace,
        "letter or digit": str.isalnum,
    }[kind]
    return np.array([*map(is_kind, map(chr, range(_N_TABLE_CODES))), False])
