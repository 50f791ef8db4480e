"""Adaptive input embeddings: the rarer the token, the smaller its embedding."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from unmask.model.layers.feed_forward import ModelDimensions


@dataclass(frozen=True)
class AdaptiveInput:
    """The vocabulary, sorted by descending frequency, is split into clusters.

    Baevski and Auli 2019, arXiv:1809.10853, section 3: embeddings of the first cluster have the
    full size, those of each next cluster are smaller by `reduction_factor`, and each is projected.
    If all have one size, there is one table and no projection (Dai et al. 2019, arXiv:1901.02860,
    released code, `div_val` = 1: the smaller model of WikiText-103), and clusters apply to the
    logits only.
    """

    cutoffs: tuple[int, ...]
    """First id of each cluster except the first one."""
    reduction_factor: int = 4

    def __post_init__(self) -> None:
        ascending = list(self.cutoffs) == sorted({*self.cutoffs})
        if not self.cutoffs or not ascending or self.cutoffs[0] < 1:
            raise ValueError(f"cutoffs must be ids in ascending order, from 1, got {self.cutoffs}")
        if self.reduction_factor < 1:
            raise ValueError(f"reduction_factor must be at least 1, got {self.reduction_factor}")

    def cluster_ends(self, vocab_size: int) -> tuple[int, ...]:
        """Return the first id of each cluster that has tokens, and the vocabulary size."""
        return (0, *(i for i in self.cutoffs if i < vocab_size), vocab_size)

    def build(self, vocab_size: int, dimensions: ModelDimensions) -> "AdaptiveEmbedding":
        """Build the tables and projections.

        Raises:
            ValueError: the rarest tokens would have embeddings of size 0.
        """
        return AdaptiveEmbedding(self, vocab_size, dimensions)


class AdaptiveEmbedding(nn.Module):
    """Ids -> embeddings, from a table and a projection per cluster, or from one table."""

    def __init__(self, spec: AdaptiveInput, vocab_size: int, dimensions: ModelDimensions) -> None:
        super().__init__()
        self.ends, d = spec.cluster_ends(vocab_size), dimensions.d_embed
        widths = [d // spec.reduction_factor**i for i in range(self.n_clusters)]
        if widths[-1] < 1:
            raise ValueError(
                f"{len(widths)} clusters, each {spec.reduction_factor} times narrower, of {d}"
            )
        counts = [b - a for a, b in pairwise(self.ends)]
        if spec.reduction_factor == 1:
            counts, widths = [vocab_size], [d]
        self.tables = nn.ModuleList(nn.Embedding(n, w) for n, w in zip(counts, widths, strict=True))
        mapped = widths if spec.reduction_factor > 1 else []
        self.maps = nn.ModuleList(nn.Linear(w, d, bias=False) for w in mapped)

    @property
    def n_clusters(self) -> int:
        """Number of clusters."""
        return len(self.ends) - 1

    @property
    def weight(self) -> Float[Tensor, "v d"]:
        """The first of the tables; all have its device and dtype."""
        return self.cluster_table(0).weight

    def cluster_table(self, i: int) -> nn.Embedding:
        """Return the table of a cluster, or the only one."""
        return cast(nn.Embedding, self.tables[i])

    def cluster_projection(self, i: int) -> nn.Linear:
        """Return the projection of a cluster, if clusters have one."""
        return cast(nn.Linear, self.maps[i])

    def cluster_slice(self, parts: Sequence[Tensor], i: int) -> Tensor:
        """Return the rows of cluster i of a tensor with a row for each token."""
        return parts[i] if len(self.maps) else parts[0][self.ends[i] : self.ends[i + 1]]

    def cluster_vectors(self, i: int) -> Float[Tensor, "n w"]:
        """Return the embeddings of a cluster's tokens, before the projection."""
        return self.cluster_slice(
            [self.cluster_table(j).weight for j in range(len(self.tables))], i
        )

    def forward(self, ids: Int[Tensor, "*b"]) -> Float[Tensor, "*b d"]:
        """Look up embeddings, cluster by cluster."""
        if not len(self.maps):
            return self.cluster_table(0)(ids)
        flat = ids.flatten()
        out = self.weight.new_zeros(len(flat), self.cluster_projection(0).out_features)
        for i, (low, high) in enumerate(pairwise(self.ends)):
            where = torch.nonzero((flat >= low) & (flat < high)).squeeze(1)
            vectors = self.cluster_projection(i)(self.cluster_table(i)(flat[where] - low))
            out = out.index_copy(0, where, vectors.to(out.dtype))
        return out.unflatten(0, ids.shape)
