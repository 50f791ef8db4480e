"""Decoding: every kind of pixels becomes 8 bits as it should, and the rest is refused in a line."""

import builtins
import io
import struct
import sys
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from making_pictures import encoded, gradient
from PIL import Image, ImageOps

from unmask.images.decode import DecodeSummary, decode_image, decode_images
from unmask.images.records import ImageRecord

WHERE = "a.png"


def test_lossless_formats_give_their_pixels() -> None:
    pixels = gradient()
    for kind in ("PNG", "BMP", "TIFF", "PPM"):
        assert np.array_equal(decode_image(encoded(pixels, kind), WHERE), pixels), kind
    webp = encoded(pixels, "WEBP", lossless=True)
    assert np.array_equal(decode_image(webp, WHERE), pixels)
    assert decode_image(encoded(pixels, "JPEG"), WHERE).shape == pixels.shape
    decoded = decode_image(encoded(pixels), WHERE)
    assert decoded.dtype == np.uint8
    assert decoded.flags.c_contiguous


def test_gray_is_asked_for_or_repeated() -> None:
    pixels = gradient()
    gray = np.asarray(Image.fromarray(pixels).convert("L"))
    assert np.array_equal(decode_image(encoded(pixels), WHERE, channels=1)[:, :, 0], gray)
    assert np.array_equal(decode_image(pixels, WHERE, channels=1)[:, :, 0], gray)
    for data in (encoded(gray), gray, gray[:, :, None]):
        assert np.array_equal(decode_image(data, WHERE), np.repeat(gray[:, :, None], 3, 2))


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "TIFF", "WEBP"])
@pytest.mark.parametrize("orientation", range(9))
def test_orientation_is_that_of_pillow(orientation: int, kind: str) -> None:
    image = Image.fromarray(gradient())
    exif = Image.Exif()
    exif[0x0112] = orientation
    options: dict[str, Any] = {"lossless": True} if kind == "WEBP" else {}
    data = encoded(image, kind, exif=exif, **options)
    plain = Image.open(io.BytesIO(encoded(image, kind, **options)))
    plain.load()
    plain.getexif()[0x0112] = orientation
    assert np.array_equal(decode_image(data, WHERE), np.asarray(ImageOps.exif_transpose(plain)))


def test_damaged_exif_does_not_turn() -> None:
    data = encoded(gradient(), "JPEG", exif=b"Exif\0\0MM\0*\xff\xff\xff\xff")
    assert decode_image(data, WHERE).shape == (6, 8, 3)


@pytest.mark.parametrize("big_endian", [False, True])
def test_16_bit_gray_is_scaled(big_endian: bool) -> None:
    values = np.array([[0, 128, 129, 256], [257, 32896, 65407, 65535]], np.uint16)
    known = [[0, 0, 1, 1], [1, 128, 255, 255]]  # round(v / 257); 65407 / 257 is 254.5019
    files = [encoded(Image.fromarray(values)), encoded(Image.fromarray(values), "TIFF")]
    if big_endian:
        image = Image.frombytes("I;16B", (4, 2), values.astype(">u2").tobytes())
        files = [encoded(image, "TIFF")]
    files.append(b"P5 4 2 65535 " + values.astype(">u2").tobytes())
    for data in files:
        assert decode_image(data, WHERE, channels=1)[:, :, 0].tolist() == known
        assert decode_image(data, WHERE)[:, :, 2].tolist() == known


def png(depth: int, color: int, row: bytes, more: bytes = b"") -> bytes:
    """Make a PNG file of 2 x 2 equal rows by hand; `more` stands before the pixels."""
    head = struct.pack(">IIBBBBB", 2, 2, depth, color, 0, 0, 0)
    data = zlib.compress((b"\0" + row) * 2)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", head)
        + more
        + chunk(b"IDAT", data)
        + chunk(b"IEND", b"")
    )


def chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def test_16_bit_colors_and_transparency() -> None:
    rgb = png(16, 2, struct.pack(">6H", 0, 65535, 0x8000, 1, 2, 3))
    assert decode_image(rgb, WHERE)[0].tolist() == [[0, 255, 128], [0, 0, 0]]
    gray = png(16, 0, struct.pack(">2H", 1000, 30000), chunk(b"tRNS", struct.pack(">H", 1000)))
    assert decode_image(gray, WHERE, channels=1)[0].tolist() == [[255], [117]]
    with_alpha = png(16, 4, struct.pack(">4H", 0, 65535, 0, 0))
    assert decode_image(with_alpha, WHERE, channels=1)[0].tolist() == [[0], [255]]


def test_alpha_is_composed_on_white() -> None:
    rgba = np.array([[[10, 20, 30, 255], [0, 100, 200, 0]], [[0, 100, 200, 51]] * 2], np.uint8)
    known = [[[10, 20, 30], [255, 255, 255]], [[204, 224, 244]] * 2]
    assert decode_image(encoded(rgba), WHERE).tolist() == known
    assert decode_image(encoded(rgba, "WEBP", lossless=True, exact=True), WHERE).tolist() == known
    assert decode_image(rgba, WHERE).tolist() == known
    la = Image.merge("LA", [Image.new("L", (2, 2), 100), Image.new("L", (2, 2), 51)])
    assert (decode_image(encoded(la), WHERE) == 224).all()


def test_palettes_and_their_transparency() -> None:
    image = Image.new("P", (2, 2))
    image.putpalette([255, 0, 0, 0, 0, 255])
    image.putdata([0, 1, 1, 0])
    red, blue, white = [255, 0, 0], [0, 0, 255], [255, 255, 255]
    for kind in ("PNG", "GIF", "BMP", "TIFF"):
        assert decode_image(encoded(image, kind), WHERE).tolist() == [[red, blue], [blue, red]]
    one = encoded(image, "GIF", transparency=1)
    assert decode_image(one, WHERE).tolist() == [[red, white], [white, red]]
    several = encoded(image, "PNG", transparency=bytes((255, 0)))
    assert decode_image(several, WHERE).tolist() == [[red, white], [white, red]]
    half = encoded(image, "PNG", transparency=bytes((255, 51)))
    assert decode_image(half, WHERE)[0].tolist() == [red, [204, 204, 255]]


def test_one_bit_transparent_color_cmyk_and_ycbcr() -> None:
    bits = Image.fromarray(np.array([[True, False], [False, True]]))
    for kind in ("PNG", "TIFF", "PPM"):
        assert decode_image(encoded(bits, kind), WHERE, channels=1).ravel().tolist() == [
            255,
            0,
            0,
            255,
        ]
    color = encoded(Image.new("RGB", (2, 2), (1, 2, 3)), transparency=(1, 2, 3))
    assert (decode_image(color, WHERE) == 255).all()
    cmyk = Image.new("CMYK", (16, 16), (255, 0, 0, 0))
    for kind in ("JPEG", "TIFF"):
        pixel = decode_image(encoded(cmyk, kind), WHERE)[8, 8].astype(int)
        assert np.abs(pixel - [0, 255, 255]).max() <= 3, kind
    ycbcr = Image.new("RGB", (16, 16), (10, 200, 60)).convert("YCbCr")
    pixel = decode_image(encoded(ycbcr, "TIFF"), WHERE)[8, 8].astype(int)
    assert np.abs(pixel - [10, 200, 60]).max() <= 3


def test_first_frame_of_an_animation_is_read_and_counted() -> None:
    frames = [Image.new("RGB", (4, 4), color) for color in ("red", "blue")]
    summary = DecodeSummary()
    for kind in ("GIF", "PNG", "WEBP", "TIFF"):
        options: dict[str, Any] = {"lossless": True} if kind == "WEBP" else {}
        data = encoded(frames[0], kind, save_all=True, append_images=frames[1:], **options)
        assert decode_image(data, WHERE, summary=summary)[0, 0].tolist() == [255, 0, 0], kind
    decode_image(encoded(frames[0]), WHERE, summary=summary)
    assert (summary.n_decoded, summary.n_first_frames) == (5, 4)
    assert summary.notes() == [
        "4 animations or files of several pages: the first picture of each is read"
    ]


def big_png(width: int, height: int) -> bytes:
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", head)
        + chunk(b"IDAT", zlib.compress(b""))
        + chunk(b"IEND", b"")
    )


REFUSED: dict[str, tuple[Callable[[], bytes], str]] = {
    "empty": (lambda: b"", "a.png: empty: it has no bytes"),
    "truncated PNG": (lambda: encoded(gradient(64, 64))[:-3000], "truncated or damaged PNG"),
    "truncated JPEG": (lambda: encoded(gradient(64, 64), "JPEG")[:-900], "damaged JPEG"),
    "text": (lambda: b"this is a text, not a picture", r"it begins with b'this is a te'"),
    "page": (lambda: b"\n<!DOCTYPE html><html>", "it is a web page"),
    "PDF": (lambda: b"%PDF-1.7", "it is PDF"),
    "PostScript": (lambda: b"%!PS-Adobe-3.0 EPSF-3.0\n", "it is PostScript"),
    "HEIC": (lambda: b"\0\0\0\x18ftypheic\0\0\0\0", "it is HEIC"),
    "bomb": (lambda: big_png(20_000, 20_000), "more pixels than the 67,108,864"),
    "large": (lambda: big_png(12_000, 12_000), "more pixels than the 67,108,864"),
    "somewhat large": (lambda: big_png(9000, 8000), "9,000 x 8,000 pixels, of which at most"),
    "a pixel": (lambda: encoded(gradient(1, 1)), "1 x 1 pixels, must be at least 2 x 2"),
    "a row": (lambda: encoded(gradient(1, 9)), "9 x 1 pixels, must be at least 2 x 2"),
    "32 bits": (lambda: encoded(Image.new("I", (4, 4), 9), "TIFF"), r"pixels of 32 bits"),
    "floats": (lambda: encoded(Image.new("F", (4, 4), 0.5), "TIFF"), r"pixels of 32 bits"),
    "other format": (lambda: encoded(gradient(), "TGA"), "in no format that is read"),
    "icon": (lambda: encoded(gradient(16, 16), "ICO"), "in no format that is read"),
}  # fmt: skip


def check_refusal(error: Exception) -> None:
    assert str(error).startswith(f"{WHERE}: ")
    assert "\n" not in str(error)
    assert len(str(error)) < 500


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_picture_is_refused_in_one_line(name: str) -> None:
    make, message = REFUSED[name]
    with pytest.raises(ValueError, match=message) as caught:
        decode_image(make(), WHERE)
    check_refusal(caught.value)


def test_arrays_of_other_shapes_and_types_are_refused() -> None:
    for array in (
        np.zeros((4, 4), np.float32),
        np.zeros(4, np.uint8),
        np.zeros((4, 4, 2), np.uint8),
    ):
        with pytest.raises(ValueError, match=r"^a: pixels must "):
            decode_image(array, "a")
    with pytest.raises(ValueError, match="a: 1 x 4 pixels"):
        decode_image(np.zeros((4, 1), np.uint8), "a")


SAMPLES = [
    encoded(gradient(), "PNG"), encoded(gradient(16, 16), "JPEG"), encoded(gradient(), "GIF"),
    encoded(gradient(), "BMP"), encoded(gradient(), "WEBP"), encoded(gradient(), "TIFF"),
    encoded(gradient(), "TIFF", compression="tiff_lzw"), b"P6 2 2 255 " + bytes(12),
]  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@settings(max_examples=300, deadline=None)
@given(
    data=st.sampled_from(SAMPLES),
    changes=st.lists(st.tuples(st.integers(0, 4000), st.integers(0, 255)), max_size=8),
    length=st.floats(0.3, 1),
)
def test_damaged_file_is_decoded_or_refused_in_one_line(
    data: bytes, changes: list[tuple[int, int]], length: float
) -> None:
    damaged = bytearray(data[: max(1, int(length * len(data)))])
    for at, byte in changes:
        damaged[at % len(damaged)] = byte
    try:
        pixels = decode_image(bytes(damaged), WHERE)
    except ValueError as error:
        check_refusal(error)
    else:
        assert pixels.ndim == 3
        assert pixels.shape[2] == 3


def records() -> list[ImageRecord]:
    good, bad = encoded(gradient()), b"a text"
    files = [good, bad, good, bad, b"", bad, bad]
    return [
        ImageRecord(location=f"z.zip: {i}.png", name=f"{i}.png", load=lambda data=data: data)
        for i, data in enumerate(files)
    ]


def test_bad_pictures_are_refused_or_left_out_and_counted() -> None:
    with pytest.raises(ValueError, match=r"^z.zip: 1.png: damaged, or in no format"):
        list(decode_images(records()))
    summary = DecodeSummary()
    found = list(decode_images(records(), skip_bad=True, summary=summary))
    assert [record.name for record, _ in found] == ["0.png", "2.png"]
    (note,) = summary.notes()
    assert note.startswith("left out of 7 pictures: 5, z.zip: 1.png: ")
    assert note.endswith("z.zip: 4.png: empty: it has no bytes; and 2 more")
    with pytest.raises(ValueError, match=r"none of 2 pictures can be read; the first: z.zip: 1"):
        list(decode_images([records()[1], records()[3]], skip_bad=True))
    assert DecodeSummary().notes() == []


def test_missing_pillow_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def fail(name: str, *more: Any) -> Any:
        if name.split(".")[0] == "PIL":
            raise ModuleNotFoundError(name)
        return real(name, *more)

    for name in [name for name in sys.modules if name.split(".")[0] == "PIL"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(builtins, "__import__", fail)
    with pytest.raises(ImportError, match=r"unmask\[images\]"):
        decode_image(b"", WHERE)
