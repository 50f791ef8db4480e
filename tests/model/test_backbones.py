"""All networks are backbones, side by side, and an architecture builds its own."""

import re
from typing import get_args

import pytest
import torch

from unmask.batch import Batch, Visibility
from unmask.model.architecture import Ability, Backbone, BackboneArchitecture, require_support
from unmask.model.backbones.canine import Canine
from unmask.model.backbones.convolutional import Convolutional
from unmask.model.backbones.elmo import Elmo
from unmask.model.backbones.encoder_decoder import EncoderDecoder
from unmask.model.backbones.recurrent import Recurrent
from unmask.model.backbones.transformer import Transformer
from unmask.zoo.catalogue import MODELS

NETWORKS = {
    "bert-tiny": Transformer,
    "t5-mini": EncoderDecoder,
    "lstm-mini": Recurrent,
    "cnn-mini": Convolutional,
    "canine-mini": Canine,
    "elmo-mini": Elmo,
}


@pytest.mark.parametrize("name", NETWORKS)
def test_module_satisfies_the_backbone_protocol(name: str) -> None:
    architecture = MODELS[name].architecture
    assert isinstance(architecture, BackboneArchitecture)
    with torch.device("meta"):
        network = architecture.build()
    assert type(network) is NETWORKS[name]
    assert isinstance(network, Backbone)
    assert network.a is architecture
    assert network.width == architecture.d_model
    inner = [network.encoder_stack, network.decoder_stack, *network.stacks]
    assert all(isinstance(stack, Backbone) for stack in inner)
    assert architecture.is_encoder_decoder == (len(network.stacks) > 1)
    assert architecture.with_stacks(architecture.stacks) == architecture
    assert architecture.with_vocab_size(architecture.vocab_size) == architecture


@pytest.mark.parametrize("name", NETWORKS)
def test_unsupported_features_are_refused_with_reason(name: str) -> None:
    with torch.device("meta"):
        network = MODELS[name].architecture.build()
    for ability in get_args(Ability):
        reason = network.unsupported_reason(ability)
        if reason is None:
            require_support(network, ability)
        else:
            with pytest.raises(ValueError, match=re.escape(reason)):
                require_support(network, ability)


@pytest.mark.parametrize("name", ["bert-tiny", "t5-mini", "lstm-mini", "cnn-mini"])
def test_hidden_states_of_last_layer_equal_encode(name: str) -> None:
    network = MODELS[name].build({}).initialize(0).eval().backbone
    ids = torch.arange(5, 17).view(2, 6)
    batch = Batch(inputs=ids, visibility=Visibility())
    if MODELS[name].architecture.is_encoder_decoder:
        batch = Batch(inputs=ids[:, :1], source=ids, source_visibility=Visibility())
    with torch.no_grad():
        last = network.layer_states(batch, network.n_token_layers)
        first = network.layer_states(batch, 0)
        assert torch.equal(last, network.encode(batch))
    assert first.shape[:2] == last.shape[:2] == ids.shape
