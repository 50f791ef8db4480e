"""GloVe against the released C program, taking turns.

    python benchmarks/glove.py TEXT BUILD [--words 2000000] [--epochs 5] [--threads 1 2]

BUILD is the folder of the compiled programs of github.com/stanfordnlp/GloVe (`make` there). The
same words of the same lines, windows of 10, vectors of 100, the released settings. Compared are
seconds by the clock of counting neighbors (the programs `cooccur` and `shuffle`; ours shuffles
while it learns) and of learning; quote ratios. Checked are that both count the same pairs, and that
both come to the same loss.
"""

import argparse
import collections
import itertools
import re
import statistics
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from word2vec import read, view

from unmask.word_vectors.train.cooccurrences import CooccurrenceMatrix, count_cooccurrences
from unmask.word_vectors.train.corpus import Corpus, Lexicon, build_lexicon, count_ids
from unmask.word_vectors.train.glove import GloVe, initialize_glove, train_glove

D, WINDOW, MIN_COUNT, RATE = 100, 10, 5, 0.05
MEMORY_GIGABYTES = 2
PAIR = np.dtype([("word", "<i4"), ("neighbor", "<i4"), ("count", "<f8")])
"""Of the released program's file; words from 1."""


def released(words: Sequence[str], out: Path, given: Path | None = None) -> tuple[float, str]:
    """Run one of the released programs; return its seconds, and what it says."""
    start = time.perf_counter()
    with out.open("wb") as to:
        source = given.open("rb") if given is not None else subprocess.DEVNULL
        done = subprocess.run(words, stdin=source, stdout=to, stderr=subprocess.PIPE, check=True)
    return time.perf_counter() - start, done.stderr.decode(errors="replace")


def count_theirs(build: Path, folder: Path) -> float:
    """Count neighbors and shuffle them, as the released script does."""
    memory = ("-memory", str(MEMORY_GIGABYTES), "-verbose", "0")
    counting = (
        str(build / "cooccur"), *memory, "-vocab-file", str(folder / "vocab"), "-window-size",
        str(WINDOW), "-overflow-file", str(folder / "overflow"),
    )  # fmt: skip
    seconds, _ = released(counting, folder / "pairs", folder / "text")
    shuffling = (str(build / "shuffle"), *memory, "-temp-file", str(folder / "shuffle"))
    return seconds + released(shuffling, folder / "shuffled", folder / "pairs")[0]


def learn_theirs(build: Path, folder: Path, epochs: int, threads: int, seed: int) -> list[float]:
    """Learn; return seconds and the last loss."""
    words = (
        str(build / "glove"), "-input-file", str(folder / "shuffled"), "-vocab-file",
        str(folder / "vocab"), "-save-file", str(folder / "vectors"), "-vector-size", str(D),
        "-threads", str(threads), "-iter", str(epochs), "-eta", str(RATE), "-seed", str(seed + 1),
        "-binary", "1", "-verbose", "0",
    )  # fmt: skip
    seconds, said = released(words, folder / "said")
    costs = re.findall(r"cost: ([\d.]+)", said + (folder / "said").read_text(errors="replace"))
    return [seconds, float(costs[-1])]


def count_ours(corpus: Corpus, words: Lexicon, folder: Path) -> tuple[float, CooccurrenceMatrix]:
    """Count neighbors; return seconds and the counts."""
    start = time.perf_counter()
    windows = GloVe().cooccurrence_window
    assert windows.window == WINDOW
    counts = count_cooccurrences(corpus, words, windows, folder, memory=MEMORY_GIGABYTES << 30)
    return time.perf_counter() - start, counts


def learn_ours(counts: CooccurrenceMatrix, epochs: int, threads: int, seed: int) -> list[float]:
    """Learn; return seconds and the last loss."""
    start, loss = time.perf_counter(), 0.0
    state = initialize_glove(counts, D, seed)
    for report in train_glove(
        GloVe(epochs=epochs), counts, state, learning_rate=RATE, seed=seed, threads=threads
    ):
        loss = report.loss
    return [time.perf_counter() - start, loss]


def check_same_pairs(counts: CooccurrenceMatrix, pairs: Path) -> str:
    """Compare the counts of both.

    Raises:
        AssertionError: they are not the same.
    """
    theirs = np.fromfile(pairs, PAIR)["count"]
    assert len(theirs) == counts.n_pairs, f"{counts.n_pairs:,} pairs, released {len(theirs):,}"
    apart = np.abs(np.sort(theirs) - np.sort(counts.values)) / np.sort(theirs)
    assert apart.max() < 1e-4, f"counts are {apart.max():.2e} apart"
    return f"{counts.n_pairs:,} pairs, sorted counts at most {apart.max():.1e} of them apart"


def main() -> None:
    """Take turns, print a line each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("text", type=Path)
    parser.add_argument("build", type=Path)
    parser.add_argument("--words", type=int, default=2_000_000)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    lines, _ = read(given.text, given.words)
    found = collections.Counter(itertools.chain(*lines))
    ids = {word: i for i, word in enumerate(found)}
    corpus = view(lines, ids)
    words = build_lexicon([*ids, "<unk>"], np.append(count_ids(corpus), 0), [len(ids)])
    known = [(word, n) for word, n in found.most_common() if n >= MIN_COUNT]
    assert len(known) == len(words), f"{len(words):,} words of {len(known):,}"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "text").write_text("\n".join(map(" ".join, lines)) + "\n", encoding="utf-8")
        (folder / "vocab").write_text("".join(f"{w} {n}\n" for w, n in known), encoding="utf-8")
        count_ours(view(lines[:20], ids), words, folder / "compiled")
        seconds: list[tuple[float, float]] = []
        counts: CooccurrenceMatrix | None = None
        for i in range(given.rounds):
            mine, counts = count_ours(corpus, words, folder / f"counts{i}")
            seconds.append((mine, count_theirs(given.build, folder)))
        assert counts is not None
        print(f"{words.n_words:,} words, {len(words):,} of them distinct; "
              f"{check_same_pairs(counts, folder / 'pairs')}")  # fmt: skip
        mine, theirs = map(statistics.median, zip(*seconds, strict=True))
        ratio = statistics.median(b / a for a, b in seconds)
        print(f"counting: ours {mine:.2f} s, released {theirs:.2f} s: {ratio:.2f} times")
        learn_ours(counts, 1, 1, 0)  # compiled
        for threads in given.threads:
            for seed in range(given.rounds):
                one = learn_ours(counts, given.epochs, threads, seed)
                two = learn_theirs(given.build, folder, given.epochs, threads, seed)
                print(
                    f"{threads} threads: ours {one[0]:.2f} s, released {two[0]:.2f} s: "
                    f"{two[0] / one[0]:.2f} times; loss ours {one[1]:.5f}, released {two[1]:.5f}",
                    flush=True,
                )
                assert abs(one[1] - two[1]) < 0.05 * two[1], "the losses are not the same"


if __name__ == "__main__":
    main()
