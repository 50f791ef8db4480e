"""Word vectors against gensim: words a second and the loss on other text, taking turns.

    python benchmarks/word2vec.py TEXT [--kind skip-gram] [--words 400000] [--epochs 5] [--rounds 3]

One thread each (gensim has a second one, which only makes its jobs), equal settings, the same
sentences (the lines of TEXT, which may be .xz). What is compared are seconds of the process; quote
ratios. Both learn the same objective, so their vectors, words' and neighbors', can be asked the
same questions: the loss of the same neighbors and negatives, on the text and on as much after it.
"""

import argparse
import collections
import itertools
import lzma
import os
import re
import time
from collections.abc import Iterable
from pathlib import Path

for threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(threads, "1")

import numpy as np  # noqa: E402
from gensim.models import Word2Vec  # noqa: E402

from unmask.word_vectors.train import word2vec  # noqa: E402
from unmask.word_vectors.train.corpus import (  # noqa: E402
    Corpus,
    Lexicon,
    build_lexicon,
    corpus_from_ids,
    count_ids,
    subsample_chunk,
)
from unmask.word_vectors.train.kernels import word2vec as kernels  # noqa: E402

Vectors = tuple[np.ndarray, np.ndarray]
D = 100


def read(path: Path, n_words: int) -> tuple[list[list[str]], list[list[str]]]:
    """Read so many words of lines, and half as many after them."""
    read = lzma.open if path.suffix == ".xz" else open
    lines, n = [], 0
    with read(path, "rt", encoding="utf-8") as file:
        for line in file:
            lines.append(re.findall(r"\w+|[^\w\s]", line.lower()))
            n += len(lines[-1])
            if n > 1.5 * n_words:
                break
    ends = list(itertools.accumulate(map(len, lines)))
    cut = sum(end <= n_words for end in ends)
    return lines[:cut], lines[cut:]


def view(lines: Iterable[list[str]], ids: dict[str, int]) -> Corpus:
    """Give lines as ids; a word without one has the last."""
    numbers = [[ids.get(word, len(ids)) for word in line] for line in lines]
    ends = np.cumsum([0, *map(len, numbers)])
    flat = np.fromiter(itertools.chain(*numbers), np.uint32)
    return corpus_from_ids(flat, np.stack((ends[:-1], ends[1:]), 1))


def asked(spec: word2vec.Word2VecMethod, words: Lexicon, corpus: Corpus, found: Vectors) -> float:
    """Ask vectors for neighbors, and move nothing: the loss."""
    tables, total, n = word2vec._lookup_tables(spec, words), 0.0, 0
    key = np.uint64(1)
    for chunk in corpus.iter_chunks(2**16):
        given = subsample_chunk(chunk, words.row_of, tables.keep_thresholds, key)
        inputs, outputs = (array.copy() for array in found)
        loop = kernels.skipgram if isinstance(spec, word2vec.SkipGram) else kernels.cbow
        loss, n_loss, *_ = loop(
            *given, tables.row_parts, inputs, outputs, tables.tree, tables.alias_entries,
            tables.n_negatives, spec.window, spec.dynamic_window, (0.0, 0.0, 0.0), key,
            tables.probabilities, *((True, False) if loop is kernels.cbow else ()),
        )  # fmt: skip
        total, n = total + loss, n + n_loss
    return total / n


def rate_of(spec: word2vec.Word2VecMethod) -> float:
    """Give the rate of the released code."""
    return 0.025 if isinstance(spec, word2vec.SkipGram) else 0.05


def ours(
    spec: word2vec.Word2VecMethod, words: Lexicon, corpus: Corpus, seed: int = 0
) -> tuple[float, Vectors]:
    """Train; give seconds of the process, and the vectors."""
    state = word2vec.initialize_word2vec(spec, words, D, seed)
    began = time.process_time()
    training = word2vec.Word2VecTraining(learning_rate=rate_of(spec), seed=seed)
    for _ in word2vec.train_word2vec(spec, corpus, words, state, training):
        pass
    return time.process_time() - began, (state.inputs, state.outputs)


def theirs(
    spec: word2vec.Word2VecMethod, words: Lexicon, lines: list[list[str]], seed: int
) -> tuple[float, Vectors]:
    """Train gensim's at the same settings."""
    model = Word2Vec(
        vector_size=D,
        window=spec.window,
        negative=5,
        sample=spec.subsample,
        sg=int(isinstance(spec, word2vec.SkipGram)),
        alpha=rate_of(spec),
        min_alpha=spec.min_learning_rate,
        min_count=5,
        workers=1,
        seed=seed,
        epochs=spec.epochs,
    )
    model.build_vocab(lines)
    began = time.process_time()
    model.train(lines, total_examples=len(lines), epochs=spec.epochs)
    seconds = time.process_time() - began
    order = [model.wv.key_to_index[word] for word in words.words]
    return seconds, (model.wv.vectors[order], model.syn1neg[order])


def main() -> None:
    """Take turns, print a line each."""
    parser = argparse.ArgumentParser()
    parser.add_argument("text", type=Path)
    parser.add_argument("--kind", choices=["skip-gram", "cbow"], default="skip-gram")
    parser.add_argument("--words", type=int, default=400_000)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    lines, other = read(given.text, given.words)
    counts = collections.Counter(itertools.chain(*lines))
    ids = {word: i for i, word in enumerate(counts)}
    corpus = view(lines, ids)
    words = build_lexicon([*ids, "<unk>"], np.append(count_ids(corpus), 0), [len(ids)])
    held_out = view(other, ids)
    kind = word2vec.SkipGram if given.kind == "skip-gram" else word2vec.CBOW
    ours(kind(epochs=1), words, corpus_from_ids(np.zeros(9, np.uint32)))  # compiled
    for seed in range(given.rounds):
        spec = kind(epochs=given.epochs)
        one, two = ours(spec, words, corpus, seed), theirs(spec, words, lines, seed + 1)
        losses = [[asked(spec, words, c, v) for c in (corpus, held_out)] for _, v in (one, two)]
        speeds = [words.n_words * given.epochs / seconds for seconds, _ in (one, two)]
        print(
            f"ours {speeds[0]:,.0f} words/s, gensim {speeds[1]:,.0f}: {speeds[0] / speeds[1]:.2f} "
            f"times; loss ours {losses[0][0]:.4f}, on other text {losses[0][1]:.4f}, gensim "
            f"{losses[1][0]:.4f}, {losses[1][1]:.4f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
