"""Where a token stands.

A scheme has three hooks: `embed`, `geometry`, and a part that lives in each layer. `embed` adds to
token vectors (learned). `geometry` is computed once a forward and shared by all layers (T5's table
of biases). The layer's own part maps (q, k, geometry) to (q, k, bias of the scores).
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from unmask.model.parts import Sizes


class Place(nn.Module):
    """The part of a scheme that lives in a layer. Also T5's: its geometry *is* the bias."""

    def forward(
        self, q: Float[Tensor, "b h t e"], k: Float[Tensor, "b g s e"], geometry: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return q, k and what is added to the scores [1 h t s]."""
        return q, k, geometry


class PositionModule(nn.Module):
    """The part of a scheme that all layers share. A scheme overrides the hooks it needs."""

    def embed(self, place: Int[Tensor, "b t"]) -> Tensor | None:
        """Return what is added to the token vectors [b t d], if anything."""
        return None

    def geometry(self, queries: int, keys: int) -> Tensor | None:
        """Return what layers need to know of the last `queries` of `keys` columns, if anything."""
        return None

    def layer(self) -> nn.Module:
        """Return the part that lives in one layer."""
        return Place()


@dataclass(frozen=True)
class Learned:
    """A vector for each place (Gehring et al. 2017; BERT, GPT-2)."""

    length: int = 512
    """How many places there are: the longest text."""

    def build(self, sizes: Sizes) -> PositionModule:
        """Build the table [length d_embed]."""
        return LearnedModule(self, sizes)


class LearnedModule(PositionModule):
    """Looks up the vector of each place."""

    def __init__(self, scheme: Learned, sizes: Sizes) -> None:
        super().__init__()
        self.length = scheme.length
        self.table = nn.Embedding(scheme.length, sizes.d_embed)

    def embed(self, place: Int[Tensor, "b t"]) -> Tensor:
        """Look up [b t d]."""
        if place.shape[1] > self.length and (last := int(place.max())) >= self.length:
            raise ValueError(
                f"a text of {last + 1} tokens is longer than the model's {self.length} positions"
            )
        return self.table(place)


@dataclass(frozen=True)
class BucketBias:
    """A bias of the scores for each head and distance, distances in buckets.

    Raffel et al. 2020, section 2.1.
    """

    buckets: int = 32
    reach: int = 128
    """From this distance on all share the last bucket."""
    causal: bool = False

    def build(self, sizes: Sizes) -> PositionModule:
        """Build the table [buckets h]."""
        return BucketBiasModule(self, sizes)


class BucketBiasModule(PositionModule):
    """Looks up the bias of each pair of places.

    Half of the buckets are exact, the other half logarithmic.
    """

    def __init__(self, scheme: BucketBias, sizes: Sizes) -> None:
        super().__init__()
        self.scheme = scheme
        self.table = nn.Embedding(scheme.buckets, sizes.n_heads)

    def bucket(self, away: Int[Tensor, "t s"]) -> Int[Tensor, "t s"]:
        """Number the bucket of each distance key - query.

        `_relative_position_bucket` in Mesh TensorFlow's T5.
        """
        n, first = self.scheme.buckets, torch.zeros_like(away)
        if self.scheme.causal:
            away = (-away).clamp(min=0)
        else:
            n //= 2
            first = (away > 0).long() * n
            away = away.abs()
        exact = n // 2
        ratio = torch.log(away.float().clamp(min=1) / exact) / math.log(self.scheme.reach / exact)
        far = exact + (ratio * (n - exact)).long()
        return first + torch.where(away < exact, away, far.clamp(max=n - 1))

    def geometry(self, queries: int, keys: int) -> Tensor:
        """Look up [1 h t s]."""
        place = torch.arange(keys, device=self.table.weight.device)
        away = place[None, :] - place[keys - queries :, None]
        return self.table(self.bucket(away)).permute(2, 0, 1)[None].contiguous()


Position = Learned | BucketBias
