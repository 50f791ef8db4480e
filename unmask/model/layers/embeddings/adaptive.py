"""Token vectors that are the narrower, the rarer the token is."""

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
    """The vocabulary, the most frequent tokens first, is cut into clusters.

    Baevski and Auli 2019, arXiv:1809.10853, section 3: vectors of the first cluster have the width
    of the embedding, those of each next a `reduction_factor`-th of the one before; a map widens each. Where
    all are equally wide there is one table and no map (Dai et al. 2019, arXiv:1901.02860, released
    code, `div_val` = 1: the smaller model of WikiText-103), and clusters are of the scores alone.
    """

    cutoffs: tuple[int, ...]
    """The first id of each cluster but the first one."""
    reduction_factor: int = 4

    def __post_init__(self) -> None:
        ascending = list(self.cutoffs) == sorted({*self.cutoffs})
        if not self.cutoffs or not ascending or self.cutoffs[0] < 1:
            raise ValueError(f"cutoffs must be ids in ascending order, from 1, got {self.cutoffs}")
        if self.reduction_factor < 1:
            raise ValueError(f"reduction_factor must be at least 1, got {self.reduction_factor}")

    def cluster_ends(self, vocab_size: int) -> tuple[int, ...]:
        """Return the first id of each cluster that has tokens; at last, how many ids there are."""
        return (0, *(i for i in self.cutoffs if i < vocab_size), vocab_size)

    def build(self, vocab_size: int, dimensions: ModelDimensions) -> "AdaptiveEmbedding":
        """Build the tables and maps.

        Raises:
            ValueError: the rarest tokens would have no vector.
        """
        return AdaptiveEmbedding(self, vocab_size, dimensions)


class AdaptiveEmbedding(nn.Module):
    """Ids -> vectors, from a table and a map for each cluster, or from one table."""

    def __init__(self, spec: AdaptiveInput, vocab_size: int, dimensions: ModelDimensions) -> None:
        super().__init__()
        self.ends, d = spec.cluster_ends(vocab_size), dimensions.d_embed
        widths = [d // spec.reduction_factor**i for i in range(self.n_clusters)]
        if widths[-1] < 1:
            raise ValueError(f"{len(widths)} clusters, each {spec.reduction_factor} times narrower, of {d}")
        counts = [b - a for a, b in pairwise(self.ends)]
        if spec.reduction_factor == 1:
            counts, widths = [vocab_size], [d]
        self.tables = nn.ModuleList(nn.Embedding(n, w) for n, w in zip(counts, widths, strict=True))
        mapped = widths if spec.reduction_factor > 1 else []
        self.maps = nn.ModuleList(nn.Linear(w, d, bias=False) for w in mapped)

    @property
    def n_clusters(self) -> int:
        """How many clusters there are."""
        return len(self.ends) - 1

    @property
    def weight(self) -> Float[Tensor, "v d"]:
        """The first of the tables, which tells where all of them are and in what precision."""
        return self.cluster_table(0).weight

    def cluster_table(self, i: int) -> nn.Embedding:
        """Return a table: of a cluster, where each has one."""
        return cast(nn.Embedding, self.tables[i])

    def cluster_projection(self, i: int) -> nn.Linear:
        """Return the map that widens the vectors of a cluster, where each has one."""
        return cast(nn.Linear, self.maps[i])

    def cluster_slice(self, parts: Sequence[Tensor], i: int) -> Tensor:
        """Return what belongs to cluster i of tensors that have a row for each token of a table."""
        return parts[i] if len(self.maps) else parts[0][self.ends[i] : self.ends[i + 1]]

    def cluster_vectors(self, i: int) -> Float[Tensor, "n w"]:
        """Return the vectors of a cluster's tokens, as narrow as they are."""
        return self.cluster_slice([self.cluster_table(j).weight for j in range(len(self.tables))], i)

    def forward(self, ids: Int[Tensor, "*b"]) -> Float[Tensor, "*b d"]:
        """Look up vectors, cluster by cluster."""
        if not len(self.maps):
            return self.cluster_table(0)(ids)
        flat = ids.flatten()
        out = self.weight.new_zeros(len(flat), self.cluster_projection(0).out_features)
        for i, (low, high) in enumerate(pairwise(self.ends)):
            where = torch.nonzero((flat >= low) & (flat < high)).squeeze(1)
            vectors = self.cluster_projection(i)(self.cluster_table(i)(flat[where] - low))
            out = out.index_copy(0, where, vectors.to(out.dtype))
        return out.unflatten(0, ids.shape)
