"""Encoding of a corpus: each word once, as long as it is remembered.

Where the pre-tokenizer splits at the spaces between words, the tokens of a text are those of its
words (see `long_texts`), and a word of a corpus is mostly one that was seen before. Texts are split
at such spaces; unknown words are encoded together, as a text of words; tokens, word starts and
offsets of all are joined as bytes. The tokens are those of `Tokenizer.encode_batch`, to which texts
are left in which such spaces are rare (Chinese), and pipelines that do not split there.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

import numpy as np
from jaxtyping import Bool, Int, UInt8

from unmask.batch import Tokens
from unmask.tokenizers.boundaries import boundaries_of_texts
from unmask.tokenizers.splitting.long_texts import CLOSING_MARKS, OPENING_MARKS, SplitPoints

_LETTERS = "0-9A-Za-zÀ-ÖØ-öø-ɏΆΈ-ΏΐΑ-ώЀ-ҁҊ-ӿ"
"""Letters and digits that no normalizer joins with a neighbor or makes a space of."""
_CLOSING, _OPENING = map(re.escape, (CLOSING_MARKS, OPENING_MARKS))
_MARKED_SPACE = re.compile(f" (?<=[{_LETTERS}{_CLOSING}] )(?=[{_LETTERS}{_OPENING}])")
_PLAIN_SPACE = re.compile(f" (?<=[{_LETTERS}] )(?=[{_LETTERS}])")
_MARKED_END = re.compile(f"[{_LETTERS}{_CLOSING}]\\Z")
_PLAIN_END = re.compile(f"[{_LETTERS}]\\Z")

_MAX_WORDS = 2**17
"""Words of a generation of the memory; there are two. With their tokens about 25 MB."""
_MAX_WORD_CHARACTERS = 64
"""Longer ones are encoded each time."""
_MEAN_WORD_CHARACTERS, _LONGEST_WORD = 24, 2**16
"""Texts of longer words on average, or with a longer one, are encoded whole."""
_BLOCK_CHARACTERS = 2**19
"""Longer texts are encoded in parts."""
_JOINED_CHARACTERS = 2**17
"""Unknown words that are encoded together."""
_LEAD = "a"
"""A word before these, as there is one before each in its text."""
_RECORD = np.dtype([("id", "<u4"), ("end", "<u4")])
_STARTS_WORD = np.uint32(2**31)
"""Bit of `end`, which counts characters from the space before the word."""


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
        self._words = _Memory(self._encode_words)
        self._firsts = _Memory(lambda words: self._encode_apart(words, ""))
        self._lasts = _Memory(lambda words: self._encode_apart(words, f"{_LEAD} "))

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
        if not self._splits or text.count(" ") * _MEAN_WORD_CHARACTERS < len(text):
            return self._whole
        return self._by_words if len(text) <= _BLOCK_CHARACTERS else self._by_blocks

    def _whole(self, texts: Sequence[str]) -> EncodedTexts:
        return EncodedTexts.of(self._encode_batch(texts))

    def _by_words(self, texts: Sequence[str]) -> EncodedTexts:
        split = [self._space.split(text) for text in texts]
        n_words = np.array([len(words) for words in split])
        first = np.cumsum(n_words) - n_words
        last = (first + n_words - 1).tolist()
        words = _Words([word for one in split for word in one], first.tolist(), last)
        if max(map(len, words.words)) > _LONGEST_WORD:
            return self._whole(texts)
        ids, starts_word, ends, counts = self._tokens(words)
        lengths = np.add.reduceat(counts, first)
        return EncodedTexts(lengths, ids, boundaries_of_texts(texts, starts_word, ends, lengths))

    def _by_blocks(self, texts: Sequence[str]) -> EncodedTexts:
        """Encode long texts each in parts, whose words are not held together."""
        found = list[EncodedTexts]()
        for text in texts:
            parts, at = list[tuple[np.ndarray, ...]](), 0
            while at < len(text):
                space = self._space.search(text, at + _BLOCK_CHARACTERS)
                end = len(text) if space is None else space.start()
                words = self._space.split(text[at:end])
                if max(map(len, words)) > _LONGEST_WORD:
                    return self._whole(texts)
                block = _Words(words, [] if at else [0], [len(words) - 1])
                ids, starts_word, ends, _ = self._tokens(block)
                parts.append((ids, starts_word, ends + at))
                at = end + 1
            ids, starts_word, ends = map(np.concatenate, zip(*parts, strict=True))
            lengths = np.array([len(ids)])
            marks = boundaries_of_texts([text], starts_word, ends, lengths)
            found.append(EncodedTexts(lengths, ids, marks))
        columns = zip(*((one.lengths, one.ids, one.boundaries) for one in found), strict=True)
        return EncodedTexts(*map(np.concatenate, columns))

    def _tokens(self, words: "_Words") -> tuple[np.ndarray, ...]:
        """Return ids, word starts and ends of tokens, and how many tokens each word has.

        Words are laid end to end, with a character between two, as between texts. The offsets of a
        word's tokens are from the space before it, those of a text's first word from that.
        """
        sizes = np.fromiter(map(len, words.words), np.int64, len(words.words))
        bases = np.cumsum(sizes + 1) - sizes - 2
        bases[words.first] += 1
        values = self._values(words)
        counts = np.fromiter(map(len, values), np.int64, len(values)) // _RECORD.itemsize
        records = np.frombuffer(b"".join(values), _RECORD)
        ends = (records["end"] & ~_STARTS_WORD) + np.repeat(bases, counts)
        return records["id"].astype(np.int64), records["end"] >= _STARTS_WORD, ends, counts

    def _values(self, given: "_Words") -> list[bytes]:
        """Look up words, apart from those at the start of a text and from its end if it is odd.

        What is at the end of a text may be followed by a space elsewhere, unless its last character
        is none that words end with.
        """
        words, first = given.words, set(given.first)
        odd = [i for i in given.last if i not in first and not self._safe_end.search(words[i])]
        own = [(self._firsts, given.first), (self._lasts, odd)]
        apart = [(memory, places, [words[i] for i in places]) for memory, places in own]
        for i in (*given.first, *odd):
            words[i] = ""
        values = self._words.look_up(words)
        for memory, places, some in apart:
            for i, value in zip(places, memory.look_up(some), strict=True):
                values[i] = value
        return values

    def _encode_words(self, words: Sequence[str]) -> list[bytes]:
        """Encode words as a text of words, in parts."""
        values, group, size = list[bytes](), list[str](), 0
        for word in words:
            group.append(word)
            size += len(word)
            if size > _JOINED_CHARACTERS:
                values += self._encode_group(group)
                group, size = [], 0
        return values + (self._encode_group(group) if group else [])

    def _encode_group(self, words: list[str]) -> list[bytes]:
        assert self._locate is not None
        ((ids, starts_word, spans),) = self._locate([" ".join([_LEAD, *words])])
        sizes = np.fromiter(map(len, words), np.int64, len(words)) + 1
        bounds = np.cumsum([len(_LEAD), *sizes])
        token_ends = np.maximum.accumulate(spans[:, 1])
        cuts = np.searchsorted(token_ends, bounds, side="right")
        inner = cuts[:-1][cuts[:-1] < len(ids)]
        assert (spans[inner, 0] >= bounds[:-1][: len(inner)]).all(), "a token spans two words"
        ends = token_ends - np.repeat([0, *bounds[:-1]], np.diff([0, *cuts]))
        packed = _packed(ids, starts_word, ends)
        places = (cuts * _RECORD.itemsize).tolist()
        return [packed[i:j] for i, j in pairwise(places)]

    def _encode_apart(self, words: Sequence[str], lead: str) -> list[bytes]:
        """Encode words, each behind a lead that is no part of it but for its space."""
        assert self._locate is not None
        n, values = max(len(lead) - 1, 0), list[bytes]()
        for ids, starts_word, spans in self._locate([lead + word for word in words]):
            token_ends = np.maximum.accumulate(spans[:, 1])
            cut = int(np.searchsorted(token_ends, n, side="right")) if n else 0
            values.append(_packed(ids[cut:], starts_word[cut:], token_ends[cut:] - n))
        return values


@dataclass(frozen=True)
class _Words:
    """Words of one or several texts."""

    words: list[str]
    first: list[int]
    """Those that begin a text."""
    last: list[int]
    """Those that end one, and may end at a space, too."""


def _packed(
    ids: Int[np.ndarray, "t"], starts_word: Bool[np.ndarray, "t"], ends: Int[np.ndarray, "t"]
) -> bytes:
    records = np.empty(len(ids), _RECORD)
    records["id"] = ids
    records["end"] = ends + starts_word * np.int64(_STARTS_WORD)
    return records.tobytes()


class _Memory:
    """What was made of words. The older half is dropped when it is full."""

    def __init__(self, make: Callable[[Sequence[str]], list[bytes]]) -> None:
        self._make = make
        self._new: dict[str, bytes] = {"": b""}
        self._old: dict[str, bytes] = {}

    def look_up(self, words: Sequence[str]) -> list[bytes]:
        """Return what was made of each word, now or before."""
        missing = [word for word in dict.fromkeys(words) if word not in self._new]
        self._new |= {word: self._old[word] for word in missing if word in self._old}
        unknown = [word for word in missing if word not in self._old]
        self._new |= zip(unknown, self._make(unknown), strict=True)
        values = list(map(self._new.__getitem__, words))
        for word in unknown:
            if len(word) > _MAX_WORD_CHARACTERS:
                del self._new[word]
        if len(self._new) > _MAX_WORDS:
            self._old, self._new = self._new, {"": b""}
        return values
