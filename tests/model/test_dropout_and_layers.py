from dataclasses import replace

import pytest
import torch

from unmask.batch import Batch
from unmask.model.backbones.transformer import Architecture, Transformer
from unmask.model.initialize import NormalInit, SmallInit
from unmask.model.layers.attention.query_stream import EnhancedMaskDecoder
from unmask.model.layers.feed_forward import (
    Dropout,
    LayerNorm,
    OffsetRMSNorm,
    QueryKeyNorm,
    RMSNorm,
)
from unmask.model.variants import DepthWeightedSublayers


@pytest.mark.parametrize("shape", [(1000, 997), (3,), (1,), (0, 4)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_dropout_zeroes_its_share_and_keeps_the_mean(shape, dtype) -> None:
    torch.manual_seed(0)
    x = torch.ones(shape, dtype=dtype)
    y = Dropout(0.1)(x)
    assert y.shape == x.shape
    assert y.dtype == dtype
    values = set(y.float().unique().tolist())
    assert values <= {0.0, float(torch.tensor(256 / 230, dtype=dtype))}
    if x.numel() > 1000:
        assert float((y == 0).float().mean()) == pytest.approx(26 / 256, abs=0.002)
        assert float(y.float().mean()) == pytest.approx(1, abs=0.005)


def test_gradient_flows_where_values_were_kept() -> None:
    torch.manual_seed(0)
    x = torch.randn(50, 50, requires_grad=True)
    y = Dropout(0.5)(x)
    y.sum().backward()
    assert torch.equal(x.grad == 0, y == 0)
    assert set(x.grad.unique().tolist()) == {0.0, 2.0}


def test_dropout_depends_on_the_seed() -> None:
    x, dropped = torch.ones(300), []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        dropped.append(Dropout(0.3)(x))
    assert torch.equal(dropped[0], dropped[1])
    assert not torch.equal(dropped[0], dropped[2])


def test_adjacent_elements_are_dropped_independently() -> None:
    torch.manual_seed(3)
    kept = (Dropout(0.5)(torch.ones(100_000)) > 0).float() - 0.5
    for lag in (1, 2, 3, 7, 8):
        correlation = float((kept[lag:] * kept[:-lag]).mean() * 4)
        assert abs(correlation) < 0.02  # six standard errors of 1 / sqrt(100,000)


def test_dropout_is_identity_in_evaluation() -> None:
    x = torch.randn(9)
    assert Dropout(0.5).eval()(x) is x
    assert Dropout(0.0)(x) is x


def test_offset_norm_starts_as_plain_norm() -> None:
    torch.manual_seed(0)
    x, norm = torch.randn(3, 8), RMSNorm(offset=1.0).build(8)
    NormalInit()("norm", norm, Architecture(vocab_size=9, d_model=8, n_layers=1, n_heads=1, d_ff=8))
    assert not norm.weight.any()
    torch.testing.assert_close(norm(x), RMSNorm().build(8)(x))


def test_offset_norm_keeps_small_weights_in_bfloat16() -> None:
    x = torch.full((1, 2), 1.0, dtype=torch.bfloat16)
    norm = OffsetRMSNorm(2, 0.0, 1.0).bfloat16()
    with torch.no_grad():
        norm.weight.copy_(torch.tensor([0.007, 0.0035]))  # 1 + 0.0035 is no number of bfloat16
    exact = (1 + norm.weight.float()).bfloat16()
    assert torch.equal(norm(x)[0], exact)
    assert exact[0] > 1


def test_grouped_norm_normalizes_each_group_with_shared_weights() -> None:
    torch.manual_seed(0)
    x, norm = torch.randn(2, 5, 12), QueryKeyNorm(RMSNorm(), 4)
    torch.nn.init.normal_(norm.norm.weight)
    parts = [norm.norm(part) for part in x.split(4, -1)]
    torch.testing.assert_close(norm(x), torch.cat(parts, -1))


def test_norm_without_weights_has_no_parameters() -> None:
    norm, x = LayerNorm(1e-5, bias=False, weight=False).build(6), torch.randn(3, 6) * 4 + 1
    assert not list(norm.parameters())
    assert torch.allclose(
        norm(x), (x - x.mean(-1, True)) / (x.var(-1, correction=0, keepdim=True) + 1e-5).sqrt()
    )
    SmallInit()("final_norm", norm, SIZES)


SIZES = Architecture(vocab_size=9, d_model=1000, n_layers=2, n_heads=1, d_ff=8)


def test_initialization_scales_with_the_layer_width() -> None:
    torch.manual_seed(0)
    std = (2 / 5000) ** 0.5
    shares = {
        "backbone.tokens": 1.0,
        "backbone.layers.0.attention.q": 1.0,
        "backbone.layers.0.feed_forward.up": 2**-0.5,
        "backbone.layers.3.feed_forward.down": 8**-0.5,
    }
    for name, share in shares.items():
        module = torch.nn.Linear(400, 400)
        SmallInit()(name, module, SIZES)
        weight = module.weight.detach() / (std * share)
        assert float(weight.abs().max()) <= 2.0001
        assert float(weight.std()) == pytest.approx(0.8796, abs=0.01)  # of a normal cut at 2
        assert not module.bias.any()


def test_inner_norm_precedes_the_output_projection() -> None:
    a = replace(SIZES, d_model=8, norm_placement=frozenset({"into", "inside"}), norm=RMSNorm())
    block = Transformer(a).layers[0]
    assert (block.attention.inside.weight.shape, block.feed_forward.inside.weight.shape) == (
        (8,),
    ) * 2
    torch.nn.init.normal_(block.feed_forward.inside.weight)
    x, f = torch.randn(1, 3, 8), block.feed_forward
    torch.testing.assert_close(f(x), f.down(f.inside(torch.nn.functional.gelu(f.up(x)))))
    assert isinstance(Transformer(SIZES).layers[0].attention.inside, torch.nn.Identity)


def test_depth_weighted_sublayers_refuse_a_query_stream() -> None:
    stack = Transformer(replace(SIZES, sublayers=DepthWeightedSublayers()))
    assert not stack.supports_last_only
    with pytest.raises(ValueError, match="do not support a query stream"):
        stack(
            Batch(inputs=torch.zeros(1, 3, dtype=torch.int64)),
            query_stream=EnhancedMaskDecoder(8).build(SIZES),
        )
