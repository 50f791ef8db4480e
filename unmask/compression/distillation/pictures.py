"""Teachers of pictures: they read the student's pictures in patches of their own."""

from typing import cast

import torch
from torch import nn

from unmask.batch import Batch
from unmask.checkpoints.huggingface.read import LoadedModel
from unmask.heads.model import Model
from unmask.images.preprocessing import ImagePreprocessing
from unmask.model.backbones.vision_transformer import (
    VisionArchitecture,
    VisionTransformer,
    picture_batch,
)
from unmask.objectives.inputs.pictures import Pictures


def read_as_student(name: str, teacher: LoadedModel, own: ImagePreprocessing) -> None:
    """Make a teacher of pictures read the numbers that its student reads.

    Both see the same picture, changed by the same chance (Touvron et al. 2021, arXiv:2012.12877,
    section 4). The difference between (x - m) / s of both becomes a part of the map of patches.

    Raises:
        ValueError: it reads no pictures, or pictures of another size or other channels.
    """
    theirs = teacher.preprocessing
    if theirs is None or teacher.preset.reads_texts:
        raise ValueError(f"teacher {name}: reads texts, and the student reads pictures")
    if (theirs.size, theirs.channels) != (own.size, own.channels):
        raise ValueError(
            f"teacher {name}: reads pictures of {_size(theirs)}, the student of {_size(own)}"
        )
    if _numbers(theirs) != _numbers(own):
        (rescale, mean, std), (own_rescale, own_mean, own_std) = map(_numbers, (theirs, own))
        ratio = rescale / own_rescale
        scale = torch.tensor(own_std) * ratio / torch.tensor(std)
        shift = (torch.tensor(own_mean) * ratio - torch.tensor(mean)) / torch.tensor(std)
        _fold(cast(VisionTransformer, teacher.model.backbone).patches.projection, scale, shift)


def _numbers(how: ImagePreprocessing) -> tuple[float, tuple[float, ...], tuple[float, ...]]:
    """Return `rescale`, mean and standard deviation of (rescale x - mean) / std."""
    n = how.channels
    return how.rescale or 1.0, how.mean or (0.0,) * n, how.std or (1.0,) * n


def _size(how: ImagePreprocessing) -> str:
    return " x ".join(map(str, (*(how.size or ("any", "any")), how.channels)))


@torch.no_grad()
def _fold(patches: nn.Conv2d, scale: torch.Tensor, shift: torch.Tensor) -> None:
    """Change a map W x + b to W (scale x + shift) + b, by channels."""
    weight = patches.weight
    added = (weight * shift[:, None, None].to(weight)).sum((1, 2, 3))
    if patches.bias is None:
        patches.bias = nn.Parameter(torch.zeros_like(added))
    patches.bias += added
    weight *= scale[:, None, None].to(weight)


def as_teacher_reads(teacher: Model, batch: Batch) -> Batch:
    """Return a student's batch with a teacher's special tokens and patches; texts stay."""
    pictures = batch.feature(Pictures)
    if pictures is None or batch.labels is None:
        return batch
    architecture = cast(VisionArchitecture, teacher.architecture)
    return picture_batch(pictures.pixels, architecture, labels=batch.labels)


def check_same_patches(student: Model, teacher: Model) -> None:
    """Check that layers of two networks of pictures have as many tokens.

    Raises:
        ValueError: they have not.
    """
    own, theirs = (m.architecture.encoder_stack for m in (student, teacher))
    if not (own.reads_pictures and theirs.reads_pictures):
        return
    n, m = (len(cast(VisionArchitecture, a).picture_ids) for a in (own, theirs))
    if n != m:
        raise ValueError(
            f"the student reads a picture as {n} tokens, the teacher as {m}, so that their layers "
            "cannot be compared: give --distill soft or hard"
        )
