"""Records of pictures: what is known of one before its bytes are read, and the columns of tables.

A record is light where its picture is a file of a folder or an archive: the bytes are read when
they are asked for. Where pictures lie in a row or an array (Parquet, IDX, .npz), records hold them,
and come one by one.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from jaxtyping import Shaped
from numpy import ndarray

from unmask.text.formats.records import check_text, describe_value, format_names

MAX_ENCODED_BYTES = 2**28
"""Bytes that a picture may have as a file."""
PICTURE_SUFFIXES = (
    ".jpg", ".jpeg", ".png", ".gif", ".bmp", ".webp", ".tif", ".tiff", ".ppm", ".pgm", ".pbm",
    ".pnm",
)  # fmt: skip
"""Endings of files that are pictures, in small letters."""

ImageData = bytes | Shaped[ndarray, "..."]
"""A picture as a file's bytes, or as uint8 pixels: [h w] or [h w c]; others are refused."""

_IMAGE_NAMES = (
    "image", "img", "file_name", "filename", "file", "image_file", "image_path", "path", "picture",
)  # fmt: skip
_LABEL_NAMES = ("label", "labels", "class", "category", "target", "fine_label")
_CAPTION_NAMES = ("caption", "captions", "text", "sentence", "sentences", "description")
_NUMBERED_CAPTION = re.compile(r"(caption|sentence|text)_?\d+")


@dataclass(frozen=True, kw_only=True, eq=False)
class ImageRecord:
    """A picture and what a source says of it."""

    location: str
    """Where it is, for messages: `pictures.zip: cats/1.jpg`."""
    name: str
    """Its name within the source: `cats/1.jpg`, or its row."""
    load: Callable[[], ImageData]
    """Reads it; raises ValueError or OSError where it is missing, damaged or too large."""
    label: str | None = None
    captions: tuple[str, ...] = ()
    columns: Mapping[str, str] = field(default_factory=dict[str, str])
    """Other columns of its table, those that are the same in all its rows."""


@dataclass(frozen=True, kw_only=True)
class ImageColumns:
    """Columns of a table, or arrays of an .npz file; what is not named is found by usual names."""

    image: str | None = None
    """File names, or pictures. Usual: image, img, file_name, filename, ..."""
    label: str | None = None
    """Class names. Usual: label, class, category, target, ..."""
    captions: tuple[str, ...] = ()
    """Texts. Usual: caption, text, sentence, ..., or caption_0, caption_1, ..."""
    where: Mapping[str, str] = field(default_factory=dict[str, str])
    """Only rows with these values: `{"split": "train"}`."""


@dataclass(frozen=True, kw_only=True)
class FoundColumns:
    """The columns of a table that are read."""

    image: str
    label: str | None
    captions: tuple[str, ...]

    def parse(
        self, fields: Mapping[str, object], location: str
    ) -> tuple[str | None, tuple[str, ...]]:
        """Return the label and the captions of a row.

        Raises:
            ValueError: a value is neither text nor a number, or a caption is no text.
        """
        label = None if self.label is None else parse_label(fields.get(self.label), location)
        captions = [
            text
            for name in self.captions
            for text in _parse_captions(fields.get(name), location, name)
        ]
        return label, tuple(captions)


def find_columns(columns: Sequence[str], wanted: ImageColumns, location: object) -> FoundColumns:
    """Find the columns of a table, given ones by their names, others by usual ones.

    Args:
        columns: of the table.
        wanted: names that are given.
        location: of the table, for messages.

    Raises:
        ValueError: a given column does not exist, a name is there twice, or none holds the picture.
    """
    given = (wanted.image, wanted.label, *wanted.captions, *wanted.where)
    for name in given:
        if name is not None and name not in columns:
            raise ValueError(f"{location}: no column {name!r}, only {format_names(columns)}")
    if twice := sorted({name for name in columns if columns.count(name) > 1}):
        raise ValueError(f"{location}: several columns {twice[0]!r} ({format_names(columns)})")
    free = [name for name in columns if name not in given]
    image = wanted.image or _first_usual(free, _IMAGE_NAMES)
    if image is None:
        raise ValueError(
            f"{location}: which column names the picture? None is called 'image', 'file_name' or "
            f"the like, only {format_names(columns)}; name it (image of ImageColumns; "
            "pictures.columns.image of a recipe)"
        )
    free = [name for name in free if name != image]
    caption = _first_usual(free, _CAPTION_NAMES)
    numbered = [name for name in free if _NUMBERED_CAPTION.fullmatch(name.lower())]
    captions = wanted.captions or (tuple(numbered) if caption is None else (caption,))
    label = wanted.label or _first_usual(
        [name for name in free if name not in captions], _LABEL_NAMES
    )
    return FoundColumns(image=image, label=label, captions=captions)


def check_no_columns(columns: ImageColumns, location: object) -> None:
    """Check that no columns are named of what has none.

    Raises:
        ValueError: some are.
    """
    if columns != ImageColumns():
        raise ValueError(
            f"{location}: has no columns: pictures without a table have only the label that the "
            "name of their folder is"
        )


def _first_usual(columns: Sequence[str], usual: Sequence[str]) -> str | None:
    by_name = {name.lower(): name for name in reversed(columns)}
    return next((by_name[name] for name in usual if name in by_name), None)


def parse_label(value: object, location: str) -> str | None:
    """Parse a label as text; 1 and 1.0 are the same, nothing and blank text are none.

    Raises:
        ValueError: it is neither text nor a number.
    """
    if value is None:
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int | float):
        return str(value)
    if not isinstance(value, str):
        raise ValueError(
            f"{location}: a label must be text or a number, got {describe_value(value)}"
        )
    return check_text(value, location, "label", "strict").strip() or None


def _parse_captions(value: object, location: str, column: str) -> list[str]:
    values = cast("list[object]", value) if isinstance(value, list) else [value]
    texts = [check_text(one, location, column, "strict").strip() for one in values]
    return [text for text in texts if text]
