"""Count the words of texts."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import compress

import numpy as np
from tokenizers import Tokenizer

from unmask.tokenizers import pipeline

MAX_COUNTED_WORDS, MAX_COUNTED_CHARACTERS = 2**21, 2**25
"""Maximum distinct words, and characters of these, while counting; the rarest are dropped."""
MAX_TRAINING_CHARACTERS = 2**23
"""Maximum characters of distinct words for training, about a million words: merging takes 100 bytes
a character."""
MAX_TRAINER_WORDS = 2**26
"""Counts are scaled down to about this total; larger ones add no information."""
MAX_WORD_CHARACTERS = 256
"""Maximum word length for training; longer words are cut."""
_MAX_COUNTED_CHUNKS, _MAX_CHUNK_CHARACTERS = 2**20, 2**25
"""Maximum chunks, and characters of these, before their words are counted."""
_CHARACTERS_BETWEEN_CHECKS = 2**24
CHUNK_WITH_SPACE = re.compile(r"\s*\S+|\s+\Z")
CHUNK_WITH_LINE_END = re.compile(r"\s*\S+(?:\s*[\r\n]+)?|\s+\Z")


def count_words(
    texts: Iterable[str],
    word_splitter: Tokenizer,
    special_names: tuple[str, ...],
    chunks: Callable[[str], list[str]] = str.split,
) -> dict[str, int]:
    """Count the words of texts as split by the pipeline `word_splitter`.

    Words that contain the name of a special token are skipped.

    Texts are first split at spaces and the chunks counted, so that the pipeline processes each
    once. All words are counted as long as they stay within `MAX_COUNTED_WORDS`,
    `MAX_COUNTED_CHARACTERS` and in the end `MAX_TRAINING_CHARACTERS`; of more text the rarest are
    dropped whenever they exceed one (as in lossy counting, Manku and Motwani 2002), so that the
    count of a rare word may be too low.

    Raises:
        ValueError: there is no text.
    """
    chunk_counts, words, unchecked = Counter[str](), Counter[str](), 0
    for text in texts:
        pipeline.check_unicode(text)
        chunk_counts.update(chunks(text))
        unchecked += len(text)
        too_long = False
        if unchecked > _CHARACTERS_BETWEEN_CHECKS:
            too_long = sum(map(len, chunk_counts)) > _MAX_CHUNK_CHARACTERS
            unchecked = 0
        if too_long or len(chunk_counts) > _MAX_COUNTED_CHUNKS:
            _count_chunk_words(chunk_counts, word_splitter, words)
            words = _drop_rarest(words, MAX_COUNTED_WORDS, MAX_COUNTED_CHARACTERS)
    _count_chunk_words(chunk_counts, word_splitter, words)
    # Pieces are parts of words, so none equals the name of a special token.
    special_names_in_text = [word for word in words if any(name in word for name in special_names)]
    for word in special_names_in_text:
        del words[word]
    if not words:
        raise ValueError("there is no text to train a vocabulary on")
    return _drop_rarest(words, MAX_COUNTED_WORDS, MAX_TRAINING_CHARACTERS)


def _count_chunk_words(
    chunk_counts: Counter[str], word_splitter: Tokenizer, word_counts: Counter[str]
) -> None:
    """Move the counts of chunks to those of their words."""
    normalizer, splitter = word_splitter.normalizer, word_splitter.pre_tokenizer
    for chunk, count in chunk_counts.items():
        text = chunk if normalizer is None else normalizer.normalize_str(chunk)
        for word, _ in splitter.pre_tokenize_str(text):
            for i in range(0, len(word), MAX_WORD_CHARACTERS):
                word_counts[word[i : i + MAX_WORD_CHARACTERS]] += count
    chunk_counts.clear()


def _drop_rarest(words: Counter[str], max_words: int, max_characters: int) -> Counter[str]:
    """Return the words without the rarest, if they are too many; their order stays.

    Of words with the same count all are dropped or none, but where these are more than half of what
    may stay: there the first ones stay.
    """
    n = len(words)
    counts = np.fromiter(words.values(), np.int64, n)
    ordered = np.argsort(-counts, kind="stable")
    sizes = np.cumsum(np.fromiter(map(len, words), np.int64, n)[ordered])
    fitting = min(int(np.searchsorted(sizes, max_characters, "right")), max_words)
    if fitting >= n:
        return words
    frequent = int((counts > counts[ordered[fitting]]).sum())
    stays = np.zeros(n, bool)
    stays[ordered[: frequent if frequent >= fitting // 2 else fitting]] = True
    return Counter(dict(compress(words.items(), stays.tolist())))


def repeat_words(words: Mapping[str, int]) -> Iterator[str]:
    """Repeat every word by its count, separated by spaces: the library counts again."""
    share = max(1, -(-sum(words.values()) // MAX_TRAINER_WORDS))
    batch: list[str] = []
    room = 2**16
    for word, count in words.items():
        count //= share
        while count > 0:
            times = min(count, max(1, room // (len(word) + 1)))
            batch.append((word + " ") * times)
            count -= times
            room -= times * (len(word) + 1)
            if room <= len(word):
                yield "".join(batch)
                batch, room = [], 2**16
    yield "".join(batch)
