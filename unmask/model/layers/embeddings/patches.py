"""Patches of pictures as tokens: how a picture is cut into them, and their embedding.

A picture is cut into squares of p x p pixels, row by row, and each is a token (Dosovitskiy et al.
2021, arXiv:2010.11929, section 3.1). `Batch.inputs` says what stands at each column, as for words:
the class token, a patch, or a hidden one; the pixels travel as the feature `Pictures`.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from unmask.objectives.inputs.pictures import CLASS_ID, DISTILLATION_ID, MASK_ID


def cut_into_patches(
    pixels: Float[Tensor, "b c height width"], size: int
) -> Float[Tensor, "b n _"]:
    """Cut pictures into patches, row by row, each with its numbers in the order c, y, x.

    Raises:
        ValueError: height or width is not a multiple of the size.
    """
    b, c, height, width = pixels.shape
    if height % size or width % size:
        raise ValueError(f"a picture of {height} x {width} is not made of patches of {size}")
    cut = pixels.reshape(b, c, height // size, size, width // size, size)
    return cut.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)


def join_patches(
    patches: Float[Tensor, "b n _"], size: int, rows: int, columns: int
) -> Float[Tensor, "b c height width"]:
    """Put patches together again, the inverse of `cut_into_patches`."""
    b = len(patches)
    cut = patches.reshape(b, rows, columns, -1, size, size)
    return cut.permute(0, 3, 1, 4, 2, 5).reshape(b, -1, rows * size, columns * size)


class PatchEmbedding(nn.Module):
    """A linear map of each patch; special tokens and hidden patches have vectors of their own."""

    def __init__(
        self,
        patch_size: int,
        n_channels: int,
        d: int,
        *,
        distillation: bool,
        mask: bool,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.patch_size, self.n_channels = patch_size, n_channels
        self.projection = nn.Conv2d(n_channels, d, patch_size, stride=patch_size, bias=bias)
        self.class_token = nn.Parameter(torch.empty(1, 1, d))
        self.distillation_token = nn.Parameter(torch.empty(1, 1, d)) if distillation else None
        self.mask_token = nn.Parameter(torch.empty(1, 1, d)) if mask else None

    @property
    def weight(self) -> Tensor:
        """The map of patches [d c p p], whose device and type are the network's."""
        return self.projection.weight

    @property
    def n_special(self) -> int:
        """Number of columns before those of the patches."""
        return 1 if self.distillation_token is None else 2

    def initialize_parameters(self) -> None:
        """Fill the special tokens with zeros (Dosovitskiy et al. 2021, released code)."""
        for token in (self.class_token, self.distillation_token, self.mask_token):
            if token is not None:
                nn.init.zeros_(token)

    def forward(
        self,
        inputs: Int[Tensor, "b t"],
        pixels: Float[Tensor, "b c height width"],
        position_ids: Int[Tensor, "b t"] | None = None,
    ) -> Float[Tensor, "b t d"]:
        """Embed the columns; `position_ids` say which patches they are, by default all in order.

        Raises:
            ValueError: pictures have other channels or another size than the columns say.
        """
        if pixels.shape[1] != self.n_channels:
            raise ValueError(
                f"the network reads pictures of {self.n_channels} channels, got {pixels.shape[1]}"
            )
        patches, special = cut_into_patches(pixels, self.patch_size), self.n_special
        if position_ids is not None:
            index = (position_ids - special).clamp(min=0)[..., None]
            patches = patches.gather(1, index.expand(*index.shape[:2], patches.shape[-1]))
        elif patches.shape[1] + special != inputs.shape[1]:
            raise ValueError(
                f"pictures of {patches.shape[1]} patches for {inputs.shape[1] - special} columns"
            )
        weight = self.projection.weight.flatten(1)
        x = functional.linear(patches.to(weight.dtype), weight, self.projection.bias)
        if position_ids is None:
            x = functional.pad(x, (0, 0, special, 0))
        x = torch.where((inputs == CLASS_ID)[..., None], self.class_token, x)
        if self.distillation_token is not None:
            x = torch.where((inputs == DISTILLATION_ID)[..., None], self.distillation_token, x)
        if self.mask_token is None:
            return x
        return torch.where((inputs == MASK_ID)[..., None], self.mask_token, x)


class PatchDecoderEmbedding(nn.Module):
    """Narrows the states of patches that are seen; a vector stands for each hidden one.

    He et al. 2022, arXiv:2111.06377, section 3, "MAE decoder".
    """

    def __init__(self, d_encoder: int, d: int) -> None:
        super().__init__()
        self.projection = nn.Linear(d_encoder, d)
        self.mask_token = nn.Parameter(torch.empty(1, 1, d))

    @property
    def weight(self) -> Tensor:
        """The map, whose device and type are the network's."""
        return self.projection.weight

    def initialize_parameters(self) -> None:
        """Fill the vector of hidden patches from N(0, 0.02) (released code)."""
        nn.init.normal_(self.mask_token, std=0.02)

    def forward(
        self, inputs: Int[Tensor, "b t"], states: Float[Tensor, "b t d"]
    ) -> Float[Tensor, "b t e"]:
        """Embed all columns."""
        hidden = (inputs == MASK_ID)[..., None]
        x = self.projection(states)
        return torch.where(hidden, self.mask_token.to(x.dtype), x)
