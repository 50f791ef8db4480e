"""Where a token stands.

A scheme has three hooks: `embed`, `geometry`, and a part that lives in each layer. `embed` adds to
token vectors (learned). `geometry` is computed once a forward and shared by all layers (T5's table
of biases, the angles of rotations). The layer's own part changes queries and keys by where they
stand, before a cache keeps the keys, and gives the bias of their scores.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, cast, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from unmask.batch import Batch
from unmask.model.parts import Dropout, Norm, Sizes


@runtime_checkable
class Projections(Protocol):
    """What a scheme's part in a layer may use of the attention that it is a part of."""

    @property
    def q(self) -> Callable[[Tensor], Tensor]:
        """The map of queries, [... d] to [... h*e]."""
        ...

    @property
    def k(self) -> Callable[[Tensor], Tensor]:
        """The map of keys."""
        ...

    @property
    def scale(self) -> float:
        """What scores are multiplied with; a bias is added after."""
        ...

    def heads(self, x: Tensor) -> Tensor:
        """Cut vectors [b t h*e] into heads [b h t e]."""
        ...


class Place(nn.Module):
    """The part of a scheme that lives in a layer. Also T5's: its geometry *is* the bias."""

    def query(self, q: Float[Tensor, "b h t e"], geometry: Any) -> Tensor:
        """Return queries, changed by where they stand."""
        return q

    def key(self, k: Float[Tensor, "b g t e"], geometry: Any) -> Tensor:
        """Return keys of the same columns, changed by where they stand."""
        return k

    def bias(
        self,
        q: Float[Tensor, "b h t e"],
        k: Float[Tensor, "b g s e"],
        geometry: Any,
        attention: Projections,
    ) -> Tensor | None:
        """Return what is added to the scores [b|1 h t s]."""
        return geometry


class PositionModule(nn.Module):
    """The part of a scheme that all layers share. A scheme overrides the hooks it needs."""

    recalls: ClassVar[bool] = False
    """Keys of hidden states that a batch's memory holds may stand before those of its text."""
    pairs: ClassVar[bool] = False
    """It says something of each query and each key: layers keep all keys, whatever their window."""

    def embed(self, place: Int[Tensor, "b t"]) -> Tensor | None:
        """Return what is added to the token vectors [b t d], if anything."""
        return None

    def geometry(self, x: Float[Tensor, "b t d"], keys: int, batch: Batch | None = None) -> Any:
        """Return what layers need to know of the columns x, the last of `keys`, if anything.

        `batch` is what they are made of, for schemes that ask more than how many there are.
        """
        return None

    def layer(self, i: int) -> Place:
        """Return the part that lives in layer i."""
        return Place()

    def share(self, other: Any) -> None:
        """Have in common with another stack's part what is added to token vectors, if anything."""


@dataclass(frozen=True)
class InOrder:
    """Nothing is said of places: the network reads in order (LSTMs), or finds it out.

    A causal Transformer does (Haviv et al. 2022, arXiv:2203.16634).
    """

    def build(self, sizes: Sizes) -> PositionModule:
        """Build nothing."""
        return PositionModule()


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

    def share(self, other: "LearnedModule") -> None:
        """Look up in the other's table."""
        self.table = other.table


@dataclass(frozen=True)
class Sinusoidal:
    """Sines and cosines of each place, added to token vectors; nothing is learned.

    Vaswani et al. 2017, arXiv:1706.03762, section 3.5: of d numbers, those of a pair i are the sine
    and the cosine of place / 10,000^(2i / d).
    """

    length: int = 1024
    """How long texts the model was made for."""
    order: Literal["halves", "pairs"] = "halves"
    """All sines stand before all cosines (released code, `get_timing_signal_1d`, which spaces them
    otherwise; Marian), or each sine before its cosine (the paper). The two are the same network
    with its numbers in another order."""

    def build(self, sizes: Sizes) -> PositionModule:
        """Build what computes the sinusoids.

        Raises:
            ValueError: the width is odd.
        """
        return SinusoidalModule(self, sizes)


class SinusoidalModule(PositionModule):
    """Computes the sines and cosines of places."""

    def __init__(self, scheme: Sinusoidal, sizes: Sizes) -> None:
        super().__init__()
        self.scheme, self.width = scheme, sizes.d_embed
        if self.width % 2:
            raise ValueError(
                f"sines and cosines come in pairs: the width must be even, got {self.width}"
            )

    def embed(self, place: Int[Tensor, "b t"]) -> Tensor:
        """Compute [b t d] in float32; angles in float64, where the device has that."""
        if place.shape[1] > self.scheme.length and (last := int(place.max())) >= self.scheme.length:
            raise ValueError(
                f"a text of {last + 1} tokens is longer than the model's {self.scheme.length} "
                "positions"
            )
        exact = torch.float32 if place.device.type == "mps" else torch.float64
        pairs = torch.arange(0, self.width, 2, device=place.device).to(exact) / self.width
        angle = place[..., None].to(exact) * 10_000.0**-pairs
        both = angle.sin(), angle.cos()
        found = torch.cat(both, -1) if self.scheme.order == "halves" else torch.stack(both, -1)
        return found.flatten(2).float()


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

    recalls = True
    pairs = True

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

    def geometry(self, x: Float[Tensor, "b t d"], keys: int, batch: Batch | None = None) -> Tensor:
        """Look up [1 h t s]."""
        return _biases(self.table, self.bucket(_away(x, keys)))


def _away(x: Float[Tensor, "b t d"], keys: int) -> Int[Tensor, "t s"]:
    """Return how far each of `keys` columns is from each column x, the last of them."""
    place = torch.arange(keys, device=x.device)
    return place[None, :] - place[keys - x.shape[1] :, None]


def _biases(table: nn.Embedding, bucket: Int[Tensor, "t s"]) -> Float[Tensor, "1 h t s"]:
    return table(bucket).permute(2, 0, 1)[None].contiguous()


@dataclass(frozen=True)
class LearnedAndBucketBias:
    """A vector for each place, and a bias of the scores for each head and distance.

    Distances are in buckets: each its own up to a quarter of all, then ever wider ones (released
    code of Meng et al. 2021, `relative_position_bucket`; not T5's, whose borders are others).
    """

    length: int = 512
    """How many places there are: the longest text."""
    buckets: int = 32
    """Half of them on each side; one of them no distance has (released code)."""
    reach: int = 128
    """From about this distance on all share the last bucket."""

    def __post_init__(self) -> None:
        if self.buckets < 4 or self.buckets % 2:
            raise ValueError(f"buckets must be even and at least 4, got {self.buckets}")
        if self.reach <= self.buckets // 4 + 1:
            raise ValueError(
                f"reach must be above {self.buckets // 4 + 1} (a quarter of the buckets, and 1), "
                f"got {self.reach}"
            )

    def build(self, sizes: Sizes) -> PositionModule:
        """Build the tables of places [length d_embed] and distances [buckets h]."""
        return LearnedAndBucketBiasModule(self, sizes)


class LearnedAndBucketBiasModule(PositionModule):
    """Looks up the vector of each place, and the bias of each pair of places."""

    pairs = True

    def __init__(self, scheme: LearnedAndBucketBias, sizes: Sizes) -> None:
        super().__init__()
        self.scheme = scheme
        self.absolute = LearnedModule(Learned(scheme.length), sizes)
        self.table = nn.Embedding(scheme.buckets, sizes.n_heads)

    def embed(self, place: Int[Tensor, "b t"]) -> Tensor:
        """Look up the vectors of places [b t d]."""
        return self.absolute.embed(place)

    def bucket(self, away: Int[Tensor, "t s"]) -> Int[Tensor, "t s"]:
        """Number the bucket of each distance key - query, from that of the farthest one before.

        In a longer row, which holds several texts, what is farther away is not seen.
        """
        farthest = away.new_tensor(self.scheme.length - 1)
        return self._signed(away.clamp(-farthest, farthest)) + self._signed(farthest)

    def _signed(self, away: Int[Tensor, "*n"]) -> Int[Tensor, "*n"]:
        last, exact = self.scheme.buckets // 2 - 1, self.scheme.buckets // 4
        return widening(away, exact, last - exact, self.scheme.reach).clamp(-last, last)

    def geometry(self, x: Float[Tensor, "b t d"], keys: int, batch: Batch | None = None) -> Tensor:
        """Look up [1 h t s]; places are counted through a row, as their distances are the same."""
        return _biases(self.table, self.bucket(_away(x, keys)))

    def share(self, other: "LearnedAndBucketBiasModule") -> None:
        """Have the vectors of places in common; each stack has biases of its own."""
        self.absolute.share(other.absolute)


def widening(away: Int[Tensor, "*n"], exact: int, far: int, reach: int) -> Int[Tensor, "*n"]:
    """Number the bucket of each distance: itself up to `exact`, then ever wider ones.

    The one `far` beyond `exact` ends at `reach` - 1; larger distances have larger numbers still.
    """
    ratio = torch.log(away.abs().clamp(min=exact) / exact)
    # in the numbers' own precision, where the last ratio must be 1 and no more
    whole = torch.log(ratio.new_tensor((reach - 1) / exact))
    beyond = torch.ceil(ratio / whole * far).long() + exact
    return torch.where(away.abs() <= exact, away, beyond * away.sign())


def _check_factor(factor: float) -> None:
    if not 0 < factor < math.inf:
        raise ValueError(f"scaling.factor must be a number above 0, got {factor}")


@dataclass(frozen=True)
class Slower:
    """All pairs turn `factor` times slower, so that longer texts have the same angles.

    Chen et al. 2023, arXiv:2306.15595, section 3.2.
    """

    factor: float = 1.0

    def __post_init__(self) -> None:
        _check_factor(self.factor)

    def __call__(self, speed: Float[Tensor, "n"]) -> Float[Tensor, "n"]:
        """Return how far each pair turns a place."""
        return speed / self.factor


@dataclass(frozen=True, kw_only=True)
class SlowOnesSlower:
    """Pairs that turn slowly turn `factor` times slower; those that turn fast stay as they are.

    Llama 3.1, released code, `apply_scaling`. What counts is how often a pair turns all around
    within the `length` of texts that were read before: at most `low` times or at least `high`
    times, and something between for those between.
    """

    factor: float = 8.0
    low: float = 1.0
    high: float = 4.0
    length: int = 8192

    def __post_init__(self) -> None:
        _check_factor(self.factor)
        if self.high <= self.low:
            raise ValueError(f"high must be above low, {self.low}, got {self.high}")

    def __call__(self, speed: Float[Tensor, "n"]) -> Float[Tensor, "n"]:
        """Return how far each pair turns a place."""
        turns = speed * (self.length / (2 * math.pi))
        fast = ((turns - self.low) / (self.high - self.low)).clamp(0, 1)
        return speed * (fast + (1 - fast) / self.factor)


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
    share: float = 1.0
    """Of each head's width, its first numbers, that turn (Black et al. 2022, arXiv:2204.06745,
    section 2.1.1)."""
    scaling: Slower | SlowOnesSlower | None = None
    """For longer texts than those that the model read first."""

    def __post_init__(self) -> None:
        if not 0 < self.theta < math.inf:
            raise ValueError(f"position.theta must be a number above 0, got {self.theta}")
        if not 0 < self.share <= 1:
            raise ValueError(f"position.share must be above 0 and at most 1, got {self.share}")

    def build(self, sizes: Sizes) -> PositionModule:
        """Build what computes the angles; it has no weights."""
        return RotaryModule(self, sizes)


class RotaryModule(PositionModule):
    """Computes the cosines and sines of all places."""

    def __init__(self, scheme: Rotary, sizes: Sizes) -> None:
        super().__init__()
        self.scheme, self.width = scheme, int(sizes.d_head * scheme.share)
        if self.width % 2:
            raise ValueError(
                f"pairs of numbers turn, but {self.width} of a head's {sizes.d_head} are no pairs"
            )

    def geometry(
        self, x: Float[Tensor, "b t d"], keys: int, batch: Batch | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return cosines and sines [t e] in float32; places are counted through a row.

        Packed texts begin somewhere in a row: the distances within them are the same.
        """
        pairs = torch.arange(0, self.width, 2, device=x.device).float() / self.width
        speed, scaling = self.scheme.theta**-pairs, self.scheme.scaling
        speed = speed if scaling is None else scaling(speed)
        place = torch.arange(keys - x.shape[1], keys, device=x.device)
        angle = (place[:, None].float() * speed).repeat(1, 2)  # [t e]
        return angle.cos(), angle.sin()

    def layer(self, i: int) -> Place:
        """Return what turns queries and keys."""
        return Turn()


class Turn(Place):
    """Turns queries and keys by the angles of their places."""

    def query(self, q: Float[Tensor, "b h t e"], geometry: tuple[Tensor, Tensor]) -> Tensor:
        """Turn queries."""
        return turned(q, *geometry)

    def key(self, k: Float[Tensor, "b g t e"], geometry: tuple[Tensor, Tensor]) -> Tensor:
        """Turn keys."""
        return turned(k, *geometry)

    def bias(
        self,
        q: Float[Tensor, "b h t e"],
        k: Float[Tensor, "b g s e"],
        geometry: tuple[Tensor, Tensor],
        attention: Projections,
    ) -> None:
        """Return nothing: their angles say it all."""


def turned(
    x: Float[Tensor, "b h t e"], cos: Float[Tensor, "t w"], sin: Float[Tensor, "t w"]
) -> Float[Tensor, "b h t e"]:
    """Turn each pair of x's first w numbers, in float32."""
    width, all_of_it = cos.shape[-1], x
    x = x[..., :width]
    first, second = x.float().chunk(2, -1)
    y = (x * cos + torch.cat((-second, first), -1) * sin).to(x.dtype)
    rest = all_of_it[..., width:]
    return torch.cat((y, rest), -1) if rest.shape[-1] else y


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
        schemes = [*dict.fromkeys(scheme.parts)]  # angles of each are made once
        self.which = [schemes.index(part) for part in scheme.parts]
        self.parts = nn.ModuleList(part.build(sizes) for part in schemes)

    def geometry(
        self, x: Float[Tensor, "b t d"], keys: int, batch: Batch | None = None
    ) -> list[Any]:
        """Return the geometry of each scheme."""
        return [cast(PositionModule, part).geometry(x, keys, batch) for part in self.parts]

    def layer(self, i: int) -> Place:
        """Return the layer's part of layer i's scheme."""
        which = self.which[i % len(self.which)]
        return OneOfCycle(cast(PositionModule, self.parts[which]).layer(i), which)


class OneOfCycle(Place):
    """A layer's part that reads the geometry of one scheme of several."""

    def __init__(self, part: Place, which: int) -> None:
        super().__init__()
        self.part, self.which = part, which

    def query(self, q: Float[Tensor, "b h t e"], geometry: list[Any]) -> Tensor:
        """Do what the part does."""
        return self.part.query(q, geometry[self.which])

    def key(self, k: Float[Tensor, "b g t e"], geometry: list[Any]) -> Tensor:
        """Do what the part does."""
        return self.part.key(k, geometry[self.which])

    def bias(
        self,
        q: Float[Tensor, "b h t e"],
        k: Float[Tensor, "b g s e"],
        geometry: list[Any],
        attention: Projections,
    ) -> Tensor | None:
        """Do what the part does."""
        return self.part.bias(q, k, geometry[self.which], attention)


AskedOf = Literal["content_to_position", "position_to_content"]


@dataclass(frozen=True)
class Disentangled:
    """Content and place are vectors of their own, and ask for each other.

    He et al. 2021, arXiv:2006.03654, section 3.1: to the scores of two contents are added those of
    the query's content with the vector of its distance to the key (content to position), and of
    that distance with the key's content (position to content). Scores are divided by the square
    root of one more than the number of these terms, too.

    Deviates: position to content reads the row of the distance query - key, as content to position
    does; equation 4 has key - query. So do the released code and the weights learned with it.
    """

    reach: int = 512
    """k of equation 3: from this distance on all share a row."""
    length: int = 512
    """How long texts the model was made for; nothing of the distances ends there."""
    terms: tuple[AskedOf, ...] = ("content_to_position", "position_to_content")
    buckets: int | None = None
    """Rows on either side; from half of them on, distances share rows, ever more up to `reach`
    (second version, released code, `make_log_bucket_position`). None: `reach`, one for each."""
    shared: bool = False
    """Distances are mapped as contents are (section 5.3); otherwise by maps of their own."""
    norm: bool | Norm = False
    """The architecture's norm stands behind the table (second version, released code), or this
    one."""
    symmetric: bool = False
    """Distances are as many on either side, in 2 span - 1 rows (LTG-BERT, released code). Otherwise
    there is one more row, of the distances from -span on."""
    absolute: bool = False
    """A vector for each place is added to the token's, too: the way of BERT."""

    def __post_init__(self) -> None:
        known = ("content_to_position", "position_to_content")
        if not self.terms or len({*self.terms}) < len(self.terms):
            raise ValueError(f"terms must be one or both of {known}, got {self.terms}")
        if self.buckets is not None and not 4 <= self.buckets < 2 * self.reach - 2:
            raise ValueError(
                f"buckets must be at least 4 and fewer than {2 * self.reach - 2} (twice what is "
                f"below reach), got {self.buckets}"
            )

    @property
    def span(self) -> int:
        """Rows of the table on either side of distance 0."""
        return self.buckets or self.reach

    def rows(self, length: int) -> int:
        """Return how many of them texts of a length use, at most."""
        exact = self.buckets is None or length <= self.buckets // 2
        return min(self.span, length) if exact else self.span

    def flops(self, sizes: Sizes, length: int) -> float:
        """Count what the terms cost a layer for a token: the scores of all distances."""
        return 4.0 * self.rows(length) * sizes.n_heads * sizes.d_head * len(self.terms)

    def build(self, sizes: Sizes) -> PositionModule:
        """Build the table [2 * span (- 1) d]."""
        return DisentangledModule(self, sizes)


class Distances(NamedTuple):
    """What the layers of a disentangled scheme share."""

    table: Float[Tensor, "n d"]
    """The vectors of those distances that the text has."""
    row: Int[Tensor, "t s"]
    """The row of the distance query - key."""


class DisentangledModule(PositionModule):
    """Says which row of the table stands for the distance of each pair of places."""

    pairs = True

    def __init__(self, scheme: Disentangled, sizes: Sizes) -> None:
        super().__init__()
        self.scheme, self.sizes = scheme, sizes
        self.table = nn.Embedding(2 * scheme.span - scheme.symmetric, sizes.d_model)
        norm = sizes.norm if isinstance(scheme.norm, bool) else scheme.norm
        self.norm = norm.build(sizes.d_model) if scheme.norm else nn.Identity()
        learned = Learned(scheme.length)
        self.absolute = LearnedModule(learned, sizes) if scheme.absolute else None

    def embed(self, place: Int[Tensor, "b t"]) -> Tensor | None:
        """Look up the vectors of absolute places, if they are added."""
        return None if self.absolute is None else self.absolute.embed(place)

    def bucket(self, away: Int[Tensor, "n"]) -> Int[Tensor, "n"]:
        """Number the bucket of each distance: itself, up to half of the buckets."""
        buckets = self.scheme.buckets
        if buckets is None:
            return away
        return widening(away, buckets // 2, buckets // 2 - 1, self.scheme.reach)

    def geometry(
        self, x: Float[Tensor, "b t d"], keys: int, batch: Batch | None = None
    ) -> Distances:
        """Return the vectors of distances, and which one is that of each pair.

        Places are counted through a row: the distances within packed texts are the same.
        """
        span, used, table = self.scheme.span, self.scheme.rows(keys), self.table.weight
        zero, first = span - self.scheme.symmetric, span - used  # the rows of distances 0, 1 - used
        away = torch.arange(1 - keys, keys, device=x.device)
        row = (self.bucket(away) + zero).clamp(0, len(table) - 1) - first
        place = torch.arange(keys, device=x.device)
        pairs = place[keys - x.shape[1] :, None] - place[None, :] + keys - 1
        return Distances(self.norm(table[first : zero + used]), row[pairs])

    def layer(self, i: int) -> Place:
        """Return what scores content against places."""
        return DisentangledPlace(self.scheme, self.sizes)


class DisentangledPlace(Place):
    """The scores of contents with distances.

    Distances are far fewer than pairs of places: each content is scored with each of them once,
    and the scores are looked up.
    """

    def __init__(self, scheme: Disentangled, sizes: Sizes) -> None:
        super().__init__()
        self.terms, width = scheme.terms, sizes.n_heads * sizes.d_head
        own = () if scheme.shared else scheme.terms
        self.k = self.q = None
        if "content_to_position" in own:
            self.k = nn.Linear(sizes.d_model, width, bias=False)
        if "position_to_content" in own:
            self.q = nn.Linear(sizes.d_model, width)
        self.dropout = Dropout(sizes.dropout)

    @property
    def share(self) -> float:
        """What each term, and the score of two contents, is multiplied with."""
        return (1 + len(self.terms)) ** -0.5

    def query(self, q: Float[Tensor, "b h t e"], geometry: Distances) -> Tensor:
        """Return q by its share of the scale."""
        return q * self.share

    def bias(
        self,
        q: Float[Tensor, "b h t e"],
        k: Float[Tensor, "b h s e"],
        geometry: Distances,
        attention: Projections,
    ) -> Tensor:
        """Return the scores of both terms [b h t s]."""
        table = self.dropout(geometry.table)[None]
        scores: list[Tensor] = []
        if "content_to_position" in self.terms:
            key = attention.heads((attention.k if self.k is None else self.k)(table))  # [1 h n e]
            scores.append(_looked_up(q @ key.mT, geometry.row))
        if "position_to_content" in self.terms:
            query = attention.heads((attention.q if self.q is None else self.q)(table)) * self.share
            scores.append(_looked_up(k @ query.mT, geometry.row.mT).mT)
        return sum(scores[1:], scores[0]) * attention.scale


def _looked_up(
    scores: Float[Tensor, "b h t n"], row: Int[Tensor, "t s"]
) -> Float[Tensor, "b h t s"]:
    """Pick from the scores with all distances that of each pair."""
    return scores.gather(-1, row.expand(*scores.shape[:2], *row.shape))


@dataclass(frozen=True)
class Relative:
    """Content and distance each ask by a vector of their own: Transformer-XL.

    Dai et al. 2019, arXiv:1901.02860, section 3.3: the score of a query q with a key k at a
    distance is (q + u) k + (q + v) W r, where r are sinusoids of the distance, u and v vectors of
    each head.
    """

    furthest: int | None = None
    """From this distance on all are the same (released code, `clamp_len`). None: each its own."""
    segments: bool = False
    """To each score is added that of the query with one of two vectors: whether the key is of the
    same segment (Yang et al. 2019, arXiv:1906.08237, section 2.5)."""
    length: int = 512
    """How long texts the model was made for; nothing of the distances ends there."""

    def flops(self, sizes: Sizes, length: int) -> float:
        """Count what distances cost a layer for a token: the scores of all of them."""
        return 2.0 * length * sizes.n_heads * sizes.d_head

    def build(self, sizes: Sizes) -> PositionModule:
        """Build what computes the sinusoids; the weights live in the layers."""
        return RelativeModule(self, sizes)


class Away(NamedTuple):
    """Sinusoids of all distances, furthest first, and which pairs are of two segments."""

    sinusoids: Float[Tensor, "way n d"]
    """Of rows that are read forward, and of those that are read backward, where there are such."""
    backward: Bool[Tensor, "b"] | None
    other: Bool[Tensor, "b t s"] | None


class RelativeModule(PositionModule):
    """Computes the sinusoids of distances."""

    recalls = True
    pairs = True

    def __init__(self, scheme: Relative, sizes: Sizes) -> None:
        super().__init__()
        self.scheme, self.sizes = scheme, sizes
        self.dropout = Dropout(sizes.dropout)

    def geometry(self, x: Float[Tensor, "b t d"], keys: int, batch: Batch | None = None) -> Away:
        """Return sinusoids [way n d] of the distances from the first key to the last query.

        Sines first, then cosines, as in the released code; n = keys, or keys + t - 1 where keys may
        stand behind their query. Dropout falls on them, too (released code).
        """
        t, width = x.shape[1], self.sizes.d_model
        causal = batch is not None and batch.visibility.causal
        away = torch.arange(keys - 1, -1 if causal else -t, -1, device=x.device).float()
        if self.scheme.furthest is not None:
            away = away.clamp(-self.scheme.furthest, self.scheme.furthest)
        speed = 10_000.0 ** -(torch.arange(0, width, 2, device=x.device).float() / width)
        angle = away[:, None] * speed
        ways, backward = [angle.sin()], None if batch is None else batch.backward
        if backward is not None:
            ways.append(-ways[0])
        table = torch.stack([torch.cat((sine, angle.cos()), -1) for sine in ways]).to(x.dtype)
        other = None
        if self.scheme.segments and batch is not None and batch.segments is not None:
            behind = nn.functional.pad(batch.segments, (keys - t, 0))  # segment 0, in the memory
            other = behind[:, keys - t :, None] != behind[:, None, :]
        return Away(self.dropout(table), backward, other)

    def layer(self, i: int) -> Place:
        """Return what scores queries with distances."""
        return RelativePlace(self.scheme, self.sizes)


class RelativePlace(Place):
    """The vectors by which content and distance ask, and the map of distances."""

    def __init__(self, scheme: Relative, sizes: Sizes) -> None:
        super().__init__()
        h, e = sizes.n_heads, sizes.d_head
        self.r = nn.Linear(sizes.d_model, h * e, bias=False)
        self.u, self.v = (nn.Parameter(torch.empty(h, e)) for _ in range(2))
        self.w = nn.Parameter(torch.empty(h, e)) if scheme.segments else None
        self.segments = nn.Parameter(torch.empty(2, h, e)) if scheme.segments else None
        """Of keys of the same segment, and of the other."""

    def draw(self) -> None:
        """Fill the vectors from N(0, 0.02) (released code, `init_std`)."""
        for own in (self.u, self.v, self.w, self.segments):
            if own is not None:
                nn.init.normal_(own, std=0.02)

    def query(self, q: Float[Tensor, "b h t e"], geometry: Away) -> Tensor:
        """Return queries as contents ask."""
        return q + self.u[:, None]

    def bias(
        self,
        q: Float[Tensor, "b h t e"],
        k: Float[Tensor, "b g s e"],
        geometry: Away,
        attention: Projections,
    ) -> Tensor:
        """Return the scores with distances, and with segments [b h t s]."""
        keys, r = k.shape[2], attention.heads(self.r(geometry.sinusoids))  # [way h n e]
        if geometry.backward is not None:
            r = r[geometry.backward.long()]
        bias = by_distance((q + (self.v - self.u)[:, None]) @ r.mT, keys)
        if geometry.other is not None and self.segments is not None and self.w is not None:
            scores = (q + (self.w - self.u)[:, None]) @ self.segments.movedim(0, -1)  # [b h t 2]
            same, other = scores.split(1, -1)
            bias = bias + torch.where(geometry.other[:, None], other, same)
        return bias * attention.scale


def by_distance(scores: Float[Tensor, "b h t n"], keys: int) -> Float[Tensor, "b h t s"]:
    """Pick each pair's score from those with all distances, furthest first, without a lookup.

    Query i, the last but t - 1 - i of the keys, has its score with key j in column t - 1 - i + j.
    Laid out in rows that are one shorter, those columns stand one below the other (Dai et al. 2019,
    appendix B). Pairs whose distance is not there get some other score; nobody may see them.
    """
    t, n = scores.shape[2:]  # [b h t n]
    if n == keys:  # the last query's last column would be beyond the end of a row
        scores, n = nn.functional.pad(scores, (1, 0)), n + 1
        return scores.flatten(2)[..., t : t + t * keys].unflatten(2, (t, keys))
    return scores.flatten(2)[..., t - 1 : t - 1 + t * (n - 1)].unflatten(2, (t, n - 1))[..., :keys]


WITH_LENGTH = frozenset(
    kind.__name__
    for kind in (Learned, Sinusoidal, LearnedAndBucketBias, Rotary, Disentangled, Relative)
)
"""Schemes that say how long texts they are for."""
IN_SCORES = (BucketBias, LearnedAndBucketBias, Rotary, Cycle, Disentangled, Relative)
"""Schemes that change scores: a query knows where it stands without the vector of its token."""

Position = (
    InOrder
    | Learned
    | Sinusoidal
    | BucketBias
    | LearnedAndBucketBias
    | Rotary
    | Cycle
    | Disentangled
    | Relative
)
