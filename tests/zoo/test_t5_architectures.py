"""The architectures of T5's table 2: shared weights, attention masks, and generation."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from test_leak import build, depends

from unmask.batch import Batch, Visibility
from unmask.checkpoints.huggingface.read import load_folder
from unmask.checkpoints.huggingface.write import write_folder
from unmask.generation.decode import generate
from unmask.generation.decoding.batch import DecodingBatch, Prompt
from unmask.generation.settings import generation_config
from unmask.model.backbones.encoder_decoder import EncoderDecoder, EncoderDecoderArchitecture
from unmask.tokenizers.spec import SpecialTokenIds
from unmask.zoo.catalogue import MODELS
from unmask.zoo.encoder_decoders.t5_architectures import PRESETS

SPECIAL = SpecialTokenIds(vocab_size=50, pad=0, start=0, end=1, suffix=(1,))
SMALL = [card.name for card in PRESETS if card.name.endswith("-mini")]


def test_sizes_equal_table_2_except_cross_attention() -> None:
    """Table 2: 2P, P, P, P and P; attention to the encoder is "about 10 %" of the whole."""
    n = {kind: MODELS[f"t5-{kind}"].n_parameters for kind in ("base", "half-base", "shared-base")}
    lm = MODELS["t5-lm-base"].n_parameters
    table, layers = 32_128 * 768, 12
    cross = layers * (4 * 768 * 768 + 768)
    norm = 768
    assert n["base"] == 2 * (lm - table) + table + cross
    assert n["shared-base"] == lm + cross
    assert n["half-base"] == lm + cross // 2 + norm + 32 * 12  # a norm and distances a side
    assert MODELS["t5-prefix-lm-base"].n_parameters == lm


def test_shared_layers_are_one_tensor_used_twice() -> None:
    model = build("t5-shared")
    assert isinstance(model.backbone, EncoderDecoder)
    encoder, decoder = model.backbone.encoder, model.backbone.decoder
    own = {n for n, _ in model.named_parameters() if n.startswith("backbone.decoder.")}
    assert own
    assert all(".cross." in n or ".cross_norm." in n for n in own)
    assert decoder.position.table is encoder.position.table
    assert decoder.position.scheme.causal
    assert not encoder.position.scheme.causal
    assert decoder.final_norm is encoder.final_norm
    a = model.architecture
    apart = (
        replace(MODELS["t5-shared-mini"], architecture=replace(a, tie_encoder_decoder=False))
        .build()
        .eval()
    )
    twins = {n: model.state_dict(keep_vars=False)[n] for n in apart.state_dict()}
    apart.load_state_dict(twins)
    torch.manual_seed(1)
    batch = Batch(
        inputs=torch.randint(0, 50, (2, 7)),
        source=torch.randint(0, 50, (2, 5)),
        visibility=Visibility(causal=True),
    )
    for one in (model, apart):
        one.backbone(batch).square().sum().backward()
    torch.testing.assert_close(model.backbone(batch), apart.backbone(batch))
    stacks = (apart.backbone.encoder, apart.backbone.decoder)
    read, output = (dict(stack.named_parameters()) for stack in stacks)
    for name, p in encoder.named_parameters():
        if name.startswith("tokens"):
            continue
        assert read[name].grad.abs().sum() > 0
        assert output[name].grad.abs().sum() > 0
        torch.testing.assert_close(
            p.grad, read[name].grad + output[name].grad, rtol=1e-3, atol=1e-3
        )


def test_unequal_stacks_cannot_be_shared() -> None:
    a = MODELS["t5-shared-mini"].architecture
    assert isinstance(a, EncoderDecoderArchitecture)
    with pytest.raises(ValueError, match="tie_encoder_decoder: decoder must equal encoder"):
        replace(a, decoder=replace(a.decoder, d_ff=8))


@pytest.mark.parametrize("whole", [False, True])
def test_only_prefix_lm_sees_the_source_bidirectionally(whole: bool) -> None:
    preset = MODELS["t5-prefix-lm-mini" if whole else "t5-lm-mini"]
    model = build(preset.family)
    rows = DecodingBatch(
        model,
        [
            Prompt(input_ids=[5, 6, 7, 8], n_source_tokens=4),
            Prompt(input_ids=[5, 6], n_source_tokens=2),
        ],
        SPECIAL,
    )
    rank = rows._batch.visibility.rank  # pyright: ignore[reportPrivateUsage]
    assert (rank is not None) == model.bidirectional_prompt == whole
    n, t = 4, 7
    rank = (torch.arange(t) - n + 1).clamp(min=0) if whole else torch.arange(t)
    batch = Batch(inputs=torch.arange(5, 5 + t)[None], visibility=Visibility(rank=rank[None]))
    seen = depends(model, batch)
    assert torch.equal(seen, rank[None, :] <= rank[:, None])
    assert seen[0, n - 1] == whole


@pytest.mark.parametrize("name", SMALL)
@torch.no_grad()
def test_saved_model_generates_equally(name: str, tmp_path: Path) -> None:
    preset = MODELS[name]
    preset = replace(preset, architecture=preset.architecture.with_vocab_size(50))
    model = preset.build().initialize(3).eval()
    write_folder(tmp_path, model, preset, None)
    again = load_folder(tmp_path)
    assert again.missing == again.unexpected == ()
    assert again.preset.architecture == preset.architecture
    assert again.model.head_specs == model.head_specs
    ours, theirs = model.own_weights(), again.model.own_weights()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[n], theirs[n]) for n in ours)
    prompts, config = [[5, 9, 7, 1], [8, 1]], generation_config(max_new_tokens=5)
    assert generate(again.model, prompts, SPECIAL, config) == generate(
        model, prompts, SPECIAL, config
    )


def test_section_3_models_train_for_fewer_tokens_than_released() -> None:
    """2**35 tokens (section 3.1.2), and a trillion (section 3.7)."""
    for name in ("t5-shared-base", "t5-half-base", "t5-prefix-lm-base"):
        preset = MODELS[name]
        rows = preset.batch_tokens // preset.sequence_length
        assert (rows, preset.training_options["steps"]) == (128, 2**19)
    for name in ("t5-small", "t5-11b", "t5-v1_1-base", "ul2"):
        preset = MODELS[name]
        assert preset.batch_tokens * preset.training_options["steps"] == pytest.approx(
            1e12, rel=0.05
        )
        assert preset.training_options["optimizer"] == {"kind": "Adafactor"}
