"""Quantization of weights after training: codes of 8, 4, 3, 2, log2(3) or 1 bits, with scales."""

from dataclasses import dataclass, replace
from typing import cast

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from unmask.checkpoints.packed import EncodedTensor, IntegerEncoding, Levels, pack_codes
from unmask.compression.config import LEVELS_OF_BITS, QuantizationFormat

_CLIPPING_RATIOS = tuple(ratio / 50 for ratio in range(50, 9, -1))
_TERNARY_THRESHOLD = 0.7
"""Of the mean magnitude: below it a weight is zero (Li et al. 2016, arXiv:1605.04711, section 2.2:
0.75 for uniform and 0.66 for normal weights)."""
_SMALLEST_SCALE = torch.finfo(torch.float16).smallest_normal


@dataclass(frozen=True, kw_only=True)
class Quantize(QuantizationFormat):
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


def _quantize(
    form: QuantizationFormat, weights: Float[Tensor, "..."], *, is_embedding: bool
) -> _Codes:
    if not bool(weights.isfinite().all()):
        raise ValueError("weights that are not finite cannot be quantized")
    bits = max(form.bits, form.embedding_bits) if is_embedding else form.bits
    encoding = IntegerEncoding(
        shape=tuple(weights.shape),
        levels=cast("Levels", LEVELS_OF_BITS[bits]),
        group=_group(form, bits),
        has_offset=bits >= 2 and not (bits == 8 if form.symmetric is None else form.symmetric),
    )
    grouped, counted = _in_groups(weights.detach().to(torch.float32), encoding)
    if encoding.levels <= 3 and not encoding.has_offset:
        scale, offset = _mean_magnitude(grouped, counted, encoding.levels), None
    else:
        scale, offset = _range(form, grouped, counted, encoding)
    scale = _stored(scale if encoding.levels <= 3 else torch.where(scale == 0, 1.0, scale))
    offset = None if offset is None else _stored(offset)
    codes = _round(grouped, scale.float(), offset, encoding)
    return _Codes(encoding, codes, counted, scale, offset)


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
    low = grouped.masked_fill(~counted, torch.inf).amin(2)
    high = grouped.masked_fill(~counted, -torch.inf).amax(2)
    if form.clipping == "percentile":
        magnitudes = grouped.abs().masked_fill(~counted, torch.nan)
        most = torch.nanquantile(magnitudes, form.percentile / 100, dim=2)
        low, high = low.clamp(min=-most), high.clamp(max=most)
    if form.clipping != "mse":
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
