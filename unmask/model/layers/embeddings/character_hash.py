"""Hash embeddings of characters (CANINE)."""

from typing import cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

HASH_PRIMES = (31, 43, 59, 61, 73, 97, 103, 113, 137, 149, 157, 173, 181, 193, 211, 223)
"""Prime numbers, one for each hash function (released code)."""


class CharacterHashEmbedding(nn.ModuleList):
    """Hash embeddings of ids: each hash function looks up one slice of an embedding.

    Two characters may share a slice, but hardly ever all slices (section 3.1,
    "Character hash embeddings").
    """

    def __init__(self, n_hash_functions: int, n_buckets: int, width: int) -> None:
        super().__init__(
            nn.Embedding(n_buckets, width // n_hash_functions) for _ in range(n_hash_functions)
        )
        self.n_buckets = n_buckets

    @property
    def weight(self) -> Float[Tensor, "v d"]:
        """The first of the tables; all have its device and dtype."""
        return cast(nn.Embedding, self[0]).weight

    def buckets(self, ids: Int[Tensor, "*b"]) -> Int[Tensor, "*b k"]:
        """Return the row of each id in each table."""
        primes = torch.tensor(HASH_PRIMES[: len(self)], device=ids.device)
        return (ids[..., None] + 1) * primes % self.n_buckets

    def forward(self, ids: Int[Tensor, "*b"]) -> Float[Tensor, "*b d"]:
        """Look up embeddings, slice by slice."""
        rows = self.buckets(ids).unbind(-1)
        return torch.cat([table(row) for table, row in zip(self, rows, strict=True)], -1)
