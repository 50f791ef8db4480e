"""Tokenizer: text <-> ids, special tokens, word and sentence starts.

Encoding uses pipelines of the `tokenizers` library. Added here: the roles of special tokens
(`SpecialTokenIds`), protection against special tokens typed in a text, and the word and sentence
starts of tokens (`Tokens.boundaries`).
"""

import copy
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, SupportsIndex

import numpy as np
import tokenizers
from jaxtyping import Int

from unmask.batch import Tokens
from unmask.files import write_atomically
from unmask.tokenizers import pipeline
from unmask.tokenizers.boundaries import (
    WordStartDetector,
    is_punctuation,
    text_boundaries,
)
from unmask.tokenizers.formats import limits
from unmask.tokenizers.formats.transformers_config import transformers_config
from unmask.tokenizers.learn.count import count_words
from unmask.tokenizers.spec import (
    SpecialTokenIds,
    SpecialTokens,
    special_token_names,
)
from unmask.tokenizers.special_ids import (
    check_ids,
    pipeline_without_special,
    special_token_ids,
    unknown_token,
)
from unmask.tokenizers.splitting.cached_words import CorpusEncoder, Located
from unmask.tokenizers.splitting.long_texts import (
    LONG_TEXT_CHARACTERS,
    MAX_WHOLE_CHARACTERS,
    EncodedPart,
    SplitPoints,
)


class Tokenizer:
    """Text <-> ids.

    A special token typed in a text is text: `encode("[MASK]")` returns the pieces of those six
    characters, so that a corpus cannot inject special tokens into training. `encode(text,
    allow_special=True)` encodes them as special tokens.
    """

    special_ids: SpecialTokenIds
    """The special ids used by objectives and collation."""
    special_tokens: SpecialTokens
    """The special tokens by name."""
    vocab_size: int
    """Number of ids: the highest plus one."""
    origin: str = "the tokenizer"
    """Its file, for messages."""
    source_tokenizer: "Tokenizer | None" = None
    """Tokenizer of sources, if these have a separate vocabulary."""

    def __init__(self, backend: tokenizers.Tokenizer, special_tokens: SpecialTokens) -> None:
        """Wrap a pipeline whose vocabulary has all `special_tokens`.

        Raises:
            ValueError: the vocabulary lacks one.
        """
        backend.no_truncation()
        backend.no_padding()
        self.special_tokens = special_tokens
        self.special_ids = special_token_ids(backend, special_tokens)
        self.vocab_size = self.special_ids.vocab_size
        self._backend = backend
        state = json.loads(backend.to_str())
        self._text_pipeline = pipeline_without_special(backend, state, self.special_ids)
        self._special_pipeline: tokenizers.Tokenizer | None = None
        self._cuts: SplitPoints | None = None
        written = unknown_token(state["model"])
        self._is_special = np.zeros(self.vocab_size, bool)
        self._is_special[
            [i for i in self.special_ids.all_ids if backend.id_to_token(i) != written]
        ] = True
        decoder = json.dumps(state["decoder"], ensure_ascii=False)
        self._byte_of_character = (
            {character: byte for byte, character in enumerate(pipeline.byte_characters())}
            if '"ByteLevel"' in decoder
            else None
        )
        self._writes_spaces = pipeline.SPACE in decoder
        vocab = backend.get_vocab(with_added_tokens=True)
        signs = self._punctuation_ids(vocab) if special_tokens.punctuation_starts_words else None
        self._word_start_detector = WordStartDetector(state, vocab, self._is_special, signs)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the serialized form: copies by the library encode typed special tokens as such."""
        return _restore, (self._backend.to_str(), self.special_tokens), self._extra_state()

    @property
    def input_tokenizer(self) -> "Tokenizer":
        """Tokenizer of sources and prompts: `source_tokenizer` if there is one, else this one."""
        return self if self.source_tokenizer is None else self.source_tokenizer

    def with_source_tokenizer(self, source: "Tokenizer") -> "Tokenizer":
        """Return a copy with another tokenizer for sources."""
        tokenizer = copy.copy(self)
        tokenizer.source_tokenizer = source
        return tokenizer

    def check_single_vocabulary(self, purpose: str) -> None:
        """Check that sources and targets share one vocabulary.

        Raises:
            ValueError: they are not; `purpose` asks for it.
        """
        if self.source_tokenizer is not None:
            raise ValueError(
                f"{purpose}: this model has separate vocabularies for sources and targets; "
                "use it to translate, by generate and predict"
            )

    def check_reads_forward(self, purpose: str) -> None:
        """Check that texts are read forward.

        Raises:
            ValueError: they are not; `purpose` asks for it.
        """
        if self.special_tokens.backward:
            raise ValueError(
                f"{purpose}: this model reads texts backward and predicts preceding tokens; "
                "it can be evaluated, fine-tuned and used to predict labels"
            )

    def _extra_state(self) -> dict[str, Any] | None:
        """Return the state that the serialized form lacks."""
        return {"origin": self.origin} | (
            {} if self.source_tokenizer is None else {"source_tokenizer": self.source_tokenizer}
        )

    def encode(self, text: str, *, allow_special: bool = False) -> Tokens:
        """Encode a text without special tokens around it; newlines separate paragraphs.

        Args:
            text: of any length; the ids are those of the reference library for the whole text.
            allow_special: encode special tokens typed in the text ("[MASK]", "<extra_id_0>") as
                such.

        Raises:
            ValueError: the text has a lone surrogate, hence is not Unicode.
        """
        return self.encode_batch([text], allow_special=allow_special)[0]

    def encode_batch(self, texts: Sequence[str], *, allow_special: bool = False) -> list[Tokens]:
        """Encode a batch of texts on all cores; see `encode`."""
        ready = self._pipeline_for(texts, allow_special=allow_special)
        short = [text if len(text) <= MAX_WHOLE_CHARACTERS else "" for text in texts]
        results = [
            Tokens(ids, text_boundaries(text, begins, spans[:, 1]))
            for text, (ids, begins, spans) in zip(
                short, self._locate(short, ready, allow_special), strict=True
            )
        ]
        for i, text in enumerate(texts):
            if len(text) > MAX_WHOLE_CHARACTERS:
                results[i] = self._tokens_of_long_text(ready, text, allow_special)
        return (
            [tokens.reversed() for tokens in results] if self.special_tokens.backward else results
        )

    def corpus_encoder(self) -> CorpusEncoder:
        """Return an encoder of many texts, which remembers their words."""
        cuts = None if self.special_tokens.backward else self._split_points
        return CorpusEncoder(self.encode_batch, self._locate, cuts)

    def encode_ids_batch(
        self, texts: Sequence[str], *, allow_special: bool = False
    ) -> list[Int[np.ndarray, "_"]]:
        """Return the ids of `encode_batch` only, which is faster than with boundaries."""
        ready = self._pipeline_for(texts, allow_special=allow_special)
        short = [text if len(text) <= MAX_WHOLE_CHARACTERS else "" for text in texts]
        with limits.tokenizers_errors_as_value_error(f"{self.origin} fails on a text"):
            encodings = ready.encode_batch_fast(short, add_special_tokens=False)
        results = [self._ids(encoding, allow_special) for encoding in encodings]
        for i, text in enumerate(texts):
            if len(text) > MAX_WHOLE_CHARACTERS:
                parts = self._encode_parts(ready, text, fast=True)
                results[i] = np.concatenate([self._ids(e, allow_special)[n:] for e, n, _ in parts])
        return [ids[::-1].copy() for ids in results] if self.special_tokens.backward else results

    def encode_prefix_batch(
        self, texts: Sequence[str], n: int | None, *, special: bool = False
    ) -> list[Int[np.ndarray, "_"]]:
        """Return the first `n` ids of each text, or more, faster than `encode_ids_batch`.

        All are returned for a text up to `LONG_TEXT_CHARACTERS`, if a prefix does not determine
        enough of them, and if `n` is None.
        """
        if n is None:
            return self.encode_ids_batch(texts, allow_special=special)
        results = self.encode_ids_batch(
            [t if len(t) <= LONG_TEXT_CHARACTERS else "" for t in texts], allow_special=special
        )
        for i, text in enumerate(texts):
            if len(text) > LONG_TEXT_CHARACTERS:
                results[i] = self._first(text, n, special)
        return results

    def _first(self, text: str, n: int, special: bool) -> Int[np.ndarray, "_"]:
        pipeline.check_unicode(text)
        ids = None
        if not self.special_tokens.backward:
            ids = self._split_points.first(
                lambda some: self.encode_ids_batch(some, allow_special=special), text, n
            )
        return self.encode_ids_batch([text], allow_special=special)[0] if ids is None else ids

    @property
    def _split_points(self) -> SplitPoints:
        """Allowed split points of long texts."""
        if self._cuts is None:
            self._cuts = SplitPoints.of(self._backend, json.loads(self._backend.to_str()))
        return self._cuts

    def _encode_parts(
        self, ready: tokenizers.Tokenizer, text: str, *, fast: bool
    ) -> Iterator[EncodedPart]:
        """Encode a long text in parts."""
        with limits.tokenizers_errors_as_value_error(f"{self.origin} fails on a text"):
            yield from self._split_points.encode_parts(ready, text, self.origin, fast=fast)

    def _tokens_of_long_text(
        self, ready: tokenizers.Tokenizer, text: str, allow_special: bool
    ) -> Tokens:
        parts: list[Located] = []
        for encoding, n, part in self._encode_parts(ready, text, fast=False):
            ids, begins, spans = self._located(text[part], encoding, allow_special)
            parts.append((ids[n:], begins[n:], spans[n:, 1] + part.start))
        ids, begins, ends = (np.concatenate(column) for column in zip(*parts, strict=True))
        return Tokens(ids, text_boundaries(text, begins, ends))

    def decode(self, ids: Iterable[SupportsIndex], *, skip_special_tokens: bool = True) -> str:
        """Decode ids to text; ids above the vocabulary (rows of padded tables) are skipped.

        Raises:
            ValueError: an id is negative.
        """
        checked_ids = check_ids(ids)
        checked_ids = checked_ids[::-1] if self.special_tokens.backward else checked_ids
        with limits.tokenizers_errors_as_value_error(f"{self.origin} fails on ids"):
            return self._backend.decode(checked_ids, skip_special_tokens=skip_special_tokens)

    @property
    def end_of_word_suffix(self) -> str | None:
        """Suffix of the last piece of a word, if there is one (GPT: </w>)."""
        return getattr(self._backend.model, "end_of_word_suffix", None) or None

    def pieces(self, ids: Iterable[SupportsIndex]) -> list[str]:
        r"""Return each id as readable text: spaces as spaces, bytes as text.

        Incomplete characters are written as \xe2, an id above the vocabulary as <50300>; BERT's ##
        and the original GPT's </w> are kept.
        """
        return [self._piece(i) for i in check_ids(ids)]

    def with_special_tokens(self, special_tokens: SpecialTokens) -> "Tokenizer":
        """Return a copy with other special tokens; missing ones get new ids.

        Other ids are unchanged; new ones follow the highest.

        Raises:
            ValueError: there are free ids below the highest, which new tokens would take.
        """
        backend = tokenizers.Tokenizer.from_str(self._backend.to_str())
        added = backend.get_added_tokens_decoder().values()
        special = {token.content for token in added if token.special}
        names = [name for name in special_token_names(special_tokens) if name not in special]
        missing = [name for name in names if backend.token_to_id(name) is None]
        backend.add_special_tokens(
            [tokenizers.AddedToken(name, special=True, normalized=False) for name in names]
        )
        pipeline.set_template(backend, special_tokens)
        new_ids = [backend.token_to_id(name) for name in missing]
        if new_ids != list(range(self.vocab_size, self.vocab_size + len(missing))):
            raise ValueError(
                f"{', '.join(missing)} would get the ids {new_ids}, not those from "
                f"{self.vocab_size} on: this vocabulary has ids without a token"
            )
        return Tokenizer(backend, special_tokens)

    def word_vocabulary(self) -> dict[str, int]:
        """Return the tokens that are whole words of a text, with their ids.

        Raises:
            ValueError: the vocabulary is neither word-level nor WordPiece.
        """
        model = json.loads(self._backend.to_str())["model"]
        if model["type"] not in ("WordLevel", "WordPiece"):
            raise ValueError(
                "only a word-level or WordPiece vocabulary (BERT) distinguishes the tokens that "
                f"are words; this one is {model['type']}"
            )
        entries = model["vocab"].items()
        return {w: i for w, i in entries if i not in self.special_ids.all_ids and self._is_word(w)}

    @property
    def algorithm(self) -> str:
        """Name of the algorithm in its file: BPE, Unigram, WordPiece, or WordLevel: no pieces."""
        return type(self._backend.model).__name__

    def count_words(self, texts: Iterable[str]) -> dict[str, int]:
        """Count the words of texts as this tokenizer splits them, known or not.

        Raises:
            ValueError: there is no text.
        """
        return count_words(texts, self._backend, special_token_names(self.special_tokens))

    def with_words(self, words: Iterable[str], *, allow_phrases: bool = False) -> "Tokenizer":
        """Return a copy with more words, whose ids follow the highest, in their order.

        Known words are skipped, and so are strings that are never a word of a text (with capitals,
        in a lower-case vocabulary).

        Args:
            words: words to add.
            allow_phrases: also add strings that are never a word of a text, such as phrases joined
                elsewhere.

        Raises:
            ValueError: see `word_vocabulary`.
        """
        self.word_vocabulary()
        state = json.loads(self._backend.to_str())
        vocab = state["model"]["vocab"]
        new = [
            w
            for w in dict.fromkeys(words)
            if w not in vocab and (allow_phrases or self._is_word(w))
        ]
        vocab.update({w: self.vocab_size + i for i, w in enumerate(new)})
        written = json.dumps(state, ensure_ascii=False)
        return Tokenizer(tokenizers.Tokenizer.from_str(written), self.special_tokens)

    def _is_word(self, word: str) -> bool:
        """Return whether a string is one word, unchanged by normalization."""
        normal, cut = self._backend.normalizer, self._backend.pre_tokenizer
        is_normalized = normal is None or normal.normalize_str(word) == word
        return is_normalized and (
            cut is None or [w for w, _ in cut.pre_tokenize_str(word)] == [word]
        )

    def with_languages(self, source: str, target: str | None = None) -> "Tokenizer":
        """Return a copy for a language: `SpecialTokenIds.with_languages`, with what that raises."""
        tokenizer = self.without_languages()
        tokenizer.special_ids = tokenizer.special_ids.with_languages(source, target)
        if tokenizer.special_ids.text_languages:  # saved with it
            said = tuple(name for name in (source, target) if name is not None)
            tokenizer.special_tokens = replace(tokenizer.special_tokens, text_languages=said)
        return tokenizer

    def without_languages(self) -> "Tokenizer":
        """Return a copy without chosen languages."""
        return self._copy(replace(self.special_tokens, text_languages=()))

    def with_language_names(self, names: tuple[str, ...]) -> "Tokenizer":
        """Return a copy with other language embeddings."""
        return self._copy(replace(self.special_tokens, languages=names, language_embeddings=True))

    def _copy(self, special: SpecialTokens) -> "Tokenizer":
        tokenizer = Tokenizer(tokenizers.Tokenizer.from_str(self._backend.to_str()), special)
        tokenizer.source_tokenizer = self.source_tokenizer
        return tokenizer

    def offsets(self, text: str) -> list[tuple[int, int]]:
        """Return the (start, end) of each token of `encode(text)` in characters."""
        return [(begin, end) for begin, end in self.offset_array(text).tolist()]

    def offset_array(self, text: str, *, allow_special: bool = False) -> Int[np.ndarray, "t 2"]:
        """Return `offsets` as an array, which takes less memory for a long text."""
        ready = self._pipeline_for([text], allow_special=allow_special)
        if len(text) <= MAX_WHOLE_CHARACTERS:
            with limits.tokenizers_errors_as_value_error(f"{self.origin} fails on a text"):
                encoding = ready.encode(text, add_special_tokens=False)
            offsets = np.array(encoding.offsets, np.int64).reshape(-1, 2)
        else:
            offsets = np.concatenate(
                [
                    np.array(encoding.offsets[n:], np.int64).reshape(-1, 2) + part.start
                    for encoding, n, part in self._encode_parts(ready, text, fast=False)
                ]
            )
        return offsets[::-1] if self.special_tokens.backward else offsets

    def save(
        self, folder: Path, *, max_length: int | None = None, uses_segments: bool | None = None
    ) -> None:
        """Write tokenizer.json and tokenizer_config.json; transformers.AutoTokenizer opens them.

        Args:
            folder: created if missing.
            max_length: maximum input length, for `model_max_length`.
            uses_segments: whether the model has segment ids. None: derived from the special tokens.
        """
        folder.mkdir(parents=True, exist_ok=True)
        config = transformers_config(self.special_tokens, self._backend)
        config |= {} if max_length is None else {"model_max_length": max_length}
        if uses_segments is not None:
            segment_inputs = ["token_type_ids"] if uses_segments else []
            config["model_input_names"] = ["input_ids", *segment_inputs, "attention_mask"]
        write_atomically(
            folder / "tokenizer.json", self._backend_with_languages().to_str(pretty=True)
        )
        write_atomically(
            folder / "tokenizer_config.json",
            json.dumps(config, ensure_ascii=False, indent=2) + "\n",
        )

    def _backend_with_languages(self) -> tokenizers.Tokenizer:
        """Return the backend with the chosen languages in its template."""
        special = self.special_ids
        if not special.languages or special.language_embeddings or special.needs_languages:
            return self._backend
        before, after = self.pieces(special.prefix), self.pieces(special.suffix)
        backend = tokenizers.Tokenizer.from_str(self._backend.to_str())
        frame = replace(self.special_tokens, prefix=tuple(before), suffix=tuple(after))
        pipeline.set_template(backend, frame)
        return backend

    def _pipeline_for(self, texts: Sequence[str], *, allow_special: bool) -> tokenizers.Tokenizer:
        """Check texts and return the pipeline that encodes them."""
        for text in texts:
            pipeline.check_unicode(text)
        if not allow_special:
            return self._text_pipeline
        if self._special_pipeline is None:
            self._special_pipeline = copy.deepcopy(self._backend)
            self._special_pipeline.encode_special_tokens = False
        return self._special_pipeline

    def _ids(self, encoding: tokenizers.Encoding, allow_special: bool) -> Int[np.ndarray, "_"]:
        ids = np.array(encoding.ids, np.int64)
        if not allow_special and self._is_special[ids].any():
            name = self._backend.id_to_token(int(ids[self._is_special[ids]][0]))
            raise ValueError(
                f"the text has {name!r}, which this tokenizer can encode only as the special token"
            )
        return ids

    def _located(self, text: str, encoding: tokenizers.Encoding, allow_special: bool) -> Located:
        ids = self._ids(encoding, allow_special)
        return ids, *self._word_start_detector.word_starts(text, encoding, ids)

    def _locate(
        self,
        texts: Sequence[str],
        ready: tokenizers.Tokenizer | None = None,
        allow_special: bool = False,
    ) -> list[Located]:
        ready = self._text_pipeline if ready is None else ready
        with limits.tokenizers_errors_as_value_error(f"{self.origin} fails on a text"):
            encodings = ready.encode_batch(texts, add_special_tokens=False)
        return [self._located(t, e, allow_special) for t, e in zip(texts, encodings, strict=True)]

    def _piece(self, i: int) -> str:
        token = self._backend.id_to_token(i)
        if token is None:
            return f"<{i}>"
        if i in self.special_ids.all_ids:
            return token
        if self._byte_of_character is not None and all(c in self._byte_of_character for c in token):
            return bytes(self._byte_of_character[c] for c in token).decode(
                "utf-8", "backslashreplace"
            )
        return token.replace(pipeline.SPACE, " ") if self._writes_spaces else token

    def _punctuation_ids(self, pieces: Mapping[str, int]) -> np.ndarray:
        signs = np.zeros(self.vocab_size, bool)
        signs[[i for i in pieces.values() if is_punctuation(self._piece(i))]] = True
        return signs


def _restore(state: str, special_tokens: SpecialTokens) -> Tokenizer:
    return Tokenizer(tokenizers.Tokenizer.from_str(state), special_tokens)
