"""Pipelines of the `tokenizers` library for each kind of vocabulary.

A pipeline is normalizer, pre-tokenizer (text to words), model (word to pieces) and decoder.
`add_special_tokens` adds special tokens and their template.
"""

import re
from collections.abc import Mapping, Sequence

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
)

from unmask.tokenizers.formats import limits, sentencepiece
from unmask.tokenizers.spec import (
    SUMMARY_SEGMENT_ID,
    SpecialTokens,
    sentinel_names,
    special_token_names,
)
from unmask.tokenizers.vocabulary import PreTokenization

SPACE = "▁"
"""SentencePiece's character for a space."""
WORD_WITH_SPACE_PATTERN = r" ?\S+|\s"
"""Words of byte and character vocabularies, with the space before them, as in GPT-2."""


def wordpiece_pipeline(
    vocab: Mapping[str, int],
    unknown: str,
    *,
    lowercase: bool,
    strip_accents: bool | None = None,
    split_chinese_characters: bool = True,
) -> Tokenizer:
    """Build BERT's: punctuation marks are words; lowercasing also removes accents."""
    backend = Tokenizer(
        models.WordPiece(dict(vocab), unk_token=unknown, max_input_chars_per_word=100)
    )
    backend.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=split_chinese_characters,
        strip_accents=strip_accents,
        lowercase=lowercase,
    )
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece(prefix="##", cleanup=True)
    return backend


_DIGIT_PATTERNS: Mapping[PreTokenization, str] = {"llama3": r"\p{N}{1,3}", "qwen2": r"\p{N}"}


def byte_bpe_pipeline(
    vocab: Mapping[str, int],
    merges: Sequence[tuple[str, str]],
    *,
    pre_tokenization: PreTokenization = "gpt2",
    nfc: bool = False,
    add_prefix_space: bool = False,
) -> Tokenizer:
    """Build GPT-2's: bytes are written as printable characters, words keep the space before them.

    Args:
        vocab: pieces and their ids.
        merges: pairs of pieces, the first merge first.
        pre_tokenization: see `ByteBPE.pre_tokenization`.
        nfc: whether text is normalized to NFC.
        add_prefix_space: whether a space is prepended to a text that starts with none.
    """
    backend = Tokenizer(models.BPE(dict(vocab), list(merges)))
    pattern = pre_tokenizers.ByteLevel(
        add_prefix_space=add_prefix_space, use_regex=pre_tokenization == "gpt2"
    )
    backend.pre_tokenizer = pattern
    if pre_tokenization != "gpt2":
        rule = (
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
            rf"{_DIGIT_PATTERNS[pre_tokenization]}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|"
            r"\s*[\r\n]+|\s+(?!\S)|\s+"
        )
        split = pre_tokenizers.Split(Regex(rule), "isolated")
        backend.pre_tokenizer = pre_tokenizers.Sequence([split, pattern])
    if nfc:
        backend.normalizer = normalizers.NFC()
    backend.decoder = decoders.ByteLevel()
    return backend


def bpe_pipeline(
    vocab: Mapping[str, int],
    merges: Sequence[tuple[str, str]],
    unknown: str | None,
    *,
    end_of_word: str,
    lowercase: bool,
    separate_end_of_word: bool = False,
) -> Tokenizer:
    """Build the original GPT's: the last piece of a word ends with, or is, `end_of_word`."""
    suffix = "" if separate_end_of_word else end_of_word
    backend = Tokenizer(
        models.BPE(dict(vocab), list(merges), unk_token=unknown, end_of_word_suffix=suffix)
    )
    bert = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=not separate_end_of_word,
        strip_accents=None,
        lowercase=lowercase,
    )
    if separate_end_of_word:
        mark = normalizers.Replace(Regex(r"(?<=\S)(?=\s|\z)"), end_of_word)
        backend.normalizer = normalizers.Sequence([bert, mark])
        backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    else:
        backend.normalizer = bert
        backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.BPEDecoder(suffix=end_of_word)
    return backend


def plain_text_normalizers(*, keep_accents: bool, lowercase: bool) -> list[normalizers.Normalizer]:
    """List the normalizers of ALBERT's and XLNet's code before SentencePiece.

    Args:
        keep_accents: whether accents are kept.
        lowercase: whether letters are lowercased.
    """
    quotes = [normalizers.Replace("``", '"'), normalizers.Replace("''", '"')]
    bare = [] if keep_accents else [normalizers.NFKD(), normalizers.StripAccents()]
    return [*quotes, *bare, *([normalizers.Lowercase()] if lowercase else [])]


def unigram_pipeline(
    pieces: Sequence[tuple[str, float]],
    unknown: int,
    normalizers_before: Sequence[normalizers.Normalizer] = (),
) -> Tokenizer:
    """Build a unigram pipeline with SentencePiece's normalization nmt_nfkc.

    Args:
        pieces: pieces with log probabilities, by id.
        unknown: the unknown id.
        normalizers_before: normalizers applied first.
    """
    backend = Tokenizer(models.Unigram(list(pieces), unk_id=unknown, byte_fallback=False))
    backend.normalizer = normalizers.Sequence(
        [*normalizers_before, normalizers.Nmt(), normalizers.NFKC(), *_collapse_spaces()]
    )
    backend.pre_tokenizer = pre_tokenizers.Metaspace(
        replacement=SPACE, prepend_scheme="always", split=True
    )
    backend.decoder = decoders.Metaspace(replacement=SPACE, prepend_scheme="always", split=True)
    return backend


def character_pipeline(vocab: Mapping[str, int], unknown: str) -> Tokenizer:
    """Build a pipeline with characters as tokens."""
    backend = Tokenizer(models.BPE(dict(vocab), [], unk_token=unknown, fuse_unk=False))
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(WORD_WITH_SPACE_PATTERN), "isolated")
    backend.decoder = decoders.Fuse()
    return backend


def word_level_pipeline(
    vocab: Mapping[str, int],
    unknown: str,
    *,
    lowercase: bool = False,
    split_punctuation: bool = False,
) -> Tokenizer:
    """Build a word-level pipeline; texts are decoded with single spaces.

    Args:
        vocab: words and their ids.
        unknown: the unknown token.
        lowercase: whether text is lowercased and normalized to NFC.
        split_punctuation: whether punctuation marks are separate words.
    """
    backend = Tokenizer(models.WordLevel(dict(vocab), unk_token=unknown))
    if lowercase:
        backend.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Lowercase()])
    backend.pre_tokenizer = word_pre_tokenizer(split_punctuation)
    return backend


def word_pre_tokenizer(split_punctuation: bool) -> pre_tokenizers.PreTokenizer:
    """Return a splitter at white space, and optionally around punctuation marks."""
    if not split_punctuation:
        return pre_tokenizers.WhitespaceSplit()
    return pre_tokenizers.Split(Regex(_WORD_OR_SIGN_PATTERN), "removed", invert=True)


_LETTER_PATTERN = r"[\p{L}\p{M}\p{N}\u200c\u200d]"
_SIGN_PATTERN = r"\S[\p{M}\x{1F3FB}-\x{1F3FF}]*"
_WORD_OR_SIGN_PATTERN = (
    f"{_LETTER_PATTERN}+(?:['\\u2019]{_LETTER_PATTERN}+)*|"
    f"{_SIGN_PATTERN}(?:\\u200d{_SIGN_PATTERN})*"
)
"""Joiners are inside words of Hindi and Persian. An emoji includes its skin tone and the emojis
joined to it."""


def sentencepiece_pipeline(
    model: sentencepiece.SentencePieceModel,
    normalizers_before: Sequence[normalizers.Normalizer] = (),
) -> Tokenizer:
    """Build the pipeline of a SentencePiece file, after `normalizers_before`.

    Ids are those of SentencePiece's library, except for three limitations of the `tokenizers`
    library: an accent on a character that normalization changes otherwise (½ + U+0301) is lost; the
    name of a byte in a text ("<0x41>") is that byte to a unigram model; no space is prepended to a
    text that is a single user-defined piece.

    Raises:
        ValueError: the `tokenizers` library does not support it.
    """
    if not model.escape_whitespaces or model.whitespace_as_suffix:
        raise ValueError("it does not write spaces as ▁ before words, which is not supported")
    if model.algorithm == "word":
        raise ValueError("its pieces are whole words (model_type WORD), which is not supported")
    backend = _sentence_piece_model(model)
    rules = _collapse_spaces() if model.remove_extra_whitespaces else []
    if model.charsmap:
        rules = [_charsmap_normalizer(model.charsmap), *rules]
    rules = [*normalizers_before, *rules]
    defined = [p.text for p in model.pieces if p.piece_type == sentencepiece.USER_DEFINED]
    atoms = [
        text for text in defined if " " not in text
    ]  # those with spaces never match, as spaces are ▁
    splits = _space_splits(model)
    rules = [*rules, normalizers.Replace(" ", SPACE), *_dummy_prefix(model, atoms)]
    if model.remove_extra_whitespaces:  # of a text that ends with ▁ itself
        rules = [*rules, normalizers.Replace(Regex(f"{SPACE}+\\z"), "")]
    backend.normalizer = normalizers.Sequence(rules)
    _check_user_defined(atoms, backend.normalizer)
    if splits:
        backend.pre_tokenizer = pre_tokenizers.Sequence(splits)
    strip = [decoders.Strip(" ", 1, 0)] if model.add_dummy_prefix else []
    backend.decoder = decoders.Sequence(
        [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), *strip]
    )
    backend.add_tokens([AddedToken(atom, normalized=True) for atom in atoms])
    never = (sentencepiece.CONTROL, sentencepiece.UNUSED)
    backend.add_special_tokens(
        [
            AddedToken(p.text, special=True, normalized=False)
            for p in model.pieces
            if p.piece_type in never
        ]
    )
    return backend


def _dummy_prefix(
    model: sentencepiece.SentencePieceModel, atoms: Sequence[str]
) -> list[normalizers.Normalizer]:
    """Prepend a space to a text, except before user-defined pieces, which are normalized."""
    if not model.add_dummy_prefix:
        return []
    if not atoms:
        return [normalizers.Prepend(SPACE)]
    names = "|".join(map(re.escape, atoms))
    return [normalizers.Replace(Regex(rf"\A(?!(?:{names})\z)(?!\z)"), SPACE)]


def _check_user_defined(atoms: Sequence[str], normalizer: normalizers.Normalizer) -> None:
    """Reject pieces that normalization changes: SentencePiece's library exempts them."""
    for atom in atoms:
        if (changed := normalizer.normalize_str(atom)) != atom:
            raise ValueError(
                f"its user-defined piece {atom!r} is {changed!r} after its own normalization, "
                "which is not supported"
            )


def _space_splits(model: sentencepiece.SentencePieceModel) -> list[pre_tokenizers.PreTokenizer]:
    """Split before spaces, unless a piece continues after one: faster, and marks the words."""
    normal = [p.text for p in model.pieces if p.piece_type == sentencepiece.NORMAL]
    if any(SPACE in text.lstrip(SPACE) for text in normal):
        return []
    return [pre_tokenizers.Split(Regex(f"{SPACE}*[^{SPACE}]+|{SPACE}+"), "isolated")]


def add_special_tokens(
    backend: Tokenizer,
    special_tokens: SpecialTokens,
    *,
    ascending_sentinels: bool = False,
    lstrip: Sequence[str | None] | None = None,
) -> Tokenizer:
    """Add special tokens, with new ids if they have none, and set the template.

    Args:
        backend: modified and returned.
        special_tokens: the tokens and their positions.
        ascending_sentinels: whether new sentinels get ascending ids (ByT5); otherwise the first
            gets the highest id (T5).
        lstrip: new tokens that absorb the spaces before them; None: the mask, if spaces are tokens,
            so that a typed mask replaces a word with its space.
    """
    marks = sentinel_names(special_tokens)
    names = [
        *special_token_names(special_tokens),
        *(marks if ascending_sentinels else marks[::-1]),
    ]
    vocab = backend.get_vocab(with_added_tokens=True)
    names.sort(key=lambda name: vocab.get(name, len(vocab)))  # stable: new ones stay in order
    if lstrip is None:
        words = isinstance(backend.pre_tokenizer, pre_tokenizers.BertPreTokenizer)
        lstrip = () if words else (special_tokens.mask,)
    make_special(backend, names, lstrip=lstrip)
    set_template(backend, special_tokens)
    return backend


def make_special(
    backend: Tokenizer, token_names: Sequence[str], *, lstrip: Sequence[str | None] = ()
) -> None:
    """Make tokens special; those added before keep their matching flags.

    Args:
        backend: modified.
        token_names: the tokens; new ones get new ids, in this order.
        lstrip: new tokens that absorb the spaces before them.
    """
    existing = {token.content: token for token in backend.get_added_tokens_decoder().values()}
    backend.add_special_tokens(
        [
            AddedToken(name, special=True, normalized=False, lstrip=name in lstrip)
            if name not in existing
            else as_special_token(existing[name])
            for name in token_names
        ]
    )


def as_special_token(token: AddedToken) -> AddedToken:
    """Return a special token with the same matching flags."""
    return AddedToken(
        token.content, special=True, normalized=token.normalized, single_word=token.single_word,
        lstrip=token.lstrip, rstrip=token.rstrip,
    )  # fmt: skip


def set_template(backend: Tokenizer, special_tokens: SpecialTokens) -> None:
    """Set the post-processor that adds special tokens to one text, and to two."""
    second = 1 if uses_segments(special_tokens) else 0
    used = dict.fromkeys(
        (*special_tokens.prefix, *special_tokens.separator, *special_tokens.suffix)
    )
    ids = [(name, backend.token_to_id(name)) for name in used]

    def after(segment: int) -> list[str]:
        return [
            f"{x}:{SUMMARY_SEGMENT_ID if x == special_tokens.summary else segment}"
            for x in special_tokens.suffix
        ]

    backend.post_processor = processors.TemplateProcessing(
        single=[*special_tokens.prefix, "$A", *after(0)],
        pair=[
            *special_tokens.prefix,
            "$A",
            *special_tokens.separator,
            f"$B:{second}",
            *after(second),
        ],
        special_tokens=ids,
    )


def uses_segments(special_tokens: SpecialTokens) -> bool:
    """Return whether models with these special tokens have segment ids, as BERT: one separator.

    Or as XLNet: the token after the last separator is in neither segment.
    """
    parted = (
        len(special_tokens.separator) == 1
        and special_tokens.separator == special_tokens.suffix
        and bool(special_tokens.prefix)
    )
    return (parted or special_tokens.summary is not None) and special_tokens.mask is not None


def check_unicode(text: str) -> None:
    """Check that a text is valid Unicode.

    Raises:
        ValueError: the text has a lone surrogate.
    """
    if text.isascii():
        return
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError(
            f"character {error.start} of the text is {text[error.start]!a}, "
            "half of a surrogate pair, which is not valid Unicode"
        ) from None


def byte_characters() -> list[str]:
    """Return the character that GPT-2 writes for each of the 256 bytes.

    A byte that is a printable Latin-1 character is that character; the others follow from U+0100 in
    their order.
    """
    printable = [33 <= b <= 126 or 161 <= b <= 172 or b >= 174 for b in range(256)]
    others = iter(range(256, 512))
    return [chr(b) if printable[b] else chr(next(others)) for b in range(256)]


def _collapse_spaces() -> list[normalizers.Normalizer]:
    """SentencePiece's remove_extra_whitespaces; its rules have made all white space spaces."""
    return [
        normalizers.Replace(Regex(" {2,}"), " "),
        normalizers.Replace(Regex(r"\A +| +\z"), ""),
    ]


def _charsmap_normalizer(charsmap: bytes) -> normalizers.Normalizer:
    if (growth := limits.charsmap_growth(charsmap)) > limits.MAX_GROWTH:
        raise ValueError(
            f"its normalization rules write {growth:.0f} characters for one; at most "
            f"{limits.MAX_GROWTH} are allowed"
        )
    with limits.tokenizers_errors_as_value_error(
        "its normalization rules cannot be read", hide_output=True
    ):
        return normalizers.Precompiled(charsmap)


def _sentence_piece_model(model: sentencepiece.SentencePieceModel) -> Tokenizer:
    if model.algorithm == "unigram":
        pieces = [(p.text, p.score) for p in model.pieces]
        return Tokenizer(
            models.Unigram(pieces, unk_id=model.unk_id, byte_fallback=model.byte_fallback)
        )
    vocab = {p.text: i for i, p in enumerate(model.pieces)}
    merges = _merges_from_scores(model) if model.algorithm == "bpe" else []
    return Tokenizer(
        models.BPE(
            vocab,
            merges,
            unk_token=model.pieces[model.unk_id].text,
            fuse_unk=True,
            byte_fallback=model.byte_fallback,
        )
    )


def _merges_from_scores(model: sentencepiece.SentencePieceModel) -> list[tuple[str, str]]:
    """Reconstruct the merges of a SentencePiece BPE from the pieces, best first."""
    normal = {p.text: p.score for p in model.pieces if p.piece_type == sentencepiece.NORMAL}
    merges: list[tuple[float, int, int, str, str]] = []
    for order, (text, score) in enumerate(normal.items()):
        for cut in range(1, len(text)):
            left, right = text[:cut], text[cut:]
            if left in normal and right in normal:
                merges.append((-score, order, cut, left, right))
    return [(left, right) for *_, left, right in sorted(merges)]
