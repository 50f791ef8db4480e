"""MASS and UL2: what their networks and vocabularies do that those of BART and T5 do not."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from test_leak import tiny
from toy_text import corpus

from unmask.batch import Batch, Visibility
from unmask.jobs.pretrain.apply_recipe import apply_recipe
from unmask.model.backbones.encoder_decoder import EncoderDecoderArchitecture
from unmask.objectives.denoising.denoise import ModeSwitching
from unmask.objectives.published import T5_BY_RATE, T5_BY_SPAN_LENGTH, T5_OBJECTIVES, components_of
from unmask.tokenizers.learn.tokenizer import train_tokenizer
from unmask.tokenizers.load import load_tokenizer
from unmask.tokenizers.spec import UL2, TokenizerSpec
from unmask.tokenizers.vocabulary import Unigram
from unmask.training.config import Recipe
from unmask.zoo.catalogue import MODELS


@torch.no_grad()
def test_mass_decoder_uses_the_position_ids_of_the_batch() -> None:
    preset = MODELS["mass-mini"]
    a = preset.architecture.with_vocab_size(50)
    assert isinstance(a, EncoderDecoderArchitecture)
    a = replace(a, encoder=tiny(a.encoder), decoder=tiny(a.decoder))
    model = replace(preset, architecture=a).build().eval()
    torch.manual_seed(0)
    for p in model.parameters():
        torch.nn.init.normal_(p, std=0.3)
    ids = torch.randint(0, 50, (1, 4))
    here = Batch(
        inputs=ids, visibility=Visibility(causal=True), source=torch.randint(0, 50, (1, 9))
    )
    there = replace(here, position_ids=torch.arange(3, 7)[None])
    moved = model.hidden_states(there)
    assert not torch.allclose(moved, model.hidden_states(here))
    table = model.backbone.decoder.position.table.weight
    table.copy_(table.roll(-3, 0))
    assert torch.allclose(moved, model.hidden_states(here))


def test_ul2_learns_a_token_for_each_mode(tmp_path: Path) -> None:
    spec = TokenizerSpec(Unigram(70), UL2)
    made = train_tokenizer(spec, corpus().splitlines())
    made.save(tmp_path / "tokenizer")
    for tokenizer in (made, load_tokenizer(tmp_path / "tokenizer")):
        special = tokenizer.special_ids
        assert tokenizer.pieces(special.modes) == ["[NLU]", "[S2S]", "[NLG]"]
        assert set(special.modes) < special.all_ids
        assert special.vocab_size == 170
        assert not set(tokenizer.encode("[NLU] so it goes [NLG]").ids) & set(special.modes)


@pytest.mark.sample(1)
@pytest.mark.parametrize("model", ["t5-mini", "ul2-mini", "bart-mini", "mass-mini"])
def test_preset_trains_on_any_decoder_objective(model: str) -> None:
    for objective in (*T5_OBJECTIVES.values(), *T5_BY_RATE.values(), *T5_BY_SPAN_LENGTH.values()):
        preset = apply_recipe(MODELS[model], Recipe(model=model, objective=objective))
        assert preset.objective == objective
        assert preset.heads.keys() == {"language"}


def test_each_ul2_denoiser_has_its_name() -> None:
    parts = components_of(MODELS["ul2-mini"].objective)
    modes = {name: part.mode for name, part in parts.items() if isinstance(part, ModeSwitching)}
    assert list(modes) == ["R_3", "R_8", "S", "X_half_3", "X_half_8", "X_64", "X_half_64"]
    assert all(name.startswith(mode) for name, mode in modes.items())
