"""Trainers: any method for word vectors as resumable steps.

trainer = build_trainer(method, corpus, words, WordVectorOptions(d_model=100), folder)
for step in trainer.steps():
    print(step.step, step.loss)  # training may stop here: trainer.state() is all of its state
trainer.vectors()
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
"""Family name of models that are only a table of vectors."""
FASTTEXT_FILE = "fasttext.bin"
"""File of a run with the vectors of n-grams, in the format of the fastText program."""
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
"""Keys of a recipe that word vectors depend on. The number of steps follows from the text."""


@dataclass(frozen=True, kw_only=True)
class WordVectorOptions:
    """Settings shared by all methods."""

    d_model: int = 100
    rate: float = 0.025
    """Learning rate; factorizations ignore it."""
    seed: int = 0
    threads: int = 1


@dataclass(frozen=True, kw_only=True)
class WordVectorStep:
    """Report of a training step."""

    step: int
    """Number of the step, from 1."""
    position: int
    """Number of tokens, or counted pairs, processed so far over all epochs."""
    n_examples: int
    """Number of words, or pairs, in this step."""
    loss: float
    """Loss per prediction; NaN if there was none."""
    rate: float


class WordVectorTrainer(ABC):
    """Training of a method."""

    n_steps: int
    """Total number of steps."""

    @abstractmethod
    def steps(self) -> Iterator[WordVectorStep]:
        """Take the remaining steps; the state is consistent between two steps."""

    @abstractmethod
    def state(self) -> dict[str, np.ndarray]:
        """Return the mutable state, as arrays that training updates in place."""

    @abstractmethod
    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Restore a state.

        Raises:
            ValueError: the state belongs to another training.
        """

    @abstractmethod
    def vectors(self) -> Float32[np.ndarray, "n d"]:
        """Return the vector of each word."""

    def fasttext_bytes(self) -> Iterator[bytes] | None:
        """Return the bytes of fastText's model file; None for methods without n-grams."""
        return None


def build_trainer(
    method: WordVectorMethod,
    corpus: Corpus,
    words: Lexicon,
    options: WordVectorOptions,
    folder: Path,
) -> WordVectorTrainer:
    """Build the trainer of a method.

    Args:
        method: the method.
        corpus: the token ids.
        words: the words that have vectors.
        options: dimension, learning rate, seed and threads.
        folder: folder of cooccurrence counts, which are reused or resumed.

    Raises:
        ValueError: a number is out of range, or the corpus has nothing to train on.
        ImportError: a required library is not installed.
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
    """Skip-gram and CBOW: a step is one chunk of the corpus per thread."""

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
        chunks = sum(1 for _ in corpus.iter_chunks(word2vec.CHUNK_TOKENS))
        self.n_steps = method.epochs * math.ceil(chunks / options.threads)

    def steps(self) -> Iterator[WordVectorStep]:
        options = self._options
        training = word2vec.Word2VecTraining(
            learning_rate=options.rate, seed=options.seed, threads=options.threads
        )
        for report in word2vec.train_word2vec(
            self._method, self._corpus, self._words, self._state, training
        ):
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
        options, n = self._options, self._counts.n_pairs
        for report in glove.train_glove(
            self._method, self._counts, self._state,
            learning_rate=options.rate, seed=options.seed, threads=options.threads,
        ):  # fmt: skip
            yield WordVectorStep(
                step=report.epoch,
                position=report.epoch * n,
                n_examples=n,
                loss=report.loss,
                rate=options.rate,
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
    """Factorization of counts in a single step."""

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


def _check_state(expected: Mapping[str, np.ndarray], saved: Mapping[str, np.ndarray]) -> None:
    for name, x in expected.items():
        if name not in saved or saved[name].shape != x.shape:
            raise ValueError(f"{name}: is of another training")
