"""A corpus of word ids, as a view of shards by sentence, and the lexicon of words with vectors.

Only the current chunk is copied. Positions count tokens from the start of the corpus.
"""

import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import accumulate, pairwise
from pathlib import Path
from types import ModuleType
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float, Int, UInt, UInt32

from unmask.batch import PARAGRAPH_START, SENTENCE_START
from unmask.shards import rows
from unmask.shards.read import TokenShards
from unmask.tokenizers.encode import Tokenizer
from unmask.word_vectors.formats.npy import open_npy

TextUnit = Literal["document", "paragraph", "sentence"]
MAX_DOCUMENT_WORDS = 10_000
"""Maximum number of tokens in a sentence; longer ones are split, as in gensim (the released code:
1,000)."""
_RANDOM_BITS = {"document": 0, "paragraph": PARAGRAPH_START, "sentence": SENTENCE_START}


@dataclass(frozen=True, eq=False)
class CorpusPart:
    """A contiguous array of ids with the spans of its sentences."""

    ids: UInt[np.ndarray, "t"]
    """uint16 or uint32, read-only."""
    sentences: Int[np.ndarray, "n 2"]
    """(start, end) in `ids`, in order. Ids outside of sentences are skipped."""
    offset: int = 0
    """Position of the first id in the corpus."""


class CorpusChunk(NamedTuple):
    """Consecutive whole sentences of a part."""

    part: CorpusPart
    first: int
    last: int
    """Exclusive."""

    @property
    def sentences(self) -> Int[np.ndarray, "n 2"]:
        """(start, end) of each in the part."""
        return self.part.sentences[self.first : self.last]

    @property
    def start(self) -> int:
        """Position of the first id in the corpus."""
        return self.part.offset + int(self.part.sentences[self.first, 0])

    @property
    def end(self) -> int:
        """Position after the last id in the corpus."""
        return self.part.offset + int(self.part.sentences[self.last - 1, 1])


@dataclass(frozen=True, eq=False)
class Corpus:
    """A view of ids in several parts, each opened when it is needed."""

    part_sizes: tuple[int, ...]
    """Number of ids of each part."""
    n_ids: int
    """One more than the highest id."""
    read_part: Callable[[int], CorpusPart]
    """Opens a part by its number."""

    @property
    def n_tokens(self) -> int:
        """Number of ids of all parts."""
        return sum(self.part_sizes)

    def iter_chunks(self, n_tokens: int, start: int = 0) -> Iterator[CorpusChunk]:
        """Split the corpus into chunks of about `n_tokens` ids, from a start position.

        Chunk boundaries do not depend on the start. A sentence that starts before it is left out.
        """
        ends = list(accumulate(self.part_sizes))
        for number, end in enumerate(ends):
            if end <= start:
                continue
            part = self.read_part(number)
            starts = part.sentences[:, 0]
            begun = int(np.searchsorted(starts, start - part.offset))
            cuts = np.flatnonzero(np.diff(starts // n_tokens)) + 1
            cuts = [begun, *cuts[cuts > begun].tolist(), len(starts)]
            for first, last in pairwise(cuts):
                if first < last:
                    yield CorpusChunk(part, first, last)


def corpus_from_shards(
    shards: TokenShards, unit: TextUnit = "sentence", within: Int[np.ndarray, "n 2"] | None = None
) -> Corpus:
    """View the ids of shards, memory-mapped; a sentence is a unit of text.

    Args:
        shards: tokenized text whose ids are the words, or other units, that have vectors.
        unit: unit of text that limits context windows.
        within: spans of ids, in order, as from `TokenShards.split_held_out`. None: all ids.

    Raises:
        ValueError: the unit is unknown.
    """
    if unit not in _RANDOM_BITS:
        raise ValueError(f"the unit of windows must be one of {list(_RANDOM_BITS)}, got {unit!r}")
    sizes = tuple(shard.n_tokens for shard in shards.manifest.shards)
    starts = [0, *accumulate(sizes)]
    spans = shards.document_spans if within is None else within

    def read(number: int) -> CorpusPart:
        start, end = starts[number], starts[number + 1]
        ids, marks = shards.mapped_arrays(number)
        borders = shards.document_spans[:, 0]
        borders = borders[slice(*np.searchsorted(borders, (start, end)))] - start
        inside = spans[np.searchsorted(spans[:, 1], start, "right") :]
        inside = inside[: np.searchsorted(inside[:, 0], end)]
        inside = np.clip(inside, start, end) - start
        marked = np.flatnonzero(marks & _RANDOM_BITS[unit]) if _RANDOM_BITS[unit] else borders[:0]
        places = np.union1d(np.union1d(marked, borders), inside[:, 0])
        return _make_part(
            ids,
            rows.split_spans(*rows.positions_in_spans(places, inside), MAX_DOCUMENT_WORDS),
            start,
        )

    return Corpus(sizes, shards.tokenizer.vocab_size, read)


def corpus_from_ids(
    ids: UInt[np.ndarray, "t"], sentences: Int[np.ndarray, "n 2"] | None = None
) -> Corpus:
    """View ids in one array, in memory or memory-mapped.

    Args:
        ids: uint16 or uint32.
        sentences: (start, end) of each sentence, in order. None: one sentence.

    Raises:
        ValueError: the ids have another type, or sentences are unordered, overlap or exceed the
            array.
    """
    if ids.dtype.name not in ("uint16", "uint32"):
        raise ValueError(f"ids must be uint16 or uint32, got {ids.dtype}")
    if sentences is None:
        sentences = np.array([[0, len(ids)]])
    edges = sentences.ravel()
    if len(edges) and (edges[0] < 0 or edges[-1] > len(ids) or (np.diff(edges) < 0).any()):
        raise ValueError(f"sentences must lie in order within the {len(ids)} ids")
    part = _make_part(
        ids, rows.split_spans(sentences[:, 0], sentences[:, 1], MAX_DOCUMENT_WORDS), 0
    )
    return Corpus((len(ids),), int(ids.max(initial=0)) + 1, lambda _: part)


def corpus_from_folder(folder: Path) -> Corpus:
    """View ids in `ids.npy`, memory-mapped, with (start, end) of sentences in `sentences.npy`.

    Raises:
        FileNotFoundError: there are none.
    """
    return corpus_from_ids(open_npy(folder / IDS_FILE), open_npy(folder / SENTENCES_FILE, 2))


IDS_FILE, SENTENCES_FILE = "ids.npy", "sentences.npy"


@dataclass(frozen=True, eq=False)
class Lexicon:
    """The words that have vectors, by descending frequency; row i is word i."""

    words: tuple[str, ...]
    counts: Int[np.ndarray, "n"]
    """Number of occurrences of each word in the corpus."""
    row_of: Int[np.ndarray, "v"]
    """The row of each id (int32); -1 for ids without a vector, which are skipped."""

    def __len__(self) -> int:
        return len(self.words)

    @property
    def n_words(self) -> int:
        """Number of corpus tokens that have a row."""
        return int(self.counts.sum())


def count_ids(corpus: Corpus) -> Int[np.ndarray, "v"]:
    """Count the occurrences of each id in the corpus."""
    counts = np.zeros(corpus.n_ids, np.int64)
    for chunk in corpus.iter_chunks(2**24):
        load_kernels("words").count_ids(chunk.part.ids, chunk.sentences, counts)
    return counts


def build_lexicon(
    words: Sequence[str],
    counts: Int[np.ndarray, "v"],
    excluded_ids: Iterable[int] = (),
    min_count: int = 5,
    max_words: int | None = None,
) -> Lexicon:
    """Select the words that have vectors.

    Args:
        words: the word of each id.
        counts: the count of each id, from `count_ids`.
        excluded_ids: ids without a vector: special tokens, the unknown word.
        min_count: minimum count of a word.
        max_words: maximum number of words, the most frequent. None: all.

    Raises:
        ValueError: the numbers of words and ids differ, or no word is left.
    """
    if len(words) != len(counts):
        raise ValueError(f"{len(words)} words for {len(counts)} ids")
    allowed = counts >= max(min_count, 1)
    allowed[list(excluded_ids)] = False
    ids = np.flatnonzero(allowed)
    ids = ids[np.argsort(-counts[ids], kind="stable")][:max_words]
    if not len(ids):
        raise ValueError(f"no word is seen {min_count} times or more: there is nothing to learn")
    row_of = np.full(len(words), -1, np.int32)
    row_of[ids] = np.arange(len(ids))
    return Lexicon(tuple(words[int(i)] for i in ids), counts[ids], row_of)


def lexicon_from_tokenizer(
    tokenizer: Tokenizer,
    counts: Int[np.ndarray, "v"],
    min_count: int = 5,
    max_words: int | None = None,
) -> Lexicon:
    """Select the words of a tokenizer that have vectors.

    Special tokens, the unknown word and punctuation are left out, so that the words around a comma
    are neighbors.

    Raises:
        ValueError: as for `build_lexicon`.
    """
    words = tokenizer.pieces(range(len(counts)))
    return build_lexicon(words, counts, non_word_ids(tokenizer, words), min_count, max_words)


def non_word_ids(tokenizer: Tokenizer, words: Sequence[str]) -> list[int]:
    """Return the ids that are no word of a text: special ones, and punctuation."""
    signs = [i for i, word in enumerate(words) if is_punctuation(word)]
    return [*tokenizer.special_ids.all_ids, *signs]


def is_punctuation(word: str) -> bool:
    """Return whether a word has only punctuation."""
    return all(unicodedata.category(character).startswith("P") for character in word)


def subsampling_keep_probabilities(
    counts: Int[np.ndarray, "n"], threshold: float | None
) -> Float[np.ndarray, "n"]:
    """Return the probability that an occurrence of each word is kept in subsampling.

    min(1, sqrt(t / f) + t / f) for a word of relative frequency f (released code; Mikolov et al.
    2013, arXiv:1310.4546, section 2.3, have only the first term). With None, 1.

    Raises:
        ValueError: the threshold is not above 0.
    """
    if threshold is None:
        return np.ones(len(counts))
    if not threshold > 0:
        raise ValueError(f"the threshold of subsampling must be above 0, got {threshold}")
    ratio = threshold * counts.sum() / np.maximum(counts, 1)
    return np.minimum(np.sqrt(ratio) + ratio, 1.0)


def keep_thresholds(keep_probabilities: Float[np.ndarray, "n"]) -> UInt32[np.ndarray, "n"]:
    """Turn shares into what 32 random bits must not be above."""
    return np.clip(np.round(keep_probabilities * 2.0**32) - 1, 0, 2**32 - 1).astype(np.uint32)


class SubsampledChunk(NamedTuple):
    """The words of a chunk that are learned from, as rows."""

    rows: Int[np.ndarray, "t"]
    bounds: Int[np.ndarray, "_"]
    """Where each sentence starts, and the end of the last; then nothing of meaning."""
    offsets: Int[np.ndarray, "_"]
    """Of each sentence in the corpus."""
    n_sentences: int

    @property
    def n_words(self) -> int:
        """How many they are."""
        return int(self.bounds[self.n_sentences])


def subsample_chunk(
    chunk: CorpusChunk,
    row_of: Int[np.ndarray, "v"],
    keep_thresholds: UInt32[np.ndarray, "n"],
    key: np.uint64,
    *,
    gaps: bool = False,
) -> SubsampledChunk:
    """Copy the words of a chunk that have a row and survive subsampling.

    Args:
        chunk: a chunk of a corpus.
        row_of: see `Lexicon.row_of`.
        keep_thresholds: the threshold of each row, from `keep_thresholds`.
        key: random key.
        gaps: whether a word without a row ends its sentence; else it is skipped, as in the released
            code of word2vec.
    """
    part, sentences = chunk.part, chunk.sentences
    room = int((sentences[:, 1] - sentences[:, 0]).sum())
    n_bounds = (room if gaps else len(sentences)) + 2
    found = np.empty(room, np.int32), np.empty(n_bounds, np.int64), np.empty(n_bounds, np.int64)
    n = load_kernels("words").subsample(
        part.ids, sentences, part.offset, row_of, keep_thresholds, key, gaps, *found
    )
    return SubsampledChunk(*found, n)


def load_kernels(module: Literal["words", "word2vec", "cooccurrence"]) -> ModuleType:
    """Import a module of compiled loops.

    Raises:
        ImportError: numba is not installed.
    """
    try:
        return import_module(f"unmask.word_vectors.train.kernels.{module}")
    except ModuleNotFoundError as error:
        if error.name != "numba":
            raise
        raise ImportError(
            "word vectors are trained with numba: pip install 'unmask[vectors]'", name="numba"
        ) from error


def _make_part(
    ids: UInt[np.ndarray, "t"], sentences: Int[np.ndarray, "n 2"], place: int
) -> CorpusPart:
    """Make a part of one memory layout, so that a loop is compiled once for a width of ids."""
    ids = np.ascontiguousarray(ids).view()
    ids.flags.writeable = False
    return CorpusPart(
        ids, np.ascontiguousarray(sentences[sentences[:, 1] > sentences[:, 0]]), place
    )
