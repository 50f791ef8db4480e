"""Pictures as prompts: what an encoder-decoder of pictures reads before it generates a text."""

import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol, cast, runtime_checkable

import numpy as np
from jaxtyping import Float32, Shaped, UInt8

from unmask.generation.decoding.batch import FeaturedPrompt
from unmask.heads.model import Model
from unmask.images.decode import decode_image
from unmask.images.formats.picture_files import read_picture_file
from unmask.images.preprocessing import ImagePreprocessing
from unmask.model.backbones.vision_transformer import VisionArchitecture
from unmask.objectives.inputs.pictures import Pictures


@runtime_checkable
class ConvertibleImage(Protocol):
    """An image of Pillow."""

    @property
    def mode(self) -> str:
        """Its kind of pixels: RGB, RGBA, L, ..."""
        ...

    @property
    def info(self) -> dict[Any, Any]:
        """What its file says beside the pixels."""
        ...

    def convert(self, mode: str) -> Any:
        """Return the same with other pixels."""
        ...


PictureInput = str | Path | bytes | Shaped[np.ndarray, "..."] | ConvertibleImage
"""A picture: its path, the bytes of its file, pixels [h w c], or an image of Pillow."""


def picture_prompts(
    model: Model, pictures: Sequence[Any], preprocessing: ImagePreprocessing
) -> list[FeaturedPrompt]:
    """Return pictures as prompts of a model that describes them.

    Args:
        model: an encoder-decoder whose encoder reads pictures.
        pictures: paths, bytes of files, images of Pillow, or pixels.
        preprocessing: of the model.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a picture cannot be read, or the model does not describe pictures.
    """
    stack = model.architecture.picture_stack
    if stack is None or not model.architecture.is_encoder_decoder:
        raise ValueError("this model does not describe pictures: it writes no text about them")
    prompts: list[FeaturedPrompt] = []
    for i, picture in enumerate(pictures, 1):
        pixels = read_picture(picture, preprocessing, f"picture {i}")
        sized = cast(VisionArchitecture, stack).with_image_size(*pixels.shape[1:])
        prompts.append(
            FeaturedPrompt(
                ids=sized.picture_ids,
                features=(Pictures(pixels),),
                fingerprint=zlib.crc32(pixels.tobytes()),
            )
        )
    return prompts


def read_picture(
    picture: Any, preprocessing: ImagePreprocessing, name: str
) -> Float32[np.ndarray, "c h w"]:
    """Return one picture as a network reads it; `name` is that of one without a path.

    Raises:
        FileNotFoundError: the file is missing.
        ValueError: it cannot be read.
        TypeError: it is no picture.
    """
    if isinstance(picture, str | Path):
        path = Path(picture)
        if not path.is_file():
            raise FileNotFoundError(
                f"{path}: no such picture; this model describes pictures: give their paths"
            )
        return preprocessing.decode(read_picture_file(path), str(path))
    if isinstance(picture, bytes):
        return preprocessing.decode(picture, name)
    if isinstance(picture, ConvertibleImage):
        picture = _pixels_of_image(picture)
    if not isinstance(picture, np.ndarray):
        raise TypeError(
            f"{name} must be a path, the bytes of a file, an image of Pillow or pixels, got "
            f"{type(picture).__name__}"
        )
    return preprocessing(decode_image(picture, name, channels=preprocessing.channels))


def _pixels_of_image(image: ConvertibleImage) -> UInt8[np.ndarray, "h w c"]:
    """Return the pixels of an image of Pillow; transparency stays, and is put on white later."""
    is_transparent = "A" in image.mode or "a" in image.mode or "transparency" in image.info
    return np.asarray(image.convert("RGBA" if is_transparent else "RGB"))
