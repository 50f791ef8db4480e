"""How a run reads its pictures: columns, what is skipped, and how training changes them."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from unmask.config import to_dict
from unmask.images.augmentation import ImageAugmentation
from unmask.images.decode import Channels, DecodeSummary
from unmask.images.preprocessing import MAX_EDGE, ImagePreprocessing
from unmask.images.records import ImageColumns, ImageRecord
from unmask.images.sources import read_images
from unmask.images.store import ImageStore, write_images


@dataclass(frozen=True, kw_only=True)
class PictureOptions:
    """How pictures are read and changed."""

    columns: ImageColumns = field(default_factory=ImageColumns)
    """Columns of tables: image, label, captions, and which rows are read."""
    folder: str | None = None
    """Folder or .zip archive of the pictures that tables name. None: beside the table."""
    bad: Literal["error", "skip"] = "error"
    """Handling of pictures that cannot be read: error, or skip (they are counted)."""
    stored_size: tuple[int, int] | None = None
    """[height, width] in which pictures are kept, for random crops larger than the network reads
    them. None: as the network reads them."""
    augmentation: ImageAugmentation | None = None
    """Random changes of training pictures. None: none."""

    def __post_init__(self) -> None:
        for edge in self.stored_size or ():
            if not 1 <= edge <= MAX_EDGE:
                raise ValueError(f"stored_size must be 1 to {MAX_EDGE} pixels, got {edge}")


def default_preprocessing(
    image_size: tuple[int, int], channels: Channels = 3
) -> ImagePreprocessing:
    """Return the preprocessing of a network that has none of its own.

    Pictures are squeezed to [height, width]; numbers are from -1 to 1.
    """
    half = (0.5,) * channels
    return ImagePreprocessing(resize=image_size, channels=channels, mean=half, std=half)


def open_or_write_store(
    sources: Sequence[str],
    folder: Path,
    options: PictureOptions,
    preprocessing: ImagePreprocessing,
    summary: DecodeSummary | None = None,
) -> ImageStore:
    """Open the pictures of `folder`, if they are of these sources, or decode them into it.

    Args:
        sources: as `read_images` takes them.
        folder: of the store, new or made earlier from the same.
        options: how they are read.
        preprocessing: of the network: size, interpolation and channels.
        summary: to which all pictures are added.

    Raises:
        FileNotFoundError: a source is missing.
        ValueError: a source or a picture cannot be read, or there are none.
        FileExistsError: the folder holds something else.
    """
    stored = preprocessing
    if options.stored_size is not None:
        stored = replace(preprocessing, resize=options.stored_size, crop=None)
    made_from = str([list(sources), to_dict(options.columns), options.folder, options.bad])
    return write_images(
        read_images(sources, options.columns, pictures=options.folder),
        folder,
        stored,
        skip_bad=options.bad == "skip",
        made_from=made_from,
        summary=summary,
    )


def picture_records(
    sources: Iterable[Any], columns: ImageColumns | None = None
) -> Iterator[ImageRecord]:
    """Yield the pictures of sources: those of a file, folder, archive or table, or an array.

    Args:
        sources: paths, records of pictures, uint8 arrays [h w c] or [h w], or pictures of Pillow.
        columns: of tables.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: a source is none of these.
    """
    for i, source in enumerate(sources, 1):
        if isinstance(source, ImageRecord):
            yield source
        elif isinstance(source, str | Path):
            yield from read_images(source, columns)
        else:
            pixels = np.asarray(source)
            if pixels.dtype != np.uint8 or pixels.ndim not in (2, 3):
                raise ValueError(
                    f"picture {i} must be a path, a picture, or uint8 pixels [h w] or [h w c], got "
                    f"{type(source).__name__}"
                )
            yield ImageRecord(
                location=f"picture {i}", name=f"picture {i}", load=lambda pixels=pixels: pixels
            )
