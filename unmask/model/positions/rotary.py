"""Rotary position embeddings, their scalings, and different ones by layer."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from unmask.batch import Batch
from unmask.batching.prefix_tree import PrefixTree
from unmask.model.layers.feed_forward import AttentionDimensions
from unmask.model.layers.per_layer import select_cyclic
from unmask.model.positions.module import (
    AttentionProjections,
    PositionLayer,
    PositionModule,
    PositionSpec,
)


def _check_factor(factor: float) -> None:
    if not 0 < factor < math.inf:
        raise ValueError(f"scaling.factor must be a number above 0, got {factor}")


@dataclass(frozen=True)
class LinearScaling:
    """Position interpolation: all frequencies are divided by `factor`.

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
    `low_frequency_factor` full rotations within `original_max_positions`, and high if it makes at
    least `high_frequency_factor`; frequencies between are interpolated.
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
class Rotary(PositionSpec):
    """Rotary position embeddings: queries and keys are rotated by angles of their positions.

    Su et al. 2021, arXiv:2104.09864, section 3.2.2; the two halves of a head's dimensions are
    paired, as in GPT-NeoX and Llama. Scores depend on the distance of two positions alone.
    """

    theta: float = 10_000.0
    """The slowest pair rotates by about 1 / theta per position."""
    max_positions: int = 512
    """Maximum text length in pretraining; the scheme itself has no limit."""
    partial_rotary_factor: float = 1.0
    """Fraction of each head's dimensions, the first ones, that is rotated (Black et al. 2022,
    arXiv:2204.06745, section 2.1.1)."""
    scaling: LinearScaling | Llama3Scaling | None = None
    """Scaling of the frequencies, for longer texts than in pretraining."""

    in_scores: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not 0 < self.theta < math.inf:
            raise ValueError(f"position.theta must be a number above 0, got {self.theta}")
        if not 0 < self.partial_rotary_factor <= 1:
            raise ValueError(
                "position.partial_rotary_factor must be above 0 and at most 1, got "
                f"{self.partial_rotary_factor}"
            )

    def build(self, dimensions: AttentionDimensions) -> PositionModule:
        """Build the module that computes the angles; it has no weights."""
        return RotaryModule(self, dimensions)


class RotaryModule(PositionModule):
    """Computes the cosines and sines of all positions."""

    reads_position_ids: ClassVar[bool] = True

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
        """Return cosines and sines in float32, [t e]; columns of the row serve as positions.

        Distances within packed texts are the same. Not so where texts share a prefix: then position
        ids serve, [b 1 t e].
        """
        place = torch.arange(n_keys - x.shape[1], n_keys, device=x.device)
        if batch is not None and batch.position_ids is not None and batch.has(PrefixTree):
            place = batch.position_ids[:, None]
        return self._angles(place)

    def _angles(self, place: Int[Tensor, "*n t"]) -> tuple[Tensor, Tensor]:
        """Return cosines and sines of positions [*n t e]."""
        pairs = torch.arange(0, self.width, 2, device=place.device).float() / self.width
        frequencies, scaling = self.scheme.theta**-pairs, self.scheme.scaling
        frequencies = frequencies if scaling is None else scaling(frequencies)
        half = place[..., None].float() * frequencies
        angle = torch.cat((half, half), -1)
        return angle.cos(), angle.sin()

    def shift_keys(
        self, i: int, k: Float[Tensor, "b g s e"], n_columns: Int[Tensor, "b"]
    ) -> Float[Tensor, "b g s e"]:
        """Rotate keys further."""
        return apply_rotary(k, *self._angles(n_columns[:, None, None]))

    def for_layer(self, i: int, heads: Sequence[int] | None = None) -> PositionLayer:
        """Return the layer that rotates queries and keys."""
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
        """Return None: there is no bias."""


def apply_rotary(
    x: Float[Tensor, "b h t e"], cos: Float[Tensor, "*n #t w"], sin: Float[Tensor, "*n #t w"]
) -> Float[Tensor, "b h t e"]:
    """Rotate each pair of x's first w dimensions, in float32."""
    width, vectors = cos.shape[-1], x
    x = x[..., :width]
    first, second = x.float().chunk(2, -1)
    y = (x * cos + torch.cat((-second, first), -1) * sin).to(x.dtype)
    unrotated = vectors[..., width:]
    return torch.cat((y, unrotated), -1) if unrotated.shape[-1] else y


@dataclass(frozen=True)
class LayerwiseRotary(PositionSpec):
    """Rotary schemes by layer, repeated cyclically."""

    schemes: tuple[Rotary, ...]

    in_scores: ClassVar[bool] = True

    @property
    def max_positions(self) -> int:
        """Maximum text length in pretraining."""
        return min(part.max_positions for part in self.schemes)

    def with_layers(self, indices: Sequence[int]) -> "LayerwiseRotary":
        """Return the schemes of some of the layers."""
        return LayerwiseRotary(select_cyclic(self.schemes, indices))

    def build(self, dimensions: AttentionDimensions) -> PositionModule:
        """Build the modules of all schemes."""
        return LayerwiseRotaryModule(self, dimensions)


class LayerwiseRotaryModule(PositionModule):
    """Computes the position states of all schemes, of which each layer uses one."""

    reads_position_ids: ClassVar[bool] = True

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

    def shift_keys(
        self, i: int, k: Float[Tensor, "b g s e"], n_columns: Int[Tensor, "b"]
    ) -> Float[Tensor, "b g s e"]:
        """Delegate to layer i's scheme."""
        return self._part_of_layer(i)[1].shift_keys(i, k, n_columns)

    def for_layer(self, i: int, heads: Sequence[int] | None = None) -> PositionLayer:
        """Return the part of layer i's scheme."""
        scheme_index, part = self._part_of_layer(i)
        return LayerwiseRotaryLayer(part.for_layer(i), scheme_index)

    def _part_of_layer(self, i: int) -> tuple[int, PositionModule]:
        scheme_index = self.scheme_of_layer[i % len(self.scheme_of_layer)]
        return scheme_index, cast(PositionModule, self.parts[scheme_index])


class LayerwiseRotaryLayer(PositionLayer):
    """A part in a layer that uses the position state of one of several schemes."""

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
