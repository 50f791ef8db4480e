"""Paths: every kernel path of `attend` equals the plain one; cached decoding equals uncached."""

import pytest
import torch
from test_leak import FAMILIES, build
from torch import Tensor

from unmask.batch import Batch, Visibility
from unmask.model import attention
from unmask.model.architecture import EncoderDecoderArchitecture
from unmask.model.attention import Sight, attend


def reference(q, k, v, visible, bias, scale, cap):
    """Write softmax(capped q kᵀ·scale + bias, over the visible keys) v out in double precision."""
    shared = q.shape[1] // k.shape[1]
    k, v = (x.repeat_interleave(shared, 1).double() for x in (k, v))
    scores = q.double() @ k.mT * scale
    if cap is not None:
        scores = torch.tanh(scores / cap) * cap
    if bias is not None:
        scores = scores + bias.double()
    if visible is not None:
        scores = scores.masked_fill(~visible, -torch.inf)
    return scores.softmax(-1) @ v


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("queries", [1, 5, 12])
@pytest.mark.parametrize("sees", ["everyone", "causal", "some"])
@pytest.mark.parametrize("path", ["plain", "fused"])
@pytest.mark.parametrize(("groups", "cap"), [(6, None), (2, None), (1, None), (6, 1.5), (3, 1.5)])
def test_every_path_equals_the_definition(
    groups, cap, path, sees, queries, biased, monkeypatch
) -> None:
    torch.manual_seed(0)
    keys = 12
    q = torch.randn(2, 6, queries, 8, requires_grad=True)
    k, v = torch.randn(2, groups, keys, 8), torch.randn(2, groups, keys, 8)
    bias = torch.randn(1, 6, queries, keys) if biased else None
    visible = None
    sight = Sight()
    if sees == "causal":
        sight = Sight(causal=True)
        visible = torch.ones(queries, keys, dtype=torch.bool).tril(keys - queries)
    if sees == "some":
        visible = torch.rand(2, 1, queries, keys) < 0.5
        visible[..., 0] = True
        sight = Sight(visible)
    monkeypatch.setattr(attention, "plain_is_faster", lambda *a, **k: path == "plain")
    ours = attend(q, k, v, sight, bias=bias, scale=0.3, cap=cap)
    expected = reference(q, k, v, visible, bias, 0.3, cap)
    assert torch.allclose(ours.double(), expected, atol=1e-6)  # float32 against float64
    (ours_d,) = torch.autograd.grad(ours.square().sum(), q)
    (expected_d,) = torch.autograd.grad(expected.square().sum(), q)
    assert torch.allclose(ours_d, expected_d, atol=1e-5)


@pytest.mark.parametrize("family", [f for f, c in FAMILIES.items() if f != "bert"])
@torch.no_grad()
def test_cached_decoding_equals_uncached(family: str) -> None:
    model = build(family)
    torch.manual_seed(1)
    b, t, s = 2, 11, 6
    ids = torch.randint(0, 50, (b, t))
    more = {}
    if isinstance(model.architecture, EncoderDecoderArchitecture):
        there = torch.tensor([[0] * 6, [0] * 4 + [-1] * 2])
        more = {
            "source": torch.randint(0, 50, (b, s)),
            "source_visibility": Visibility(document=there),
        }
    whole = model.backbone(Batch(inputs=ids, visibility=Visibility(causal=True), **more))
    cache = model.backbone.new_cache()

    def read(i: int, j: int) -> Tensor:
        part = Batch(inputs=ids[:, i:j], visibility=Visibility(causal=True), **more)
        return model.backbone(part, cache)

    if model.stack.convolution is not None:  # each token reads the one after it
        read(0, 4)
        with pytest.raises(ValueError, match="not piece by piece"):
            read(4, 5)
        return
    parts = [read(i, j) for i, j in ((0, 4), (4, 5), (5, 6), (6, 11))]
    assert torch.allclose(torch.cat(parts, 1), whole, atol=1e-5)
    assert cache.length == t


@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_bfloat16_follows_float32(family: str) -> None:
    model = build(family)
    torch.manual_seed(1)
    more = {}
    if isinstance(model.architecture, EncoderDecoderArchitecture):
        more = {"source": torch.randint(0, 50, (2, 6))}
    batch = Batch(
        inputs=torch.randint(0, 50, (2, 9)),
        visibility=Visibility(causal=model.stack.causal, document=torch.zeros(2, 9).long()),
        **more,
    )
    exact = model.hidden(batch)
    rough = model.bfloat16().hidden(batch).float()
    # 8 bits of fraction, four layers
    assert float((rough - exact).abs().max()) < 0.1 * float(exact.abs().max())
