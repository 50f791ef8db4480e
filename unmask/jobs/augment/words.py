"""TinyBERT's data augmentation: words are replaced by what a masked language model predicts there.

Jiao et al. 2020, arXiv:1909.10351, algorithm 1.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from unmask.config import check_number_fields
from unmask.generation.fill_mask import MASK_PLACEHOLDER, unsupported_reason
from unmask.generation.text_batches import max_read_length
from unmask.inference.pipeline import Pipeline
from unmask.inference.vectors.load_word_vectors import load_word_vectors
from unmask.jobs.augment.table import TrainingTable
from unmask.tasks.readers.task_reader import find_text_or_pair
from unmask.text.formats.records import check_text
from unmask.word_vectors.evaluation.similarity import is_lower_case
from unmask.word_vectors.keyed_vectors import KeyedVectors

_WORD = re.compile(r"(?<![\w'’])[^\W\d_]+(?![\w'’])")
"""Letters alone: no numbers, and no parts of "don't"."""
_ROWS_AT_ONCE = 32
_PREDICTED_PER_CANDIDATE = 3
"""Tokens that are predicted for each candidate, since some are no whole words."""
_SPARE_TOKENS = 16
"""Tokens of the longest text that are left for special tokens, and for others around a mask."""


@dataclass(frozen=True)
class _Place:
    """A word that may be replaced."""

    start: int
    end: int
    candidates: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class WordReplacement:
    """Copies of each row, in whose texts words are replaced at random.

    A word that is one token is replaced by one of the candidates that a masked language model
    predicts in its place, all others by one of their nearest neighbors among word vectors.
    `Deviates:` as in the released code, candidates are predicted once, in the original text, and
    the other words are not replaced yet; a predicted token that is no whole word is no candidate.
    """

    copies: int = 20
    """Number of copies of each row (N_a); those that do not differ are left out."""
    probability: float = 0.4
    """Probability with which a word is replaced (p_t)."""
    candidates: int = 15
    """Number of candidates for each word (K)."""
    vectors: str | None = None
    """File of word vectors, or a model. None: words of several tokens stay."""

    def __post_init__(self) -> None:
        """Refuse numbers out of range."""
        check_number_fields(self)
        for name in ("copies", "candidates"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if not 0 < self.probability <= 1:
            raise ValueError(f"probability must be above 0 and at most 1, got {self.probability:g}")

    def new_rows(self, source: TrainingTable) -> Iterator[dict[str, Any]]:
        """Yield each row, and then its copies.

        Raises:
            FileNotFoundError: there are no such vectors.
            ValueError: the model fills no masks, has fewer tokens than candidates, or a column of
                text holds something else.
        """
        self._check(source)
        table, names = source.table, source.text or find_text_or_pair(source.table)
        space = None if self.vectors is None else load_word_vectors(self.vectors)
        finder = _CandidateFinder(source.pipeline, self.candidates, space)
        columns = [_texts(source, name) for name in names]
        for first in range(0, len(table), _ROWS_AT_ONCE):
            rows = range(first, min(first + _ROWS_AT_ONCE, len(table)))
            some = [column[i] for i in rows for column in columns]
            places = finder.find(some)
            for i, row in enumerate(rows):
                own = slice(i * len(names), (i + 1) * len(names))
                copies = self._copies(source.seed, row, some[own], places[own])
                for texts in dict.fromkeys([tuple(some[own]), *copies]):
                    yield source.row(row) | dict(zip(names, texts, strict=True))
            source.show_progress(rows.stop)

    def _check(self, source: TrainingTable) -> None:
        pipeline = source.pipeline
        if (reason := unsupported_reason(pipeline.model, pipeline.tokenizer)) is not None:
            raise ValueError(reason)
        if pipeline.model.architecture.is_encoder_decoder:
            raise ValueError(f"words: {pipeline.preset.name} is no masked language model")
        if self.candidates > (size := pipeline.tokenizer.vocab_size):
            raise ValueError(
                f"words: candidates must be at most the {size:,} tokens of the vocabulary, got "
                f"{self.candidates:,}"
            )
        if source.label is not None:
            raise ValueError("label is of outputs; words leaves all but the texts as they are")

    def _copies(
        self, seed: int, row: int, texts: Sequence[str], places: Sequence[Sequence[_Place]]
    ) -> Iterator[tuple[str, ...]]:
        """Yield the texts of each copy; copy `n` of a row is drawn by (seed, row, n)."""
        for n in range(self.copies):
            rng = np.random.default_rng((seed, row, n))
            yield tuple(
                self._replace(text, own, rng) for text, own in zip(texts, places, strict=True)
            )

    def _replace(self, text: str, places: Sequence[_Place], rng: np.random.Generator) -> str:
        parts, end = list[str](), 0
        for place in places:
            if rng.random() < self.probability:
                word = place.candidates[int(rng.integers(len(place.candidates)))]
                parts += [text[end : place.start], word]
                end = place.end
        return "".join([*parts, text[end:]])


def _texts(source: TrainingTable, name: str) -> list[str]:
    """Return the texts of a column.

    Raises:
        ValueError: it holds something else.
    """
    table, errors = source.table, source.encoding_errors
    values = enumerate(table.column(name))
    return [check_text(value, table.location(i), name, errors) for i, value in values]


class _CandidateFinder:
    """Finds the words of texts that may be replaced, and their candidates."""

    def __init__(self, pipeline: Pipeline, n_candidates: int, space: KeyedVectors | None) -> None:
        self.pipeline, self.n_candidates, self.space = pipeline, n_candidates, space
        self._is_lower_case = space is not None and is_lower_case(space)
        self._neighbors_of: dict[str, tuple[str, ...]] = {}
        self._whole_words: dict[str, bool] = {}

    def find(self, texts: Sequence[str]) -> list[list[_Place]]:
        """Return the words of each text that have candidates, in order."""
        found: list[list[_Place]] = [[] for _ in texts]
        asked, masked = list[tuple[int, int, int]](), list[str]()
        for i, text in enumerate(texts):
            single = _single_token_words(self.pipeline, text)
            for match in _WORD.finditer(text):
                start, end = match.span()
                if (start, end) in single:
                    left, right = single[start, end]
                    asked.append((i, start, end))
                    masked.append(text[left:start] + MASK_PLACEHOLDER + text[end:right])
                elif near := self._neighbors(match[0]):
                    found[i].append(_Place(start, end, near))
        n = _PREDICTED_PER_CANDIDATE * self.n_candidates
        predicted = self.pipeline.fill(masked, top_k=n)
        for (i, start, end), filled in zip(asked, predicted, strict=True):
            words = [one.text for one in filled.blanks[0] if self._is_whole_word(one.text)]
            if words:
                found[i].append(_Place(start, end, tuple(words[: self.n_candidates])))
        return [sorted(places, key=lambda place: place.start) for places in found]

    def _neighbors(self, word: str) -> tuple[str, ...]:
        """Return the nearest words by their vectors; none if it has no vector."""
        word = word.lower() if self._is_lower_case else word
        if self.space is None or not self.space.has_vector(word):
            return ()
        if word not in self._neighbors_of:
            near = self.space.neighbors([word], self.n_candidates)[0]
            self._neighbors_of[word] = tuple(n.word for n in near if _WORD.fullmatch(n.word))
        return self._neighbors_of[word]

    def _is_whole_word(self, text: str) -> bool:
        """Return whether a predicted token is a whole word: letters that are one token."""
        if text not in self._whole_words:
            self._whole_words[text] = (
                _WORD.fullmatch(text) is not None
                and len(self.pipeline.tokenizer.offset_array(f" {text}")) == 1
            )
        return self._whole_words[text]


def _single_token_words(pipeline: Pipeline, text: str) -> dict[tuple[int, int], tuple[int, int]]:
    """Return the words that are one token, each with the part of the text that is read around it.

    Of a text that is longer than the model reads, that is as much on either side.
    """
    if MASK_PLACEHOLDER in text or (pipeline.tokenizer.special_tokens.mask or "\0") in text:
        return {}
    model = pipeline.model
    limit = max_read_length(model, model.backbone.decoder_stack)
    places = pipeline.tokenizer.offset_array(text)
    room = len(places) if limit is None else max((limit - _SPARE_TOKENS) // 2, 1)
    found: dict[tuple[int, int], tuple[int, int]] = {}
    ids, unknown = pipeline.tokenizer.encode(text).ids, pipeline.tokenizer.special_ids.unknown
    for i, (start, end) in enumerate(places.tolist()):
        if ids[i] == unknown:
            continue
        begin = end - len(text[start:end].lstrip())
        left, right = max(i - room, 0), min(i + room, len(places) - 1)
        first, last = int(places[left, 0]), int(places[right, 1])
        found[begin, end] = (
            0 if left == 0 else first,
            len(text) if i + room >= len(places) else last,
        )
    return found
