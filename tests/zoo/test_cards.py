import dataclasses

import pytest

from unmask.checkpoints.huggingface.differences import heads_without_transformers_class
from unmask.model.backbones.encoder_decoder import EncoderDecoderArchitecture
from unmask.model.backbones.transformer import Architecture
from unmask.zoo.catalogue import MODELS
from unmask.zoo.encoder_decoders.t5 import encoder_decoder

ONE_FAMILY = {
    "adaptive_input": "Transformer-XL; recipes of LSTMs and ELMo's head have it, too",
    "layer_dropout": "FlauBERT; BART's and mBART's configurations say it, released ones have 0",
}
"""Fields of Architecture that the presets of one family alone set, and why they are no part."""


def stacks(architecture) -> list[Architecture]:
    if isinstance(architecture, EncoderDecoderArchitecture):
        return [architecture.encoder, architecture.decoder]
    return [architecture]


def test_every_field_of_an_architecture_is_set_by_two_families() -> None:
    """What one family alone needs is a field of a part, and not of an architecture."""
    stacks_of = [(card.family, stacks(card.architecture)) for card in MODELS.values()]
    for field in dataclasses.fields(Architecture):
        if field.default is dataclasses.MISSING:
            continue
        users = {
            family
            for family, found in stacks_of
            if any(getattr(a, field.name, field.default) != field.default for a in found)
        }
        assert (len(users) < 2) == (field.name in ONE_FAMILY), f"{field.name}: {users}"


@pytest.mark.parametrize("name", MODELS)
def test_a_card_names_its_paper_and_its_own_sizes(name: str) -> None:
    card = MODELS[name]
    assert card.name == name
    assert card.paper.arxiv or card.paper.url
    assert card.paper.authors
    assert 1960 < card.paper.year < 2100
    assert card.batch_tokens >= card.sequence_length
    for a in stacks(card.architecture):
        length = a.max_positions
        assert length is None or card.sequence_length <= length
    terms = {spec.objective_term for head, spec in card.heads.items()}
    assert set(card.objective.loss_terms) == terms


@pytest.mark.parametrize("name", MODELS)
def test_their_configuration_of_a_card_is_read_as_the_card(name: str) -> None:
    card = MODELS[name]
    again = card.config_mapping.to_architecture(
        card.config_mapping.from_architecture(card.architecture)
    )
    for mine, other in zip(stacks(card.architecture), stacks(again), strict=True):
        # not all of these is in their files
        free = {k: v for k, v in vars(mine).items() if k in ("initializer", "position")}
        assert dataclasses.replace(other, **free) == mine


@pytest.mark.quick(*{card.family: name for name, card in MODELS.items()}.values())
@pytest.mark.parametrize("name", MODELS)
def test_every_tensor_of_a_card_has_a_name_of_theirs(name: str) -> None:
    card = MODELS[name]
    ours = heads_without_transformers_class(card, card.heads)
    model = card.build_without_memory({n: x for n, x in card.heads.items() if n not in ours})
    kept = model.trained_weights()
    theirs = card.weight_names.to_external(kept)
    read = card.weight_names.from_external(theirs, {n: x.shape for n, x in kept.items()})
    assert read.missing == ()
    assert read.unexpected == ()


def test_a_decoder_is_its_encoder_but_causal_and_reading_it() -> None:
    encoder = MODELS["t5-small"].architecture.encoder
    decoder = encoder_decoder(encoder, 2).decoder
    assert decoder.causal
    assert decoder.cross_attention
    assert decoder.n_layers == 2
    assert decoder.position.causal
