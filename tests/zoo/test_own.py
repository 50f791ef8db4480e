"""Networks that the format of their family cannot say are kept all the same."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from unmask.batch import Batch
from unmask.checkpoints.huggingface.differences import opening_note
from unmask.checkpoints.huggingface.read import load_folder
from unmask.checkpoints.huggingface.write import write_folder
from unmask.finetuning.formulations.formulation import language_modeling_head
from unmask.model.architecture import PRE_NORM
from unmask.model.backbones.encoder_decoder import EncoderDecoderArchitecture
from unmask.model.backbones.transformer import Architecture
from unmask.model.layers.feed_forward import RMSNorm
from unmask.model.positions.rotary import Rotary
from unmask.model.variants import AttentionVariant, LayerVariants
from unmask.zoo.catalogue import MODELS, preset_for_config
from unmask.zoo.native_format import inexpressible_keys, with_expressible_format, with_native_format
from unmask.zoo.preset import Published

CHANGES: dict[str, dict[str, Any]] = {
    "a window": {"attention_window": (4, None)},
    "holes in it": {"attention_window": (4,), "attention": AttentionVariant(dilation=(2,))},
    "other places": {"position": Rotary()},
    "norms elsewhere": {"norm_placement": PRE_NORM, "final_norm": True},
    "other norms": {"norm": RMSNorm()},
    "shared layers": {"layers": LayerVariants(shared_sublayers=frozenset({"attention"}))},
}


def small(name: str) -> Published:
    card = MODELS[name]
    return replace(card, architecture=card.architecture.with_vocab_size(60))


@pytest.mark.parametrize("name", [n for n in MODELS if n.endswith("-mini")])
def test_a_card_is_said_in_its_family_s_words(name: str) -> None:
    assert with_expressible_format(MODELS[name]) is MODELS[name]


@pytest.mark.parametrize("change", CHANGES)
def test_what_bert_cannot_say_is_kept(change: str, tmp_path: Path) -> None:
    card = small("bert-tiny")
    assert isinstance(card.architecture, Architecture)
    card = with_expressible_format(
        replace(card, architecture=replace(card.architecture, **CHANGES[change]))
    )
    assert not card.config_mapping.in_transformers
    assert opening_note(card, card.heads) is not None
    model = card.build().initialize(3).eval()
    write_folder(tmp_path, model, card, None)
    again = load_folder(tmp_path)
    assert again.preset.architecture == card.architecture
    assert again.missing == again.unexpected == ()
    batch = Batch(inputs=torch.randint(60, (2, 20)))
    with torch.no_grad():
        assert torch.equal(again.model.backbone(batch), model.backbone(batch))
        scores = [m.language_head.logits(m.backbone(batch)) for m in (again.model, model)]
    assert torch.equal(*scores)


@pytest.mark.parametrize(
    ("name", "change", "keys"),
    [
        ("bert-tiny", CHANGES["a window"], ["attention_window"]),
        ("bert-tiny", CHANGES["other places"], ["position"]),
        ("bert-tiny", CHANGES["norms elsewhere"], ["norm_placement", "final_norm"]),
        ("bert-tiny", CHANGES["other places"] | {"d_model": 64, "dropout": 0.3}, ["position"]),
        ("bart-mini", {"attention_window": (3,)}, ["encoder.attention_window"]),
        ("t5-mini", {"scale_embedding": True}, ["encoder.scale_embedding"]),
    ],
)
def test_the_keys_that_a_format_cannot_say_are_named(
    name: str, change: dict[str, Any], keys: list[str]
) -> None:
    card = small(name)
    a = card.architecture
    if isinstance(a, EncoderDecoderArchitecture):
        other = replace(a, encoder=replace(a.encoder, **change))
    else:
        assert isinstance(a, Architecture)
        other = replace(a, **change)
    ours = with_expressible_format(replace(card, architecture=other))
    assert inexpressible_keys(ours, card) == keys
    said = opening_note(ours, ours.heads)
    named = ", ".join(f"architecture.{key}" for key in keys)
    assert said is not None
    assert said.startswith(
        f"the format of {card.family} cannot express {named}, so Unmask's is used"
    )


def test_an_activation_that_the_format_gives_the_head_as_well_is_kept(tmp_path: Path) -> None:
    """One key of BERT's says both: its head would be read back with another activation."""
    card = small("bert-mini")
    assert isinstance(card.architecture, Architecture)
    card = with_expressible_format(
        replace(card, architecture=replace(card.architecture, activation="relu"))
    )
    assert card.config_mapping.model_type == "unmask-bert"
    model = card.build().initialize(3).eval()
    write_folder(tmp_path, model, card, None)
    again = load_folder(tmp_path).model
    assert again.head_specs["language"] == model.head_specs["language"]
    roberta = small("roberta-base")  # its head has gelu whatever the network has
    assert isinstance(roberta.architecture, Architecture)
    a = replace(roberta.architecture, activation="relu")
    assert (
        with_expressible_format(replace(roberta, architecture=a)).config_mapping
        is roberta.config_mapping
    )


def test_two_stacks_are_kept_too(tmp_path: Path) -> None:
    card = small("t5-mini")
    a = card.architecture
    assert isinstance(a, EncoderDecoderArchitecture)
    changed = replace(a, encoder=replace(a.encoder, attention_window=(3,)))
    card = with_expressible_format(replace(card, architecture=changed))
    model = card.build().initialize(3).eval()
    write_folder(tmp_path, model, card, None)
    again = load_folder(tmp_path)
    assert again.preset.architecture == changed
    ours, theirs = model.own_weights(), again.model.own_weights()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[n], theirs[n]) for n in ours)


@pytest.mark.parametrize("name", [n for n in MODELS if n.endswith("-mini")])
def test_a_network_in_our_words_stays_of_its_family(name: str) -> None:
    card = with_native_format(MODELS[name])
    theirs = card.config_mapping.from_architecture(card.architecture) | {
        "model_type": card.config_mapping.model_type
    }
    again = preset_for_config(theirs)
    assert (again.family, again.finetuning) == (card.family, card.finetuning)
    assert again.config_mapping.to_architecture(theirs) == card.architecture
    with pytest.raises(ValueError, match=f"{card.config_mapping.model_type} has no family 'wrong'"):
        preset_for_config(theirs | {"family": "wrong"})
    del theirs["family"]
    assert preset_for_config(theirs).config_mapping.model_type == card.config_mapping.model_type


def test_a_unilm_that_answers_sources_still_does_and_learns_on(tmp_path: Path) -> None:
    card = small("unilm-mini")
    a = card.architecture
    assert isinstance(a, Architecture)
    card = with_expressible_format(replace(card, architecture=replace(a, position=Rotary())))
    answers = card.finetuning.generation
    heads = {"language": replace(language_modeling_head(card), generation=answers)}
    write_folder(tmp_path, card.build(heads).initialize(3), card, None)
    again = load_folder(tmp_path)
    assert again.model.head_specs == heads
    assert again.model.is_sequence_to_sequence
    assert again.preset.family == "unilm"
    assert again.preset.finetuning.generation == answers


def test_what_matters_in_training_alone_needs_no_words() -> None:
    card = small("bert-tiny")
    a = card.architecture
    assert isinstance(a, Architecture)
    free = replace(a, activation_dropout=0.3, initializer=replace(a.initializer, std=0.5))  # type: ignore[call-arg]
    assert (
        with_expressible_format(replace(card, architecture=free)).config_mapping
        is card.config_mapping
    )


def test_an_unknown_family_in_our_words_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "unmask-nothing"}')
    with pytest.raises(ValueError, match="model_type 'nothing' is not one of"):
        load_folder(tmp_path)
