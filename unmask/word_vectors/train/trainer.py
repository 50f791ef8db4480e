"""Any method for word vectors as one that takes steps, can be stopped, and gone on with.

learning = begin(method, corpus, words, WordVectorOptions(d_model=100, rate=0.025), folder)
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

from unmask.word_vectors.formats import fasttext_model
from unmask.word_vectors.train import glove, lsa, svd, word2vec
from unmask.word_vectors.train.cooccurrences import CooccurrenceMatrix, count_cooccurrences
from unmask.word_vectors.train.corpus import Corpus, Lexicon
from unmask.word_vectors.train.glove import GloVe
from unmask.word_vectors.train.lsa import LSA
from unmask.word_vectors.train.svd import SVD
from unmask.word_vectors.train.word2vec import CBOW, SkipGram

WordVectorMethod = SkipGram | CBOW | GloVe | SVD | LSA
WORD_VECTOR_FAMILY = "word-vectors"
"""What models are called that are a table of vectors alone."""
FASTTEXT_FILE = "fasttext.bin"
"""The file of a run with the vectors of n-grams: a model as fastText's own program writes it."""
WORD_VECTOR_METHODS = (SkipGram, CBOW, GloVe, SVD, LSA)
RECIPE_KEYS = (
    "model",
    "architecture",
    "objective",
    "data",
    "document_separator",
    "text_column",
    "encoding_errors",
    "dev_fraction",
    "tokenizer",
    "vocab_size",
    "row_unit",
    "learning_rate",
    "steps",
    "seed",
    "log_every",
    "checkpoint_every",
    "keep_checkpoints",
)
"""Keys of a recipe that word vectors depend on. How many steps there are follows from the text."""


@dataclass(frozen=True, kw_only=True)
class WordVectorOptions:
    """What a method is told beside itself."""

    d_model: int = 100
    rate: float = 0.025
    """Of factors there is none."""
    seed: int = 0
    threads: int = 1


@dataclass(frozen=True, kw_only=True)
class WordVectorStep:
    """What a step gave."""

    step: int
    """Steps count from 1."""
    position: int
    """What is behind us, through all epochs: ids of the corpus, or pairs that were counted."""
    n_examples: int
    """Words that were learned from in it; or pairs."""
    loss: float
    """Of a question; not a number where none was asked."""
    rate: float


class WordVectorTrainer(ABC):
    """A method at work."""

    n_steps: int
    """All that there are."""

    @abstractmethod
    def steps(self) -> Iterator[WordVectorStep]:
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

    def fasttext_bytes(self) -> Iterator[bytes] | None:
        """Give the bytes of fastText's model file, where words are composed of n-grams."""
        return None


def build_trainer(
    method: WordVectorMethod,
    corpus: Corpus,
    words: Lexicon,
    options: WordVectorOptions,
    folder: Path,
) -> WordVectorTrainer:
    """Begin with a method.

    Args:
        method: which.
        corpus: the ids.
        words: that get a vector.
        options: what else it must know.
        folder: where pairs are counted, if they are; where that was begun or done, it goes on.

    Raises:
        ValueError: a number makes no sense, or nothing can be learned of this.
        ImportError: a library that it needs is not installed.
    """
    if isinstance(method, SkipGram | CBOW):
        return _PredictionTrainer(method, corpus, words, options)
    if isinstance(method, LSA):
        return _FactorizationTrainer(
            partial(_factorize_documents, method, corpus, words, options), len(words), options
        )
    windows = replace(method.cooccurrence_window, seed=options.seed)
    counts = count_cooccurrences(corpus, words, windows, folder)
    if isinstance(method, GloVe):
        return _GloVeTrainer(method, counts, options)
    return _FactorizationTrainer(
        partial(_factorize_cooccurrences, method, counts, options), counts.n_words, options
    )


class _PredictionTrainer(WordVectorTrainer):
    """Skip-gram, CBOW: a step is a chunk of the corpus for each thread."""

    def __init__(
        self,
        method: word2vec.Word2VecMethod,
        corpus: Corpus,
        words: Lexicon,
        options: WordVectorOptions,
    ) -> None:
        word2vec.check_learning_rate(method, options.rate)
        self._method, self._corpus, self._words, self._options = method, corpus, words, options
        self._state, self._step = (
            word2vec.initialize_word2vec(method, words, options.d_model, options.seed),
            0,
        )
        chunks = sum(1 for _ in corpus.iter_chunks(word2vec.CHUNK_IDS))
        self.n_steps = method.epochs * math.ceil(chunks / options.threads)

    def steps(self) -> Iterator[WordVectorStep]:
        told = self._options
        for report in word2vec.train_word2vec(
            self._method, self._corpus, self._words, self._state,
            learning_rate=told.rate, seed=told.seed, threads=told.threads,
        ):  # fmt: skip
            self._step += 1
            yield WordVectorStep(
                step=self._step,
                position=report.position,
                n_examples=report.n_words,
                loss=report.loss,
                rate=report.rate,
            )

    def state(self) -> dict[str, np.ndarray]:
        at = np.array([self._step, self._state.place])
        return {"inputs": self._state.inputs, "outputs": self._state.outputs, "at": at}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        _check_state(self.state(), state)
        self._step, place = state["at"].tolist()
        self._state = word2vec.Word2VecState(state["inputs"], state["outputs"], place)

    def vectors(self) -> Float32[np.ndarray, "n d"]:
        return word2vec.word_vectors(self._method, self._words, self._state)

    def fasttext_bytes(self) -> Iterator[bytes] | None:
        if self._method.character_ngrams is None:
            return None
        return fasttext_model.write_fasttext(
            self._method, self._words.words, self._words.counts, self._state
        )


class _GloVeTrainer(WordVectorTrainer):
    """GloVe: a step is an epoch of all pairs."""

    def __init__(
        self, method: GloVe, counts: CooccurrenceMatrix, options: WordVectorOptions
    ) -> None:
        self._method, self._counts, self._options = method, counts, options
        self._state = glove.initialize_glove(counts, options.d_model, options.seed)
        self.n_steps = method.epochs

    def steps(self) -> Iterator[WordVectorStep]:
        told, n = self._options, self._counts.n_pairs
        for report in glove.train_glove(
            self._method, self._counts, self._state,
            learning_rate=told.rate, seed=told.seed, threads=told.threads,
        ):  # fmt: skip
            yield WordVectorStep(
                step=report.epoch,
                position=report.epoch * n,
                n_examples=n,
                loss=report.loss,
                rate=told.rate,
            )

    def state(self) -> dict[str, np.ndarray]:
        names = [f.name for f in fields(self._state)[:-1]]
        arrays = dict(zip(names, self._state.arrays, strict=True))
        return arrays | {"epoch": np.array([self._state.epoch])}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        _check_state(self.state(), state)
        epoch = int(state["epoch"][0])
        arrays = {name: x for name, x in state.items() if name != "epoch"}
        self._state = glove.GloVeState(**arrays, epoch=epoch)

    def vectors(self) -> Float32[np.ndarray, "n d"]:
        return glove.glove_vectors(self._state)


def _factorize_cooccurrences(
    method: SVD, counts: CooccurrenceMatrix, options: WordVectorOptions
) -> Float32[np.ndarray, "n d"]:
    spec = method.association
    matrix = svd.log_count_matrix(counts) if spec is None else svd.pmi_matrix(counts, spec)
    factors = svd.truncated_svd(matrix, options.d_model, options.seed)
    return factors.vectors(method.singular_value_power, add_contexts=method.add_contexts)


def _factorize_documents(
    method: LSA, corpus: Corpus, words: Lexicon, options: WordVectorOptions
) -> Float32[np.ndarray, "n d"]:
    factors = svd.truncated_svd(
        lsa.term_document_matrix(corpus, words), options.d_model, options.seed
    )
    return factors.vectors(method.power)


class _FactorizationTrainer(WordVectorTrainer):
    """Factors of counts: one step, after which nothing is left to be learned."""

    n_steps = 1

    def __init__(
        self,
        factorize: Callable[[], Float32[np.ndarray, "n d"]],
        n_words: int,
        options: WordVectorOptions,
    ) -> None:
        svd.check_width(n_words, options.d_model)
        self._factorize, self._done = factorize, False
        self._vectors = np.zeros((n_words, options.d_model), np.float32)

    def steps(self) -> Iterator[WordVectorStep]:
        if self._done:
            return
        self._vectors, self._done = self._factorize(), True
        yield WordVectorStep(
            step=1, position=len(self._vectors), n_examples=0, loss=math.nan, rate=math.nan
        )

    def state(self) -> dict[str, np.ndarray]:
        return {"vectors": self._vectors, "done": np.array([self._done])}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        _check_state(self.state(), state)
        self._vectors, self._done = state["vectors"], bool(state["done"][0])

    def vectors(self) -> Float32[np.ndarray, "n d"]:
        return self._vectors


def _check_state(mine: Mapping[str, np.ndarray], found: Mapping[str, np.ndarray]) -> None:
    for name, x in mine.items():
        if name not in found or found[name].shape != x.shape:
            raise ValueError(f"{name}: is of another training")
