"""Every position scheme in every backbone by --set: it trains, or the refusal names the key."""

import pytest

from unmask.jobs.pretrain.apply_recipe import apply_recipe
from unmask.jobs.pretrain.recipe_defaults import keys_of_changes
from unmask.jobs.pretrain.resolve_options import drop_unsupported, preset_recipe
from unmask.model.backbones.encoder_decoder import EncoderDecoderArchitecture
from unmask.training import config as recipes
from unmask.zoo.catalogue import MODELS

CARDS = (
    "bert-mini", "electra-mini", "deberta-mini", "deberta-v3-mini", "longformer-mini",
    "modernbert-mini", "gpt2-mini", "llama-mini", "gemma-3-mini", "transformer-xl-mini",
    "xlnet-mini", "gpt-bert-mini", "t5-mini", "bart-mini", "canine-mini", "lstm-mini", "cnn-mini",
)  # fmt: skip
SCHEMES = (
    "LearnedPositions",
    "Sinusoidal",
    "RelativePositionBias",
    "LearnedPositionsAndRelativeBias",
    "LearnedPositionsAndT5Bias",
    "Rotary",
    "DisentangledAttention",
    "TransformerXLPositions",
    "NoPositions",
    "Rotary(theta=500000, max_positions=1024)",
    "LayerwiseRotary(schemes=[Rotary(theta=10000), Rotary(theta=500000)])",
)


@pytest.mark.sample(13)
@pytest.mark.quick("bert-mini", "t5-mini", "llama-mini", "lstm-mini")
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("name", CARDS)
def test_position_scheme_trains_or_is_refused_with_reason(name: str, scheme: str) -> None:
    preset = MODELS[name]
    two = isinstance(preset.architecture, EncoderDecoderArchitecture)
    keys = [f"architecture.{side}.position" for side in ("encoder", "decoder")]
    changes = [f"{key}={scheme}" for key in (keys if two else ["architecture.position"])]
    recipe = recipes.apply_changes(preset_recipe(name), changes)
    message = None
    try:
        recipe, notes = drop_unsupported(recipe, keys_of_changes(changes))
        made = apply_recipe(preset, recipe)
        made.build_without_memory()
        a = made.architecture
    except ValueError as error:
        notes, a, message = [], preset.architecture, str(error)
    if message is not None:
        assert "\n" not in message
        assert scheme.split("(")[0] in message or "position" in message
        assert "init_previous_token_heads" not in message
        assert "memory" not in message
    assert all("is not used" in note for note in notes)
    longest_now, longest_then = a.max_positions, preset.architecture.max_positions
    if longest_then is not None and longest_now is not None and "max_positions=" not in scheme:
        assert longest_now >= min(longest_then, 512)
