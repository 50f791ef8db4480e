"""Vectors learned by asking words for their neighbors: skip-gram, CBOW, and both with n-grams.

Mikolov et al. 2013, arXiv:1301.3781 and arXiv:1310.4546; Bojanowski et al. 2017, arXiv:1607.04606.

    spec, words = Skipgram(), lexicon_of(shards.tokenizer, count_ids(corpus))
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

from unmask.config import MOST_RATE
from unmask.vectors.corpus import (
    Chunk,
    Corpus,
    Lexicon,
    as_bits,
    compiled,
    gather,
    kept_shares,
)
from unmask.vectors.windows import Windowed

CHUNK = 2**16
"""Ids that a thread works on between two reports, about."""
_DRAWN_OUT, _DRAWN = range(2)  # what randomness is for


def _at_least(what: str, value: int, least: int) -> None:
    if value < least:
        raise ValueError(f"{what} must be at least {least}, got {value}")


@dataclass(frozen=True)
class Negatives:
    """A word is told from `count` others, drawn by their counts to a power (2013b, section 2.2).

    Raises:
        ValueError: a count below 1.
    """

    count: int = 5
    power: float = 0.75

    def __post_init__(self) -> None:
        _at_least("count", self.count, 1)


@dataclass(frozen=True)
class Hierarchical:
    """A word is found by the turns on its path in a Huffman tree (2013b, section 2.1)."""


def _told(output: Negatives | Hierarchical) -> str:
    if isinstance(output, Hierarchical):
        return ", turn by turn on the way to it in a tree of all words"
    return f", to be told from {output.count} others that are drawn"


@dataclass(frozen=True)
class Ngrams:
    """A word's vector is the mean of its own row and those of its character n-grams (fastText).

    The rows of n-grams are shared by a hash: there are `buckets` of them.

    Raises:
        ValueError: lengths or buckets below 1, or a least length above the most.
    """

    least: int = 3
    most: int = 6
    buckets: int = 2_000_000

    def __post_init__(self) -> None:
        _at_least("characters of an n-gram", self.least, 1)
        _at_least("most characters of an n-gram", self.most, self.least)
        _at_least("buckets", self.buckets, 1)


@dataclass(frozen=True, kw_only=True)
class _Asked(Windowed):
    """What skip-gram and CBOW share.

    Raises:
        ValueError: a number that makes no sense.
    """

    window: int = 5
    """Neighbors on each side, at most."""
    shrink: bool = True
    """How many is drawn for each word, evenly from 1 to `window`; else they are all."""
    output: Negatives | Hierarchical = Negatives()
    ngrams: Ngrams | None = None
    subsample: float | None = 1e-3
    """Words with a greater share of all are passed over at random; None: no word is."""
    epochs: int = 5
    last_rate: float = 1e-4
    """To which the rate falls in a line, as in gensim. In the released code of word2vec it falls to
    1e-4 of the first one, in fastText's to 0."""

    def __post_init__(self) -> None:
        _at_least("window", self.window, 1)
        _at_least("epochs", self.epochs, 1)
        if not 0 <= self.last_rate < math.inf:
            raise ValueError(f"last_rate must be at least 0, got {self.last_rate}")
        if self.subsample is not None and not self.subsample > 0:
            raise ValueError(f"subsample must be above 0, got {self.subsample}")

    @property
    def reach(self) -> tuple[int, bool]:
        """Neighbors on each side, and whether how many is drawn, up to that."""
        return self.window, self.shrink


@dataclass(frozen=True, kw_only=True)
class Skipgram(_Asked):
    """A word's vector is asked for each of its neighbors (Mikolov et al. 2013a, section 3.2)."""

    @property
    def sees(self) -> str:
        """Say who sees whom, for people."""
        return f"a word knows itself alone, and is asked for each neighbor{_told(self.output)}"


@dataclass(frozen=True, kw_only=True)
class Cbow(_Asked):
    """A word's neighbors, their vectors together, are asked for the word (2013a, section 3.1)."""

    mean: bool = True
    """Of the neighbors' vectors, not their sum."""
    divided: bool = False
    """Each neighbor gets its part of the mean's step, as the derivative has it (İrsoy et al. 2021,
    arXiv:2012.15332). The released code gives the whole to each."""

    @property
    def inward(self) -> bool:
        """The neighbors are asked for the word."""
        return True

    @property
    def sees(self) -> str:
        """Say who sees whom, for people."""
        how = "mean" if self.mean else "sum"
        return f"the {how} of the neighbors' vectors is asked once for the word{_told(self.output)}"


Spec = Skipgram | Cbow


@dataclass(eq=False)
class State:
    """Everything that changes while training."""

    inputs: Float32[np.ndarray, "rows d"]
    """The rows of words, then those of n-grams."""
    outputs: Float32[np.ndarray, "outputs d"]
    """Of each word, or of each inner node of the tree."""
    place: int = 0
    """Ids that are behind us, through all epochs."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """What was done since the last report."""

    place: int
    """Ids that are behind us, through all epochs."""
    n_words: int
    """Words that were learned from."""
    rate: float
    """At the end."""
    loss: float
    """Of one neighbor (CBOW: of one word), in nats, estimated; not a number where none was asked
    for."""


def start(spec: Spec, words: Lexicon, d_model: int = 100, seed: int = 0) -> State:
    """Draw the vectors that training begins with, up to 1 / d_model; those of outputs are zero.

    Raises:
        ValueError: there is one word only, or a number makes no sense.
    """
    _at_least("d_model", d_model, 1)
    _at_least("seed", seed, 0)
    if len(words) < 2:
        raise ValueError(f"vectors of words need two words or more, got {words.words}")
    buckets = spec.ngrams.buckets if spec.ngrams is not None else 0
    random = np.random.Generator(np.random.Philox(seed))
    inputs = random.random((len(words) + buckets, d_model), np.float32)
    inputs -= 0.5
    # Deviates: the released code of word2vec draws half as far, which learns a little less from
    # little text. This is how far fastText's and gensim draw.
    inputs /= d_model / 2
    n_outputs = len(words) - isinstance(spec.output, Hierarchical)
    return State(inputs, np.zeros((n_outputs, d_model), np.float32))


def train(
    spec: Spec,
    corpus: Corpus,
    words: Lexicon,
    state: State,
    *,
    rate: float,
    seed: int = 0,
    threads: int = 1,
    chunk: int = CHUNK,
) -> Iterator[Report]:
    """Learn from the state's place to the end; the vectors move in place.

    Between two reports the state is whole: stopped there, saved, and trained on, it gives the same
    numbers, with one thread.

    Args:
        spec: what is learned, and how.
        corpus: the ids.
        words: that get a vector.
        state: as of `start`, or saved.
        rate: how far a row moves, at the beginning; the released code has 0.025 for skip-gram and
            0.05 for CBOW.
        seed: of what is drawn.
        threads: each works on a chunk; a report comes when all are done.
        chunk: ids that a thread works on between two reports, about.

    Raises:
        ValueError: the state or the words are not of this spec or corpus, or a number makes no
            sense.
        FloatingPointError: a vector is not finite.
    """
    _at_least("threads", threads, 1)
    _at_least("ids of a chunk", chunk, 1)
    check_rate(spec, rate)
    _check_state(spec, corpus, words, state)
    run = _Run(spec, corpus, words, state, _tables(spec, words), rate, seed)
    if threads == 1:
        yield from _train(run, map, 1, chunk)
        return
    with ThreadPoolExecutor(threads) as pool:
        yield from _train(run, pool.map, threads, chunk)


def vectors(spec: Spec, words: Lexicon, state: State) -> Float32[np.ndarray, "n d"]:
    """Give the vector of each word."""
    if spec.ngrams is None:
        return state.inputs
    offsets, pieces, _ = _parts(spec, words)
    return compiled().means(offsets, pieces, state.inputs)


def contexts(spec: Spec, words: Lexicon, state: State) -> Float32[np.ndarray, "n d"]:
    """Give each word's vector as a neighbor.

    Raises:
        ValueError: words have none, with a tree.
    """
    if isinstance(spec.output, Hierarchical):
        raise ValueError("the outputs of a tree are of its inner nodes, not of words")
    return state.outputs[: len(words)]


def ngrams_of(
    words: list[str], spec: Ngrams, first: int, *, own: bool = False
) -> tuple[Int[np.ndarray, "_"], Int[np.ndarray, "k"]]:
    """Give where the n-grams of each word begin (and the last end), and their rows.

    Args:
        words: without marks; they are put in `<` and `>`.
        spec: which n-grams.
        first: the row of the first bucket.
        own: word i has the row i too, before those of its n-grams.
    """
    text = [f"<{word}>".encode() for word in words]
    offsets = np.cumsum([0, *map(len, text)])
    letters = np.frombuffer(b"".join(text), np.uint8)
    return compiled().ngrams(letters, offsets, spec.least, spec.most, spec.buckets, first, own)


class _Tables(NamedTuple):
    """What the loops look up."""

    keep: UInt32[np.ndarray, "n"]
    parts: tuple[Int[np.ndarray, "_"], Int[np.ndarray, "k"], Float32[np.ndarray, "n"]]
    tree: tuple[Int[np.ndarray, "_"], Int[np.ndarray, "k"], UInt8[np.ndarray, "k"]]
    chances: UInt64[np.ndarray, "m"]
    n_negatives: int
    probabilities: Float32[np.ndarray, "p"]


class _Run(NamedTuple):
    """What a training is told."""

    spec: Spec
    corpus: Corpus
    words: Lexicon
    state: State
    tables: _Tables
    rate: float
    seed: int


class _Done(NamedTuple):
    loss: float
    n_loss: int
    n_pairs: int
    finite: bool
    n_words: int


def _tables(spec: Spec, words: Lexicon) -> _Tables:
    kernels = compiled()
    none = np.zeros(1, np.int64), np.zeros(0, np.int32), np.zeros(0, np.uint8)
    tree, chances, n_negatives = none, np.zeros(0, np.uint64), 0
    if isinstance(spec.output, Negatives):
        chances = kernels.alias_table(words.counts.astype(np.float64) ** spec.output.power)
        n_negatives = spec.output.count
    else:
        tree = kernels.huffman(words.counts.astype(np.int64))
    keep = as_bits(kept_shares(words.counts, spec.subsample))
    return _Tables(keep, _parts(spec, words), tree, chances, n_negatives, probabilities())


def probabilities() -> Float32[np.ndarray, "p"]:
    """Give the logistic function in the middle of steps of a score, as the loops look it up."""
    kernels = compiled()
    scores = (np.arange(kernels.STEPS + 1) + 0.5) / kernels.STEPS * (2 * kernels.LIMIT)
    scores -= kernels.LIMIT
    return (1 / (1 + np.exp(-scores))).astype(np.float32)


def _parts(
    spec: Spec, words: Lexicon
) -> tuple[Int[np.ndarray, "_"], Int[np.ndarray, "k"], Float32[np.ndarray, "n"]]:
    """Give which rows make the vector of each word."""
    if spec.ngrams is None:
        rows = np.arange(len(words) + 1)
        return rows, rows[:-1].astype(np.int32), np.ones(len(words), np.float32)
    offsets, rows = ngrams_of(list(words.words), spec.ngrams, len(words), own=True)
    return offsets, rows, compiled().own_shares(offsets, rows)


def _train(
    run: _Run, each: Callable[[Any, Any], Any], threads: int, chunk: int
) -> Iterator[Report]:
    spec, state, n_tokens = run.spec, run.state, run.corpus.n_tokens
    slope = (run.rate - spec.last_rate) / (n_tokens * spec.epochs)
    for epoch in range(state.place // n_tokens, spec.epochs):
        before = epoch * n_tokens
        learn = partial(_learn, run, epoch, (run.rate - slope * before, slope, spec.last_rate))
        chunks = run.corpus.chunks(chunk, state.place - before)
        while some := list(islice(chunks, threads)):
            done = list(each(learn, some))
            if not all(d.finite for d in done):
                raise FloatingPointError(
                    f"the vectors are not finite near word {before + some[0].start}: the rate "
                    f"{run.rate} is too high"
                )
            state.place = before + some[-1].end
            n_loss = sum(d.n_loss for d in done)
            yield Report(
                place=state.place,
                n_words=sum(d.n_words for d in done),
                rate=max(run.rate - slope * state.place, spec.last_rate),
                loss=sum(d.loss for d in done) / n_loss if n_loss else math.nan,
            )
        state.place = before + n_tokens
        if not (np.isfinite(state.inputs).all() and np.isfinite(state.outputs).all()):
            raise FloatingPointError(f"the vectors are not finite after {epoch + 1} epochs")


def _learn(run: _Run, epoch: int, rates: tuple[float, float, float], chunk: Chunk) -> _Done:
    """Learn from a chunk."""
    kernels, spec, state, tables = compiled(), run.spec, run.state, run.tables
    found = gather(chunk, run.words.row_of, tables.keep, _key(run.seed, epoch, _DRAWN_OUT))
    given = (
        found.rows, found.bounds, found.places, found.n_sentences, tables.parts, state.inputs,
        state.outputs, tables.tree, tables.chances, tables.n_negatives, spec.window, spec.shrink,
        rates, _key(run.seed, epoch, _DRAWN), tables.probabilities,
    )  # fmt: skip
    if isinstance(spec, Skipgram):
        done = kernels.skipgram(*given)
    else:
        done = kernels.cbow(*given, spec.mean, spec.divided)
    loss, n_loss, n_pairs, finite = done
    return _Done(loss, n_loss, n_pairs, finite, found.n_words)


def _key(seed: int, epoch: int, purpose: int) -> np.uint64:
    """Give the key of what is drawn in an epoch."""
    return np.random.SeedSequence([seed, epoch, purpose]).generate_state(1, np.uint64)[0]


def check_rate(spec: Spec, rate: float) -> None:
    """Check that a rate is above 0, and can fall to the last.

    Raises:
        ValueError: it is not.
    """
    if not (0 < rate <= MOST_RATE and rate >= spec.last_rate):
        raise ValueError(
            f"rate must be above 0, and at least last_rate {spec.last_rate:g}, and at most "
            f"{MOST_RATE:g}, got {rate:g}"
        )


def _check_state(spec: Spec, corpus: Corpus, words: Lexicon, state: State) -> None:
    if len(words.row_of) < corpus.n_ids:
        raise ValueError(f"{len(words.row_of)} ids are known, but the corpus has {corpus.n_ids}")
    fresh = len(words) + (spec.ngrams.buckets if spec.ngrams is not None else 0)
    outputs = len(words) - isinstance(spec.output, Hierarchical)
    d_model = state.inputs.shape[1]
    asked = (fresh, d_model), (outputs, d_model)
    got = state.inputs.shape, state.outputs.shape
    if got != asked:
        raise ValueError(f"the vectors must be of shapes {asked} for this spec, got {got}")
