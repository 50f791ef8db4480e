"""Subwords as prediction targets of character-level models (CANINE-S).

Clark et al. 2022, arXiv:2103.06874, section 3.2.2. Subwords are found when a text is masked, not
when it is tokenized: inputs and shards are characters, and the vocabulary is for the loss only.
"""

from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int

from unmask.batch import WORD_START, Tokens
from unmask.tokenizers import pipeline
from unmask.tokenizers.formats import word_list
from unmask.tokenizers.learn import train
from unmask.tokenizers.spec import (
    BERT,
    OutputTokens,
    SpecialTokenIds,
    TokenizerSpec,
    special_token_names,
)
from unmask.tokenizers.vocabulary import WordPiece

SUBWORDS_FILE = "subwords.txt"
"""One piece per line, the id is the line number from 0, as in BERT's vocab.txt."""


class WordPieceVocabulary:
    """A cased WordPiece vocabulary with BERT's special tokens, over characters."""

    def __init__(self, vocabulary: tuple[str, ...]) -> None:
        """Build the vocabulary from pieces by id.

        Raises:
            ValueError: a piece is repeated, or a special token of BERT is missing.
        """
        ids = {piece: i for i, piece in enumerate(vocabulary)}
        if len(ids) < len(vocabulary):
            repeated = next(piece for i, piece in enumerate(vocabulary) if ids[piece] != i)
            raise ValueError(f"the subword {repeated!r} is repeated")
        if missing := [name for name in special_token_names(BERT) if name not in ids]:
            raise ValueError(f"the subwords lack {', '.join(missing)}")
        self.vocabulary = vocabulary
        self.special_ids = SpecialTokenIds(
            vocab_size=len(ids),
            pad=ids[BERT.pad],
            start=ids[BERT.start],
            end=ids["[SEP]"],
            mask=ids["[MASK]"],
            unknown=ids["[UNK]"],
            all_ids=frozenset(ids[name] for name in special_token_names(BERT)),
        )
        # Special tokens have no spelling: in a text their names are text.
        self._spellings = [
            "" if i in self.special_ids.all_ids else piece.removeprefix("##")
            for i, piece in enumerate(vocabulary)
        ]
        self._boundaries = np.array(
            [0 if p.startswith("##") else WORD_START for p in vocabulary], np.uint8
        )
        self._backend = pipeline.wordpiece_pipeline(ids, "[UNK]", lowercase=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return WordPieceVocabulary, (self.vocabulary,)

    def tokenize(self, characters: Int[np.ndarray, "t"]) -> OutputTokens:
        """Find the subwords of a text.

        Characters of unknown words, and those removed by BERT's cleaning, are in none.
        """
        text = "".join(map(chr, characters.tolist()))
        encoding = self._backend.encode(text, add_special_tokens=False)
        each = zip(encoding.ids, encoding.offsets, strict=True)
        is_known = [(i, start) for i, (start, end) in each if text[start:end] == self._spellings[i]]
        ids, starts = np.array(is_known, np.int64).reshape(-1, 2).T
        return OutputTokens(Tokens(ids, self._boundaries[ids]), starts)

    def spell(self, subword: int) -> Int[np.ndarray, "l"]:
        """Return the characters of a subword, without ##."""
        return np.array([ord(c) for c in self._spellings[subword]], np.int64)

    def same_length(self, subword: int) -> Int[np.ndarray, "k"]:
        """List the subwords of the same length."""
        return self._ids_by_length[len(self._spellings[subword])]

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Return the piece of each id, with ##."""
        return [self.vocabulary[i] for i in ids]

    @cached_property
    def _ids_by_length(self) -> dict[int, Int[np.ndarray, "k"]]:
        lengths = np.array([len(spelled) for spelled in self._spellings])
        return {n: np.flatnonzero(lengths == n) for n in np.unique(lengths).tolist()}


def learn_wordpiece_vocabulary(vocab_size: int, texts: Iterable[str]) -> WordPieceVocabulary:
    """Train `vocab_size` subwords, special tokens included, on texts.

    Raises:
        ValueError: the size is too small for the special tokens and the single characters, or there
            is no text.
    """
    spec = TokenizerSpec(WordPiece(vocab_size, lowercase=False), BERT)
    ids = train.train_pipeline(spec, texts).get_vocab(with_added_tokens=True)
    return WordPieceVocabulary(tuple(sorted(ids, key=ids.__getitem__)))


def save_wordpiece_vocabulary(subwords: WordPieceVocabulary, folder: Path) -> None:
    """Write the pieces to a folder."""
    word_list.save_word_list(subwords.vocabulary, folder / SUBWORDS_FILE)


def read_wordpiece_vocabulary(folder: Path) -> WordPieceVocabulary | None:
    """Read the pieces of a folder; None: it has none.

    Raises:
        ValueError: the file is damaged.
    """
    return word_list.read_word_list(folder / SUBWORDS_FILE, WordPieceVocabulary)
