"""Weights of few bits: the formulas written once more in float64, for any shape and granularity."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from unmask.checkpoints.packed import IntegerEncoding, pack_codes, packed_size, unpack_codes
from unmask.compression.config import LEVELS_OF_BITS, QuantizationAware
from unmask.compression.quantize import Quantize, round_weights


@given(
    levels=st.sampled_from(sorted(LEVELS_OF_BITS.values())),
    n=st.integers(1, 200),
    seed=st.integers(0, 2**31),
)
def test_packed_codes_round_trip(levels: int, n: int, seed: int) -> None:
    codes = torch.from_numpy(np.random.default_rng(seed).integers(0, levels, n).astype(np.uint8))
    packed = pack_codes(codes, levels)
    assert len(packed) == packed_size(n, levels)
    assert len(packed) <= n * np.log2(levels) / 8 * 1.02 + 3
    assert torch.equal(unpack_codes(packed, n, levels), codes)


def weights(seed: int, rows: int, columns: int) -> torch.Tensor:
    found = torch.from_numpy(np.random.default_rng(seed).normal(size=(rows, columns)))
    return found.float() * 0.05


def by_hand(w: np.ndarray, bits: float, group: int | None, symmetric: bool) -> np.ndarray:
    """Round to nearest in float64, group by group."""
    rows = w.reshape(1, -1) if group == 0 else w.reshape(-1, w.shape[-1])
    found, size, levels = np.zeros_like(rows), group or rows.shape[1], LEVELS_OF_BITS[bits]
    for row in range(len(rows)):
        for start in range(0, rows.shape[1], size):
            x = rows[row, start : start + size]
            if levels == 2:
                y = np.where(x >= 0, 1, -1) * np.abs(x).mean()
            elif levels == 3:
                above = np.abs(x) > 0.7 * np.abs(x).mean()
                scale = np.abs(x[above]).mean()
                y = np.clip(np.round(x / scale), -1, 1) * scale
            elif levels == 4:
                mean = 0 if symmetric else x.mean()
                scale = np.sqrt(((x - mean) ** 2).mean()) * (1.224 if symmetric else 0.9957)
                values = mean + scale * (np.arange(-1, 2) if symmetric else np.arange(4) - 1.5)
                y = values[np.abs(x[:, None] - values).argmin(1)]
            elif symmetric:
                scale = np.abs(x).max() / (levels / 2 - 1)
                y = np.round(x / scale) * scale
            else:
                scale = (x.max() - x.min()) / (levels - 1) or 1.0
                y = np.round((x - x.min()) / scale) * scale + x.min()
            found[row, start : start + size] = y
    return found.reshape(w.shape)


@pytest.mark.parametrize("bits", sorted(LEVELS_OF_BITS))
@given(
    rows=st.integers(1, 5),
    columns=st.integers(2, 70),
    granularity=st.sampled_from(["tensor", "channel", "group"]),
    symmetric=st.booleans(),
    seed=st.integers(0, 2**31),
)
def test_decoded_weights_equal_formula(
    bits: float, rows: int, columns: int, granularity: str, symmetric: bool, seed: int
) -> None:
    w = weights(seed, rows, columns)
    method = Quantize(
        bits=bits, granularity=granularity, group=16, symmetric=symmetric or bits < 2,
        embedding_bits=1.0, clipping="normal" if bits == 2 else None,
    )  # fmt: skip
    encoded = method.encode(w)
    assert isinstance(encoded.encoding, IntegerEncoding)
    group = {"tensor": 0, "channel": None, "group": 16}[granularity]
    expected = by_hand(w.double().numpy(), bits, group, symmetric)
    # A scale in float16 is off by up to 2^-11 of itself, at most L/2 times; and a weight that lies
    # between two codes, within this rounding, may have either.
    step = 2 * np.abs(w.numpy()).max() / max(LEVELS_OF_BITS[bits] - 2, 1)
    off = np.abs(encoded.decode().double().numpy() - expected)
    close = off <= 2**-10 * np.abs(w.numpy()).max() + 1e-7
    assert close.mean() > 0.9
    assert off.max() <= step * 1.01 + 1e-6


@pytest.mark.parametrize("symmetric", [True, False])
def test_ranges_of_two_bits(symmetric: bool) -> None:
    w = weights(0, 64, 256)
    errors = {
        clipping: float((round_weights(form, w) - w).square().sum() / w.square().sum())
        for clipping in ("minmax", "none", "normal", "mse", None)
        if (form := Quantize(bits=2.0, clipping=clipping, symmetric=symmetric))
    }
    assert errors["none"] == errors["minmax"]
    assert errors[None] == errors["mse"] <= errors["normal"] < 0.75 * errors["minmax"]
    # Max 1960, table II: 0.1188 of the variance by four equidistant values, 0.1902 by three
    assert errors["normal"] == pytest.approx(0.1902 if symmetric else 0.1188, rel=0.05)
    aware = QuantizationAware(bits=2.0, symmetric=symmetric)
    normal = Quantize(bits=2.0, clipping="normal", symmetric=symmetric)
    assert torch.equal(round_weights(aware, w), round_weights(normal, w))


@given(seed=st.integers(0, 2**31), bits=st.sampled_from([2.0, 3.0, 4.0, 8.0]))
def test_least_squares_range_is_no_worse(seed: int, bits: float) -> None:
    w = weights(seed, 4, 64) ** 3
    errors = [
        float((Quantize(bits=bits, clipping=clipping).encode(w).decode() - w).square().sum())
        for clipping in ("minmax", "mse")
    ]
    assert errors[1] <= errors[0] * 1.001


def test_zero_and_constant_weights_are_exact() -> None:
    for bits in (8.0, 4.0, 3.0, 2.0):
        for w in (torch.zeros(4, 64), torch.full((4, 64), 0.25)):
            torch.testing.assert_close(Quantize(bits=bits).encode(w).decode(), w, rtol=1e-2, atol=0)


def test_embeddings_have_their_own_bits() -> None:
    method, w = Quantize(bits=2.0), weights(0, 8, 64)
    assert method.encode(w).encoding.levels == 4
    assert method.encode(w, is_embedding=True).encoding.levels == 256


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"bits": 5.0}, "bits must be one of 1, 1.58, 2, 3, 4, 8, got 5"),
        ({"clipping": "normal"}, "clipping=normal is of 2 bits, got 8"),
        ({"group": 0}, "group must be at least 1, got 0"),
        ({"percentile": 40.0}, "percentile must be from 50 to 100, got 40"),
        ({"bits": 1.0, "symmetric": False}, "symmetric must be true for fewer than 2 bits"),
    ],
)
def test_invalid_options_are_refused(fields: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Quantize(**fields)


def test_non_finite_weights_are_refused() -> None:
    with pytest.raises(ValueError, match="not finite"):
        Quantize().encode(torch.full((2, 2), torch.nan))
