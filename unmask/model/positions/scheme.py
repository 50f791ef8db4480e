"""Position schemes.

A scheme has three hooks: `embed`, `position_state`, and a part that lives in each layer. `embed`
adds to token embeddings (learned). `position_state` is computed once per forward and shared by all
layers (T5's biases, rotary angles). The layer's own part changes queries and keys by their
positions, before a cache stores the keys, and gives the bias of their scores.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, cast, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from unmask.batch import Batch
from unmask.model.layers.feed_forward import AttentionDimensions, Dropout, Norm
from unmask.objectives.features import Recurrence


@runtime_checkable
class AttentionProjections(Protocol):
    """What a scheme's part in a layer may use of its attention sublayer."""

    @property
    def q(self) -> Callable[[Tensor], Tensor]:
        """The projection of queries, [... d] to [... h*e]."""
        ...

    @property
    def k(self) -> Callable[[Tensor], Tensor]:
        """The projection of keys."""
        ...

    @property
    def scale(self) -> float:
        """The factor of scores; a bias is added after it."""
        ...

    def split_heads(self, x: Tensor) -> Tensor:
        """Split vectors [b t h*e] into heads [b h t e]."""
        ...


class PositionLayer(nn.Module):
    """The part of a scheme that lives in a layer. Also T5's: its position state *is* the bias."""

    def query(self, q: Float[Tensor, "b h t e"], position_state: Any) -> Tensor:
        """Return queries, changed by their positions."""
        return q

    def key(self, k: Float[Tensor, "b g t e"], position_state: Any) -> Tensor:
        """Return keys of the same columns, changed by their positions."""
        return k

    def bias(
        self,
        q: Float[Tensor, "b h t e"],
        k: Float[Tensor, "b g s e"],
        position_state: Any,
        attention: AttentionProjections,
    ) -> Tensor | None:
        """Return what is added to the scores [b|1 h t s]."""
        return position_state


class PositionModule(nn.Module):
    """The part of a scheme that all layers share. A scheme overrides the hooks it needs."""

    supports_memory: ClassVar[bool] = False
    """Whether keys of a batch's memory may stand before those of its text."""
    needs_all_keys: ClassVar[bool] = False
    """Whether it depends on all query-key pairs: layers keep all keys, whatever their window."""

    def embed(self, position_ids: Int[Tensor, "b t"]) -> Tensor | None:
        """Return what is added to the token embeddings [b t d], if anything."""
        return None

    def position_state(
        self, x: Float[Tensor, "b t d"], n_keys: int, batch: Batch | None = None
    ) -> Any:
        """Return what layers need for the columns x, the last of `n_keys`, if anything.

        `batch` is for schemes that depend on more than the number of columns.
        """
        return None

    def for_layer(self, i: int) -> PositionLayer:
        """Return the part that lives in layer i."""
        return PositionLayer()

    def share_embeddings(self, other: Any) -> None:
        """Share with another stack what is added to token embeddings, if anything."""


@dataclass(frozen=True)
class NoPositions:
    """No position information: the network is sequential (LSTMs), or infers positions.

    A causal Transformer does (Haviv et al. 2022, arXiv:2203.16634).
    """

    def build(self, dimensions: AttentionDimensions) -> PositionModule:
        """Build nothing."""
        return PositionModule()


@dataclass(frozen=True)
class LearnedPositions:
    """Position embeddings (Gehring et al. 2017; BERT, GPT-2)."""

    max_positions: int = 512
    """Length of the longest text."""
    offset: int = 0
    """Unused rows of the table before that of position 0: RoBERTa's released code counts positions
    from the padding's id + 1."""

    def build(self, dimensions: AttentionDimensions) -> PositionModule:
        """Build the table [offset + max_positions d_embed]."""
        return LearnedPositionsModule(self, dimensions)


class LearnedPositionsModule(PositionModule):
    """Looks up the embedding of each position."""

    def __init__(self, scheme: LearnedPositions, dimensions: AttentionDimensions) -> None:
        super().__init__()
        self.max_positions, self.offset = scheme.max_positions, scheme.offset
        self.table = nn.Embedding(scheme.offset + scheme.max_positions, dimensions.d_embed)

    def embed(self, position_ids: Int[Tensor, "b t"]) -> Tensor:
        """Look up [b t d]."""
        if (
            position_ids.shape[1] > self.max_positions
            and (last := int(position_ids.max())) >= self.max_positions
        ):
            raise ValueError(
                f"a text of {last + 1} tokens is longer than the model's {self.max_positions} "
                "positions"
            )
        return self.table(position_ids + self.offset)

    def share_embeddings(self, other: "LearnedPositionsModule") -> None:
        """Share the other's table."""
        self.table = other.table


@dataclass(frozen=True)
class Sinusoidal:
    """Sines and cosines of the position, added to token embeddings; nothing is learned.

    Vaswani et al. 2017, arXiv:1706.03762, section 3.5: of d dimensions, those of pair i are the
    sine and the cosine of position / 10,000^(2i / d).
    """

    max_positions: int = 1024
    """Length of texts of pretraining."""
    layout: Literal["halves", "pairs"] = "halves"
    """"halves": all sines before all cosines (released code, `get_timing_signal_1d`, with other
    frequencies; Marian); "pairs": each sine before its cosine (the paper). The two are the same
    network with its dimensions in another order."""

    def build(self, dimensions: AttentionDimensions) -> PositionModule:
        """Build what computes the sinusoids.

        Raises:
            ValueError: the size is odd.
        """
        return SinusoidalModule(self, dimensions)


class SinusoidalModule(PositionModule):
    """Computes the sines and cosines of positions."""

    def __init__(self, scheme: Sinusoidal, dimensions: AttentionDimensions) -> None:
        super().__init__()
        self.scheme, self.width = scheme, dimensions.d_embed
        if self.width % 2:
            raise ValueError(
                f"sines and cosines come in pairs: the size must be even, got {self.width}"
            )

    def embed(self, position_ids: Int[Tensor, "b t"]) -> Tensor:
        """Compute [b t d] in float32; angles in float64, where the device has that."""
        if (
            position_ids.shape[1] > self.scheme.max_positions
            and (last := int(position_ids.max())) >= self.scheme.max_positions
        ):
            raise ValueError(
                f"a text of {last + 1} tokens is longer than the model's "
                f"{self.scheme.max_positions} positions"
            )
        exact = torch.float32 if position_ids.device.type == "mps" else torch.float64
        pairs = torch.arange(0, self.width, 2, device=position_ids.device).to(exact) / self.width
        angle = position_ids[..., None].to(exact) * 10_000.0**-pairs
        both = angle.sin(), angle.cos()
        table = torch.cat(both, -1) if self.scheme.layout == "halves" else torch.stack(both, -1)
        return table.flatten(2).float()


@dataclass(frozen=True)
class RelativePositionBias:
    """A bias of the scores for each head and bucket of distances.

    Raffel et al. 2020, section 2.1.
    """

    n_buckets: int = 32
    max_distance: int = 128
    """Distances from here on share the last bucket."""
    causal: bool = False

    def __post_init__(self) -> None:
        # Half of the buckets of a direction are exact: one at least, and the last below the end.
        directions = 1 if self.causal else 2
        exact = self.n_buckets // (2 * directions)
        if not 0 < exact < self.max_distance:
            raise ValueError(
                f"n_buckets must be at least {2 * directions}, and max_distance above "
                f"n_buckets // {2 * directions}, got {self.n_buckets} and {self.max_distance}"
            )

    def build(self, dimensions: AttentionDimensions) -> PositionModule:
        """Build the table [buckets h]."""
        return RelativePositionBiasModule(self, dimensions)


class RelativePositionBiasModule(PositionModule):
    """Looks up the bias of each pair of positions.

    Half of the buckets are exact, the other half logarithmic.
    """

    supports_memory = True
    needs_all_keys = True

    def __init__(self, scheme: RelativePositionBias, dimensions: AttentionDimensions) -> None:
        super().__init__()
        self.scheme = scheme
        self.table = nn.Embedding(scheme.n_buckets, dimensions.n_heads)

    def bucket(self, distance: Int[Tensor, "t s"]) -> Int[Tensor, "t s"]:
        """Return the bucket of each distance key - query.

        `_relative_position_bucket` in Mesh TensorFlow's T5.
        """
        n, first = self.scheme.n_buckets, torch.zeros_like(distance)
        if self.scheme.causal:
            distance = (-distance).clamp(min=0)
        else:
            n //= 2
            first = (distance > 0).long() * n
            distance = distance.abs()
        exact = n // 2
        ratio = torch.log(distance.float().clamp(min=1) / exact) / math.log(
            self.scheme.max_distance / exact
        )
        far = exact + (ratio * (n - exact)).long()
        return first + torch.where(distance < exact, distance, far.clamp(max=n - 1))

    def position_state(
        self, x: Float[Tensor, "b t d"], n_keys: int, batch: Batch | None = None
    ) -> Tensor:
        """Look up [1 h t s]."""
        return _bias_per_head(self.table, self.bucket(_key_distances(x, n_keys)))


def _key_distances(x: Float[Tensor, "b t d"], n_keys: int) -> Int[Tensor, "t s"]:
    """Return the distances of `n_keys` columns from the columns x, the last of them."""
    place = torch.arange(n_keys, device=x.device)
    return place[None, :] - place[n_keys - x.shape[1] :, None]


def _bias_per_head(table: nn.Embedding, bucket: Int[Tensor, "t s"]) -> Float[Tensor, "1 h t s"]:
    return table(bucket).permute(2, 0, 1)[None].contiguous()


@dataclass(frozen=True)
class LearnedPositionsAndRelativeBias:
    """Position embeddings, and a bias of the scores for each head and bucket of distances.

    Small distances have a bucket each, up to a quarter of all, then buckets grow (released
    code of Meng et al. 2021, `relative_position_bucket`; not T5's, whose borders are others).
    """

    max_positions: int = 512
    """Length of the longest text."""
    n_buckets: int = 32
    """Half of them on each side; one of them is unused (released code)."""
    max_distance: int = 128
    """Distances from about here on share the last bucket."""

    def __post_init__(self) -> None:
        if self.n_buckets < 4 or self.n_buckets % 2:
            raise ValueError(f"n_buckets must be even and at least 4, got {self.n_buckets}")
        if self.max_distance <= self.n_buckets // 4 + 1:
            raise ValueError(
                f"max_distance must be above {self.n_buckets // 4 + 1} (a quarter of n_buckets, "
                f"and 1), got {self.max_distance}"
            )

    def build(self, dimensions: AttentionDimensions) -> PositionModule:
        """Build the tables of positions [max_positions d_embed] and distances [n_buckets h]."""
        return LearnedPositionsAndRelativeBiasModule(self, dimensions)


class LearnedPositionsAndRelativeBiasModule(PositionModule):
    """Looks up the embedding of each position, and the bias of each pair of positions."""

    needs_all_keys = True

    def __init__(
        self, scheme: LearnedPositionsAndRelativeBias, dimensions: AttentionDimensions
    ) -> None:
        super().__init__()
        self.scheme = scheme
        self.absolute = LearnedPositionsModule(LearnedPositions(scheme.max_positions), dimensions)
        self.table = nn.Embedding(scheme.n_buckets, dimensions.n_heads)

    def embed(self, position_ids: Int[Tensor, "b t"]) -> Tensor:
        """Look up the position embeddings [b t d]."""
        return self.absolute.embed(position_ids)

    def bucket(self, distance: Int[Tensor, "t s"]) -> Int[Tensor, "t s"]:
        """Return the bucket of each distance key - query, from 0 for the farthest one before.

        In a longer row, which holds several texts, farther distances are not visible.
        """
        farthest = distance.new_tensor(self.scheme.max_positions - 1)
        return self._signed_bucket(distance.clamp(-farthest, farthest)) + self._signed_bucket(
            farthest
        )

    def _signed_bucket(self, distance: Int[Tensor, "*n"]) -> Int[Tensor, "*n"]:
        last, exact = self.scheme.n_buckets // 2 - 1, self.scheme.n_buckets // 4
        return logarithmic_buckets(distance, exact, last - exact, self.scheme.max_distance).clamp(
            -last, last
        )

    def position_state(
        self, x: Float[Tensor, "b t d"], n_keys: int, batch: Batch | None = None
    ) -> Tensor:
        """Look up [1 h t s]; columns of the row serve as positions: distances are the same."""
        return _bias_per_head(self.table, self.bucket(_key_distances(x, n_keys)))

    def share_embeddings(self, other: "LearnedPositionsAndRelativeBiasModule") -> None:
        """Share the position embeddings; each stack has biases of its own."""
        self.absolute.share_embeddings(other.absolute)


@dataclass(frozen=True)
class LearnedPositionsAndT5Bias:
    """Position embeddings, and T5's bias of the scores for each head and bucket of distances.

    MPNet's (Song et al. 2020, arXiv:2004.09297, section 3.1 and the released code).
    """

    max_positions: int = 512
    """Length of the longest text."""
    offset: int = 0
    """As in `LearnedPositions`."""
    n_buckets: int = 32
    max_distance: int = 128
    """As in `RelativePositionBias`."""

    def build(self, dimensions: AttentionDimensions) -> PositionModule:
        """Build the tables [offset + max_positions d_embed] and [n_buckets h]."""
        return LearnedPositionsAndT5BiasModule(self, dimensions)


class LearnedPositionsAndT5BiasModule(RelativePositionBiasModule):
    """Looks up the embedding of each position, and the bias of each pair of positions."""

    supports_memory = False

    def __init__(self, scheme: LearnedPositionsAndT5Bias, dimensions: AttentionDimensions) -> None:
        super().__init__(RelativePositionBias(scheme.n_buckets, scheme.max_distance), dimensions)
        learned = LearnedPositions(scheme.max_positions, scheme.offset)
        self.absolute = LearnedPositionsModule(learned, dimensions)

    def embed(self, position_ids: Int[Tensor, "b t"]) -> Tensor:
        """Look up the position embeddings [b t d]."""
        return self.absolute.embed(position_ids)

    def share_embeddings(self, other: "LearnedPositionsAndT5BiasModule") -> None:
        """Share the position embeddings; each stack has biases of its own."""
        self.absolute.share_embeddings(other.absolute)


def logarithmic_buckets(
    distance: Int[Tensor, "*n"], n_exact: int, n_logarithmic: int, max_distance: int
) -> Int[Tensor, "*n"]:
    """Return the bucket of each distance: itself up to `n_exact`, then ever wider ones.

    The one `n_logarithmic` beyond `n_exact` ends at `max_distance` - 1; larger distances have
    larger numbers still.
    """
    ratio = torch.log(distance.abs().clamp(min=n_exact) / n_exact)
    # in the tensor's own precision, where the last ratio must be 1 and no more
    whole = torch.log(ratio.new_tensor((max_distance - 1) / n_exact))
    beyond = torch.ceil(ratio / whole * n_logarithmic).long() + n_exact
    return torch.where(distance.abs() <= n_exact, distance, beyond * distance.sign())


def _check_factor(factor: float) -> None:
    if not 0 < factor < math.inf:
        raise ValueError(f"scaling.factor must be a number above 0, got {factor}")


@dataclass(frozen=True)
class LinearScaling:
    """All frequencies are divided by `factor`, so that longer texts have the same angles.

    Chen et al. 2023, arXiv:2306.15595, section 3.2.
    """

    factor: float = 1.0

    def __post_init__(self) -> None:
        _check_factor(self.factor)

    def __call__(self, inverse_frequencies: Float[Tensor, "n"]) -> Float[Tensor, "n"]:
        """Return the scaled frequencies."""
        return inverse_frequencies / self.factor


@dataclass(frozen=True, kw_only=True)
class Llama3Scaling:
    """Low frequencies are divided by `factor`; high ones stay as they are.

    Llama 3.1, released code, `apply_scaling`. A frequency is low if it makes at most
    `low_frequency_factor` full rotations within `original_max_positions`, high if it makes at least
    `high_frequency_factor`; those between are interpolated.
    """

    factor: float = 8.0
    low_frequency_factor: float = 1.0
    high_frequency_factor: float = 4.0
    original_max_positions: int = 8192

    def __post_init__(self) -> None:
        _check_factor(self.factor)
        if self.high_frequency_factor <= self.low_frequency_factor:
            raise ValueError(
                "high_frequency_factor must be above low_frequency_factor, "
                f"{self.low_frequency_factor}, got {self.high_frequency_factor}"
            )

    def __call__(self, inverse_frequencies: Float[Tensor, "n"]) -> Float[Tensor, "n"]:
        """Return the scaled frequencies."""
        turns = inverse_frequencies * (self.original_max_positions / (2 * math.pi))
        fast = (
            (turns - self.low_frequency_factor)
            / (self.high_frequency_factor - self.low_frequency_factor)
        ).clamp(0, 1)
        return inverse_frequencies * (fast + (1 - fast) / self.factor)


@dataclass(frozen=True)
class Rotary:
    """Rotary position embeddings: queries and keys are rotated by angles of their positions.

    Su et al. 2021, arXiv:2104.09864, section 3.2.2; the two halves of a head's dimensions are
    paired, as in GPT-NeoX and Llama. Scores depend on the distance of two positions alone.
    """

    theta: float = 10_000.0
    """The slowest pair rotates by about 1 / theta per position."""
    max_positions: int = 512
    """Length of texts of pretraining; the scheme itself has no limit."""
    partial_rotary_factor: float = 1.0
    """Fraction of each head's dimensions, the first ones, that is rotated (Black et al. 2022,
    arXiv:2204.06745, section 2.1.1)."""
    scaling: LinearScaling | Llama3Scaling | None = None
    """For longer texts than those of pretraining."""

    def __post_init__(self) -> None:
        if not 0 < self.theta < math.inf:
            raise ValueError(f"position.theta must be a number above 0, got {self.theta}")
        if not 0 < self.partial_rotary_factor <= 1:
            raise ValueError(
                "position.partial_rotary_factor must be above 0 and at most 1, got "
                f"{self.partial_rotary_factor}"
            )

    def build(self, dimensions: AttentionDimensions) -> PositionModule:
        """Build what computes the angles; it has no weights."""
        return RotaryModule(self, dimensions)


class RotaryModule(PositionModule):
    """Computes the cosines and sines of all positions."""

    def __init__(self, scheme: Rotary, dimensions: AttentionDimensions) -> None:
        super().__init__()
        self.scheme, self.width = scheme, int(dimensions.d_head * scheme.partial_rotary_factor)
        if self.width % 2:
            raise ValueError(
                f"rotary positions need pairs of dimensions: {self.width} of a head's "
                f"{dimensions.d_head} are no pairs"
            )

    def position_state(
        self, x: Float[Tensor, "b t d"], n_keys: int, batch: Batch | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return cosines and sines [t e] in float32; columns of the row serve as positions.

        Distances within packed texts are the same.
        """
        pairs = torch.arange(0, self.width, 2, device=x.device).float() / self.width
        frequencies, scaling = self.scheme.theta**-pairs, self.scheme.scaling
        frequencies = frequencies if scaling is None else scaling(frequencies)
        column = torch.arange(n_keys - x.shape[1], n_keys, device=x.device)
        angle = (column[:, None].float() * frequencies).repeat(1, 2)  # [t e]
        return angle.cos(), angle.sin()

    def for_layer(self, i: int) -> PositionLayer:
        """Return what rotates queries and keys."""
        return RotaryLayer()


class RotaryLayer(PositionLayer):
    """Rotates queries and keys by the angles of their positions."""

    def query(self, q: Float[Tensor, "b h t e"], position_state: tuple[Tensor, Tensor]) -> Tensor:
        """Rotate queries."""
        return apply_rotary(q, *position_state)

    def key(self, k: Float[Tensor, "b g t e"], position_state: tuple[Tensor, Tensor]) -> Tensor:
        """Rotate keys."""
        return apply_rotary(k, *position_state)

    def bias(
        self,
        q: Float[Tensor, "b h t e"],
        k: Float[Tensor, "b g s e"],
        position_state: tuple[Tensor, Tensor],
        attention: AttentionProjections,
    ) -> None:
        """Return nothing: the rotation is enough."""


def apply_rotary(
    x: Float[Tensor, "b h t e"], cos: Float[Tensor, "t w"], sin: Float[Tensor, "t w"]
) -> Float[Tensor, "b h t e"]:
    """Rotate each pair of x's first w dimensions, in float32."""
    width, whole = cos.shape[-1], x
    x = x[..., :width]
    first, second = x.float().chunk(2, -1)
    y = (x * cos + torch.cat((-second, first), -1) * sin).to(x.dtype)
    rest = whole[..., width:]
    return torch.cat((y, rest), -1) if rest.shape[-1] else y


@dataclass(frozen=True)
class LayerwiseRotary:
    """A scheme for each layer, repeated cyclically."""

    schemes: tuple[Rotary, ...]

    @property
    def max_positions(self) -> int:
        """Length of texts of pretraining."""
        return min(part.max_positions for part in self.schemes)

    def build(self, dimensions: AttentionDimensions) -> PositionModule:
        """Build the parts."""
        return LayerwiseRotaryModule(self, dimensions)


class LayerwiseRotaryModule(PositionModule):
    """Gives each layer the position state of its own scheme."""

    def __init__(self, scheme: LayerwiseRotary, dimensions: AttentionDimensions) -> None:
        super().__init__()
        schemes = [*dict.fromkeys(scheme.schemes)]  # angles of each are computed once
        self.scheme_of_layer = [schemes.index(part) for part in scheme.schemes]
        self.parts = nn.ModuleList(part.build(dimensions) for part in schemes)

    def position_state(
        self, x: Float[Tensor, "b t d"], n_keys: int, batch: Batch | None = None
    ) -> list[Any]:
        """Return the position state of each scheme."""
        return [cast(PositionModule, part).position_state(x, n_keys, batch) for part in self.parts]

    def for_layer(self, i: int) -> PositionLayer:
        """Return the layer's part of layer i's scheme."""
        which = self.scheme_of_layer[i % len(self.scheme_of_layer)]
        return LayerwiseRotaryLayer(cast(PositionModule, self.parts[which]).for_layer(i), which)


class LayerwiseRotaryLayer(PositionLayer):
    """A layer's part that uses the position state of one scheme of several."""

    def __init__(self, part: PositionLayer, scheme_index: int) -> None:
        super().__init__()
        self.part, self.which = part, scheme_index

    def query(self, q: Float[Tensor, "b h t e"], position_state: list[Any]) -> Tensor:
        """Delegate to the scheme's layer."""
        return self.part.query(q, position_state[self.which])

    def key(self, k: Float[Tensor, "b g t e"], position_state: list[Any]) -> Tensor:
        """Delegate to the scheme's layer."""
        return self.part.key(k, position_state[self.which])

    def bias(
        self,
        q: Float[Tensor, "b h t e"],
        k: Float[Tensor, "b g s e"],
        position_state: list[Any],
        attention: AttentionProjections,
    ) -> Tensor | None:
        """Delegate to the scheme's layer."""
        return self.part.bias(q, k, position_state[self.which], attention)


DisentangledTerm = Literal["content_to_position", "position_to_content"]


@dataclass(frozen=True)
class DisentangledAttention:
    """Content and position have separate vectors (DeBERTa).

    He et al. 2021, arXiv:2006.03654, section 3.1: to the scores of two contents are added those of
    the query's content with the embedding of its distance to the key (content to position), and of
    that distance with the key's content (position to content). Scores are divided by the square
    root of one more than the number of these terms, too.

    Deviates: position to content uses the row of the distance query - key, as content to position
    does; equation 4 has key - query. So do the released code and the weights learned with it.
    """

    max_distance: int = 512
    """k of equation 3: larger distances share a row."""
    max_positions: int = 512
    """Length of texts of pretraining; distances have no limit."""
    terms: tuple[DisentangledTerm, ...] = ("content_to_position", "position_to_content")
    n_buckets: int | None = None
    """Rows on either side; from half of them on, distances share rows, ever more up to
    `max_distance` (second version, released code, `make_log_bucket_position`). None:
    `max_distance`, one for each."""
    share_projections: bool = False
    """Distances share the projections of contents (section 5.3); otherwise they have their own."""
    distance_norm: bool | Norm = False
    """The distance embeddings are normalized by the architecture's norm (second version, released
    code), or by this one."""
    symmetric: bool = False
    """Both sides have as many distances, in 2 n - 1 rows, n = `n_buckets_per_side` (LTG-BERT,
    released code). Otherwise there is one more row, of the distances from -n on."""
    absolute_positions: bool = False
    """Position embeddings are added to token embeddings, too, as in BERT."""

    def __post_init__(self) -> None:
        known = ("content_to_position", "position_to_content")
        if not self.terms or len({*self.terms}) < len(self.terms):
            raise ValueError(f"terms must be one or both of {known}, got {self.terms}")
        if self.n_buckets is not None and not 4 <= self.n_buckets < 2 * self.max_distance - 2:
            raise ValueError(
                f"n_buckets must be at least 4 and below {2 * self.max_distance - 2} "
                f"(2 * max_distance - 2), got {self.n_buckets}"
            )

    @property
    def n_buckets_per_side(self) -> int:
        """Rows of the table on either side of distance 0."""
        return self.n_buckets or self.max_distance

    def n_rows_used(self, length: int) -> int:
        """Return how many of them texts of a length use at most."""
        exact = self.n_buckets is None or length <= self.n_buckets // 2
        return min(self.n_buckets_per_side, length) if exact else self.n_buckets_per_side

    def flops(self, dimensions: AttentionDimensions, length: int) -> float:
        """Count the FLOPs of the terms per layer and token: the scores of all distances."""
        return (
            4.0
            * self.n_rows_used(length)
            * dimensions.n_heads
            * dimensions.d_head
            * len(self.terms)
        )

    def build(self, dimensions: AttentionDimensions) -> PositionModule:
        """Build the table [2 * n_buckets_per_side (- 1) d]."""
        return DisentangledAttentionModule(self, dimensions)


class DisentangledPositionState(NamedTuple):
    """What the layers of a disentangled scheme share."""

    distance_embeddings: Float[Tensor, "n d"]
    """The embeddings of those distances that the text has."""
    distance_index: Int[Tensor, "t s"]
    """The row of the distance query - key."""


class DisentangledAttentionModule(PositionModule):
    """Looks up the distance embedding of each pair of positions."""

    needs_all_keys = True

    def __init__(self, scheme: DisentangledAttention, dimensions: AttentionDimensions) -> None:
        super().__init__()
        self.scheme, self.sizes = scheme, dimensions
        self.table = nn.Embedding(
            2 * scheme.n_buckets_per_side - scheme.symmetric, dimensions.d_model
        )
        norm = dimensions.norm if isinstance(scheme.distance_norm, bool) else scheme.distance_norm
        self.norm = norm.build(dimensions.d_model) if scheme.distance_norm else nn.Identity()
        learned = LearnedPositions(scheme.max_positions)
        self.absolute = (
            LearnedPositionsModule(learned, dimensions) if scheme.absolute_positions else None
        )

    def embed(self, position_ids: Int[Tensor, "b t"]) -> Tensor | None:
        """Look up the absolute position embeddings, if there are any."""
        return None if self.absolute is None else self.absolute.embed(position_ids)

    def bucket(self, distance: Int[Tensor, "n"]) -> Int[Tensor, "n"]:
        """Return the bucket of each distance: itself, up to half of the buckets."""
        buckets = self.scheme.n_buckets
        if buckets is None:
            return distance
        return logarithmic_buckets(
            distance, buckets // 2, buckets // 2 - 1, self.scheme.max_distance
        )

    def position_state(
        self, x: Float[Tensor, "b t d"], n_keys: int, batch: Batch | None = None
    ) -> DisentangledPositionState:
        """Return the distance embeddings, and the index of that of each pair.

        Columns of the row serve as positions: distances within packed texts are the same.
        """
        span, used, table = (
            self.scheme.n_buckets_per_side,
            self.scheme.n_rows_used(n_keys),
            self.table.weight,
        )
        zero, first = span - self.scheme.symmetric, span - used  # the rows of distances 0, 1 - used
        away = torch.arange(1 - n_keys, n_keys, device=x.device)
        row = (self.bucket(away) + zero).clamp(0, len(table) - 1) - first
        place = torch.arange(n_keys, device=x.device)
        pairs = place[n_keys - x.shape[1] :, None] - place[None, :] + n_keys - 1
        return DisentangledPositionState(self.norm(table[first : zero + used]), row[pairs])

    def for_layer(self, i: int) -> PositionLayer:
        """Return what scores contents with distances."""
        return DisentangledAttentionLayer(self.scheme, self.sizes)


class DisentangledAttentionLayer(PositionLayer):
    """The scores of contents with distances.

    There are far fewer distances than pairs of positions: each content is scored with each of them
    once, and the scores are looked up.
    """

    def __init__(self, scheme: DisentangledAttention, dimensions: AttentionDimensions) -> None:
        super().__init__()
        self.terms, width = scheme.terms, dimensions.n_heads * dimensions.d_head
        own = () if scheme.share_projections else scheme.terms
        self.k = self.q = None
        if "content_to_position" in own:
            self.k = nn.Linear(dimensions.d_model, width, bias=False)
        if "position_to_content" in own:
            self.q = nn.Linear(dimensions.d_model, width)
        self.dropout = Dropout(dimensions.dropout)

    @property
    def score_scale(self) -> float:
        """The factor of each term, and of the score of two contents."""
        return (1 + len(self.terms)) ** -0.5

    def query(
        self, q: Float[Tensor, "b h t e"], position_state: DisentangledPositionState
    ) -> Tensor:
        """Return q times `score_scale`."""
        return q * self.score_scale

    def bias(
        self,
        q: Float[Tensor, "b h t e"],
        k: Float[Tensor, "b h s e"],
        position_state: DisentangledPositionState,
        attention: AttentionProjections,
    ) -> Tensor:
        """Return the scores of both terms [b h t s]."""
        table = self.dropout(position_state.distance_embeddings)[None]
        scores: list[Tensor] = []
        if "content_to_position" in self.terms:
            key = attention.split_heads(
                (attention.k if self.k is None else self.k)(table)
            )  # [1 h n e]
            scores.append(_gather_distances(q @ key.mT, position_state.distance_index))
        if "position_to_content" in self.terms:
            query = (
                attention.split_heads((attention.q if self.q is None else self.q)(table))
                * self.score_scale
            )
            scores.append(_gather_distances(k @ query.mT, position_state.distance_index.mT).mT)
        return sum(scores[1:], scores[0]) * attention.scale


def _gather_distances(
    scores: Float[Tensor, "b h t n"], distance_index: Int[Tensor, "t s"]
) -> Float[Tensor, "b h t s"]:
    """Gather the score of each pair from the scores with all distances."""
    return scores.gather(-1, distance_index.expand(*scores.shape[:2], *distance_index.shape))


@dataclass(frozen=True)
class TransformerXLPositions:
    """Relative positions of Transformer-XL, with separate biases for content and distance.

    Dai et al. 2019, arXiv:1901.02860, section 3.3: the score of a query q with a key k at a
    distance is (q + u) k + (q + v) W r, where r are sinusoids of the distance, u and v vectors of
    each head.
    """

    clamp_length: int | None = None
    """Larger distances are clamped to this one (released code, `clamp_len`). None: no clamping."""
    relative_segments: bool = False
    """To each score is added that of the query with one of two vectors: whether the key is of the
    same segment (Yang et al. 2019, arXiv:1906.08237, section 2.5)."""
    max_positions: int = 512
    """Length of texts of pretraining; distances have no limit."""

    def flops(self, dimensions: AttentionDimensions, length: int) -> float:
        """Count the FLOPs of distances per layer and token: the scores of all of them."""
        return 2.0 * length * dimensions.n_heads * dimensions.d_head

    def build(self, dimensions: AttentionDimensions) -> PositionModule:
        """Build what computes the sinusoids; the weights live in the layers."""
        return TransformerXLPositionsModule(self, dimensions)


class TransformerXLPositionState(NamedTuple):
    """Sinusoids of all distances, furthest first, and which pairs are of two segments."""

    sinusoids: Float[Tensor, "way n d"]
    """Of forward rows, and of reversed rows, where there are such."""
    backward: Bool[Tensor, "b"] | None
    other_segment: Bool[Tensor, "b t s"] | None


class TransformerXLPositionsModule(PositionModule):
    """Computes the sinusoids of distances."""

    supports_memory = True
    needs_all_keys = True

    def __init__(self, scheme: TransformerXLPositions, dimensions: AttentionDimensions) -> None:
        super().__init__()
        self.scheme, self.sizes = scheme, dimensions
        self.dropout = Dropout(dimensions.dropout)

    def position_state(
        self, x: Float[Tensor, "b t d"], n_keys: int, batch: Batch | None = None
    ) -> TransformerXLPositionState:
        """Return sinusoids [way n d] of the distances from the first key to the last query.

        Sines first, then cosines, as in the released code; n = keys, or keys + t - 1 where keys may
        stand behind their query. Dropout falls on them, too (released code).
        """
        t, width = x.shape[1], self.sizes.d_model
        causal = batch is not None and batch.visibility.causal
        away = torch.arange(n_keys - 1, -1 if causal else -t, -1, device=x.device).float()
        if self.scheme.clamp_length is not None:
            away = away.clamp(-self.scheme.clamp_length, self.scheme.clamp_length)
        speed = 10_000.0 ** -(torch.arange(0, width, 2, device=x.device).float() / width)
        angle = away[:, None] * speed
        recurrence = None if batch is None else batch.feature(Recurrence)
        ways, backward = [angle.sin()], None if recurrence is None else recurrence.reversed_rows
        if backward is not None:
            ways.append(-ways[0])
        table = torch.stack([torch.cat((sine, angle.cos()), -1) for sine in ways]).to(x.dtype)
        other = None
        if self.scheme.relative_segments and batch is not None and batch.segments is not None:
            behind = nn.functional.pad(batch.segments, (n_keys - t, 0))  # segment 0, in the memory
            other = behind[:, n_keys - t :, None] != behind[:, None, :]
        return TransformerXLPositionState(self.dropout(table), backward, other)

    def for_layer(self, i: int) -> PositionLayer:
        """Return what scores queries with distances."""
        return TransformerXLPositionsLayer(self.scheme, self.sizes)


class TransformerXLPositionsLayer(PositionLayer):
    """The biases of content and distance, and the projection of distances."""

    def __init__(self, scheme: TransformerXLPositions, dimensions: AttentionDimensions) -> None:
        super().__init__()
        h, e = dimensions.n_heads, dimensions.d_head
        self.r = nn.Linear(dimensions.d_model, h * e, bias=False)
        self.u, self.v = (nn.Parameter(torch.empty(h, e)) for _ in range(2))
        self.w = nn.Parameter(torch.empty(h, e)) if scheme.relative_segments else None
        self.segments = nn.Parameter(torch.empty(2, h, e)) if scheme.relative_segments else None
        """Of keys of the same segment, and of the other."""

    def initialize_parameters(self) -> None:
        """Fill the vectors from N(0, 0.02) (released code, `init_std`)."""
        for own in (self.u, self.v, self.w, self.segments):
            if own is not None:
                nn.init.normal_(own, std=0.02)

    def query(
        self, q: Float[Tensor, "b h t e"], position_state: TransformerXLPositionState
    ) -> Tensor:
        """Return queries with the content bias."""
        return q + self.u[:, None]

    def bias(
        self,
        q: Float[Tensor, "b h t e"],
        k: Float[Tensor, "b g s e"],
        position_state: TransformerXLPositionState,
        attention: AttentionProjections,
    ) -> Tensor:
        """Return the scores with distances, and with segments [b h t s]."""
        keys, r = k.shape[2], attention.split_heads(self.r(position_state.sinusoids))  # [way h n e]
        if position_state.backward is not None:
            r = r[position_state.backward.long()]
        bias = relative_shift((q + (self.v - self.u)[:, None]) @ r.mT, keys)
        if (
            position_state.other_segment is not None
            and self.segments is not None
            and self.w is not None
        ):
            scores = (q + (self.w - self.u)[:, None]) @ self.segments.movedim(0, -1)  # [b h t 2]
            same, other = scores.split(1, -1)
            bias = bias + torch.where(position_state.other_segment[:, None], other, same)
        return bias * attention.scale


def relative_shift(scores: Float[Tensor, "b h t n"], n_keys: int) -> Float[Tensor, "b h t s"]:
    """Select each pair's score from those with all distances, furthest first, without a lookup.

    Query i, the last but t - 1 - i of the keys, has its score with key j in column t - 1 - i + j.
    Reshaped to rows that are one shorter, those columns are aligned (Dai et al. 2019, appendix B).
    Pairs whose distance is missing get some other score; they must be masked.
    """
    t, n = scores.shape[2:]  # [b h t n]
    if n == n_keys:  # the last query's last column would be beyond the end of a row
        scores, n = nn.functional.pad(scores, (1, 0)), n + 1
        return scores.flatten(2)[..., t : t + t * n_keys].unflatten(2, (t, n_keys))
    return scores.flatten(2)[..., t - 1 : t - 1 + t * (n - 1)].unflatten(2, (t, n - 1))[
        ..., :n_keys
    ]


SCHEMES_WITH_MAX_POSITIONS = frozenset(
    kind.__name__
    for kind in (
        LearnedPositions,
        Sinusoidal,
        LearnedPositionsAndRelativeBias,
        LearnedPositionsAndT5Bias,
        Rotary,
        DisentangledAttention,
        TransformerXLPositions,
    )
)
"""Schemes with a maximum length."""
SCHEMES_IN_SCORES = (
    RelativePositionBias,
    LearnedPositionsAndRelativeBias,
    LearnedPositionsAndT5Bias,
    Rotary,
    LayerwiseRotary,
    DisentangledAttention,
    TransformerXLPositions,
)
"""Schemes that change scores: a query knows its position without its token embedding."""

PositionScheme = (
    NoPositions
    | LearnedPositions
    | Sinusoidal
    | RelativePositionBias
    | LearnedPositionsAndRelativeBias
    | LearnedPositionsAndT5Bias
    | Rotary
    | LayerwiseRotary
    | DisentangledAttention
    | TransformerXLPositions
)
