"""Encoding of a corpus: each word once, as long as it is remembered.

Where the pre-tokenizer splits at the spaces between words, the tokens of a text are those of its
words (see `long_texts`), and a word of a corpus is mostly one that was seen before. Texts are split
at such spaces, and between words and punctuation where the pre-tokenizer splits there, all of a
chunk at once as arrays of characters; words are looked up by their bytes
(see `word_table`); unknown ones are encoded together, as texts of words. The tokens are those of
`Tokenizer.encode_batch`, to which texts are left in which such spaces are rare (Chinese), and
pipelines that do not split there.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby

import numpy as np
from jaxtyping import Bool, Int, UInt8

from unmask.batch import Tokens
from unmask.tokenizers.boundaries import boundaries_of_texts
from unmask.tokenizers.splitting.long_texts import (
    CLOSING_MARKS,
    OPENING_MARKS,
    PUNCTUATION,
    SplitPoints,
)
from unmask.tokenizers.splitting.word_table import (
    WordKeys,
    WordTable,
    WordTokens,
    ranges,
    word_keys,
)

_LETTERS = "0-9A-Za-zÀ-ÖØ-öø-ɏΆΈ-ΏΐΑ-ώЀ-ҁҊ-ӿ"
"""Letters and digits that no normalizer joins with a neighbor or makes a space of."""
_CLOSING, _OPENING = map(re.escape, (CLOSING_MARKS, OPENING_MARKS))
_MARKED_SPACE = re.compile(f" (?<=[{_LETTERS}{_CLOSING}] )(?=[{_LETTERS}{_OPENING}])")
_PLAIN_SPACE = re.compile(f" (?<=[{_LETTERS}] )(?=[{_LETTERS}])")
_MARKED_END = re.compile(f"[{_LETTERS}{_CLOSING}]\\Z")
_PLAIN_END = re.compile(f"[{_LETTERS}]\\Z")

_LETTER_CLASS, _PUNCTUATION_CLASS = f"[{_LETTERS}]", f"[{re.escape(PUNCTUATION)}]"
_ATTACHED = re.compile(f"{_LETTER_CLASS}{_PUNCTUATION_CLASS}|{_PUNCTUATION_CLASS}{_LETTER_CLASS}")

_MEAN_WORD_CHARACTERS, _LONGEST_WORD = 24, 2**16
"""Texts of longer words on average, or with a longer one, are encoded whole."""
_BLOCK_CHARACTERS = 2**19
"""Longer texts are encoded in parts."""
_JOINED_CHARACTERS, _BATCH_CHARACTERS = 2**10, 2**18
"""Unknown words that are encoded as one text, and in one batch: the library is slower with longer
texts."""
_LEAD = "a"
"""A word before these, as there is one before each in its text."""
_IN_TEXT, _FIRST, _LAST = range(3)
"""Where words are: they are encoded in another way at the start and at some ends of texts."""
_N_TABLE_CODES = 0x2100
"""Above the highest character of those at which texts are split."""
_LETTER, _PUNCTUATION = 1, 2
_STARTS_WORD = np.uint32(2**31)
"""Bit of `WordTokens.ends`, which counts characters from the space before the word."""


Located = tuple[Int[np.ndarray, "t"], Bool[np.ndarray, "t"], Int[np.ndarray, "t 2"]]
"""Ids of a text, which of them start a word, and their spans."""


@dataclass(frozen=True)
class EncodedTexts:
    """The tokens of several texts, one after another."""

    lengths: Int[np.ndarray, "n"]
    ids: Int[np.ndarray, "t"]
    boundaries: UInt8[np.ndarray, "t"]

    @staticmethod
    def of(tokens: Sequence[Tokens]) -> "EncodedTexts":
        """Join the tokens of texts."""
        return EncodedTexts(
            np.array([len(t) for t in tokens], np.int64),
            np.concatenate([t.ids for t in tokens]),
            np.concatenate([t.boundaries for t in tokens]).astype(np.uint8),
        )


class CorpusEncoder:
    """Encodes many texts with one tokenizer."""

    def __init__(
        self,
        encode_batch: Callable[[Sequence[str]], list[Tokens]],
        locate: Callable[[Sequence[str]], list[Located]] | None = None,
        split_points: SplitPoints | None = None,
    ) -> None:
        """Encode as a tokenizer does.

        Args:
            encode_batch: encodes texts.
            locate: encodes texts, with spans of tokens. None: all texts are encoded whole.
            split_points: of the tokenizer. None: likewise.
        """
        self._encode_batch, self._locate = encode_batch, locate
        self._splits = locate is not None and split_points is not None and split_points.at_spaces
        marked = self._splits and split_points is not None and split_points.at_marked_spaces
        self._space = _MARKED_SPACE if marked else _PLAIN_SPACE
        self._safe_end = _MARKED_END if marked else _PLAIN_END
        marks = (_CLOSING, _OPENING) if marked else ("", "")
        self._before, self._behind = (_table(f"[{_LETTERS}{some}]") for some in marks)
        self._splits_punctuation = (
            self._splits and split_points is not None and split_points.at_punctuation
        )
        self._table = WordTable(
            (
                self._encode_words,
                lambda words: self._encode_apart(words, ""),
                lambda words: self._encode_apart(words, f"{_LEAD} "),
            )
        )

    def encode_batch(self, texts: Sequence[str]) -> EncodedTexts:
        """Encode texts; the tokens are those of `Tokenizer.encode_batch`.

        Raises:
            ValueError: see there.
        """
        encoded = [encode(list(some)) for encode, some in groupby(texts, self._encoder_of)]
        if len(encoded) == 1:
            return encoded[0]
        columns = zip(*((one.lengths, one.ids, one.boundaries) for one in encoded), strict=True)
        return EncodedTexts(*map(np.concatenate, columns))

    def _encoder_of(self, text: str) -> Callable[[Sequence[str]], EncodedTexts]:
        if not self._splits or (text.count(" ") + 1) * _MEAN_WORD_CHARACTERS < len(text):
            return self._whole
        return self._by_words if len(text) <= _BLOCK_CHARACTERS else self._by_blocks

    def _whole(self, texts: Sequence[str]) -> EncodedTexts:
        return EncodedTexts.of(self._encode_batch(texts))

    def _by_words(self, texts: Sequence[str]) -> EncodedTexts:
        words = self._split(texts)
        if words.longest > _LONGEST_WORD:
            return self._whole(texts)
        ids, starts_word, ends, counts = self._tokens(words)
        lengths = np.add.reduceat(counts, words.first)
        return EncodedTexts(lengths, ids, boundaries_of_texts(texts, starts_word, ends, lengths))

    def _by_blocks(self, texts: Sequence[str]) -> EncodedTexts:
        """Encode long texts each in parts, whose words are not held together."""
        found = list[EncodedTexts]()
        for text in texts:
            parts, at = list[tuple[np.ndarray, ...]](), 0
            while at < len(text):
                space = self._space.search(text, at + _BLOCK_CHARACTERS)
                end = len(text) if space is None else space.start()
                words = self._split([text[at:end]], begins_text=not at)
                if words.longest > _LONGEST_WORD:
                    return self._whole(texts)
                ids, starts_word, ends, _ = self._tokens(words)
                parts.append((ids, starts_word, ends + at))
                at = end + 1
            ids, starts_word, ends = map(np.concatenate, zip(*parts, strict=True))
            lengths = np.array([len(ids)])
            marks = boundaries_of_texts([text], starts_word, ends, lengths)
            found.append(EncodedTexts(lengths, ids, marks))
        columns = zip(*((one.lengths, one.ids, one.boundaries) for one in found), strict=True)
        return EncodedTexts(*map(np.concatenate, columns))

    def _split(self, texts: Sequence[str], *, begins_text: bool = True) -> "_Words":
        """Split texts, which are joined by spaces, at the spaces at which tokens end."""
        joined = " ".join(texts)
        codes = np.frombuffer(joined.encode("utf-32-le"), "<u4")
        spaces = np.flatnonzero(codes == ord(" "))
        around = np.zeros(len(codes) + 2, np.uint32)
        np.minimum(codes, np.uint32(_N_TABLE_CODES), out=around[1:-1])
        is_cut = self._before[around[spaces]] & self._behind[around[spaces + 2]]
        between = np.cumsum([len(text) + 1 for text in texts])[:-1] - 1
        is_cut[np.searchsorted(spaces, between)] = True
        is_start = np.zeros(len(codes) + 1, bool)
        is_start[0] = True
        if self._splits_punctuation:
            kinds = _kinds()[around[1:-1]]
            is_start[1:-1] = kinds[1:] ^ kinds[:-1] == _LETTER ^ _PUNCTUATION
        is_attached = is_start.copy()
        is_start[spaces[is_cut] + 1] = True
        starts = np.flatnonzero(is_start)
        is_attached = is_attached[starts]
        is_attached[0] = False
        stops = np.append(starts[1:] - ~is_attached[1:], len(codes))
        utf8 = joined.encode()
        byte_starts, byte_stops = _byte_places(codes, starts, stops)
        sizes = byte_stops - byte_starts
        keys, is_other = word_keys(utf8, byte_starts, sizes, is_attached)
        first = np.append(0, np.searchsorted(starts, between + 1))
        return _Words(
            text=joined,
            starts=starts,
            stops=stops,
            is_attached=is_attached,
            keys=keys,
            is_other=is_other,
            first=first if begins_text else first[1:],
            last=np.append(first[1:] - 1, len(stops) - 1),
        )

    def _tokens(self, words: "_Words") -> tuple[np.ndarray, ...]:
        """Return ids, word starts and ends of tokens, and how many tokens each word has.

        Words are laid end to end, with a character between two, as between texts. The offsets of a
        word's tokens are from the space before it, those of a text's first word from that.
        """
        self._table.forget()
        bases = words.starts - 1
        bases[words.first] += 1
        found = self._table.tokens(self._look_up(words))
        ends = (found.ends & ~_STARTS_WORD) + np.repeat(bases, found.counts)
        return found.ids.astype(np.int64), found.ends >= _STARTS_WORD, ends, found.counts

    def _look_up(self, given: "_Words") -> Int[np.ndarray, "w"]:
        """Look up words, apart from those at the start of a text and from its end if it is odd.

        What is at the end of a text may be followed by a space elsewhere, unless its last character
        is none that words end with.
        """
        is_first = np.zeros(len(given.starts), bool)
        is_first[given.first] = True
        last = given.last[~is_first[given.last]]
        odd = [not self._safe_end.search(word) for word in given.read(last)]
        apart = is_first | given.is_other
        apart[last[odd]] = True
        keys = given.keys
        keys.low[apart] = keys.high[apart] = 0
        numbers = self._table.look_up_keys(keys, given.read)
        others = np.flatnonzero(apart & ~is_first)
        others = others[~np.isin(others, last[odd])]
        for way, places in ((_IN_TEXT, others), (_FIRST, given.first), (_LAST, last[odd])):
            numbers[places] = self._table.look_up(given.read(places), way)
        return numbers

    def _encode_words(self, words: Sequence[str]) -> WordTokens:
        """Encode words as texts of words."""
        groups, size = [list[str]()], 0
        for word in words:
            if size > _JOINED_CHARACTERS:
                groups.append([])
                size = 0
            groups[-1].append(word)
            size += len(word) + 1
        texts = [" ".join([_LEAD, *group]) for group in groups]
        bases = _text_bases(texts)
        sizes = np.fromiter(map(len, words), np.int64, len(words)) + 1
        n_words = np.array([len(group) for group in groups])
        places = np.repeat(bases + len(_LEAD), n_words)  # of the space before each word
        places += np.cumsum(sizes) - sizes
        firsts = np.cumsum(n_words) - n_words
        places -= np.repeat((np.cumsum(sizes) - sizes)[firsts], n_words)
        is_attached = self._attached(words)
        begins = places + 2 * is_attached
        return self._cut(texts, places + is_attached, begins, places + sizes)

    def _encode_apart(self, words: Sequence[str], lead: str) -> WordTokens:
        """Encode words, each behind a lead that is no part of it but for its space."""
        texts = [lead + word for word in words]
        bases, n = _text_bases(texts), max(len(lead) - 1, 0)
        sizes = np.fromiter(map(len, texts), np.int64, len(texts))
        is_attached = self._attached(words)
        begins = bases + (n or -1) + 2 * is_attached
        return self._cut(texts, bases + n + is_attached, begins, bases + sizes)

    def _attached(self, words: Sequence[str]) -> Int[np.ndarray, "w"]:
        """Return 1 for words with the character before them, 0 for others."""
        if not self._splits_punctuation:
            return np.zeros(len(words), np.int64)
        found = (_ATTACHED.match(word) is not None for word in words)
        return np.fromiter(found, np.int64, len(words))

    def _cut(
        self,
        texts: Sequence[str],
        places: Int[np.ndarray, "w"],
        begins: Int[np.ndarray, "w"],
        stops: Int[np.ndarray, "w"],
    ) -> WordTokens:
        """Encode texts and return the tokens of words in them.

        Args:
            texts: laid end to end, with a character between two.
            places: where each word is, from which the offsets of its tokens are counted.
            begins: its tokens end behind this place,
            stops: and not behind this one.
        """
        assert self._locate is not None
        located = list[Located]()
        for batch in _batches(texts):
            located += self._locate(batch)
        ids, starts_word, spans = map(np.concatenate, zip(*located, strict=True))
        n_tokens = np.array([len(one[0]) for one in located])
        spans = spans + np.repeat(_text_bases(texts), n_tokens)[:, None]
        token_ends = np.maximum.accumulate(spans[:, 1])
        first = np.searchsorted(token_ends, begins, side="right")
        counts = np.searchsorted(token_ends, stops, side="right") - first
        inner = counts > 0
        assert (spans[first[inner], 0] >= begins[inner]).all(), "a token spans two words"
        tokens = ranges(first, counts)
        ends = token_ends[tokens] - np.repeat(places, counts)
        ends += starts_word[tokens] * np.int64(_STARTS_WORD)
        return WordTokens(counts, ids[tokens].astype(np.uint32), ends.astype(np.uint32))


def _text_bases(texts: Sequence[str]) -> Int[np.ndarray, "n"]:
    """Return where each text starts, laid end to end with a character between two."""
    sizes = np.fromiter(map(len, texts), np.int64, len(texts)) + 1
    return np.cumsum(sizes) - sizes


def _batches(texts: Sequence[str]) -> Iterator[list[str]]:
    """Yield texts in batches of about `_BATCH_CHARACTERS`."""
    batch, size = list[str](), 0
    for text in texts:
        batch.append(text)
        size += len(text)
        if size > _BATCH_CHARACTERS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


@dataclass(frozen=True, kw_only=True)
class _Words:
    """Words of one or several texts, which are joined by spaces."""

    text: str
    starts: Int[np.ndarray, "w"]
    stops: Int[np.ndarray, "w"]
    is_attached: Bool[np.ndarray, "w"]
    """Those that have no space before them, but a letter or punctuation."""
    keys: WordKeys
    is_other: Bool[np.ndarray, "w"]
    """Those that have no key."""
    first: Int[np.ndarray, "n"]
    """Those that begin a text."""
    last: Int[np.ndarray, "m"]
    """Those that end one, and may end at a space, too."""

    @property
    def longest(self) -> int:
        """Characters of the longest."""
        return int((self.stops - self.starts).max())

    def read(self, which: Int[np.ndarray, "u"]) -> list[str]:
        """Return some of the words; attached ones with the character before them."""
        starts = self.starts[which] - self.is_attached[which]
        spans = zip(starts.tolist(), self.stops[which].tolist(), strict=True)
        return [self.text[start:stop] for start, stop in spans]


@cache
def _table(characters: str) -> Bool[np.ndarray, "c"]:
    """Return which code points a class of a regular expression has; the last one has none."""
    every = "".join(map(chr, range(_N_TABLE_CODES)))
    table = np.zeros(_N_TABLE_CODES + 1, bool)
    table[[found.start() for found in re.finditer(characters, every)]] = True
    return table


@cache
def _kinds() -> UInt8[np.ndarray, "c"]:
    """Return which code points are letters, and which are punctuation."""
    is_letter, is_punctuation = _table(_LETTER_CLASS), _table(_PUNCTUATION_CLASS)
    return (_LETTER * is_letter + _PUNCTUATION * is_punctuation).astype(np.uint8)


def _byte_places(
    codes: np.ndarray, *places: Int[np.ndarray, "w"]
) -> tuple[Int[np.ndarray, "w"], ...]:
    """Return where places of a text are in its UTF-8."""
    sizes = np.ones(len(codes) + 1, np.uint8)
    for limit in (0x80, 0x800, 0x10000):
        sizes[1:] += codes >= limit
    sizes[0] = 0
    ends = np.cumsum(sizes, dtype=np.int64)
    return tuple(ends[some] for some in places)
