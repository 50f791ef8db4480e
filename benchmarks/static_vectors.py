"""How far static word vectors get on the tasks of methods.py: the same rows, the same figures.

    python benchmarks/static_vectors.py TEXT... --out FOLDER [--tasks sst2,trec] [--rows 1000]

TEXT: what a model was pretrained on; FOLDER/vectors.npz keeps the vectors, which are trained once
(`pip install gensim`, for this benchmark alone). They are skip-gram with negative sampling (Mikolov
et al. 2013, arXiv:1310.4546), as wide as unmask-mini-en, of lowercase words and punctuation.

On them stand linear classifiers of scikit-learn, on standardized features:

- a text is the mean of its known words' vectors; two texts are [u, v, |u - v|, u * v] (Conneau et
  al. 2017, arXiv:1705.02364, section 3.2); logistic regression, for a number ridge regression;
- a word to be tagged is a window: it and two neighbors on each side, each its vector (of several
  pieces the mean) and whether it is unknown or outside of the sentence; logistic regression for
  each word alone. With shapes, also whether each of the five is capitalized, all capitals, has a
  digit (after Collobert et al. 2011, arXiv:1103.0398, sections 3.2 and 6.1).

How strongly weights are held is chosen by cross-validation within the training rows, by the task's
figure. There is one seed, that of the vectors: the regressions have one solution each, whatever
they begin with.
"""

import argparse
import json
import logging
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, cast

import numpy as np
from methods import BENCHES, DATA, cut

from unmask.finetuning.config import FinetuneConfig
from unmask.finetuning.data import read_data
from unmask.tasks.all_kinds import TASK_KINDS
from unmask.tasks.kind_names import TaskKindName
from unmask.tasks.task import Label, Task, TaskExample

TASKS = ("sst2", "cola", "mrpc", "stsb", "sick", "trec", "conll", "pos")
SETTINGS: dict[str, Any] = {
    "vector_size": 192, "sg": 1, "negative": 5, "window": 5, "sample": 1e-4, "min_count": 5,
    "epochs": 5, "alpha": 0.025, "seed": 0, "workers": 1,
}  # fmt: skip
"""The word2vec tool's, but for the width, and `sample`: as in its demo on text8, which is as long.
One worker: several would make it another model each time."""
STRENGTHS = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)
"""C of logistic regression; 1 / alpha of ridge regression."""
FOLDS = 4
REACH = 2
"""Neighbors that a tagger sees on each side."""
PIECE = re.compile(r"\w+(?=n't\b)|n't\b|'(?:s|re|ve|ll|d|m)\b|\w+|[^\w\s]")
"""A word or a mark; contractions are parted as in the Penn Treebank, and so in SST-2 and CoNLL."""


def pieces(text: str) -> list[str]:
    return PIECE.findall(text.lower().replace("’", "'"))


@dataclass(frozen=True)
class Vectors:
    """A row a word, then one of zeros for those that are unknown."""

    places: dict[str, int]
    matrix: np.ndarray

    @property
    def unknown(self) -> int:
        return len(self.places)

    def find(self, text: str) -> list[int]:
        return [self.places.get(piece, self.unknown) for piece in pieces(text)]


def train(texts: Sequence[Path], path: Path) -> None:
    """Train vectors on paragraphs; write them as plain arrays, with what they were trained on."""
    from gensim.models import Word2Vec

    from unmask.text.documents import read_documents

    logging.basicConfig(format="%(asctime)s %(message)s", level=logging.INFO)
    start = time.process_time()
    read = [
        [sys.intern(piece) for piece in pieces(paragraph)]
        for document in read_documents(list(texts))
        for paragraph in document.text.splitlines()
    ]
    found = Word2Vec(sentences=read, **SETTINGS).wv
    facts = {
        "settings": SETTINGS,
        "texts": {text.name: text.stat().st_size for text in texts},
        "pieces": sum(map(len, read)),
        "seconds": round(time.process_time() - start),
    }
    words = np.array(found.index_to_key)
    np.savez(path, words=words, vectors=found.vectors, facts=json.dumps(facts))


def opened(path: Path) -> Vectors:
    with np.load(path) as file:
        words, vectors, facts = file["words"].tolist(), file["vectors"], str(file["facts"])
    if json.loads(facts)["settings"] != SETTINGS:
        raise SystemExit(f"{path}: trained with other settings: {facts}; remove it")
    print(f"{len(words):,} words, {facts}")
    matrix = np.vstack([vectors, np.zeros((1, vectors.shape[1]))]).astype(np.float32)
    return Vectors({word: i for i, word in enumerate(words)}, matrix)


def mean(ids: Sequence[int], vectors: Vectors) -> np.ndarray:
    """Return the mean vector of the words that are known; zeros if none is."""
    known = [i for i in ids if i != vectors.unknown] or [vectors.unknown]
    return vectors.matrix[known].mean(0)


def of_texts(item: TaskExample, vectors: Vectors) -> np.ndarray:
    """Return the features of one text or two, in one row."""
    found = [mean(vectors.find(text), vectors) for text in item.texts]
    if len(found) == 1:
        return found[0][None]
    u, v = found
    return np.concatenate([u, v, abs(u - v), u * v])[None]


def of_words(item: TaskExample, vectors: Vectors, *, shapes: bool) -> np.ndarray:
    """Return the features of the words of a sentence, a row each."""
    rows: list[np.ndarray] = []
    for word in item.texts:
        ids = vectors.find(word)
        more = [False, vectors.unknown in ids or not ids]
        if shapes:
            more += [word[:1].isupper(), word.isupper(), any(c.isdigit() for c in word)]
        rows.append(np.concatenate([np.array(more, np.float32), mean(ids, vectors)]))
    outside = np.eye(1, len(rows[0]), dtype=np.float32)[0]
    padded = np.stack([outside] * REACH + rows + [outside] * REACH)
    return np.hstack([padded[i : i + len(rows)] for i in range(2 * REACH + 1)])


def fit(features: Sequence[np.ndarray], truths: Sequence[Label], strength: float) -> Any:
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    targets = [t for truth in truths for t in (truth if isinstance(truth, tuple) else (truth,))]
    numbers = isinstance(targets[0], float)
    linear = Ridge(1 / strength) if numbers else LogisticRegression(C=strength, max_iter=2000)
    return make_pipeline(StandardScaler(), linear).fit(np.concatenate(features), targets)


def score(model: Any, features: Sequence[np.ndarray], truths: Sequence[Label], task: Task) -> float:
    """Compute the figure of a task; entities as `repair` would write them have the same F1."""
    flat = model.predict(np.concatenate(features)).tolist()
    ends = pairwise(accumulate(map(len, features), initial=0))
    kind = TASK_KINDS[task.task_kind]
    output: list[Label] = [
        tuple(flat[a:b]) if kind.reader.word_per_line else flat[a] for a, b in ends
    ]
    return kind.compute_metrics(task, truths, output)[task.metric]


def chosen(features: Sequence[np.ndarray], truths: Sequence[Label], task: Task) -> float:
    """Choose the strength that is best on average over folds of whole items."""
    fold = np.random.default_rng(0).permutation(len(truths)) % FOLDS

    def held_out(strength: float, out: int) -> float:
        rest, some = (np.flatnonzero(where).tolist() for where in (fold != out, fold == out))
        model = fit([features[i] for i in rest], [truths[i] for i in rest], strength)
        return score(model, [features[i] for i in some], [truths[i] for i in some], task)

    return max(STRENGTHS, key=lambda c: sum(held_out(c, out) for out in range(FOLDS)))


def run(name: str, n_rows: int, folder: Path, vectors: Vectors) -> list[float]:
    """Score a task, one to be tagged without shapes and with them; print a line each."""
    bench, kind = BENCHES[name], cast("TaskKindName", BENCHES[name].kind)
    train_file, dev_file = (
        str(cut(DATA / path, n, folder / "data", tagged=kind == "tag"))
        for path, n in ((bench.train, n_rows), (bench.dev, 1000))
    )
    data = read_data.read_data(
        FinetuneConfig(base="", task=kind, train=train_file, dev=dev_file, text=bench.text,
                    label=bench.label, metric=bench.metric)
    )  # fmt: skip
    task = Task(task_kind=kind, columns=data.columns, labels=data.labels, metric=bench.metric)
    truths, dev = ([cast("Label", i.label) for i in items] for items in (data.train, data.dev))
    ids = [i for item in data.dev for text in item.texts for i in vectors.find(text)]
    known = 1 - ids.count(vectors.unknown) / len(ids)
    figures: list[float] = []
    for shapes in (False, True) if kind == "tag" else (False,):
        start = time.process_time()
        read = partial(of_words, shapes=shapes) if kind == "tag" else of_texts
        features = [read(item, vectors) for item in data.train]
        strength = chosen(features, truths, task)
        model = fit(features, truths, strength)
        figures.append(score(model, [read(item, vectors) for item in data.dev], dev, task))
        print(
            f"{name}{' with shapes' if shapes else ''} {task.metric} {figures[-1]:.4f} "
            f"({len(truths)} and {len(dev)} rows, C {strength:g}, {known:.1%} of words known, "
            f"{time.process_time() - start:.0f} s)", flush=True,
        )  # fmt: skip
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("texts", nargs="*", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--tasks", default=",".join(TASKS))
    parser.add_argument("--rows", type=int, default=1000)
    options = parser.parse_args()
    names: list[str] = options.tasks.split(",")
    options.out.mkdir(parents=True, exist_ok=True)
    path: Path = options.out / "vectors.npz"
    if not path.is_file():
        if not options.texts:
            parser.error(f"{path} is not there yet: which texts are the vectors trained on?")
        train(options.texts, path)
    vectors = opened(path)
    found = {name: run(name, options.rows, options.out, vectors) for name in names}
    print(f"\n| {options.rows} rows | " + " | ".join([*found, "mean"]) + " |")
    print("| --- |" + " ---: |" * (len(found) + 1))
    for which, title in ((0, "static vectors"), (-1, "static vectors, with shapes of words")):
        row = [100 * figures[which] for figures in found.values()]
        print(f"| {title} | " + " | ".join(f"{x:.1f}" for x in [*row, float(np.mean(row))]) + " |")


if __name__ == "__main__":
    main()
