"""Leak and reveal of pictures: no hidden patch moves an output, every patch that is seen does."""

from dataclasses import replace

import pytest
import torch

from unmask.batch import IGNORE_INDEX, Batch
from unmask.heads.spec import HeadSpec
from unmask.heads.vision.masked_autoencoding import MaskedAutoencoding
from unmask.heads.vision.patch_reconstruction import PatchReconstruction
from unmask.model.backbones.vision_transformer import (
    MaskedAutoencoder,
    PatchDecoder,
    VisionArchitecture,
    picture_batch,
)
from unmask.model.layers.embeddings.patches import cut_into_patches
from unmask.objectives.inputs.pictures import Pictures
from unmask.zoo.catalogue import MODELS
from unmask.zoo.preset import Published

N = 9
HIDDEN = torch.tensor([0, 1, 0, 0, 1, 1, 0, 0, 1]).bool()
FAMILIES = {
    card.family: card
    for card in MODELS.values()
    if not card.reads_texts and isinstance(card.architecture, VisionArchitecture)
}
"""One preset of each family that reads nothing but pictures."""


def tiny(preset: Published) -> VisionArchitecture:
    assert isinstance(preset.architecture, VisionArchitecture)
    a = replace(
        preset.architecture, d_model=16, n_heads=2, d_ff=16, n_layers=2, patch_size=2,
        mask_token=True, dropout=0.0, attention_dropout=0.0,
    )  # fmt: skip
    if isinstance(a, MaskedAutoencoder):
        decoder = PatchDecoder(d_model=16, n_layers=1, n_heads=2, d_ff=16)
        a = replace(a, mask_token=False, decoder=decoder, normalize_targets=False)
    return a.with_image_size(6, 6)


def patch_heads(a: VisionArchitecture) -> dict[str, HeadSpec]:
    """Return the head that reconstructs patches; both have the same loss."""
    if isinstance(a, MaskedAutoencoder):
        return {"patches": MaskedAutoencoding(loss="l1")}
    return {"patches": PatchReconstruction()}


def hidden_batch(a: VisionArchitecture, pixels: torch.Tensor) -> Batch:
    """Hide the patches of HIDDEN, which are to be reconstructed."""
    batch = picture_batch(pixels, a, hidden=HIDDEN[None].long())
    n_special = batch.inputs.shape[1] - N
    targets = torch.cat((torch.zeros(n_special).bool(), HIDDEN))
    return replace(batch, targets=torch.where(targets, 0, IGNORE_INDEX)[None])


@pytest.mark.parametrize("family", FAMILIES)
def test_outputs_depend_on_exactly_the_patches_that_are_seen(family: str) -> None:
    a = tiny(FAMILIES[family])
    heads = patch_heads(a)
    model = replace(FAMILIES[family], architecture=a, heads=heads).build().eval()
    torch.manual_seed(0)
    for p in model.parameters():
        torch.nn.init.normal_(p, std=0.3)
    pixels = torch.randn(1, a.n_channels, 6, 6, requires_grad=True)
    batch = hidden_batch(a, pixels)
    made = model(batch, return_logits=True).logits["masked"]
    assert made.shape == (int(HIDDEN.sum()), a.patch_width)
    for one in made:
        gradient = torch.autograd.grad(
            (one * torch.randn(len(one))).sum(), pixels, retain_graph=True
        )
        moved = cut_into_patches(gradient[0], 2)[0].abs().sum(-1) > 1e-12
        assert torch.equal(moved, ~HIDDEN)
    whole = model.hidden_states(picture_batch(pixels, a))
    (gradient,) = torch.autograd.grad(whole[0, 0, :3].sum(), pixels)
    assert bool((gradient != 0).all()), "all patches are seen where none is hidden"


@pytest.mark.parametrize("family", FAMILIES)
def test_only_hidden_patches_are_scored(family: str) -> None:
    a = tiny(FAMILIES[family])
    heads = patch_heads(a)
    model = replace(FAMILIES[family], architecture=a, heads=heads).build().initialize(0).eval()
    pixels = torch.randn(1, a.n_channels, 6, 6)
    batch = hidden_batch(a, pixels)
    made = model(batch, return_logits=True).logits["masked"]
    expected = cut_into_patches(pixels, 2)[0][HIDDEN]
    assert torch.allclose(model(batch).loss, (made - expected).abs().mean(), atol=1e-6)
    other = torch.where(_of_hidden(a), pixels + 1, pixels)
    again = replace(batch, features=(Pictures(other),))
    assert torch.equal(model(again, return_logits=True).logits["masked"], made)
    assert not torch.equal(model(again).loss, model(batch).loss)


def _of_hidden(a: VisionArchitecture) -> torch.Tensor:
    """Say of each pixel whether its patch is hidden."""
    return HIDDEN.reshape(3, 3).repeat_interleave(2, 0).repeat_interleave(2, 1)
