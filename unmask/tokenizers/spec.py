"""Specification of a tokenizer: the kind of its vocabulary, and special tokens by role."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar, runtime_checkable

import numpy as np
from jaxtyping import Int

from unmask.batch import Example, Feature, Tokens
from unmask.tokenizers.vocabulary import (
    MAX_VOCAB_SIZE,
    ByteLevel,
    CharacterCoverageVocabulary,
    CodePoints,
    Patches,
    VocabularySpec,
)


class OutputTokens(NamedTuple):
    """The output tokens of a text of characters."""

    tokens: Tokens
    """Ids and word starts."""
    starts: Int[np.ndarray, "n"]
    """Index of the first character of each."""


@runtime_checkable
class OutputVocabulary(Protocol):
    """A vocabulary of prediction targets, for models with character input."""

    @property
    def special_ids(self) -> "SpecialTokenIds":
        """Its size and special ids."""
        ...

    def tokenize(self, characters: Int[np.ndarray, "t"]) -> OutputTokens:
        """Find its tokens in a text; spaces are in none."""
        ...

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Return each id as readable text."""
        ...


@runtime_checkable
class SubwordVocabulary(OutputVocabulary, Protocol):
    """An output vocabulary of pieces, which can replace each other in the input.

    Characters of unknown words are in none of its tokens.
    """

    def spell(self, subword: int) -> Int[np.ndarray, "l"]:
        """Return the characters of a subword."""
        ...

    def same_length(self, subword: int) -> Int[np.ndarray, "k"]:
        """List the subwords of the same length, itself included."""
        ...


NO_LANGUAGE = -1
"""Of padding, and of tokens whose language is not given: they get no language embedding."""


@dataclass(frozen=True)
class TextLanguages(Feature):
    """The language of each token (Conneau and Lample 2019, arXiv:1901.07291, section 3.4).

    Not a segment: segments say which of two texts a token belongs to, and are 0 where they are not
    given; both texts of a pair may have one language, and where none is given nothing is added.
    """

    column_fields: ClassVar[Mapping[str, int]] = {"language": NO_LANGUAGE}
    language: Int[Any, "*b t"]
    """Row of the language embedding, or NO_LANGUAGE."""


@dataclass(frozen=True, kw_only=True)
class SpecialTokenIds:
    """The size and the special ids of a vocabulary, for objectives and collation."""

    vocab_size: int
    """Number of ids."""
    pad: int
    start: int
    """First input of a decoder (T5: pad, GPT-2: <|endoftext|>, BERT: [CLS])."""
    end: int | None
    """End of a text (</s>, <|endoftext|>, [SEP])."""
    further_ends: tuple[int, ...] = ()
    """Other tokens that end a generated text. Those that are not special are its last token."""
    mask: int | None = None
    unknown: int | None = None
    prefix: tuple[int, ...] = ()
    """One text: prefix + a + suffix. Two: prefix + a + separator + b + suffix."""
    separator: tuple[int, ...] = ()
    suffix: tuple[int, ...] = ()
    sentinels: tuple[int, ...] = ()
    """T5: <extra_id_0>, <extra_id_1>, ... in this order, for any ids."""
    modes: tuple[int, ...] = ()
    """UL2: first token of a source for each kind of denoising; see `SpecialTokens.modes`."""
    languages: tuple[tuple[str, int], ...] = ()
    """Language tokens by name (see `with_languages`)."""
    language_first: bool = False
    """They precede a text, not after it."""
    language_embeddings: bool = False
    """Languages are rows of an embedding that is added to tokens (XLM), and no tokens."""
    text_languages: tuple[int, ...] = ()
    """The language of texts, where it is an embedding; of pairs that differ, those of both."""
    is_parallel: bool = False
    """Texts are translation pairs: two paragraphs, each the translation of the other."""
    target_prefix: tuple[int, ...] | None = None
    """Tokens after `start` in a decoder, before the target. None: the prefix of a text."""
    all_ids: frozenset[int] = frozenset()
    """All special ids: never masked, never drawn as random tokens."""
    output_vocabulary: OutputVocabulary | None = field(default=None, compare=False, repr=False)
    """Subwords or words as prediction targets for character input (CANINE-S, ELMo)."""

    @property
    def ends(self) -> tuple[int, ...]:
        """The tokens that end a generated text."""
        return tuple(i for i in dict.fromkeys((self.end, *self.further_ends)) if i is not None)

    def is_in_text(self, token: int) -> bool:
        """Return whether a generated text has this token: not if it is an end that is special."""
        return token not in self.ends or not (token == self.end or token in self.all_ids)

    @property
    def mask_or_sentinel(self) -> int | None:
        """The token that replaces a hidden one: the mask, or if there is none, the first sentinel.

        The latter is T5's (released code, `sentinel_id`).
        """
        return next(iter(self.sentinels), None) if self.mask is None else self.mask

    @property
    def decoder_prefix(self) -> tuple[int, ...]:
        """The special tokens before a text, without `start`, which a decoder already has."""
        if self.target_prefix is not None:
            return self.target_prefix
        return self.prefix[1:] if self.prefix[:1] == (self.start,) else self.prefix

    def with_languages(self, source: str, target: str | None = None) -> "SpecialTokenIds":
        """Return a copy for sources of a language and targets of another.

        The language token follows the end of a text and starts the decoder (Liu et al. 2020,
        arXiv:2001.08210, section 2.2); or it precedes both texts (Tang et al. 2020,
        arXiv:2008.00401). Language embeddings change no token: they are added to those of a text
        and, if `target` is given, of the second one of a pair.

        Raises:
            ValueError: there is no such language.
        """
        ids = dict(self.languages)
        for language in (source, source if target is None else target):
            if language not in ids:
                if not ids:
                    raise ValueError(f"this vocabulary has no language tokens, got {language!r}")
                names = ", ".join(ids)
                raise ValueError(f"a language must be one of {names}, got {language!r}")
        read, said = ids[source], ids[source if target is None else target]
        if self.language_embeddings:
            return replace(self, text_languages=(read,) if target is None else (read, said))
        if self.language_first:
            return replace(self, prefix=(read,), target_prefix=(said,))
        return replace(self, suffix=(*self.suffix, read), start=said, target_prefix=())

    @property
    def needs_languages(self) -> bool:
        """Whether language tokens must still be chosen."""
        return bool(self.languages) and not self.language_embeddings and self.target_prefix is None

    def with_text_languages(self, example: Example) -> Example:
        """Return an example with the language of its tokens, where it is chosen and not yet there.

        Of two languages, the second is that of the second segment.
        """
        if not self.text_languages or example.has(TextLanguages):
            return example
        first, last = self.text_languages[0], self.text_languages[-1]
        language = np.full(len(example.inputs), first)
        if example.segments is not None:
            language[example.segments == 1] = last
        return example.with_feature(TextLanguages(language))

    @property
    def summary(self) -> int | None:
        """The token that stands for all texts and is of none, if there is one (XLNet: <cls>)."""
        return _summary_token(self.separator, self.suffix)


@dataclass(frozen=True, kw_only=True)
class SpecialTokens:
    """The special tokens of a family by name, a part of a preset.

    `SpecialTokenIds` is the same by id.
    """

    pad: str
    start: str
    end: str | None = None
    mask: str | None = None
    unknown: str | None = None
    prefix: tuple[str, ...] = ()
    separator: tuple[str, ...] = ()
    suffix: tuple[str, ...] = ()
    n_sentinels: int = 0
    modes: tuple[str, ...] = ()
    """First token of a source for regular, sequential and extreme denoising, in this order
    (UL2)."""
    languages: tuple[str, ...] = ()
    """Language tokens, one of which is chosen for each text."""
    language_first: bool = False
    """They precede a text, not after it."""
    language_embeddings: bool = False
    """Languages are rows of an embedding that is added to tokens (XLM), and no tokens. Those of a
    run are the names of its sources (`--data en=FILE de=FILE`)."""
    text_languages: tuple[str, ...] = ()
    """The language that texts have unless told otherwise, where languages are embeddings: that of
    fine-tuning. Of pairs in two, those of both."""
    backward: bool = False
    """Whether texts are reversed, so that a forward model predicts preceding tokens (Howard and
    Ruder 2018, arXiv:1801.06146, section 3.3, "Bidirectional language model")."""
    punctuation_starts_words: bool = field(default=False, compare=False)
    """Whether every punctuation mark starts a word, besides white space (ALBERT and XLNet: released
    code, `is_start_piece`; DeBERTa: `part_of_whole_word`). Deviates: in the former two every piece
    with non-English letters also starts a word, which would split all words of other languages."""
    first_in_vocabulary: tuple[str, ...] = field(default=(), compare=False)
    """Special tokens with the first ids of a trained vocabulary, in this order."""

    @property
    def summary(self) -> str | None:
        """The token that stands for all texts and is of none, if there is one (XLNet: <cls>)."""
        return _summary_token(self.separator, self.suffix)


SUMMARY_SEGMENT_ID = 2
"""The segment of the summary token, besides 0 and 1 of two texts (XLNet, released code)."""
_TokenT = TypeVar("_TokenT", int, str)


def _summary_token(separator: tuple[_TokenT, ...], suffix: tuple[_TokenT, ...]) -> _TokenT | None:
    """Return the token after the separator that ends each text, if there is exactly one."""
    return suffix[1] if len(suffix) == 2 and suffix[:1] == separator else None


BERT = SpecialTokens(
    pad="[PAD]", start="[CLS]", end="[SEP]", mask="[MASK]", unknown="[UNK]",
    prefix=("[CLS]",), separator=("[SEP]",), suffix=("[SEP]",),
)  # fmt: skip
ALBERT = replace(BERT, pad="<pad>", unknown="<unk>", punctuation_starts_words=True)
DEBERTA = replace(BERT, punctuation_starts_words=True)
ROBERTA = SpecialTokens(
    pad="<pad>", start="<s>", end="</s>", mask="<mask>", unknown="<unk>",
    prefix=("<s>",), separator=("</s>", "</s>"), suffix=("</s>",),
    first_in_vocabulary=("<s>", "<pad>", "</s>", "<unk>"),
)  # fmt: skip
BART = replace(ROBERTA, start="</s>")
MASS = SpecialTokens(
    pad="[PAD]", start="[SEP]", end="[SEP]", mask="[MASK]", unknown="[UNK]",
    separator=("[SEP]",), suffix=("[SEP]",),
)  # fmt: skip
_CC25_LANGUAGES = (
    "ar_AR", "cs_CZ", "de_DE", "en_XX", "es_XX", "et_EE", "fi_FI", "fr_XX", "gu_IN", "hi_IN",
    "it_IT", "ja_XX", "kk_KZ", "ko_KR", "lt_LT", "lv_LV", "my_MM", "ne_NP", "nl_XX", "ro_RO",
    "ru_RU", "si_LK", "tr_TR", "vi_VN", "zh_CN",
)  # fmt: skip
"""Of CC25, by their ids (Liu et al. 2020, table 1; released code)."""
_MBART_50_LANGUAGES = (
    "af_ZA", "az_AZ", "bn_IN", "fa_IR", "he_IL", "hr_HR", "id_ID", "ka_GE", "km_KH", "mk_MK",
    "ml_IN", "mn_MN", "mr_IN", "pl_PL", "ps_AF", "pt_XX", "sv_SE", "sw_KE", "ta_IN", "te_IN",
    "th_TH", "tl_XX", "uk_UA", "ur_PK", "xh_ZA", "gl_ES", "sl_SI",
)  # fmt: skip
MBART = replace(BART, prefix=(), languages=_CC25_LANGUAGES)
MBART_50 = replace(MBART, languages=(*_CC25_LANGUAGES, *_MBART_50_LANGUAGES), language_first=True)
XLM = SpecialTokens(
    pad="<pad>", start="<s>", end="</s>", mask="<special1>", unknown="<unk>",
    prefix=("<s>",), separator=("</s>",), suffix=("</s>",),
    first_in_vocabulary=("<s>", "</s>", "<pad>", "<unk>", "<special0>"),
)  # fmt: skip
_XNLI_LANGUAGES = (
    "ar", "bg", "de", "el", "en", "es", "fr", "hi", "ru", "sw", "th", "tr", "ur", "vi", "zh",
)  # fmt: skip
"""Conneau and Lample 2019, arXiv:1901.07291, table 1; in the order of the released code."""
XLM_15 = replace(XLM, languages=_XNLI_LANGUAGES, language_embeddings=True)
GPT = SpecialTokens(pad="<unk>", start="<unk>", unknown="<unk>")
GPT2 = SpecialTokens(
    pad="<|endoftext|>", start="<|endoftext|>", end="<|endoftext|>", unknown="<|endoftext|>"
)
CLIP = SpecialTokens(
    pad="<|endoftext|>", start="<|startoftext|>", end="<|endoftext|>", unknown="<|endoftext|>",
    prefix=("<|startoftext|>",), separator=("<|endoftext|>",) * 2, suffix=("<|endoftext|>",),
)  # fmt: skip
T5 = SpecialTokens(
    pad="<pad>", start="<pad>", end="</s>", unknown="<unk>",
    separator=("</s>",), suffix=("</s>",), n_sentinels=100,
)  # fmt: skip
BYT5 = replace(T5, n_sentinels=11)

UL2 = replace(T5, modes=("[NLU]", "[S2S]", "[NLG]"))
T5_WITHOUT_SENTINELS = replace(T5, n_sentinels=0)
LLAMA = SpecialTokens(
    pad="</s>", start="<s>", end="</s>", unknown="<unk>", prefix=("<s>",), separator=("<s>",),
    first_in_vocabulary=("<unk>", "<s>", "</s>"),
)  # fmt: skip
LLAMA_3 = SpecialTokens(
    pad="<|end_of_text|>", start="<|begin_of_text|>", end="<|end_of_text|>",
    prefix=("<|begin_of_text|>",), separator=("<|begin_of_text|>",),
)  # fmt: skip
QWEN = SpecialTokens(pad="<|endoftext|>", start="<|endoftext|>", end="<|endoftext|>")
GEMMA = SpecialTokens(
    pad="<pad>",
    start="<bos>",
    end="<eos>",
    unknown="<unk>",
    prefix=("<bos>",),
    separator=("<bos>",),
    first_in_vocabulary=("<pad>", "<eos>", "<bos>", "<unk>"),
)
XLNET = SpecialTokens(
    pad="<pad>", start="<s>", end="</s>", mask="<mask>", unknown="<unk>",
    separator=("<sep>",), suffix=("<sep>", "<cls>"), punctuation_starts_words=True,
    first_in_vocabulary=("<unk>", "<s>", "</s>", "<cls>", "<sep>", "<pad>", "<mask>"),
)  # fmt: skip
WORD_LEVEL = SpecialTokens(pad="<eos>", start="<eos>", end="<eos>", unknown="<unk>")
GPT_BERT = SpecialTokens(
    pad="<pad>",
    start="<s>",
    end="</s>",
    mask="<mask>",
    unknown="<unk>",
    prefix=("<s>",),
    separator=("<s>",),
    first_in_vocabulary=("<unk>", "<s>", "</s>", "<pad>", "<mask>"),
)
OLMO = SpecialTokens(pad="<|pad|>", start="<|endoftext|>", end="<|endoftext|>")

CANINE = SpecialTokens(
    pad="[PAD]", start="[CLS]", end="[SEP]", mask="[MASK]",
    prefix=("[CLS]",), separator=("[SEP]",), suffix=("[SEP]",),
)  # fmt: skip

ELMO = SpecialTokens(
    pad="<pad>", start="<S>", end="</S>",
    prefix=("<S>",), separator=("</S>", "<S>"), suffix=("</S>",),
)  # fmt: skip
PICTURE = SpecialTokens(
    pad="[PAD]", start="[CLS]", mask="[MASK]", prefix=("[CLS]",),
    first_in_vocabulary=("[CLS]", "[DISTILLATION]", "[MASK]", "[PAD]"),
)  # fmt: skip
"""What stands at the columns of a picture beside its patches."""


@dataclass(frozen=True, kw_only=True)
class TaskTokens:
    """Tokens around texts that fine-tuning adds to a decoder's vocabulary.

    Radford et al. 2018, section 3.3; their names, and the order of their ids, are the released
    code's.
    """

    start: str = "_start_"
    delimiter: str = "_delimiter_"
    """Separator of two texts."""
    extract: str = "_classify_"
    """Last token, whose hidden state is pooled."""

    @property
    def names(self) -> tuple[str, str, str]:
        """All names, by id."""
        return self.start, self.delimiter, self.extract

    def surround(self, special_tokens: SpecialTokens) -> SpecialTokens:
        """Return special tokens with these around texts; an existing prefix is kept."""
        kept = tuple(name for name in special_tokens.prefix if name != self.start)
        return replace(
            special_tokens,
            prefix=(*kept, self.start),
            separator=(self.delimiter,),
            suffix=(self.extract,),
        )


def special_token_names(special_tokens: SpecialTokens) -> tuple[str, ...]:
    """List the distinct special tokens in id order: the first ones, padding, the others.

    Without the sentinels.
    """
    roles = (
        *special_tokens.first_in_vocabulary,
        special_tokens.pad,
        *special_tokens.prefix,
        *special_tokens.separator,
        *special_tokens.suffix,
        special_tokens.start,
    )
    rare = (
        special_tokens.end,
        special_tokens.unknown,
        *(() if special_tokens.language_embeddings else special_tokens.languages),
        special_tokens.mask,
        *special_tokens.modes,
    )
    return tuple(dict.fromkeys(name for name in (*roles, *rare) if name is not None))


def sentinel_names(special_tokens: SpecialTokens) -> tuple[str, ...]:
    """List the sentinels, that of the first span first (Raffel et al. 2020, section 3.1.4)."""
    return tuple(f"<extra_id_{i}>" for i in range(special_tokens.n_sentinels))


@dataclass(frozen=True)
class TokenizerSpec:
    """A tokenizer to train.

    `vocab_size` counts all ids except sentinels, which are added.

    Raises:
        ValueError: a size below 1 or above `MAX_VOCAB_SIZE`, or an invalid coverage.
    """

    vocabulary: VocabularySpec
    special_tokens: SpecialTokens

    def __post_init__(self) -> None:
        kind = self.vocabulary
        if isinstance(kind, ByteLevel | CodePoints | Patches):
            return
        if not 1 <= kind.vocab_size <= MAX_VOCAB_SIZE:
            raise ValueError(
                f"the size of a vocabulary must be from 1 to {MAX_VOCAB_SIZE:,}, got "
                f"{kind.vocab_size:,}"
            )
        if isinstance(kind, CharacterCoverageVocabulary) and not 0 < kind.character_coverage <= 1:
            raise ValueError(
                f"character_coverage must be above 0 and at most 1, got {kind.character_coverage}"
            )
