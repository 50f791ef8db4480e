"""fastText's model files (`.bin`): vectors of words, composed of those of their n-grams.

The layout is that of `fasttext.cc`, `args.cc` and `dictionary.cc` of version 0.9.2; composing is
that of `FastText::getWordVector`: the mean of the word's own row and of the rows of the buckets
into which its n-grams fall (Bojanowski et al. 2017, arXiv 1607.04606, section 3.2).
"""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Float32, Int, UInt32

from unmask.text.formats.decompress import compression_suffix
from unmask.word_vectors.formats.accumulator import VectorAccumulator
from unmask.word_vectors.formats.word2vec_binary import ByteReader
from unmask.word_vectors.keyed_vectors import KeyedVectors
from unmask.word_vectors.train.word2vec import (
    SkipGram,
    Word2VecMethod,
    Word2VecState,
)

MAGIC = struct.pack("<i", 793712314)
"""What a model file begins with."""

_VERSIONS = (11, 12)
_END_OF_LINE = b"</s>"  # has no n-grams
_WORDS_PER_BLOCK = 2**10  # words composed at once: 40 MB of 300 numbers of 30 n-grams each
_OFFSET, _PRIME = 2166136261, np.uint32(16777619)  # parameters of the 32-bit FNV-1a hash
_NUMBER = np.dtype("<f4")
_CBOW, _SKIPGRAM = 1, 2  # as `args.h` numbers models, and losses
_HIERARCHICAL_SOFTMAX, _NEGATIVE_SAMPLING = 1, 2
_LEARNING_RATE_UPDATE_RATE = 100  # tokens between updates, in the program


@dataclass(frozen=True, kw_only=True, eq=False)
class FastTextVectors:
    """A model's rows, and how vectors of words are composed of them."""

    path: Path
    """The file that holds it."""
    vector_size: int
    n_buckets: int
    min_n: int
    max_n: int
    words: list[bytes]
    counts: list[int]
    rows: Float[np.ndarray, "r d"]

    @cached_property
    def row_of_word(self) -> dict[bytes, int]:
        """The row of each word."""
        return {word: row for row, word in enumerate(self.words)}

    def vector(self, word: str) -> Float32[np.ndarray, "d"] | None:
        """Return the mean of a word's own row, if it was seen, and of those of its n-grams.

        None: it was not seen, and has no n-grams (`FastText::getWordVector` gives zeros).

        Raises:
            ValueError: a number is not finite.
        """
        letters = word.encode("utf-8", "replace")
        own = self.row_of_word.get(letters)
        _, grams = self.ngram_rows([letters])
        rows = grams if own is None else np.append(grams, own)
        if not len(rows):
            return None
        found = np.asarray(self.rows[rows], np.float32).mean(0)
        if not np.isfinite(found).all():
            raise ValueError(f"{self.path}: the vector of {word!r} is not finite: it is damaged")
        return found

    def vectors(self, start: int, stop: int) -> Float32[np.ndarray, "w d"]:
        """Return the mean of each word's own row and those of its n-grams, of some words."""
        words = self.words[start:stop]
        own = np.arange(len(words))
        owner, grams = self.ngram_rows(words)
        owner, rows = np.concatenate([own, owner]), np.concatenate([own + start, grams])
        order = np.argsort(owner, kind="stable")
        begin = np.searchsorted(owner[order], own)
        sums = np.add.reduceat(np.asarray(self.rows[rows[order]], np.float32), begin, axis=0)
        return sums / np.diff(begin, append=len(rows))[:, None].astype(np.float32)

    def ngram_rows(self, words: list[bytes]) -> tuple[Int[np.ndarray, "g"], Int[np.ndarray, "g"]]:
        """Return which word has an n-gram, and the n-gram's row."""
        owners, rows = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        if self.n_buckets and self.max_n:
            for owner, hashes in _ngram_hashes(words, self.min_n, self.max_n):
                owners.append(owner)
                rows.append(len(self.words) + (hashes % np.uint32(self.n_buckets)).astype(np.int64))
        return np.concatenate(owners), np.concatenate(rows)


def read_fasttext(path: Path, *, limit: int | None = None) -> KeyedVectors:
    """Read the words of a fastText model, with their vectors as that library gives them.

    Raises:
        ValueError: the file is truncated, of an unknown version, or quantized (`.ftz`).
    """
    model = open_fasttext(path)
    made = VectorAccumulator(
        path, model.vector_size, lambda row: f"{path}: word {row + 1}", ": the file is damaged"
    )
    counts: list[int] = []
    n = min(len(model.words), limit or len(model.words))
    for start in range(0, n, _WORDS_PER_BLOCK):
        for row, vector in enumerate(model.vectors(start, min(start + _WORDS_PER_BLOCK, n)), start):
            if made.add(model.words[row], vector, row):
                counts.append(model.counts[row])
    return made.to_keyed_vectors(np.array(counts, dtype=np.int64), model)


def open_fasttext(path: Path) -> FastTextVectors:
    """Read a fastText model, whose rows stay in the file where it is not packed.

    Raises:
        ValueError: the file is truncated, of an unknown version, or quantized (`.ftz`).
    """
    source = ByteReader(path)
    try:
        return _read_model(source)
    except struct.error:
        raise ValueError(
            f"{path}: the fastText model ends too early, at byte {source.offset}: it is truncated"
        ) from None


def write_fasttext(
    spec: Word2VecMethod, words: Sequence[str], counts: Int[np.ndarray, "n"], state: Word2VecState
) -> Iterator[bytes]:
    """Yield the bytes of a model with n-grams in the format of the fastText program.

    Output vectors of hierarchical softmax are zero: the order of inner nodes is the program's.

    Raises:
        ValueError: the model has no n-grams.
    """
    if (ngrams := spec.character_ngrams) is None:
        raise ValueError("these vectors have no n-grams")
    drawn, width = not spec.output_layer.is_tree, state.inputs.shape[1]
    yield MAGIC + struct.pack("<i", _VERSIONS[-1])
    yield struct.pack(
        "<12id",
        width,
        spec.window,
        spec.epochs,
        1,
        spec.output_layer.n_negatives,
        1,
        _NEGATIVE_SAMPLING if drawn else _HIERARCHICAL_SOFTMAX,
        _SKIPGRAM if isinstance(spec, SkipGram) else _CBOW,
        ngrams.n_buckets,
        ngrams.min_n,
        ngrams.max_n,
        _LEARNING_RATE_UPDATE_RATE,
        spec.subsample or 1.0,
    )
    yield struct.pack("<iiiqq", len(words), len(words), 0, int(counts.sum()), -1)
    for word, n in zip(words, counts.tolist(), strict=True):
        yield word.encode().replace(b"\0", "\N{REPLACEMENT CHARACTER}".encode())
        yield struct.pack("<sqb", b"\0", n, 0)
    outputs = state.outputs if drawn else np.zeros((len(words), width), np.float32)
    for rows in (state.inputs, outputs):
        yield struct.pack("<?qq", False, *rows.shape)
        for start in range(0, len(rows), _WORDS_PER_BLOCK):
            yield rows[start : start + _WORDS_PER_BLOCK].astype(_NUMBER).tobytes()


def _read_model(source: ByteReader) -> FastTextVectors:
    path = source.path
    _, version = _dequantize(source, "<ii")
    if version not in _VERSIONS:
        raise ValueError(f"{path}: a fastText model of version {version}; 11 and 12 can be read")
    width, *_, buckets, min_n, max_n, _, _ = _dequantize(source, "<12id")
    _, n_words, n_labels, _, n_pruned = _dequantize(source, "<iiiqq")
    if min(width, n_words) < 1 or min(n_labels, buckets, min_n, max_n) < 0:
        raise ValueError(f"{path}: the fastText model's header makes no sense: it is damaged")
    words, counts = _read_dictionary(source, n_words, n_labels)
    if n_pruned > 0 or _dequantize(source, "<?")[0]:
        raise ValueError(
            f"{path}: a quantized fastText model (.ftz), which is not read; write its vectors with "
            "fasttext print-word-vectors"
        )
    n_rows, n_columns = _dequantize(source, "<qq")
    if n_columns != width or n_rows != n_words + buckets:
        raise ValueError(
            f"{path}: the fastText model has rows for {n_words:,} words and {buckets:,} n-grams of "
            f"{width} numbers, but a matrix of {n_rows:,} x {n_columns:,}: it is damaged"
        )
    return FastTextVectors(
        path=path,
        vector_size=width,
        n_buckets=0 if n_pruned == 0 else buckets,  # as in `Dictionary::pushHash`
        min_n=min_n,
        max_n=max_n,
        words=words,
        counts=counts,
        rows=_read_matrix(source, n_rows, width),
    )


def _dequantize(source: ByteReader, form: str) -> tuple[Any, ...]:
    return struct.unpack(form, source.read(struct.calcsize(form)))


def _read_dictionary(
    source: ByteReader, n_words: int, n_labels: int
) -> tuple[list[bytes], list[int]]:
    """Read words and their counts; labels, which follow, are skipped."""
    words: list[bytes] = []
    counts: list[int] = []
    for _ in range(n_words + n_labels):
        word = source.read_until(b"\0")
        if word is None:
            raise struct.error
        count, _ = _dequantize(source, "<qb")
        if count < 0:
            raise ValueError(
                f"{source.path}: word {len(words) + 1:,} was seen {count:,} times: it is damaged"
            )
        words.append(word)
        counts.append(count)
    return words[:n_words], counts[:n_words]


def _read_matrix(source: ByteReader, n_rows: int, width: int) -> Float[np.ndarray, "r d"]:
    """Map the matrix into memory; unpack it if it is packed."""
    size, path = 4 * n_rows * width, source.path
    if compression_suffix(path) is None:
        if path.stat().st_size < source.offset + size:
            raise struct.error
        return np.memmap(path, _NUMBER, "r", source.offset, (n_rows, width))
    rows = np.empty((0, width), dtype=_NUMBER)
    while len(rows) < n_rows:  # step by step: the header may say what is not there
        some = min(n_rows - len(rows), 2**14)
        data = source.read(4 * some * width)
        if len(data) < 4 * some * width:
            raise struct.error
        rows.resize((len(rows) + some, width), refcheck=False)
        rows[-some:] = np.frombuffer(data, _NUMBER).reshape(some, width)
    return rows


def _ngram_hashes(
    words: list[bytes], min_n: int, max_n: int
) -> Iterator[tuple[Int[np.ndarray, "g"], UInt32[np.ndarray, "g"]]]:
    """Yield, for each length, the words that have an n-gram and the n-gram's hash.

    N-grams are of characters, which UTF-8 writes in several bytes, of the word between "<" and ">";
    a boundary mark alone is not an n-gram (`Dictionary::computeSubwords`). All start positions are
    processed at once, byte by byte.
    """
    marked = [b"" if word == _END_OF_LINE else b"<" + word + b">" for word in words]
    sizes = np.array([len(word) for word in marked])
    ends = np.cumsum(sizes)
    data = np.frombuffer(b"".join([*marked, b"\0"]), dtype=np.uint8)
    goes_on = (data & 0xC0) == 0x80
    # The hash takes bytes as signed.
    signed = data.view(np.int8).astype(np.int32).view(np.uint32)
    at = np.flatnonzero(~goes_on[:-1])
    owner = np.repeat(np.arange(len(words)), sizes)[at]
    first, end = at == (ends - sizes)[owner], ends[owner]
    hashes = np.full(len(at), _OFFSET, dtype=np.uint32)
    for n in range(1, max_n + 1):
        inside = at < end
        at, owner, first, end, hashes = (x[inside] for x in (at, owner, first, end, hashes))
        if not len(at):  # no word is so long
            return
        more = np.ones(len(at), dtype=bool)
        while more.any():
            hashes[more] = (hashes[more] ^ signed[at[more]]) * _PRIME
            at = at + more
            more &= (at < end) & goes_on[at]
        if n >= min_n:
            kept = ~(first | (at == end)) if n == 1 else np.ones(len(at), dtype=bool)
            yield owner[kept], hashes[kept]
