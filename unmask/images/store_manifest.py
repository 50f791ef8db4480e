"""What a folder of stored pictures says of itself, and whether its files are as it says."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from unmask.config import from_dict, to_dict
from unmask.files import parse_json, parser_errors_as_value_error, read_bytes, sha256
from unmask.images.decode import MAX_PIXELS
from unmask.images.preprocessing import ImagePreprocessing
from unmask.saved_format import FORMAT

MANIFEST_FILE = "images.json"
LABEL_TYPE, OFFSET_TYPE = "<i4", "<i8"


@dataclass(frozen=True)
class StoredFile:
    """A file as it was written."""

    size: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class ImageStoreManifest:
    """What `images.json` says."""

    format: int = FORMAT
    n_images: int
    height: int
    width: int
    channels: Literal[1, 3]
    images_per_file: int
    """Pictures in each file of pixels but the last."""
    preprocessing: ImagePreprocessing
    """How they were resized and cropped; the numbers of `mean` and `std` are not applied."""
    label_names: tuple[str, ...] = ()
    """Labels that occur: by value if all are whole numbers, else by the alphabet."""
    n_skipped: int = 0
    """Pictures that could not be read and were left out."""
    made_from: str = ""
    """What the pictures were made from, in the caller's words."""
    pixels: tuple[StoredFile, ...]
    labels: StoredFile
    records: StoredFile
    offsets: StoredFile

    @property
    def image_bytes(self) -> int:
        """Bytes of a picture's pixels."""
        return self.height * self.width * self.channels

    def files(self) -> Iterator[tuple[str, StoredFile]]:
        """Yield the name of each file of the folder, and what it is."""
        yield from ((pixels_name(i), file) for i, file in enumerate(self.pixels))
        yield from (
            ("labels", self.labels), ("records", self.records), ("offsets", self.offsets),
        )  # fmt: skip


def pixels_name(index: int) -> str:
    """Name a file of pixels."""
    return f"{index:05d}.pixels"


def manifest_to_json(manifest: ImageStoreManifest) -> str:
    """Write a manifest as JSON."""
    return json.dumps(to_dict(manifest), indent=1) + "\n"


def read_manifest(path: Path) -> ImageStoreManifest:
    """Read a manifest.

    Raises:
        FileNotFoundError: there is none.
        ValueError: it is not one, is of another version, or disagrees with itself.
    """
    with parser_errors_as_value_error(f"{path} is damaged: it is not JSON"):
        data = parse_json(read_bytes(path))
    manifest = from_dict(ImageStoreManifest, data, str(path))
    if manifest.format != FORMAT:
        raise ValueError(
            f"{path}: format {manifest.format} is not read: this version of Unmask reads {FORMAT}"
        )
    numbers = (
        manifest.n_images,
        manifest.images_per_file,
        manifest.height,
        manifest.width,
    )
    if min(numbers) < 1 or manifest.height * manifest.width > MAX_PIXELS:
        raise ValueError(
            f"{path} is damaged: {manifest.n_images} pictures of {manifest.width} x "
            f"{manifest.height} pixels, {manifest.images_per_file} a file"
        )
    n, per_file = manifest.n_images, manifest.images_per_file
    counts = [min(per_file, n - i * per_file) for i in range(min(-(-n // per_file), 2**20))]
    sizes = [manifest.labels.size, manifest.offsets.size, *(one.size for one in manifest.pixels)]
    if sizes != [4 * n, 8 * (n + 1), *(count * manifest.image_bytes for count in counts)]:
        raise ValueError(f"{path} is damaged: its sizes and counts disagree")
    return manifest


def check_files(folder: Path, manifest: ImageStoreManifest, *, verify_contents: bool) -> None:
    """Compare the sizes of a folder's files with what was written; on demand their contents.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a file is another one.
    """
    for name, file in manifest.files():
        path = folder / name
        if not path.is_file():
            raise FileNotFoundError(f"{path} is missing")
        if (size := path.stat().st_size) != file.size:
            raise ValueError(
                f"{path} is truncated or damaged: it has {size:,} bytes, expected {file.size:,}"
            )
        if verify_contents and (found := sha256(path)) != file.sha256:
            raise ValueError(f"{path} is damaged: its SHA-256 is {found}, expected {file.sha256}")
