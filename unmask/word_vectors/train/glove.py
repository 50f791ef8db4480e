"""GloVe: vectors whose dot products approximate log counts (Pennington et al. 2014, D14-1162).

    counts = count_cooccurrences(corpus, words, spec.cooccurrence_window, folder)
    state = initialize_glove(counts, d_model=100)
    for report in train_glove(spec, counts, state, learning_rate=0.05):
        print(report.epoch, report.loss)
    glove_vectors(state)

With one thread the vectors are a function of the method, the counts, the learning rate and the
seed, also if training is interrupted between two epochs and resumed.
"""

import math
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float32, Int

from unmask.config import MAX_LEARNING_RATE
from unmask.word_vectors.train.cooccurrences import CooccurrenceMatrix, CooccurrenceWindow
from unmask.word_vectors.train.corpus import load_kernels
from unmask.word_vectors.train.windows import WindowMethod

_BLOCK = 2**10  # pairs that are read together
_BUFFER = 2**22  # pairs that are in memory at once, in random order


@dataclass(frozen=True, kw_only=True)
class GloVe(WindowMethod):
    """Weighted least squares on log counts (equation 8), by AdaGrad.

    Raises:
        ValueError: a number is out of range.
    """

    cooccurrence_window: CooccurrenceWindow = field(default_factory=CooccurrenceWindow)
    x_max: float = 100.0
    """Counts from here on have the full weight (equation 9)."""
    alpha: float = 0.75
    """The weight of lesser ones is (count / x_max) to this power."""
    epochs: int = 25

    def __post_init__(self) -> None:
        if self.epochs < 1:
            raise ValueError(f"epochs must be at least 1, got {self.epochs}")
        _check_positive("x_max", self.x_max)
        if not self.alpha >= 0:
            raise ValueError(f"alpha must be at least 0, got {self.alpha}")

    @property
    def window_size(self) -> tuple[int, bool]:
        """Neighbors on each side; all count."""
        return self.cooccurrence_window.window, False

    @property
    def visibility_description(self) -> str:
        """Describe who attends to whom."""
        return (
            f"none: all pairs of neighbors are counted{self.cooccurrence_window.description}; "
            "then two words "
            "predict the logarithm of their count"
        )


def _check_positive(name: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{name} must be above 0, got {value}")


@dataclass(eq=False)
class GloVeState:
    """Everything that changes while training: vectors, biases, and AdaGrad's sums of squares."""

    words: Float32[np.ndarray, "n d"]
    contexts: Float32[np.ndarray, "n d"]
    word_biases: Float32[np.ndarray, "n"]
    context_biases: Float32[np.ndarray, "n"]
    squares_words: Float32[np.ndarray, "n d"]
    squares_contexts: Float32[np.ndarray, "n d"]
    squares_word_biases: Float32[np.ndarray, "n"]
    squares_context_biases: Float32[np.ndarray, "n"]
    epoch: int = 0
    """Number of epochs completed."""

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """All but the epoch, in order."""
        return tuple(getattr(self, f.name) for f in fields(self)[:-1])


class GloVeReport(NamedTuple):
    """What an epoch gave."""

    epoch: int
    """Number of epochs completed."""
    loss: float
    """Of a pair, half its weighted square, on average, each before it was learned from."""


def initialize_glove(counts: CooccurrenceMatrix, d_model: int = 100, seed: int = 0) -> GloVeState:
    """Initialize vectors and biases as the released code does.

    Raises:
        ValueError: there are no counts, or a number is out of range.
    """
    if d_model < 1 or seed < 0:
        raise ValueError(f"d_model must be at least 1, seed at least 0, got {d_model} and {seed}")
    if not counts.n_pairs:
        raise ValueError("no pair was counted: there is nothing to learn")
    random = np.random.Generator(np.random.Philox(seed))
    n, d = counts.n_words, d_model

    def draw(*shape: int) -> Float32[np.ndarray, "..."]:
        return (random.random(shape, np.float32) - np.float32(0.5)) / np.float32(d + 1)

    def ones(*shape: int) -> Float32[np.ndarray, "..."]:
        return np.ones(shape, np.float32)

    return GloVeState(
        draw(n, d), draw(n, d), draw(n), draw(n), ones(n, d), ones(n, d), ones(n), ones(n)
    )  # fmt: skip


def train_glove(
    spec: GloVe,
    counts: CooccurrenceMatrix,
    state: GloVeState,
    *,
    learning_rate: float,
    seed: int = 0,
    threads: int = 1,
) -> Iterator[GloVeReport]:
    """Train the vectors of a state in place to the last epoch; yield a report per epoch.

    An epoch visits each pair once: blocks in random order, and pairs shuffled within several
    blocks. The paper's learning rate is 0.05.

    Raises:
        ValueError: the state does not belong to these counts, or a number is out of range.
        FloatingPointError: a vector is not finite.
    """
    if threads < 1:
        raise ValueError(f"threads must be at least 1, got {threads}")
    _check_positive("learning_rate", learning_rate)
    if learning_rate > MAX_LEARNING_RATE:
        raise ValueError(
            f"learning_rate must be at most {MAX_LEARNING_RATE:g}, got {learning_rate}"
        )
    if len(state.words) != counts.n_words:
        raise ValueError(f"{len(state.words)} vectors, but counts of {counts.n_words} words")
    if threads == 1:
        yield from _train_epochs(spec, counts, state, learning_rate, seed, map, 1)
        return
    with ThreadPoolExecutor(threads) as pool:
        yield from _train_epochs(spec, counts, state, learning_rate, seed, pool.map, threads)


def glove_vectors(state: GloVeState) -> Float32[np.ndarray, "n d"]:
    """Return each word's vector: the sum of its word and context vectors (section 4.2)."""
    return state.words + state.contexts


def _train_epochs(
    spec: GloVe,
    counts: CooccurrenceMatrix,
    state: GloVeState,
    learning_rate: float,
    seed: int,
    each: Callable[..., Any],
    threads: int,
) -> Iterator[GloVeReport]:
    for epoch in range(state.epoch, spec.epochs):
        total, finite = 0.0, True
        for pairs in _shuffled_pairs(counts, seed, epoch):

            def learn(
                order: Int[np.ndarray, "_"], pairs: "_ShuffledPairs" = pairs
            ) -> tuple[float, bool]:
                return load_kernels("cooccurrence").glove(
                    order, pairs.rows, pairs.columns, pairs.values, *state.arrays, spec.x_max,
                    spec.alpha, learning_rate,
                )  # fmt: skip

            for loss, good in each(learn, np.array_split(pairs.order, threads)):
                total += loss
                finite &= good
        if not (finite and all(np.isfinite(array).all() for array in state.arrays)):
            raise FloatingPointError(
                f"the vectors are not finite in epoch {epoch + 1}: the rate {learning_rate} is too "
                "high"
            )
        state.epoch = epoch + 1
        yield GloVeReport(epoch + 1, total / counts.n_pairs)


class _ShuffledPairs(NamedTuple):
    """Some pairs, and the order in which they are learned."""

    rows: Int[np.ndarray, "k"]
    columns: Int[np.ndarray, "k"]
    values: Float32[np.ndarray, "k"]
    order: Int[np.ndarray, "k"]


def _shuffled_pairs(counts: CooccurrenceMatrix, seed: int, epoch: int) -> Iterator[_ShuffledPairs]:
    """Yield all pairs: blocks in random order, and pairs in memory in random order."""
    random = np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, epoch])))
    starts = np.arange(0, counts.n_pairs, _BLOCK)
    blocks = random.permutation(len(starts))
    for at in range(0, len(blocks), _BUFFER // _BLOCK):
        some = starts[blocks[at : at + _BUFFER // _BLOCK]]
        ends = np.minimum(some + _BLOCK, counts.n_pairs)
        n = int((ends - some).sum())
        found = np.empty(n, np.int32), np.empty(n, np.int32), np.empty(n, np.float32)
        load_kernels("cooccurrence").read_blocks(
            counts.offsets, counts.columns, counts.values, some, ends, *found
        )
        yield _ShuffledPairs(*found, random.permutation(n))
