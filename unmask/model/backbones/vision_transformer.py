"""The Vision Transformer: the Transformer's stack over the patches of a picture.

Dosovitskiy et al. 2021, arXiv:2010.11929, section 3.1.
"""

from dataclasses import dataclass, replace
from typing import ClassVar, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor

from unmask.batch import Batch
from unmask.model.backbones.transformer import Architecture, Transformer, position_ids
from unmask.model.layers.embeddings.patches import PatchEmbedding
from unmask.model.positions.grid import GridPositions, GridPositionsModule
from unmask.objectives.inputs.pictures import (
    CLASS_ID,
    DISTILLATION_ID,
    MASK_ID,
    N_PICTURE_IDS,
    PATCH_ID,
    Pictures,
)


@dataclass(frozen=True, kw_only=True)
class VisionArchitecture(Architecture):
    """One stack of Transformer blocks over patches, as a value.

    The number of patches is that of `position`; pictures of other sizes are read, too.
    """

    vocab_size: int = N_PICTURE_IDS
    patch_size: int = 16
    """Height and width of a patch in pixels."""
    n_channels: int = 3
    """Numbers of a pixel: 3 of color, 1 of gray."""
    mask_token: bool = False
    """Whether there is a vector in the place of hidden patches."""
    position: GridPositions = GridPositions()
    positive_fields: ClassVar[tuple[str, ...]] = (
        *Architecture.positive_fields, "patch_size", "n_channels",
    )  # fmt: skip
    size_fields: ClassVar[tuple[str, ...]] = (
        *Architecture.size_fields, "patch_size", "n_channels",
    )  # fmt: skip

    @property
    def reads_pictures(self) -> bool:
        """True: its inputs are patches."""
        return True

    @property
    def hides_patches(self) -> bool:
        """Whether it has a vector in the place of hidden patches."""
        return self.mask_token

    @property
    def has_distillation_token(self) -> bool:
        """Whether a second special token learns from a teacher (DeiT)."""
        return self.position.n_special > 1

    @property
    def image_size(self) -> tuple[int, int]:
        """Height and width, in pixels, of pictures whose positions need no interpolation."""
        return self.position.rows * self.patch_size, self.position.columns * self.patch_size

    @property
    def n_patches(self) -> int:
        """Patches of a picture of this size."""
        return self.position.n_patches

    @property
    def picture_ids(self) -> tuple[int, ...]:
        """Ids that stand for a picture: the special tokens, then its patches."""
        special = (CLASS_ID, DISTILLATION_ID)[: self.position.n_special]
        return (*special, *(PATCH_ID,) * self.n_patches)

    @property
    def patch_width(self) -> int:
        """Numbers of a patch."""
        return self.n_channels * self.patch_size**2

    def with_image_size(self, height: int, width: int) -> "VisionArchitecture":
        """Return the network for pictures of another size.

        Raises:
            ValueError: height or width is not a multiple of the patch size.
        """
        if height % self.patch_size or width % self.patch_size:
            raise ValueError(
                f"a picture of {height} x {width} is not made of patches of {self.patch_size}"
            )
        rows, columns = height // self.patch_size, width // self.patch_size
        return replace(self, position=replace(self.position, rows=rows, columns=columns))

    def build(self) -> "VisionTransformer":
        """Build the network."""
        return VisionTransformer(self)

    def flops(self, length: int) -> float:
        """Count the forward FLOPs per token, the map of patches included."""
        return super().flops(length) + 2 * self.patch_width * self.d_model


class VisionTransformer(Transformer):
    """Pictures [b c height width] -> hidden states [b t d] of special tokens and patches."""

    def __init__(self, a: VisionArchitecture) -> None:
        embedding = PatchEmbedding(
            a.patch_size,
            a.n_channels,
            a.d_embed,
            distillation=a.has_distillation_token,
            mask=a.mask_token,
        )
        super().__init__(a, embedding)

    @property
    def patches(self) -> PatchEmbedding:
        """The embedding of patches."""
        return cast(PatchEmbedding, self.tokens)

    def embed(self, batch: Batch, n_past: int = 0) -> Float[Tensor, "b t d"]:
        """Sum the embeddings of patches and their positions.

        Raises:
            ValueError: the batch has no pictures, or they do not fit the network.
        """
        pictures = batch.feature(Pictures)
        if pictures is None:
            raise ValueError("this network reads pictures, and the batch has none")
        x = self.patches(batch.inputs, pictures.pixels, batch.position_ids)
        height, width = pictures.pixels.shape[2:]
        size, position = self.patches.patch_size, cast(GridPositionsModule, self.position)
        x = x + position.embed_grid(position_ids(batch), height // size, width // size).to(x.dtype)
        return self.dropout(self.embed_norm(x))


def picture_batch(
    pixels: Float[Tensor, "b c height width"],
    architecture: VisionArchitecture,
    hidden: Int[Tensor, "b n"] | None = None,
    labels: Tensor | None = None,
) -> Batch:
    """Return a batch of whole pictures; `hidden` says which patches are (0 or 1).

    Raises:
        ValueError: patches are to be hidden by a network that cannot.
    """
    if hidden is not None and not architecture.hides_patches:
        raise ValueError("mask_token is false: this network has no vector for hidden patches")
    size, (height, width) = architecture.patch_size, pixels.shape[2:]
    n, b = (height // size) * (width // size), len(pixels)
    ids = torch.full((b, n), PATCH_ID, device=pixels.device)
    if hidden is not None:
        ids = torch.where(hidden.bool(), MASK_ID, ids)
    special = (CLASS_ID, DISTILLATION_ID)[: architecture.position.n_special]
    first = torch.tensor(special, device=pixels.device).expand(b, -1)
    return Batch(inputs=torch.cat((first, ids), 1), labels=labels, features=(Pictures(pixels),))
