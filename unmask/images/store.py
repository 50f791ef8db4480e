"""Decoded pictures on disk, memory-mapped: decoded once, read at random by every epoch.

A folder of pictures holds

    images.json      sizes, counts, label names and checksums; the folder has its name only when it
                     is whole
    00000.pixels     uint8, picture after picture, each [h w c]
    labels           little-endian int32, the number of each picture's label; -1: it has none
    records          name, captions and other columns of each picture, a JSON object a line
    offsets          little-endian int64: where in `records` each line starts, and their end
"""

import hashlib
import json
import operator
from array import array
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, BinaryIO, SupportsIndex

import numpy as np
from jaxtyping import Int, Int32, UInt8

from unmask.files import atomic_path, encode_utf8, parse_json, parser_errors_as_value_error
from unmask.images.decode import DecodeSummary, decode_images
from unmask.images.preprocessing import ImagePreprocessing
from unmask.images.records import ImageRecord
from unmask.images.store_manifest import (
    LABEL_TYPE,
    MANIFEST_FILE,
    OFFSET_TYPE,
    ImageStoreManifest,
    StoredFile,
    check_files,
    manifest_to_json,
    pixels_name,
    read_manifest,
)

FILE_BYTES = 2**28
"""Bytes of a file of pixels, at most, unless a single picture has more."""
_MAX_MAPPED_FILES = 128
"""At once; a process often may have no more than 1024 files open."""


@dataclass(frozen=True, kw_only=True, eq=False)
class StoredImage:
    """A picture of a store."""

    pixels: UInt8[np.ndarray, "h w c"]
    name: str
    label: str | None
    captions: tuple[str, ...]
    columns: Mapping[str, str] = field(default_factory=dict[str, str])


class ImageStore(Sequence[StoredImage]):
    """The pictures of a folder. Pixels are read where they are asked for, in any order.

    Cheap to send to another process: it opens the folder anew there.
    """

    def __init__(self, folder: Path, manifest: ImageStoreManifest) -> None:
        self.folder = folder.absolute()
        self.manifest = manifest
        self.label_names = manifest.label_names
        self._mapped = lru_cache(_MAX_MAPPED_FILES)(self._map_pixels)

    def __repr__(self) -> str:
        shape = (self.manifest.height, self.manifest.width, self.manifest.channels)
        return f"ImageStore({str(self.folder)!r}: {len(self):,} pictures {shape})"

    def __reduce__(self) -> tuple[Any, ...]:
        return ImageStore.open, (self.folder,)

    @classmethod
    def open(cls, folder: Path, *, verify_contents: bool = False) -> "ImageStore":
        """Open a folder; with `verify_contents`, read all of it and compare the checksums.

        Raises:
            FileNotFoundError: it holds no pictures, or one of its files is missing.
            ValueError: a file is truncated or damaged, or of another version.
        """
        if not (folder / MANIFEST_FILE).is_file():
            raise FileNotFoundError(
                f"{folder} holds no stored pictures, or only a part of them: it has no "
                f"{MANIFEST_FILE}"
            )
        manifest = read_manifest(folder / MANIFEST_FILE)
        check_files(folder, manifest, verify_contents=verify_contents)
        return cls(folder, manifest)

    def __len__(self) -> int:
        return self.manifest.n_images

    def __getitem__(self, index: SupportsIndex) -> StoredImage:  # pyright: ignore  # no slices
        at = operator.index(index)
        n = len(self)
        if not -n <= at < n:
            raise IndexError(f"picture {at} of {n:,} in {self.folder}")
        at %= n
        text = self._text(at)
        number = int(self.labels[at])
        file, row = divmod(at, self.manifest.images_per_file)
        return StoredImage(
            pixels=np.array(self._mapped(file)[row]),
            name=text["name"],
            label=None if number < 0 else self.label_names[number],
            captions=tuple(text["captions"]),
            columns=text["columns"],
        )

    def pixels(self, indices: Int[np.ndarray, "n"] | Sequence[int]) -> UInt8[np.ndarray, "n h w c"]:
        """Read pictures in any order, also one several times, as an array of their own.

        Raises:
            IndexError: there is no such picture.
        """
        at = np.asarray(indices, np.int64)
        if len(at) and not (at.min() >= 0 and at.max() < len(self)):
            raise IndexError(
                f"pictures {at.min()} to {at.max()} of {self.folder}, which has {len(self):,}"
            )
        manifest = self.manifest
        out = np.empty((len(at), manifest.height, manifest.width, manifest.channels), np.uint8)
        files, rows = np.divmod(at, manifest.images_per_file)
        for file in np.unique(files):
            these = np.flatnonzero(files == file)
            out[these] = self._mapped(int(file))[rows[these]]
        return out

    @cached_property
    def labels(self) -> Int32[np.ndarray, "n"]:
        """The number of each picture's label in `label_names`; -1: it has none.

        Raises:
            ValueError: the file of labels is damaged.
        """
        path = self.folder / "labels"
        labels = np.asarray(_map_numbers(path, LABEL_TYPE))
        if labels.min() < -1 or labels.max() >= len(self.label_names):
            raise ValueError(
                f"{path} is damaged: labels from {labels.min()} to {labels.max()}, but there are "
                f"{len(self.label_names)} names"
            )
        return labels

    def names(self) -> list[str]:
        """Read the names of all pictures, without their pixels."""
        return [self._text(i)["name"] for i in range(len(self))]

    def captions(self, index: int) -> tuple[str, ...]:
        """Read the captions of a picture, without its pixels."""
        return tuple(self._text(range(len(self))[index])["captions"])

    @cached_property
    def _lines(self) -> tuple[np.ndarray, np.ndarray]:
        """Where each record starts, and their text."""
        offsets = np.asarray(_map_numbers(self.folder / "offsets", OFFSET_TYPE))
        return offsets, np.asarray(_map_numbers(self.folder / "records", "u1"))

    def _text(self, index: int) -> dict[str, Any]:
        """Read the record of a picture.

        Raises:
            ValueError: it is damaged.
        """
        offsets, text = self._lines
        start, end = int(offsets[index]), int(offsets[index + 1])
        where = f"{self.folder / 'records'}: record {index}"
        if not 0 <= start < end <= len(text):
            raise ValueError(f"{where} is damaged: it is from byte {start} to {end}")
        with parser_errors_as_value_error(f"{where} is damaged"):
            found = parse_json(text[start:end].tobytes())
        if not isinstance(found, dict) or found.keys() != {"name", "captions", "columns"}:
            raise ValueError(f"{where} is damaged: it has no name, captions and columns")
        return found

    def _map_pixels(self, index: int) -> UInt8[np.ndarray, "n h w c"]:
        shape = (-1, self.manifest.height, self.manifest.width, self.manifest.channels)
        return _map_numbers(self.folder / pixels_name(index), "u1").reshape(shape)


def write_images(
    records: Iterable[ImageRecord],
    output_folder: Path,
    preprocessing: ImagePreprocessing | None = None,
    *,
    skip_bad: bool = False,
    made_from: str = "",
    file_bytes: int = FILE_BYTES,
    summary: DecodeSummary | None = None,
) -> ImageStore:
    """Decode, resize and crop pictures into a folder, which is whole or absent.

    Interrupted, it leaves nothing of that name. In memory is one picture at a time, and eight bytes
    for each.

    Args:
        records: read once, in order, as `unmask.images.sources.read_images` yields them.
        output_folder: a new or empty folder.
        preprocessing: size, interpolation and channels; those of ViT by default. Where it does not
            resize, all pictures must have the size of the first.
        skip_bad: leave out pictures that cannot be decoded, and count them.
        made_from: what the pictures are made from, in words that change when they do. A folder that
            was made from the same, by the same preprocessing, is re-used.
        file_bytes: bytes of a file of pixels.
        summary: to which all pictures are added.

    Raises:
        ValueError: a picture cannot be decoded, has another size than the first, or there is none.
        FileExistsError: `output_folder` holds something else.
        OSError: the disk is full.
    """
    if file_bytes < 1:
        raise ValueError(f"file_bytes must be at least 1, got {file_bytes}")
    geometry = preprocessing or ImagePreprocessing()
    summary = DecodeSummary() if summary is None else summary
    if (output_folder / MANIFEST_FILE).is_file() and made_from:
        found = ImageStore.open(output_folder)
        if found.manifest.made_from == made_from and found.manifest.preprocessing == geometry:
            return found
    output_folder.parent.mkdir(parents=True, exist_ok=True)
    decoded = decode_images(records, channels=geometry.channels, skip_bad=skip_bad, summary=summary)
    with atomic_path(output_folder) as folder:
        folder.mkdir()
        with _StoreWriter(folder, file_bytes) as writer:
            for record, picture in decoded:
                try:
                    pixels = geometry.pixels(picture)
                except ValueError as error:
                    raise ValueError(f"{record.location}: {error}") from None
                writer.add(record, pixels)
            writer.finish(geometry, made_from, summary.n_bad)
    return ImageStore.open(output_folder)


def sorted_labels(labels: Iterable[str]) -> list[str]:
    """Sort labels by value if all are whole numbers, else by the alphabet."""
    names = sorted(labels)
    if all(name.removeprefix("-").isdecimal() and name.isascii() for name in names):
        names.sort(key=int)
    return names


class _HashedFile:
    """A file that is written from its beginning to its end, and its checksum."""

    def __init__(self, path: Path, stack: ExitStack) -> None:
        self._file: BinaryIO = stack.enter_context(path.open("wb"))
        self._sha256 = hashlib.sha256()
        self.size = 0

    def write(self, data: bytes) -> None:
        self._file.write(data)
        self._sha256.update(data)
        self.size += len(data)

    def close(self) -> StoredFile:
        self._file.close()
        return StoredFile(self.size, self._sha256.hexdigest())


class _StoreWriter:
    """Writes the files of a folder, picture by picture."""

    def __init__(self, folder: Path, file_bytes: int) -> None:
        self._folder, self._file_bytes = folder, file_bytes
        self._stack = ExitStack()
        self._shape: tuple[int, ...] = ()
        self._pixels: list[StoredFile] = []
        self._open_pixels: _HashedFile | None = None
        self._records = _HashedFile(folder / "records", self._stack)
        self._offsets = _HashedFile(folder / "offsets", self._stack)
        self._offsets.write(np.array([0], OFFSET_TYPE).tobytes())
        self._numbers: dict[str, int] = {}
        self._labels = array("q")

    def __enter__(self) -> "_StoreWriter":
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def add(self, record: ImageRecord, pixels: UInt8[np.ndarray, "h w c"]) -> None:
        """Write a picture.

        Raises:
            ValueError: it has another size than the first.
        """
        self._shape = self._shape or pixels.shape
        if pixels.shape != self._shape:
            height, width, _ = self._shape
            raise ValueError(
                f"{record.location}: {pixels.shape[1]} x {pixels.shape[0]} pixels, but the first "
                f"picture has {width} x {height}; resize or crop them (preprocessing)"
            )
        if self._open_pixels is None:
            name = pixels_name(len(self._pixels))
            self._open_pixels = _HashedFile(self._folder / name, self._stack)
        self._open_pixels.write(np.ascontiguousarray(pixels).tobytes())
        if self._open_pixels.size >= self._images_per_file * pixels.size:
            self._close_pixels()
        text = {
            "name": record.name, "captions": record.captions, "columns": dict(record.columns),
        }  # fmt: skip
        self._records.write(encode_utf8(json.dumps(text, ensure_ascii=False)) + b"\n")
        self._offsets.write(np.array([self._records.size], OFFSET_TYPE).tobytes())
        number = -1
        if record.label is not None:
            number = self._numbers.setdefault(record.label, len(self._numbers))
        self._labels.append(number)

    def finish(self, preprocessing: ImagePreprocessing, made_from: str, n_skipped: int) -> None:
        """Write what is known only at the end.

        Raises:
            ValueError: there was no picture.
        """
        if not self._labels:
            raise ValueError("there are no pictures to write")
        if self._open_pixels is not None:
            self._close_pixels()
        names = sorted_labels(self._numbers)
        rank = {name: i for i, name in enumerate(names)}
        order = [*(rank[name] for name in self._numbers), -1]  # the last one is that of no label
        labels = np.array(order, LABEL_TYPE)[np.frombuffer(self._labels, np.int64)]
        numbers = _HashedFile(self._folder / "labels", self._stack)
        numbers.write(labels.tobytes())
        height, width, _ = self._shape
        manifest = ImageStoreManifest(
            n_images=len(labels),
            height=height,
            width=width,
            channels=preprocessing.channels,
            images_per_file=self._images_per_file,
            preprocessing=preprocessing,
            label_names=tuple(names),
            n_skipped=n_skipped,
            made_from=made_from,
            pixels=tuple(self._pixels),
            labels=numbers.close(),
            records=self._records.close(),
            offsets=self._offsets.close(),
        )
        (self._folder / MANIFEST_FILE).write_bytes(encode_utf8(manifest_to_json(manifest)))

    @property
    def _images_per_file(self) -> int:
        height, width, channels = self._shape
        return max(1, self._file_bytes // (height * width * channels))

    def _close_pixels(self) -> None:
        if self._open_pixels is not None:
            self._pixels.append(self._open_pixels.close())
            self._open_pixels = None


def _map_numbers(path: Path, element_type: str) -> np.ndarray:
    """Map a file of numbers into memory."""
    return np.asarray(np.memmap(path, np.dtype(element_type), "r"))
