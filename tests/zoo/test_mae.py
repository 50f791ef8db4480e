"""MAE: its encoder reads patches that are seen alone, and its loss is the reference's."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from unmask.batch import IGNORE_INDEX, Batch
from unmask.checkpoints.huggingface.read import load_folder
from unmask.checkpoints.huggingface.write import write_folder
from unmask.heads.model import Model
from unmask.heads.vision.masked_autoencoding import MaskedAutoencoding
from unmask.model.architecture import PRE_NORM
from unmask.model.backbones.vision_transformer import (
    MaskedAutoencoder,
    PatchDecoder,
    picture_batch,
)
from unmask.model.initialize import NormalInit
from unmask.model.layers.feed_forward import LayerNorm
from unmask.model.positions.grid_sinusoidal import GridSinusoidal
from unmask.objectives.inputs.pictures import MASK_ID
from unmask.zoo.catalogue import MODELS

TINY = MaskedAutoencoder(
    d_model=16, n_layers=2, n_heads=2, d_ff=32, patch_size=4, position=GridSinusoidal(3, 3),
    decoder=PatchDecoder(d_model=8, n_layers=1, n_heads=2, d_ff=16), norm=LayerNorm(1e-12),
    norm_placement=PRE_NORM, final_norm=True, dropout=0.0, attention_dropout=0.0,
    initializer=NormalInit(0.02, truncated=True),
)  # fmt: skip
HIDDEN = torch.tensor([[0, 1, 0, 1, 1, 0, 1, 1, 1]])


def pixels(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def built(a: MaskedAutoencoder = TINY) -> Model:
    return Model(a, {"patches": MaskedAutoencoding()}).initialize(0).eval()


def masked_batch(x: torch.Tensor, hidden: torch.Tensor, a: MaskedAutoencoder = TINY) -> Batch:
    batch = picture_batch(x, a, hidden)
    targets = torch.where(batch.inputs == MASK_ID, 0, IGNORE_INDEX)
    return replace(batch, targets=targets)


def reference(**changes: Any) -> Any:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.ViTMAEConfig(
        **{
            "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
            "intermediate_size": 64, "image_size": 32, "patch_size": 8, "decoder_hidden_size": 24,
            "decoder_num_hidden_layers": 2, "decoder_num_attention_heads": 2,
            "decoder_intermediate_size": 48, "initializer_range": 0.3,
        }
        | changes
    )  # fmt: skip
    model = transformers.ViTMAEForPreTraining(config).eval()
    for name, p in model.named_parameters():
        if "pos" not in name:
            torch.nn.init.normal_(p, std=0.3)
    return model


@pytest.mark.parametrize("normalized", [True, False])
@torch.no_grad()
def test_loss_pixels_and_states_equal_the_reference(tmp_path: Path, normalized: bool) -> None:
    theirs = reference(norm_pix_loss=normalized)
    theirs.save_pretrained(tmp_path)
    loaded = load_folder(tmp_path)
    assert not loaded.missing
    assert not loaded.unexpected
    x = pixels(3, 3, 32, 32)
    noise = torch.rand(3, 16, generator=torch.Generator().manual_seed(1))
    expected = theirs(pixel_values=x, noise=noise)
    a = loaded.preset.architecture
    assert isinstance(a, MaskedAutoencoder)
    batch = masked_batch(x, expected.mask.long(), a)
    prediction = loaded.model(batch, return_logits=True)
    term = prediction.terms["masked"]
    torch.testing.assert_close(term.total / term.count, expected.loss, rtol=1e-5, atol=0)
    patches = expected.logits[expected.mask.bool()].unflatten(-1, (8, 8, 3)).movedim(-1, -3)
    logits = prediction.logits["masked"]
    torch.testing.assert_close(logits, patches.flatten(-3), rtol=1e-5, atol=1e-4)
    seen = theirs.vit(pixel_values=x, noise=noise)
    order = seen.ids_restore.argsort(1)[:, :4]
    ours = loaded.model.hidden_states(batch)
    torch.testing.assert_close(
        ours[:, 1:].gather(1, order[..., None].expand(-1, -1, 32)),
        seen.last_hidden_state[:, 1:], rtol=1e-5, atol=1e-5,
    )  # fmt: skip
    torch.testing.assert_close(ours[:, 0], seen.last_hidden_state[:, 0], rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_what_is_written_opens_in_the_reference_with_the_same_loss(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    preset = replace(MODELS["mae-mini"], architecture=replace(TINY, normalize_targets=False))
    model = Model(preset.architecture, preset.heads).initialize(3).eval()
    write_folder(tmp_path, model, preset, None)
    theirs = transformers.ViTMAEForPreTraining.from_pretrained(tmp_path).eval()
    x, noise = pixels(2, 3, 12, 12), torch.rand(2, 9)
    expected = theirs(pixel_values=x, noise=noise)
    term = model(masked_batch(x, expected.mask.long())).terms["masked"]
    torch.testing.assert_close(term.total / term.count, expected.loss, rtol=1e-5, atol=0)
    assert load_folder(tmp_path).preset.architecture == preset.architecture


def test_a_configuration_that_is_not_supported_is_refused(tmp_path: Path) -> None:
    reference().save_pretrained(tmp_path)
    file = tmp_path / "config.json"
    config = json.loads(file.read_text())
    for key, value, message in (
        ("image_size", [32, 16], r"image_size = \[32, 16\] is not supported, only squares"),
        ("decoder_hidden_size", 0, "decoder_hidden_size"),
        ("norm_pix_loss", "yes", "norm_pix_loss"),
    ):
        file.write_text(json.dumps(config | {key: value}))
        with pytest.raises(ValueError, match=message):
            load_folder(tmp_path)


def test_positions_are_the_published_ones() -> None:
    pytest.importorskip("transformers")
    embeddings = reference().vit.embeddings
    embeddings.patch_embeddings.projection._is_hf_initialized = False  # else they stay zeros
    embeddings.initialize_weights()
    a = replace(TINY, d_model=32, position=GridSinusoidal(4, 4))
    torch.testing.assert_close(
        built(a).get_parameter("backbone.position.table"),
        embeddings.position_embeddings,
        rtol=0,
        atol=1e-6,
    )


def test_no_gradient_reaches_positions_or_comes_from_hidden_patches() -> None:
    model, x = built(), pixels(1, 3, 12, 12).requires_grad_(True)
    batch = masked_batch(x, HIDDEN)
    model.hidden_states(batch).square().sum().backward()
    assert x.grad is not None
    moved = x.grad.unfold(2, 4, 4).unfold(3, 4, 4).abs().sum((0, 1, 4, 5)).flatten() > 0
    assert torch.equal(moved, HIDDEN[0] == 0)
    model(batch).terms["masked"].total.backward()
    without = {name for name, p in model.named_parameters() if p.grad is None}
    assert without == {"backbone.position.table", "heads.patches.decoder.position.table"}


@torch.no_grad()
def test_rows_that_hide_different_numbers_equal_each_by_itself() -> None:
    model, x = built(), pixels(2, 3, 12, 12)
    hidden = torch.cat((HIDDEN, 1 - HIDDEN))
    both = model(masked_batch(x, hidden), return_logits=True).logits["masked"]
    single = [
        model(masked_batch(x[i : i + 1], hidden[i : i + 1]), return_logits=True).logits["masked"]
        for i in (0, 1)
    ]
    torch.testing.assert_close(both, torch.cat(single), rtol=1e-5, atol=1e-6)


def test_other_networks_and_sizes_are_refused() -> None:
    with pytest.raises(ValueError, match="needs a MaskedAutoencoder"):
        Model(MODELS["vit-mini"].architecture, {"patches": MaskedAutoencoding()})
    with pytest.raises(ValueError, match="a multiple of 4, got 18"):
        Model(replace(TINY, d_model=18), {})
    with pytest.raises(ValueError, match=r"decoder\.n_layers must be at least 1, got 0"):
        PatchDecoder(n_layers=0)
