"""Count the words of texts."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

from tokenizers import Tokenizer

from unmask.tokenizers import pipeline

MAX_COUNTED_WORDS = 2**21
"""Maximum distinct words while counting; beyond it the rarest are dropped."""
MAX_TRAINER_WORDS = 2**26
"""Counts are scaled down to about this total; larger ones add no information."""
MAX_WORD_CHARACTERS = 256
"""Maximum word length for training; longer words are cut."""
_MAX_COUNTED_CHUNKS = 2**20
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
    once.
    """
    chunk_counts, words = Counter[str](), Counter[str]()
    for text in texts:
        pipeline.check_unicode(text)
        chunk_counts.update(chunks(text))
        if len(chunk_counts) > _MAX_COUNTED_CHUNKS:
            _count_chunk_words(chunk_counts, word_splitter, words)
    _count_chunk_words(chunk_counts, word_splitter, words)
    # Pieces are parts of words, so none equals the name of a special token.
    special_names_in_text = [word for word in words if any(name in word for name in special_names)]
    for word in special_names_in_text:
        del words[word]
    if not words:
        raise ValueError("there is no text to train a vocabulary on")
    return words


def _count_chunk_words(
    chunk_counts: Counter[str], word_splitter: Tokenizer, word_counts: Counter[str]
) -> None:
    """Move the counts of chunks to those of their words, within bounded memory."""
    normalizer, splitter = word_splitter.normalizer, word_splitter.pre_tokenizer
    for chunk, count in chunk_counts.items():
        text = chunk if normalizer is None else normalizer.normalize_str(chunk)
        for word, _ in splitter.pre_tokenize_str(text):
            for i in range(0, len(word), MAX_WORD_CHARACTERS):
                word_counts[word[i : i + MAX_WORD_CHARACTERS]] += count
    chunk_counts.clear()
    least = 1
    while len(word_counts) > MAX_COUNTED_WORDS:
        for word in [w for w, count in word_counts.items() if count <= least]:
            del word_counts[word]
        least *= 2


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
