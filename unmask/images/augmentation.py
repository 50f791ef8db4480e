"""Augmentation: parts, shifts and mirror images of training pictures, drawn without a state.

Example `i` of epoch `e` is drawn with a generator seeded by `(seed, e, i)`: neither the order of
the examples nor the number of workers changes what is drawn.
"""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import UInt8

from unmask.config import check_number_fields, check_word
from unmask.images.preprocessing import ImagePreprocessing, check_channels, resize_pixels

_MAX_PADDING = 2**10
_ATTEMPTS = 10
"""Draws of a part that fits, as in torchvision's `RandomResizedCrop`."""


@dataclass(frozen=True, kw_only=True)
class RandomResizedCrop:
    """A part of random area and proportions, resized to what the network reads.

    Szegedy et al. 2015 (arXiv:1409.4842), section 6: the area is uniform between 8 % and 100 % of
    the picture's, the aspect ratio (width to height) is between 3/4 and 4/3, here uniform in its
    logarithm, so that both directions are alike. Where no drawn part fits, the largest part in the
    center that has allowed proportions is taken.
    """

    scale: tuple[float, float] = (0.08, 1.0)
    """Least and largest share of the area."""
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    """Least and largest width divided by height."""

    def __post_init__(self) -> None:
        for name, (low, high) in (("scale", self.scale), ("ratio", self.ratio)):
            if not 0 < low <= high < math.inf:
                raise ValueError(f"{name} must be two rising numbers above 0, got {[low, high]}")
        if self.scale[1] > 1:
            raise ValueError(f"scale must be at most 1, got {list(self.scale)}")

    def box(self, height: int, width: int, rng: np.random.Generator) -> tuple[int, int, int, int]:
        """Draw a part: its left, top, right and bottom edge."""
        low, high = (math.log(one) for one in self.ratio)
        for _ in range(_ATTEMPTS):
            area = height * width * rng.uniform(*self.scale)
            ratio = math.exp(rng.uniform(low, high))
            w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
            if 0 < w <= width and 0 < h <= height:
                left = int(rng.integers(width - w + 1))
                top = int(rng.integers(height - h + 1))
                return left, top, left + w, top + h
        w = max(1, min(width, round(height * self.ratio[1])))
        h = max(1, min(height, round(width / self.ratio[0])))
        left, top = (width - w) // 2, (height - h) // 2
        return left, top, left + w, top + h

    def apply(
        self,
        picture: UInt8[np.ndarray, "h w c"],
        preprocessing: ImagePreprocessing,
        rng: np.random.Generator,
    ) -> UInt8[np.ndarray, "h2 w2 c"]:
        """Return a part of a picture in the size that the network reads.

        Raises:
            ValueError: preprocessing has no fixed size.
        """
        if preprocessing.size is None:
            raise ValueError(
                "RandomResizedCrop needs a size: crop, or resize of [height, width], got "
                f"{preprocessing.resize}"
            )
        box = self.box(picture.shape[0], picture.shape[1], rng)
        return resize_pixels(picture, preprocessing.size, preprocessing.resampling, box)


@dataclass(frozen=True, kw_only=True)
class PadAndCrop:
    """A shift by at most `padding` pixels in each direction (He et al. 2015, 1512.03385, sec. 4.2).

    The preprocessed picture is surrounded by `padding` pixels, and a part of its size is cut out
    at random.
    """

    padding: int = 4
    fill: Literal["zeros", "reflect"] = "zeros"
    """Black, or the picture mirrored at its edges."""

    def __post_init__(self) -> None:
        check_number_fields(self)
        check_word("fill", self.fill, Literal["zeros", "reflect"])
        if not 1 <= self.padding <= _MAX_PADDING:
            raise ValueError(f"padding must be 1 to {_MAX_PADDING} pixels, got {self.padding}")

    def apply(
        self,
        picture: UInt8[np.ndarray, "h w c"],
        preprocessing: ImagePreprocessing,
        rng: np.random.Generator,
    ) -> UInt8[np.ndarray, "h2 w2 c"]:
        """Return a preprocessed picture, shifted."""
        pixels, n = preprocessing.pixels(picture), self.padding
        width = ((n, n), (n, n), (0, 0))
        padded = (
            np.pad(pixels, width, mode="reflect")
            if self.fill == "reflect"
            else np.pad(pixels, width)
        )
        top, left = rng.integers(2 * n + 1, size=2)
        return padded[top : top + pixels.shape[0], left : left + pixels.shape[1]]


@dataclass(frozen=True, kw_only=True)
class ImageAugmentation:
    """What training pictures are changed by. Default: mirrored with probability 1/2."""

    crop: RandomResizedCrop | PadAndCrop | None = None
    flip: float = 0.5
    """Probability with which a picture is mirrored, left for right."""

    def __post_init__(self) -> None:
        check_number_fields(self)
        if not 0 <= self.flip <= 1:
            raise ValueError(f"flip must be 0 to 1, got {self.flip}")

    def pixels(
        self,
        picture: UInt8[np.ndarray, "h w c"],
        preprocessing: ImagePreprocessing,
        rng: np.random.Generator,
    ) -> UInt8[np.ndarray, "h2 w2 c"]:
        """Return a picture for training, in the size that the network reads.

        Args:
            picture: decoded.
            preprocessing: size and interpolation.
            rng: generator of the example, seeded by (seed, epoch, index).

        Raises:
            ValueError: as of `ImagePreprocessing.pixels`.
        """
        check_channels(picture, preprocessing.channels)
        flip = rng.random() < self.flip  # drawn first: the same whatever the crop
        if self.crop is None:
            pixels = preprocessing.pixels(picture)
        else:
            pixels = self.crop.apply(picture, preprocessing, rng)
        return np.ascontiguousarray(pixels[:, ::-1]) if flip else pixels
