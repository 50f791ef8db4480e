"""Text <-> ids, special tokens, words and sentences of each token; learn a vocabulary.

Encoding is done by pipelines of the `tokenizers` library. What is added here: which special tokens
stand where (`Special`), that a text can never write one by itself, and what begins at each token
(`Tokens.marks`).
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
from unmask.files import write_whole
from unmask.tokens import code_points, limits, pipeline, spelled, subwords
from unmask.tokens import learn as learning
from unmask.tokens.beginning import LONG, WHOLE, Cuts
from unmask.tokens.files import byt5_frame, code_points_frame, read
from unmask.tokens.marks import WordStarts, is_sign, with_sentences, word_characters
from unmask.tokens.vocabulary import (
    BERT,
    BPE,
    BYT5,
    CANINE,
    ELMO,
    GPT2,
    LLAMA,
    ROBERTA,
    T5,
    WORDS,
    ByteBPE,
    Bytes,
    Characters,
    CodePoints,
    CodePointsWithSubwords,
    Frame,
    SentencePieceBPE,
    Special,
    SpelledWords,
    TokenizerSpec,
    Unigram,
    Vocabulary,
    WordPiece,
    Words,
    names,
    sentinels,
)

__all__ = [
    "BERT", "BPE", "BYT5", "CANINE", "ELMO", "GPT2", "LLAMA", "ROBERTA", "T5", "WORDS",
    "ByT5Tokenizer", "ByteBPE", "Bytes", "Characters", "CodePointTokenizer", "CodePoints",
    "CodePointsWithSubwords", "Frame", "SentencePieceBPE", "Special", "SpelledTokenizer",
    "SpelledWords", "Tokenizer", "TokenizerSpec", "Unigram", "Vocabulary", "WordPiece", "Words",
    "learn",
]  # fmt: skip


_AT_ONCE = 8
"""Parts of a long text that are read together."""
_log = logging.getLogger(__name__)


class Tokenizer:
    """Text <-> ids.

    A special token that is typed in a text is text: `encode("[MASK]")` gives the pieces of those
    six characters, so that no corpus can put special tokens into training. `encode(text,
    special=True)` takes them as what they name.
    """

    special: Special
    """The ids that objectives and collation must know."""
    frame: Frame
    """The same by name."""
    size: int
    """Number of ids: one more than the highest."""
    where: str = "the tokenizer"
    """Where it was read from, for messages."""
    source: "Tokenizer | None" = None
    """Reads sources, where these have a vocabulary of their own."""

    def __init__(self, backend: tokenizers.Tokenizer, frame: Frame) -> None:
        """Wrap a pipeline whose vocabulary has all special tokens of `frame`.

        Raises:
            ValueError: it has not.
        """
        backend.no_truncation()
        backend.no_padding()
        self.frame = frame
        self.special = _special(backend, frame)
        self.size = self.special.size
        self._backend = backend
        state = json.loads(backend.to_str())
        self._plain = _plain(backend, state, self.special)
        self._typed: tokenizers.Tokenizer | None = None
        self._cuts: Cuts | None = None
        written = _unknown(state["model"])
        self._forbidden = np.zeros(self.size, bool)
        self._forbidden[[i for i in self.special.ids if backend.id_to_token(i) != written]] = True
        decoder = json.dumps(state["decoder"], ensure_ascii=False)
        self._bytes = _byte_of_character() if '"ByteLevel"' in decoder else None
        self._spaced = pipeline.SPACE in decoder
        vocab = backend.get_vocab(with_added_tokens=True)
        signs = self._signs(vocab) if frame.signs else None
        self._word_starts = WordStarts(state, vocab, self._forbidden, signs)

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy by the saved form: the library's own copies take typed special tokens as such."""
        return _restore, (self._backend.to_str(), self.frame), self._beside()

    @property
    def reader(self) -> "Tokenizer":
        """What reads sources and prompts: this one, unless these have a vocabulary of their own."""
        return self if self.source is None else self.source

    def reading(self, source: "Tokenizer") -> "Tokenizer":
        """Return this tokenizer with another one that reads the sources of what it says."""
        found = copy.copy(self)
        found.source = source
        return found

    def check_reads(self, what: str) -> None:
        """Check that texts are read in the vocabulary in which they are said.

        Raises:
            ValueError: they are not; `what` asks for it.
        """
        if self.source is not None:
            raise ValueError(
                f"{what}: this model reads its sources in a vocabulary of their own, and says text "
                "in another; it translates, by generate and predict"
            )

    def check_forward(self, what: str) -> None:
        """Check that texts are read from their beginning on.

        Raises:
            ValueError: they are not; `what` asks for it.
        """
        if self.frame.backward:
            raise ValueError(
                f"{what}: this model reads texts from their end, and says what stands before; it "
                "can be evaluated, fine-tuned and asked for labels"
            )

    def _beside(self) -> dict[str, Any] | None:
        """Return what a copy has besides its saved form."""
        return {"where": self.where} | ({} if self.source is None else {"source": self.source})

    def encode(self, text: str, *, special: bool = False) -> Tokens:
        """Turn a text into ids, without special tokens around it; newlines part its paragraphs.

        Args:
            text: whatever its length; the ids are those that the reference library gives for the
                whole of it.
            special: special tokens typed in the text ("[MASK]", "<extra_id_0>") are what they name,
                not text.

        Raises:
            ValueError: the text holds half of a surrogate pair, hence is no Unicode.
        """
        return self.encode_batch([text], special=special)[0]

    def encode_batch(self, texts: Sequence[str], *, special: bool = False) -> list[Tokens]:
        """Do as `encode` for many texts at once, on all cores."""
        ready = self._ready(texts, special=special)
        short = [text if len(text) <= WHOLE else "" for text in texts]
        with limits.library(f"{self.where} fails on a text"):
            encodings = ready.encode_batch(short, add_special_tokens=False)
        found = [self._tokens(t, e, special) for t, e in zip(short, encodings, strict=True)]
        for i, text in enumerate(texts):
            if len(text) > WHOLE:
                found[i] = self._tokens_of_long(ready, text, special)
        return [tokens.turned() for tokens in found] if self.frame.backward else found

    def ids_batch(
        self, texts: Sequence[str], *, special: bool = False
    ) -> list[Int[np.ndarray, "_"]]:
        """Return the ids of `encode_batch` alone, which takes less time than the marks."""
        ready = self._ready(texts, special=special)
        short = [text if len(text) <= WHOLE else "" for text in texts]
        with limits.library(f"{self.where} fails on a text"):
            encodings = ready.encode_batch_fast(short, add_special_tokens=False)
        found = [self._ids(encoding, special) for encoding in encodings]
        for i, text in enumerate(texts):
            if len(text) > WHOLE:
                parts = self._in_parts(ready, text, fast=True)
                found[i] = np.concatenate([self._ids(e, special)[n:] for e, n, _ in parts])
        return [ids[::-1].copy() for ids in found] if self.frame.backward else found

    def first_batch(
        self, texts: Sequence[str], n: int | None, *, special: bool = False
    ) -> list[Int[np.ndarray, "_"]]:
        """Return the first `n` ids of each text, or more; those of `ids_batch`, in less time.

        Of texts up to `beginning.LONG` characters, and where too few are known for certain before
        all of a text is read, there are all; and of None.
        """
        if n is None:
            return self.ids_batch(texts, special=special)
        found = self.ids_batch([t if len(t) <= LONG else "" for t in texts], special=special)
        for i, text in enumerate(texts):
            if len(text) > LONG:
                found[i] = self._first(text, n, special)
        return found

    def _first(self, text: str, n: int, special: bool) -> Int[np.ndarray, "_"]:
        pipeline.check_unicode(text)
        ids = None
        if not self.frame.backward:
            ids = self._at.first(lambda some: self.ids_batch(some, special=special), text, n)
        return self.ids_batch([text], special=special)[0] if ids is None else ids

    @property
    def _at(self) -> Cuts:
        """Where long texts may be cut."""
        if self._cuts is None:
            self._cuts = Cuts.of(self._backend, json.loads(self._backend.to_str()))
        return self._cuts

    def _in_parts(
        self, ready: tokenizers.Tokenizer, text: str, *, fast: bool
    ) -> Iterator[tuple[tokenizers.Encoding, int, slice]]:
        """Read a long text in parts.

        Yields:
            What was read, how many of its tokens are those of the part before, and where in the
            text it stands.
        """
        parts = self._at.parts(text)
        whole = max(end - begin for _, begin, end in parts)
        if whole > 4 * WHOLE:
            _log.warning(
                f"{self.where}: {whole:,} characters of a text are read at once, which takes time "
                "and memory, since nothing parts them for this tokenizer: it cuts at white space, "
                "or nowhere"
            )
        encode = ready.encode_batch_fast if fast else ready.encode_batch
        for i in range(0, len(parts), _AT_ONCE):
            some = parts[i : i + _AT_ONCE]
            with limits.library(f"{self.where} fails on a text"):
                leads = ready.encode_batch_fast(
                    [text[lead:begin] for lead, begin, _ in some], add_special_tokens=False
                )
                read = encode([text[lead:end] for lead, _, end in some], add_special_tokens=False)
            for (lead, _, end), before, encoding in zip(some, leads, read, strict=True):
                yield encoding, len(before.ids), slice(lead, end)

    def _tokens_of_long(self, ready: tokenizers.Tokenizer, text: str, special: bool) -> Tokens:
        found: list[tuple[np.ndarray, ...]] = []
        for encoding, n, at in self._in_parts(ready, text, fast=False):
            ids = self._ids(encoding, special)
            begins, ends = self._word_starts.of(text[at], encoding, ids)
            found.append((ids[n:], begins[n:], ends[n:] + at.start))
        ids, begins, ends = (np.concatenate(column) for column in zip(*found, strict=True))
        return Tokens(ids, with_sentences(text, begins, ends) if len(ids) else ids.astype(np.uint8))

    def decode(self, ids: Iterable[SupportsIndex], *, skip_special: bool = True) -> str:
        """Turn ids into text. An id above the vocabulary (a padded table's row) is nothing.

        Raises:
            ValueError: an id is negative.
        """
        read = _checked(ids)
        read = read[::-1] if self.frame.backward else read
        with limits.library(f"{self.where} fails on ids"):
            return self._backend.decode(read, skip_special_tokens=skip_special)

    @property
    def end_of_word(self) -> str | None:
        """What the last piece of a word ends with, if pieces tell ends (GPT: </w>)."""
        return getattr(self._backend.model, "end_of_word_suffix", None) or None

    def pieces(self, ids: Iterable[SupportsIndex]) -> list[str]:
        r"""Write each id for a person's eyes: spaces as spaces, bytes as text.

        Bytes that are no whole character are written as \xe2, an id above the vocabulary as
        <50300>; what continues a word in BERT's way keeps its ##, and what ends one in the original
        GPT's way its </w>.
        """
        return [self._piece(i) for i in _checked(ids)]

    def framed(self, frame: Frame) -> "Tokenizer":
        """Return this tokenizer with another frame, whose tokens have new ids where it lacks them.

        All other ids stay what they are; the new ones follow the highest.

        Raises:
            ValueError: there are free ids below the highest, which the new tokens would take.
        """
        backend = tokenizers.Tokenizer.from_str(self._backend.to_str())
        added = backend.get_added_tokens_decoder().values()
        special = {token.content for token in added if token.special}
        wanted = [name for name in names(frame) if name not in special]
        lacking = [name for name in wanted if backend.token_to_id(name) is None]
        backend.add_special_tokens(
            [tokenizers.AddedToken(name, special=True, normalized=False) for name in wanted]
        )
        pipeline.surround(backend, frame)
        found = [backend.token_to_id(name) for name in lacking]
        if found != list(range(self.size, self.size + len(lacking))):
            raise ValueError(
                f"{', '.join(lacking)} would have the ids {found}, not those from {self.size} on: "
                "this vocabulary has ids without a token"
            )
        return Tokenizer(backend, frame)

    def words(self) -> dict[str, int]:
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
        return {w: i for w, i in known if i not in self.special.ids and self._is_word(w)}

    @property
    def reads_words(self) -> bool:
        """Whether its tokens are words, whole ones alone."""
        return json.loads(self._backend.to_str())["model"]["type"] == "WordLevel"

    def count_words(self, texts: Iterable[str]) -> dict[str, int]:
        """Count the words of texts as this tokenizer cuts them, known or not.

        Raises:
            ValueError: there is no text.
        """
        return learning.count_words(texts, self._backend, names(self.frame))

    def with_words(self, words: Iterable[str], *, phrases: bool = False) -> "Tokenizer":
        """Return this tokenizer with more words, whose ids follow the highest, in their order.

        What is no word as it stands in a text (of a lower-case vocabulary, one with an upper-case
        letter) and what is known already is left out.

        Args:
            words: to add.
            phrases: what is no word as it stands in a text is added, too: a phrase whose words
                something else joins. No text is found to hold it.

        Raises:
            ValueError: see `words`.
        """
        self.words()
        state = json.loads(self._backend.to_str())
        known = state["model"]["vocab"]
        new = [w for w in dict.fromkeys(words) if w not in known and (phrases or self._is_word(w))]
        known.update({w: self.size + i for i, w in enumerate(new)})
        written = json.dumps(state, ensure_ascii=False)
        return Tokenizer(tokenizers.Tokenizer.from_str(written), self.frame)

    def _is_word(self, word: str) -> bool:
        """Say whether a word stands in a text as it is, and as one."""
        normal, cut = self._backend.normalizer, self._backend.pre_tokenizer
        same = normal is None or normal.normalize_str(word) == word
        return same and (cut is None or [w for w, _ in cut.pre_tokenize_str(word)] == [word])

    def told(self, source: str, target: str | None = None) -> "Tokenizer":
        """Return this tokenizer for texts of a language, answered in another (`Special.told`).

        Raises:
            ValueError: it has no token for the language.
        """
        found = self.untold()
        found.special = found.special.told(source, target)
        return found

    def untold(self) -> "Tokenizer":
        """Return this tokenizer as it is before it is told languages."""
        found = Tokenizer(tokenizers.Tokenizer.from_str(self._backend.to_str()), self.frame)
        found.source = self.source
        return found

    def offsets(self, text: str) -> list[tuple[int, int]]:
        """Find where in `text` each token of `encode(text)` stands, as a span of characters."""
        return [(begin, end) for begin, end in self.spans(text).tolist()]

    def spans(self, text: str) -> Int[np.ndarray, "t 2"]:
        """Return `offsets` as an array, which of a long text takes less memory."""
        ready = self._ready([text], special=False)
        if len(text) <= WHOLE:
            with limits.library(f"{self.where} fails on a text"):
                encoding = ready.encode(text, add_special_tokens=False)
            found = np.array(encoding.offsets, np.int64).reshape(-1, 2)
        else:
            found = np.concatenate(
                [
                    np.array(encoding.offsets[n:], np.int64).reshape(-1, 2) + at.start
                    for encoding, n, at in self._in_parts(ready, text, fast=False)
                ]
            )
        return found[::-1] if self.frame.backward else found

    def save(
        self, folder: Path, *, length: int | None = None, segments: bool | None = None
    ) -> None:
        """Write tokenizer.json and tokenizer_config.json; transformers.AutoTokenizer opens them.

        Args:
            folder: made if it is not there.
            length: the longest row that the model reads, for `model_max_length`.
            segments: whether the model is told which of two texts a token is of. None: if that is
                so in the family of the special tokens.
        """
        folder.mkdir(parents=True, exist_ok=True)
        config = _config(self.frame) | self._habits()
        config |= {} if length is None else {"model_max_length": length}
        if segments is not None:
            there = ["token_type_ids"] if segments else []
            config["model_input_names"] = ["input_ids", *there, "attention_mask"]
        write_whole(folder / "tokenizer.json", self._surrounding().to_str(pretty=True))
        write_whole(
            folder / "tokenizer_config.json",
            json.dumps(config, ensure_ascii=False, indent=2) + "\n",
        )

    def _habits(self) -> dict[str, bool | None]:
        """Say what BERT's own class in transformers must be told, or takes otherwise."""
        normal = json.loads(self._backend.to_str())["normalizer"] or {}
        if normal.get("type") != "BertNormalizer":
            return {}
        return {
            "do_lower_case": normal["lowercase"],
            "strip_accents": normal["strip_accents"],
            "tokenize_chinese_chars": normal["handle_chinese_chars"],
        }

    def _surrounding(self) -> tokenizers.Tokenizer:
        """Return the backend, which puts languages that were told around texts, too."""
        if not self.special.languages or self.special.untold:
            return self._backend
        special = self.special
        before, after = self.pieces(special.before), self.pieces(special.after)
        backend = tokenizers.Tokenizer.from_str(self._backend.to_str())
        frame = replace(self.frame, before=tuple(before), after=tuple(after))
        pipeline.surround(backend, frame)
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
        frame = code_points_frame(Path(folder))
        if frame is not None:
            return CodePointTokenizer(frame, subwords.read(Path(folder)))
        of_bytes = byt5_frame(Path(folder))
        if of_bytes is not None:
            return ByT5Tokenizer(*of_bytes)
        known = spelled.read(Path(folder))
        backend, frame = read(Path(folder))
        try:
            made = cls(backend, frame) if known is None else SpelledTokenizer(backend, frame, known)
        except ValueError as error:
            raise ValueError(f"{folder}: {error}") from error
        made.where = str(folder)
        return made

    def _ready(self, texts: Sequence[str], *, special: bool) -> tokenizers.Tokenizer:
        """Check texts and return what encodes them."""
        for text in texts:
            pipeline.check_unicode(text)
        if not special:
            return self._plain
        if self._typed is None:
            self._typed = copy.deepcopy(self._backend)
            self._typed.encode_special_tokens = False
        return self._typed

    def _ids(self, encoding: tokenizers.Encoding, special: bool) -> Int[np.ndarray, "_"]:
        ids = np.array(encoding.ids, np.int64)
        if not special and self._forbidden[ids].any():
            name = self._backend.id_to_token(int(ids[self._forbidden[ids]][0]))
            raise ValueError(
                f"the text holds {name!r}, which this tokenizer can write only as the special token"
            )
        return ids

    def _tokens(self, text: str, encoding: tokenizers.Encoding, special: bool) -> Tokens:
        ids = self._ids(encoding, special)
        if not len(ids):
            return Tokens(ids, np.zeros(0, np.uint8))
        starts, ends = self._word_starts.of(text, encoding, ids)
        return Tokens(ids, with_sentences(text, starts, ends))

    def _piece(self, i: int) -> str:
        token = self._backend.id_to_token(i)
        if token is None:
            return f"<{i}>"
        if i in self.special.ids:
            return token
        if self._bytes is not None and all(c in self._bytes for c in token):
            return bytes(self._bytes[c] for c in token).decode("utf-8", "backslashreplace")
        return token.replace(pipeline.SPACE, " ") if self._spaced else token

    def _signs(self, pieces: Mapping[str, int]) -> np.ndarray:
        signs = np.zeros(self.size, bool)
        signs[[i for i in pieces.values() if is_sign(self._piece(i))]] = True
        return signs


class CodePointTokenizer(Tokenizer):
    """Text <-> Unicode code points: a tokenizer without a vocabulary (CANINE).

    It may know subwords (`Special.subwords`), which it neither reads nor writes.

    Deviates: a character of a text whose code point is a special token's (U+0000, and U+E000 to
    U+E003 of the private use area) is read as U+FFFD, so that no text writes a special token; the
    released code would take it as one.
    """

    def __init__(self, frame: Frame, known: subwords.WordPieces | None = None) -> None:
        """Make the tokenizer of a frame, whose tokens have fixed ids.

        Args:
            frame: of the characters.
            known: the subwords beside them.

        Raises:
            ValueError: a token of the frame has no id, or texts are to be read backward.
        """
        if frame.backward:
            raise ValueError("frame.backward: code points are read forward")
        self.frame, self._subwords = frame, known
        self.special = replace(code_points.special(frame), subwords=known)
        self.size = self.special.size

    def __reduce__(self) -> tuple[Any, ...]:
        return CodePointTokenizer, (self.frame, self._subwords), self._beside()

    def encode_batch(self, texts: Sequence[str], *, special: bool = False) -> list[Tokens]:
        """Do as `encode` for many texts."""
        return [self._read(text, special) for text in texts]

    def ids_batch(
        self, texts: Sequence[str], *, special: bool = False
    ) -> list[Int[np.ndarray, "_"]]:
        """Return the ids of `encode_batch` alone, which takes less time than the marks."""
        return [self._coded(text, special)[0] for text in texts]

    def _first(self, text: str, n: int, special: bool) -> Int[np.ndarray, "_"]:
        """Read a character a token, and where special tokens may be typed, as many as one has."""
        pipeline.check_unicode(text)
        each = max(map(len, code_points.SPECIAL)) if special else 1
        return self._coded(text[: (n + 1) * each], special)[0][:n]

    def decode(self, ids: Iterable[SupportsIndex], *, skip_special: bool = True) -> str:
        """Turn ids into text. An id that is no character is nothing.

        Raises:
            ValueError: an id is negative.
        """
        return code_points.decode(_checked(ids), skip_special=skip_special)

    def pieces(self, ids: Iterable[SupportsIndex]) -> list[str]:
        """Write each id for a person's eyes; one that is no character as <1114112>."""
        return [code_points.decode([i], skip_special=False) or f"<{i}>" for i in _checked(ids)]

    def framed(self, frame: Frame) -> "CodePointTokenizer":
        """Return this tokenizer with another frame.

        Raises:
            ValueError: a token of the frame has no code point.
        """
        return CodePointTokenizer(frame, self._subwords)

    def offsets(self, text: str) -> list[tuple[int, int]]:
        """Find where in `text` each token of `encode(text)` stands: a character each."""
        return [(begin, end) for begin, end in self.spans(text).tolist()]

    def spans(self, text: str) -> Int[np.ndarray, "t 2"]:
        """Return `offsets` as an array."""
        pipeline.check_unicode(text)
        return np.arange(len(text))[:, None] + np.arange(2)

    def save(
        self, folder: Path, *, length: int | None = None, segments: bool | None = None
    ) -> None:
        """Write tokenizer_config.json, as transformers.CanineTokenizer reads it, and any subwords.

        Args:
            folder: made if it is not there.
            length: the longest row that the model reads, for `model_max_length`.
            segments: that tokenizer tells them always.
        """
        folder.mkdir(parents=True, exist_ok=True)
        frame = self.frame
        roles = {
            "pad": frame.pad, "bos": frame.start, "eos": frame.end,
            "cls": frame.before[0] if frame.before else None, "sep": frame.end, "mask": frame.mask,
        }  # fmt: skip
        said = {
            f"{k}_token": chr(code_points.SPECIAL[v]) for k, v in roles.items() if v is not None
        }
        config = {
            "tokenizer_class": "CanineTokenizer",
            **said,
            **({} if length is None else {"model_max_length": length}),
            "unmask": {"frame": to_dict(frame)},
        }
        if self._subwords is not None:
            subwords.save(self._subwords, folder)
        write_whole(folder / "tokenizer_config.json", json.dumps(config, indent=2) + "\n")

    def _coded(
        self, text: str, special: bool
    ) -> tuple[Int[np.ndarray, "t"], Int[np.ndarray, "t"], Int[np.ndarray, "t"]]:
        """Return the ids, and where in the text each token starts and ends."""
        pipeline.check_unicode(text)
        ids, starts = code_points.encode(text), np.arange(len(text))
        ends = starts + 1
        if not special:
            return ids, starts, ends
        kept = np.ones(len(text), bool)
        for found in _SPECIAL_NAME.finditer(text):
            first, last = found.span()
            ids[first], ends[first] = code_points.SPECIAL[found[0]], last
            kept[first + 1 : last] = False
        return ids[kept], starts[kept], ends[kept]

    def _read(self, text: str, special: bool) -> Tokens:
        ids, starts, ends = self._coded(text, special)
        if not len(ids):
            return Tokens(ids, np.zeros(0, np.uint8))
        return Tokens(ids, with_sentences(text, word_characters(text)[starts], ends))


class ByT5Tokenizer(Tokenizer):
    """Text <-> bytes of UTF-8, as transformers.ByT5Tokenizer has them: there is nothing to learn.

    Xue et al. 2022, arXiv:2105.13626, section 3.1. Its sentinels are those of the published models,
    bytes that stand in no text, from 0xFF down.
    """

    def __init__(self, frame: Frame = BYT5, spare: int = 125) -> None:
        """Make the tokenizer of a frame.

        Args:
            frame: whose tokens have the first ids.
            spare: so many ids above the bytes are unused.

        Raises:
            ValueError: there are more sentinels than such bytes.
        """
        super().__init__(pipeline.byt5(frame, spare), frame)
        self._spare = spare

    def __reduce__(self) -> tuple[Any, ...]:
        return ByT5Tokenizer, (self.frame, self._spare), self._beside()

    def save(
        self, folder: Path, *, length: int | None = None, segments: bool | None = None
    ) -> None:
        """Write tokenizer_config.json, as transformers.ByT5Tokenizer reads it.

        Args:
            folder: made if it is not there.
            length: the longest row that the model reads, for `model_max_length`.
            segments: that tokenizer tells none.
        """
        folder.mkdir(parents=True, exist_ok=True)
        frame = self.frame
        config = {
            "tokenizer_class": "ByT5Tokenizer",
            "pad_token": frame.pad,
            "eos_token": frame.end,
            "unk_token": frame.unknown,
            "extra_ids": self._spare,
            **({} if length is None else {"model_max_length": length}),
            "unmask": {"frame": to_dict(frame)},
        }
        write_whole(folder / "tokenizer_config.json", json.dumps(config, indent=2) + "\n")


class SpelledTokenizer(Tokenizer):
    """Text <-> bytes that say where words begin, with words beside them that a loss asks for.

    Those are `Special.subwords`; the tokenizer neither reads nor writes them.
    """

    def __init__(
        self, backend: tokenizers.Tokenizer, frame: Frame, known: spelled.KnownWords
    ) -> None:
        """Wrap a pipeline (`pipeline.spelled`), and the words."""
        super().__init__(backend, frame)
        self._known = known
        self.special = replace(self.special, subwords=known)

    def __reduce__(self) -> tuple[Any, ...]:
        state = self._backend.to_str(), self.frame, self._known
        return _restore_spelled, state, self._beside()

    def framed(self, frame: Frame) -> "SpelledTokenizer":
        """Return this tokenizer with another frame."""
        return SpelledTokenizer(super().framed(frame)._backend, frame, self._known)

    def save(
        self, folder: Path, *, length: int | None = None, segments: bool | None = None
    ) -> None:
        """Write what every tokenizer writes, and the words."""
        super().save(folder, length=length, segments=segments)
        spelled.save(self._known, folder)


_SPECIAL_NAME = re.compile("|".join(map(re.escape, code_points.SPECIAL)))


def learn(spec: TokenizerSpec, texts: Iterable[str]) -> Tokenizer:
    """Learn a tokenizer from texts, read once; the same texts give the same one.

    Where the texts are too few for the size asked, the vocabulary is smaller (`Tokenizer.size`),
    and a warning is logged. Of code points alone nothing is learned, and no text is read.

    Raises:
        ValueError: the size is too small for the special tokens and the single characters, or there
            is no text.
    """
    if isinstance(spec.vocabulary, CodePoints):
        return CodePointTokenizer(spec.frame)
    if isinstance(spec.vocabulary, CodePointsWithSubwords):
        return CodePointTokenizer(spec.frame, subwords.learned(spec.vocabulary.size, texts))
    if isinstance(spec.vocabulary, SpelledWords):
        backend = pipeline.spelled(spec.frame)
        known = spelled.learned(spec.vocabulary.size, backend, texts)
        return SpelledTokenizer(backend, spec.frame, known)
    if isinstance(spec.vocabulary, Bytes) and spec.vocabulary.spare is not None:
        return ByT5Tokenizer(spec.frame, spec.vocabulary.spare)
    return Tokenizer(learning.backend(spec, texts), spec.frame)


def _restore(state: str, frame: Frame) -> Tokenizer:
    return Tokenizer(tokenizers.Tokenizer.from_str(state), frame)


def _restore_spelled(state: str, frame: Frame, known: spelled.KnownWords) -> SpelledTokenizer:
    return SpelledTokenizer(tokenizers.Tokenizer.from_str(state), frame, known)


def _special(backend: tokenizers.Tokenizer, frame: Frame) -> Special:
    def one(name: str) -> int:
        found = backend.token_to_id(name)
        if found is None:
            raise ValueError(f"the vocabulary lacks the special token {name!r}")
        return found

    def some(named: tuple[str, ...]) -> tuple[int, ...]:
        return tuple(one(name) for name in named)

    marks = some(sentinels(frame))
    roles = {i for i, token in backend.get_added_tokens_decoder().items() if token.special}
    roles.update(marks, some(names(frame)))
    vocab = backend.get_vocab(with_added_tokens=True)
    size = max(vocab.values()) + 1
    if size > 2 * len(vocab) + 1000:
        raise ValueError(f"the vocabulary has ids up to {size - 1}, but only {len(vocab)} pieces")
    return Special(
        size=size,
        pad=one(frame.pad),
        start=one(frame.start),
        end=None if frame.end is None else one(frame.end),
        mask=None if frame.mask is None else one(frame.mask),
        unknown=None if frame.unknown is None else one(frame.unknown),
        before=some(frame.before),
        between=some(frame.between),
        after=some(frame.after),
        sentinels=marks,
        modes=some(frame.modes),
        languages=tuple(zip(frame.languages, some(frame.languages), strict=True)),
        language_first=frame.language_first,
        ids=frozenset(roles),
    )


def _plain(
    backend: tokenizers.Tokenizer, state: dict[str, Any], special: Special
) -> tokenizers.Tokenizer:
    """Return a pipeline that reads typed special tokens as text.

    It is the same one, unless its model knows their names. The library can leave special tokens of
    a text to the model (`encode_special_tokens`). But a unigram model knows "</s>" as a piece like
    any other, and a good one. There the copy that encodes has other names for them, with a space at
    the end: no word ends so.
    """
    backend.encode_special_tokens = True
    named = {backend.id_to_token(i): i for i in special.ids}
    reachable = state["model"].get("type") == "Unigram" or any(
        i in backend.encode(around.format(name), add_special_tokens=False).ids
        for name, i in named.items()
        if name != _unknown(state["model"])
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


def _unknown(model: dict[str, Any]) -> str | None:
    """Return the token that a model writes for what it does not know."""
    if model.get("unk_id") is not None:
        return model["vocab"][model["unk_id"]][0]
    return model.get("unk_token")


def _config(frame: Frame) -> dict[str, Any]:
    segments = pipeline.has_segments(frame)
    as_bert = segments and frame.summary is None
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "model_input_names": [
            "input_ids", *(["token_type_ids"] if segments else []), "attention_mask",
        ],
        "pad_token": frame.pad,
    }  # fmt: skip
    if frame.unknown is not None:
        config["unk_token"] = frame.unknown
    if frame.mask is not None:
        config["mask_token"] = frame.mask
    if frame.before and frame.mask is not None:
        config["cls_token"] = frame.before[0]
    if frame.summary is not None:
        config |= {"cls_token": frame.summary, "sep_token": frame.between[0]}
        config["padding_side"] = "left"  # the last column is the one that tells of a whole text
    if (not as_bert and frame.start != frame.pad) or frame.start == frame.end:
        config["bos_token"] = frame.start
    if frame.end is not None:
        if frame.before and frame.mask is not None:
            config["sep_token"] = frame.end
        if not as_bert:
            config["eos_token"] = frame.end
    if marks := (*sentinels(frame), *frame.languages):
        config["extra_special_tokens"] = list(marks)
    return config | {"unmask": {"frame": to_dict(frame)}}


def _checked(ids: Iterable[SupportsIndex]) -> list[int]:
    checked = [operator.index(i) for i in ids]
    if wrong := [i for i in checked if i < 0]:
        raise ValueError(f"an id must not be negative, got {wrong[0]}")
    return checked


def _byte_of_character() -> dict[str, int]:
    return {character: byte for byte, character in enumerate(pipeline.byte_characters())}
