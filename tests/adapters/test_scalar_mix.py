"""Scalar mix beside the weighted sum of recorded layers."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from adapted import FAMILIES, N, batch, hidden, model, perturb_weights
from torch import Tensor

from unmask.adapters.attach import attach, use_adapters
from unmask.adapters.scalar_mix import ScalarMix, ScalarMixModule
from unmask.batch import Batch, Visibility
from unmask.config import from_dict, to_dict
from unmask.evaluation.sentence_embeddings import hidden_states
from unmask.heads.model import Model
from unmask.model.backbones.elmo import ElmoArchitecture
from unmask.model.backbones.encoder_decoder import EncoderDecoder
from unmask.model.backbones.recurrent import RecurrentArchitecture
from unmask.model.backbones.transformer import Transformer
from unmask.model.layers.embeddings.character_cnn import CharacterCNN
from unmask.model.requested_states import RequestedStates

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
    with use_adapters(m, None), torch.no_grad():
        m.hidden_states(b)
        for hook in hooks:
            hook.remove()
        return [stack(m).final_norm(x) for x in seen]


@over_families
def test_scalar_mix_equals_weighted_sum_of_layers(family) -> None:
    m, b = model(family), batch(family)
    module = attach(m, ScalarMix())
    assert isinstance(module, ScalarMixModule)
    layers = torch.stack(recorded(m, b))
    assert len(layers) == N + 1
    torch.testing.assert_close(hidden(m, b), layers.mean(0))  # at first
    perturb_weights(module, 1.0)
    shares = module.weights.exp() / module.weights.exp().sum()
    expected = module.gamma * (shares[:, None, None, None] * layers).sum(0)
    torch.testing.assert_close(hidden(m, b), expected.detach())


@over_families
def test_all_weight_on_last_layer_equals_plain_model(family) -> None:
    m, b = model(family), batch(family)
    before = hidden(m, b)
    module = attach(m, ScalarMix())
    assert isinstance(module, ScalarMixModule)
    with torch.no_grad():
        module.weights[-1] = 200.0
    torch.testing.assert_close(hidden(m, b), before)


@over_families
def test_parameter_count_is_layers_plus_two(family) -> None:
    module = attach(model(family), ScalarMix())
    assert sum(p.numel() for p in module.parameters()) == N + 2


@over_families
def test_failed_forward_leaves_no_recorded_layers(family) -> None:
    m, b = model(family), batch(family)
    attach(m, ScalarMix())
    expected = hidden(m, b)
    hook = stack(m).layers[1].register_forward_pre_hook(lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        hidden(m, b)
    hook.remove()
    assert torch.equal(hidden(m, b), expected)


def test_spec_round_trips_as_plain_data() -> None:
    assert from_dict(ScalarMix, to_dict(ScalarMix())) == ScalarMix()


ELMO = ElmoArchitecture(
    d_model=12, embedding_size=6, n_layers=2, d_ff=16,
    character_cnn=CharacterCNN(character_embedding_size=4, filters=((1, 3), (2, 4))),
)  # fmt: skip
LSTM = RecurrentArchitecture(vocab_size=515, d_model=8, n_layers=2, d_ff=8, causal=True)


@pytest.mark.parametrize("a", [ELMO, LSTM], ids=["elmo", "lstm"])
@torch.no_grad()
def test_layers_of_recurrent_networks_are_mixed(a: RecurrentArchitecture) -> None:
    m = Model(a, {}).initialize(0).eval()
    ids = torch.randint(3, 515, (2, 9), generator=torch.Generator().manual_seed(0))
    b = Batch(inputs=ids, visibility=Visibility(causal=a.causal))
    before, module = m.hidden_states(b), attach(m, ScalarMix())
    assert isinstance(module, ScalarMixModule)
    perturb_weights(module, 1.0)
    each, probabilities = m.backbone.layer_outputs(b), module.weights.softmax(0)
    expected = module.gamma * sum(w * x for w, x in zip(probabilities, each, strict=True))
    torch.testing.assert_close(m.hidden_states(b), expected)
    torch.testing.assert_close(hidden_states(m, b, 2), expected)
    torch.testing.assert_close(hidden_states(m, b, 1), each[1])
    every = m.backbone(b.with_feature(RequestedStates(all_layers=True)))
    torch.testing.assert_close(every, torch.cat((*each[:-1], expected), -1))
    with use_adapters(m, [None, "default"]):
        torch.testing.assert_close(m.hidden_states(b)[0], before[0])
        torch.testing.assert_close(m.hidden_states(b)[1], expected[1])
    if a.causal:
        cache = m.backbone.new_cache()
        parts = [m.backbone(replace(b, inputs=ids[:, i : i + 3]), cache) for i in (0, 3, 6)]
        torch.testing.assert_close(torch.cat(parts, 1), expected)
    assert module.summary().startswith("weights of the first layer's input and of each layer: 0")


def test_layers_of_different_widths_are_refused() -> None:
    with pytest.raises(ValueError, match=r"widths cannot be mixed, got \(8, 16, 8\)"):
        attach(Model(replace(LSTM, d_ff=16), {}), ScalarMix())
