"""The tokens of words in arrays, so that those of many words are looked up at once.

A word of at most 16 bytes of UTF-8 is two numbers of 64 bits, which are the word itself: they are
found in a table with open addressing. Longer words, and those at the ends of texts, are found by a
dictionary.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import repeat

import numpy as np
from jaxtyping import Bool, Int, UInt32, UInt64

MAX_WORDS = 2**19
"""Words that are remembered; when there are more, the half that was not used for longer is
dropped."""
_MAX_WORD_CHARACTERS = 64
"""Longer ones are encoded each time."""
KEY_BYTES = 16
"""Bytes of the longest word that is a key."""
_SLOT_BITS = 21
_MAX_PROBES = 32
"""Slots that a word may be in; one whose slots are all taken is encoded each time."""
_FACTORS = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93)


@dataclass(frozen=True)
class WordTokens:
    """The tokens of words, one after another."""

    counts: Int[np.ndarray, "w"]
    """Tokens of each word."""
    ids: UInt32[np.ndarray, "t"]
    ends: UInt32[np.ndarray, "t"]
    """End of each token in its word, and whether it starts a word: see `cached_words`."""


@dataclass(frozen=True)
class WordKeys:
    """Words as numbers; the empty one is 0, 0."""

    low: UInt64[np.ndarray, "w"]
    high: UInt64[np.ndarray, "w"]

    def __getitem__(self, which: np.ndarray) -> "WordKeys":
        return WordKeys(self.low[which], self.high[which])

    @property
    def slots(self) -> Int[np.ndarray, "w"]:
        """The first slot of each word."""
        mixed = (self.low ^ (self.high * _FACTORS[0])) * _FACTORS[1]
        return (mixed >> np.uint64(64 - _SLOT_BITS)).astype(np.int64)


def word_keys(
    text: bytes,
    starts: Int[np.ndarray, "w"],
    sizes: Int[np.ndarray, "w"],
    is_attached: Bool[np.ndarray, "w"],
) -> tuple[WordKeys, Bool[np.ndarray, "w"]]:
    """Return words of a text as numbers, and which of them are too long, or have a NUL.

    Args:
        text: in UTF-8.
        starts: of words.
        sizes: bytes of each.
        is_attached: words without a space before them, which have other numbers.
    """
    padded = text + bytes(KEY_BYTES)
    eight = np.ndarray(len(text) + 9, "<u8", padded, strides=(1,))
    low = eight[starts] & _FIRST_BYTES[np.minimum(sizes, 8)]
    high = eight[starts + np.minimum(sizes, 8)] & _FIRST_BYTES[np.clip(sizes - 8, 0, 8)]
    high[is_attached] |= _ATTACHED
    is_other = sizes > KEY_BYTES - is_attached
    nuls = np.flatnonzero(np.frombuffer(text, np.uint8) == 0) if b"\0" in text else []
    is_other[np.searchsorted(starts, nuls, side="right") - 1] = True
    return WordKeys(low.astype(np.uint64), high.astype(np.uint64)), is_other


_FIRST_BYTES = np.array([2 ** (8 * n) - 1 for n in range(9)], np.uint64)

_ATTACHED = np.uint64(0xFF << 56)
"""In place of a last byte: no byte of UTF-8."""

EncodeWords = Callable[[Sequence[str]], WordTokens]


class WordTable:
    """What was made of words in each of several ways; the empty word has no tokens."""

    def __init__(self, ways: Iterable[EncodeWords]) -> None:
        self._ways = tuple(ways)
        self._numbers = [{"": 0} for _ in self._ways]
        self._clock = 0
        self._starts, self._counts, self._used = (_Column(np.int32, [0]) for _ in range(3))
        self._low, self._high = _Column(np.uint64, [0]), _Column(np.uint64, [0])
        self._ids, self._ends = _Column(np.uint32), _Column(np.uint32)
        self._slots = np.zeros(2**_SLOT_BITS, np.int32)

    def look_up(self, words: Sequence[str], way: int = 0) -> Int[np.ndarray, "w"]:
        """Return the number of each word, for `tokens`; unknown ones are encoded.

        Args:
            words: given in one call of several ways, until `forget`.
            way: which of the ways.
        """
        known = self._numbers[way]
        numbers = np.fromiter(map(known.get, words, repeat(-1)), np.int64, len(words))
        unknown = np.flatnonzero(numbers < 0).tolist()
        if unknown:
            added = self._encode([words[i] for i in unknown], way)
            numbers[unknown] = [added[words[i]] for i in unknown]
            known |= {w: i for w, i in added.items() if len(w) <= _MAX_WORD_CHARACTERS}
        self._used.values[numbers] = self._clock
        return numbers

    def look_up_keys(
        self, keys: WordKeys, read: Callable[[Int[np.ndarray, "u"]], list[str]]
    ) -> Int[np.ndarray, "w"]:
        """Return the number of each word by its key; unknown ones are encoded in the first way.

        Args:
            keys: of words.
            read: returns some of the words.
        """
        numbers = self._find(keys)
        unknown = np.flatnonzero(numbers < 0)
        if len(unknown):
            words = read(unknown)
            added = self._encode(words, 0)
            numbers[unknown] = [added[word] for word in words]
            new, first = np.unique(numbers[unknown], return_index=True)
            self._low.values[new] = keys.low[unknown[first]]
            self._high.values[new] = keys.high[unknown[first]]
            self._insert(new)
        self._used.values[numbers] = self._clock
        return numbers

    def tokens(self, numbers: Int[np.ndarray, "w"]) -> WordTokens:
        """Return the tokens of words by their numbers."""
        counts = self._counts.values[numbers]
        places = ranges(self._starts.values[numbers], counts)
        return WordTokens(counts, self._ids.values[places], self._ends.values[places])

    def forget(self) -> None:
        """Drop what was not used for longest, if there is too much. Numbers are valid until then.

        Those of one call are together in use.
        """
        self._clock += 1
        if self._used.size <= MAX_WORDS:
            return
        stays = np.zeros(self._used.size, bool)
        stays[np.argsort(-self._used.values, kind="stable")[: MAX_WORDS // 2]] = True
        stays[0] = True
        numbers = np.flatnonzero(stays)
        new = (np.cumsum(stays) - 1).tolist()
        is_kept = stays.tolist()
        self._numbers = [
            {word: new[i] for word, i in known.items() if is_kept[i]} for known in self._numbers
        ]
        kept, used = self.tokens(numbers), self._used.values[numbers]
        keys = WordKeys(self._low.values, self._high.values)[numbers]
        for column in (self._starts, self._counts, self._used, self._low, self._high):
            column.size = 0
        self._ids.size = self._ends.size = 0
        self._add(kept)
        self._used.values[:] = used
        self._low.values[:], self._high.values[:] = keys.low, keys.high
        self._slots[:] = 0
        self._insert(np.flatnonzero(keys.low))

    def _encode(self, words: Sequence[str], way: int) -> dict[str, int]:
        """Encode words and return their numbers."""
        added = dict.fromkeys(words)
        first = self._used.size
        self._add(self._ways[way]([*added]))
        return dict(zip(added, range(first, self._used.size), strict=True))

    def _add(self, made: WordTokens) -> None:
        none = np.zeros(len(made.counts), np.int64)
        self._starts.append(self._ids.size + np.cumsum(made.counts) - made.counts)
        self._counts.append(made.counts)
        for column in (self._used, self._low, self._high):
            column.append(none)
        self._ids.append(made.ids)
        self._ends.append(made.ends)

    def _find(self, keys: WordKeys) -> Int[np.ndarray, "w"]:
        """Return the number of each key, -1 where it is unknown."""
        numbers = np.full(len(keys.low), -1)
        slots = keys.slots
        places = np.arange(len(slots))
        for _ in range(_MAX_PROBES):
            found = self._slots[slots]
            same = self._low.values[found] == keys.low
            same &= self._high.values[found] == keys.high
            numbers[places[same]] = found[same]
            others = np.flatnonzero(~same & (found > 0))
            if not len(others):
                break
            places, keys = places[others], keys[others]
            slots = (slots[others] + 1) % len(self._slots)
        return numbers

    def _insert(self, numbers: Int[np.ndarray, "n"]) -> None:
        """Put words into slots by their numbers."""
        slots = WordKeys(self._low.values, self._high.values)[numbers].slots
        for _ in range(_MAX_PROBES):
            free = self._slots[slots] == 0
            self._slots[slots[free]] = numbers[free]  # of several, the last stays
            others = np.flatnonzero(self._slots[slots] != numbers)
            if not len(others):
                break
            numbers, slots = numbers[others], (slots[others] + 1) % len(self._slots)


def ranges(starts: Int[np.ndarray, "n"], counts: Int[np.ndarray, "n"]) -> Int[np.ndarray, "m"]:
    """Return `counts[i]` numbers from `starts[i]` on, for each i."""
    before = np.cumsum(counts) - counts
    return np.repeat(starts - before, counts) + np.arange(int(counts.sum()))


class _Column:
    """An array that grows."""

    def __init__(self, dtype: type[np.generic], values: Sequence[int] = ()) -> None:
        self._room = np.array(values, dtype)
        self.size = len(values)

    @property
    def values(self) -> np.ndarray:
        return self._room[: self.size]

    def append(self, values: np.ndarray) -> None:
        size = self.size + len(values)
        if size > len(self._room):
            room = np.empty(2 * size, self._room.dtype)
            room[: self.size] = self.values
            self._room = room
        self._room[self.size : size] = values
        self.size = size
