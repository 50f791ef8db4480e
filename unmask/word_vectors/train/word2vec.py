"""Vectors learned by predicting neighboring words: skip-gram, CBOW, and both with n-grams.

Mikolov et al. 2013, arXiv:1301.3781 and arXiv:1310.4546; Bojanowski et al. 2017, arXiv:1607.04606.

    spec, words = SkipGram(), lexicon_from_tokenizer(shards.tokenizer, count_ids(corpus))
    state = initialize_word2vec(spec, words, d_model=100)
    training = Word2VecTraining(learning_rate=0.025)
    for report in train_word2vec(spec, corpus, words, state, training):
        print(report.position, report.loss)
    word_vectors(spec, words, state)

With one thread the vectors are a function of the method, the corpus, the words, the learning rate
and the seed, also if training is interrupted and resumed. Several threads update the shared rows
without locks (Hogwild), so that their result varies.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, ClassVar, NamedTuple

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

CHUNK_TOKENS = 2**16
"""Approximate number of tokens that a thread works on between two reports."""
_SUBSAMPLING_STREAM, _SAMPLING_STREAM = range(2)  # purposes of random streams


def _check_at_least(what: str, value: int, least: int) -> None:
    if value < least:
        raise ValueError(f"{what} must be at least {least}, got {value}")


@dataclass(frozen=True)
class NegativeSampling:
    """Discriminate a word from `n_negatives` samples of p(w) ∝ count(w)^exponent (2013b, 2.2).

    Raises:
        ValueError: a count below 1.
    """

    n_negatives: int = 5
    exponent: float = 0.75
    is_tree: ClassVar[bool] = False
    """Whether outputs are those of a tree's inner nodes, and not of words."""

    def __post_init__(self) -> None:
        _check_at_least("n_negatives", self.n_negatives, 1)

    @property
    def description(self) -> str:
        """How a word is found, as the end of a sentence."""
        return f", to be told from {self.n_negatives} others that are drawn"

    def n_outputs(self, n_words: int) -> int:
        """Return how many rows the outputs of so many words have: one a word."""
        return n_words


@dataclass(frozen=True)
class HierarchicalSoftmax:
    """Predict the binary decisions on a word's path in a Huffman tree (2013b, section 2.1)."""

    n_negatives: ClassVar[int] = 0
    is_tree: ClassVar[bool] = True

    @property
    def description(self) -> str:
        """How a word is found, as the end of a sentence."""
        return ", turn by turn on the way to it in a tree of all words"

    def n_outputs(self, n_words: int) -> int:
        """Return how many rows the outputs of so many words have: one an inner node."""
        return n_words - 1


@dataclass(frozen=True)
class CharacterNgrams:
    """A word's vector is the mean of its own row and those of its character n-grams (fastText).

    N-grams are hashed into `n_buckets` rows.

    Raises:
        ValueError: a length or `n_buckets` is below 1, or `min_n` is above `max_n`.
    """

    min_n: int = 3
    max_n: int = 6
    n_buckets: int = 2_000_000

    def __post_init__(self) -> None:
        _check_at_least("characters of an n-gram", self.min_n, 1)
        _check_at_least("most characters of an n-gram", self.max_n, self.min_n)
        _check_at_least("n_buckets", self.n_buckets, 1)

    def describe(self, word: str) -> str:
        """Write the word and its n-grams; a single mark of its ends is none."""
        marked = f"<{word}>"
        spans = [
            (i, i + n)
            for n in range(self.min_n, self.max_n + 1)
            for i in range(len(marked) - n + 1)
        ]
        ngrams = [marked[i:j] for i, j in spans if j - i > 1 or 0 < i < len(marked) - 1]
        return f"{word} = the word, and {', '.join(ngrams) or 'no n-gram'}"


@dataclass(frozen=True, kw_only=True)
class _Word2VecMethod(WindowMethod):
    """Base of skip-gram and CBOW.

    Raises:
        ValueError: a number is out of range.
    """

    window: int = 5
    """Maximum number of neighbors on each side."""
    dynamic_window: bool = True
    """Sample the number of neighbors of each word uniformly from 1 to `window`; else use all."""
    output_layer: NegativeSampling | HierarchicalSoftmax = NegativeSampling()
    character_ngrams: CharacterNgrams | None = None
    subsample: float | None = 1e-3
    """Relative frequency above which words are skipped at random. None: no word is skipped."""
    epochs: int = 5
    min_learning_rate: float = 1e-4
    """Final learning rate of the linear decay, as in gensim. The released code of word2vec decays
    to 1e-4 of the initial rate, that of fastText to 0."""

    def __post_init__(self) -> None:
        _check_at_least("window", self.window, 1)
        _check_at_least("epochs", self.epochs, 1)
        if not 0 <= self.min_learning_rate < math.inf:
            raise ValueError(f"min_learning_rate must be at least 0, got {self.min_learning_rate}")
        if self.subsample is not None and not self.subsample > 0:
            raise ValueError(f"subsample must be above 0, got {self.subsample}")

    @property
    def window_size(self) -> tuple[int, bool]:
        """Maximum number of neighbors on each side, and whether it is sampled for each word."""
        return self.window, self.dynamic_window

    def describe_words(self, words: Sequence[str]) -> str | None:
        """Write the n-grams whose vectors a word's are made of; None: it has its own alone."""
        ngrams = self.character_ngrams
        return None if ngrams is None else "; ".join(map(ngrams.describe, words))


@dataclass(frozen=True, kw_only=True)
class SkipGram(_Word2VecMethod):
    """Predict each neighbor of a word from its vector (Mikolov et al. 2013a, section 3.2)."""

    @property
    def visibility_description(self) -> str:
        """Describe who attends to whom."""
        return f"none: a word alone predicts each of its neighbors{self.output_layer.description}"


@dataclass(frozen=True, kw_only=True)
class CBOW(_Word2VecMethod):
    """Predict a word from the combined vectors of its neighbors (2013a, section 3.1)."""

    average_context: bool = True
    """Use the mean of the neighbors' vectors, not their sum."""
    divide_gradient: bool = False
    """Divide the mean's gradient by the number of neighbors, as the derivative has it (İrsoy et al.
    2021, arXiv:2012.15332). The released code adds it undivided to each neighbor."""

    @property
    def predicts_center(self) -> bool:
        """The center word is predicted from its neighbors."""
        return True

    @property
    def visibility_description(self) -> str:
        """Describe who attends to whom."""
        how = "mean" if self.average_context else "sum"
        output = self.output_layer.description
        return f"none: the {how} of the neighbors' vectors predicts the word{output}"


Word2VecMethod = SkipGram | CBOW


@dataclass(eq=False)
class Word2VecState:
    """Parameters and position of a training run."""

    inputs: Float32[np.ndarray, "rows d"]
    """Rows of words, followed by rows of n-gram buckets."""
    outputs: Float32[np.ndarray, "outputs d"]
    """Output row of each word, or of each inner node of the tree."""
    place: int = 0
    """Number of tokens read so far, over all epochs."""


@dataclass(frozen=True, kw_only=True)
class Word2VecReport:
    """Progress since the last report."""

    position: int
    """Number of tokens read so far, over all epochs."""
    n_words: int
    """Words trained on, after subsampling."""
    rate: float
    """Learning rate at the end of the interval."""
    loss: float
    """Estimated loss per predicted word in nats; NaN if no word was predicted."""


def initialize_word2vec(
    spec: Word2VecMethod, words: Lexicon, d_model: int = 100, seed: int = 0
) -> Word2VecState:
    """Initialize input vectors uniformly in ±1 / d_model, and output vectors with zeros.

    Raises:
        ValueError: there are fewer than two words, or a number is out of range.
    """
    _check_at_least("d_model", d_model, 1)
    _check_at_least("seed", seed, 0)
    if len(words) < 2:
        raise ValueError(f"vectors of words need two words or more, got {words.words}")
    buckets = spec.character_ngrams.n_buckets if spec.character_ngrams is not None else 0
    random = np.random.Generator(np.random.Philox(seed))
    inputs = random.random((len(words) + buckets, d_model), np.float32)
    inputs -= 0.5
    # Deviates: the released code of word2vec samples from half this range, which learns slightly
    # less from small corpora. fastText and gensim use this range.
    inputs /= d_model / 2
    n_outputs = spec.output_layer.n_outputs(len(words))
    return Word2VecState(inputs, np.zeros((n_outputs, d_model), np.float32))


@dataclass(frozen=True, kw_only=True)
class Word2VecTraining:
    """How word vectors are trained.

    Raises:
        ValueError: fewer than one thread or token.
    """

    learning_rate: float
    """Initial learning rate. The released code has 0.025 for skip-gram and 0.05 for CBOW."""
    seed: int = 0
    """Random seed of subsampling, windows and negative samples."""
    threads: int = 1
    """Number of threads. Each works on a chunk; a report follows when all are done."""
    chunk_tokens: int = CHUNK_TOKENS
    """Approximate number of tokens in a chunk."""

    def __post_init__(self) -> None:
        _check_at_least("threads", self.threads, 1)
        _check_at_least("tokens of a chunk", self.chunk_tokens, 1)


def train_word2vec(
    spec: Word2VecMethod,
    corpus: Corpus,
    words: Lexicon,
    state: Word2VecState,
    training: Word2VecTraining,
) -> Iterator[Word2VecReport]:
    """Train the vectors of a state in place, from its position to the last epoch.

    The state is consistent between two reports. With one thread, a run that is stopped there, saved
    and resumed gives the same vectors as an uninterrupted one.

    Args:
        spec: the method.
        corpus: the token ids.
        words: the words that have vectors.
        state: from `initialize_word2vec`, or saved.
        training: learning rate, seed and threads.

    Raises:
        ValueError: the state or the words do not belong to this method or corpus, or the learning
            rate is out of range.
        FloatingPointError: a vector is not finite.
    """
    check_learning_rate(spec, training.learning_rate)
    _check_state(spec, corpus, words, state)
    run = _TrainingRun(spec, corpus, words, state, _lookup_tables(spec, words), training)
    if training.threads == 1:
        yield from _train_chunks(run, map)
        return
    with ThreadPoolExecutor(training.threads) as pool:
        yield from _train_chunks(run, pool.map)


def word_vectors(
    spec: Word2VecMethod, words: Lexicon, state: Word2VecState
) -> Float32[np.ndarray, "n d"]:
    """Return the vector of each word."""
    if spec.character_ngrams is None:
        return state.inputs
    offsets, pieces, _ = _row_parts(spec, words)
    return load_kernels("words").row_means(offsets, pieces, state.inputs)


def context_vectors(
    spec: Word2VecMethod, words: Lexicon, state: Word2VecState
) -> Float32[np.ndarray, "n d"]:
    """Return the output vector of each word.

    Raises:
        ValueError: the method has a tree, whose output vectors are those of its inner nodes.
    """
    if spec.output_layer.is_tree:
        raise ValueError("the outputs of a tree are of its inner nodes, not of words")
    return state.outputs[: len(words)]


def ngram_rows(
    words: list[str], spec: CharacterNgrams, first_bucket: int, *, include_word_row: bool = False
) -> tuple[Int[np.ndarray, "_"], Int[np.ndarray, "k"]]:
    """Return the rows of the n-grams of each word, with the offsets of each word in them.

    Args:
        words: words without the boundary marks `<` and `>`, which are added here.
        spec: lengths of n-grams, and number of buckets.
        first_bucket: row of the first bucket.
        include_word_row: whether word i has row i, too, before those of its n-grams.
    """
    text = [f"<{word}>".encode() for word in words]
    offsets = np.cumsum([0, *map(len, text)])
    letters = np.frombuffer(b"".join(text), np.uint8)
    return load_kernels("words").ngram_rows(
        letters, offsets, spec.min_n, spec.max_n, spec.n_buckets, first_bucket, include_word_row
    )


class _LookupTables(NamedTuple):
    """Tables that the training loops read."""

    keep_thresholds: UInt32[np.ndarray, "n"]
    row_parts: tuple[Int[np.ndarray, "_"], Int[np.ndarray, "k"], Float32[np.ndarray, "n"]]
    tree: tuple[Int[np.ndarray, "_"], Int[np.ndarray, "k"], UInt8[np.ndarray, "k"]]
    alias_entries: UInt64[np.ndarray, "m"]
    n_negatives: int
    probabilities: Float32[np.ndarray, "p"]


class _TrainingRun(NamedTuple):
    """All that the chunks of a run share."""

    spec: Word2VecMethod
    corpus: Corpus
    words: Lexicon
    state: Word2VecState
    tables: _LookupTables
    training: Word2VecTraining


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
    """Return a table of the logistic function at the midpoints of equal intervals of the logit."""
    kernels = load_kernels("word2vec")
    n_steps, limit = kernels.SIGMOID_STEPS, kernels.MAX_SCORE
    scores = (np.arange(n_steps + 1) + 0.5) / n_steps * (2 * limit)
    scores -= limit
    return (1 / (1 + np.exp(-scores))).astype(np.float32)


def _row_parts(
    spec: Word2VecMethod, words: Lexicon
) -> tuple[Int[np.ndarray, "_"], Int[np.ndarray, "k"], Float32[np.ndarray, "n"]]:
    """Return the offsets, rows and weights that make up the vector of each word."""
    if spec.character_ngrams is None:
        rows = np.arange(len(words) + 1)
        return rows, rows[:-1].astype(np.int32), np.ones(len(words), np.float32)
    offsets, rows = ngram_rows(
        list(words.words), spec.character_ngrams, len(words), include_word_row=True
    )
    return offsets, rows, load_kernels("words").row_shares(offsets, rows)


def _train_chunks(
    run: _TrainingRun, map_chunks: Callable[[Any, Any], Any]
) -> Iterator[Word2VecReport]:
    spec, state, training, n_tokens = run.spec, run.state, run.training, run.corpus.n_tokens
    initial, final = training.learning_rate, spec.min_learning_rate
    slope = (initial - final) / (n_tokens * spec.epochs)
    for epoch in range(state.place // n_tokens, spec.epochs):
        epoch_start = epoch * n_tokens
        train_chunk = partial(
            _train_chunk, run, epoch, (initial - slope * epoch_start, slope, final)
        )
        chunks = run.corpus.iter_chunks(training.chunk_tokens, state.place - epoch_start)
        while group := list(islice(chunks, training.threads)):
            results = list(map_chunks(train_chunk, group))
            if not all(result.finite for result in results):
                raise FloatingPointError(
                    f"the vectors are not finite near word {epoch_start + group[0].start}: the "
                    f"rate {initial} is too high"
                )
            state.place = epoch_start + group[-1].end
            n_loss = sum(result.n_loss for result in results)
            yield Word2VecReport(
                position=state.place,
                n_words=sum(result.n_words for result in results),
                rate=max(initial - slope * state.place, final),
                loss=sum(result.loss for result in results) / n_loss if n_loss else math.nan,
            )
        state.place = epoch_start + n_tokens
        if not (np.isfinite(state.inputs).all() and np.isfinite(state.outputs).all()):
            raise FloatingPointError(f"the vectors are not finite after {epoch + 1} epochs")


def _train_chunk(
    run: _TrainingRun, epoch: int, rates: tuple[float, float, float], chunk: CorpusChunk
) -> _ChunkResult:
    """Train on a chunk."""
    kernels, spec, state, tables = load_kernels("word2vec"), run.spec, run.state, run.tables
    words = subsample_chunk(
        chunk,
        run.words.row_of,
        tables.keep_thresholds,
        _random_key(run.training.seed, epoch, _SUBSAMPLING_STREAM),
    )
    arguments = (
        words.rows,
        words.bounds,
        words.offsets,
        words.n_sentences,
        tables.row_parts,
        state.inputs,
        state.outputs,
        tables.tree,
        tables.alias_entries,
        tables.n_negatives,
        spec.window,
        spec.dynamic_window,
        rates,
        _random_key(run.training.seed, epoch, _SAMPLING_STREAM),
        tables.probabilities,
    )
    if isinstance(spec, SkipGram):
        result = kernels.skipgram(*arguments)
    else:
        result = kernels.cbow(*arguments, spec.average_context, spec.divide_gradient)
    loss, n_loss, n_pairs, finite = result
    return _ChunkResult(loss, n_loss, n_pairs, finite, words.n_words)


def _random_key(seed: int, epoch: int, purpose: int) -> np.uint64:
    """Return the random key of an epoch."""
    return np.random.SeedSequence([seed, epoch, purpose]).generate_state(1, np.uint64)[0]


def check_learning_rate(spec: Word2VecMethod, learning_rate: float) -> None:
    """Check that a learning rate is positive and not below the final one.

    Raises:
        ValueError: it is out of range.
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
    inputs = len(words) + (
        spec.character_ngrams.n_buckets if spec.character_ngrams is not None else 0
    )
    outputs = spec.output_layer.n_outputs(len(words))
    d_model = state.inputs.shape[1]
    expected = (inputs, d_model), (outputs, d_model)
    got = state.inputs.shape, state.outputs.shape
    if got != expected:
        raise ValueError(f"the vectors must be of shapes {expected} for this spec, got {got}")
