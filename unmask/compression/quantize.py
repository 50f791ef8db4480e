"""Quantization of weights after training: codes of 8, 4, 3, 2, log2(3) or 1 bits, with scales."""

from dataclasses import dataclass, replace
from typing import cast

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from unmask.checkpoints.packed import EncodedTensor, IntegerEncoding, Levels, pack_codes
from unmask.compression.config import LEVELS_OF_BITS, CalibratedFormat, QuantizationFormat

_CLIPPING_RATIOS = tuple(ratio / 50 for ratio in range(50, 9, -1))
_TERNARY_THRESHOLD = 0.7
"""Of the mean magnitude: below it a weight is zero (Li et al. 2016, arXiv:1605.04711, section 2.2:
0.75 for uniform and 0.66 for normal weights)."""
_ON_GRID = 1e-3
"""Largest distance from a value of a code that is due to rounding in float32, in steps."""
_NORMAL_STEPS = {3: 1.2240, 4: 0.9957}
"""Distance of values in deviations, by their number, for the least squared error of normally
distributed weights (Max 1960, table II)."""
_SMALLEST_SCALE = torch.finfo(torch.float16).smallest_normal


@dataclass(frozen=True, kw_only=True)
class Quantize(CalibratedFormat):
    """Weights of few bits, after training and without data (round to nearest)."""

    def encode(
        self,
        weights: Float[Tensor, "..."],
        *,
        is_embedding: bool = False,
        transposed: bool = False,
    ) -> EncodedTensor:
        """Quantize one tensor; see `encode_tensor`."""
        return encode_tensor(self, weights, is_embedding=is_embedding, transposed=transposed)


@dataclass(frozen=True)
class _Codes:
    """Codes of a tensor by row and group, which of them are weights, and their scales."""

    encoding: IntegerEncoding
    codes: Float[Tensor, "r g c"]
    counted: Bool[Tensor, "r g c"]
    scale: Float[Tensor, "r g"]
    offset: Float[Tensor, "r g"] | None


def encode_tensor(
    form: QuantizationFormat,
    weights: Float[Tensor, "..."],
    *,
    is_embedding: bool = False,
    transposed: bool = False,
) -> EncodedTensor:
    """Quantize one tensor; of one that is `transposed`, columns and not rows have scales.

    Raises:
        ValueError: it holds numbers that are not finite.
    """
    found = _quantize(form, weights.mT if transposed else weights, is_embedding=is_embedding)
    if transposed:
        encoding = replace(found.encoding, shape=tuple(weights.shape), transposed=True)
        found = replace(found, encoding=encoding)
    codes = pack_codes(found.codes[found.counted].to(torch.uint8), found.encoding.levels)
    offset = {} if found.offset is None else {"offset": found.offset}
    return EncodedTensor(found.encoding, {"codes": codes, "scale": found.scale} | offset)


def round_weights(
    form: QuantizationFormat, weights: Float[Tensor, "*n"], *, is_embedding: bool = False
) -> Float[Tensor, "*n"]:
    """Return the weights that the codes of a tensor stand for.

    Raises:
        ValueError: it holds numbers that are not finite.
    """
    found = _quantize(form, weights, is_embedding=is_embedding)
    values = _decode(found.codes, found.scale.float(), found.offset, found.encoding)
    if found.encoding.levels == 2 and found.offset is None:
        values = values * 2
    return values[found.counted].reshape(weights.shape)


@dataclass(frozen=True)
class Grid:
    """The values that the codes of one group of each row stand for."""

    encoding: IntegerEncoding
    scale: Float[Tensor, "r 1"]
    offset: Float[Tensor, "r 1"] | None

    def nearest(self, column: Float[Tensor, "r"]) -> Float[Tensor, "r"]:
        """Return the nearest values to one weight of each row, in float32."""
        grouped = column.to(torch.float32)[:, None, None]
        codes = _round(grouped, self.scale, self.offset, self.encoding)
        values = _decode(codes, self.scale, self.offset, self.encoding)[:, 0, 0]
        return values * 2 if self.encoding.levels == 2 and self.offset is None else values


def fit_grid(form: QuantizationFormat, group: Float[Tensor, "r c"], shape: tuple[int, int]) -> Grid:
    """Return the values for a group of each row of a matrix of a shape, as it would be written."""
    encoding = _encoding(form, shape, form.bits)
    grouped = group.to(torch.float32)[:, None]
    counted = torch.ones_like(grouped, dtype=torch.bool)
    many = encoding.scale_shape[1] > 1
    scale, offset = _fit(form, grouped, counted, encoding, many=many)
    return Grid(encoding, scale.float(), None if offset is None else offset.float())


def group_size(form: QuantizationFormat, row_size: int) -> int:
    """Return the number of weights of a row that share a scale, for rows of this size."""
    return _group(form, form.bits) or row_size


def _quantize(
    form: QuantizationFormat, weights: Float[Tensor, "..."], *, is_embedding: bool
) -> _Codes:
    if not bool(weights.isfinite().all()):
        raise ValueError("weights that are not finite cannot be quantized")
    bits = max(form.bits, form.embedding_bits) if is_embedding else form.bits
    encoding = _encoding(form, tuple(weights.shape), bits)
    grouped, counted = _in_groups(weights.detach().to(torch.float32), encoding)
    many = encoding.scale_shape[1] > 1
    scale, offset = _fit(form, grouped, counted, encoding, many=many)
    codes = _round(grouped, scale.float(), offset, encoding)
    return _Codes(encoding, codes, counted, scale, offset)


def _encoding(form: QuantizationFormat, shape: tuple[int, ...], bits: float) -> IntegerEncoding:
    return IntegerEncoding(
        shape=shape,
        levels=cast("Levels", LEVELS_OF_BITS[bits]),
        group=_group(form, bits),
        has_offset=bits >= 2 and not (bits == 8 if form.symmetric is None else form.symmetric),
    )


def _fit(
    form: QuantizationFormat,
    grouped: Float[Tensor, "r g c"],
    counted: Tensor,
    encoding: IntegerEncoding,
    *,
    many: bool,
) -> tuple[Float[Tensor, "r g"], Float[Tensor, "r g"] | None]:
    """Return scales and offsets as they are written; many: a row has several."""
    if encoding.levels <= 3 and not encoding.has_offset:
        scale, offset = _mean_magnitude(grouped, counted, encoding.levels), None
    else:
        scale, offset = _range(form, grouped, counted, encoding)
    scale = scale if encoding.levels <= 3 else torch.where(scale == 0, 1.0, scale)
    return _stored(scale, many=many), None if offset is None else _stored(offset, many=many)


def _group(form: QuantizationFormat, bits: float) -> int | None:
    granularity = form.granularity or ("channel" if bits == 8 else "group")
    return {"tensor": 0, "channel": None, "group": form.group}[granularity]


def _range(
    form: QuantizationFormat,
    grouped: Float[Tensor, "r g c"],
    counted: Tensor,
    encoding: IntegerEncoding,
) -> tuple[Float[Tensor, "r g"], Float[Tensor, "r g"] | None]:
    """Return scales and offsets for the range that the clipping gives."""
    clipping = form.clipping or (form.two_bit_clipping if encoding.levels == 4 else "minmax")
    if clipping == "normal" and encoding.levels == 4:  # a table of tokens may have more
        return _normal_range(grouped, counted, encoding)
    low = grouped.masked_fill(~counted, torch.inf).amin(2)
    high = grouped.masked_fill(~counted, -torch.inf).amax(2)
    if clipping == "percentile":
        magnitudes = grouped.abs().masked_fill(~counted, torch.nan)
        most = torch.nanquantile(magnitudes, form.percentile / 100, dim=2)
        low, high = low.clamp(min=-most), high.clamp(max=most)
    if clipping == "exact":
        return _exact_range(low, high, grouped, counted, encoding)
    if clipping != "mse":
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


def _normal_range(
    grouped: Float[Tensor, "r g c"], counted: Tensor, encoding: IntegerEncoding
) -> tuple[Float[Tensor, "r g"], Float[Tensor, "r g"] | None]:
    """Return scales and offsets of 2 bits for normally distributed weights; centered, 3 values."""
    n, values = counted.sum(2), encoding.levels if encoding.has_offset else encoding.levels - 1
    mean = (grouped * counted).sum(2) / n if encoding.has_offset else torch.zeros_like(n).float()
    deviation = (((grouped - mean[..., None]) * counted).square().sum(2) / n).sqrt()
    scale = _NORMAL_STEPS[values] * deviation
    return scale, mean - (values - 1) / 2 * scale if encoding.has_offset else None


def _exact_range(
    low: Float[Tensor, "r g"],
    high: Float[Tensor, "r g"],
    grouped: Float[Tensor, "r g c"],
    counted: Tensor,
    encoding: IntegerEncoding,
) -> tuple[Float[Tensor, "r g"], Float[Tensor, "r g"] | None]:
    """Return scales and offsets whose codes stand for the weights, where there are some.

    The weights of a group need not use the outermost codes: n steps, at most as many as the codes
    have, are from the smallest to the largest.
    """
    scale, offset = _scales(low, high, encoding)
    found = scale.reshape(-1).clone()
    least = torch.zeros_like(low) if offset is None else low
    distance = ((grouped - least[..., None]) * counted).flatten(0, 1)
    extent = torch.maximum(high, -low) if offset is None else high - low
    extent = extent.reshape(-1)
    left = torch.arange(len(found), device=found.device)
    most = encoding.levels // 2 - 1 if offset is None else encoding.levels - 1
    for n in range(most, 0, -1):
        step = extent[left] / n
        steps = distance[left] / step.clamp_min(torch.finfo(step.dtype).tiny)[:, None]
        exact = ((steps - steps.round()).abs() < _ON_GRID).all(1)
        found[left[exact]] = step[exact]
        left = left[~exact]
        if not len(left):
            break
    return found.reshape(scale.shape), offset


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


def _stored(scale: Float[Tensor, "r g"], *, many: bool) -> Tensor:
    """Return scales or offsets as written: in float16 where there are many and it holds them."""
    largest = torch.finfo(torch.float16).max
    magnitude = scale.abs()
    fits = bool(((magnitude >= _SMALLEST_SCALE) | (scale == 0)).all() & (magnitude < largest).all())
    return scale.to(torch.float16) if many and fits else scale
