"""GloVe: vectors whose products are the logarithms of counts (Pennington et al. 2014, D14-1162).

    state = start(spec, counts)
    for report in train(spec, counts, state):
        print(report.epoch, report.loss)
    vectors(state)

On one thread the numbers are a function of the spec and the counts, wherever training was stopped
between two epochs and gone on with.
"""

import json
import math
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float32, Int

from unmask.config import from_dict, to_dict
from unmask.files import whole
from unmask.vectors.corpus import compiled
from unmask.vectors.counts import Counts

_BLOCK = 2**10  # pairs that are read together
_BUFFER = 2**22  # pairs that are in memory at once, in random order


@dataclass(frozen=True, kw_only=True)
class Glove:
    """Weighted least squares of the logarithms of counts (equation 8), by AdaGrad.

    Raises:
        ValueError: a number that makes no sense.
    """

    d_model: int = 100
    x_max: float = 100.0
    """Counts from here on have the full weight (equation 9)."""
    power: float = 0.75
    """The weight of lesser ones is (count / x_max) to this power."""
    rate: float = 0.05
    epochs: int = 25
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least in {"d_model": 1, "epochs": 1, "seed": 0}.items():
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, got {getattr(self, name)}")
        for name in ("x_max", "rate"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f"{name} must be above 0, got {value}")
        if not self.power >= 0:
            raise ValueError(f"power must be at least 0, got {self.power}")


@dataclass(eq=False)
class State:
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
    """Epochs that are behind us."""

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """All but the epoch, in order."""
        return tuple(getattr(self, field.name) for field in fields(self)[:-1])


class Report(NamedTuple):
    """What an epoch gave."""

    epoch: int
    """Epochs that are behind us."""
    loss: float
    """Of a pair, half its weighted square, on average, each before it was learned from."""


def start(spec: Glove, counts: Counts) -> State:
    """Draw the vectors and biases that training begins with, as the released code does.

    Raises:
        ValueError: nothing was counted.
    """
    if not counts.n_pairs:
        raise ValueError("no pair was counted: there is nothing to learn")
    random = np.random.Generator(np.random.Philox(spec.seed))
    n, d = counts.n_words, spec.d_model

    def draw(*shape: int) -> Float32[np.ndarray, "..."]:
        return (random.random(shape, np.float32) - np.float32(0.5)) / np.float32(d + 1)

    def ones(*shape: int) -> Float32[np.ndarray, "..."]:
        return np.ones(shape, np.float32)

    return State(
        draw(n, d), draw(n, d), draw(n), draw(n), ones(n, d), ones(n, d), ones(n), ones(n)
    )  # fmt: skip


def train(spec: Glove, counts: Counts, state: State, *, threads: int = 1) -> Iterator[Report]:
    """Learn from the state's epoch to the last; the vectors move in place, a report an epoch.

    All pairs come once an epoch, in blocks in random order, many blocks mixed.

    Raises:
        ValueError: the state is not of this spec and these counts.
        FloatingPointError: a vector is not finite.
    """
    if threads < 1:
        raise ValueError(f"threads must be at least 1, got {threads}")
    if state.words.shape != (counts.n_words, spec.d_model):
        raise ValueError(
            f"the vectors must be of shape {(counts.n_words, spec.d_model)} for this spec and "
            f"these counts, got {state.words.shape}"
        )
    if threads == 1:
        yield from _train(spec, counts, state, map, 1)
        return
    with ThreadPoolExecutor(threads) as pool:
        yield from _train(spec, counts, state, pool.map, threads)


def vectors(state: State) -> Float32[np.ndarray, "n d"]:
    """Give each word's vector: the sum of both (section 4.2)."""
    return state.words + state.contexts


def save(path: Path, spec: Glove, state: State) -> None:
    """Write spec and state to a file (.npz), replacing the one that is there."""
    arrays = {field.name: getattr(state, field.name) for field in fields(state)}
    with whole(path) as beside, beside.open("wb") as file:
        np.savez(file, spec=json.dumps(to_dict(spec)), **arrays)


def load(path: Path) -> tuple[Glove, State]:
    """Read spec and state back.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is not such a file.
    """
    try:
        with np.load(path) as found:
            spec = from_dict(Glove, json.loads(str(found["spec"])))
            arrays = [found[field.name] for field in fields(State)[:-1]]
            state = State(*arrays)
            state.epoch = int(found["epoch"])
            return spec, state
    except (KeyError, ValueError, EOFError) as error:
        raise ValueError(f"{path} holds no training of GloVe: {error}") from None


def _train(
    spec: Glove, counts: Counts, state: State, each: Callable[..., Any], threads: int
) -> Iterator[Report]:
    for epoch in range(state.epoch, spec.epochs):
        total, finite = 0.0, True
        for pairs in _pairs(counts, spec.seed, epoch):

            def learn(order: Int[np.ndarray, "_"], pairs: "_Pairs" = pairs) -> tuple[float, bool]:
                return compiled().glove(
                    order, pairs.rows, pairs.columns, pairs.values, *state.arrays, spec.x_max,
                    spec.power, spec.rate,
                )  # fmt: skip

            for loss, good in each(learn, np.array_split(pairs.order, threads)):
                total += loss
                finite &= good
        if not (finite and all(np.isfinite(array).all() for array in state.arrays)):
            raise FloatingPointError(
                f"the vectors are not finite in epoch {epoch + 1}: the rate {spec.rate} is too high"
            )
        state.epoch = epoch + 1
        yield Report(epoch + 1, total / counts.n_pairs)


class _Pairs(NamedTuple):
    """Some pairs, and the order in which they are learned."""

    rows: Int[np.ndarray, "k"]
    columns: Int[np.ndarray, "k"]
    values: Float32[np.ndarray, "k"]
    order: Int[np.ndarray, "k"]


def _pairs(counts: Counts, seed: int, epoch: int) -> Iterator[_Pairs]:
    """Give all pairs: blocks in random order, and those in memory at once in random order."""
    random = np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, epoch])))
    starts = np.arange(0, counts.n_pairs, _BLOCK)
    blocks = random.permutation(len(starts))
    for at in range(0, len(blocks), _BUFFER // _BLOCK):
        some = starts[blocks[at : at + _BUFFER // _BLOCK]]
        ends = np.minimum(some + _BLOCK, counts.n_pairs)
        n = int((ends - some).sum())
        found = np.empty(n, np.int32), np.empty(n, np.int32), np.empty(n, np.float32)
        compiled().read_blocks(counts.offsets, counts.columns, counts.values, some, ends, *found)
        yield _Pairs(*found, random.permutation(n))
