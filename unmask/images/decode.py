"""The bytes of a picture -> uint8 pixels [h w c], whatever the file stores.

JPEG, PNG, GIF, BMP, WEBP, TIFF and PPM are read, by Pillow; no other format is tried, since some of
those that it knows run programs. Pixels become 8 bits RGB or gray:

- The orientation in the EXIF data is applied, so that the picture stands as it was taken.
- Transparency (an alpha channel, a transparent color or palette entry) is composed on white.
- 16-bit gray is scaled: 65,535 becomes 255. Palettes, 1 bit, CMYK and YCbCr are converted.
- Color profiles are not applied. Of an animation, or of several pages, the first picture is read.

What cannot be decoded as a whole is refused: nothing is filled in.
"""

import threading
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from io import BytesIO
from types import ModuleType
from typing import TYPE_CHECKING, Literal

import numpy as np
from jaxtyping import Shaped, UInt8

from unmask.files import parser_errors_as_value_error
from unmask.images.records import MAX_ENCODED_BYTES, ImageData, ImageRecord

if TYPE_CHECKING:
    from PIL import Image

FORMATS = ("JPEG", "PNG", "GIF", "BMP", "WEBP", "TIFF", "PPM")
"""Formats that are read, by Pillow's names."""
MAX_PIXELS = 2**26
"""Pixels of the largest picture, 8192 x 8192: as RGB it takes 200 MB."""
MIN_EDGE = 2
"""Pixels of the shortest edge: a picture of a single row or pixel has no content to learn."""

Channels = Literal[1, 3]
"""Gray, or red, green and blue."""

_EXIF_ORIENTATION = 0x0112
_MODES_OF_16_BITS = ("I;16", "I;16L", "I;16B", "I;16N")
_PILLOW_ERRORS = (
    OSError, SyntaxError, KeyError, IndexError, TypeError, AttributeError, AssertionError,
    RuntimeError,
)  # fmt: skip
"""What Pillow raises of damaged pictures besides what parsers do."""
_BAD_SHOWN = 3
_OTHER_KINDS = (
    (b"%PDF", "PDF"), (b"%!PS", "PostScript"), (b"PK\x03\x04", "a zip archive"),
    (b"\x1f\x8b", "gzip"), (b"<svg", "SVG"), (b"<?xml", "XML"), (b"<!DOCTYPE", "a web page"),
    (b"<html", "a web page"), (b"\0\0\0\x0cjP", "JPEG 2000"),
)  # fmt: skip

_opening = threading.Lock()
"""Held while a picture's head is read: filters of warnings are those of the whole process."""


@dataclass
class DecodeSummary:
    """What was decoded, and what was left out or not read whole."""

    n_decoded: int = 0
    n_first_frames: int = 0
    """Animations, and files of several pages, of which the first picture was read."""
    n_bad: int = 0
    """Pictures that were left out."""
    bad: list[str] = field(default_factory=list[str])
    """What is wrong with the first of those."""

    def add_bad(self, error: Exception) -> None:
        """Count a picture that is left out."""
        self.n_bad += 1
        if len(self.bad) < _BAD_SHOWN:
            self.bad.append(str(error))

    def notes(self) -> list[str]:
        """Return a line for each thing that is to be told."""
        lines: list[str] = []
        if self.n_bad:
            more = f"; and {self.n_bad - len(self.bad)} more" if self.n_bad > len(self.bad) else ""
            lines.append(
                f"left out of {self.n_bad + self.n_decoded:,} pictures: {self.n_bad:,}, "
                f"{'; '.join(self.bad)}{more}"
            )
        if self.n_first_frames:
            lines.append(
                f"{self.n_first_frames:,} animations or files of several pages: the first picture "
                "of each is read"
            )
        return lines


def decode_images(
    records: Iterable[ImageRecord],
    *,
    channels: Channels = 3,
    skip_bad: bool = False,
    summary: DecodeSummary | None = None,
) -> Iterator[tuple[ImageRecord, UInt8[np.ndarray, "h w c"]]]:
    """Read and decode pictures, one at a time.

    Args:
        records: of the pictures.
        channels: 3 for RGB, 1 for gray.
        skip_bad: leave out those that cannot be read or decoded.
        summary: to which all are added.

    Raises:
        ValueError: a picture cannot be decoded, or with `skip_bad` none can.
        FileNotFoundError: one is missing, and `skip_bad` is False.
        ImportError: Pillow is not installed.
    """
    summary = DecodeSummary() if summary is None else summary
    for record in records:
        try:
            pixels = decode_image(
                record.load(), record.location, channels=channels, summary=summary
            )
        except (ValueError, OSError) as error:
            if not skip_bad:
                raise
            summary.add_bad(error)
            continue
        yield record, pixels
    if summary.n_bad and not summary.n_decoded:
        raise ValueError(
            f"none of {summary.n_bad:,} pictures can be read; the first: {summary.bad[0]}"
        )


def decode_image(
    data: ImageData,
    location: str,
    *,
    channels: Channels = 3,
    summary: DecodeSummary | None = None,
) -> UInt8[np.ndarray, "h w c"]:
    """Decode a picture, or convert one that is pixels already.

    Args:
        data: a file's bytes, or pixels [h w], [h w 1], [h w 3] or, with alpha, [h w 4].
        location: its name, for messages.
        channels: 3 for RGB, 1 for gray (ITU-R 601-2 luma).
        summary: to which it is added.

    Raises:
        ValueError: it is empty, truncated, damaged, of another format, larger than `MAX_PIXELS`,
            smaller than `MIN_EDGE`, or its numbers have no known range (32 bits).
        ImportError: Pillow is not installed.
    """
    if channels not in (1, 3):
        raise ValueError(f"channels must be 1 or 3, got {channels!r}")
    if isinstance(data, bytes):
        pixels, is_first = _decode_bytes(data, location, channels)
    else:
        pixels, is_first = _convert_array(data, location, channels), False
    if summary is not None:
        summary.n_decoded += 1
        summary.n_first_frames += is_first
    return pixels


def pillow() -> ModuleType:
    """Import Pillow.

    Raises:
        ImportError: it is not installed.
    """
    try:
        from PIL import Image
    except ModuleNotFoundError:
        raise ImportError(
            'pictures need Pillow: pip install "unmask[images]"', name="PIL"
        ) from None
    return Image


def check_size(height: int, width: int, location: str) -> None:
    """Check the declared size of a picture.

    Raises:
        ValueError: it is too small or too large.
    """
    if height * width > MAX_PIXELS:
        raise ValueError(
            f"{location}: {width:,} x {height:,} pixels, of which at most {MAX_PIXELS:,} are "
            "decoded; make it smaller"
        )
    if min(height, width) < MIN_EDGE:
        raise ValueError(
            f"{location}: {width} x {height} pixels, must be at least {MIN_EDGE} x {MIN_EDGE}"
        )


# Files


def _decode_bytes(
    data: bytes, location: str, channels: Channels
) -> tuple[UInt8[np.ndarray, "h w c"], bool]:
    """Decode a file; say whether there are more pictures in it."""
    pillow()
    if not data:
        raise ValueError(f"{location}: empty: it has no bytes")
    if len(data) > MAX_ENCODED_BYTES:
        raise ValueError(
            f"{location}: has {len(data):,} bytes, of which at most {MAX_ENCODED_BYTES:,} are read"
        )
    image = _open(data, location)
    check_size(image.height, image.width, location)
    is_first = image.format != "MPO" and bool(getattr(image, "is_animated", False))
    with parser_errors_as_value_error(
        f"{location}: truncated or damaged {image.format}", *_PILLOW_ERRORS
    ):
        image.load()
    if image.mode in ("F", "I") and image.format != "PPM":
        raise ValueError(
            f"{location}: pixels of 32 bits ({image.format}, mode {image.mode}) have no known "
            "range; convert it to 8 or 16 bits"
        )
    with parser_errors_as_value_error(
        f"{location}: cannot be converted from {image.mode}", *_PILLOW_ERRORS
    ):
        pixels = _to_8_bits(image, channels)
    return np.ascontiguousarray(_upright(pixels, _orientation(image))), is_first


def _open(data: bytes, location: str) -> "Image.Image":
    """Read the head of a picture.

    Raises:
        ValueError: it is of no format that is read, or damaged, or declares too many pixels.
    """
    from PIL import Image, UnidentifiedImageError

    too_large = (Image.DecompressionBombError, Image.DecompressionBombWarning)
    with _opening, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        try:
            with parser_errors_as_value_error(f"{location}: damaged", KeyError, AttributeError):
                return Image.open(BytesIO(data), formats=FORMATS)
        except too_large as error:
            raise ValueError(
                f"{location}: declares more pixels than the {MAX_PIXELS:,} that are decoded "
                f"({' '.join(str(error).split())})"
            ) from None
        except (UnidentifiedImageError, OSError, SyntaxError):
            raise ValueError(
                f"{location}: damaged, or in no format that is read ({', '.join(FORMATS)}): "
                f"{_describe_start(data)}"
            ) from None


def _describe_start(data: bytes) -> str:
    start = data[:64].lstrip()
    kind = next((kind for mark, kind in _OTHER_KINDS if start.startswith(mark)), None)
    if data[4:8] == b"ftyp":
        kind = "AVIF" if b"avif" in data[:32] else "HEIC or video"
    return f"it is {kind}" if kind else f"it begins with {data[:12]!r}"


def _to_8_bits(image: "Image.Image", channels: Channels) -> UInt8[np.ndarray, "h w c"]:
    """Return the pixels of a loaded picture as RGB or gray."""
    if image.mode in _MODES_OF_16_BITS or image.mode == "I":
        gray = _scale_16_bits(np.asarray(image), image.info.get("transparency"))
        return np.repeat(gray[:, :, None], channels, axis=2)
    if image.has_transparency_data:
        from PIL import Image

        layer = image.convert("RGBA")
        white = Image.new("RGBA", layer.size, (255, 255, 255, 255))
        image = Image.alpha_composite(white, layer).convert("RGB")
    image = image.convert("RGB" if channels == 3 else "L")
    return np.asarray(image).reshape(image.height, image.width, channels)


def _scale_16_bits(
    values: Shaped[np.ndarray, "h w"], transparent: object
) -> UInt8[np.ndarray, "h w"]:
    """Scale 0 to 65,535 to 0 to 255, rounded; a transparent gray becomes white."""
    wide = values.astype(np.int64)
    if wide.min(initial=0) < 0 or wide.max(initial=0) > 65535:
        raise ValueError(f"values from {wide.min()} to {wide.max()}, must be 0 to 65535")
    gray = ((wide * 255 + 32767) // 65535).astype(np.uint8)
    if isinstance(transparent, int):
        gray[wide == transparent] = 255
    return gray


def _orientation(image: "Image.Image") -> int:
    """Return the EXIF orientation, 1 to 8; 1, upright, where there is none that can be read.

    A picture with damaged EXIF data is whole: every viewer shows it as it is stored.
    """
    try:
        found = image.getexif().get(_EXIF_ORIENTATION, 1)
    except (ValueError, *_PILLOW_ERRORS, EOFError):
        return 1
    return found if isinstance(found, int) and 1 <= found <= 8 else 1


def _upright(pixels: UInt8[np.ndarray, "h w c"], orientation: int) -> UInt8[np.ndarray, "h2 w2 c"]:
    """Turn and flip a picture as its orientation says (Exif 2.32, section 4.6.4, tag 0x0112)."""
    if orientation in (5, 6, 7, 8):
        pixels = pixels.swapaxes(0, 1)
    if orientation in (3, 4, 7, 8):
        pixels = pixels[::-1]
    if orientation in (2, 3, 6, 7):
        pixels = pixels[:, ::-1]
    return pixels


# Arrays


def _convert_array(
    pixels: Shaped[np.ndarray, "..."], location: str, channels: Channels
) -> UInt8[np.ndarray, "h w c"]:
    """Return pixels as RGB or gray."""
    if pixels.dtype != np.uint8 or pixels.ndim not in (2, 3):
        raise ValueError(
            f"{location}: pixels must be uint8 [h w] or [h w c], got {pixels.dtype} {pixels.shape}"
        )
    if pixels.ndim == 2:
        pixels = pixels[:, :, None]
    height, width, depth = pixels.shape
    if depth not in (1, 3, 4):
        raise ValueError(f"{location}: pixels must have 1, 3 or 4 channels, got {depth}")
    check_size(height, width, location)
    if depth == 4:
        alpha = pixels[:, :, 3:].astype(np.uint32)
        mixed = pixels[:, :, :3] * alpha + 255 * (255 - alpha)
        pixels = ((mixed + 127) // 255).astype(np.uint8)
    if pixels.shape[2] == 1:
        return np.repeat(pixels, channels, axis=2)
    return pixels.copy() if channels == 3 else _luma(pixels)


def _luma(pixels: UInt8[np.ndarray, "h w 3"]) -> UInt8[np.ndarray, "h w 1"]:
    """Return gray, as Pillow's `convert("L")` has it: 0.299 R + 0.587 G + 0.114 B in 16 bits."""
    weights = np.array([19595, 38470, 7471], np.uint32)
    return ((pixels @ weights + 0x8000) >> 16).astype(np.uint8)[:, :, None]
