"""Pipelines whose tokens are bytes."""

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
)

from unmask.tokenizers.pipeline import (
    WORD_WITH_SPACE_PATTERN,
    add_special_tokens,
    byte_characters,
    word_pre_tokenizer,
)
from unmask.tokenizers.spec import (
    SpecialTokens,
    sentinel_names,
    special_token_names,
)


def byte_pipeline(vocab: Mapping[str, int]) -> Tokenizer:
    """Build ByT5's: every byte is a token, written in `vocab` as by `byte_characters`."""
    backend = Tokenizer(models.BPE(dict(vocab), []))
    words = pre_tokenizers.Split(Regex(WORD_WITH_SPACE_PATTERN), "isolated")
    as_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.pre_tokenizer = pre_tokenizers.Sequence([words, as_bytes])
    backend.decoder = decoders.ByteLevel()
    return backend


def word_byte_pipeline(
    special_tokens: SpecialTokens, *, split_punctuation: bool = True
) -> Tokenizer:
    """Build ELMo's: every byte is a token, with separate ids for word starts.

    Args:
        special_tokens: these have the first ids.
        split_punctuation: punctuation marks are separate words. Otherwise words are separated by
            white space only.
    """
    byte_pieces = byte_characters()
    pieces = [*special_token_names(special_tokens), *byte_pieces, *(f"##{c}" for c in byte_pieces)]
    vocab = {piece: i for i, piece in enumerate(pieces)}
    backend = Tokenizer(models.BPE(vocab, [], continuing_subword_prefix="##"))
    as_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [word_pre_tokenizer(split_punctuation), as_bytes]
    )
    space = byte_characters()[ord(" ")]
    backend.decoder = decoders.Sequence(
        [
            decoders.WordPiece(prefix="##", cleanup=False),
            decoders.Replace(" ", space),
            decoders.ByteLevel(),
        ]
    )
    return add_special_tokens(backend, special_tokens)


N_UNUSED_BYTES = 11
"""The highest bytes, from 0xF5 on, do not occur in UTF-8."""


def byt5_pipeline(special_tokens: SpecialTokens, n_unused_ids: int) -> Tokenizer:
    """Build the published one, whose sentinels are bytes that do not occur in UTF-8, highest first.

    The released code counts sentinels down from the last id of its vocabulary, that of byte 0xFF
    (`sentinel_id`; `ByteVocabulary` adds none).

    Args:
        special_tokens: these have the first ids.
        n_unused_ids: number of unused ids above the bytes, for a round table size.

    Raises:
        ValueError: there are more sentinels than such bytes.
    """
    marks = sentinel_names(special_tokens)
    if len(marks) > N_UNUSED_BYTES:
        raise ValueError(
            f"at most {N_UNUSED_BYTES} bytes that never occur in UTF-8 can be sentinels, got "
            f"{len(marks)} sentinels"
        )
    byte_pieces = byte_characters()[: 256 - len(marks)]
    unused = [f"<unused_{i}>" for i in range(n_unused_ids)]
    pieces = [*special_token_names(special_tokens), *byte_pieces, *reversed(marks), *unused]
    backend = byte_pipeline({piece: i for i, piece in enumerate(pieces)})
    backend.add_special_tokens([AddedToken(x, special=True, normalized=False) for x in unused])
    # transformers.ByT5Tokenizer: they absorb the spaces around them.
    backend.add_special_tokens(
        [
            AddedToken(name, special=True, normalized=False, lstrip=True, rstrip=True)
            for name in special_token_names(special_tokens)
        ]
    )
    return add_special_tokens(backend, special_tokens)


def lowercase_byte_bpe_pipeline(
    vocab: Mapping[str, int],
    merges: Sequence[tuple[str, str]],
    unknown: str,
    *,
    end_of_word: str = "</w>",
) -> Tokenizer:
    """Build CLIP's: bytes are written as printable characters, the last piece of a word is marked.

    Args:
        vocab: pieces and their ids.
        merges: pairs of pieces, the first merge first.
        unknown: the unknown token, of pieces that a damaged vocabulary lacks.
        end_of_word: the mark.
    """
    backend = Tokenizer(
        models.BPE(
            dict(vocab), list(merges), unk_token=unknown, end_of_word_suffix=end_of_word,
            continuing_subword_prefix="", fuse_unk=False,
        )
    )  # fmt: skip
    backend.normalizer = normalizers.Sequence(
        [normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()]
    )
    words = Regex(r"'s|'t|'re|'ve|'m|'ll|'d|\p{L}+|\p{N}|[^\s\p{L}\p{N}]+")
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(words, "removed", invert=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    backend.decoder = marked_bytes_decoder(end_of_word)
    return backend


def marked_bytes_decoder(end_of_word: str) -> decoders.Decoder:
    """Return a decoder of bytes that writes a space for the mark at the end of a word."""
    last = decoders.Replace(Regex(rf"{re.escape(end_of_word)}\z"), "")
    return decoders.Sequence([decoders.ByteLevel(), last, decoders.Replace(end_of_word, " ")])
