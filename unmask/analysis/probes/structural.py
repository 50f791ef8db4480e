"""The structural probes: Hewitt and Manning 2019, N19-1419.

A linear map under which squared distances between words of a sentence are those in its dependency
tree, and one under which squared norms are depths.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

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
    """Words in the trees that UUAS compares, and that can be roots: the paper leaves punctuation
    out."""

    def __post_init__(self) -> None:
        n = len(self.heads)
        if not n == len(self.vectors) == len(self.scored):
            raise ValueError(f"{len(self.vectors)} vectors and {len(self.scored)} marks, {n} heads")
        if self.heads.count(ROOT) != 1 or not np.isfinite(self.distances).all():
            raise ValueError(f"the heads {self.heads} make no tree")

    @cached_property
    def distances(self) -> Float[np.ndarray, "w w"]:
        """Number of edges between each two words."""
        return tree_distances(self.heads)

    @property
    def depths(self) -> Float[np.ndarray, "w"]:
        """Number of edges between the root and each word."""
        return self.distances[self.heads.index(ROOT)]

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
class DepthScores:
    """How well norms are depths of words in trees."""

    root_accuracy: float
    """Share of the sentences whose least deep word, of those that are scored, is the root."""
    chain_root_accuracy: float
    """That of a chain of the words in their order: the first word is its root."""
    spearman: float | None
    """Rank correlation of depths, as means over sentences, then over lengths of 5 to 50. None: no
    sentence has such a length."""
    chain_spearman: float | None
    """That of a chain, where a word is as deep as its position."""


@dataclass(frozen=True, kw_only=True)
class StructuralSettings:
    """How a structural probe is trained."""

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


def probe_depths(
    projection: Float[Tensor, "r d"], vectors: Float[Tensor, "w d"]
) -> Float[Tensor, "w"]:
    """Return the squared norms |B h_i|^2."""
    return (vectors @ projection.T).square().sum(-1)


ProjectionLoss = Callable[[Float[Tensor, "r d"], Sequence[TreeFeatures]], Float[Tensor, ""]]
"""Mean loss of a projection B over sentences."""


def train_structural_probe(
    train: Sequence[TreeFeatures],
    dev: Sequence[TreeFeatures],
    settings: StructuralSettings | None = None,
) -> Float[Tensor, "r d"]:
    """Return the B that minimizes Σ_s 1/|s|^2 Σ_ij |d_T(i, j) - d_B(i, j)^2|.

    Raises:
        ValueError: there are no sentences to train on, or none to stop at.
    """
    return _train_projection(train, dev, distance_loss, settings or StructuralSettings())


def train_depth_probe(
    train: Sequence[TreeFeatures],
    dev: Sequence[TreeFeatures],
    settings: StructuralSettings | None = None,
) -> Float[Tensor, "r d"]:
    """Return the B that minimizes Σ_s 1/|s| Σ_i ||i|_T - |B h_i|^2|; |i|_T is a word's depth.

    Raises:
        ValueError: there are no sentences to train on, or none to stop at.
    """
    return _train_projection(train, dev, depth_loss, settings or StructuralSettings())


def _train_projection(
    train: Sequence[TreeFeatures],
    dev: Sequence[TreeFeatures],
    loss_of: ProjectionLoss,
    settings: StructuralSettings,
) -> Float[Tensor, "r d"]:
    if not train or not dev:
        raise ValueError(f"no sentences: {len(train)} to train on, {len(dev)} to stop at")
    generator = torch.Generator().manual_seed(settings.seed)
    width = train[0].vectors.shape[1]
    projection = torch.empty(settings.rank, width).uniform_(-0.05, 0.05, generator=generator)
    projection.requires_grad_()
    optimizer = torch.optim.Adam([projection], settings.learning_rate)
    best, best_loss, best_epoch = projection.detach().clone(), float("inf"), 0
    starts = range(0, len(dev), settings.batch_size)
    for epoch in range(1, settings.max_epochs + 1):
        for rows in torch.randperm(len(train), generator=generator).split(settings.batch_size):
            optimizer.zero_grad()
            loss_of(projection, [train[i] for i in rows.tolist()]).backward()
            optimizer.step()
        with torch.no_grad():
            batches = [dev[i : i + settings.batch_size] for i in starts]
            loss = sum(len(some) * float(loss_of(projection, some)) for some in batches)
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
            value = _spearman(distances, one.distances)
            correlations.setdefault(len(one.heads), []).append(value)
    if not total:
        raise ValueError("no tree has an edge between scored words")
    means = [float(np.mean(values)) for values in correlations.values()]
    return StructuralScores(
        uuas=right / total,
        chain_uuas=chain / total,
        spearman=float(np.mean(means)) if means else None,
    )


def score_depth_probe(
    projection: Float[Tensor, "r d"], sentences: Sequence[TreeFeatures]
) -> DepthScores:
    """Score roots and rank correlations of depths.

    Raises:
        ValueError: no sentence has a root among the scored words.
    """
    n_right = n_chain = n_roots = 0
    correlations: dict[int, list[tuple[float, float]]] = {}
    for one in sentences:
        depths = probe_depths(projection, one.vectors).detach().double().numpy()
        words = np.flatnonzero(one.scored)
        root = one.heads.index(ROOT)
        if one.scored[root]:
            n_roots += 1
            n_right += int(words[depths[words].argmin()]) == root
            n_chain += int(words[0]) == root
        if (n := len(one.heads)) in SPEARMAN_LENGTHS:
            rows = np.stack((depths, np.arange(n)))
            found = _rank_correlations(rows, np.stack((one.depths,) * 2))
            correlations.setdefault(n, []).append((float(found[0]), float(found[1])))
    if not n_roots:
        raise ValueError("no sentence has a root among the scored words")
    means = np.array([np.mean(values, axis=0) for values in correlations.values()]).reshape(-1, 2)
    return DepthScores(
        root_accuracy=n_right / n_roots,
        chain_root_accuracy=n_chain / n_roots,
        spearman=float(means[:, 0].mean()) if len(means) else None,
        chain_spearman=float(means[:, 1].mean()) if len(means) else None,
    )


def distance_loss(
    projection: Float[Tensor, "r d"], sentences: Sequence[TreeFeatures]
) -> Float[Tensor, ""]:
    """Return the mean over sentences of 1/|s|^2 Σ_ij |d_T(i, j) - d_B(i, j)^2|."""
    y, lengths = _project(projection, sentences)
    squares = y.square().sum(-1)
    predicted = squares[:, :, None] + squares[:, None] - 2 * y @ y.mT
    wanted = predicted.detach().clone()  # what no sentence covers adds nothing
    for row, one in zip(wanted, sentences, strict=True):
        row[: len(one.heads), : len(one.heads)] = torch.from_numpy(one.distances)
    return ((wanted - predicted).abs().sum((1, 2)) / lengths.square()).mean()


def depth_loss(
    projection: Float[Tensor, "r d"], sentences: Sequence[TreeFeatures]
) -> Float[Tensor, ""]:
    """Return the mean over sentences of 1/|s| Σ_i ||i|_T - |B h_i|^2|."""
    y, lengths = _project(projection, sentences)
    depths = [torch.from_numpy(one.depths).to(y.dtype) for one in sentences]
    wanted = pad_sequence(depths, batch_first=True)
    # projections of padding are zero, and so are its depths
    return ((wanted - y.square().sum(-1)).abs().sum(1) / lengths).mean()


def _project(
    projection: Float[Tensor, "r d"], sentences: Sequence[TreeFeatures]
) -> tuple[Float[Tensor, "b w r"], Float[Tensor, "b"]]:
    """Return projections of words, zero after the end of a sentence, and numbers of words."""
    vectors = pad_sequence([one.vectors for one in sentences], batch_first=True)
    return vectors @ projection.T, torch.tensor([float(len(one.heads)) for one in sentences])


def _spearman(predicted: Float[np.ndarray, "w w"], wanted: Float[np.ndarray, "w w"]) -> float:
    """Return the mean over words of the rank correlation of the distances from it."""
    return float(np.mean(_rank_correlations(predicted, wanted)))


def _rank_correlations(
    predicted: Float[np.ndarray, "n w"], wanted: Float[np.ndarray, "n w"]
) -> Float[np.ndarray, "n"]:
    """Return the rank correlation of each row; 0 where all of a row is equal."""
    from scipy.stats import rankdata

    ranks = [rankdata(part, axis=1) for part in (predicted, wanted)]
    centered = [part - part.mean(1, keepdims=True) for part in ranks]
    norms = np.linalg.norm(centered[0], axis=1) * np.linalg.norm(centered[1], axis=1)
    products = (centered[0] * centered[1]).sum(1)
    return np.where(norms > 0, products / np.maximum(norms, 1e-12), 0)
