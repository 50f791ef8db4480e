"""Where a token stands.

A scheme has three hooks: `embed`, `geometry`, and a part that lives in each layer. `embed` adds to
token vectors (learned). `geometry` is computed once a forward and shared by all layers (T5's table
of biases, the angles of rotations). The layer's own part maps (q, k, geometry) to (q, k, bias of
the scores).
"""

import math
from dataclasses import dataclass
from typing import Any, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from unmask.model.parts import Sizes


class Place(nn.Module):
    """The part of a scheme that lives in a layer. Also T5's: its geometry *is* the bias."""

    def forward(
        self, q: Float[Tensor, "b h t e"], k: Float[Tensor, "b g s e"], geometry: Any
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return q, k and what is added to the scores [1 h t s]."""
        return q, k, geometry


class PositionModule(nn.Module):
    """The part of a scheme that all layers share. A scheme overrides the hooks it needs."""

    def embed(self, place: Int[Tensor, "b t"]) -> Tensor | None:
        """Return what is added to the token vectors [b t d], if anything."""
        return None

    def geometry(self, x: Float[Tensor, "b t d"], keys: int) -> Any:
        """Return what layers need to know of the columns x, the last of `keys`, if anything."""
        return None

    def layer(self, i: int) -> nn.Module:
        """Return the part that lives in layer i."""
        return Place()


@dataclass(frozen=True)
class Learned:
    """A vector for each place (Gehring et al. 2017; BERT, GPT-2)."""

    length: int = 512
    """How many places there are: the longest text."""
    offset: int = 0
    """Rows of the table before that of the first place, used by no text: RoBERTa's released code
    counts places from the padding's id + 1."""

    def build(self, sizes: Sizes) -> PositionModule:
        """Build the table [offset + length d_embed]."""
        return LearnedModule(self, sizes)


class LearnedModule(PositionModule):
    """Looks up the vector of each place."""

    def __init__(self, scheme: Learned, sizes: Sizes) -> None:
        super().__init__()
        self.length, self.offset = scheme.length, scheme.offset
        self.table = nn.Embedding(scheme.offset + scheme.length, sizes.d_embed)

    def embed(self, place: Int[Tensor, "b t"]) -> Tensor:
        """Look up [b t d]."""
        if place.shape[1] > self.length and (last := int(place.max())) >= self.length:
            raise ValueError(
                f"a text of {last + 1} tokens is longer than the model's {self.length} positions"
            )
        return self.table(place + self.offset)


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

    def geometry(self, x: Float[Tensor, "b t d"], keys: int) -> Tensor:
        """Look up [1 h t s]."""
        place = torch.arange(keys, device=x.device)
        away = place[None, :] - place[keys - x.shape[1] :, None]
        return self.table(self.bucket(away)).permute(2, 0, 1)[None].contiguous()


@dataclass(frozen=True)
class Rotary:
    """Queries and keys turned by angles that grow with the place.

    Su et al. 2021, arXiv:2104.09864, section 3.2.2; the two halves of a head's width are paired, as
    in GPT-NeoX and Llama. Only the distance of two places shows in their score.
    """

    theta: float = 10_000.0
    """The slowest pair turns by about 1 / theta a place."""
    length: int = 512
    """How long texts the model was made for; nothing of the scheme ends there."""

    def build(self, sizes: Sizes) -> PositionModule:
        """Build what computes the angles; it has no weights."""
        return RotaryModule(self, sizes)


class RotaryModule(PositionModule):
    """Computes the cosines and sines of all places."""

    def __init__(self, scheme: Rotary, sizes: Sizes) -> None:
        super().__init__()
        self.theta, self.width = scheme.theta, sizes.d_head

    def geometry(self, x: Float[Tensor, "b t d"], keys: int) -> tuple[Tensor, Tensor]:
        """Return cosines and sines [s e] in float32; places are counted through a row.

        Packed texts begin somewhere in a row: the distances within them are the same.
        """
        pairs = torch.arange(0, self.width, 2, device=x.device).float() / self.width
        angle = torch.arange(keys, device=x.device)[:, None].float() * self.theta**-pairs
        angle = angle.repeat(1, 2)  # [s e]
        return angle.cos(), angle.sin()

    def layer(self, i: int) -> nn.Module:
        """Return what turns queries and keys."""
        return Turn()


class Turn(nn.Module):
    """Turns queries and keys by the angles of their places."""

    def forward(
        self,
        q: Float[Tensor, "b h t e"],
        k: Float[Tensor, "b g s e"],
        geometry: tuple[Tensor, Tensor],
    ) -> tuple[Tensor, Tensor, None]:
        """Return q and k, turned."""
        cos, sin = geometry
        last = cos.shape[0] - q.shape[2]
        return turned(q, cos[last:], sin[last:]), turned(k, cos, sin), None


def turned(
    x: Float[Tensor, "b h t e"], cos: Float[Tensor, "t e"], sin: Float[Tensor, "t e"]
) -> Float[Tensor, "b h t e"]:
    """Turn each pair of x's numbers, in float32."""
    first, second = x.float().chunk(2, -1)
    return (x * cos + torch.cat((-second, first), -1) * sin).to(x.dtype)


@dataclass(frozen=True)
class Cycle:
    """One scheme for the first layer, another for the second, and so on, from the start again."""

    parts: tuple[Rotary, ...]

    @property
    def length(self) -> int:
        """How long texts the model was made for."""
        return min(part.length for part in self.parts)

    def build(self, sizes: Sizes) -> PositionModule:
        """Build the parts."""
        return CycleModule(self, sizes)


class CycleModule(PositionModule):
    """Gives each layer the geometry of its own part."""

    def __init__(self, scheme: Cycle, sizes: Sizes) -> None:
        super().__init__()
        self.parts = nn.ModuleList(part.build(sizes) for part in scheme.parts)

    def geometry(self, x: Float[Tensor, "b t d"], keys: int) -> list[Any]:
        """Return the geometry of each part."""
        return [cast(PositionModule, part).geometry(x, keys) for part in self.parts]

    def layer(self, i: int) -> nn.Module:
        """Return the layer's part of layer i's scheme."""
        i %= len(self.parts)
        return OneOfCycle(cast(PositionModule, self.parts[i]).layer(i), i)


class OneOfCycle(nn.Module):
    """A layer's part that reads the geometry of one scheme of several."""

    def __init__(self, part: nn.Module, which: int) -> None:
        super().__init__()
        self.part, self.which = part, which

    def forward(
        self, q: Float[Tensor, "b h t e"], k: Float[Tensor, "b g s e"], geometry: list[Any]
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Do what the part does."""
        return self.part(q, k, geometry[self.which])


Position = Learned | BucketBias | Rotary | Cycle
