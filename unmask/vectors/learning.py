"""Any method for word vectors as one that takes steps, can be stopped, and gone on with.

learning = begin(method, corpus, words, Told(d_model=100, rate=0.025), folder)
for step in learning.steps():
    print(step.step, step.loss)  # here it may be stopped: learning.state() is all that it knows
learning.vectors()
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path

import numpy as np
from jaxtyping import Float32

from unmask.vectors import facebook, glove, lsa, svd, word2vec
from unmask.vectors.corpus import Corpus, Lexicon
from unmask.vectors.counts import Counts, count
from unmask.vectors.glove import Glove
from unmask.vectors.lsa import Lsa
from unmask.vectors.svd import Svd
from unmask.vectors.word2vec import Cbow, Skipgram

Method = Skipgram | Cbow | Glove | Svd | Lsa
FAMILY = "word-vectors"
"""What models are called that are a table of vectors alone."""
NGRAMS = "fasttext.bin"
"""The file of a run with the vectors of n-grams: a model as fastText's own program writes it."""
METHODS = (Skipgram, Cbow, Glove, Svd, Lsa)
KEYS = (
    "model", "architecture", "objective", "data", "document", "text", "encoding_errors", "dev",
    "tokenizer", "vocab_size", "unit", "rate", "steps", "seed", "log_every", "checkpoint_every",
    "keep",
)  # fmt: skip
"""Keys of a recipe that word vectors depend on. How many steps there are follows from the text."""


@dataclass(frozen=True, kw_only=True)
class Told:
    """What a method is told beside itself."""

    d_model: int = 100
    rate: float = 0.025
    """Of factors there is none."""
    seed: int = 0
    threads: int = 1


@dataclass(frozen=True, kw_only=True)
class Step:
    """What a step gave."""

    step: int
    """Steps count from 1."""
    place: int
    """What is behind us, through all epochs: ids of the corpus, or pairs that were counted."""
    asked: int
    """Words that were learned from in it; or pairs."""
    loss: float
    """Of a question; not a number where none was asked."""
    rate: float


class Learning(ABC):
    """A method at work."""

    n_steps: int
    """All that there are."""

    @abstractmethod
    def steps(self) -> Iterator[Step]:
        """Take the steps that are left; between two, the state is whole."""

    @abstractmethod
    def state(self) -> dict[str, np.ndarray]:
        """Give all that changes, as arrays that go on changing."""

    @abstractmethod
    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Go back to such a state.

        Raises:
            ValueError: it is of something else.
        """

    @abstractmethod
    def vectors(self) -> Float32[np.ndarray, "n d"]:
        """Give the vector of each word."""

    def composed(self) -> Iterator[bytes] | None:
        """Give the bytes of fastText's model file, where words are composed of n-grams."""
        return None


def begin(method: Method, corpus: Corpus, words: Lexicon, told: Told, folder: Path) -> Learning:
    """Begin with a method.

    Args:
        method: which.
        corpus: the ids.
        words: that get a vector.
        told: what else it must know.
        folder: where pairs are counted, if they are; where that was begun or done, it goes on.

    Raises:
        ValueError: a number makes no sense, or nothing can be learned of this.
        ImportError: a library that it needs is not installed.
    """
    if isinstance(method, Skipgram | Cbow):
        return _Asking(method, corpus, words, told)
    if isinstance(method, Lsa):
        return _Factoring(partial(_of_documents, method, corpus, words, told), len(words), told)
    windows = replace(method.windows, seed=told.seed)
    counts = count(corpus, words, windows, folder)
    if isinstance(method, Glove):
        return _Fitting(method, counts, told)
    return _Factoring(partial(_of_pairs, method, counts, told), counts.n_words, told)


class _Asking(Learning):
    """Skip-gram, CBOW: a step is a chunk of the corpus for each thread."""

    def __init__(self, method: word2vec.Spec, corpus: Corpus, words: Lexicon, told: Told) -> None:
        word2vec.check_rate(method, told.rate)
        self._method, self._corpus, self._words, self._told = method, corpus, words, told
        self._state, self._step = word2vec.start(method, words, told.d_model, told.seed), 0
        chunks = sum(1 for _ in corpus.chunks(word2vec.CHUNK))
        self.n_steps = method.epochs * math.ceil(chunks / told.threads)

    def steps(self) -> Iterator[Step]:
        told = self._told
        for report in word2vec.train(
            self._method, self._corpus, self._words, self._state,
            rate=told.rate, seed=told.seed, threads=told.threads,
        ):  # fmt: skip
            self._step += 1
            yield Step(
                step=self._step,
                place=report.place,
                asked=report.n_words,
                loss=report.loss,
                rate=report.rate,
            )

    def state(self) -> dict[str, np.ndarray]:
        at = np.array([self._step, self._state.place])
        return {"inputs": self._state.inputs, "outputs": self._state.outputs, "at": at}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        _check(self.state(), state)
        self._step, place = state["at"].tolist()
        self._state = word2vec.State(state["inputs"], state["outputs"], place)

    def vectors(self) -> Float32[np.ndarray, "n d"]:
        return word2vec.vectors(self._method, self._words, self._state)

    def composed(self) -> Iterator[bytes] | None:
        if self._method.ngrams is None:
            return None
        return facebook.written(self._method, self._words.words, self._words.counts, self._state)


class _Fitting(Learning):
    """GloVe: a step is an epoch of all pairs."""

    def __init__(self, method: Glove, counts: Counts, told: Told) -> None:
        self._method, self._counts, self._told = method, counts, told
        self._state = glove.start(counts, told.d_model, told.seed)
        self.n_steps = method.epochs

    def steps(self) -> Iterator[Step]:
        told, n = self._told, self._counts.n_pairs
        for report in glove.train(
            self._method, self._counts, self._state,
            rate=told.rate, seed=told.seed, threads=told.threads,
        ):  # fmt: skip
            yield Step(
                step=report.epoch,
                place=report.epoch * n,
                asked=n,
                loss=report.loss,
                rate=told.rate,
            )

    def state(self) -> dict[str, np.ndarray]:
        names = [f.name for f in fields(self._state)[:-1]]
        arrays = dict(zip(names, self._state.arrays, strict=True))
        return arrays | {"epoch": np.array([self._state.epoch])}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        _check(self.state(), state)
        epoch = int(state["epoch"][0])
        arrays = {name: x for name, x in state.items() if name != "epoch"}
        self._state = glove.State(**arrays, epoch=epoch)

    def vectors(self) -> Float32[np.ndarray, "n d"]:
        return glove.vectors(self._state)


def _of_pairs(how: Svd, counts: Counts, told: Told) -> Float32[np.ndarray, "n d"]:
    spec = how.matrix
    matrix = svd.logarithms(counts) if spec is None else svd.associations(counts, spec)
    factors = svd.factorize(matrix, told.d_model, told.seed)
    return factors.vectors(how.power, contexts=how.contexts)


def _of_documents(
    how: Lsa, corpus: Corpus, words: Lexicon, told: Told
) -> Float32[np.ndarray, "n d"]:
    factors = svd.factorize(lsa.weighted(corpus, words), told.d_model, told.seed)
    return factors.vectors(how.power)


class _Factoring(Learning):
    """Factors of counts: one step, after which nothing is left to be learned."""

    n_steps = 1

    def __init__(
        self, find: Callable[[], Float32[np.ndarray, "n d"]], n_words: int, told: Told
    ) -> None:
        svd.check_width(n_words, told.d_model)
        self._find, self._done = find, False
        self._found = np.zeros((n_words, told.d_model), np.float32)

    def steps(self) -> Iterator[Step]:
        if self._done:
            return
        self._found, self._done = self._find(), True
        yield Step(step=1, place=len(self._found), asked=0, loss=math.nan, rate=math.nan)

    def state(self) -> dict[str, np.ndarray]:
        return {"vectors": self._found, "done": np.array([self._done])}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        _check(self.state(), state)
        self._found, self._done = state["vectors"], bool(state["done"][0])

    def vectors(self) -> Float32[np.ndarray, "n d"]:
        return self._found


def _check(mine: Mapping[str, np.ndarray], found: Mapping[str, np.ndarray]) -> None:
    for name, x in mine.items():
        if name not in found or found[name].shape != x.shape:
            raise ValueError(f"{name}: is of another training")
