"""Token vectors that are the narrower, the rarer the token is."""

from dataclasses import dataclass
from typing import cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from unmask.model.parts import Sizes


@dataclass(frozen=True)
class Adaptive:
    """The vocabulary, the most frequent tokens first, is cut into clusters.

    Baevski and Auli 2019, arXiv:1809.10853, section 3: vectors of the first cluster have the width
    of the embedding, those of each next a `factor`-th of the one before; a map widens each.
    """

    cutoffs: tuple[int, ...]
    """The first id of each cluster but the first one."""
    factor: int = 4

    def __post_init__(self) -> None:
        ascending = list(self.cutoffs) == sorted({*self.cutoffs})
        if not self.cutoffs or not ascending or self.cutoffs[0] < 1:
            raise ValueError(f"cutoffs must be ids in ascending order, from 1, got {self.cutoffs}")
        if self.factor < 2:
            raise ValueError(f"factor must be at least 2, got {self.factor}")

    def ends(self, vocab_size: int) -> tuple[int, ...]:
        """Return the first id of each cluster that has tokens; at last, how many ids there are."""
        return (0, *(i for i in self.cutoffs if i < vocab_size), vocab_size)

    def build(self, vocab_size: int, sizes: Sizes) -> "AdaptiveEmbedding":
        """Build the tables and maps.

        Raises:
            ValueError: the rarest tokens would have no vector.
        """
        return AdaptiveEmbedding(self, vocab_size, sizes)


class AdaptiveEmbedding(nn.Module):
    """Ids -> vectors, from a table and a map for each cluster."""

    def __init__(self, spec: Adaptive, vocab_size: int, sizes: Sizes) -> None:
        super().__init__()
        self.ends, d = spec.ends(vocab_size), sizes.d_embed
        widths = [d // spec.factor**i for i in range(len(self.ends) - 1)]
        if widths[-1] < 1:
            raise ValueError(f"{len(widths)} clusters, each {spec.factor} times narrower, of {d}")
        counts = [b - a for a, b in zip(self.ends[:-1], self.ends[1:], strict=True)]
        self.tables = nn.ModuleList(nn.Embedding(n, w) for n, w in zip(counts, widths, strict=True))
        self.maps = nn.ModuleList(nn.Linear(w, d, bias=False) for w in widths)

    @property
    def weight(self) -> Float[Tensor, "v d"]:
        """The first of the tables, which tells where all of them are and in what precision."""
        return self.table(0).weight

    def table(self, i: int) -> nn.Embedding:
        """Return the table of a cluster."""
        return cast(nn.Embedding, self.tables[i])

    def map(self, i: int) -> nn.Linear:
        """Return the map that widens the vectors of a cluster."""
        return cast(nn.Linear, self.maps[i])

    def forward(self, ids: Int[Tensor, "*b"]) -> Float[Tensor, "*b d"]:
        """Look up vectors, cluster by cluster."""
        flat = ids.flatten()
        out = self.weight.new_zeros(len(flat), self.map(0).out_features)
        for i, (low, high) in enumerate(zip(self.ends[:-1], self.ends[1:], strict=True)):
            where = torch.nonzero((flat >= low) & (flat < high)).squeeze(1)
            vectors = self.map(i)(self.table(i)(flat[where] - low))
            out = out.index_copy(0, where, vectors.to(out.dtype))
        return out.unflatten(0, ids.shape)
