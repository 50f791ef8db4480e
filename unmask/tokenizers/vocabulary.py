"""Kinds of vocabularies: word pieces, merges, unigrams, characters, words, code points."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

DEFAULT_CHARACTER_COVERAGE = 0.9999
MAX_VOCAB_SIZE = 2**24
"""Of a vocabulary that is learned: some twenty times as many as the largest published one has."""


@dataclass(frozen=True)
class WordPiece:
    """Words cut greedily into the longest known pieces; what continues a word is ##so (BERT)."""

    vocab_size: int = 30_522
    lowercase: bool = True
    character_coverage: float = DEFAULT_CHARACTER_COVERAGE
    """The most frequent characters, up to this share of the text, are pieces; others are unknown
    (SentencePiece's option of this name, 0.9995 there)."""


PreTokenization = Literal["gpt2", "llama3", "qwen2"]


@dataclass(frozen=True)
class ByteBPE:
    """Byte pairs merged within words; any text can be written and read back exactly (GPT-2)."""

    vocab_size: int = 50_257
    pre_tokenization: PreTokenization = "gpt2"
    """How text is cut into what bytes are merged within. gpt2: letters, digits, signs and spaces
    apart, each with the space before it. llama3, also GPT-4's: digits by three, line ends by
    themselves, one sign with the letters after it, contractions in capitals too. qwen2: as llama3,
    but each digit by itself."""
    nfc_normalization: bool = False
    """Text is put in Unicode's form NFC first; any text of that form comes back exactly."""


@dataclass(frozen=True, kw_only=True)
class BPE:
    """Character pairs merged within words, whose end is marked (the original GPT)."""

    vocab_size: int = 40_478
    end_of_word: str = "</w>"
    lowercase: bool = False
    separate_end_of_word: bool = False
    """The mark is a symbol of its own, merged like any other (Sennrich et al. 2016, algorithm 1),
    words are what is between spaces. Otherwise it is a part of the last character, and punctuation
    is split off (GPT)."""
    character_coverage: float = DEFAULT_CHARACTER_COVERAGE
    """The most frequent characters, up to this share of the text, are pieces; others are unknown
    (SentencePiece's option of this name, 0.9995 there)."""


@dataclass(frozen=True)
class SentencePieceBPE:
    """Pieces merged as by BPE, which hold the spaces too; rare characters are bytes (Llama).

    Touvron et al. 2023, arXiv:2302.13971, section 2.1: digits are alone, unknown characters of
    UTF-8 are written byte by byte. So any text comes back as it was.
    """

    vocab_size: int = 32_000
    add_dummy_prefix: bool = True
    """A space is put before a text, so that its first word is written as others are; not so in
    Gemma (released code, `add_dummy_prefix`)."""
    character_coverage: float = DEFAULT_CHARACTER_COVERAGE
    """The most frequent characters, up to this share of the text, are pieces; others are bytes
    (SentencePiece's option of this name, 0.9995 there)."""


@dataclass(frozen=True)
class Unigram:
    """The most probable cut into pieces, which hold the spaces too (SentencePiece, T5)."""

    vocab_size: int = 32_000
    normalize_quotes_and_accents: bool = False
    """Quotes are made plain and accents taken away first (ALBERT, XLNet: released code,
    `preprocess_text`)."""
    lowercase: bool = False
    """Letters are lowered first (ALBERT)."""
    character_coverage: float = DEFAULT_CHARACTER_COVERAGE
    """The most frequent characters, up to this share of the text, are pieces; others are unknown
    (SentencePiece's option of this name, 0.9995 there)."""


@dataclass(frozen=True)
class ByteLevel:
    """One token a byte of UTF-8; nothing is learned (ByT5)."""

    n_unused_ids: int | None = None
    """None: sentinels have ids above the bytes. Otherwise they are bytes that no text has, the
    highest first, and so many ids above the bytes are unused (ByT5: 125)."""


@dataclass(frozen=True)
class CharacterLevel:
    """One token a character; the `vocab_size` most frequent ones of the text."""

    vocab_size: int = 1_000


@dataclass(frozen=True)
class WordLevel:
    """One token a word, as white space separates them.

    The `vocab_size` most frequent ones, these first.

    Raises:
        ValueError: a least count below 1.
    """

    vocab_size: int = 50_000
    min_count: int = 1
    """So often a word is in the text, or it is unknown."""
    lowercase: bool = False
    split_punctuation: bool = False
    """Punctuation and signs are words of their own, each; but not an apostrophe between letters."""

    def __post_init__(self) -> None:
        if self.min_count < 1:
            raise ValueError(f"min_count must be at least 1, got {self.min_count}")


@dataclass(frozen=True)
class CodePoints:
    """One token a character, its id the Unicode code point; nothing is learned (CANINE)."""


@dataclass(frozen=True)
class CodePointsWithSubwords:
    """Code points, and beside them `vocab_size` cased word pieces for a loss (CANINE-S)."""

    vocab_size: int = 119_547


@dataclass(frozen=True)
class WordBytesWithWords:
    """Bytes that say where words begin, and beside them `vocab_size` words for a loss (ELMo)."""

    vocab_size: int = 793_471


VocabularySpec = (
    WordPiece
    | ByteBPE
    | BPE
    | SentencePieceBPE
    | Unigram
    | ByteLevel
    | CharacterLevel
    | WordLevel
    | CodePoints
    | CodePointsWithSubwords
    | WordBytesWithWords
)
CharacterCoverageVocabulary = WordPiece | BPE | SentencePieceBPE | Unigram
"""Kinds all of whose single characters are pieces."""
VOCABULARY_KINDS: Mapping[str, type] = {
    "wordpiece": WordPiece,
    "byte-bpe": ByteBPE,
    "bpe": BPE,
    "sentencepiece-bpe": SentencePieceBPE,
    "unigram": Unigram,
    "characters": CharacterLevel,
    "words": WordLevel,
    "bytes": ByteLevel,
}
"""By the word that names them; of all but bytes so many are learned."""


def parse_vocabulary(text_or_vocabulary: str | VocabularySpec) -> VocabularySpec:
    """Return a vocabulary by its word, with a size or without: "words", "unigram:8000".

    Raises:
        ValueError: there is no such word, or the size is no number above 0.
    """
    if not isinstance(text_or_vocabulary, str):
        return text_or_vocabulary
    word, colon, size = text_or_vocabulary.partition(":")
    if word not in VOCABULARY_KINDS:
        raise ValueError(f"vocabulary must be one of {', '.join(VOCABULARY_KINDS)}, got {word!r}")
    if not colon:
        return VOCABULARY_KINDS[word]()
    if word == "bytes":
        raise ValueError(f"vocabulary bytes has no size, got {text_or_vocabulary!r}")
    if not (size.isascii() and size.isdecimal() and int(size)):
        raise ValueError(
            f"vocabulary must be a word, or word:size as words:500, got {text_or_vocabulary!r}"
        )
    return VOCABULARY_KINDS[word](vocab_size=int(size))
