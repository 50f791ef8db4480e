"""Pixels -> what a network reads: resized, cropped, scaled to numbers and normalized.

The steps and their arithmetic are those of transformers' image processors that compute with Pillow
(`ViTImageProcessor`, `DeiTImageProcessor`, `CLIPImageProcessor`), so that a published model gets
the inputs that it was trained with.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from jaxtyping import Float32, UInt8

from unmask.config import check_number_fields, check_word
from unmask.images.decode import MAX_PIXELS, Channels, decode_image, pillow

Resampling = Literal["bilinear", "bicubic"]
"""How pixels are interpolated: Pillow's filters, which also smooth where a picture shrinks."""

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Of the pixels of ImageNet's training pictures, in RGB (He et al. 2015, arXiv:1512.03385)."""
CLIP_MEAN = (0.48145466, 0.4578275, 0.40821073)
CLIP_STD = (0.26862954, 0.26130258, 0.27577711)
"""Of CLIP's training pictures (Radford et al. 2021, arXiv:2103.00020, released code)."""

MAX_EDGE = 2**14
"""Pixels of an edge to which pictures are resized."""


@dataclass(frozen=True, kw_only=True)
class ImagePreprocessing:
    """How a picture becomes an array. Default: as of ViT (Dosovitskiy et al. 2021, 2010.11929).

    The order is: resize, crop the center, x * `rescale`, (x - `mean`) / `std`.

    Raises:
        ValueError: a value is not one of those allowed.
    """

    resize: tuple[int, int] | int | None = (224, 224)
    """[height, width] to which a picture is squeezed; a number: of its shortest edge, with its
    proportions kept; None: it is not resized."""
    crop: tuple[int, int] | None = None
    """[height, width] that is cut from the center; what is smaller is surrounded by black."""
    resampling: Resampling = "bilinear"
    channels: Channels = 3
    """3 for RGB, 1 for gray."""
    rescale: float = 1 / 255
    """Factor of pixels from 0 to 255."""
    mean: tuple[float, ...] | None = (0.5, 0.5, 0.5)
    """Of each channel; None: numbers are not normalized."""
    std: tuple[float, ...] | None = (0.5, 0.5, 0.5)

    def __post_init__(self) -> None:
        check_number_fields(self)
        check_word("resampling", self.resampling, Resampling)
        check_word("channels", self.channels, Channels)
        edges = self.resize if isinstance(self.resize, tuple) else (self.resize,)
        for name, values in (("resize", edges), ("crop", self.crop or ())):
            for edge in values:
                if edge is not None and not 1 <= edge <= MAX_EDGE:
                    raise ValueError(f"{name} must be 1 to {MAX_EDGE} pixels, got {edge}")
        if self.rescale <= 0:
            raise ValueError(f"rescale must be above 0, got {self.rescale}")
        if (self.mean is None) != (self.std is None):
            raise ValueError("mean and std are given together, or neither is")
        for name, numbers in (("mean", self.mean), ("std", self.std)):
            if numbers is None:
                continue
            if len(numbers) != self.channels or not all(map(math.isfinite, numbers)):
                raise ValueError(
                    f"{name} must be {self.channels} finite numbers, one a channel, got "
                    f"{list(numbers)}"
                )
        if self.std is not None and min(self.std) <= 0:
            raise ValueError(f"std must be above 0, got {list(self.std)}")

    @property
    def size(self) -> tuple[int, int] | None:
        """[height, width] of what the network reads; None: as large as the picture."""
        if self.crop is not None:
            return self.crop
        return self.resize if isinstance(self.resize, tuple) else None

    def pixels(self, picture: UInt8[np.ndarray, "h w c"]) -> UInt8[np.ndarray, "h2 w2 c"]:
        """Resize and crop a picture.

        Raises:
            ValueError: it would become larger than `unmask.images.decode.MAX_PIXELS`, as one does
                that is very wide, or has another number of channels.
        """
        check_channels(picture, self.channels)
        if self.resize is not None:
            height, width, _ = picture.shape
            size = (
                self.resize
                if isinstance(self.resize, tuple)
                else shortest_edge_size(height, width, self.resize)
            )
            picture = resize_pixels(picture, size, self.resampling)
        return picture if self.crop is None else crop_center(picture, self.crop)

    def normalize(
        self, pixels: UInt8[np.ndarray, "*batch h w c"]
    ) -> Float32[np.ndarray, "*batch c h w"]:
        """Scale and normalize pixels, and put channels first."""
        check_channels(pixels, self.channels)
        *batch, height, width, channels = pixels.shape
        out = np.empty((*batch, channels, height, width), np.float32)
        for c, values in enumerate(self.table):
            out[..., c, :, :] = values[pixels[..., c]]
        return out

    def __call__(self, picture: UInt8[np.ndarray, "h w c"]) -> Float32[np.ndarray, "c h2 w2"]:
        """Return a picture as a network reads it.

        Raises:
            ValueError: as of `pixels`.
        """
        return self.normalize(self.pixels(picture))

    def decode(self, data: bytes, location: str) -> Float32[np.ndarray, "c h2 w2"]:
        """Return a file's picture as a network reads it.

        Raises:
            ValueError: as of `unmask.images.decode.decode_image` and `pixels`.
        """
        return self(decode_image(data, location, channels=self.channels))

    @cached_property
    def table(self) -> Float32[np.ndarray, "c 256"]:
        """What each of the 256 values of a channel becomes: rounded as where computed."""
        values = (np.arange(256) * self.rescale).astype(np.float32)
        table = np.repeat(values[None], self.channels, axis=0)
        if self.mean is None or self.std is None:
            return table
        mean, std = (np.array(numbers, np.float32)[:, None] for numbers in (self.mean, self.std))
        return (table - mean) / std


def check_channels(pixels: UInt8[np.ndarray, "*batch h w c"], channels: int) -> None:
    """Check the number of channels of pixels.

    Raises:
        ValueError: there are more or fewer.
    """
    if pixels.shape[-1] != channels:
        raise ValueError(
            f"pixels must have {channels} channels in their last axis, got {pixels.shape}"
        )


def shortest_edge_size(height: int, width: int, edge: int) -> tuple[int, int]:
    """Return the size of a picture whose shortest edge is resized, the longer one rounded down."""
    if height <= width:
        return edge, int(edge * width / height)
    return int(edge * height / width), edge


def resize_pixels(
    picture: UInt8[np.ndarray, "h w c"],
    size: tuple[int, int],
    resampling: Resampling,
    box: tuple[int, int, int, int] | None = None,
) -> UInt8[np.ndarray, "h2 w2 c"]:
    """Resize a picture, or a part of it, with Pillow.

    Args:
        picture: pixels of 1 or 3 channels.
        size: [height, width] of the result.
        resampling: interpolation.
        box: left, top, right and bottom edge of the part.

    Raises:
        ValueError: the result would have more pixels than `MAX_PIXELS`.
    """
    height, width = size
    if height * width > MAX_PIXELS:
        raise ValueError(
            f"a picture of {picture.shape[1]} x {picture.shape[0]} pixels becomes "
            f"{width:,} x {height:,}, more than {MAX_PIXELS:,}"
        )
    if box is None and picture.shape[:2] == size:
        return picture
    module = pillow()
    gray = picture.shape[2] == 1
    image = module.fromarray(picture[:, :, 0] if gray else picture)
    how = {"bilinear": module.Resampling.BILINEAR, "bicubic": module.Resampling.BICUBIC}
    resized = np.asarray(image.resize((width, height), how[resampling], box=box))
    return resized.reshape(height, width, picture.shape[2])


def crop_center(
    picture: UInt8[np.ndarray, "h w c"], size: tuple[int, int]
) -> UInt8[np.ndarray, "h2 w2 c"]:
    """Cut a part from the center of a picture, surrounded by black where the picture is smaller.

    Of an odd difference, the larger half is cut off at the bottom and the right; where black is
    added, the larger half of it is at the top and the left.
    """
    out = np.zeros((*size, picture.shape[2]), np.uint8)
    ours: list[slice] = []
    theirs: list[slice] = []
    for have, want in zip(picture.shape[:2], size, strict=True):
        n = min(have, want)
        start, begin = max(0, (have - want) // 2), max(0, (want - have + 1) // 2)
        ours.append(slice(begin, begin + n))
        theirs.append(slice(start, start + n))
    out[ours[0], ours[1]] = picture[theirs[0], theirs[1]]
    return out
