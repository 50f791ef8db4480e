"""Held-out pictures for the report of a run: hidden patches, and what the network puts there."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from unmask.batch import IGNORE_INDEX, Batch
from unmask.checkpoints.huggingface.read import LoadedModel
from unmask.heads.model import Model
from unmask.heads.vision.patch_reconstruction import (
    PatchReconstruction,
    PatchReconstructionHead,
)
from unmask.images.drawing import to_pixels, to_png_text
from unmask.images.preprocessing import ImagePreprocessing
from unmask.model.layers.embeddings.patches import cut_into_patches, join_patches
from unmask.objectives.inputs.pictures import Pictures
from unmask.reports.report_data import Picture, ReportSample

N_PICTURES = 6
_GRAY = 0.0
"""Number that is drawn in the place of hidden patches."""


@torch.no_grad()
def held_out_pictures(
    loaded_model: LoadedModel, dev_batches: Sequence[Batch], previous: Sequence[ReportSample] = ()
) -> list[Picture]:
    """Reconstruct the hidden patches of a few held-out pictures.

    Args:
        loaded_model: the model; its training mode is restored.
        dev_batches: held-out batches, always the same.
        previous: samples before training, to be merged with the new ones.

    Returns:
        Samples; none of a model that does not reconstruct patches.
    """
    model, how = loaded_model.model, loaded_model.preprocessing
    found = _reconstructing(model)
    if not found or how is None:
        return []
    earlier = {s.name: s for s in previous if isinstance(s, Picture)}
    training = model.training
    model.eval()
    try:
        drawn: list[Picture] = []
        device = next(model.parameters()).device
        for given in dev_batches:
            if len(drawn) < N_PICTURES:
                batch = given.to(device)
                logits = model(batch, return_logits=True).logits[found[0].term].float()
                drawn += _draw(batch, logits, found[0], how, first_number=len(drawn) + 1)
    finally:
        model.train(training)
    return [_merge(sample, earlier.get(sample.name)) for sample in drawn[:N_PICTURES]]


def _merge(sample: Picture, earlier: Picture | None) -> Picture:
    """Show what a picture became before training beside what it is after it."""
    *same, (_, made) = sample.panels
    before = {} if earlier is None else dict(earlier.panels)
    if "before" not in before:
        return replace(sample, panels=(*same, ("before", made)))
    # A run that was stopped at its end has drawn the last panel already.
    return replace(sample, panels=(*same, ("before", before["before"]), ("after", made)))


def _draw(
    batch: Batch,
    predicted: Float[Tensor, "n _"],
    spec: PatchReconstruction,
    how: ImagePreprocessing,
    first_number: int,
) -> list[Picture]:
    views = _views(batch, predicted, spec)

    def png(numbers: Float[Tensor, "c h w"]) -> str:
        return to_png_text(to_pixels(numbers.cpu().numpy(), how))

    return [
        Picture(
            name=f"{first_number + i}",
            panels=tuple((title, png(numbers[i])) for title, numbers in views.items()),
        )
        for i in range(min(len(views["picture"]), N_PICTURES))
    ]


def _views(
    batch: Batch, predicted: Float[Tensor, "n _"], spec: PatchReconstruction
) -> dict[str, Float[Tensor, "b c h w"]]:
    """Return the numbers of pictures, of what is seen of them, and of what is made of them."""
    pictures = batch.feature(Pictures)
    assert pictures is not None
    assert batch.targets is not None
    pixels = pictures.pixels.float()
    size = round((predicted.shape[1] / pixels.shape[1]) ** 0.5)
    patches = cut_into_patches(pixels, size)
    hidden = (batch.targets != IGNORE_INDEX)[:, -patches.shape[1] :]
    if spec.normalize_targets:  # by the mean and variance of the patch, which it does not know
        own = patches[hidden]
        predicted = predicted * own.std(-1, keepdim=True) + own.mean(-1, keepdim=True)
    seen, made = patches.clone(), patches.clone()
    seen[hidden], made[hidden] = _GRAY, predicted
    rows, columns = pixels.shape[2] // size, pixels.shape[3] // size
    return {
        title: join_patches(x, size, rows, columns)
        for title, x in (("picture", patches), ("seen", seen), ("made", made))
    }


@torch.no_grad()
def reconstruct(loaded_model: LoadedModel, batch: Batch) -> list[UInt8[np.ndarray, "h w c"]]:
    """Return the pictures of a batch with what a model puts in the place of hidden patches.

    Empty of a model that does not reconstruct patches.
    """
    model, how = loaded_model.model, loaded_model.preprocessing
    specs = _reconstructing(model)
    if not specs or how is None:
        return []
    logits = model.eval()(batch, return_logits=True).logits[specs[0].term].float()
    made = _views(batch, logits, specs[0])["made"]
    return [to_pixels(numbers.cpu().numpy(), how) for numbers in made]


def _reconstructing(model: Model) -> list[PatchReconstruction]:
    """Return the heads that reconstruct patches."""
    return [h.spec for h in model.heads.values() if isinstance(h, PatchReconstructionHead)]
