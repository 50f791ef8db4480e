"""Places and distances: which of them share a bias."""

import math

import pytest
import torch

from unmask.model.backbones.transformer import Architecture, Transformer
from unmask.model.positions.relative_bias import (
    LearnedPositionsAndRelativeBias,
    RelativePositionBias,
)


def bucket(away: int, buckets: int, reach: int) -> int:
    """COCO-LM's `relative_position_bucket`, in double precision and one distance at a time."""
    half = buckets // 2
    n, exact = abs(away), buckets // 4
    if n >= exact:
        share = math.log(n / exact) / math.log((reach - 1) / exact)
        n = min(exact + math.ceil(share * (half - 1 - exact) - 1e-9), half - 1)
    return n if away > 0 else -n


@pytest.mark.parametrize(
    ("length", "buckets", "reach"),
    [(512, 32, 128), (512, 64, 128), (512, 128, 256), (40, 32, 128), (300, 6, 20), (64, 4, 3)],
)
def test_distance_buckets_equal_released_code(length, buckets, reach) -> None:
    scheme = LearnedPositionsAndRelativeBias(length, buckets, reach)
    a = Architecture(vocab_size=9, d_model=8, n_layers=1, n_heads=2, d_ff=8, position=scheme)
    away = torch.arange(1 - length, length)
    ours = Transformer(a).position.bucket(away[None])[0]
    theirs = torch.tensor([bucket(x, buckets, reach) for x in away.tolist()])
    assert torch.equal(ours, theirs - theirs.min())
    assert int(ours.max()) <= buckets - 2


def test_columns_beyond_the_table_share_the_last_bucket() -> None:
    scheme = LearnedPositionsAndRelativeBias(8, 32, 128)
    a = Architecture(vocab_size=9, d_model=8, n_layers=1, n_heads=2, d_ff=8, position=scheme)
    position = Transformer(a).position
    row = position.bucket(torch.tensor([[-20, -7, 0, 7, 20]]))[0].tolist()
    assert row[0] == row[1] == 0
    assert row[3] == row[4] == 2 * row[2]


@pytest.mark.parametrize(
    ("n_buckets", "max_distance", "message"),
    [
        (31, 128, "n_buckets must be even and at least 4, got 31"),
        (2, 128, "n_buckets must be even and at least 4, got 2"),
        (32, 9, r"max_distance must be above 9 \(a quarter of n_buckets, and 1\), got 9"),
    ],
)
def test_impossible_buckets_are_refused(n_buckets: int, max_distance: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LearnedPositionsAndRelativeBias(64, n_buckets, max_distance)


@pytest.mark.parametrize(
    ("n_buckets", "max_distance", "causal"),
    [(3, 12, False), (1, 12, True), (8, 4, True), (8, 2, False)],
)
def test_buckets_without_room_for_distances_are_refused(
    n_buckets: int, max_distance: int, causal: bool
) -> None:
    """They end in a division by zero, or in rows that the table of longer texts has not."""
    with pytest.raises(ValueError, match=f"n_buckets must be .* got {n_buckets} and"):
        RelativePositionBias(n_buckets, max_distance, causal)
