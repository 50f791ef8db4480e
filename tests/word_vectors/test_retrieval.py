"""The nearest words, by cosine and by CSLS, are those of a double loop, whatever the blocks."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from two_spaces import gaussian, named

from unmask.word_vectors.alignment import retrieval
from unmask.word_vectors.alignment.retrieval import (
    CSLS,
    CosineRetrieval,
    mean_top_k_cosine,
    ranks,
    retrieve,
    retrieve_both_directions,
)

Array = np.ndarray


def csls_by_hand(x: Array, z: Array, k: int) -> Array:
    cosines = [[float(np.dot(a.astype(float), b.astype(float))) for b in z] for a in x]
    scores = np.zeros((len(x), len(z)))
    for i in range(len(x)):
        for j in range(len(z)):
            near_i = sorted(cosines[i], reverse=True)[:k]
            near_j = sorted((row[j] for row in cosines), reverse=True)[:k]
            scores[i, j] = 2 * cosines[i][j] - sum(near_i) / k - sum(near_j) / k
    return scores


def best_by_hand(scores: Array, n: int) -> list[list[int]]:
    return [sorted(range(len(row)), key=lambda j: (-row[j], j))[:n] for row in scores]


@pytest.fixture
def small_blocks(monkeypatch) -> None:
    """Make blocks of a few rows and groups of a few columns, so that small spaces have several."""
    monkeypatch.setattr(retrieval, "MAX_SCORES_IN_MEMORY", 100)
    monkeypatch.setattr(retrieval, "_COLUMNS_PER_GROUP", 2)
    monkeypatch.setattr(retrieval, "_EXTRA_CANDIDATES", 3)


@pytest.mark.usefixtures("small_blocks")
@settings(max_examples=25)
@given(n=st.integers(4, 30), m=st.integers(4, 60), k=st.integers(1, 4), seed=st.integers(0, 2**31))
def test_csls_equals_a_double_loop(n: int, m: int, k: int, seed: int) -> None:
    x, z = gaussian(n, 5, seed).unit_vectors, gaussian(m, 5, seed + 1).unit_vectors
    by_hand = csls_by_hand(x, z, k)
    found = retrieve(x, z, 4, CSLS(k).adjustment(x, z))
    assert found.rows.tolist() == best_by_hand(by_hand, 4)
    np.testing.assert_allclose(found.scores, np.take_along_axis(by_hand, found.rows, 1), atol=1e-5)
    some = np.array([2, 0])
    retrieved = retrieve(x[some], z, 4, CSLS(k).adjustment(x, z, some))
    np.testing.assert_array_equal(retrieved.rows, found.rows[some])
    np.testing.assert_array_equal(retrieved.scores, found.scores[some])


@pytest.mark.usefixtures("small_blocks")
@settings(max_examples=40)
@given(n=st.integers(1, 30), m=st.integers(1, 90), seed=st.integers(0, 2**31))
@example(n=14, m=71, seed=51441337)  # more equal ones than candidates, off by rounding
def test_nearest_equal_a_sort_with_ties_in_order(n: int, m: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    few = rng.normal(size=(5, 6)) * (rng.random(5) > 0.2)[:, None]  # words with the same vector
    x, z = (named(few[rng.integers(0, 5, size)]).unit_vectors for size in (n, m))
    best = min(m, 7)
    exact = np.round(x.astype(float) @ z.astype(float).T, 9)
    assert retrieve(x, z, best).rows.tolist() == best_by_hand(exact, best)
    right = [sorted(set(rng.integers(0, m, 2).tolist())) for _ in range(n)]
    rank, first = ranks(x, z, right, CosineRetrieval().adjustment(x, z))
    order = best_by_hand(exact, m)
    assert first.tolist() == [row[0] for row in order]
    close = [min(row.index(t) for t in some) + 1 for row, some in zip(order, right, strict=True)]
    assert rank.tolist() == close


@settings(max_examples=15)
@given(seed=st.integers(0, 2**31))
def test_ranks_equal_a_sort(seed: int) -> None:
    x, z = gaussian(20, 4, seed).unit_vectors, gaussian(70, 4, seed + 1).unit_vectors
    right = [[i, i + 9] for i in range(20)]
    rank, _ = ranks(x, z, right, CosineRetrieval().adjustment(x, z))
    order = best_by_hand(x.astype(float) @ z.astype(float).T, 70)
    assert rank.tolist() == [
        min(row.index(t) for t in some) + 1 for row, some in zip(order, right, strict=True)
    ]


@pytest.mark.parametrize("m", [40, 1000, 5001])
def test_results_do_not_depend_on_block_size(m: int, monkeypatch) -> None:
    x, z = gaussian(60, 8, seed=1).unit_vectors, gaussian(m, 8, seed=2).unit_vectors
    whole = retrieve(x, z, 10, CSLS(3).adjustment(x, z))
    means = mean_top_k_cosine(x, z, 4)
    monkeypatch.setattr(retrieval, "MAX_SCORES_IN_MEMORY", 7 * m)
    parts = retrieve(x, z, 10, CSLS(3).adjustment(x, z))
    np.testing.assert_array_equal(parts.rows, whole.rows)
    np.testing.assert_array_equal(parts.scores, whole.scores)
    np.testing.assert_array_equal(mean_top_k_cosine(x, z, 4), means)
    by_hand = np.sort(x.astype(float) @ z.T.astype(float), axis=1)[:, -4:].mean(1)
    np.testing.assert_allclose(means, by_hand, atol=1e-6)
    np.testing.assert_allclose(mean_top_k_cosine(x, z, 4, exact=False), by_hand, atol=1e-6)


def test_many_equal_vectors_keep_their_order() -> None:
    x, z = (
        gaussian(3, 8, seed=1).unit_vectors,
        np.repeat(gaussian(2, 8, seed=2).unit_vectors, 3000, 0),
    )
    z = np.concatenate([z, np.zeros((100, 8), np.float32)])
    x = np.concatenate([x, np.zeros((1, 8), np.float32)])
    found = retrieve(x, z, 5)
    for row, scores in zip(found.rows, x @ z[[0, 3000, 6000]].T, strict=True):
        start = 3000 * int(scores.argmax())
        assert row.tolist() == list(range(start, start + 5))


@pytest.mark.parametrize("block", [2**24, 70])
@pytest.mark.parametrize("measure", [CosineRetrieval(), CSLS(3)])
def test_best_of_both_directions(block: int, measure, monkeypatch) -> None:
    monkeypatch.setattr(retrieval, "MAX_SCORES_IN_MEMORY", block)
    x, z = gaussian(30, 6, seed=3).unit_vectors, gaussian(40, 6, seed=4).unit_vectors
    found = retrieve_both_directions(x, z, measure.adjustment(x, z))
    scores = csls_by_hand(x, z, 3) if measure == CSLS(3) else x.astype(float) @ z.T
    assert found.forward.tolist() == scores.argmax(1).tolist()
    assert found.backward.tolist() == scores.argmax(0).tolist()
    cosines = x @ z.T
    assert found.forward_mean_cosine == pytest.approx(cosines.max(1).mean(), abs=1e-6)
    both = (cosines.max(1).mean() + cosines.max(0).mean()) / 2
    assert found.mean_cosine == pytest.approx(both, abs=1e-6)


@pytest.mark.parametrize("block", [2**24, 70])
def test_dropped_pairs_are_not_retrieved_for_any_block_size(block: int, monkeypatch) -> None:
    x, z = gaussian(30, 6, seed=3).unit_vectors, gaussian(40, 6, seed=4).unit_vectors
    monkeypatch.setattr(retrieval, "MAX_SCORES_IN_MEMORY", block)
    found = retrieve_both_directions(
        x, z, CosineRetrieval().adjustment(x, z), 0.05, np.random.default_rng(5)
    )
    kept = np.random.default_rng(5).random((30, 40), np.float32) < 0.05
    scores = np.where(kept, x @ z.T, -np.inf)
    assert found.forward.tolist() == np.where(kept.any(1), scores.argmax(1), -1).tolist()
    assert found.backward.tolist() == np.where(kept.any(0), scores.argmax(0), -1).tolist()
    assert -1 in found.forward
    assert (
        found.mean_cosine
        == retrieve_both_directions(x, z, CosineRetrieval().adjustment(x, z)).mean_cosine
    )


def test_more_neighbors_than_words_are_refused() -> None:
    x = gaussian(6, 3, seed=1).unit_vectors
    with pytest.raises(ValueError, match="k = 7 neighbors, but there are only 6 source words"):
        CSLS(7).adjustment(x, gaussian(9, 3, seed=2).unit_vectors)
    with pytest.raises(ValueError, match="only 6 target words; k may be at most 6"):
        CSLS(7).adjustment(gaussian(9, 3, seed=2).unit_vectors, x)
    with pytest.raises(ValueError, match="must be 1 neighbor or more, got 0"):
        CSLS(0)
    for n in (0, 7):
        with pytest.raises(ValueError, match=f"the best {n} of 6 words: must be from 1 to 6"):
            retrieve(x, x, n)


def test_csls_reduces_hubness() -> None:
    x, z = gaussian(200, 20, seed=6).unit_vectors, gaussian(200, 20, seed=7).unit_vectors
    z[17] = x.mean(0) / np.linalg.norm(x.mean(0))
    times = {
        type(m): np.bincount(retrieve(x, z, 1, m.adjustment(x, z)).rows[:, 0], minlength=200).max()
        for m in (CosineRetrieval(), CSLS())
    }
    assert times[CSLS] < times[CosineRetrieval]
