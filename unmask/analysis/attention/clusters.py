"""Heads that attend alike: Clark et al. 2019, arXiv:1906.04341, section 6."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.linalg import eigh
from scipy.spatial.distance import squareform
from torch import Tensor

from unmask.analysis.attention.sentences import HeadName, SentenceMaps
from unmask.analysis.attention.statistics import entropy
from unmask.analysis.words import SPECIAL


@dataclass(frozen=True, kw_only=True)
class HeadClusters:
    """Distances between heads, and what follows from them."""

    heads: tuple[HeadName, ...]
    distances: Float[np.ndarray, "k k"]
    """Jensen-Shannon divergence in nats, the mean over words."""
    positions: Float[np.ndarray, "k 2"]
    """Classical multidimensional scaling (Torgerson 1952) of the distances."""
    clusters: Int[np.ndarray, "k"]
    """Cluster of each head, from 1: hierarchical clustering by average linkage."""
    within_layers: float
    """Mean distance of two heads of one layer."""
    between_layers: float
    """Mean distance of two heads of different layers."""


def head_distances(sentences: Iterable[SentenceMaps]) -> Float[Tensor, "k k"]:
    """Return the mean Jensen-Shannon divergence of the attention of two heads from a word.

    JS(p, q) = H((p + q) / 2) - (H(p) + H(q)) / 2. The paper sums over tokens instead.

    Raises:
        ValueError: there is no sentence.
    """
    total, n_words = torch.zeros(()), 0
    for one in sentences:
        maps = one.groups[:, torch.from_numpy(one.pieces.word_of_group != SPECIAL)]
        own = entropy(maps).sum(1)
        rows = [entropy((maps + row) / 2).sum(1) for row in maps]
        total = total + torch.stack(rows) - (own[:, None] + own) / 2
        n_words += maps.shape[1]
    if not n_words:
        raise ValueError("no sentence, so that heads have no distances")
    return (total / n_words).clamp(min=0).fill_diagonal_(0)


def cluster_heads(
    heads: Sequence[HeadName], distances: Float[Tensor, "k k"], n_clusters: int
) -> HeadClusters:
    """Group heads by their distances, and lay them out in a plane."""
    symmetric = ((distances + distances.T) / 2).double().numpy()
    layers = np.array([one.layer for one in heads])
    pairs = np.triu(np.ones(symmetric.shape, bool), 1)
    same = layers[:, None] == layers
    if len(heads) < 2:
        clusters = np.ones(len(heads), np.int64)
    else:
        tree = linkage(squareform(symmetric, checks=False), "average")
        clusters = fcluster(tree, n_clusters, "maxclust").astype(np.int64)
    return HeadClusters(
        heads=tuple(heads),
        distances=symmetric,
        positions=_scale(symmetric),
        clusters=clusters,
        within_layers=_mean(symmetric[pairs & same]),
        between_layers=_mean(symmetric[pairs & ~same]),
    )


def _scale(distances: Float[np.ndarray, "k k"]) -> Float[np.ndarray, "k 2"]:
    """Return the coordinates whose distances are nearest to the given ones."""
    k = len(distances)
    center = np.eye(k) - 1 / k
    values, vectors = eigh(-center @ distances**2 @ center / 2)
    positions = vectors[:, ::-1][:, :2] * np.sqrt(np.maximum(values[::-1][:2], 0))
    positions = np.pad(positions, ((0, 0), (0, 2 - positions.shape[1])))
    # an eigenvector has no sign of its own: that of its largest number is made positive
    signs = np.sign(positions[np.abs(positions).argmax(0), [0, 1]])
    return positions * np.where(signs == 0, 1, signs)


def _mean(values: Float[np.ndarray, "n"]) -> float:
    return float(values.mean()) if len(values) else 0.0
