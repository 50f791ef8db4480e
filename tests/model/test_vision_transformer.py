"""Networks of patches: what they read, where patches stand, and what hidden ones give away."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from reference import vit

from unmask.batch import IGNORE_INDEX, Batch, Example, ExampleRows, Tokens
from unmask.checkpoints.huggingface.read import load_folder
from unmask.heads.model import Model
from unmask.heads.vision.distilled_classification import DistilledClassification
from unmask.heads.vision.patch_reconstruction import PatchReconstruction
from unmask.model.backbones.vision_transformer import VisionArchitecture, picture_batch
from unmask.model.layers.embeddings.patches import cut_into_patches, join_patches
from unmask.model.positions.grid import GridPositions
from unmask.objectives.inputs.pictures import (
    CLASS_ID,
    MASK_ID,
    MASKED_PATCHES,
    PATCH_ID,
    PictureLabels,
    Pictures,
    picture_special_ids,
)
from unmask.zoo.catalogue import MODELS

TINY = VisionArchitecture(
    d_model=16, n_layers=2, n_heads=2, d_ff=32, patch_size=4, position=GridPositions(3, 3),
    mask_token=True, dropout=0.0, attention_dropout=0.0,
)  # fmt: skip


def pixels(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def built(a: VisionArchitecture = TINY, **heads) -> Model:
    model = Model(a, heads).eval()
    torch.manual_seed(0)
    for p in model.parameters():
        torch.nn.init.normal_(p, std=0.3)
    return model


def test_patches_are_cut_row_by_row_and_joined_again() -> None:
    x = pixels(2, 3, 8, 12)
    patches = cut_into_patches(x, 4)
    assert patches.shape == (2, 6, 48)
    assert torch.equal(patches[0, 4], x[0, :, 4:8, 4:8].flatten())
    assert torch.equal(join_patches(patches, 4, 2, 3), x)
    with pytest.raises(ValueError, match="8 x 12 is not made of patches of 5"):
        cut_into_patches(x, 5)


@torch.no_grad()
def test_pictures_of_another_size_equal_the_reference(tmp_path) -> None:
    reference = vit()
    reference.save_pretrained(tmp_path)
    loaded = load_folder(tmp_path)
    for height, width in ((24, 24), (40, 40), (16, 48)):
        x = pixels(2, 3, height, width)
        theirs = reference(pixel_values=x, interpolate_pos_encoding=True).logits
        batch = picture_batch(x, loaded.preset.architecture)
        ours = loaded.model(batch, return_logits=True).logits["label"]
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


def test_hidden_patches_give_nothing_away() -> None:
    model, x = built(), pixels(1, 3, 12, 12).requires_grad_(True)
    hidden = torch.tensor([[0, 1, 0, 0, 1, 0, 0, 0, 1]])
    model.hidden_states(picture_batch(x, TINY, hidden)).square().sum().backward()
    assert x.grad is not None
    moved = cut_into_patches(x.grad, 4).abs().sum(-1) > 0
    assert torch.equal(moved, hidden == 0)


@torch.no_grad()
def test_some_patches_alone_stand_where_they_stood() -> None:
    """The encoder of a masked autoencoder reads what is left, with its positions."""
    model, x = built(), pixels(2, 3, 12, 12)
    order = torch.tensor([[0, 3, 1, 9], [0, 2, 5, 4]])
    inputs = torch.tensor([[CLASS_ID] + [PATCH_ID] * 3] * 2)
    batch = Batch(inputs=inputs, position_ids=order, features=(Pictures(x),))
    embedded = model.backbone.embed(batch)
    whole = model.backbone.embed(picture_batch(x, TINY))
    expected = torch.stack([row[at] for row, at in zip(whole, order, strict=True)])
    torch.testing.assert_close(embedded, expected)


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (lambda: Batch(inputs=torch.zeros(1, 10, dtype=torch.long)), "the batch has none"),
        (lambda: picture_batch(pixels(1, 1, 12, 12), TINY), "of 3 channels, got 1"),
        (
            lambda: replace(
                picture_batch(pixels(1, 3, 12, 12), TINY),
                inputs=torch.full((1, 5), PATCH_ID),
            ),
            "pictures of 9 patches for 4 columns",
        ),
        (lambda: picture_batch(pixels(1, 3, 10, 12), TINY), "10 x 12 is not made of patches of 4"),
    ],
)
def test_pictures_that_do_not_fit_are_refused(batch, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        built().hidden_states(batch())


def test_pictures_of_a_batch_are_stacked() -> None:
    def example(size: int) -> Example:
        picture = Pictures(np.ones((3, size, size), np.float32))
        ids = np.full(5, PATCH_ID)
        return Example(inputs=ids, targets=ids, features=(picture,))

    assert Pictures.collate(ExampleRows([[example(4)], [example(4)]], 5)).pixels.shape[0] == 2
    with pytest.raises(ValueError, match="must have one size"):
        Pictures.collate(ExampleRows([[example(4)], [example(8)]], 5))
    with pytest.raises(ValueError, match="packing is for texts"):
        Pictures.collate(ExampleRows([[example(4), example(4)]], 10))
    with pytest.raises(ValueError, match="2 pictures for 1 rows"):
        Batch(inputs=torch.zeros(1, 5, dtype=torch.long), features=(Pictures(pixels(2, 3, 4, 4)),))


@torch.no_grad()
@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize("loss", ["l1", "mse"])
def test_reconstruction_is_scored_at_hidden_patches(loss, normalized: bool) -> None:
    head = PatchReconstruction(loss=loss, normalize_targets=normalized)
    model, x = built(patches=head), pixels(2, 3, 12, 12)
    hidden = torch.tensor([[0, 1, 0, 0, 1, 0, 0, 0, 1], [1, 0, 0, 0, 0, 0, 0, 0, 0]])
    batch = picture_batch(x, TINY, hidden)
    targets = torch.where(batch.inputs == MASK_ID, PATCH_ID, IGNORE_INDEX)
    prediction = model(replace(batch, targets=targets), return_logits=True)
    wanted = cut_into_patches(x.double(), 4)[hidden.bool()]
    if normalized:
        wanted = (wanted - wanted.mean(-1, keepdim=True)) / (
            wanted.var(-1, keepdim=True) + 1e-6
        ).sqrt()
    error = prediction.logits["masked"].double() - wanted
    expected = (error.abs() if loss == "l1" else error**2).mean()
    torch.testing.assert_close(prediction.loss.double(), expected, rtol=1e-5, atol=1e-6)
    assert prediction.terms["masked"].count == 4
    assert model.count_targets(replace(batch, targets=targets)) == {"masked": 4}


def test_distilled_classification_averages_two_tokens() -> None:
    a = replace(TINY, position=GridPositions(3, 3, n_special=2))
    model, x = built(a, distilled=DistilledClassification(n_labels=3)), pixels(2, 3, 12, 12)
    batch = picture_batch(x, a, labels=torch.tensor([0, 2]))
    head, hidden = model.heads["distilled"], model.hidden_states(batch)
    both = head.out(hidden[:, 0]), head.distillation(hidden[:, 1])
    logits = model(batch, return_logits=True).logits["label"]
    torch.testing.assert_close(logits, (both[0] + both[1]) / 2)
    cross_entropy = torch.nn.functional.cross_entropy
    expected = sum(cross_entropy(z, torch.tensor([0, 2])) for z in both) / 2
    torch.testing.assert_close(model.train()(batch).loss, expected)
    torch.testing.assert_close(
        model.eval()(batch).loss, cross_entropy(logits, torch.tensor([0, 2]))
    )


@pytest.mark.parametrize(
    ("head", "a", "message"),
    [
        (DistilledClassification(), TINY, "needs a distillation token"),
        (PatchReconstruction(), MODELS["bert-tiny"].architecture, "needs a network that reads"),
        (PatchReconstruction(), replace(TINY, mask_token=False), "needs a vector for hidden"),
    ],
)
def test_heads_of_other_networks_are_refused(head, a, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Model(a, {"head": head})


def test_what_would_read_hidden_patches_is_refused() -> None:
    with pytest.raises(ValueError, match="no vector for hidden patches"):
        picture_batch(
            pixels(1, 3, 12, 12), replace(TINY, mask_token=False), torch.ones(1, 9).long()
        )
    model, batch = built(patches=PatchReconstruction()), picture_batch(pixels(1, 3, 12, 12), TINY)
    order = torch.arange(10)[None].flip(1)
    asked = replace(batch, targets=torch.full((1, 10), PATCH_ID), position_ids=order)
    with pytest.raises(ValueError, match="all patches of a picture, in order"):
        model(asked)


def test_more_columns_than_positions_are_refused() -> None:
    table = built().backbone.position
    with pytest.raises(ValueError, match="11 columns are more than the model's 10 positions"):
        table.embed(torch.arange(11)[None])


def test_objectives_of_words_hide_patches() -> None:
    special, text = picture_special_ids(), Tokens(np.full(9, PATCH_ID), np.zeros(9, np.uint8))
    example = MASKED_PATCHES(text, special, np.random.default_rng(0))
    assert example.inputs[0] == CLASS_ID
    hidden = example.inputs == MASK_ID
    assert hidden.sum() == 6  # 60 % of ten, the class token counted
    assert np.array_equal(hidden, example.targets != IGNORE_INDEX)
    whole = PictureLabels()(text, special, np.random.default_rng(0))
    assert whole.inputs.tolist() == [CLASS_ID] + [PATCH_ID] * 9
    assert (whole.targets == IGNORE_INDEX).all()
    assert PictureLabels().max_example_length(np.array([9]), special).tolist() == [10]
