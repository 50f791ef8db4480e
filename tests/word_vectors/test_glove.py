import math

import numpy as np
import pytest

pytest.importorskip("numba")

from unmask.word_vectors.train import glove
from unmask.word_vectors.train.cooccurrences import CooccurrenceMatrix
from unmask.word_vectors.train.glove import GloVe

SPEC, SEED, RATE = GloVe(epochs=4, x_max=6.0), 2, 0.05


def make_counts(n: int = 20, share: float = 0.4) -> CooccurrenceMatrix:
    random = np.random.default_rng(3)
    matrix = random.exponential(4, (n, n)) * (random.random((n, n)) < share)
    rows, columns = np.nonzero(matrix)
    offsets = np.searchsorted(rows, np.arange(n + 1))
    return CooccurrenceMatrix(
        offsets, columns.astype(np.int32), matrix[rows, columns].astype(np.float32)
    )


def test_updates_equal_plain_python() -> None:
    counts = make_counts()
    state = glove.initialize_glove(counts, 7, SEED)
    plain = [array.astype(float).copy() for array in state.arrays]
    w, c, bw, bc, sw, sc, sbw, sbc = plain
    losses = []
    for epoch in range(SPEC.epochs):
        total = 0.0
        (pairs,) = glove._shuffled_pairs(counts, SEED, epoch)
        for i in pairs.order:
            a, b, x = pairs.rows[i], pairs.columns[i], float(pairs.values[i])
            gap = w[a] @ c[b] + bw[a] + bc[b] - math.log(x)
            weight = min((x / 6.0) ** 0.75, 1)
            total += weight * gap * gap / 2
            step = weight * gap * 0.05
            steps = (step * c[b], step * w[a], step, step)
            for array, squares, at, s in zip(
                (w, c, bw, bc), (sw, sc, sbw, sbc), (a, b, a, b), steps, strict=True
            ):
                array[at] -= s / np.sqrt(squares[at])
                squares[at] += s * s
        losses.append(total / counts.n_pairs)
    reports = list(glove.train_glove(SPEC, counts, state, learning_rate=RATE, seed=SEED))
    assert [r.epoch for r in reports] == [1, 2, 3, 4]
    np.testing.assert_allclose([r.loss for r in reports], losses, rtol=1e-4)
    assert losses[-1] < losses[0]
    for found, expected in zip(state.arrays, plain, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-5)  # float32


def test_each_epoch_shuffles_every_pair_once(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = make_counts()
    monkeypatch.setattr(glove, "_BLOCK", 3)
    monkeypatch.setattr(glove, "_BUFFER", 30)
    orders = []
    for epoch in range(2):
        seen = [
            (int(p.rows[i]), int(p.columns[i]), float(p.values[i]))
            for p in glove._shuffled_pairs(counts, 0, epoch)
            for i in p.order
        ]
        orders.append(seen)
    whole = zip(
        counts.row_indices.tolist(), counts.columns.tolist(), counts.values.tolist(), strict=True
    )
    assert sorted(orders[0]) == sorted(orders[1]) == sorted(whole)
    assert orders[0] != orders[1]
    assert max(len(p.order) for p in glove._shuffled_pairs(counts, 0, 0)) == 30


def test_stopped_and_resumed_training_equals_uninterrupted() -> None:
    counts = make_counts()
    whole = glove.initialize_glove(counts, 7, SEED)
    list(glove.train_glove(SPEC, counts, whole, learning_rate=RATE, seed=SEED))
    state = glove.initialize_glove(counts, 7, SEED)
    for report in glove.train_glove(SPEC, counts, state, learning_rate=RATE, seed=SEED):
        if report.epoch == 2:
            break
    rest = glove.train_glove(SPEC, counts, state, learning_rate=RATE, seed=SEED)
    assert [r.epoch for r in rest] == [3, 4]
    for found, expected in zip(state.arrays, whole.arrays, strict=True):
        np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(glove.glove_vectors(state), whole.words + whole.contexts)


def test_loss_approaches_zero_on_low_rank_counts() -> None:
    random = np.random.default_rng(0)
    log = random.normal(0, 0.7, (12, 3)) @ random.normal(0, 0.7, (3, 12)) + 2
    counts = CooccurrenceMatrix(
        np.arange(0, 145, 12), np.tile(np.arange(12, dtype=np.int32), 12),
        np.exp(log).ravel().astype(np.float32),
    )  # fmt: skip
    spec = GloVe(epochs=300, x_max=1.0)
    for threads in (1, 2):
        state = glove.initialize_glove(counts, 6)
        reports = list(glove.train_glove(spec, counts, state, learning_rate=RATE, threads=threads))
        assert reports[-1].loss < 0.02 * reports[0].loss


def test_invalid_settings_are_refused() -> None:
    counts = make_counts()
    state = glove.initialize_glove(counts, 7, SEED)
    state.words[1, 1] = np.inf
    with pytest.raises(FloatingPointError, match=r"not finite in epoch 1: the rate 0\.05"):
        list(glove.train_glove(SPEC, counts, state, learning_rate=RATE, seed=SEED))
    with pytest.raises(ValueError, match="20 vectors, but counts of 19 words"):
        list(glove.train_glove(SPEC, make_counts(19), state, learning_rate=RATE))
    with pytest.raises(ValueError, match="rate must be above 0, got 0"):
        list(glove.train_glove(SPEC, counts, state, learning_rate=0.0))
    with pytest.raises(ValueError, match="x_max must be above 0, got 0"):
        GloVe(x_max=0.0)
    with pytest.raises(ValueError, match="epochs must be at least 1, got 0"):
        GloVe(epochs=0)
    with pytest.raises(ValueError, match="alpha must be at least 0"):
        GloVe(alpha=-1.0)
    nothing = CooccurrenceMatrix(
        np.zeros(3, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32)
    )
    with pytest.raises(ValueError, match="no pair was counted"):
        glove.initialize_glove(nothing)
