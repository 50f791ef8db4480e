"""The Vision Transformer: the Transformer's stack over the patches of a picture.

Dosovitskiy et al. 2021, arXiv:2010.11929, section 3.1.
"""

from dataclasses import dataclass, replace
from dataclasses import fields as dataclass_fields
from typing import ClassVar, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from unmask.batch import Batch, Visibility
from unmask.model.backbones.transformer import Architecture, Transformer, position_ids
from unmask.model.cache import Cache
from unmask.model.layers.attention.query_stream import QueryStream
from unmask.model.layers.embeddings.patches import PatchEmbedding
from unmask.model.positions.grid import GridPositions, GridPositionsModule
from unmask.model.positions.grid_sinusoidal import GridSinusoidal
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
    patch_bias: bool = True
    """Whether the map of patches has a bias."""
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
    def encodes_seen_alone(self) -> bool:
        """Whether hidden patches are no tokens of the encoder."""
        return False

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
            bias=a.patch_bias,
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


_FIXED_POSITIONS = GridSinusoidal()


@dataclass(frozen=True, kw_only=True)
class PatchDecoder:
    """The size of the network that reconstructs patches from the encoded ones."""

    d_model: int = 512
    n_layers: int = 8
    n_heads: int = 16
    d_ff: int = 2048

    def __post_init__(self) -> None:
        for name in ("d_model", "n_layers", "n_heads", "d_ff"):
            if getattr(self, name) < 1:
                raise ValueError(f"decoder.{name} must be at least 1, got {getattr(self, name)}")


@dataclass(frozen=True, kw_only=True)
class MaskedAutoencoder(VisionArchitecture):
    """An encoder of the patches that are seen alone; a decoder, as a head, has them all.

    He et al. 2022, arXiv:2111.06377, section 3.
    """

    position: GridSinusoidal = _FIXED_POSITIONS
    decoder: PatchDecoder = PatchDecoder()
    normalize_targets: bool = True
    """Whether each patch to reconstruct is standardized by its own mean and variance (table 1d)."""

    @property
    def encodes_seen_alone(self) -> bool:
        """True: a decoder reads the vector of hidden patches."""
        return True

    @property
    def hides_patches(self) -> bool:
        """True: hidden patches are left out."""
        return True

    def decoder_architecture(self) -> VisionArchitecture:
        """Return the architecture of the decoder, over all patches."""
        own = self.decoder
        fields = {f.name: getattr(self, f.name) for f in dataclass_fields(VisionArchitecture)}
        changes = {f.name: getattr(own, f.name) for f in dataclass_fields(PatchDecoder)}
        return VisionArchitecture(**fields | changes)

    def build(self) -> "VisiblePatchesTransformer":
        """Build the encoder."""
        return VisiblePatchesTransformer(self)


class VisiblePatchesTransformer(VisionTransformer):
    """Encodes special tokens and the patches that are seen; columns of hidden ones are zeros."""

    def forward(
        self,
        batch: Batch,
        cache: Cache | None = None,
        encoder_hidden_states: Float[Tensor, "b s d"] | None = None,
        encoder_visibility: Visibility | None = None,
        query_stream: QueryStream | None = None,
    ) -> Float[Tensor, "b n _"]:
        """Run the stack over the columns that are seen."""
        rest = cache, encoder_hidden_states, encoder_visibility, query_stream
        hidden = batch.inputs == MASK_ID
        if not bool(hidden.any()):
            return super().forward(batch, *rest)
        n_seen = (~hidden).sum(1)
        columns = hidden.long().argsort(dim=1, stable=True)[:, : int(n_seen.max())]
        is_padding = hidden.gather(1, columns)
        x = super().forward(_some_columns(batch, columns, is_padding), *rest)
        x = x.masked_fill(is_padding[..., None], 0)
        out = x.new_zeros(*batch.inputs.shape, x.shape[-1])
        return out.scatter(1, columns[..., None].expand_as(x), x)


def _some_columns(
    batch: Batch, columns: Int[Tensor, "b n"], is_padding: Bool[Tensor, "b n"]
) -> Batch:
    """Return some columns of each row of pictures; those of padding are seen by none."""
    places = position_ids(batch).expand_as(batch.inputs).gather(1, columns)
    document = -is_padding.long() if bool(is_padding.any()) else None
    return Batch(
        inputs=batch.inputs.gather(1, columns),
        position_ids=places,
        visibility=Visibility(document=document),
        features=batch.features,
    )


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
