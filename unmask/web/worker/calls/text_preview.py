"""`preview_text`, `preview_images`: what a new model learns from, as it is read, and how much."""

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8

from unmask.config import from_dict
from unmask.images.decode import decode_images
from unmask.images.drawing import thumbnail, to_png_text
from unmask.images.records import ImageRecord
from unmask.images.sources import read_images
from unmask.text.documents import Document, DocumentSeparator, list_files, read_documents
from unmask.text.lines import EncodingErrors

SHOWN_CHARACTERS = 2000
"""Of a document."""
SHOWN_LABELS = 50
PICTURE_EDGE = 72
"""Pixels of the longer edge of a picture that is shown."""
COUNTED_SECONDS = 3.0
"""Counting ends after so long; then the counts are of the beginning."""
_REPLACED = "\ufffd"


@dataclass(frozen=True, kw_only=True)
class _PreviewTextArguments:
    files: Sequence[str]
    document_separator: DocumentSeparator = "blank"
    text_column: str | None = None
    encoding_errors: EncodingErrors = "strict"
    n: int = 10
    """Documents that are shown."""

    def __post_init__(self) -> None:
        if not self.files:
            raise ValueError("files: name at least one")
        if not 1 <= self.n <= 100:
            raise ValueError(f"n must be from 1 to 100, got {self.n}")

    def documents(self) -> Iterator[Document]:
        """Read them with these options."""
        return read_documents(
            [*self.files],
            document_separator=self.document_separator,
            text_column=self.text_column,
            encoding_errors=self.encoding_errors,
        )


def preview_text(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the first documents, counts, and "problem": the line at which reading failed.

    "replaced" counts characters in place of bytes that are not UTF-8, with
    `encoding_errors="replace"`. Counts are of all files if "complete".
    """
    given = from_dict(_PreviewTextArguments, arguments)
    files = [{"name": path.name, "bytes": path.stat().st_size} for path in list_files(given.files)]
    counts = {"documents": 0, "characters": 0, "words": 0, "paragraphs": 0, "replaced": 0}
    shown, problem, complete = list[dict[str, Any]](), None, True
    end = time.monotonic() + COUNTED_SECONDS
    try:
        for document in given.documents():
            text = document.text
            counts["documents"] += 1
            counts["characters"] += len(text)
            counts["words"] += len(text.split())
            counts["paragraphs"] += text.count("\n") + 1
            counts["replaced"] += text.count(_REPLACED)
            if len(shown) < given.n:
                shown.append(_record(document))
            if time.monotonic() > end:
                complete = False
                break
    except ValueError as error:
        problem, complete = _without_folders(str(error), given.files), False
    return {
        "files": files, "documents": shown, "counts": counts, "complete": complete,
        "problem": problem,
    }  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class _PreviewImagesArguments:
    files: Sequence[str]
    n: int = 12
    """Pictures that are shown."""

    def __post_init__(self) -> None:
        if not self.files:
            raise ValueError("files: name at least one")
        if not 1 <= self.n <= 50:
            raise ValueError(f"n must be from 1 to 50, got {self.n}")


def preview_images(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return some pictures, small, each of another label where there are labels, and counts.

    "problem" is the line at which reading failed. Counts are of all files if "complete".
    """
    given = from_dict(_PreviewImagesArguments, arguments)
    labels, first = Counter[str](), dict[str | None, list[ImageRecord]]()
    counts = {"pictures": 0, "captions": 0}
    problem, complete, end = None, True, time.monotonic() + COUNTED_SECONDS
    pictures = list[dict[str, Any]]()
    try:
        for record in read_images([*given.files]):
            counts["pictures"] += 1
            counts["captions"] += len(record.captions)
            if record.label is not None:
                labels[record.label] += 1
            if len(kept := first.setdefault(record.label, [])) < given.n:
                kept.append(record)
            if time.monotonic() > end:
                complete = False
                break
        pictures = [_picture(*one) for one in decode_images(_of_each(first, given.n))]
    except (ValueError, OSError) as error:
        problem, complete = _without_folders(str(error), given.files), False
    return {
        "pictures": pictures, "counts": counts, "labels": labels.most_common(SHOWN_LABELS),
        "n_labels": len(labels), "complete": complete, "problem": problem,
    }  # fmt: skip


def _of_each(first: Mapping[str | None, Sequence[ImageRecord]], n: int) -> list[ImageRecord]:
    """Return so many records, one of each label after the other."""
    rounds = zip_longest(*first.values())
    return [one for some in rounds for one in some if one is not None][:n]


def _picture(record: ImageRecord, pixels: UInt8[np.ndarray, "h w c"]) -> dict[str, Any]:
    height, width, _ = pixels.shape
    return {
        "name": record.name,
        "label": record.label,
        "caption": record.captions[0] if record.captions else None,
        "size": [width, height],
        "png": to_png_text(thumbnail(pixels, PICTURE_EDGE)),
    }


def _record(document: Document) -> dict[str, Any]:
    return {
        "text": document.text[:SHOWN_CHARACTERS],
        "characters": len(document.text),
        "cut": len(document.text) > SHOWN_CHARACTERS,
        "location": Path(document.location).name,
    }


def _without_folders(line: str, files: Sequence[str]) -> str:
    """Return a message with the names of files alone."""
    for file in files:
        line = line.replace(file, Path(file).name)
    return line
