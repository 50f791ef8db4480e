"""Pixels -> what a person looks at: PNG files, and pixels from the numbers that networks read."""

import base64
from io import BytesIO

import numpy as np
from jaxtyping import Float, UInt8

from unmask.images.decode import pillow
from unmask.images.preprocessing import ImagePreprocessing, resize_pixels


def to_png(pixels: UInt8[np.ndarray, "h w c"]) -> bytes:
    """Encode pixels of one channel (gray), three, or four (with alpha) as a PNG file."""
    plain = pixels[:, :, 0] if pixels.shape[2] == 1 else pixels
    file = BytesIO()
    pillow().fromarray(np.ascontiguousarray(plain)).save(file, "PNG", optimize=True)
    return file.getvalue()


def to_png_text(pixels: UInt8[np.ndarray, "h w c"]) -> str:
    """Encode pixels as a PNG file in Base64, as pages and JSON hold it."""
    return base64.b64encode(to_png(pixels)).decode("ascii")


def thumbnail(pixels: UInt8[np.ndarray, "h w c"], edge: int) -> UInt8[np.ndarray, "h2 w2 c"]:
    """Make a picture smaller whose longer edge has more pixels than `edge`."""
    height, width, _ = pixels.shape
    longer = max(height, width)
    if longer <= edge:
        return pixels
    size = max(round(height * edge / longer), 1), max(round(width * edge / longer), 1)
    return resize_pixels(pixels, size, "bilinear")


def to_pixels(
    numbers: Float[np.ndarray, "c h w"], preprocessing: ImagePreprocessing
) -> UInt8[np.ndarray, "h w c"]:
    """Return the pixels whose numbers these are, cut off at black and white."""
    values = np.moveaxis(numbers, 0, -1).astype(np.float64)
    if preprocessing.mean is not None and preprocessing.std is not None:
        values = values * np.array(preprocessing.std) + np.array(preprocessing.mean)
    return np.clip(np.rint(values / preprocessing.rescale), 0, 255).astype(np.uint8)
