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


def test_every_architecture_field_is_set_by_two_families() -> None:
    """What one family alone needs is a field of a part, and not of an architecture."""
    stacks_of = [(preset.family, stacks(preset.architecture)) for preset in MODELS.values()]
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
def test_preset_names_its_paper_and_own_sizes(name: str) -> None:
    preset = MODELS[name]
    assert preset.name == name
    assert preset.paper.arxiv or preset.paper.url
    assert preset.paper.authors
    assert 1960 < preset.paper.year < 2100
    assert preset.batch_tokens >= preset.sequence_length
    for a in stacks(preset.architecture):
        length = a.max_positions
        assert length is None or preset.sequence_length <= length
    terms = {spec.objective_term for head, spec in preset.heads.items()}
    assert set(preset.objective.loss_terms) == terms


@pytest.mark.parametrize("name", MODELS)
def test_reference_config_of_a_preset_reads_as_the_preset(name: str) -> None:
    preset = MODELS[name]
    again = preset.config_mapping.to_architecture(
        preset.config_mapping.from_architecture(preset.architecture)
    )
    for mine, other in zip(stacks(preset.architecture), stacks(again), strict=True):
        # not all of these is in their files
        free = {k: v for k, v in vars(mine).items() if k in ("initializer", "position")}
        assert dataclasses.replace(other, **free) == mine


@pytest.mark.sample(6)
@pytest.mark.quick(*{card.family: name for name, card in MODELS.items()}.values())
@pytest.mark.parametrize("name", MODELS)
def test_every_tensor_of_a_preset_has_a_reference_name(name: str) -> None:
    preset = MODELS[name]
    ours = heads_without_transformers_class(preset, preset.heads)
    model = preset.build_without_memory({n: x for n, x in preset.heads.items() if n not in ours})
    kept = model.trained_weights()
    theirs = preset.weight_names.to_external(kept)
    read = preset.weight_names.from_external(theirs, {n: x.shape for n, x in kept.items()})
    assert read.missing == ()
    assert read.unexpected == ()


def test_decoder_equals_encoder_but_causal_with_cross_attention() -> None:
    encoder = MODELS["t5-small"].architecture.encoder
    decoder = encoder_decoder(encoder, 2).decoder
    assert decoder.causal
    assert decoder.cross_attention
    assert decoder.n_layers == 2
    assert decoder.position.causal
