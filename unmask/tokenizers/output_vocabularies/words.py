"""Bytes that mark word starts as input, and words as prediction targets (ELMo).

Peters et al. 2018, arXiv:1802.05365, section 3.4: the input is the characters of words, so that any
word can be read; targets are words of a list. Characters are UTF-8 bytes (released code,
`UnicodeCharsVocabulary`).
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Int
from tokenizers import Tokenizer

from unmask.batch import WORD_START, Tokens
from unmask.tokenizers import pipeline
from unmask.tokenizers.formats import word_list
from unmask.tokenizers.learn import train
from unmask.tokenizers.spec import ELMO, OutputTokens, SpecialTokenIds, special_token_names

N_SPECIAL_IDS = len(special_token_names(ELMO))
"""The first ids: padding, start and end of a text."""
FIRST_CONTINUATION_ID = N_SPECIAL_IDS + 256
"""First id of bytes that do not start a word; those that do are below."""
VOCAB_SIZE = FIRST_CONTINUATION_ID + 256
"""Number of ids."""
WORDS_FILE = "words.txt"
"""One word per line, the id is the line number from 0, as in the released code."""
BEGIN_WORD, END_WORD, UNKNOWN_WORD = "<S>", "</S>", "<UNK>"
"""The first three of them."""


def starts_word(ids: Int[np.ndarray, "t"]) -> Bool[np.ndarray, "t"]:
    """Return which tokens start a word; special tokens do not."""
    return (ids >= N_SPECIAL_IDS) & (ids < FIRST_CONTINUATION_ID)


class WordVocabulary:
    """The words of a loss, by id."""

    def __init__(self, vocabulary: tuple[str, ...]) -> None:
        """Build the vocabulary from words by id.

        Raises:
            ValueError: a word is repeated, or the first three are not <S>, </S> and <UNK>.
        """
        first = (BEGIN_WORD, END_WORD, UNKNOWN_WORD)
        if vocabulary[:3] != first:
            raise ValueError(
                f"the words must begin with {', '.join(first)}, got {', '.join(vocabulary[:3])}"
            )
        self._id_of_word = {word.encode(): i for i, word in enumerate(vocabulary)}
        if len(self._id_of_word) < len(vocabulary):
            repeated = next(
                w for i, w in enumerate(vocabulary) if self._id_of_word[w.encode()] != i
            )
            raise ValueError(f"the word {repeated!r} is repeated")
        self.vocabulary = vocabulary
        self.special_ids = SpecialTokenIds(
            vocab_size=len(vocabulary),
            pad=2,
            start=0,
            end=1,
            unknown=2,
            all_ids=frozenset({0, 1, 2}),
        )
        for word in first:  # in a text their names are text
            del self._id_of_word[word.encode()]

    def __reduce__(self) -> tuple[Any, ...]:
        return WordVocabulary, (self.vocabulary,)

    def tokenize(self, characters: Int[np.ndarray, "t"]) -> OutputTokens:
        """Find the words of a text, including unknown ones; the rest of a cut word is in none."""
        starts = np.flatnonzero(starts_word(characters))
        # Special tokens end a word as well, and are cut off with the bytes after them.
        ends = np.flatnonzero(characters < FIRST_CONTINUATION_ID)
        ends = np.append(ends, len(characters))[np.searchsorted(ends, starts, "right")]
        spelled = ((characters - N_SPECIAL_IDS) % 256).astype(np.uint8).tobytes()
        unknown = self.special_ids.unknown
        matches = [
            self._id_of_word.get(spelled[a:b], unknown)
            for a, b in zip(starts.tolist(), ends.tolist(), strict=True)
        ]
        return OutputTokens(
            Tokens(np.array(matches, np.int64), np.full(len(matches), WORD_START, np.uint8)), starts
        )

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Return the word of each id."""
        return [self.vocabulary[i] for i in ids]


def learn_word_vocabulary(
    vocab_size: int, backend: Tokenizer, texts: Iterable[str]
) -> WordVocabulary:
    """Build the vocabulary of the `vocab_size` most frequent words, as split by the pipeline.

    Raises:
        ValueError: the size is too small for the special tokens, or there is no text.
    """
    special = (BEGIN_WORD, END_WORD, UNKNOWN_WORD)
    byte = {character: i for i, character in enumerate(pipeline.byte_characters())}
    words: Sequence[str] = train.most_frequent_words(vocab_size, special, backend, texts)
    most_frequent = [bytes(byte[c] for c in word).decode("utf-8", "replace") for word in words]
    return WordVocabulary((*special, *dict.fromkeys(most_frequent)))


def save_word_vocabulary(words: WordVocabulary, folder: Path) -> None:
    """Write the words to a folder."""
    word_list.save_word_list(words.vocabulary, folder / WORDS_FILE)


def read_word_vocabulary(folder: Path) -> WordVocabulary | None:
    """Read the words of a folder; None: it has none.

    Raises:
        ValueError: the file is damaged.
    """
    return word_list.read_word_list(folder / WORDS_FILE, WordVocabulary)
