"""A tokenizer whose tokens are Unicode code points."""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, SupportsIndex

import numpy as np
from jaxtyping import Int

from unmask.batch import Tokens
from unmask.config import to_dict
from unmask.files import write_atomically
from unmask.tokenizers import pipeline
from unmask.tokenizers.boundaries import (
    text_boundaries,
    word_start_characters,
)
from unmask.tokenizers.characters import code_points
from unmask.tokenizers.encode import Tokenizer
from unmask.tokenizers.output_vocabularies import wordpieces
from unmask.tokenizers.spec import (
    SpecialTokens,
)
from unmask.tokenizers.special_ids import check_ids
from unmask.tokenizers.splitting.cached_words import CorpusEncoder


class CodePointTokenizer(Tokenizer):
    """Text <-> Unicode code points: a tokenizer without a vocabulary (CANINE).

    It may have subwords for the loss (`SpecialTokenIds.output_vocabulary`), unused in encoding.

    Deviates: a character of a text whose code point is a special token's (U+0000, and U+E000 to
    U+E003 of the private use area) is read as U+FFFD, so that no text encodes to a special token;
    in the released code it would.
    """

    def __init__(
        self,
        special_tokens: SpecialTokens,
        subword_vocabulary: wordpieces.WordPieceVocabulary | None = None,
    ) -> None:
        """Build the tokenizer; special tokens have fixed ids.

        Args:
            special_tokens: special tokens of the input.
            subword_vocabulary: subwords for the loss.

        Raises:
            ValueError: a special token has no id, or texts are to be read backward.
        """
        if special_tokens.backward:
            raise ValueError("special_tokens.backward: code points are read forward")
        self.special_tokens, self._subword_vocabulary = special_tokens, subword_vocabulary
        self.special_ids = replace(
            code_points.special_code_points(special_tokens), output_vocabulary=subword_vocabulary
        )
        self.vocab_size = self.special_ids.vocab_size

    def __reduce__(self) -> tuple[Any, ...]:
        return (
            CodePointTokenizer,
            (self.special_tokens, self._subword_vocabulary),
            self._extra_state(),
        )

    def encode_batch(self, texts: Sequence[str], *, allow_special: bool = False) -> list[Tokens]:
        """Encode a batch of texts; see `encode`."""
        return [self._to_tokens(text, allow_special) for text in texts]

    def corpus_encoder(self) -> CorpusEncoder:
        """Return an encoder of many texts."""
        return CorpusEncoder(self.encode_batch)

    def encode_ids_batch(
        self, texts: Sequence[str], *, allow_special: bool = False
    ) -> list[Int[np.ndarray, "_"]]:
        """Return the ids of `encode_batch` only, which is faster than with boundaries."""
        return [self._encode_characters(text, allow_special)[0] for text in texts]

    def _first(self, text: str, n: int, special: bool) -> Int[np.ndarray, "_"]:
        """Encode a prefix of `n` tokens; a special token may span several characters."""
        pipeline.check_unicode(text)
        each = max(map(len, code_points.SPECIAL_CODE_POINTS)) if special else 1
        return self._encode_characters(text[: (n + 1) * each], special)[0][:n]

    def decode(self, ids: Iterable[SupportsIndex], *, skip_special_tokens: bool = True) -> str:
        """Decode ids to text; ids that are no character are skipped.

        Raises:
            ValueError: an id is negative.
        """
        return code_points.decode_code_points(
            check_ids(ids), skip_special_tokens=skip_special_tokens
        )

    def pieces(self, ids: Iterable[SupportsIndex]) -> list[str]:
        """Return each id as readable text; one that is no character as <1114112>."""
        return [
            code_points.decode_code_points([i], skip_special_tokens=False) or f"<{i}>"
            for i in check_ids(ids)
        ]

    def with_special_tokens(self, special_tokens: SpecialTokens) -> "CodePointTokenizer":
        """Return a copy with other special tokens.

        Raises:
            ValueError: a special token has no code point.
        """
        return CodePointTokenizer(special_tokens, self._subword_vocabulary)

    def offsets(self, text: str) -> list[tuple[int, int]]:
        """Return the (start, end) of each token of `encode(text)`: single characters."""
        return [(begin, end) for begin, end in self.offset_array(text).tolist()]

    def offset_array(self, text: str, *, allow_special: bool = False) -> Int[np.ndarray, "t 2"]:
        """Return `offsets` as an array."""
        pipeline.check_unicode(text)
        return np.arange(len(text))[:, None] + np.arange(2)

    def save(
        self, folder: Path, *, max_length: int | None = None, uses_segments: bool | None = None
    ) -> None:
        """Write tokenizer_config.json, as transformers.CanineTokenizer reads it, and any subwords.

        Args:
            folder: created if missing.
            max_length: maximum input length, for `model_max_length`.
            uses_segments: unused; CANINE always has segments.
        """
        folder.mkdir(parents=True, exist_ok=True)
        frame = self.special_tokens
        roles = {
            "pad": frame.pad, "bos": frame.start, "eos": frame.end,
            "cls": frame.prefix[0] if frame.prefix else None, "sep": frame.end, "mask": frame.mask,
        }  # fmt: skip
        values = {
            f"{k}_token": chr(code_points.SPECIAL_CODE_POINTS[v])
            for k, v in roles.items()
            if v is not None
        }
        config = {
            "tokenizer_class": "CanineTokenizer",
            **values,
            **({} if max_length is None else {"model_max_length": max_length}),
            "unmask": {"special_tokens": to_dict(frame)},
        }
        if self._subword_vocabulary is not None:
            wordpieces.save_wordpiece_vocabulary(self._subword_vocabulary, folder)
        write_atomically(folder / "tokenizer_config.json", json.dumps(config, indent=2) + "\n")

    def _encode_characters(
        self, text: str, allow_special: bool
    ) -> tuple[Int[np.ndarray, "t"], Int[np.ndarray, "t"], Int[np.ndarray, "t"]]:
        """Return the ids, and the start and end of each token in the text."""
        pipeline.check_unicode(text)
        ids, starts = code_points.encode_code_points(text), np.arange(len(text))
        ends = starts + 1
        if not allow_special:
            return ids, starts, ends
        is_kept = np.ones(len(text), bool)
        for match in _SPECIAL_NAME_PATTERN.finditer(text):
            first, last = match.span()
            ids[first], ends[first] = code_points.SPECIAL_CODE_POINTS[match[0]], last
            is_kept[first + 1 : last] = False
        return ids[is_kept], starts[is_kept], ends[is_kept]

    def _to_tokens(self, text: str, allow_special: bool) -> Tokens:
        ids, starts, ends = self._encode_characters(text, allow_special)
        if not len(ids):
            return Tokens(ids, np.zeros(0, np.uint8))
        return Tokens(ids, text_boundaries(text, word_start_characters(text)[starts], ends))


_SPECIAL_NAME_PATTERN = re.compile("|".join(map(re.escape, code_points.SPECIAL_CODE_POINTS)))
