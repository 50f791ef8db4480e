"""Mix against the sum of recorded layers by hand."""

from typing import Any

import pytest
import torch
from adapted import FAMILIES, N, batch, hidden, model, stir
from torch import Tensor

from unmask.adapters.attach import attach, use
from unmask.adapters.mix import Mix, MixModule
from unmask.batch import Batch
from unmask.config import from_dict, to_dict
from unmask.heads.model import Model
from unmask.model.transformer import EncoderDecoder, Transformer

over_families = pytest.mark.parametrize("family", FAMILIES)


def stack(m: Model) -> Transformer:
    return m.backbone.decoder if isinstance(m.backbone, EncoderDecoder) else m.backbone


def recorded(m: Model, b: Batch) -> list[Tensor]:
    """What enters the first layer and leaves each, through the final norm."""
    seen: list[Tensor] = []

    def before(layer: Any, args: tuple[Any, ...]) -> None:
        seen.append(args[0])

    def after(layer: Any, args: tuple[Any, ...], out: Tensor) -> None:
        seen.append(out)

    layers = stack(m).layers
    hooks = [layers[0].register_forward_pre_hook(before)]
    hooks += [layer.register_forward_hook(after) for layer in layers]
    with use(m, None), torch.no_grad():
        m.hidden(b)
        for hook in hooks:
            hook.remove()
        return [stack(m).final_norm(x) for x in seen]


@over_families
def test_it_equals_the_weighted_sum_of_recorded_layers(family) -> None:
    m, b = model(family), batch(family)
    module = attach(m, Mix())
    assert isinstance(module, MixModule)
    layers = torch.stack(recorded(m, b))
    assert len(layers) == N + 1
    torch.testing.assert_close(hidden(m, b), layers.mean(0))  # at first
    stir(module, 1.0)
    shares = module.weights.exp() / module.weights.exp().sum()
    expected = module.gamma * (shares[:, None, None, None] * layers).sum(0)
    torch.testing.assert_close(hidden(m, b), expected.detach())


@over_families
def test_all_weight_on_the_last_layer_is_the_model_without(family) -> None:
    m, b = model(family), batch(family)
    before = hidden(m, b)
    module = attach(m, Mix())
    assert isinstance(module, MixModule)
    with torch.no_grad():
        module.weights[-1] = 200.0
    torch.testing.assert_close(hidden(m, b), before)


@over_families
def test_it_has_a_number_for_each_layer_and_two_more(family) -> None:
    module = attach(model(family), Mix())
    assert sum(p.numel() for p in module.parameters()) == N + 2


@over_families
def test_a_forward_that_broke_off_leaves_no_layers_behind(family) -> None:
    m, b = model(family), batch(family)
    attach(m, Mix())
    expected = hidden(m, b)
    hook = stack(m).layers[1].register_forward_pre_hook(lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        hidden(m, b)
    hook.remove()
    assert torch.equal(hidden(m, b), expected)


def test_it_is_plain_data_and_back() -> None:
    assert from_dict(Mix, to_dict(Mix())) == Mix()
