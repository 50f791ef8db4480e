"""Structural probes: trees, roots and correlations made by hand; planted projections; losses."""

from typing import Any

import numpy as np
import pytest
import torch

from unmask.analysis.probes.structural import (
    StructuralSettings,
    TreeFeatures,
    depth_loss,
    distance_loss,
    minimum_spanning_edges,
    probe_depths,
    probe_distances,
    score_depth_probe,
    score_structural_probe,
    train_depth_probe,
    train_structural_probe,
    tree_distances,
)

HEADS = (1, -1, 3, 1, 3, 1)  # the root is word 1; word 3 has dependents 2 and 4; 5 is punctuation
SCORED = (True, True, True, True, True, False)


def path_vectors(heads: tuple[int, ...], width: int = 12) -> torch.Tensor:
    """A one for each edge between the root and a word: squared distances are those in the tree."""
    vectors = torch.zeros(len(heads), width)
    for i in range(len(heads)):
        node = i
        while heads[node] != -1:
            vectors[i, node] = 1
            node = heads[node]
    return vectors


def _correlation(a: np.ndarray, b: np.ndarray) -> float:
    from scipy.stats import spearmanr

    result: Any = spearmanr(a, b)
    return float(result.statistic)


def test_tree_distances_count_edges() -> None:
    wanted = [
        [0, 1, 3, 2, 3, 2],
        [1, 0, 2, 1, 2, 1],
        [3, 2, 0, 1, 2, 3],
        [2, 1, 1, 0, 1, 2],
        [3, 2, 2, 1, 0, 3],
        [2, 1, 3, 2, 3, 0],
    ]
    assert np.array_equal(tree_distances(HEADS), np.array(wanted))


def test_distances_of_a_probe_equal_their_formula() -> None:
    rng = torch.Generator().manual_seed(0)
    b = torch.randn(3, 5, generator=rng, dtype=torch.float64)
    h = torch.randn(4, 5, generator=rng, dtype=torch.float64)
    found = probe_distances(b, h)
    for i in range(4):
        for k in range(4):
            y = b.numpy() @ (h[i] - h[k]).numpy()
            assert float(found[i, k]) == pytest.approx(float(y @ y), rel=1e-12)


def test_scores_of_a_tree_made_by_hand() -> None:
    exact = TreeFeatures(path_vectors(HEADS), HEADS, SCORED)
    assert exact.edges == {(0, 1), (2, 3), (1, 3), (3, 4)}
    scores = score_structural_probe(torch.eye(12), [exact])
    assert (scores.uuas, scores.spearman) == (1.0, pytest.approx(1.0))
    assert scores.chain_uuas == 3 / 4  # 0-1, 1-2, 2-3, 3-4: all but 1-2

    # a chain 0-1-2-3-4: distances grow along the line, and punctuation does not count
    line = torch.arange(6.0)[:, None]
    scores = score_structural_probe(torch.ones(1, 1), [TreeFeatures(line, HEADS, SCORED)])
    assert scores.uuas == scores.chain_uuas == 3 / 4
    assert scores.spearman is not None
    assert scores.spearman < 0.9


def test_spanning_tree_with_words_at_the_same_place() -> None:
    distances = np.array([[0.0, 0.0, 4.0], [0.0, 0.0, 5.0], [4.0, 5.0, 0.0]])
    assert minimum_spanning_edges(distances, (True, True, True)) == {(0, 1), (0, 2)}


def test_correlation_equals_scipy_by_word() -> None:
    vectors = torch.randn(6, 4, generator=torch.Generator().manual_seed(3))
    distances = probe_distances(torch.eye(4), vectors).numpy()
    tree = tree_distances(HEADS)
    wanted = sum(_correlation(distances[i], tree[i]) for i in range(6)) / 6
    scores = score_structural_probe(torch.eye(4), [TreeFeatures(vectors, HEADS, SCORED)])
    assert scores.spearman == pytest.approx(wanted, rel=1e-9)


def test_training_finds_a_planted_projection_and_is_deterministic() -> None:
    rng = np.random.default_rng(0)
    mixing = torch.from_numpy(rng.normal(size=(24, 24)) / 24**0.5).float()

    def sentence() -> TreeFeatures:
        n = int(rng.integers(6, 11))
        heads = tuple(-1 if i == 0 else int(rng.integers(i)) for i in range(n))
        noise = torch.from_numpy(rng.normal(size=(n, 12))).float()
        vectors = torch.cat((path_vectors(heads), noise), 1) @ mixing
        return TreeFeatures(vectors, heads, (True,) * n)

    parts = [[sentence() for _ in range(n)] for n in (150, 30, 40)]
    settings = StructuralSettings(rank=16, learning_rate=1e-2, max_epochs=25)
    b = train_structural_probe(parts[0], parts[1], settings)
    scores = score_structural_probe(b, parts[2])
    untrained = score_structural_probe(torch.eye(24), parts[2])
    assert scores.uuas > 0.9 > untrained.uuas + 0.2
    short = StructuralSettings(rank=4, max_epochs=2)
    twice = [train_structural_probe(parts[0][:20], parts[1][:5], short) for _ in range(2)]
    assert torch.equal(*twice)


def test_depths_of_a_tree_made_by_hand() -> None:
    # squared norms of ones for each edge from the root are depths
    exact = TreeFeatures(path_vectors(HEADS), HEADS, SCORED)
    assert exact.depths.tolist() == [1, 0, 2, 1, 2, 1]
    assert probe_depths(torch.eye(12), exact.vectors).tolist() == exact.depths.tolist()
    scores = score_depth_probe(torch.eye(12), [exact])
    assert (scores.root_accuracy, scores.chain_root_accuracy) == (1.0, 0.0)
    assert scores.spearman == pytest.approx(1.0)
    chain = _correlation(np.arange(6), exact.depths)
    assert scores.chain_spearman == pytest.approx(chain, rel=1e-9)


def test_punctuation_is_no_root_and_lengths_are_averaged_by_themselves() -> None:
    vectors = torch.tensor([3.0, 2.0, 4.0, 3.0, 5.0, 0.0])[:, None]  # punctuation is least deep
    first = TreeFeatures(vectors, HEADS, SCORED)
    assert score_depth_probe(torch.ones(1, 1), [first]).root_accuracy == 1
    five = TreeFeatures(torch.arange(5.0, 0, -1)[:, None], (-1, 0, 1, 2, 3), (True,) * 5)
    scores = score_depth_probe(torch.ones(1, 1), [first, first, five])
    mean = (_correlation(vectors[:, 0].numpy(), first.depths) - 1) / 2
    assert scores.spearman == pytest.approx(mean, rel=1e-9)
    assert (scores.root_accuracy, scores.chain_root_accuracy) == (2 / 3, 1 / 3)
    short = TreeFeatures(torch.ones(2, 1), (-1, 0), (True, True))
    assert score_depth_probe(torch.ones(1, 1), [short]).spearman is None
    with pytest.raises(ValueError, match="no sentence has a root"):
        score_depth_probe(torch.ones(1, 1), [TreeFeatures(torch.ones(1, 1), (-1,), (False,))])


def test_losses_of_a_batch_equal_their_formulas_by_sentence() -> None:
    rng = torch.Generator().manual_seed(0)
    b = torch.randn(3, 5, generator=rng)
    trees = [HEADS, (1, -1), (-1, 0, 0, 2)]
    batch = [
        TreeFeatures(torch.randn(len(h), 5, generator=rng), h, (True,) * len(h)) for h in trees
    ]
    distances, depths = [], []
    for one in batch:
        d = probe_distances(b, one.vectors).numpy()
        distances.append(np.abs(tree_distances(one.heads) - d).sum() / len(one.heads) ** 2)
        norms = ((one.vectors @ b.T) ** 2).sum(1).numpy()
        depths.append(np.abs(one.depths - norms).sum() / len(one.heads))
    # float32, and squared distances as differences of products
    assert float(distance_loss(b, batch)) == pytest.approx(np.mean(distances), rel=1e-5)
    assert float(depth_loss(b, batch)) == pytest.approx(np.mean(depths), rel=1e-5)


def test_training_finds_a_planted_projection_of_depths() -> None:
    rng = np.random.default_rng(0)
    mixing = torch.from_numpy(rng.normal(size=(24, 24)) / 24**0.5).float()

    def sentence() -> TreeFeatures:
        n = int(rng.integers(6, 11))
        order = rng.permutation(n)
        heads = [-1] * n
        for k in range(1, n):
            heads[order[k]] = int(order[rng.integers(k)])
        noise = torch.from_numpy(rng.normal(size=(n, 12))).float()
        vectors = torch.cat((path_vectors(tuple(heads)), noise), 1) @ mixing
        return TreeFeatures(vectors, tuple(heads), (True,) * n)

    parts = [[sentence() for _ in range(n)] for n in (150, 30, 40)]
    settings = StructuralSettings(rank=16, learning_rate=1e-2, max_epochs=60, patience=10)
    scores = score_depth_probe(train_depth_probe(parts[0], parts[1], settings), parts[2])
    untrained = score_depth_probe(torch.eye(24), parts[2])
    assert scores.root_accuracy > 0.85 > untrained.root_accuracy + 0.2
    assert scores.spearman is not None
    assert scores.spearman > 0.85


def test_heads_that_make_no_tree_are_refused() -> None:
    with pytest.raises(ValueError, match="make no tree"):
        TreeFeatures(torch.zeros(3, 2), (-1, 2, 1), (True, True, True))
