"""LoRA against W + alpha/rank · B A by hand."""

import pytest
import torch
from adapted import FAMILIES, INNER, TWO_STACKS, D, N, batch, hidden, model, perturb_weights, state
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from unmask.adapters.attach import attach, find_linears, use_adapters
from unmask.adapters.lora import LoRA, LoRAModule
from unmask.config import from_dict, to_dict


@pytest.mark.parametrize("family", FAMILIES)
def test_lora_linear_equals_w_plus_b_a(family) -> None:
    m = model(family)
    spec = LoRA(rank=3, alpha=12.0, target_modules=("v", "feed_forward.up"))
    module = attach(m, spec)
    assert isinstance(module, LoRAModule)
    perturb_weights(module)
    x = {width: torch.randn(2, 5, width) for width in (D, INNER)}
    for name, linear in find_linears(m, ("all",)).items():
        weight = linear.weight
        if name.endswith((".v", "feed_forward.up")):
            part = module.layers[name]
            weight = weight + 12.0 / 3 * part.up @ part.down
        else:
            assert name not in module.layers
        inputs = x[linear.in_features]
        torch.testing.assert_close(linear(inputs), F.linear(inputs, weight, linear.bias))


@settings(max_examples=15)
@given(
    family=st.sampled_from(FAMILIES),
    rank=st.integers(1, 20),
    where=st.sampled_from([("all",), ("attention.q", "attention.v"), ("o", "down"), ("k",)]),
)
def test_parameter_count_is_rank_times_both_widths(family, rank, where) -> None:
    m = model(family)
    module = attach(m, LoRA(rank=rank, target_modules=where))
    maps = find_linears(m, where).values()
    widths = sum(linear.in_features + linear.out_features for linear in maps)
    assert sum(p.numel() for p in module.parameters()) == rank * widths
    if where == ("attention.q", "attention.v"):
        stacks = 2 if family in TWO_STACKS else 1
        values = D // 2 if family == "gpt2" else D  # two heads of queries share one of values
        assert widths == stacks * N * (2 * D + D + values)


def test_initialization_equals_released_code() -> None:
    module = attach(model("bert"), LoRA(rank=64, target_modules=("all",)))
    assert isinstance(module, LoRAModule)
    for part in module.layers.values():
        assert not part.up.any()
        bound = part.down.shape[1] ** -0.5  # Kaiming's, for a = √5
        assert 0.9 * bound < part.down.abs().max() <= bound
        assert abs(part.down.std() - bound / 3**0.5) < 0.05 * bound


def test_dropout_applies_to_lora_input_in_training_only() -> None:
    m = model("bert")
    module = attach(m, LoRA(dropout=0.5, target_modules=("up",)))
    assert isinstance(module, LoRAModule)
    perturb_weights(module)
    linear = next(iter(find_linears(m, ("up",)).values()))
    part = next(iter(module.layers.values()))
    x = torch.ones(1, 4, D)
    with use_adapters(m, None):
        base = linear(x)
    whole = linear(x) - base
    torch.testing.assert_close(whole, linear(x) - base)
    m.train()
    torch.manual_seed(0)
    drawn = linear(x) - base
    torch.manual_seed(0)
    kept = part.dropout(x)
    assert set(kept.unique().tolist()) == {0.0, 2.0}
    torch.testing.assert_close(drawn, kept @ part.down.T @ part.up.T * part.scale)
    torch.manual_seed(1)
    assert not torch.allclose(linear(x) - base, drawn)


def test_single_adapter_for_all_rows_skips_row_selection(monkeypatch) -> None:
    m, b = model("bert"), batch("bert")
    attach(m, LoRA())

    def never(*args: object) -> None:
        raise AssertionError("rows were picked")

    monkeypatch.setattr(torch.Tensor, "index_copy", never)
    hidden(m, b)
    with use_adapters(m, ["default"] * 4):
        hidden(m, b)
    with pytest.raises(AssertionError), use_adapters(m, ["default", None, None, None]):
        hidden(m, b)


def test_parameter_names_follow_the_model() -> None:
    m = model("t5")
    attach(m, LoRA(target_modules=("cross.q",)), "task")
    prefix = "adapters.task.backbone.decoder.layers."
    assert {n for n in state(m) if "task" in n} == {
        f"{prefix}{i}.cross.q.{part}" for i in range(N) for part in ("down", "up")
    }
    assert not any(isinstance(x, nn.Linear) for x in m.adapters.modules())


@pytest.mark.parametrize(
    "wrong",
    [{"rank": 0}, {"alpha": 0.0}, {"dropout": 1.0}, {"dropout": -0.1}, {"target_modules": ()}],
)
def test_values_out_of_range_are_refused(wrong) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} must"):
        LoRA(**wrong)


def test_spec_round_trips_as_plain_data() -> None:
    spec = LoRA(rank=4, target_modules=("all",))
    assert from_dict(LoRA, to_dict(spec)) == spec
