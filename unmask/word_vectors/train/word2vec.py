"""Vectors learned by asking words for their neighbors: skip-gram, CBOW, and both with n-grams.

Mikolov et al. 2013, arXiv:1301.3781 and arXiv:1310.4546; Bojanowski et al. 2017, arXiv:1607.04606.

    spec, words = SkipGram(), lexicon_of(shards.tokenizer, count_ids(corpus))
    state = start(spec, words, d_model=100)
    for report in train(spec, corpus, words, state, rate=0.025):
        print(report.place, report.loss)
    vectors(spec, words, state)

On one thread the numbers are a function of the spec, the corpus, the words, the rate and the seed,
wherever training was stopped and gone on with. On more threads, rows are moved by all of them
unguarded.
"""

import math
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float32, Int, UInt8, UInt32, UInt64

from unmask.config import MAX_LEARNING_RATE
from unmask.word_vectors.train.corpus import (
    Corpus,
    CorpusChunk,
    Lexicon,
    keep_thresholds,
    load_kernels,
    subsample_chunk,
    subsampling_keep_probabilities,
)
from unmask.word_vectors.train.windows import WindowMethod

CHUNK_IDS = 2**16
"""Ids that a thread works on between two reports, about."""
_SUBSAMPLING_STREAM, _SAMPLING_STREAM = range(2)  # what randomness is for


def _check_at_least(what: str, value: int, least: int) -> None:
    if value < least:
        raise ValueError(f"{what} must be at least {least}, got {value}")


@dataclass(frozen=True)
class NegativeSampling:
    """A word is told from `n_negatives` others, drawn by their counts to a power (2013b, 2.2).

    Raises:
        ValueError: a count below 1.
    """

    n_negatives: int = 5
    exponent: float = 0.75

    def __post_init__(self) -> None:
        _check_at_least("n_negatives", self.n_negatives, 1)


@dataclass(frozen=True)
class HierarchicalSoftmax:
    """A word is found by the turns on its path in a Huffman tree (2013b, section 2.1)."""


def _output_description(output: NegativeSampling | HierarchicalSoftmax) -> str:
    if isinstance(output, HierarchicalSoftmax):
        return ", turn by turn on the way to it in a tree of all words"
    return f", to be told from {output.n_negatives} others that are drawn"


@dataclass(frozen=True)
class CharacterNgrams:
    """A word's vector is the mean of its own row and those of its character n-grams (fastText).

    The rows of n-grams are shared by a hash: there are `n_buckets` of them.

    Raises:
        ValueError: lengths or buckets below 1, or a least length above the most.
    """

    min_n: int = 3
    max_n: int = 6
    n_buckets: int = 2_000_000

    def __post_init__(self) -> None:
        _check_at_least("characters of an n-gram", self.min_n, 1)
        _check_at_least("most characters of an n-gram", self.max_n, self.min_n)
        _check_at_least("n_buckets", self.n_buckets, 1)


@dataclass(frozen=True, kw_only=True)
class _Word2VecMethod(WindowMethod):
    """What skip-gram and CBOW share.

    Raises:
        ValueError: a number that makes no sense.
    """

    window: int = 5
    """Neighbors on each side, at most."""
    dynamic_window: bool = True
    """How many is drawn for each word, evenly from 1 to `window`; else they are all."""
    output_layer: NegativeSampling | HierarchicalSoftmax = NegativeSampling()
    character_ngrams: CharacterNgrams | None = None
    subsample: float | None = 1e-3
    """Words with a greater share of all are passed over at random; None: no word is."""
    epochs: int = 5
    min_learning_rate: float = 1e-4
    """To which the rate falls in a line, as in gensim. In the released code of word2vec it falls to
    1e-4 of the first one, in fastText's to 0."""

    def __post_init__(self) -> None:
        _check_at_least("window", self.window, 1)
        _check_at_least("epochs", self.epochs, 1)
        if not 0 <= self.min_learning_rate < math.inf:
            raise ValueError(f"min_learning_rate must be at least 0, got {self.min_learning_rate}")
        if self.subsample is not None and not self.subsample > 0:
            raise ValueError(f"subsample must be above 0, got {self.subsample}")

    @property
    def window_size(self) -> tuple[int, bool]:
        """Neighbors on each side, and whether how many is drawn, up to that."""
        return self.window, self.dynamic_window


@dataclass(frozen=True, kw_only=True)
class SkipGram(_Word2VecMethod):
    """A word's vector is asked for each of its neighbors (Mikolov et al. 2013a, section 3.2)."""

    @property
    def visibility_description(self) -> str:
        """Describe who attends to whom."""
        return (
            "none: a word alone predicts each "
            f"of its neighbors{_output_description(self.output_layer)}"
        )


@dataclass(frozen=True, kw_only=True)
class CBOW(_Word2VecMethod):
    """A word's neighbors, their vectors together, are asked for the word (2013a, section 3.1)."""

    average_context: bool = True
    """Of the neighbors' vectors, not their sum."""
    divide_gradient: bool = False
    """Each neighbor gets its part of the mean's step, as the derivative has it (İrsoy et al. 2021,
    arXiv:2012.15332). The released code gives the whole to each."""

    @property
    def predicts_center(self) -> bool:
        """The neighbors are asked for the word."""
        return True

    @property
    def visibility_description(self) -> str:
        """Describe who attends to whom."""
        how = "mean" if self.average_context else "sum"
        output = _output_description(self.output_layer)
        return f"none: the {how} of the neighbors' vectors predicts the word{output}"


Word2VecMethod = SkipGram | CBOW


@dataclass(eq=False)
class Word2VecState:
    """Everything that changes while training."""

    inputs: Float32[np.ndarray, "rows d"]
    """The rows of words, then those of n-grams."""
    outputs: Float32[np.ndarray, "outputs d"]
    """Of each word, or of each inner node of the tree."""
    place: int = 0
    """Ids that are behind us, through all epochs."""


@dataclass(frozen=True, kw_only=True)
class Word2VecReport:
    """What was done since the last report."""

    position: int
    """Ids that are behind us, through all epochs."""
    n_words: int
    """Words that were learned from."""
    rate: float
    """At the end."""
    loss: float
    """Of one neighbor (CBOW: of one word), in nats, estimated; not a number where none was asked
    for."""


def initialize_word2vec(
    spec: Word2VecMethod, words: Lexicon, d_model: int = 100, seed: int = 0
) -> Word2VecState:
    """Draw the vectors that training begins with, up to 1 / d_model; those of outputs are zero.

    Raises:
        ValueError: there is one word only, or a number makes no sense.
    """
    _check_at_least("d_model", d_model, 1)
    _check_at_least("seed", seed, 0)
    if len(words) < 2:
        raise ValueError(f"vectors of words need two words or more, got {words.words}")
    buckets = spec.character_ngrams.n_buckets if spec.character_ngrams is not None else 0
    random = np.random.Generator(np.random.Philox(seed))
    inputs = random.random((len(words) + buckets, d_model), np.float32)
    inputs -= 0.5
    # Deviates: the released code of word2vec draws half as far, which learns a little less from
    # little text. This is how far fastText's and gensim draw.
    inputs /= d_model / 2
    n_outputs = len(words) - isinstance(spec.output_layer, HierarchicalSoftmax)
    return Word2VecState(inputs, np.zeros((n_outputs, d_model), np.float32))


def train_word2vec(
    spec: Word2VecMethod,
    corpus: Corpus,
    words: Lexicon,
    state: Word2VecState,
    *,
    learning_rate: float,
    seed: int = 0,
    threads: int = 1,
    chunk: int = CHUNK_IDS,
) -> Iterator[Word2VecReport]:
    """Learn from the state's place to the end; the vectors move in place.

    Between two reports the state is whole: stopped there, saved, and trained on, it gives the same
    numbers, with one thread.

    Args:
        spec: what is learned, and how.
        corpus: the ids.
        words: that get a vector.
        state: as of `start`, or saved.
        learning_rate: how far a row moves, at the beginning; the released code has 0.025 for
            skip-gram and 0.05 for CBOW.
        seed: of what is drawn.
        threads: each works on a chunk; a report comes when all are done.
        chunk: ids that a thread works on between two reports, about.

    Raises:
        ValueError: the state or the words are not of this spec or corpus, or a number makes no
            sense.
        FloatingPointError: a vector is not finite.
    """
    _check_at_least("threads", threads, 1)
    _check_at_least("ids of a chunk", chunk, 1)
    check_learning_rate(spec, learning_rate)
    _check_state(spec, corpus, words, state)
    run = _TrainingRun(spec, corpus, words, state, _lookup_tables(spec, words), learning_rate, seed)
    if threads == 1:
        yield from _train_chunks(run, map, 1, chunk)
        return
    with ThreadPoolExecutor(threads) as pool:
        yield from _train_chunks(run, pool.map, threads, chunk)


def word_vectors(
    spec: Word2VecMethod, words: Lexicon, state: Word2VecState
) -> Float32[np.ndarray, "n d"]:
    """Give the vector of each word."""
    if spec.character_ngrams is None:
        return state.inputs
    offsets, pieces, _ = _row_parts(spec, words)
    return load_kernels("words").row_means(offsets, pieces, state.inputs)


def context_vectors(
    spec: Word2VecMethod, words: Lexicon, state: Word2VecState
) -> Float32[np.ndarray, "n d"]:
    """Give each word's vector as a neighbor.

    Raises:
        ValueError: words have none, with a tree.
    """
    if isinstance(spec.output_layer, HierarchicalSoftmax):
        raise ValueError("the outputs of a tree are of its inner nodes, not of words")
    return state.outputs[: len(words)]


def ngram_rows(
    words: list[str], spec: CharacterNgrams, first_bucket: int, *, include_word_row: bool = False
) -> tuple[Int[np.ndarray, "_"], Int[np.ndarray, "k"]]:
    """Give where the n-grams of each word begin (and the last end), and their rows.

    Args:
        words: without marks; they are put in `<` and `>`.
        spec: which n-grams.
        first_bucket: the row of the first bucket.
        include_word_row: word i has the row i too, before those of its n-grams.
    """
    text = [f"<{word}>".encode() for word in words]
    offsets = np.cumsum([0, *map(len, text)])
    letters = np.frombuffer(b"".join(text), np.uint8)
    return load_kernels("words").ngram_rows(
        letters, offsets, spec.min_n, spec.max_n, spec.n_buckets, first_bucket, include_word_row
    )


class _LookupTables(NamedTuple):
    """What the loops look up."""

    keep_thresholds: UInt32[np.ndarray, "n"]
    row_parts: tuple[Int[np.ndarray, "_"], Int[np.ndarray, "k"], Float32[np.ndarray, "n"]]
    tree: tuple[Int[np.ndarray, "_"], Int[np.ndarray, "k"], UInt8[np.ndarray, "k"]]
    alias_entries: UInt64[np.ndarray, "m"]
    n_negatives: int
    probabilities: Float32[np.ndarray, "p"]


class _TrainingRun(NamedTuple):
    """What a training is told."""

    spec: Word2VecMethod
    corpus: Corpus
    words: Lexicon
    state: Word2VecState
    tables: _LookupTables
    rate: float
    seed: int


class _ChunkResult(NamedTuple):
    loss: float
    n_loss: int
    n_pairs: int
    finite: bool
    n_words: int


def _lookup_tables(spec: Word2VecMethod, words: Lexicon) -> _LookupTables:
    kernels = load_kernels("words")
    none = np.zeros(1, np.int64), np.zeros(0, np.int32), np.zeros(0, np.uint8)
    tree, chances, n_negatives = none, np.zeros(0, np.uint64), 0
    if isinstance(spec.output_layer, NegativeSampling):
        chances = kernels.alias_table(words.counts.astype(np.float64) ** spec.output_layer.exponent)
        n_negatives = spec.output_layer.n_negatives
    else:
        tree = kernels.huffman_paths(words.counts.astype(np.int64))
    keep = keep_thresholds(subsampling_keep_probabilities(words.counts, spec.subsample))
    return _LookupTables(keep, _row_parts(spec, words), tree, chances, n_negatives, sigmoid_table())


def sigmoid_table() -> Float32[np.ndarray, "p"]:
    """Give the logistic function in the middle of steps of a score, as the loops look it up."""
    kernels = load_kernels("word2vec")
    n_steps, limit = kernels.SIGMOID_STEPS, kernels.MAX_SCORE
    scores = (np.arange(n_steps + 1) + 0.5) / n_steps * (2 * limit)
    scores -= limit
    return (1 / (1 + np.exp(-scores))).astype(np.float32)


def _row_parts(
    spec: Word2VecMethod, words: Lexicon
) -> tuple[Int[np.ndarray, "_"], Int[np.ndarray, "k"], Float32[np.ndarray, "n"]]:
    """Give which rows make the vector of each word."""
    if spec.character_ngrams is None:
        rows = np.arange(len(words) + 1)
        return rows, rows[:-1].astype(np.int32), np.ones(len(words), np.float32)
    offsets, rows = ngram_rows(
        list(words.words), spec.character_ngrams, len(words), include_word_row=True
    )
    return offsets, rows, load_kernels("words").row_shares(offsets, rows)


def _train_chunks(
    run: _TrainingRun, each: Callable[[Any, Any], Any], threads: int, chunk: int
) -> Iterator[Word2VecReport]:
    spec, state, n_tokens = run.spec, run.state, run.corpus.n_tokens
    slope = (run.rate - spec.min_learning_rate) / (n_tokens * spec.epochs)
    for epoch in range(state.place // n_tokens, spec.epochs):
        before = epoch * n_tokens
        learn = partial(
            _train_chunk, run, epoch, (run.rate - slope * before, slope, spec.min_learning_rate)
        )
        chunks = run.corpus.iter_chunks(chunk, state.place - before)
        while some := list(islice(chunks, threads)):
            done = list(each(learn, some))
            if not all(d.finite for d in done):
                raise FloatingPointError(
                    f"the vectors are not finite near word {before + some[0].start}: the rate "
                    f"{run.rate} is too high"
                )
            state.place = before + some[-1].end
            n_loss = sum(d.n_loss for d in done)
            yield Word2VecReport(
                position=state.place,
                n_words=sum(d.n_words for d in done),
                rate=max(run.rate - slope * state.place, spec.min_learning_rate),
                loss=sum(d.loss for d in done) / n_loss if n_loss else math.nan,
            )
        state.place = before + n_tokens
        if not (np.isfinite(state.inputs).all() and np.isfinite(state.outputs).all()):
            raise FloatingPointError(f"the vectors are not finite after {epoch + 1} epochs")


def _train_chunk(
    run: _TrainingRun, epoch: int, rates: tuple[float, float, float], chunk: CorpusChunk
) -> _ChunkResult:
    """Learn from a chunk."""
    kernels, spec, state, tables = load_kernels("word2vec"), run.spec, run.state, run.tables
    found = subsample_chunk(
        chunk,
        run.words.row_of,
        tables.keep_thresholds,
        _random_key(run.seed, epoch, _SUBSAMPLING_STREAM),
    )
    given = (
        found.rows,
        found.bounds,
        found.offsets,
        found.n_sentences,
        tables.row_parts,
        state.inputs,
        state.outputs,
        tables.tree,
        tables.alias_entries,
        tables.n_negatives,
        spec.window,
        spec.dynamic_window,
        rates,
        _random_key(run.seed, epoch, _SAMPLING_STREAM),
        tables.probabilities,
    )
    if isinstance(spec, SkipGram):
        done = kernels.skipgram(*given)
    else:
        done = kernels.cbow(*given, spec.average_context, spec.divide_gradient)
    loss, n_loss, n_pairs, finite = done
    return _ChunkResult(loss, n_loss, n_pairs, finite, found.n_words)


def _random_key(seed: int, epoch: int, purpose: int) -> np.uint64:
    """Give the key of what is drawn in an epoch."""
    return np.random.SeedSequence([seed, epoch, purpose]).generate_state(1, np.uint64)[0]


def check_learning_rate(spec: Word2VecMethod, learning_rate: float) -> None:
    """Check that a rate is above 0, and can fall to the last.

    Raises:
        ValueError: it is not.
    """
    if not (0 < learning_rate <= MAX_LEARNING_RATE and learning_rate >= spec.min_learning_rate):
        raise ValueError(
            "learning_rate must be above 0, and at least min_learning_rate "
            f"{spec.min_learning_rate:g}, and at most {MAX_LEARNING_RATE:g}, got {learning_rate:g}"
        )


def _check_state(
    spec: Word2VecMethod, corpus: Corpus, words: Lexicon, state: Word2VecState
) -> None:
    if len(words.row_of) < corpus.n_ids:
        raise ValueError(f"{len(words.row_of)} ids are known, but the corpus has {corpus.n_ids}")
    fresh = len(words) + (
        spec.character_ngrams.n_buckets if spec.character_ngrams is not None else 0
    )
    outputs = len(words) - isinstance(spec.output_layer, HierarchicalSoftmax)
    d_model = state.inputs.shape[1]
    asked = (fresh, d_model), (outputs, d_model)
    got = state.inputs.shape, state.outputs.shape
    if got != asked:
        raise ValueError(f"the vectors must be of shapes {asked} for this spec, got {got}")
