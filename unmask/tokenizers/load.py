"""Load a tokenizer of any kind from a folder in the Hugging Face layout."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from unmask.text.mixtures import source_languages
from unmask.tokenizers.characters.byte_tokenizers import ByT5Tokenizer, WordByteTokenizer
from unmask.tokenizers.characters.code_point_tokenizer import CodePointTokenizer
from unmask.tokenizers.encode import Tokenizer
from unmask.tokenizers.formats.folder import read_pipeline
from unmask.tokenizers.formats.unlearned import byt5_special_tokens, code_point_special_tokens
from unmask.tokenizers.output_vocabularies import wordpieces
from unmask.tokenizers.output_vocabularies import words as word_vocabularies
from unmask.tokenizers.spec import SpecialTokens


def load_tokenizer(folder: Path) -> Tokenizer:
    """Load a tokenizer from a folder in the Hugging Face layout.

    The first of these files is used: tokenizer.json; vocab.txt (BERT); vocab.json and merges.txt
    (GPT-2, RoBERTa, GPT); a SentencePiece file (spiece.model, tokenizer.model, ...).
    tokenizer_config.json, special_tokens_map.json, added_tokens.json and config.json declare the
    roles of special tokens. Code points need no other file, except subwords.txt if the loss has
    subwords, and ByT5's bytes none. words.txt has the words of a loss over words of bytes.

    Raises:
        FileNotFoundError: none of these is there.
        ValueError: a file is damaged or lacks required values.
    """
    frame = code_point_special_tokens(Path(folder))
    if frame is not None:
        return CodePointTokenizer(frame, wordpieces.read_wordpiece_vocabulary(Path(folder)))
    of_bytes = byt5_special_tokens(Path(folder))
    if of_bytes is not None:
        return ByT5Tokenizer(*of_bytes)
    special_tokens = word_vocabularies.read_word_vocabulary(Path(folder))
    backend, frame = read_pipeline(Path(folder))
    try:
        tokenizer = (
            Tokenizer(backend, frame)
            if special_tokens is None
            else WordByteTokenizer(backend, frame, special_tokens)
        )
    except ValueError as error:
        raise ValueError(f"{folder}: {error}") from error
    tokenizer.origin = str(folder)
    return tokenizer


def with_data_languages(special_tokens: SpecialTokens, sources: Sequence[str]) -> SpecialTokens:
    """Return special tokens with the languages of the sources, where these are embeddings."""
    if not special_tokens.language_embeddings:
        return special_tokens
    names = {name for name in source_languages(sources) if name is not None}
    return replace(special_tokens, languages=tuple(sorted(names)))


def with_language_names(
    tokenizer: Tokenizer, special_tokens: SpecialTokens, sources: Sequence[str]
) -> Tokenizer:
    """Return a given tokenizer with the languages of the sources, if the card has embeddings.

    One that has languages keeps them.
    """
    own = tokenizer.special_tokens
    if not special_tokens.language_embeddings or own.languages:
        return tokenizer
    names = with_data_languages(replace(own, language_embeddings=True), sources).languages
    return tokenizer.with_language_names(names)


def with_text_language(tokenizer: Tokenizer, language: str) -> Tokenizer:
    """Return a tokenizer for texts of a language ("de"), or of pairs in two ("de+en").

    Raises:
        ValueError: the model has no language embeddings, or not this one.
    """
    if not tokenizer.special_tokens.language_embeddings:
        raise ValueError(f"language {language!r}: this model has no language embeddings")
    return tokenizer.with_languages(*language.split("+", 1))
