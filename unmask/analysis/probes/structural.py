"""The structural probe of distances: Hewitt and Manning 2019, N19-1419.

A linear map under which squared distances between words of a sentence are those in its dependency
tree.
"""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from unmask.analysis.probes.features import WordFeatures

ROOT = -1
"""Head of the word that has none."""
SPEARMAN_LENGTHS = range(5, 51)
"""Lengths of the sentences whose rank correlations are averaged."""


@dataclass(frozen=True)
class TreeFeatures:
    """A sentence with the vectors of its words, in order, and their heads.

    Raises:
        ValueError: numbers of vectors and heads differ, or the heads make no tree.
    """

    vectors: Float[Tensor, "w d"]
    heads: tuple[int, ...]
    """Index of the head of each word; -1 for the root."""
    scored: tuple[bool, ...]
    """Words in the trees that UUAS compares: the paper leaves punctuation out."""

    def __post_init__(self) -> None:
        n = len(self.heads)
        if not n == len(self.vectors) == len(self.scored):
            raise ValueError(f"{len(self.vectors)} vectors and {len(self.scored)} marks, {n} heads")
        if not np.isfinite(tree_distances(self.heads)).all() or self.heads.count(ROOT) != 1:
            raise ValueError(f"the heads {self.heads} make no tree")

    @property
    def edges(self) -> set[tuple[int, int]]:
        """Undirected edges between words that are scored, the smaller index first."""
        pairs = ((min(i, head), max(i, head)) for i, head in enumerate(self.heads) if head != ROOT)
        return {(i, k) for i, k in pairs if self.scored[i] and self.scored[k]}


def tree_sentences(
    features: WordFeatures,
    layer: int,
    heads: Sequence[Sequence[int]],
    scored: Sequence[Sequence[bool]],
) -> list[TreeFeatures]:
    """Join a layer's features with the trees of the same sentences; incomplete ones are left out.

    Args:
        features: of sentences with trees.
        layer: index of the layer.
        heads: head of each word of each sentence; -1 for the root.
        scored: words that UUAS compares.
    """
    found: list[TreeFeatures] = []
    for i in np.unique(features.sentences).tolist():
        rows = np.flatnonzero(features.sentences == i)
        if len(rows) == len(heads[i]):
            vectors = features.layers[layer][torch.from_numpy(rows)]
            found.append(TreeFeatures(vectors, tuple(heads[i]), tuple(scored[i])))
    return found


def tree_distances(heads: Sequence[int]) -> Float[np.ndarray, "w w"]:
    """Return the number of edges between each two words; infinite where there is no path."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import shortest_path

    n = len(heads)
    dependents = [i for i, head in enumerate(heads) if head != ROOT]
    ends = ([heads[i] for i in dependents], dependents)
    edges = coo_array((np.ones(len(dependents)), ends), shape=(n, n)).tocsr()
    return np.asarray(shortest_path(edges, directed=False, unweighted=True))


def minimum_spanning_edges(
    distances: Float[np.ndarray, "w w"], scored: Sequence[bool]
) -> set[tuple[int, int]]:
    """Return the edges of the minimum spanning tree of the scored words, smaller index first."""
    from scipy.sparse.csgraph import minimum_spanning_tree

    words = np.flatnonzero(scored)
    some = distances[np.ix_(words, words)].astype(np.float64)
    # scipy reads zeros as missing edges; a constant for all does not change the tree
    tree = minimum_spanning_tree(np.triu(some + 1.0, 1)).tocoo()
    pairs = zip(words[tree.row].tolist(), words[tree.col].tolist(), strict=True)
    return {(min(pair), max(pair)) for pair in pairs}


@dataclass(frozen=True, kw_only=True)
class StructuralScores:
    """How well distances are those of trees."""

    uuas: float
    """Undirected unlabeled attachment score: share of the edges of the trees that minimum spanning
    trees have."""
    chain_uuas: float
    """That of a chain of the words in their order."""
    spearman: float | None
    """Rank correlation of the distances from each word, as means over sentences, then over lengths
    of 5 to 50. None: no sentence has such a length."""


@dataclass(frozen=True, kw_only=True)
class StructuralSettings:
    """How the structural probe is trained."""

    rank: int = 64
    """Rows of B."""
    learning_rate: float = 1e-3
    """Of Adam."""
    batch_size: int = 20
    """Sentences in each step."""
    max_epochs: int = 30
    patience: int = 3
    """Epochs without a lower loss on dev after which training stops."""
    seed: int = 0


def probe_distances(
    projection: Float[Tensor, "r d"], vectors: Float[Tensor, "w d"]
) -> Float[Tensor, "w w"]:
    """Return the squared distances |B (h_i - h_j)|^2."""
    y = vectors @ projection.T
    return (y[:, None] - y[None]).square().sum(-1)


def train_structural_probe(
    train: Sequence[TreeFeatures],
    dev: Sequence[TreeFeatures],
    settings: StructuralSettings | None = None,
) -> Float[Tensor, "r d"]:
    """Return the B that minimizes Σ_s 1/|s|^2 Σ_ij |d_T(i, j) - d_B(i, j)^2|.

    Raises:
        ValueError: there are no sentences to train on, or none to stop at.
    """
    settings = settings or StructuralSettings()
    if not train or not dev:
        raise ValueError(f"no sentences: {len(train)} to train on, {len(dev)} to stop at")
    generator = torch.Generator().manual_seed(settings.seed)
    width = train[0].vectors.shape[1]
    projection = torch.empty(settings.rank, width).uniform_(-0.05, 0.05, generator=generator)
    projection.requires_grad_()
    optimizer = torch.optim.Adam([projection], settings.learning_rate)
    trees, dev_trees = ([_distances(one) for one in part] for part in (train, dev))
    best, best_loss, best_epoch = projection.detach().clone(), float("inf"), 0
    for epoch in range(1, settings.max_epochs + 1):
        for rows in torch.randperm(len(train), generator=generator).split(settings.batch_size):
            optimizer.zero_grad()
            some = [(train[i], trees[i]) for i in rows.tolist()]
            _loss(projection, some).backward()
            optimizer.step()
        with torch.no_grad():
            loss = float(_loss(projection, list(zip(dev, dev_trees, strict=True))))
        if loss < best_loss:
            best, best_loss, best_epoch = projection.detach().clone(), loss, epoch
        elif epoch - best_epoch >= settings.patience:
            break
    return best


def score_structural_probe(
    projection: Float[Tensor, "r d"], sentences: Sequence[TreeFeatures]
) -> StructuralScores:
    """Score minimum spanning trees and rank correlations.

    Raises:
        ValueError: no tree has an edge between scored words.
    """
    right = chain = total = 0
    correlations: dict[int, list[float]] = {}
    for one in sentences:
        distances = probe_distances(projection, one.vectors).detach().double().numpy()
        words = np.flatnonzero(one.scored).tolist()
        right += len(one.edges & minimum_spanning_edges(distances, one.scored))
        chain += len(one.edges & set(itertools.pairwise(words)))
        total += len(one.edges)
        if len(one.heads) in SPEARMAN_LENGTHS:
            value = _spearman(distances, tree_distances(one.heads))
            correlations.setdefault(len(one.heads), []).append(value)
    if not total:
        raise ValueError("no tree has an edge between scored words")
    means = [float(np.mean(values)) for values in correlations.values()]
    return StructuralScores(
        uuas=right / total,
        chain_uuas=chain / total,
        spearman=float(np.mean(means)) if means else None,
    )


def _distances(one: TreeFeatures) -> Float[Tensor, "w w"]:
    return torch.from_numpy(tree_distances(one.heads)).float()


def _loss(
    projection: Float[Tensor, "r d"], sentences: Iterable[tuple[TreeFeatures, Tensor]]
) -> Float[Tensor, ""]:
    terms = [
        (tree - probe_distances(projection, one.vectors)).abs().mean() for one, tree in sentences
    ]
    return torch.stack(terms).mean()


def _spearman(predicted: Float[np.ndarray, "w w"], wanted: Float[np.ndarray, "w w"]) -> float:
    """Return the mean over words of the rank correlation of the distances from it."""
    from scipy.stats import rankdata

    ranks = [rankdata(part, axis=1) for part in (predicted, wanted)]
    centered = [part - part.mean(1, keepdims=True) for part in ranks]
    norms = np.linalg.norm(centered[0], axis=1) * np.linalg.norm(centered[1], axis=1)
    products = (centered[0] * centered[1]).sum(1)
    return float(np.mean(np.where(norms > 0, products / np.maximum(norms, 1e-12), 0)))
