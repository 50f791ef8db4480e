"""Cleaning: megabytes a second of each rule, and planted near-duplicates that are found.

    python benchmarks/cleaning.py CORPUS [--megabytes 20]

Speed is of one process, by its processor time. For the duplicates, documents of 100 words or more
are copied with a part of their words replaced by others of the corpus, and put at random places.
"""

import argparse
import random
import time
from collections.abc import Callable, Sequence

import numpy as np

from unmask.output import print_line
from unmask.text.cleaning.duplicates import (
    ExactDuplicates,
    NearDuplicates,
    find_repeated,
    split_units,
)
from unmask.text.cleaning.rule import CleaningRule
from unmask.text.cleaning.rules import RULES, parse_cleaning
from unmask.text.documents import read_documents

REPLACED = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2)
COPIES = 300


def read(corpus: str, n_bytes: int) -> list[str]:
    texts: list[str] = []
    size = 0
    for document in read_documents(corpus):
        texts.append(document.text)
        size += len(document.text.encode())
        if size >= n_bytes:
            break
    return texts


def speed(work: Callable[[], object], n_bytes: int) -> str:
    begin = time.process_time()
    work()
    return f"{n_bytes / (time.process_time() - begin) / 1e6:.1f} MB/s"


def measure_rules(texts: Sequence[str], n_bytes: int) -> None:
    for name in RULES:
        words = f"{name}:codes=en" if name == "language" else name
        rule: CleaningRule = parse_cleaning([words], [], []).rules[0]
        rule.clean(texts[0])
        left = [0]

        def clean(rule: CleaningRule = rule, left: list[int] = left) -> None:
            left[0] = sum(bool(rule.clean(text).text) for text in texts)

        told = speed(clean, n_bytes)
        print_line(f"{name}: {told}, {left[0]:,} of {len(texts):,} documents left")
    chunks = [texts[i : i + 300] for i in range(0, len(texts), 300)]
    for how in (ExactDuplicates(), NearDuplicates(), NearDuplicates(unit="paragraph")):

        def keys(how: ExactDuplicates | NearDuplicates = how) -> None:
            for chunk in chunks:
                how.keys([unit for text in chunk for unit in split_units(text, how.unit)])

        print_line(f"keys of {how.label}: {speed(keys, n_bytes)}")


def edit(text: str, replaced: float, words: Sequence[str], draw: random.Random) -> str:
    return " ".join(
        draw.choice(words) if draw.random() < replaced else word for word in text.split()
    )


def measure_planted(texts: Sequence[str]) -> None:
    how, draw = NearDuplicates(), random.Random(0)
    own = find_groups(how, texts)
    single = [i for i, first in enumerate(own) if first == i]
    long = [texts[i] for i in single if len(texts[i].split()) >= 100][:3000]
    words = " ".join(long[:200]).split()
    for replaced in REPLACED:
        chosen = draw.sample(range(len(long)), COPIES)
        mixed = long + [edit(long[i], replaced, words, draw) for i in chosen]
        firsts = find_groups(how, mixed)
        found = sum(firsts[len(long) + j] == firsts[i] for j, i in enumerate(chosen))
        others = sum(firsts[i] != i for i in range(len(long)))
        similarity = np.mean([jaccard(long[i], mixed[len(long) + j]) for j, i in enumerate(chosen)])
        print_line(
            f"{replaced:.0%} of words replaced (5-grams alike: {similarity:.2f}): "
            f"{found / COPIES:.1%} found, {others} of {len(long):,} others taken for duplicates"
        )


def find_groups(how: NearDuplicates, texts: Sequence[str]) -> list[int]:
    keys = np.concatenate([how.keys(texts[i : i + 300]) for i in range(0, len(texts), 300)])
    repeated = find_repeated(how.n_keys, lambda i: keys[:, i])
    return repeated.first_of(np.arange(len(texts))).tolist()


def jaccard(a: str, b: str) -> float:
    first, second = ngrams(a), ngrams(b)
    return len(first & second) / len(first | second)


def ngrams(text: str) -> set[tuple[str, ...]]:
    words = text.lower().split()
    return {tuple(words[i : i + 5]) for i in range(len(words) - 4)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus")
    parser.add_argument("--megabytes", type=float, default=20)
    given = parser.parse_args()
    texts = read(given.corpus, int(given.megabytes * 1e6))
    n_bytes = sum(len(text.encode()) for text in texts)
    print_line(f"{len(texts):,} documents, {n_bytes / 1e6:.1f} MB")
    measure_rules(texts, n_bytes)
    measure_planted(texts)


if __name__ == "__main__":
    main()
