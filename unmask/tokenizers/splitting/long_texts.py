"""Encode long texts in less time and memory, with identical tokens.

A model reads some hundred tokens of a text, which may have 20 MB. The tokens of a prefix are not a
prefix of the tokens: text after a position may change the last tokens before it. They are known in
two cases:

- Where the pre-tokenizer splits at spaces, no token spans the space between two words.
- Let n be a position and m the length of the longest token. Some token of the whole text ends at a
  position j of the m before n, and the tokens up to there are those of `text[:j]`: with merges
  (BPE) because none crosses j, and merges on both sides are independent; with scores (unigram)
  because the best path through j begins with the best path to j; with greedy pieces (WordPiece)
  because they are found from left to right, and a word of more than `max_input_chars_per_word` is
  unknown whatever it ends with. Which j it is need not be known: the common prefix of the tokens of
  `text[:j]` for all j is certain. `_SPARE_TOKENS` more are dropped, since byte tokens may end
  within a character.

If all tokens are needed, the text is encoded in parts, which takes a tenth of the memory. Parts
start at a space between two words, or at a digit after a letter, if the pre-tokenizer splits there.
Each is encoded with its left context, whose tokens are dropped.
"""

import logging
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
import tokenizers
from jaxtyping import Int

from unmask.tokenizers.pipeline import SPACE

LONG_TEXT_CHARACTERS = 2**16
"""Maximum length of texts that are encoded whole if few tokens are needed."""
MAX_WHOLE_CHARACTERS = 2**20
"""Maximum length of a part if all tokens are needed."""
_SPARE_TOKENS = 32
_PARTS_PER_BATCH = 8
"""Parts of a long text that are encoded per batch."""
_PART_CHARACTERS = 2**17
_CONTEXT_CHARACTERS = 2**10
"""Left context of a part, in characters."""
_MAX_COMPARED_CHARACTERS = 2**22
"""Total characters of the prefixes whose tokens are compared."""
_MAX_COMPARED_WINDOW = 300
"""Maximum token length, in characters, for comparing prefixes."""
_MAX_COMBINING_MARKS = 8
"""Combining marks on one letter, which normalizers reorder."""
_TEXTS_PER_BATCH = 64
_LETTERS = "aA1é中я"
CLOSING_MARKS, OPENING_MARKS = ".,;:!?)'\"%’”»", "('\"“‘«-–—$"
"""Punctuation before and after the spaces of `SplitPoints.at_marked_spaces`."""
PUNCTUATION = '!"#$%&()*+,-./:;<=>?@[\\]^`{|}~'
"""Punctuation of `SplitPoints.at_punctuation`: that of ASCII without the apostrophe and the
underscore, which are also within words."""
_SPLITTING_PUNCTUATION = {"BertPreTokenizer", "ByteLevel"}
"""Pre-tokenizers that split between letters and punctuation; ByteLevel, if it uses its rule."""
_HARMLESS = (r"(?!\S)", r"(?:", "(?i:", r"\A +| +\z")
_AT_WORD_ENDS = r"(?<=\S)(?=\s|\z)"

_DIGIT = re.compile("[A-Za-z](?=[0-9])")

Ids = Int[np.ndarray, "_"]
Encode = Callable[[Sequence[str]], list[Ids]]
EncodedPart = tuple[tokenizers.Encoding, int, slice]
"""The encoding of a part, the number of its tokens that belong to the previous part, and its span
in the text."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class SplitPoints:
    """Positions at which texts can be split without changing the tokens."""

    at_spaces: bool
    """At a space between two words."""
    at_marked_spaces: bool
    """At a space between two words with punctuation before or behind it, too."""
    at_punctuation: bool
    """Between letters or digits and `PUNCTUATION`, on both sides."""
    at_digits: bool
    """Between a letter and a digit."""
    anywhere: bool
    """Anywhere, by comparing the tokens of several prefixes."""
    longest: int
    """Length of the longest token in characters."""
    backend: tokenizers.Tokenizer

    @staticmethod
    def of(backend: tokenizers.Tokenizer, state: Mapping[str, Any]) -> "SplitPoints":
        """Determine the split points of a pipeline.

        Args:
            backend: the pipeline.
            state: the same as plain data.
        """
        model = state["model"]
        rules = list(_rules(state.get("normalizer"))) + list(_rules(state.get("pre_tokenizer")))
        simplified = [rule.replace(_AT_WORD_ENDS, "") for rule in rules]
        bare = not any(map(_looks_around, simplified))
        ends = simplified != rules or bool(model.get("end_of_word_suffix"))
        added = [str(token["content"]) for token in state.get("added_tokens") or []]
        vocab = model.get("vocab") or ()
        pieces = vocab if isinstance(vocab, Mapping) else (piece for piece, _ in vocab)
        longest = max(map(len, [*pieces, *added, *simplified]), default=1)
        longest = max(longest, int(model.get("max_input_chars_per_word") or 0)) + 2
        at_spaces = bare and _parts(backend) and not any(re.search(r"\s", a) for a in added)
        return SplitPoints(
            at_spaces=at_spaces,
            at_marked_spaces=at_spaces
            and _parts(backend, " ", _LETTERS + CLOSING_MARKS, _LETTERS + OPENING_MARKS),
            at_punctuation=at_spaces
            and not rules
            and not ends
            and _splits_punctuation(backend, state),
            at_digits=bare
            and not ends
            and _parts(backend, "", "aAzZ", "1")
            and not any(_DIGIT.search(a) for a in added),
            anywhere=bare and not ends and longest <= _MAX_COMPARED_WINDOW,
            longest=longest,
            backend=backend,
        )

    def first(self, encode: Encode, text: str, n: int) -> Ids | None:
        """Return the first `n` tokens of a text, or None if all of it must be encoded.

        Args:
            encode: encodes texts.
            text: a long text.
            n: number of tokens.
        """
        size = 2 * n + 3 * self.longest
        while size < len(text):
            found = self._certain(encode, text, size)
            if len(found) >= n:
                return found[:n]
            size *= 2
        return None

    def parts(self, text: str) -> list[tuple[int, int, int]]:
        """Return parts of a text, whose tokens together are those of the text.

        Each is encoded from the start of its left context, whose tokens are dropped.

        Returns:
            (start of the left context, start, end) of each part.
        """
        found, lead, begin = list[tuple[int, int, int]](), 0, 0
        for at in range(_PART_CHARACTERS, len(text) - _PART_CHARACTERS, _PART_CHARACTERS):
            end = self._seam(text, at, at + _PART_CHARACTERS)
            before = (
                None
                if end is None
                else self._seam(text, end - 2 * _CONTEXT_CHARACTERS, end - _CONTEXT_CHARACTERS)
            )
            if end is not None and before is not None:
                found.append((lead, begin, end))
                lead, begin = before, end
        return [*found, (lead, begin, len(text))]

    def encode_parts(
        self, ready: tokenizers.Tokenizer, text: str, origin: str, *, fast: bool
    ) -> Iterator[EncodedPart]:
        """Encode a long text in parts.

        Args:
            ready: the pipeline.
            text: a long text.
            origin: the tokenizer's, for a warning.
            fast: without spans.
        """
        parts = self.parts(text)
        longest = max(end - begin for _, begin, end in parts)
        if longest > 4 * MAX_WHOLE_CHARACTERS:
            _log.warning(
                f"{origin}: {longest:,} characters of a text are encoded at once, which takes "
                "time and memory, since this tokenizer has no split point in them: it splits at "
                "white space, or nowhere"
            )
        encode = ready.encode_batch_fast if fast else ready.encode_batch
        for i in range(0, len(parts), _PARTS_PER_BATCH):
            some = parts[i : i + _PARTS_PER_BATCH]
            leads = ready.encode_batch_fast(
                [text[lead:begin] for lead, begin, _ in some], add_special_tokens=False
            )
            encodings = encode([text[lead:end] for lead, _, end in some], add_special_tokens=False)
            for (lead, _, end), before, encoding in zip(some, leads, encodings, strict=True):
                yield encoding, len(before.ids), slice(lead, end)

    def _seam(self, text: str, begin: int, end: int) -> int | None:
        """Find a split point between two positions."""
        at = _between_words(text, begin, end) if self.at_spaces else None
        if at is None and self.at_digits:
            seam = _DIGIT.search(text, begin, end)
            at = None if seam is None else seam.start() + 1
        return at

    def _certain(self, encode: Encode, text: str, size: int) -> Ids:
        """Return the certain first tokens of a text, from about `size` characters."""
        at = _between_words(text, 2 * size, 4 * size) if self.at_spaces else None
        if at is not None:
            (ids,) = encode([text[:at]])
        elif self.anywhere and size * self.longest <= _MAX_COMPARED_CHARACTERS:
            n = self._window(text[size - 3 * self.longest : size])
            ids = _common(encode, [text[:j] for j in range(size, size - n, -1)] if n else [""])
        else:
            return np.zeros(0, np.int64)
        return ids[: max(len(ids) - _SPARE_TOKENS, 0)]

    def _window(self, before: str) -> int:
        """Return a number of characters that exceeds any token, even after normalization.

        0 if there are not as many again before them, in which a word may start.
        """
        joined = (len(list(run)) for mark, run in groupby(before, unicodedata.combining) if mark)
        if max(joined, default=0) > _MAX_COMBINING_MARKS:
            return 0
        n = self.longest + 1
        while n < len(before) - self.longest and not self._is_longer(before[-n:]):
            n += 8
        there = self._is_longer(before[-n:]) and self._is_longer(before[:-n])
        return n if there else 0

    def _is_longer(self, part: str) -> bool:
        normal = self.backend.normalizer
        left = part if normal is None else normal.normalize_str(part)
        return sum(not c.isspace() and c != SPACE for c in left) >= self.longest


def _common(encode: Encode, texts: Sequence[str]) -> Ids:
    """Return the common first tokens of texts, without the last `_SPARE_TOKENS`."""
    first: Ids | None = None
    for i in range(0, len(texts), _TEXTS_PER_BATCH):
        for ids in encode(texts[i : i + _TEXTS_PER_BATCH]):
            if first is None:
                first = ids
            n = min(len(first), len(ids))
            other = np.flatnonzero(first[:n] != ids[:n])
            first = first[: int(other[0]) if len(other) else n]
    assert first is not None
    return first


def _between_words(text: str, begin: int, end: int) -> int | None:
    """Find a space between two words in a range."""
    at = text.rfind(" ", begin, end)
    for _ in range(1000):
        if at <= 0:
            return None
        if _is_plain(text[at - 1]) and _is_plain(text[at + 1 : at + 2]):
            return at
        at = text.rfind(" ", begin, at)
    return None


def _is_plain(character: str) -> bool:
    """Return whether a character is a letter or digit that does not join its neighbors.

    Letters of the excluded blocks may join (Unicode's class Prepend).
    """
    code = ord(character or " ")
    return character.isalnum() and (code < 0xD00 or 0x2000 < code < 0x11000)


def _parts(
    backend: tokenizers.Tokenizer, between: str = " ", left: str = _LETTERS, right: str = _LETTERS
) -> bool:
    """Return whether pre-tokens end at the ends of words, or before digits."""
    cut, normal = backend.pre_tokenizer, backend.normalizer
    if cut is None:
        return False

    def pieces(text: str) -> int:
        return len(cut.pre_tokenize_str(text if normal is None else normal.normalize_str(text)))

    return all(pieces(f"{a}{between}{b}") >= pieces(a) + pieces(b) for a in left for b in right)


def _splits_punctuation(backend: tokenizers.Tokenizer, state: Mapping[str, Any]) -> bool:
    """Return whether pre-tokens end between letters and punctuation, whatever is around."""
    cut = state.get("pre_tokenizer") or {}
    added = [token for token in state.get("added_tokens") or [] if not token.get("special")]
    return (
        cut.get("type") in _SPLITTING_PUNCTUATION
        and cut.get("use_regex", True)
        and not added
        and _parts(backend, "", _LETTERS, PUNCTUATION)
        and _parts(backend, "", PUNCTUATION, _LETTERS)
    )


def _looks_around(rule: str) -> bool:
    """Return whether a regular expression may have unbounded lookaround."""
    for harmless in _HARMLESS:
        rule = rule.replace(harmless, "")
    return re.search(r"\(\?|\$|\\[zZGbB]", rule) is not None


def _rules(part: Any) -> Iterator[str]:
    """Yield the regular expressions and search strings of a component."""
    if isinstance(part, Mapping):
        pattern = part.get("pattern")
        if isinstance(pattern, Mapping):
            yield from (str(rule) for rule in pattern.values())
        for value in part.values():
            yield from _rules(value)
    elif isinstance(part, list):
        for one in part:
            yield from _rules(one)
