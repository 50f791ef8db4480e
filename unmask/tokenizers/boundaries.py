"""Word, sentence and paragraph starts of the tokens of a text.

Word starts follow the code of the families with whole-word objectives:

- BERT, and all with a prefix for continuing pieces: every piece without ## (Devlin et al., released
  code, `create_masked_lm_predictions`; Joshi et al. 2020, `is_start_piece`). Punctuation marks and
  Chinese characters are separate words.
- The original GPT, with BERT's pre-tokenization and a suffix for the last piece of a word: the same
  words.
- Word-level vocabularies: every token.
- All others (GPT-2's bytes, SentencePiece, single bytes and characters): at white space (fairseq,
  `is_beginning_of_word`). A space belongs to the word after it. Combining marks, digits, joiners
  and punctuation do not end words; punctuation starts words in ALBERT, XLNet and DeBERTa
  (`SpecialTokens.punctuation_starts_words`).

Pre-tokenization is ignored: GPT-2's rule ends a "word" at each combining mark, so that few words of
Hindi or Tamil would be whole.
"""

import unicodedata
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import tokenizers
from jaxtyping import Bool, Int, UInt8

from unmask.batch import PARAGRAPH_START, SENTENCE_START, WORD_START
from unmask.text.sentence_starts import sentence_starts

_WHITE_SPACE_CODES = np.array([i for i in range(0x3001) if chr(i).isspace()], np.uint32)
"""Unicode white space; there is none above."""


class WordStartDetector:
    """Finds the tokens that start a word, by prefixes or suffixes of pieces, or white space."""

    def __init__(
        self,
        pipeline_state: Mapping[str, Any],
        vocab: Mapping[str, int],
        is_special: Bool[np.ndarray, "v"],
        is_punctuation: Bool[np.ndarray, "v"] | None = None,
    ) -> None:
        """Determine how the pieces of a pipeline mark word starts.

        Args:
            pipeline_state: the pipeline, as plain data.
            vocab: the vocabulary, with added tokens.
            is_special: ids of special tokens; each is a word, and a word starts after it.
            is_punctuation: ids of punctuation that always starts a word; None: none do.
        """
        self._is_special, self._is_punctuation = is_special, is_punctuation
        model = pipeline_state["model"]
        prefix = model.get("continuing_subword_prefix")
        self._starts_word: Bool[np.ndarray, "v"] | None = None
        self._bert_words = "BertPreTokenizer" in _part_types(pipeline_state.get("pre_tokenizer"))
        if model["type"] == "WordLevel":
            self._starts_word = np.ones(len(is_special), bool)
        elif prefix:
            self._starts_word = np.ones(len(is_special), bool)
            self._starts_word[[i for piece, i in vocab.items() if piece.startswith(prefix)]] = False
            self._starts_word |= is_special

    def word_starts(
        self, text: str, encoding: tokenizers.Encoding, ids: Int[np.ndarray, "t"]
    ) -> tuple[Bool[np.ndarray, "t"], Int[np.ndarray, "t 2"]]:
        """Return which tokens start a word, and the span of each token in the text."""
        offsets = chain.from_iterable(encoding.offsets)
        spans = np.fromiter(offsets, np.int64, 2 * len(ids)).reshape(-1, 2)
        if self._starts_word is not None:
            return self._starts_word[ids], spans
        starts, ends = spans[:, 0], np.maximum.accumulate(spans[:, 1])
        if self._bert_words:
            begins = np.diff(np.array(encoding.word_ids, np.int64), prepend=-1) != 0
        else:
            begins = word_starts_at_white_space(text, starts, ends)
        if self._is_punctuation is not None:
            begins |= self._is_punctuation[ids]
        special = self._is_special[ids]
        begins |= special
        begins[1:] |= special[:-1]
        return begins, spans


def word_starts_at_white_space(
    text: str, starts: Int[np.ndarray, "t"], ends: Int[np.ndarray, "t"]
) -> Bool[np.ndarray, "t"]:
    """Return which tokens start a word, for words separated by white space.

    A token with the end of a word and the start of another starts none, so that no word is split.

    Args:
        text: the encoded text.
        starts: start of each token in characters.
        ends: end of each token, not decreasing.
    """
    if not len(text):
        return np.ones(len(starts), bool)
    word = np.cumsum(word_start_characters(text))
    last = len(text) - 1
    first = word[np.minimum(starts, last)]
    reached = np.maximum.accumulate(np.maximum(word[np.minimum(np.maximum(ends, 1) - 1, last)], 1))
    return first > np.concatenate(([0], reached[:-1]))


def word_start_characters(text: str) -> Bool[np.ndarray, "t"]:
    """Return which characters start a word; a space belongs to the word after it, as in GPT-2.

    Other white space, and a space before a space, is a word of its own.
    """
    code = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")
    white = np.zeros(len(code), bool)
    low = code <= _WHITE_SPACE_CODES[-1]
    white[low] = _IS_WHITE_SPACE[code[low]]
    begins = white.copy()
    begins[1:] |= white[:-1] & (code[:-1] != ord(" "))
    begins[:1] = True
    return begins


_IS_WHITE_SPACE = np.zeros(int(_WHITE_SPACE_CODES[-1]) + 1, bool)
_IS_WHITE_SPACE[_WHITE_SPACE_CODES] = True


def is_punctuation(piece: str) -> bool:
    """Return whether a piece is one punctuation mark, as defined in BERT's code."""
    if len(piece) != 1 or piece.isspace():
        return False
    return (piece.isascii() and not piece.isalnum()) or unicodedata.category(piece)[0] == "P"


def text_boundaries(
    text: str, starts_word: Bool[np.ndarray, "t"], ends: Int[np.ndarray, "t"]
) -> UInt8[np.ndarray, "t"]:
    """Combine word starts with sentence and paragraph starts.

    A sentence or paragraph starts at the token with its first character, which also starts a word,
    even within a word of the tokenizer. Spaces before a text are part of its first paragraph.

    Args:
        text: the encoded text.
        starts_word: which tokens start a word.
        ends: end of each token in the text; of one before it, if that is later.
    """
    ends = np.maximum.accumulate(ends)
    return boundaries_of_texts([text], starts_word, ends, np.array([len(ends)]))


def boundaries_of_texts(
    texts: Sequence[str],
    starts_word: Bool[np.ndarray, "t"],
    ends: Int[np.ndarray, "t"],
    lengths: Int[np.ndarray, "n"],
) -> UInt8[np.ndarray, "t"]:
    """Return the boundaries of several texts, laid end to end with a character between two.

    Args:
        texts: the encoded texts.
        starts_word: which tokens start a word.
        ends: end of each token, not decreasing.
        lengths: number of tokens of each text.
    """
    marks = starts_word.astype(np.uint8) * np.uint8(WORD_START)
    sentences, paragraphs = sentence_starts("\n".join(texts))
    for kind, characters in ((SENTENCE_START, sentences), (PARAGRAPH_START, paragraphs)):
        # What no token follows in its text marks the first of the next, which has all marks.
        tokens = np.searchsorted(ends, characters, side="right")
        marks[tokens[tokens < len(ends)]] |= kind | WORD_START
    firsts = (np.cumsum(lengths) - lengths)[lengths > 0]
    marks[firsts] = WORD_START | SENTENCE_START | PARAGRAPH_START
    return marks


def _part_types(part: Any) -> set[str]:
    """List the types of a component of a pipeline and of its subcomponents."""
    if isinstance(part, Mapping):
        inner: Sequence[Any] = [*part.values()]
        return {str(part.get("type"))}.union(*map(_part_types, inner))
    if isinstance(part, list):
        return set[str]().union(*map(_part_types, part))
    return set()
