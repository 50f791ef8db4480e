"""Spaces whose map is known."""

from collections.abc import Sequence

import numpy as np

from unmask.word_vectors.keyed_vectors import KeyedVectors


def named(vectors: np.ndarray, before: str = "w", words: Sequence[str] = ()) -> KeyedVectors:
    words = words or [f"{before}{row}" for row in range(len(vectors))]
    return KeyedVectors(tuple(words), vectors.astype(np.float32))


def gaussian(n: int, d: int, seed: int) -> KeyedVectors:
    return named(np.random.default_rng(seed).normal(size=(n, d)))


def clustered(n: int, d: int, seed: int, n_numerals: int = 0) -> KeyedVectors:
    """Make words in clusters, in a space of unequal axes: as those of a language, it has a shape.

    Numerals are a cluster by themselves, and differ in ten directions alone.
    """
    rng = np.random.default_rng(seed)
    centers = rng.normal(size=(n // 20, d))
    vectors = centers[rng.integers(0, len(centers), n)] + 0.7 * rng.normal(size=(n, d))
    if n_numerals:
        few = rng.normal(size=(n_numerals, 10)) @ rng.normal(size=(10, d))
        vectors[:n_numerals] = centers[0] + 0.3 * few
    vectors *= np.linspace(1.6, 0.4, d)
    words = [str(1900 + i) if i < n_numerals else f"w{i}" for i in range(n)]
    return named(vectors, words=words)


def copied(
    space: KeyedVectors, noise: float, permuted: bool = True, seed: int = 99
) -> tuple[KeyedVectors, KeyedVectors, np.ndarray]:
    """Turn a space, permute its words and add noise; give both and the rows of all pairs."""
    rng = np.random.default_rng(seed)
    prediction_order, _ = np.linalg.qr(rng.normal(size=(space.vectors.shape[1],) * 2))
    vectors = space.vectors @ prediction_order
    vectors += noise * vectors.std() * rng.normal(size=vectors.shape)
    n = len(space.words)
    order = rng.permutation(n) if permuted else np.arange(n)
    words = [word if word.isdigit() else f"z{word}" for word in space.words]
    target = named(vectors[order], words=[words[row] for row in order])
    positions = np.empty(n, np.int64)
    positions[order] = np.arange(n)
    return space, target, np.stack([np.arange(n), positions], 1)
