"""Subwords of texts whose tokens are characters: what a loss may ask for in their place (CANINE-S).

Clark et al. 2022, arXiv:2103.06874, section 3.2.2. A text is cut each time it is hidden, not once
when it is tokenized: the model reads characters, so shards hold characters, and the vocabulary is
of the question alone.
"""

from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int

from unmask.batch import WORD, Tokens
from unmask.tokens import learn, lists, pipeline
from unmask.tokens.vocabulary import BERT, Cut, Special, TokenizerSpec, WordPiece, names

FILE = "subwords.txt"
"""One piece a line, its id the number of the line, from 0; as BERT's vocab.txt."""


class WordPieces:
    """A cased vocabulary of BERT's kind, with its special tokens, over characters."""

    def __init__(self, vocabulary: tuple[str, ...]) -> None:
        """Take the pieces by id.

        Raises:
            ValueError: one stands twice, or a special token of BERT's is missing.
        """
        ids = {piece: i for i, piece in enumerate(vocabulary)}
        if len(ids) < len(vocabulary):
            twice = next(piece for i, piece in enumerate(vocabulary) if ids[piece] != i)
            raise ValueError(f"the subword {twice!r} stands twice")
        if lacking := [name for name in names(BERT) if name not in ids]:
            raise ValueError(f"the subwords lack {', '.join(lacking)}")
        self.vocabulary = vocabulary
        self.special = Special(
            size=len(ids),
            pad=ids[BERT.pad],
            start=ids[BERT.start],
            end=ids["[SEP]"],
            mask=ids["[MASK]"],
            unknown=ids["[UNK]"],
            ids=frozenset(ids[name] for name in names(BERT)),
        )
        # Special tokens are spelled by nothing: in a text their names are text.
        self._spelled = [
            "" if i in self.special.ids else piece.removeprefix("##")
            for i, piece in enumerate(vocabulary)
        ]
        self._marks = np.array([0 if p.startswith("##") else WORD for p in vocabulary], np.uint8)
        self._backend = pipeline.word_piece(ids, "[UNK]", lowercase=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return WordPieces, (self.vocabulary,)

    def cut(self, characters: Int[np.ndarray, "t"]) -> Cut:
        """Find the subwords of a text.

        Characters of unknown words, and what BERT's cleaning takes away, are in none.
        """
        text = "".join(map(chr, characters.tolist()))
        found = self._backend.encode(text, add_special_tokens=False)
        each = zip(found.ids, found.offsets, strict=True)
        kept = [(i, start) for i, (start, end) in each if text[start:end] == self._spelled[i]]
        ids, starts = np.array(kept, np.int64).reshape(-1, 2).T
        return Cut(Tokens(ids, self._marks[ids]), starts)

    def spell(self, subword: int) -> Int[np.ndarray, "l"]:
        """Give the characters of a subword, without the mark of what continues a word."""
        return np.array([ord(c) for c in self._spelled[subword]], np.int64)

    def as_long(self, subword: int) -> Int[np.ndarray, "k"]:
        """List the subwords of as many characters."""
        return self._by_length[len(self._spelled[subword])]

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Write each id as its piece; what continues a word keeps its ##."""
        return [self.vocabulary[i] for i in ids]

    @cached_property
    def _by_length(self) -> dict[int, Int[np.ndarray, "k"]]:
        lengths = np.array([len(spelled) for spelled in self._spelled])
        return {n: np.flatnonzero(lengths == n) for n in np.unique(lengths).tolist()}


def learned(size: int, texts: Iterable[str]) -> WordPieces:
    """Learn `size` subwords, special tokens included, from texts.

    Raises:
        ValueError: the size is too small for the special tokens and the single characters, or there
            is no text.
    """
    spec = TokenizerSpec(WordPiece(size, lowercase=False), BERT)
    ids = learn.backend(spec, texts).get_vocab(with_added_tokens=True)
    return WordPieces(tuple(sorted(ids, key=ids.__getitem__)))


def save(subwords: WordPieces, folder: Path) -> None:
    """Write the pieces into a folder."""
    lists.save(subwords.vocabulary, folder / FILE)


def read(folder: Path) -> WordPieces | None:
    """Read the pieces of a folder; None: it has none.

    Raises:
        ValueError: the file is damaged.
    """
    return lists.read(folder / FILE, WordPieces)
