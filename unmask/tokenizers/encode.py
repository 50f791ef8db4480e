"""Text <-> ids, special tokens, words and sentences of each token; learn a vocabulary.

Encoding is done by pipelines of the `tokenizers` library. What is added here: which special tokens
stand where (`SpecialTokenIds`), that a text can never write one by itself, and what begins at each
token (`Tokens.boundaries`).
"""

import copy
import json
import logging
import operator
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, SupportsIndex

import numpy as np
import tokenizers
from jaxtyping import Int

from unmask.batch import Tokens
from unmask.config import to_dict
from unmask.files import write_atomically
from unmask.tokenizers import code_points, pipeline
from unmask.tokenizers.beginning import LONG, WHOLE, Cuts
from unmask.tokenizers.boundaries import (
    WordStartDetector,
    is_punctuation,
    text_boundaries,
    word_start_characters,
)
from unmask.tokenizers.formats import limits
from unmask.tokenizers.formats.folder import (
    byt5_special_tokens,
    code_point_special_tokens,
    read_pipeline,
)
from unmask.tokenizers.learn import train as learning
from unmask.tokenizers.output_vocabularies import wordpieces
from unmask.tokenizers.output_vocabularies import words as word_vocabularies
from unmask.tokenizers.spec import (
    BERT,
    BPE,
    BYT5,
    CANINE,
    ELMO,
    GPT2,
    LLAMA,
    ROBERTA,
    T5,
    WORD_LEVEL,
    ByteBPE,
    ByteLevel,
    CharacterLevel,
    CodePoints,
    CodePointsWithSubwords,
    SentencePieceBPE,
    SpecialTokenIds,
    SpecialTokens,
    TokenizerSpec,
    Unigram,
    VocabularySpec,
    WordBytesWithWords,
    WordLevel,
    WordPiece,
    sentinel_names,
    special_token_names,
)

__all__ = [
    "BERT",
    "BPE",
    "BYT5",
    "CANINE",
    "ELMO",
    "GPT2",
    "LLAMA",
    "ROBERTA",
    "T5",
    "WORD_LEVEL",
    "ByT5Tokenizer",
    "ByteBPE",
    "ByteLevel",
    "CharacterLevel",
    "CodePointTokenizer",
    "CodePoints",
    "CodePointsWithSubwords",
    "SentencePieceBPE",
    "SpecialTokenIds",
    "SpecialTokens",
    "Tokenizer",
    "TokenizerSpec",
    "Unigram",
    "VocabularySpec",
    "WordByteTokenizer",
    "WordBytesWithWords",
    "WordLevel",
    "WordPiece",
    "train_tokenizer",
]


_PARTS_PER_BATCH = 8
"""Parts of a long text that are read together."""
_log = logging.getLogger(__name__)


class Tokenizer:
    """Text <-> ids.

    A special token that is typed in a text is text: `encode("[MASK]")` gives the pieces of those
    six characters, so that no corpus can put special tokens into training. `encode(text,
    allow_special=True)` takes them as what they name.
    """

    special_ids: SpecialTokenIds
    """The ids that objectives and collation must know."""
    special_tokens: SpecialTokens
    """The same by name."""
    vocab_size: int
    """Number of ids: one more than the highest."""
    origin: str = "the tokenizer"
    """Where it was read from, for messages."""
    source_tokenizer: "Tokenizer | None" = None
    """Reads sources, where these have a vocabulary of their own."""

    def __init__(self, backend: tokenizers.Tokenizer, special_tokens: SpecialTokens) -> None:
        """Wrap a pipeline whose vocabulary has all special tokens of `special_tokens`.

        Raises:
            ValueError: it has not.
        """
        backend.no_truncation()
        backend.no_padding()
        self.special_tokens = special_tokens
        self.special_ids = _special_token_ids(backend, special_tokens)
        self.vocab_size = self.special_ids.vocab_size
        self._backend = backend
        state = json.loads(backend.to_str())
        self._text_pipeline = _pipeline_without_special(backend, state, self.special_ids)
        self._special_pipeline: tokenizers.Tokenizer | None = None
        self._cuts: Cuts | None = None
        written = _unknown_token(state["model"])
        self._is_special = np.zeros(self.vocab_size, bool)
        self._is_special[
            [i for i in self.special_ids.all_ids if backend.id_to_token(i) != written]
        ] = True
        decoder = json.dumps(state["decoder"], ensure_ascii=False)
        self._byte_of_character = _byte_of_character() if '"ByteLevel"' in decoder else None
        self._writes_spaces = pipeline.SPACE in decoder
        vocab = backend.get_vocab(with_added_tokens=True)
        signs = self._punctuation_ids(vocab) if special_tokens.punctuation_starts_words else None
        self._word_start_detector = WordStartDetector(state, vocab, self._is_special, signs)

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy by the saved form: the library's own copies take typed special tokens as such."""
        return _restore, (self._backend.to_str(), self.special_tokens), self._extra_state()

    @property
    def input_tokenizer(self) -> "Tokenizer":
        """What reads sources and prompts: this one, unless these have a vocabulary of their own."""
        return self if self.source_tokenizer is None else self.source_tokenizer

    def with_source_tokenizer(self, source: "Tokenizer") -> "Tokenizer":
        """Return this tokenizer with another one that reads the sources of what it says."""
        found = copy.copy(self)
        found.source_tokenizer = source
        return found

    def check_single_vocabulary(self, purpose: str) -> None:
        """Check that texts are read in the vocabulary in which they are said.

        Raises:
            ValueError: they are not; `purpose` asks for it.
        """
        if self.source_tokenizer is not None:
            raise ValueError(
                f"{purpose}: this model reads its sources in a vocabulary of their own, and says "
                "text in another; it translates, by generate and predict"
            )

    def check_reads_forward(self, purpose: str) -> None:
        """Check that texts are read from their beginning on.

        Raises:
            ValueError: they are not; `purpose` asks for it.
        """
        if self.special_tokens.backward:
            raise ValueError(
                f"{purpose}: this model reads texts from their end, and says what stands before; "
                "it can be evaluated, fine-tuned and asked for labels"
            )

    def _extra_state(self) -> dict[str, Any] | None:
        """Return what a copy has besides its saved form."""
        return {"origin": self.origin} | (
            {} if self.source_tokenizer is None else {"source_tokenizer": self.source_tokenizer}
        )

    def encode(self, text: str, *, allow_special: bool = False) -> Tokens:
        """Turn a text into ids, without special tokens around it; newlines part its paragraphs.

        Args:
            text: whatever its length; the ids are those that the reference library gives for the
                whole of it.
            allow_special: special tokens typed in the text ("[MASK]", "<extra_id_0>") are what
                they name, not text.

        Raises:
            ValueError: the text holds half of a surrogate pair, hence is no Unicode.
        """
        return self.encode_batch([text], allow_special=allow_special)[0]

    def encode_batch(self, texts: Sequence[str], *, allow_special: bool = False) -> list[Tokens]:
        """Do as `encode` for many texts at once, on all cores."""
        ready = self._pipeline_for(texts, allow_special=allow_special)
        short = [text if len(text) <= WHOLE else "" for text in texts]
        with limits.tokenizers_errors_as_value_error(f"{self.origin} fails on a text"):
            encodings = ready.encode_batch(short, add_special_tokens=False)
        found = [self._tokens(t, e, allow_special) for t, e in zip(short, encodings, strict=True)]
        for i, text in enumerate(texts):
            if len(text) > WHOLE:
                found[i] = self._tokens_of_long_text(ready, text, allow_special)
        return [tokens.reversed() for tokens in found] if self.special_tokens.backward else found

    def encode_ids_batch(
        self, texts: Sequence[str], *, allow_special: bool = False
    ) -> list[Int[np.ndarray, "_"]]:
        """Return the ids of `encode_batch` alone, which takes less time than the boundaries."""
        ready = self._pipeline_for(texts, allow_special=allow_special)
        short = [text if len(text) <= WHOLE else "" for text in texts]
        with limits.tokenizers_errors_as_value_error(f"{self.origin} fails on a text"):
            encodings = ready.encode_batch_fast(short, add_special_tokens=False)
        found = [self._ids(encoding, allow_special) for encoding in encodings]
        for i, text in enumerate(texts):
            if len(text) > WHOLE:
                parts = self._encode_parts(ready, text, fast=True)
                found[i] = np.concatenate([self._ids(e, allow_special)[n:] for e, n, _ in parts])
        return [ids[::-1].copy() for ids in found] if self.special_tokens.backward else found

    def first_batch(
        self, texts: Sequence[str], n: int | None, *, special: bool = False
    ) -> list[Int[np.ndarray, "_"]]:
        """Return the first `n` ids of each text, or more, in less time than `encode_ids_batch`.

        Of texts up to `beginning.LONG` characters, and where too few are known for certain before
        all of a text is read, there are all; and of None.
        """
        if n is None:
            return self.encode_ids_batch(texts, allow_special=special)
        found = self.encode_ids_batch(
            [t if len(t) <= LONG else "" for t in texts], allow_special=special
        )
        for i, text in enumerate(texts):
            if len(text) > LONG:
                found[i] = self._first(text, n, special)
        return found

    def _first(self, text: str, n: int, special: bool) -> Int[np.ndarray, "_"]:
        pipeline.check_unicode(text)
        ids = None
        if not self.special_tokens.backward:
            ids = self._split_points.first(
                lambda some: self.encode_ids_batch(some, allow_special=special), text, n
            )
        return self.encode_ids_batch([text], allow_special=special)[0] if ids is None else ids

    @property
    def _split_points(self) -> Cuts:
        """Where long texts may be cut."""
        if self._cuts is None:
            self._cuts = Cuts.of(self._backend, json.loads(self._backend.to_str()))
        return self._cuts

    def _encode_parts(
        self, ready: tokenizers.Tokenizer, text: str, *, fast: bool
    ) -> Iterator[tuple[tokenizers.Encoding, int, slice]]:
        """Encode a long text in parts.

        Yields:
            The encoding of a part, how many of its tokens belong to the part before, and where in
            the text it stands.
        """
        parts = self._split_points.parts(text)
        longest = max(end - begin for _, begin, end in parts)
        if longest > 4 * WHOLE:
            _log.warning(
                f"{self.origin}: {longest:,} characters of a text are read at once, which takes "
                "time and memory, since nothing parts them for this tokenizer: it cuts at white "
                "space, or nowhere"
            )
        encode = ready.encode_batch_fast if fast else ready.encode_batch
        for i in range(0, len(parts), _PARTS_PER_BATCH):
            some = parts[i : i + _PARTS_PER_BATCH]
            with limits.tokenizers_errors_as_value_error(f"{self.origin} fails on a text"):
                leads = ready.encode_batch_fast(
                    [text[lead:begin] for lead, begin, _ in some], add_special_tokens=False
                )
                read = encode([text[lead:end] for lead, _, end in some], add_special_tokens=False)
            for (lead, _, end), before, encoding in zip(some, leads, read, strict=True):
                yield encoding, len(before.ids), slice(lead, end)

    def _tokens_of_long_text(
        self, ready: tokenizers.Tokenizer, text: str, allow_special: bool
    ) -> Tokens:
        found: list[tuple[np.ndarray, ...]] = []
        for encoding, n, part in self._encode_parts(ready, text, fast=False):
            ids = self._ids(encoding, allow_special)
            begins, ends = self._word_start_detector.word_starts(text[part], encoding, ids)
            found.append((ids[n:], begins[n:], ends[n:] + part.start))
        ids, begins, ends = (np.concatenate(column) for column in zip(*found, strict=True))
        return Tokens(
            ids, text_boundaries(text, begins, ends) if len(ids) else ids.astype(np.uint8)
        )

    def decode(self, ids: Iterable[SupportsIndex], *, skip_special_tokens: bool = True) -> str:
        """Turn ids into text. An id above the vocabulary (a padded table's row) is nothing.

        Raises:
            ValueError: an id is negative.
        """
        read = _check_ids(ids)
        read = read[::-1] if self.special_tokens.backward else read
        with limits.tokenizers_errors_as_value_error(f"{self.origin} fails on ids"):
            return self._backend.decode(read, skip_special_tokens=skip_special_tokens)

    @property
    def end_of_word_suffix(self) -> str | None:
        """What the last piece of a word ends with, if pieces tell ends (GPT: </w>)."""
        return getattr(self._backend.model, "end_of_word_suffix", None) or None

    def pieces(self, ids: Iterable[SupportsIndex]) -> list[str]:
        r"""Write each id for a person's eyes: spaces as spaces, bytes as text.

        Bytes that are no whole character are written as \xe2, an id above the vocabulary as
        <50300>; what continues a word in BERT's way keeps its ##, and what ends one in the original
        GPT's way its </w>.
        """
        return [self._piece(i) for i in _check_ids(ids)]

    def with_special_tokens(self, special_tokens: SpecialTokens) -> "Tokenizer":
        """Return this tokenizer with another frame, whose tokens have new ids where it lacks them.

        All other ids stay what they are; the new ones follow the highest.

        Raises:
            ValueError: there are free ids below the highest, which the new tokens would take.
        """
        backend = tokenizers.Tokenizer.from_str(self._backend.to_str())
        added = backend.get_added_tokens_decoder().values()
        special = {token.content for token in added if token.special}
        wanted = [name for name in special_token_names(special_tokens) if name not in special]
        lacking = [name for name in wanted if backend.token_to_id(name) is None]
        backend.add_special_tokens(
            [tokenizers.AddedToken(name, special=True, normalized=False) for name in wanted]
        )
        pipeline.set_template(backend, special_tokens)
        found = [backend.token_to_id(name) for name in lacking]
        if found != list(range(self.vocab_size, self.vocab_size + len(lacking))):
            raise ValueError(
                f"{', '.join(lacking)} would have the ids {found}, not those from "
                f"{self.vocab_size} on: this vocabulary has ids without a token"
            )
        return Tokenizer(backend, special_tokens)

    def word_vocabulary(self) -> dict[str, int]:
        """Return the tokens that are words as they stand in a text, with their ids.

        Raises:
            ValueError: the vocabulary is neither of words nor of word pieces.
        """
        model = json.loads(self._backend.to_str())["model"]
        if model["type"] not in ("WordLevel", "WordPiece"):
            raise ValueError(
                "only a vocabulary of words or of word pieces (BERT's) knows which of its tokens "
                f"are words; this one is {model['type']}"
            )
        known = model["vocab"].items()
        return {w: i for w, i in known if i not in self.special_ids.all_ids and self._is_word(w)}

    @property
    def is_word_level(self) -> bool:
        """Whether its tokens are words, whole ones alone."""
        return json.loads(self._backend.to_str())["model"]["type"] == "WordLevel"

    def count_words(self, texts: Iterable[str]) -> dict[str, int]:
        """Count the words of texts as this tokenizer cuts them, known or not.

        Raises:
            ValueError: there is no text.
        """
        return learning.count_words(texts, self._backend, special_token_names(self.special_tokens))

    def with_words(self, words: Iterable[str], *, allow_phrases: bool = False) -> "Tokenizer":
        """Return this tokenizer with more words, whose ids follow the highest, in their order.

        What is no word as it stands in a text (of a lower-case vocabulary, one with an upper-case
        letter) and what is known already is left out.

        Args:
            words: to add.
            allow_phrases: what is no word as it stands in a text is added, too: a phrase whose
                words something else joins. No text is found to hold it.

        Raises:
            ValueError: see `word_vocabulary`.
        """
        self.word_vocabulary()
        state = json.loads(self._backend.to_str())
        known = state["model"]["vocab"]
        new = [
            w
            for w in dict.fromkeys(words)
            if w not in known and (allow_phrases or self._is_word(w))
        ]
        known.update({w: self.vocab_size + i for i, w in enumerate(new)})
        written = json.dumps(state, ensure_ascii=False)
        return Tokenizer(tokenizers.Tokenizer.from_str(written), self.special_tokens)

    def _is_word(self, word: str) -> bool:
        """Say whether a word stands in a text as it is, and as one."""
        normal, cut = self._backend.normalizer, self._backend.pre_tokenizer
        same = normal is None or normal.normalize_str(word) == word
        return same and (cut is None or [w for w, _ in cut.pre_tokenize_str(word)] == [word])

    def with_languages(self, source: str, target: str | None = None) -> "Tokenizer":
        """Return this tokenizer for texts of a language, answered in another.

        See `SpecialTokenIds.with_languages`.

        Raises:
            ValueError: it has no token for the language.
        """
        found = self.without_languages()
        found.special_ids = found.special_ids.with_languages(source, target)
        return found

    def without_languages(self) -> "Tokenizer":
        """Return this tokenizer as it is before it is told languages."""
        found = Tokenizer(
            tokenizers.Tokenizer.from_str(self._backend.to_str()), self.special_tokens
        )
        found.source_tokenizer = self.source_tokenizer
        return found

    def offsets(self, text: str) -> list[tuple[int, int]]:
        """Find where in `text` each token of `encode(text)` stands, as a span of characters."""
        return [(begin, end) for begin, end in self.offset_array(text).tolist()]

    def offset_array(self, text: str) -> Int[np.ndarray, "t 2"]:
        """Return `offsets` as an array, which of a long text takes less memory."""
        ready = self._pipeline_for([text], allow_special=False)
        if len(text) <= WHOLE:
            with limits.tokenizers_errors_as_value_error(f"{self.origin} fails on a text"):
                encoding = ready.encode(text, add_special_tokens=False)
            found = np.array(encoding.offsets, np.int64).reshape(-1, 2)
        else:
            found = np.concatenate(
                [
                    np.array(encoding.offsets[n:], np.int64).reshape(-1, 2) + part.start
                    for encoding, n, part in self._encode_parts(ready, text, fast=False)
                ]
            )
        return found[::-1] if self.special_tokens.backward else found

    def save(
        self, folder: Path, *, max_length: int | None = None, uses_segments: bool | None = None
    ) -> None:
        """Write tokenizer.json and tokenizer_config.json; transformers.AutoTokenizer opens them.

        Args:
            folder: made if it is not there.
            max_length: the longest row that the model reads, for `model_max_length`.
            uses_segments: whether the model is told which of two texts a token is of. None: if
                that is so in the family of the special tokens.
        """
        folder.mkdir(parents=True, exist_ok=True)
        config = _transformers_config(self.special_tokens) | self._bert_options()
        config |= {} if max_length is None else {"model_max_length": max_length}
        if uses_segments is not None:
            there = ["token_type_ids"] if uses_segments else []
            config["model_input_names"] = ["input_ids", *there, "attention_mask"]
        write_atomically(
            folder / "tokenizer.json", self._backend_with_languages().to_str(pretty=True)
        )
        write_atomically(
            folder / "tokenizer_config.json",
            json.dumps(config, ensure_ascii=False, indent=2) + "\n",
        )

    def _bert_options(self) -> dict[str, bool | None]:
        """Say what BERT's own class in transformers must be told, or takes otherwise."""
        normal = json.loads(self._backend.to_str())["normalizer"] or {}
        if normal.get("type") != "BertNormalizer":
            return {}
        return {
            "do_lower_case": normal["lowercase"],
            "strip_accents": normal["strip_accents"],
            "tokenize_chinese_chars": normal["handle_chinese_chars"],
        }

    def _backend_with_languages(self) -> tokenizers.Tokenizer:
        """Return the backend, which puts languages that were told around texts, too."""
        if not self.special_ids.languages or self.special_ids.needs_languages:
            return self._backend
        special = self.special_ids
        before, after = self.pieces(special.prefix), self.pieces(special.suffix)
        backend = tokenizers.Tokenizer.from_str(self._backend.to_str())
        frame = replace(self.special_tokens, prefix=tuple(before), suffix=tuple(after))
        pipeline.set_template(backend, frame)
        return backend

    @classmethod
    def load(cls, folder: Path) -> "Tokenizer":
        """Read a tokenizer from a folder in the Hugging Face layout.

        It is read from the first of these that is there: tokenizer.json; vocab.txt (BERT);
        vocab.json and merges.txt (GPT-2, RoBERTa, GPT); a SentencePiece file (spiece.model,
        tokenizer.model, ...). tokenizer_config.json, special_tokens_map.json, added_tokens.json and
        config.json beside it say the roles of special tokens. Where they say that the tokens are
        code points, there is no other file but, where a loss needs them, subwords.txt; and none
        where they are ByT5's bytes. Where a loss asks for words that are read in bytes, words.txt
        has these.

        Raises:
            FileNotFoundError: none of these is there.
            ValueError: a file is damaged, or does not say what must be known.
        """
        frame = code_point_special_tokens(Path(folder))
        if frame is not None:
            return CodePointTokenizer(frame, wordpieces.read_wordpiece_vocabulary(Path(folder)))
        of_bytes = byt5_special_tokens(Path(folder))
        if of_bytes is not None:
            return ByT5Tokenizer(*of_bytes)
        known = word_vocabularies.read_word_vocabulary(Path(folder))
        backend, frame = read_pipeline(Path(folder))
        try:
            made = (
                cls(backend, frame) if known is None else WordByteTokenizer(backend, frame, known)
            )
        except ValueError as error:
            raise ValueError(f"{folder}: {error}") from error
        made.origin = str(folder)
        return made

    def _pipeline_for(self, texts: Sequence[str], *, allow_special: bool) -> tokenizers.Tokenizer:
        """Check texts and return what encodes them."""
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
                f"the text holds {name!r}, which this tokenizer can write only as the special token"
            )
        return ids

    def _tokens(self, text: str, encoding: tokenizers.Encoding, allow_special: bool) -> Tokens:
        ids = self._ids(encoding, allow_special)
        if not len(ids):
            return Tokens(ids, np.zeros(0, np.uint8))
        starts, ends = self._word_start_detector.word_starts(text, encoding, ids)
        return Tokens(ids, text_boundaries(text, starts, ends))

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


class CodePointTokenizer(Tokenizer):
    """Text <-> Unicode code points: a tokenizer without a vocabulary (CANINE).

    It may know subwords (`SpecialTokenIds.output_vocabulary`), which it neither reads nor writes.

    Deviates: a character of a text whose code point is a special token's (U+0000, and U+E000 to
    U+E003 of the private use area) is read as U+FFFD, so that no text writes a special token; the
    released code would take it as one.
    """

    def __init__(
        self,
        special_tokens: SpecialTokens,
        subword_vocabulary: wordpieces.WordPieceVocabulary | None = None,
    ) -> None:
        """Make the tokenizer of a frame, whose tokens have fixed ids.

        Args:
            special_tokens: of the characters.
            subword_vocabulary: the subwords beside them.

        Raises:
            ValueError: a token of the frame has no id, or texts are to be read backward.
        """
        if special_tokens.backward:
            raise ValueError("frame.backward: code points are read forward")
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
        """Do as `encode` for many texts."""
        return [self._to_tokens(text, allow_special) for text in texts]

    def encode_ids_batch(
        self, texts: Sequence[str], *, allow_special: bool = False
    ) -> list[Int[np.ndarray, "_"]]:
        """Return the ids of `encode_batch` alone, which takes less time than the boundaries."""
        return [self._encode_characters(text, allow_special)[0] for text in texts]

    def _first(self, text: str, n: int, special: bool) -> Int[np.ndarray, "_"]:
        """Read a character a token, and where special tokens may be typed, as many as one has."""
        pipeline.check_unicode(text)
        each = max(map(len, code_points.SPECIAL_CODE_POINTS)) if special else 1
        return self._encode_characters(text[: (n + 1) * each], special)[0][:n]

    def decode(self, ids: Iterable[SupportsIndex], *, skip_special_tokens: bool = True) -> str:
        """Turn ids into text. An id that is no character is nothing.

        Raises:
            ValueError: an id is negative.
        """
        return code_points.decode_code_points(
            _check_ids(ids), skip_special_tokens=skip_special_tokens
        )

    def pieces(self, ids: Iterable[SupportsIndex]) -> list[str]:
        """Write each id for a person's eyes; one that is no character as <1114112>."""
        return [
            code_points.decode_code_points([i], skip_special_tokens=False) or f"<{i}>"
            for i in _check_ids(ids)
        ]

    def with_special_tokens(self, special_tokens: SpecialTokens) -> "CodePointTokenizer":
        """Return this tokenizer with another frame.

        Raises:
            ValueError: a token of the frame has no code point.
        """
        return CodePointTokenizer(special_tokens, self._subword_vocabulary)

    def offsets(self, text: str) -> list[tuple[int, int]]:
        """Find where in `text` each token of `encode(text)` stands: a character each."""
        return [(begin, end) for begin, end in self.offset_array(text).tolist()]

    def offset_array(self, text: str) -> Int[np.ndarray, "t 2"]:
        """Return `offsets` as an array."""
        pipeline.check_unicode(text)
        return np.arange(len(text))[:, None] + np.arange(2)

    def save(
        self, folder: Path, *, max_length: int | None = None, uses_segments: bool | None = None
    ) -> None:
        """Write tokenizer_config.json, as transformers.CanineTokenizer reads it, and any subwords.

        Args:
            folder: made if it is not there.
            max_length: the longest row that the model reads, for `model_max_length`.
            uses_segments: that tokenizer tells them always.
        """
        folder.mkdir(parents=True, exist_ok=True)
        frame = self.special_tokens
        roles = {
            "pad": frame.pad, "bos": frame.start, "eos": frame.end,
            "cls": frame.prefix[0] if frame.prefix else None, "sep": frame.end, "mask": frame.mask,
        }  # fmt: skip
        said = {
            f"{k}_token": chr(code_points.SPECIAL_CODE_POINTS[v])
            for k, v in roles.items()
            if v is not None
        }
        config = {
            "tokenizer_class": "CanineTokenizer",
            **said,
            **({} if max_length is None else {"model_max_length": max_length}),
            "unmask": {"special_tokens": to_dict(frame)},
        }
        if self._subword_vocabulary is not None:
            wordpieces.save_wordpiece_vocabulary(self._subword_vocabulary, folder)
        write_atomically(folder / "tokenizer_config.json", json.dumps(config, indent=2) + "\n")

    def _encode_characters(
        self, text: str, allow_special: bool
    ) -> tuple[Int[np.ndarray, "t"], Int[np.ndarray, "t"], Int[np.ndarray, "t"]]:
        """Return the ids, and where in the text each token starts and ends."""
        pipeline.check_unicode(text)
        ids, starts = code_points.encode_code_points(text), np.arange(len(text))
        ends = starts + 1
        if not allow_special:
            return ids, starts, ends
        kept = np.ones(len(text), bool)
        for found in _SPECIAL_NAME_PATTERN.finditer(text):
            first, last = found.span()
            ids[first], ends[first] = code_points.SPECIAL_CODE_POINTS[found[0]], last
            kept[first + 1 : last] = False
        return ids[kept], starts[kept], ends[kept]

    def _to_tokens(self, text: str, allow_special: bool) -> Tokens:
        ids, starts, ends = self._encode_characters(text, allow_special)
        if not len(ids):
            return Tokens(ids, np.zeros(0, np.uint8))
        return Tokens(ids, text_boundaries(text, word_start_characters(text)[starts], ends))


class ByT5Tokenizer(Tokenizer):
    """Text <-> bytes of UTF-8, as transformers.ByT5Tokenizer has them: there is nothing to learn.

    Xue et al. 2022, arXiv:2105.13626, section 3.1. Its sentinels are those of the published models,
    bytes that stand in no text, from 0xFF down.
    """

    def __init__(self, special_tokens: SpecialTokens = BYT5, n_unused_ids: int = 125) -> None:
        """Make the tokenizer of a frame.

        Args:
            special_tokens: whose tokens have the first ids.
            n_unused_ids: so many ids above the bytes are unused.

        Raises:
            ValueError: there are more sentinels than such bytes.
        """
        super().__init__(pipeline.byt5_pipeline(special_tokens, n_unused_ids), special_tokens)
        self._n_unused_ids = n_unused_ids

    def __reduce__(self) -> tuple[Any, ...]:
        return ByT5Tokenizer, (self.special_tokens, self._n_unused_ids), self._extra_state()

    def save(
        self, folder: Path, *, max_length: int | None = None, uses_segments: bool | None = None
    ) -> None:
        """Write tokenizer_config.json, as transformers.ByT5Tokenizer reads it.

        Args:
            folder: made if it is not there.
            max_length: the longest row that the model reads, for `model_max_length`.
            uses_segments: that tokenizer tells none.
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
    """Text <-> bytes that say where words begin, with words beside them that a loss asks for.

    Those are `SpecialTokenIds.output_vocabulary`; the tokenizer neither reads nor writes them.
    """

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        special_tokens: SpecialTokens,
        word_vocabulary: word_vocabularies.WordVocabulary,
    ) -> None:
        """Wrap a pipeline (`pipeline.spelled`), and the words."""
        super().__init__(backend, special_tokens)
        self._word_vocabulary = word_vocabulary
        self.special_ids = replace(self.special_ids, output_vocabulary=word_vocabulary)

    def __reduce__(self) -> tuple[Any, ...]:
        state = self._backend.to_str(), self.special_tokens, self._word_vocabulary
        return _restore_word_byte, state, self._extra_state()

    def with_special_tokens(self, special_tokens: SpecialTokens) -> "WordByteTokenizer":
        """Return this tokenizer with another frame."""
        return WordByteTokenizer(
            super().with_special_tokens(special_tokens)._backend,
            special_tokens,
            self._word_vocabulary,
        )

    def save(
        self, folder: Path, *, max_length: int | None = None, uses_segments: bool | None = None
    ) -> None:
        """Write what every tokenizer writes, and the words."""
        super().save(folder, max_length=max_length, uses_segments=uses_segments)
        word_vocabularies.save_word_vocabulary(self._word_vocabulary, folder)


_SPECIAL_NAME_PATTERN = re.compile("|".join(map(re.escape, code_points.SPECIAL_CODE_POINTS)))


def train_tokenizer(spec: TokenizerSpec, texts: Iterable[str]) -> Tokenizer:
    """Learn a tokenizer from texts, read once; the same texts give the same one.

    Where the texts are too few for the size asked, the vocabulary is smaller
    (`Tokenizer.vocab_size`), and a warning is logged. Of code points alone nothing is learned, and
    no text is read.

    Raises:
        ValueError: the size is too small for the special tokens and the single characters, or there
            is no text.
    """
    if isinstance(spec.vocabulary, CodePoints):
        return CodePointTokenizer(spec.special_tokens)
    if isinstance(spec.vocabulary, CodePointsWithSubwords):
        return CodePointTokenizer(
            spec.special_tokens,
            wordpieces.learn_wordpiece_vocabulary(spec.vocabulary.vocab_size, texts),
        )
    if isinstance(spec.vocabulary, WordBytesWithWords):
        backend = pipeline.word_byte_pipeline(spec.special_tokens)
        known = word_vocabularies.learn_word_vocabulary(spec.vocabulary.vocab_size, backend, texts)
        return WordByteTokenizer(backend, spec.special_tokens, known)
    if isinstance(spec.vocabulary, ByteLevel) and spec.vocabulary.n_unused_ids is not None:
        return ByT5Tokenizer(spec.special_tokens, spec.vocabulary.n_unused_ids)
    return Tokenizer(learning.train_pipeline(spec, texts), spec.special_tokens)


def _restore(state: str, special_tokens: SpecialTokens) -> Tokenizer:
    return Tokenizer(tokenizers.Tokenizer.from_str(state), special_tokens)


def _restore_word_byte(
    state: str, special_tokens: SpecialTokens, word_vocabulary: word_vocabularies.WordVocabulary
) -> WordByteTokenizer:
    return WordByteTokenizer(tokenizers.Tokenizer.from_str(state), special_tokens, word_vocabulary)


def _special_token_ids(
    backend: tokenizers.Tokenizer, special_tokens: SpecialTokens
) -> SpecialTokenIds:
    def one(name: str) -> int:
        found = backend.token_to_id(name)
        if found is None:
            raise ValueError(f"the vocabulary lacks the special token {name!r}")
        return found

    def some(named: tuple[str, ...]) -> tuple[int, ...]:
        return tuple(one(name) for name in named)

    marks = some(sentinel_names(special_tokens))
    roles = {i for i, token in backend.get_added_tokens_decoder().items() if token.special}
    roles.update(marks, some(special_token_names(special_tokens)))
    vocab = backend.get_vocab(with_added_tokens=True)
    size = max(vocab.values()) + 1
    if size > 2 * len(vocab) + 1000:
        raise ValueError(f"the vocabulary has ids up to {size - 1}, but only {len(vocab)} pieces")
    return SpecialTokenIds(
        vocab_size=size,
        pad=one(special_tokens.pad),
        start=one(special_tokens.start),
        end=None if special_tokens.end is None else one(special_tokens.end),
        mask=None if special_tokens.mask is None else one(special_tokens.mask),
        unknown=None if special_tokens.unknown is None else one(special_tokens.unknown),
        prefix=some(special_tokens.prefix),
        separator=some(special_tokens.separator),
        suffix=some(special_tokens.suffix),
        sentinels=marks,
        modes=some(special_tokens.modes),
        languages=tuple(zip(special_tokens.languages, some(special_tokens.languages), strict=True)),
        language_first=special_tokens.language_first,
        all_ids=frozenset(roles),
    )


def _pipeline_without_special(
    backend: tokenizers.Tokenizer, state: dict[str, Any], special_ids: SpecialTokenIds
) -> tokenizers.Tokenizer:
    """Return a pipeline that reads typed special tokens as text.

    It is the same one, unless its model knows their names. The library can leave special tokens of
    a text to the model (`encode_special_tokens`). But a unigram model knows "</s>" as a piece like
    any other, and a good one. There the copy that encodes has other names for them, with a space at
    the end: no word ends so.
    """
    backend.encode_special_tokens = True
    named = {backend.id_to_token(i): i for i in special_ids.all_ids}
    reachable = state["model"].get("type") == "Unigram" or any(
        i in backend.encode(around.format(name), add_special_tokens=False).ids
        for name, i in named.items()
        if name != _unknown_token(state["model"])
        for around in ("{}", "a {} a", "a{}a")
    )
    if not reachable:
        return backend
    model, other = state["model"], {name: f"{name} " for name in named}
    vocab = model["vocab"]
    if isinstance(vocab, list):
        vocab = [[other.get(piece, piece), score] for piece, score in vocab]
    else:
        vocab = {other.get(piece, piece): i for piece, i in vocab.items()}
    model = model | {"vocab": vocab}
    if model.get("unk_token") in other:
        model["unk_token"] = other[model["unk_token"]]
    if "merges" in model:
        merges = [m for m in model["merges"] if not {*m, "".join(m)} & set(other)]
        model = model | {"merges": merges}
    added = [t | {"content": other.get(t["content"], t["content"])} for t in state["added_tokens"]]
    renamed = state | {"model": model, "added_tokens": added, "post_processor": None}
    copied = tokenizers.Tokenizer.from_str(json.dumps(renamed))
    copied.encode_special_tokens = True
    return copied


def _unknown_token(model: dict[str, Any]) -> str | None:
    """Return the token that a model writes for what it does not know."""
    if model.get("unk_id") is not None:
        return model["vocab"][model["unk_id"]][0]
    return model.get("unk_token")


def _transformers_config(special_tokens: SpecialTokens) -> dict[str, Any]:
    segments = pipeline.uses_segments(special_tokens)
    as_bert = segments and special_tokens.summary is None
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "model_input_names": [
            "input_ids", *(["token_type_ids"] if segments else []), "attention_mask",
        ],
        "pad_token": special_tokens.pad,
    }  # fmt: skip
    if special_tokens.unknown is not None:
        config["unk_token"] = special_tokens.unknown
    if special_tokens.mask is not None:
        config["mask_token"] = special_tokens.mask
    if special_tokens.prefix and special_tokens.mask is not None:
        config["cls_token"] = special_tokens.prefix[0]
    if special_tokens.summary is not None:
        config |= {"cls_token": special_tokens.summary, "sep_token": special_tokens.separator[0]}
        config["padding_side"] = "left"  # the last column is the one that tells of a whole text
    if (
        not as_bert and special_tokens.start != special_tokens.pad
    ) or special_tokens.start == special_tokens.end:
        config["bos_token"] = special_tokens.start
    if special_tokens.end is not None:
        if special_tokens.prefix and special_tokens.mask is not None:
            config["sep_token"] = special_tokens.end
        if not as_bert:
            config["eos_token"] = special_tokens.end
    if marks := (*sentinel_names(special_tokens), *special_tokens.languages):
        config["extra_special_tokens"] = list(marks)
    return config | {"unmask": {"special_tokens": to_dict(special_tokens)}}


def _check_ids(ids: Iterable[SupportsIndex]) -> list[int]:
    checked = [operator.index(i) for i in ids]
    if wrong := [i for i in checked if i < 0]:
        raise ValueError(f"an id must not be negative, got {wrong[0]}")
    return checked


def _byte_of_character() -> dict[str, int]:
    return {character: byte for byte, character in enumerate(pipeline.byte_characters())}
