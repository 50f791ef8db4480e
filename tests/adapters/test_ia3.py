"""(IA)3 beside factors multiplied by hand."""

import pytest
import torch
from adapted import FAMILIES, INNER, TWO_STACKS, D, N, model, perturb_weights
from torch.nn import functional as F

from unmask.adapters.attach import attach, find_linears
from unmask.adapters.ia3 import IA3, IA3Module
from unmask.config import from_dict, to_dict


@pytest.mark.parametrize("family", FAMILIES)
def test_keys_values_and_inner_activations_are_scaled(family) -> None:
    m = model(family)
    module = attach(m, IA3())
    assert isinstance(module, IA3Module)
    perturb_weights(module)
    for name, linear in find_linears(m, ("all",)).items():
        x = torch.randn(2, 5, linear.in_features)
        if name.endswith((".k", ".v")):
            expected = F.linear(x, linear.weight, linear.bias) * module.scalings[name].factors
        elif name.endswith(".down"):
            expected = F.linear(x * module.scalings[name].factors, linear.weight, linear.bias)
        else:
            assert name not in module.scalings
            expected = F.linear(x, linear.weight, linear.bias)
        torch.testing.assert_close(linear(x), expected)


@pytest.mark.parametrize("family", FAMILIES)
def test_attention_has_two_vectors_and_feed_forward_one(family) -> None:
    module = attach(model(family), IA3())
    attentions, feed_forwards = (3 * N, 2 * N) if family in TWO_STACKS else (N, N)
    count = sum(p.numel() for p in module.parameters())
    width = D // 2 if family == "gpt2" else D  # two heads of queries share one of keys and values
    assert count == attentions * 2 * width + feed_forwards * INNER
    assert all(bool((p == 1).all()) for p in module.parameters())


def test_scaled_modules_can_be_selected() -> None:
    m = model("bert")
    module = attach(m, IA3(target_modules=("attention.o",), feedforward_modules=()))
    assert isinstance(module, IA3Module)
    assert set(module.scalings) == set(find_linears(m, ("o",)))
    module = attach(m, IA3(target_modules=(), feedforward_modules=("layers.1.*.up",)), "other")
    assert isinstance(module, IA3Module)
    assert list(module.scalings) == ["backbone.layers.1.feed_forward.up"]


def test_invalid_target_modules_are_refused() -> None:
    with pytest.raises(ValueError, match="must name linear maps"):
        IA3(target_modules=(), feedforward_modules=())
    with pytest.raises(ValueError, match=r"layers.0.feed_forward.down is in both"):
        attach(model("bert"), IA3(target_modules=("k", "down")))
    with pytest.raises(ValueError, match="'gate' matches no linear map"):
        attach(model("bert"), IA3(feedforward_modules=("gate",)))


def test_spec_round_trips_as_plain_data() -> None:
    assert from_dict(IA3, to_dict(IA3(target_modules=("k",)))) == IA3(target_modules=("k",))
