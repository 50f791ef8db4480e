"""Vocabularies put to work: each kind as a pipeline of the `tokenizers` library.

A pipeline is normalizer, pre-tokenizer (text to words), model (word to pieces) and decoder.
`finish` adds what a frame says: the special tokens, and where they stand around a text.
"""

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

from unmask.tokens import limits, sentencepiece
from unmask.tokens.vocabulary import SUMMARY, ByteCut, Frame, names, sentinels

SPACE = "▁"
"""SentencePiece writes a space so."""
WORD_WITH_SPACE = r" ?\S+|\s"
"""Words of byte and character vocabularies: a space belongs to the word after it, as in GPT-2."""


def word_piece(
    vocab: Mapping[str, int],
    unknown: str,
    *,
    lowercase: bool,
    strip_accents: bool | None = None,
    chinese: bool = True,
) -> Tokenizer:
    """Build BERT's: punctuation marks are words; lowering letters takes their accents too."""
    backend = Tokenizer(
        models.WordPiece(dict(vocab), unk_token=unknown, max_input_chars_per_word=100)
    )
    backend.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=chinese,
        strip_accents=strip_accents,
        lowercase=lowercase,
    )
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece(prefix="##", cleanup=True)
    return backend


_DIGITS: Mapping[ByteCut, str] = {"llama3": r"\p{N}{1,3}", "qwen2": r"\p{N}"}


def byte_bpe(
    vocab: Mapping[str, int],
    merges: Sequence[tuple[str, str]],
    *,
    cut: ByteCut = "gpt2",
    nfc: bool = False,
    space: bool = False,
) -> Tokenizer:
    """Build GPT-2's: bytes are written as printable characters, words keep the space before.

    Args:
        vocab: pieces and their ids.
        merges: of two pieces to one, the first first.
        cut: how text is cut before (`ByteBPE.cut`).
        nfc: text is put in the form NFC before.
        space: a space is put before a text that begins with none.
    """
    backend = Tokenizer(models.BPE(dict(vocab), list(merges)))
    whole = pre_tokenizers.ByteLevel(add_prefix_space=space, use_regex=cut == "gpt2")
    backend.pre_tokenizer = whole
    if cut != "gpt2":
        rule = (
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
            rf"{_DIGITS[cut]}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
        )
        split = pre_tokenizers.Split(Regex(rule), "isolated")
        backend.pre_tokenizer = pre_tokenizers.Sequence([split, whole])
    if nfc:
        backend.normalizer = normalizers.NFC()
    backend.decoder = decoders.ByteLevel()
    return backend


def marked_bpe(
    vocab: Mapping[str, int],
    merges: Sequence[tuple[str, str]],
    unknown: str | None,
    *,
    end_of_word: str,
    lowercase: bool,
    apart: bool = False,
) -> Tokenizer:
    """Build the original GPT's: the last piece of a word carries `end_of_word`, or apart is it."""
    suffix = "" if apart else end_of_word
    backend = Tokenizer(
        models.BPE(dict(vocab), list(merges), unk_token=unknown, end_of_word_suffix=suffix)
    )
    bert = normalizers.BertNormalizer(
        clean_text=True, handle_chinese_chars=not apart, strip_accents=None, lowercase=lowercase
    )
    if apart:
        mark = normalizers.Replace(Regex(r"(?<=\S)(?=\s|\z)"), end_of_word)
        backend.normalizer = normalizers.Sequence([bert, mark])
        backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    else:
        backend.normalizer = bert
        backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.BPEDecoder(suffix=end_of_word)
    return backend


def as_plain(*, accents: bool, lowercase: bool) -> list[normalizers.Normalizer]:
    """List what ALBERT's and XLNet's code does to a text before SentencePiece reads it.

    Args:
        accents: they are kept.
        lowercase: letters are lowered.
    """
    quotes = [normalizers.Replace("``", '"'), normalizers.Replace("''", '"')]
    bare = [] if accents else [normalizers.NFKD(), normalizers.StripAccents()]
    return [*quotes, *bare, *([normalizers.Lowercase()] if lowercase else [])]


def unigram(
    pieces: Sequence[tuple[str, float]],
    unknown: int,
    first: Sequence[normalizers.Normalizer] = (),
) -> Tokenizer:
    """Build one for pieces learned here, with what SentencePiece calls nmt_nfkc.

    Args:
        pieces: with their log probabilities, by id.
        unknown: the id of what is none of them.
        first: done to a text before.
    """
    backend = Tokenizer(models.Unigram(list(pieces), unk_id=unknown, byte_fallback=False))
    backend.normalizer = normalizers.Sequence(
        [*first, normalizers.Nmt(), normalizers.NFKC(), *_single_spaces()]
    )
    backend.pre_tokenizer = pre_tokenizers.Metaspace(
        replacement=SPACE, prepend_scheme="always", split=True
    )
    backend.decoder = decoders.Metaspace(replacement=SPACE, prepend_scheme="always", split=True)
    return backend


def byte_tokens(vocab: Mapping[str, int]) -> Tokenizer:
    """Build ByT5's: every byte is a token; `vocab` has them as `byte_characters` writes them."""
    backend = Tokenizer(models.BPE(dict(vocab), []))
    words = pre_tokenizers.Split(Regex(WORD_WITH_SPACE), "isolated")
    as_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.pre_tokenizer = pre_tokenizers.Sequence([words, as_bytes])
    backend.decoder = decoders.ByteLevel()
    return backend


def spelled(frame: Frame, *, punctuation: bool = True) -> Tokenizer:
    """Build ELMo's: every byte is a token, another one where it does not begin a word.

    Args:
        frame: its tokens come first.
        punctuation: signs are words of their own, each. Otherwise words are what white space parts.
    """
    shown = byte_characters()
    pieces = [*names(frame), *shown, *(f"##{c}" for c in shown)]
    vocab = {piece: i for i, piece in enumerate(pieces)}
    backend = Tokenizer(models.BPE(vocab, [], continuing_subword_prefix="##"))
    as_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.pre_tokenizer = pre_tokenizers.Sequence([_word_by_word(punctuation), as_bytes])
    space = byte_characters()[ord(" ")]
    backend.decoder = decoders.Sequence(
        [
            decoders.WordPiece(prefix="##", cleanup=False),
            decoders.Replace(" ", space),
            decoders.ByteLevel(),
        ]
    )
    return finish(backend, frame)


NEVER = 11
"""The highest bytes, from 0xF5 on, stand in no text of UTF-8."""


def byt5(frame: Frame, spare: int) -> Tokenizer:
    """Build the published one, whose sentinels are bytes that no text has, the highest first.

    The released code counts sentinels down from the last id of its vocabulary, which is that of
    byte 0xFF (`sentinel_id`, and `ByteVocabulary`, which adds none of its own).

    Args:
        frame: its tokens come first.
        spare: so many ids above the bytes are unused, to fill a table of round size.

    Raises:
        ValueError: there are not so many such bytes, and others could stand in a text.
    """
    marks = sentinels(frame)
    if len(marks) > NEVER:
        raise ValueError(
            f"only {NEVER} bytes stand in no text and can be sentinels, got {len(marks)} sentinels"
        )
    shown = byte_characters()[: 256 - len(marks)]
    unused = [f"<unused_{i}>" for i in range(spare)]
    pieces = [*names(frame), *shown, *reversed(marks), *unused]
    backend = byte_tokens({piece: i for i, piece in enumerate(pieces)})
    backend.add_special_tokens([AddedToken(x, special=True, normalized=False) for x in unused])
    # transformers.ByT5Tokenizer: spaces around them go with them.
    backend.add_special_tokens(
        [
            AddedToken(name, special=True, normalized=False, lstrip=True, rstrip=True)
            for name in names(frame)
        ]
    )
    return finish(backend, frame)


def characters(vocab: Mapping[str, int], unknown: str) -> Tokenizer:
    """Build one whose tokens are characters."""
    backend = Tokenizer(models.BPE(dict(vocab), [], unk_token=unknown, fuse_unk=False))
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(WORD_WITH_SPACE), "isolated")
    backend.decoder = decoders.Fuse()
    return backend


def words(
    vocab: Mapping[str, int], unknown: str, *, lowercase: bool = False, punctuation: bool = False
) -> Tokenizer:
    """Build one whose tokens are what white space parts; a text comes back with single spaces.

    Args:
        vocab: words and their ids.
        unknown: the token of what is no such word.
        lowercase: text is put in lower case, and Unicode's form NFC.
        punctuation: signs are words of their own, each.
    """
    backend = Tokenizer(models.WordLevel(dict(vocab), unk_token=unknown))
    if lowercase:
        backend.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Lowercase()])
    backend.pre_tokenizer = _word_by_word(punctuation)
    return backend


def _word_by_word(punctuation: bool) -> pre_tokenizers.PreTokenizer:
    if not punctuation:
        return pre_tokenizers.WhitespaceSplit()
    return pre_tokenizers.Split(Regex(_WORD_OR_SIGN), "removed", invert=True)


_LETTER = r"[\p{L}\p{M}\p{N}\u200c\u200d]"
_SIGN = r"\S[\p{M}\x{1F3FB}-\x{1F3FF}]*"
_WORD_OR_SIGN = f"{_LETTER}+(?:['\\u2019]{_LETTER}+)*|{_SIGN}(?:\\u200d{_SIGN})*"
"""Joiners are inside words of Hindi and Persian. An emoji is one sign with what colors its skin and
with those that are joined to it."""


def sentence_piece(
    model: sentencepiece.Model, first: Sequence[normalizers.Normalizer] = ()
) -> Tokenizer:
    """Build what a SentencePiece file says; `first` is done to a text before.

    Ids are those of SentencePiece's own library, but for three oddities of the `tokenizers`
    library: an accent on what normalization changes otherwise (½ + U+0301) is lost; the name of a
    byte in a text ("<0x41>") is that byte to a unigram model; no space is put before a piece of
    the user's that begins a text.

    Raises:
        ValueError: it asks for something that the `tokenizers` library cannot do.
    """
    if not model.escape_whitespaces or model.whitespace_as_suffix:
        raise ValueError(
            "it writes spaces otherwise than as ▁ before words, which is not supported"
        )
    if model.algorithm == "word":
        raise ValueError("its pieces are whole words (model_type WORD), which is not supported")
    backend = _sentence_piece_model(model)
    rules = _single_spaces() if model.remove_extra_whitespaces else []
    if model.charsmap:
        rules = [_precompiled(model.charsmap), *rules]
    rules = [*first, *rules]
    atoms = [p.text for p in model.pieces if p.type == sentencepiece.USER_DEFINED]
    splits = _splits(model)
    if atoms:  # they are found after normalizing, so that writing spaces must come later still
        scheme = "first" if model.add_dummy_prefix else "never"
        spaces = pre_tokenizers.Metaspace(replacement=SPACE, prepend_scheme=scheme, split=False)
        splits = [spaces, *splits]
    else:
        dummy = [normalizers.Prepend(SPACE)] if model.add_dummy_prefix else []
        rules = [*rules, *dummy, normalizers.Replace(" ", SPACE)]
    if rules:
        backend.normalizer = normalizers.Sequence(rules)
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
            if p.type in never
        ]
    )
    return backend


def _splits(model: sentencepiece.Model) -> list[pre_tokenizers.PreTokenizer]:
    """Cut before spaces, unless a piece goes on after one: it is faster, and shows the words."""
    normal = [p.text for p in model.pieces if p.type == sentencepiece.NORMAL]
    if any(SPACE in text.lstrip(SPACE) for text in normal):
        return []
    return [pre_tokenizers.Split(Regex(f"{SPACE}*[^{SPACE}]+|{SPACE}+"), "isolated")]


def finish(
    backend: Tokenizer,
    frame: Frame,
    *,
    rising: bool = False,
    lstrip: Sequence[str | None] | None = None,
) -> Tokenizer:
    """Make a frame's tokens special, with new ids if they have none, and put them around texts.

    Args:
        backend: changed, and returned.
        frame: which tokens, and where.
        rising: give sentinels that are new rising ids (ByT5); otherwise the first gets the highest
            id (T5).
        lstrip: new tokens that take the spaces before them; None: the mask, where spaces are
            tokens, so that one typed in a text takes the place of a word with its space.
    """
    marks = sentinels(frame)
    wanted = [*names(frame), *(marks if rising else marks[::-1])]
    known = backend.get_vocab(with_added_tokens=True)
    wanted.sort(key=lambda name: known.get(name, len(known)))  # stable: new ones stay in order
    if lstrip is None:
        words = isinstance(backend.pre_tokenizer, pre_tokenizers.BertPreTokenizer)
        lstrip = () if words else (frame.mask,)
    add_special(backend, wanted, lstrip=lstrip)
    surround(backend, frame)
    return backend


def add_special(
    backend: Tokenizer, wanted: Sequence[str], *, lstrip: Sequence[str | None] = ()
) -> None:
    """Make tokens special; those that were added before keep how they are found in a text.

    Args:
        backend: changed.
        wanted: the tokens; new ones have new ids, in this order.
        lstrip: of new ones, those that take the spaces before them.
    """
    there = {token.content: token for token in backend.get_added_tokens_decoder().values()}
    backend.add_special_tokens(
        [
            AddedToken(name, special=True, normalized=False, lstrip=name in lstrip)
            if name not in there
            else as_special(there[name])
            for name in wanted
        ]
    )


def as_special(token: AddedToken) -> AddedToken:
    """Return a token that is found as this one is, but is special."""
    return AddedToken(
        token.content, special=True, normalized=token.normalized, single_word=token.single_word,
        lstrip=token.lstrip, rstrip=token.rstrip,
    )  # fmt: skip


def surround(backend: Tokenizer, frame: Frame) -> None:
    """Set the post-processor that puts the frame's tokens around one text, and around two."""
    second = 1 if has_segments(frame) else 0
    used = dict.fromkeys((*frame.before, *frame.between, *frame.after))
    ids = [(name, backend.token_to_id(name)) for name in used]

    def after(segment: int) -> list[str]:
        return [f"{x}:{SUMMARY if x == frame.summary else segment}" for x in frame.after]

    backend.post_processor = processors.TemplateProcessing(
        single=[*frame.before, "$A", *after(0)],
        pair=[*frame.before, "$A", *frame.between, f"$B:{second}", *after(second)],
        special_tokens=ids,
    )


def has_segments(frame: Frame) -> bool:
    """Say whether this frame's models number two texts, as BERT: if one mark parts them.

    Or as XLNet: if what comes behind that mark in the end is of neither.
    """
    parted = len(frame.between) == 1 and frame.between == frame.after and bool(frame.before)
    return (parted or frame.summary is not None) and frame.mask is not None


def check_unicode(text: str) -> None:
    """Refuse what is no Unicode text.

    Raises:
        ValueError: the text holds half of a surrogate pair.
    """
    if text.isascii():
        return
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError(
            f"character {error.start} of the text is {text[error.start]!a}, "
            "half of a surrogate pair, which is no Unicode text"
        ) from None


def byte_characters() -> list[str]:
    """Give the character that GPT-2 writes for each of the 256 bytes.

    A byte that is a printable Latin-1 character is that character; the others follow from U+0100 in
    their order.
    """
    shown = [33 <= b <= 126 or 161 <= b <= 172 or b >= 174 for b in range(256)]
    hidden = iter(range(256, 512))
    return [chr(b) if shown[b] else chr(next(hidden)) for b in range(256)]


def _single_spaces() -> list[normalizers.Normalizer]:
    """SentencePiece's remove_extra_whitespaces; its rules have made all white space spaces."""
    return [
        normalizers.Replace(Regex(" {2,}"), " "),
        normalizers.Replace(Regex(r"\A +| +\z"), ""),
    ]


def _precompiled(charsmap: bytes) -> normalizers.Normalizer:
    if (growth := limits.charsmap_growth(charsmap)) > limits.MOST_GROWTH:
        raise ValueError(
            f"its normalization rules write {growth:.0f} characters for one; at most "
            f"{limits.MOST_GROWTH} are read"
        )
    with limits.library("its normalization rules cannot be read", reading=True):
        return normalizers.Precompiled(charsmap)


def _sentence_piece_model(model: sentencepiece.Model) -> Tokenizer:
    if model.algorithm == "unigram":
        pieces = [(p.text, p.score) for p in model.pieces]
        return Tokenizer(
            models.Unigram(pieces, unk_id=model.unknown, byte_fallback=model.byte_fallback)
        )
    vocab = {p.text: i for i, p in enumerate(model.pieces)}
    merges = _merges(model) if model.algorithm == "bpe" else []
    return Tokenizer(
        models.BPE(
            vocab,
            merges,
            unk_token=model.pieces[model.unknown].text,
            fuse_unk=True,
            byte_fallback=model.byte_fallback,
        )
    )


def _merges(model: sentencepiece.Model) -> list[tuple[str, str]]:
    """Find the merges of a SentencePiece BPE, which keeps only what they made, best first."""
    normal = {p.text: p.score for p in model.pieces if p.type == sentencepiece.NORMAL}
    found: list[tuple[float, int, int, str, str]] = []
    for order, (text, score) in enumerate(normal.items()):
        for cut in range(1, len(text)):
            left, right = text[:cut], text[cut:]
            if left in normal and right in normal:
                found.append((-score, order, cut, left, right))
    return [(left, right) for *_, left, right in sorted(found)]
