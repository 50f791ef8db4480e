"""Training of a tokenizer."""

from collections.abc import Iterable

import tokenizers
import tokenizers.models

from unmask.tokenizers.characters.byte_pipelines import word_byte_pipeline
from unmask.tokenizers.characters.byte_tokenizers import ByT5Tokenizer, WordByteTokenizer
from unmask.tokenizers.characters.code_point_tokenizer import CodePointTokenizer
from unmask.tokenizers.encode import Tokenizer
from unmask.tokenizers.learn import train as learning
from unmask.tokenizers.output_vocabularies import wordpieces
from unmask.tokenizers.output_vocabularies import words as word_vocabularies
from unmask.tokenizers.spec import PICTURE, TokenizerSpec
from unmask.tokenizers.vocabulary import (
    ByteLevel,
    CodePoints,
    CodePointsWithSubwords,
    Patches,
    WordBytesWithWords,
)


def train_tokenizer(spec: TokenizerSpec, texts: Iterable[str]) -> Tokenizer:
    """Train a tokenizer on texts, read once; the same texts give the same tokenizer.

    If the texts are too short for the given size, the vocabulary is smaller
    (`Tokenizer.vocab_size`), with a warning. For code points nothing is trained and no text is
    read.

    Raises:
        ValueError: the size is too small for the special tokens and the single characters, or there
            is no text.
    """
    if spec.vocabulary == Patches():
        raise ValueError("this model reads pictures: it has no tokenizer, and no text can train it")
    if isinstance(spec.vocabulary, CodePoints):
        return CodePointTokenizer(spec.special_tokens)
    if isinstance(spec.vocabulary, CodePointsWithSubwords):
        return CodePointTokenizer(
            spec.special_tokens,
            wordpieces.learn_wordpiece_vocabulary(spec.vocabulary.vocab_size, texts),
        )
    if isinstance(spec.vocabulary, WordBytesWithWords):
        backend = word_byte_pipeline(spec.special_tokens)
        vocab = word_vocabularies.learn_word_vocabulary(spec.vocabulary.vocab_size, backend, texts)
        return WordByteTokenizer(backend, spec.special_tokens, vocab)
    if isinstance(spec.vocabulary, ByteLevel) and spec.vocabulary.n_unused_ids is not None:
        return ByT5Tokenizer(spec.special_tokens, spec.vocabulary.n_unused_ids)
    return Tokenizer(learning.train_pipeline(spec, texts), spec.special_tokens)


def picture_tokenizer() -> Tokenizer:
    """Return the five ids of what stands at the columns of a picture; it reads no text."""
    names = ("[CLS]", "[DISTILLATION]", "[MASK]", "[PAD]", "[PATCH]")
    backend = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({name: i for i, name in enumerate(names)}, unk_token=names[-1])
    )
    backend.add_special_tokens(list(names[:-1]))
    return Tokenizer(backend, PICTURE)
