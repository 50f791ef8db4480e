"""Houlsby, Pfeiffer and AdaMix against blocks computed by hand."""

import copy
from itertools import product
from typing import cast

import pytest
import torch
from adapted import FAMILIES, TWO_STACKS, D, N, batch, hidden, model, perturb_weights, same, state
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from unmask.adapters.attach import attach, use_adapters
from unmask.adapters.bottleneck import (
    AdaMix,
    BottleneckLayer,
    HoulsbyAdapter,
    MixtureOfProjections,
    PfeifferAdapter,
)
from unmask.config import from_dict, to_dict
from unmask.model.backbones.transformer import Block
from unmask.model.layers.attention.attention import AttentionMask
from unmask.model.layers.sublayer_connection import SublayerConnection

over_families = pytest.mark.parametrize("family", FAMILIES)
SPECS = [HoulsbyAdapter, PfeifferAdapter, AdaMix]


def by_hand(part: nn.Module, x: Tensor, activation) -> Tensor:
    p = dict(part.named_parameters())
    down, up = "down.each.0", "up.each.0"
    inner = activation(F.linear(x, p[f"{down}.weight"], p[f"{down}.bias"]))
    return F.linear(inner, p[f"{up}.weight"], p[f"{up}.bias"])


def bottleneck(module: nn.Module, name: str) -> BottleneckLayer:
    return cast(BottleneckLayer, module.get_submodule(name))


def sublayers(m, x: Tensor) -> list[tuple[str, SublayerConnection, Tensor]]:
    """A function for each sublayer of the last block of the last stack, without hooks."""
    name, block = [(n, b) for n, b in m.named_modules() if isinstance(b, Block)][-1]
    memory = torch.randn(2, 4, D, generator=torch.Generator().manual_seed(5))
    found = [
        ("attention", block.attention_norm, lambda y: block.attention(y, y, None, AttentionMask())),
        ("feed_forward", block.feed_forward_norm, block.feed_forward),
    ]
    if block.cross is not None:
        cross = block.cross
        found.insert(
            1, ("cross", block.cross_norm, lambda y: cross(y, memory, None, AttentionMask(), None))
        )
    return [(f"{name}.{sublayer}", norms, f) for sublayer, norms, f in found]


@over_families
def test_houlsby_adapter_is_added_to_each_sublayer_output(family) -> None:
    m = model(family)
    module = attach(m, HoulsbyAdapter(bottleneck_size=5, train_norms=False))
    perturb_weights(module)
    x = torch.randn(2, 6, D)
    names = []
    for name, norms, f in sublayers(m, x):
        names.append(name)
        with use_adapters(m, None):
            y = norms.out(f(norms.into(x)))
            expected = norms.after(x + y + by_hand(bottleneck(module, name), y, F.gelu))
        torch.testing.assert_close(norms(x, f), expected)
    assert len([n for n, b in module.named_modules() if isinstance(b, BottleneckLayer)]) == {
        "bert": 2 * N, "gpt2": 2 * N, "t5": 5 * N, "bart": 5 * N,
    }[family]  # fmt: skip
    assert set(names) <= {n for n, b in module.named_modules() if isinstance(b, BottleneckLayer)}


@over_families
def test_pfeiffer_adapter_reads_layer_output_and_adds_to_feed_forward(family) -> None:
    m = model(family)
    module = attach(m, PfeifferAdapter(bottleneck_size=5))
    perturb_weights(module)
    x = torch.randn(2, 6, D)
    for name, norms, f in sublayers(m, x):
        with use_adapters(m, None):
            y = norms.out(f(norms.into(x)))
            expected = norms.after(x + y)
            if name.endswith("feed_forward"):
                expected = norms.after(x + y + by_hand(bottleneck(module, name), expected, F.relu))
        torch.testing.assert_close(norms(x, f), expected)


@over_families
def test_houlsby_norms_replace_the_models(family) -> None:
    m, b = model(family), batch(family)
    module = attach(m, HoulsbyAdapter(bottleneck_size=5))
    changed = copy.deepcopy(m)
    norms = {n: x for n, x in module.named_modules() if isinstance(x, nn.LayerNorm | nn.RMSNorm)}
    per_layer, others = {"bert": (2, 1), "gpt2": (2, 1), "t5": (5, 2), "bart": (5, 2)}[family]
    assert len(norms) == per_layer * N + others
    for norm in norms.values():
        perturb_weights(norm, seed=len(norms))
    with use_adapters(changed, None):
        for name, norm in norms.items():
            changed.get_submodule(name).load_state_dict(norm.state_dict())
        torch.testing.assert_close(hidden(m, b), hidden(changed, b))


def test_second_adapter_norms_are_copies_without_hooks_of_the_first() -> None:
    m = model("bert")
    attach(m, HoulsbyAdapter(), "a")
    module = attach(m, HoulsbyAdapter(), "b")
    assert not any(x._forward_hooks for x in module.modules())
    assert {n.split(".")[0] for n, _ in module.named_parameters()} == {"backbone"}


@over_families
@pytest.mark.parametrize("shared", ["up", "down", None])
def test_adamix_inference_uses_mean_of_experts(family, shared) -> None:
    m, b = model(family), batch(family)
    module = attach(m, AdaMix(bottleneck_size=5, n_experts=3, shared_projection=shared), "experts")
    perturb_weights(module)
    single = attach(m, AdaMix(bottleneck_size=5, n_experts=1), "single")
    for name, part in single.named_modules():
        if isinstance(part, MixtureOfProjections):
            each = cast(MixtureOfProjections, module.get_submodule(name)).each
            assert len(each) == (1 if name.endswith(f".{shared}") else 3)
            with torch.no_grad():
                for key in ("weight", "bias"):
                    total = torch.zeros_like(part.each[0].get_parameter(key))
                    for expert in each:
                        total += expert.get_parameter(key)
                    part.each[0].get_parameter(key).copy_(total / len(each))
    with use_adapters(m, "experts"):
        mixed = hidden(m, b)
    with use_adapters(m, "single"):
        torch.testing.assert_close(mixed, hidden(m, b))


def test_adamix_samples_experts_for_down_and_up_independently() -> None:
    m = model("bert")
    module = attach(m, AdaMix(bottleneck_size=5, n_experts=3, shared_projection=None))
    perturb_weights(module)
    part = bottleneck(module, "backbone.layers.0.feed_forward").train()
    x = torch.randn(2, 4, D)
    possible = [
        up(F.gelu(down(x))) for down, up in product(part.down.each, part.up.each)
    ]  # fmt: skip
    torch.manual_seed(0)
    drawn = [part(x) for _ in range(300)]
    which = [next(i for i, y in enumerate(possible) if torch.equal(z, y)) for z in drawn]
    counts = torch.bincount(torch.tensor(which), minlength=9)
    assert counts.min() > 300 / 9 / 2
    assert counts.max() < 300 / 9 * 2
    torch.manual_seed(0)
    assert all(torch.equal(part(x), y) for y in drawn[:10])


def test_adamix_is_added_after_feed_forward_only() -> None:
    m = model("gpt2")
    module = attach(m, AdaMix(bottleneck_size=5, n_experts=1))
    perturb_weights(module)
    x = torch.randn(2, 6, D)
    for name, norms, f in sublayers(m, x):
        with use_adapters(m, None):
            y = f(norms.into(x))
            if name.endswith("feed_forward"):
                y = y + by_hand(bottleneck(module, name), y, F.gelu)
        torch.testing.assert_close(norms(x, f), norms.after(x + y))


@settings(max_examples=20)
@given(
    family=st.sampled_from(FAMILIES),
    width=st.integers(1, 20),
    experts=st.integers(1, 5),
    shared=st.sampled_from(["up", "down", None]),
)
def test_parameter_count_equals_formula(family, width, experts, shared) -> None:
    def count(spec) -> int:
        return sum(p.numel() for p in attach(m, spec, str(spec.__class__.__name__)).parameters())

    m = model(family)
    sublayers, layers = (5 * N, 2 * N) if family in TWO_STACKS else (2 * N, N)
    down, up = (D + 1) * width, (width + 1) * D
    assert count(HoulsbyAdapter(bottleneck_size=width, train_norms=False)) == sublayers * (
        down + up
    )
    assert count(PfeifferAdapter(bottleneck_size=width)) == layers * (down + up)
    n_down, n_up = (1 if shared == x else experts for x in ("down", "up"))
    expected = layers * (n_down * down + n_up * up)
    assert (
        count(AdaMix(bottleneck_size=width, n_experts=experts, shared_projection=shared))
        == expected
    )


@pytest.mark.parametrize("spec", SPECS)
def test_down_projection_starts_near_zero_and_up_at_zero(spec) -> None:
    module = attach(model("bert"), spec(bottleneck_size=64))
    for name, weight in module.named_parameters():
        if ".down." in name and name.endswith("weight"):
            assert 0.008 < weight.std() < 0.01  # 0.0088: cut at two standard deviations
            assert weight.abs().max() <= 0.02
        elif ".down." in name or ".up." in name:
            assert not weight.any()


@pytest.mark.parametrize("spec", SPECS)
def test_default_width_is_one_sixteenth_and_at_least_eight(spec) -> None:
    module = attach(model("bert"), spec())
    assert bottleneck(module, "backbone.layers.0.feed_forward").down.each[0].out_features == 8
    part = BottleneckLayer(768, None, "relu", n_down_experts=1, n_up_experts=1)
    assert part.down.each[0].out_features == 48


@pytest.mark.parametrize("spec", SPECS)
def test_spec_round_trips_as_plain_data_and_is_validated(spec) -> None:
    assert from_dict(spec, to_dict(spec(bottleneck_size=3))) == spec(bottleneck_size=3)
    with pytest.raises(ValueError, match="bottleneck_size must be at least 1, got 0"):
        spec(bottleneck_size=0)


def test_adamix_values_are_validated() -> None:
    with pytest.raises(ValueError, match="n_experts must be at least 1, got 0"):
        AdaMix(n_experts=0)
    with pytest.raises(ValueError, match="consistency_weight must be at least 0"):
        AdaMix(consistency_weight=-1.0)
    m = model("bert")
    before = state(m)
    perturb_weights(attach(m, AdaMix()))
    with use_adapters(m, None):
        pass
    assert same({k: v for k, v in state(m).items() if k in before}, before)
