"""Tokenizers whose tokens are bytes: of a text, or of each word."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import tokenizers

from unmask.config import to_dict
from unmask.files import write_atomically
from unmask.tokenizers.characters.byte_pipelines import byt5_pipeline
from unmask.tokenizers.encode import Tokenizer
from unmask.tokenizers.output_vocabularies import words as word_vocabularies
from unmask.tokenizers.spec import (
    BYT5,
    SpecialTokens,
)


class ByT5Tokenizer(Tokenizer):
    """Text <-> bytes of UTF-8, as in transformers.ByT5Tokenizer; nothing is trained.

    Xue et al. 2022, arXiv:2105.13626, section 3.1. Sentinels are those of the published models,
    bytes that do not occur in UTF-8, from 0xFF down.
    """

    def __init__(self, special_tokens: SpecialTokens = BYT5, n_unused_ids: int = 125) -> None:
        """Build the tokenizer.

        Args:
            special_tokens: these have the first ids.
            n_unused_ids: number of unused ids above the bytes.

        Raises:
            ValueError: there are more sentinels than such bytes.
        """
        super().__init__(byt5_pipeline(special_tokens, n_unused_ids), special_tokens)
        self._n_unused_ids = n_unused_ids

    def __reduce__(self) -> tuple[Any, ...]:
        return ByT5Tokenizer, (self.special_tokens, self._n_unused_ids), self._extra_state()

    def save(
        self, folder: Path, *, max_length: int | None = None, uses_segments: bool | None = None
    ) -> None:
        """Write tokenizer_config.json, as transformers.ByT5Tokenizer reads it.

        Args:
            folder: created if missing.
            max_length: maximum input length, for `model_max_length`.
            uses_segments: unused; ByT5 has no segments.
        """
        folder.mkdir(parents=True, exist_ok=True)
        frame = self.special_tokens
        config = {
            "tokenizer_class": "ByT5Tokenizer",
            "pad_token": frame.pad,
            "eos_token": frame.end,
            "unk_token": frame.unknown,
            "extra_ids": self._n_unused_ids,
            **({} if max_length is None else {"model_max_length": max_length}),
            "unmask": {"special_tokens": to_dict(frame)},
        }
        write_atomically(folder / "tokenizer_config.json", json.dumps(config, indent=2) + "\n")


class WordByteTokenizer(Tokenizer):
    """Text <-> bytes that mark word starts, with a word vocabulary for the loss.

    The words are `SpecialTokenIds.output_vocabulary`; encoding and decoding do not use them.
    """

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        special_tokens: SpecialTokens,
        word_vocabulary: word_vocabularies.WordVocabulary,
    ) -> None:
        """Wrap a pipeline (`word_byte_pipeline`) and the words."""
        super().__init__(backend, special_tokens)
        self._word_vocabulary = word_vocabulary
        self.special_ids = replace(self.special_ids, output_vocabulary=word_vocabulary)

    def __reduce__(self) -> tuple[Any, ...]:
        state = self._backend.to_str(), self.special_tokens, self._word_vocabulary
        return _restore_word_byte, state, self._extra_state()

    def with_special_tokens(self, special_tokens: SpecialTokens) -> "WordByteTokenizer":
        """Return a copy with other special tokens."""
        return WordByteTokenizer(
            super().with_special_tokens(special_tokens)._backend,
            special_tokens,
            self._word_vocabulary,
        )

    def save(
        self, folder: Path, *, max_length: int | None = None, uses_segments: bool | None = None
    ) -> None:
        """Write the files of every tokenizer, and the words."""
        super().save(folder, max_length=max_length, uses_segments=uses_segments)
        word_vocabularies.save_word_vocabulary(self._word_vocabulary, folder)


def _restore_word_byte(
    state: str, special_tokens: SpecialTokens, word_vocabulary: word_vocabularies.WordVocabulary
) -> WordByteTokenizer:
    return WordByteTokenizer(tokenizers.Tokenizer.from_str(state), special_tokens, word_vocabulary)
