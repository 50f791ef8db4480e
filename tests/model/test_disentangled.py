"""Disentangled attention against equations 2 to 4 of its paper, pair by pair, in float64."""

import math
from dataclasses import replace

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from unmask.model.backbones.transformer import Architecture
from unmask.model.layers.attention.attention import Attention, AttentionMask
from unmask.model.layers.feed_forward import LayerNorm
from unmask.model.positions.disentangled import DisentangledAttention

C2P, P2C = "content_to_position", "position_to_content"
H, D, T = 2, 8, 11
BASE = Architecture(
    vocab_size=9, d_model=D, n_layers=1, n_heads=H, d_ff=8, norm=LayerNorm(1e-7),
    attention_dropout=0.0, dropout=0.0,
)  # fmt: skip
SCHEMES = {
    "both, clipped": DisentangledAttention(4),
    "both, longer than the text": DisentangledAttention(32),
    "content to position": DisentangledAttention(4, terms=(C2P,)),
    "position to content": DisentangledAttention(4, terms=(P2C,)),
    "shared": DisentangledAttention(4, share_projections=True),
    "buckets, shared, norm": DisentangledAttention(
        9, n_buckets=4, share_projections=True, distance_norm=True
    ),
    "exact buckets": DisentangledAttention(64, n_buckets=32, share_projections=True),
}


def delta(i: int, j: int, scheme: DisentangledAttention) -> int:
    """Equation 3; with buckets, of the bucket of the distance (released code)."""
    away, k = i - j, scheme.n_buckets_per_side
    if scheme.n_buckets is not None and abs(away) > (mid := scheme.n_buckets // 2):
        share = math.log(abs(away) / mid) / math.log((scheme.max_distance - 1) / mid)
        away = int(math.copysign(mid + math.ceil(share * (mid - 1)), away))
    return 0 if away <= -k else 2 * k - 1 if away >= k else away + k


def built(scheme: DisentangledAttention) -> tuple[torch.nn.Module, Attention]:
    torch.manual_seed(0)
    position = scheme.build(BASE).double()
    attention = Attention(BASE, position.for_layer(0)).double()
    for p in (*position.parameters(), *attention.parameters()):
        torch.nn.init.normal_(p)
    return position, attention


def by_the_paper(scheme: DisentangledAttention, position, attention: Attention, x, keys):
    """Equation 4 for each pair; position to content at delta(i, j), see `DisentangledAttention`."""
    e = D // H
    table = position.norm(position.table.weight)
    q, k, v = (f(y).unflatten(-1, (H, e)) for f, y in zip(
        (attention.q, attention.k, attention.v), (x, keys, keys), strict=True
    ))  # fmt: skip
    own_k, own_q = attention.place.k or attention.k, attention.place.q or attention.q
    r_k, r_q = own_k(table).unflatten(-1, (H, e)), own_q(table).unflatten(-1, (H, e))
    output = torch.zeros(len(x), H, e, dtype=torch.float64)
    first = len(keys) - len(x)
    for h in range(H):
        for i in range(len(x)):
            scores = []
            for j in range(len(keys)):
                row = delta(first + i, j, scheme)
                a = q[i, h] @ k[j, h]
                a = a + (q[i, h] @ r_k[row, h] if C2P in scheme.terms else 0)
                a = a + (k[j, h] @ r_q[row, h] if P2C in scheme.terms else 0)
                scores.append(a / math.sqrt((1 + len(scheme.terms)) * e))
            output[i, h] = torch.stack(scores).softmax(0) @ v[:, h]
    return attention.o(output.flatten(1))


@pytest.mark.parametrize("queries", [T, 3])
@pytest.mark.parametrize("name", SCHEMES)
@torch.no_grad()
def test_attention_equals_equation_4(name: str, queries: int) -> None:
    scheme = SCHEMES[name]
    position, attention = built(scheme)
    keys = torch.randn(T, D, dtype=torch.float64)
    x = keys[-queries:]
    output = attention(x[None], keys[None], position.position_state(x[None], T), AttentionMask())
    expected = by_the_paper(scheme, position, attention, x, keys)
    torch.testing.assert_close(output[0], expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    "scheme", [DisentangledAttention(512), DisentangledAttention(512, n_buckets=256)]
)
def test_relative_distances_equal_equation_3(scheme: DisentangledAttention) -> None:
    position = scheme.build(BASE)
    n = 700
    row = position.position_state(torch.zeros(1, n, D), n).distance_index
    unused = scheme.n_buckets_per_side - scheme.n_rows_used(n)
    for i, j in ((0, 0), (0, 1), (1, 0), (300, 172), (300, 171), (511, 0), (0, 511), (699, 0)):
        assert int(row[i, j]) + unused == delta(i, j, scheme)
    assert row.diagonal().unique().tolist() == [scheme.n_buckets_per_side - unused]


def test_short_texts_read_only_rows_of_their_distances() -> None:
    x = torch.zeros(1, 20, D)
    assert DisentangledAttention(512).build(BASE).position_state(
        x, 20
    ).distance_embeddings.shape == (40, D)
    assert DisentangledAttention(512, n_buckets=256).build(BASE).position_state(
        x, 20
    ).distance_embeddings.shape == (40, D)
    assert DisentangledAttention(16).build(BASE).position_state(
        x, 20
    ).distance_embeddings.shape == (32, D)
    assert DisentangledAttention(64, n_buckets=16).build(BASE).position_state(
        x, 20
    ).distance_embeddings.shape == (32, D)


def test_no_tensor_of_pairs_times_width_is_made() -> None:
    largest = 0

    class Sizes(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            nonlocal largest
            out = func(*args, **(kwargs or {}))
            for y in out if isinstance(out, tuple | list) else [out]:
                if isinstance(y, torch.Tensor):
                    largest = max(largest, y.numel())
            return out

    a = replace(BASE, d_model=64, n_heads=2)
    scheme = DisentangledAttention(64)
    position = scheme.build(a)
    attention, x = Attention(a, position.for_layer(0)), torch.randn(3, 24, 64, requires_grad=True)
    with Sizes():
        attention(x, x, position.position_state(x, 24), AttentionMask()).sum().backward()
    assert 0 < largest < 3 * 2 * 24 * 24 * 32 / 8  # b h t s e, with room for what is not that


def test_absolute_positions_are_added_only_if_configured() -> None:
    place = torch.arange(5)[None]
    assert DisentangledAttention(8).build(BASE).embed(place) is None
    position = DisentangledAttention(8, max_positions=6, absolute_positions=True).build(BASE)
    assert torch.equal(position.embed(place)[0], position.absolute.table.weight[:5])
    with pytest.raises(ValueError, match="a text of 7 tokens is longer than the model's 6"):
        position.embed(torch.arange(7)[None])


def test_flops_of_each_term_are_those_of_its_scores() -> None:
    plain, both = (
        replace(BASE, n_layers=3),
        replace(BASE, n_layers=3, position=DisentangledAttention(8)),
    )
    # of each layer and term, q or k of width d with 2 * 8 rows, two FLOPs a number
    assert both.flops(20) - plain.flops(20) == 3 * 2 * (2 * D * 16)
    assert both.flops(5) - plain.flops(5) == 3 * 2 * (2 * D * 10)


def test_impossible_schemes_are_refused() -> None:
    with pytest.raises(ValueError, match="terms must be one or both"):
        DisentangledAttention(terms=())
    with pytest.raises(ValueError, match="terms must be one or both"):
        DisentangledAttention(terms=(C2P, C2P))
    with pytest.raises(ValueError, match="n_buckets must be at least 4 and below 14"):
        DisentangledAttention(8, n_buckets=14)
    with pytest.raises(ValueError, match="buckets must be at least 4"):
        DisentangledAttention(8, n_buckets=2)
