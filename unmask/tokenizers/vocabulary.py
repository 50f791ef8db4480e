"""Kinds of vocabularies: WordPiece, BPE, unigram, characters, words, code points."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

DEFAULT_CHARACTER_COVERAGE = 0.9999
MAX_VOCAB_SIZE = 2**24
"""Maximum size of a trained vocabulary: some twenty times the largest published one."""


@dataclass(frozen=True)
class WordPiece:
    """Greedy longest-match pieces of words; continuing pieces start with ## (BERT)."""

    vocab_size: int = 30_522
    lowercase: bool = True
    character_coverage: float = DEFAULT_CHARACTER_COVERAGE
    """The most frequent characters, up to this share of the text, are pieces; others are unknown
    (SentencePiece's option of this name, 0.9995 there)."""


PreTokenization = Literal["gpt2", "llama3", "qwen2"]


@dataclass(frozen=True)
class ByteBPE:
    """Byte-level BPE within words; lossless for any text (GPT-2)."""

    vocab_size: int = 50_257
    pre_tokenization: PreTokenization = "gpt2"
    """Pre-tokenization. gpt2: separates letters, digits, signs and spaces, each with the space
    before it. llama3, also GPT-4's: digits in threes, separate line ends, one sign with the letters
    after it, contractions in capitals too. qwen2: as llama3, but single digits."""
    nfc_normalization: bool = False
    """Whether text is normalized to NFC first; lossless for text in NFC."""


@dataclass(frozen=True)
class LowercaseByteBPE:
    """BPE over the bytes of lowercase words, with an end-of-word mark (CLIP).

    Radford et al. 2021, arXiv:2103.00020, section 2.4. Words are letters, single digits, runs of
    other signs, and the endings of English contractions (released code). Any text has pieces, but
    case and the number of spaces are lost.
    """

    vocab_size: int = 49_408
    end_of_word: str = "</w>"


@dataclass(frozen=True, kw_only=True)
class BPE:
    """BPE over characters within words, with an end-of-word mark (the original GPT)."""

    vocab_size: int = 40_478
    end_of_word: str = "</w>"
    lowercase: bool = False
    separate_end_of_word: bool = False
    """Whether the mark is a separate symbol, merged like any other (Sennrich et al. 2016, algorithm
    1), and words are separated by spaces only. Otherwise it is a part of the last character, and
    punctuation is split off (GPT)."""
    character_coverage: float = DEFAULT_CHARACTER_COVERAGE
    """The most frequent characters, up to this share of the text, are pieces; others are unknown
    (SentencePiece's option of this name, 0.9995 there)."""


@dataclass(frozen=True)
class SentencePieceBPE:
    """BPE over text with spaces; rare characters are bytes (Llama).

    Touvron et al. 2023, arXiv:2302.13971, section 2.1: digits are separate, unknown characters fall
    back to UTF-8 bytes; lossless for any text.
    """

    vocab_size: int = 32_000
    add_dummy_prefix: bool = True
    """Whether a space is prepended to a text, so that the first word is encoded as others; false in
    Gemma (released code, `add_dummy_prefix`)."""
    character_coverage: float = DEFAULT_CHARACTER_COVERAGE
    """The most frequent characters, up to this share of the text, are pieces; others are bytes
    (SentencePiece's option of this name, 0.9995 there)."""


@dataclass(frozen=True)
class Unigram:
    """The most probable segmentation into pieces with spaces (SentencePiece, T5)."""

    vocab_size: int = 32_000
    normalize_quotes_and_accents: bool = False
    """Whether quotes are normalized and accents removed first (ALBERT, XLNet: released code,
    `preprocess_text`)."""
    lowercase: bool = False
    """Whether letters are lowercased first (ALBERT)."""
    character_coverage: float = DEFAULT_CHARACTER_COVERAGE
    """The most frequent characters, up to this share of the text, are pieces; others are unknown
    (SentencePiece's option of this name, 0.9995 there)."""


@dataclass(frozen=True)
class ByteLevel:
    """One token per UTF-8 byte; nothing is trained (ByT5)."""

    n_unused_ids: int | None = None
    """None: sentinels have ids above the bytes. Otherwise they are bytes that do not occur in
    UTF-8, the highest first, and this is the number of unused ids above the bytes (ByT5: 125)."""


@dataclass(frozen=True)
class CharacterLevel:
    """One token per character, the `vocab_size` most frequent ones."""

    vocab_size: int = 1_000


@dataclass(frozen=True)
class WordLevel:
    """One token per word, separated by white space.

    The `vocab_size` most frequent words, in order of frequency.

    Raises:
        ValueError: `min_count` is below 1.
    """

    vocab_size: int = 50_000
    min_count: int = 1
    """Minimum count of a word; others are unknown."""
    lowercase: bool = False
    split_punctuation: bool = False
    """Whether punctuation marks are separate words, except apostrophes between letters."""

    def __post_init__(self) -> None:
        if self.min_count < 1:
            raise ValueError(f"min_count must be at least 1, got {self.min_count}")


@dataclass(frozen=True)
class CodePoints:
    """One token per character, its id the code point; nothing is trained (CANINE)."""


@dataclass(frozen=True)
class CodePointsWithSubwords:
    """Code points, with `vocab_size` cased word pieces as targets (CANINE-S)."""

    vocab_size: int = 119_547


@dataclass(frozen=True)
class WordBytesWithWords:
    """Bytes that mark word starts, with `vocab_size` words as targets (ELMo)."""

    vocab_size: int = 793_471


@dataclass(frozen=True)
class Patches:
    """One token per patch of a picture; there is no text, and nothing is trained (ViT)."""


VocabularySpec = (
    WordPiece
    | ByteBPE
    | LowercaseByteBPE
    | BPE
    | SentencePieceBPE
    | Unigram
    | ByteLevel
    | CharacterLevel
    | WordLevel
    | CodePoints
    | CodePointsWithSubwords
    | WordBytesWithWords
    | Patches
)
CharacterCoverageVocabulary = WordPiece | BPE | SentencePieceBPE | Unigram
"""Kinds with all single characters as pieces."""
VOCABULARY_KINDS: Mapping[str, type] = {
    "wordpiece": WordPiece,
    "byte-bpe": ByteBPE,
    "lowercase-byte-bpe": LowercaseByteBPE,
    "bpe": BPE,
    "sentencepiece-bpe": SentencePieceBPE,
    "unigram": Unigram,
    "characters": CharacterLevel,
    "words": WordLevel,
    "bytes": ByteLevel,
}
"""Kinds by name; all but bytes have a size."""


def parse_vocabulary(text_or_vocabulary: str | VocabularySpec) -> VocabularySpec:
    """Parse a vocabulary with an optional size: "words", "unigram:8000".

    Raises:
        ValueError: the name is unknown, or the size is not a number above 0.
    """
    if not isinstance(text_or_vocabulary, str):
        return text_or_vocabulary
    name, colon, size = text_or_vocabulary.partition(":")
    if name not in VOCABULARY_KINDS:
        raise ValueError(f"vocabulary must be one of {', '.join(VOCABULARY_KINDS)}, got {name!r}")
    if not colon:
        return VOCABULARY_KINDS[name]()
    if name == "bytes":
        raise ValueError(f"vocabulary bytes has no size, got {text_or_vocabulary!r}")
    if not (size.isascii() and size.isdecimal() and int(size)):
        raise ValueError(
            f"vocabulary must be a name or name:size, as words:500, got {text_or_vocabulary!r}"
        )
    return VOCABULARY_KINDS[name](vocab_size=int(size))
