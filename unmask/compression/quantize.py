"""Quantization of weights after training: codes of 8, 4, 3, 2, log2(3) or 1 bits, with scales."""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from unmask.checkpoints.packed import EncodedTensor, IntegerEncoding, Levels, pack_codes
from unmask.config import check_number_fields

LEVELS_OF_BITS: dict[float, Levels] = {1.0: 2, 1.58: 3, 2.0: 4, 3.0: 8, 4.0: 16, 8.0: 256}
"""Number of values of a code by the name of its size; 1.58 is log2(3), rounded."""
_CLIPPING_RATIOS = tuple(ratio / 50 for ratio in range(50, 9, -1))
_TERNARY_THRESHOLD = 0.7
"""Of the mean magnitude: below it a weight is zero (Li et al. 2016, arXiv:1605.04711, section 2.2:
0.75 for uniform and 0.66 for normal weights)."""
_SMALLEST_SCALE = torch.finfo(torch.float16).smallest_normal


@dataclass(frozen=True, kw_only=True)
class Quantize:
    """Weights of few bits, after training and without data (round to nearest).

    With L levels and a range of magnitude r, a symmetric code is round(w / s) for
    s = r / (L / 2 - 1), within the range; an asymmetric one is round((w - minimum) / s) for
    s = (maximum - minimum) / (L - 1). At 1 bit a weight is its sign times the mean magnitude
    (Rastegari et al. 2016, arXiv:1603.05279, equation 6); with three levels it is that, or zero
    (Li et al. 2016, arXiv:1605.04711, equation 6).
    """

    bits: float = 8.0
    """Bits of a weight: 8, 4, 3, 2, 1.58 (three levels) or 1."""
    granularity: Literal["tensor", "channel", "group"] | None = None
    """Weights with a scale in common: of a tensor, of a row, or `group` successive ones of a row.
    None: channel for 8 bits, else group."""
    group: int = 64
    """Size of a group."""
    symmetric: bool | None = None
    """Whether codes are centered at zero; otherwise each scale has an offset. None: not at 2, 3 and
    4 bits."""
    clipping: Literal["none", "percentile", "mse"] = "none"
    """Range of the weights: from the smallest to the largest; to a percentile of their magnitudes;
    or the one of 41 that gives the least squared error."""
    percentile: float = 99.9
    """Percentile of magnitudes that is the range of `clipping="percentile"`, from 50 to 100."""
    embedding_bits: float = 8.0
    """Bits of tables of tokens and positions, at least `bits`."""

    def __post_init__(self) -> None:
        check_number_fields(self)
        known = ", ".join(f"{bits:g}" for bits in sorted(LEVELS_OF_BITS))
        for name in ("bits", "embedding_bits"):
            if getattr(self, name) not in LEVELS_OF_BITS:
                raise ValueError(f"{name} must be one of {known}, got {getattr(self, name):g}")
        if self.group < 1:
            raise ValueError(f"group must be at least 1, got {self.group}")
        if not 50 <= self.percentile <= 100:
            raise ValueError(f"percentile must be from 50 to 100, got {self.percentile:g}")
        if self.bits < 2 and self.symmetric is False:
            raise ValueError("symmetric must be true for fewer than 2 bits, which are centered")

    def encode(self, weights: Float[Tensor, "..."], *, is_embedding: bool = False) -> EncodedTensor:
        """Quantize one tensor.

        Raises:
            ValueError: it holds numbers that are not finite.
        """
        if not bool(weights.isfinite().all()):
            raise ValueError("weights that are not finite cannot be quantized")
        bits = max(self.bits, self.embedding_bits) if is_embedding else self.bits
        encoding = IntegerEncoding(
            shape=tuple(weights.shape),
            levels=LEVELS_OF_BITS[bits],
            group=self._group(bits),
            has_offset=bits >= 2 and not (bits == 8 if self.symmetric is None else self.symmetric),
        )
        grouped, counted = _in_groups(weights.detach().to(torch.float32), encoding)
        if encoding.levels <= 3 and not encoding.has_offset:
            scale, offset = _mean_magnitude(grouped, counted, encoding.levels), None
        else:
            scale, offset = self._range(grouped, counted, encoding)
        scale = _stored(scale if encoding.levels <= 3 else torch.where(scale == 0, 1.0, scale))
        offset = None if offset is None else _stored(offset)
        codes = _round(grouped, scale.float(), offset, encoding)[counted]
        parts = {"codes": pack_codes(codes.to(torch.uint8), encoding.levels), "scale": scale}
        return EncodedTensor(encoding, parts | ({} if offset is None else {"offset": offset}))

    def _group(self, bits: float) -> int | None:
        granularity = self.granularity or ("channel" if bits == 8 else "group")
        return {"tensor": 0, "channel": None, "group": self.group}[granularity]

    def _range(
        self, grouped: Float[Tensor, "r g c"], counted: Tensor, encoding: IntegerEncoding
    ) -> tuple[Float[Tensor, "r g"], Float[Tensor, "r g"] | None]:
        """Return scales and offsets for the range that the clipping gives."""
        low = grouped.masked_fill(~counted, torch.inf).amin(2)
        high = grouped.masked_fill(~counted, -torch.inf).amax(2)
        if self.clipping == "percentile":
            magnitudes = grouped.abs().masked_fill(~counted, torch.nan)
            most = torch.nanquantile(magnitudes, self.percentile / 100, dim=2)
            low, high = low.clamp(min=-most), high.clamp(max=most)
        if self.clipping != "mse":
            return _scales(low, high, encoding)
        best, error = _scales(low, high, encoding), torch.full_like(low, torch.inf)
        for ratio in _CLIPPING_RATIOS:
            scale, offset = _scales(low * ratio, high * ratio, encoding)
            decoded = _decode(_round(grouped, scale, offset, encoding), scale, offset, encoding)
            squared = ((decoded - grouped) * counted).square().sum(2)
            better = squared < error
            error = torch.where(better, squared, error)
            kept_offset = best[1]
            if offset is not None and kept_offset is not None:
                kept_offset = torch.where(better, offset, kept_offset)
            best = torch.where(better, scale, best[0]), kept_offset
        return best


def _in_groups(
    weights: Float[Tensor, "..."], encoding: IntegerEncoding
) -> tuple[Float[Tensor, "r g c"], Tensor]:
    """Return weights by row and group, and which are weights: the last group may be shorter."""
    rows, groups = encoding.scale_shape
    flat = weights.reshape(rows, -1)
    size = encoding.group or flat.shape[1]
    padding = groups * size - flat.shape[1]
    counted = torch.nn.functional.pad(torch.ones_like(flat, dtype=torch.bool), (0, padding))
    padded = torch.nn.functional.pad(flat, (0, padding))
    return padded.reshape(rows, groups, size), counted.reshape(rows, groups, size)


def _scales(
    low: Float[Tensor, "r g"], high: Float[Tensor, "r g"], encoding: IntegerEncoding
) -> tuple[Float[Tensor, "r g"], Float[Tensor, "r g"] | None]:
    if encoding.has_offset:
        return (high - low) / (encoding.levels - 1), low
    return torch.maximum(high, -low) / (encoding.levels / 2 - 1), None


def _mean_magnitude(
    grouped: Float[Tensor, "r g c"], counted: Tensor, levels: int
) -> Float[Tensor, "r g"]:
    """Return the mean magnitude of weights; with three levels, of those beyond the threshold."""
    magnitudes = grouped.abs() * counted
    mean = magnitudes.sum(2) / counted.sum(2)
    if levels == 2:
        return mean
    above = (magnitudes > _TERNARY_THRESHOLD * mean[..., None]) & counted
    return (magnitudes * above).sum(2) / above.sum(2).clamp_min(1)


def _round(
    grouped: Float[Tensor, "r g c"],
    scale: Float[Tensor, "r g"],
    offset: Float[Tensor, "r g"] | None,
    encoding: IntegerEncoding,
) -> Float[Tensor, "r g c"]:
    """Return the nearest codes."""
    step = scale[..., None].clamp_min(torch.finfo(torch.float32).tiny)
    if encoding.levels == 2 and offset is None:
        return (grouped >= 0).to(grouped.dtype)
    if offset is not None:
        codes = torch.round((grouped - offset.float()[..., None]) / step)
        return codes.clamp(0, encoding.levels - 1)
    codes = torch.round(grouped / step) + encoding.center
    return codes.clamp(0 if encoding.levels == 3 else 1, encoding.levels - 1)


def _decode(
    codes: Float[Tensor, "r g c"],
    scale: Float[Tensor, "r g"],
    offset: Float[Tensor, "r g"] | None,
    encoding: IntegerEncoding,
) -> Float[Tensor, "r g c"]:
    values = (codes - encoding.center) * scale[..., None]
    return values if offset is None else values + offset[..., None]


def _stored(scale: Float[Tensor, "r g"]) -> Tensor:
    """Return scales or offsets as written: in float16 where there are many and it holds them."""
    largest = torch.finfo(torch.float16).max
    magnitude = scale.abs()
    fits = bool(((magnitude >= _SMALLEST_SCALE) | (scale == 0)).all() & (magnitude < largest).all())
    return scale.to(torch.float16) if scale.shape[1] > 1 and fits else scale
