"""Several sources of very different size: which text is of which, and how often each is read.

Lample and Conneau 2019, arXiv:1901.07291, section 3.1: of languages with shares p of the text, each
is read with a share in proportion to p ** exponent.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from unmask.text.documents import Document, DocumentSeparator, read_documents
from unmask.text.lines import EncodingErrors

_LANGUAGE_PREFIX = re.compile(r"([A-Za-z]{2,3}(?:_[A-Za-z]{2,4})?)=(.+)")


def source_names(sources: Sequence[str]) -> list[str]:
    """Name the source that each thing named is a part of: as it says (`de_DE=FILE`), or by folder.

    A folder, a pattern and `hf:owner/name` are a source each. Of files, those in one folder are one
    source, as where a shell makes them of `en/*.txt fr/*.txt`; but where all files are in the same
    folder, each is one.
    """
    said, sources = (
        [split_language_prefix(name)[0] for name in sources],
        [split_language_prefix(name)[1] for name in sources],
    )
    folders = [str(Path(name).parent) if Path(name).is_file() else None for name in sources]
    several = len({folder for folder in folders if folder is not None}) > 1
    return [
        own or (name if folder is None or not several or folders.count(folder) == 1 else folder)
        for own, name, folder in zip(said, sources, folders, strict=True)
    ]


def split_language_prefix(source: str) -> tuple[str | None, str]:
    """Return what a source is called (`de_DE=corpus/*.txt`), if it says so, and where it is.

    The name is that of a language. Those that have the same name are one source.
    """
    found = None if Path(source).exists() else _LANGUAGE_PREFIX.fullmatch(source)
    return (None, source) if found is None else (found[1], found[2])


def read_documents_by_source(
    sources: Sequence[str],
    *,
    document_separator: DocumentSeparator = "blank",
    text_column: str | None = None,
    encoding_errors: EncodingErrors = "strict",
) -> Iterator[Document]:
    """Read documents as `documents` does; of several sources, or called ones, each says its own."""

    def read(places: Sequence[str]) -> Iterator[Document]:
        return read_documents(
            places,
            document_separator=document_separator,
            text_column=text_column,
            encoding_errors=encoding_errors,
        )

    names, places = source_names(sources), [split_language_prefix(name)[1] for name in sources]
    if len(set(names)) < 2 and not any(split_language_prefix(name)[0] for name in sources):
        return read(places)
    each = [(name, read((place,))) for name, place in zip(names, places, strict=True)]
    return (replace(one, source=name) for name, found in each for one in found)


def smoothed_shares(sizes: Sequence[int], exponent: float) -> list[float]:
    """Return the share of each source when it is read in proportion to share ** exponent.

    Args:
        sizes: of the sources, in any unit; one of size 0 gets nothing.
        exponent: 1: as they are; 0: all alike.

    Raises:
        ValueError: an exponent below 0 or above 1, or no source of any size.
    """
    if not 0 <= exponent <= 1:
        raise ValueError(f"sampling_exponent must be from 0 to 1, got {exponent}")
    total = sum(sizes)
    if not total > 0:
        raise ValueError("no source has any text")
    powers = [(size / total) ** exponent if size else 0.0 for size in sizes]
    return [power / math.fsum(powers) for power in powers]


def repeat_documents(
    documents: Iterable[Document], repetitions: Mapping[str | None, float]
) -> Iterator[Document]:
    """Yield each document as often as `repetitions` says of its source, or once more or less.

    What is left over of a number is the chance of once more, drawn for each document, always the
    same. The first document of each source is given, however small its number.
    """
    draw, begun = np.random.default_rng(0), set[str | None]()
    for document in documents:
        number = repetitions[document.source]
        n = int(number) + (draw.random() < number % 1)
        yield from [document] * (n if document.source in begun else max(n, 1))
        begun.add(document.source)
