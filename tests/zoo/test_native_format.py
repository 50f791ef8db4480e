"""Networks that their family's format cannot express are saved in ours."""

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
    preset = MODELS[name]
    return replace(preset, architecture=preset.architecture.with_vocab_size(60))


@pytest.mark.sample(16)
@pytest.mark.parametrize("name", [n for n in MODELS if n.endswith("-mini")])
def test_preset_uses_its_family_format(name: str) -> None:
    assert with_expressible_format(MODELS[name]) is MODELS[name]


@pytest.mark.parametrize("change", CHANGES)
def test_settings_beyond_the_bert_format_round_trip(change: str, tmp_path: Path) -> None:
    preset = small("bert-tiny")
    assert isinstance(preset.architecture, Architecture)
    preset = with_expressible_format(
        replace(preset, architecture=replace(preset.architecture, **CHANGES[change]))
    )
    assert not preset.config_mapping.in_transformers
    assert opening_note(preset, preset.heads) is not None
    model = preset.build().initialize(3).eval()
    write_folder(tmp_path, model, preset, None)
    again = load_folder(tmp_path)
    assert again.preset.architecture == preset.architecture
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
def test_inexpressible_keys_are_named(name: str, change: dict[str, Any], keys: list[str]) -> None:
    preset = small(name)
    a = preset.architecture
    if isinstance(a, EncoderDecoderArchitecture):
        other = replace(a, encoder=replace(a.encoder, **change))
    else:
        assert isinstance(a, Architecture)
        other = replace(a, **change)
    ours = with_expressible_format(replace(preset, architecture=other))
    assert inexpressible_keys(ours, preset) == keys
    output = opening_note(ours, ours.heads)
    named = ", ".join(f"architecture.{key}" for key in keys)
    assert output is not None
    assert output.startswith(
        f"the format of {preset.family} cannot express {named}, so Unmask's is used"
    )


def test_activation_shared_with_the_head_round_trips(tmp_path: Path) -> None:
    """One key of BERT's stands for both: its head would be loaded with another activation."""
    preset = small("bert-mini")
    assert isinstance(preset.architecture, Architecture)
    preset = with_expressible_format(
        replace(preset, architecture=replace(preset.architecture, activation="relu"))
    )
    assert preset.config_mapping.model_type == "unmask-bert"
    model = preset.build().initialize(3).eval()
    write_folder(tmp_path, model, preset, None)
    again = load_folder(tmp_path).model
    assert again.head_specs["language"] == model.head_specs["language"]
    roberta = small("roberta-base")  # its head has gelu whatever the network has
    assert isinstance(roberta.architecture, Architecture)
    a = replace(roberta.architecture, activation="relu")
    assert (
        with_expressible_format(replace(roberta, architecture=a)).config_mapping
        is roberta.config_mapping
    )


def test_encoder_decoder_round_trips(tmp_path: Path) -> None:
    preset = small("t5-mini")
    a = preset.architecture
    assert isinstance(a, EncoderDecoderArchitecture)
    changed = replace(a, encoder=replace(a.encoder, attention_window=(3,)))
    preset = with_expressible_format(replace(preset, architecture=changed))
    model = preset.build().initialize(3).eval()
    write_folder(tmp_path, model, preset, None)
    again = load_folder(tmp_path)
    assert again.preset.architecture == changed
    ours, theirs = model.own_weights(), again.model.own_weights()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[n], theirs[n]) for n in ours)


@pytest.mark.parametrize("name", [n for n in MODELS if n.endswith("-mini")])
def test_own_format_keeps_the_family(name: str) -> None:
    preset = with_native_format(MODELS[name])
    theirs = preset.config_mapping.from_architecture(preset.architecture) | {
        "model_type": preset.config_mapping.model_type
    }
    again = preset_for_config(theirs)
    assert (again.family, again.finetuning) == (preset.family, preset.finetuning)
    assert again.config_mapping.to_architecture(theirs) == preset.architecture
    with pytest.raises(
        ValueError, match=f"{preset.config_mapping.model_type} has no family 'wrong'"
    ):
        preset_for_config(theirs | {"family": "wrong"})
    del theirs["family"]
    assert preset_for_config(theirs).config_mapping.model_type == preset.config_mapping.model_type


def test_unilm_in_own_format_keeps_generating_and_training(tmp_path: Path) -> None:
    preset = small("unilm-mini")
    a = preset.architecture
    assert isinstance(a, Architecture)
    preset = with_expressible_format(replace(preset, architecture=replace(a, position=Rotary())))
    answers = preset.finetuning.generation
    heads = {"language": replace(language_modeling_head(preset), generation=answers)}
    write_folder(tmp_path, preset.build(heads).initialize(3), preset, None)
    again = load_folder(tmp_path)
    assert again.model.head_specs == heads
    assert again.model.is_sequence_to_sequence
    assert again.preset.family == "unilm"
    assert again.preset.finetuning.generation == answers


def test_training_only_settings_need_no_own_format() -> None:
    preset = small("bert-tiny")
    a = preset.architecture
    assert isinstance(a, Architecture)
    free = replace(a, activation_dropout=0.3, initializer=replace(a.initializer, std=0.5))  # type: ignore[call-arg]
    assert (
        with_expressible_format(replace(preset, architecture=free)).config_mapping
        is preset.config_mapping
    )


def test_unknown_family_in_own_format_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "unmask-nothing"}')
    with pytest.raises(ValueError, match="model_type 'nothing' is not one of"):
        load_folder(tmp_path)
