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

from unmask.text.corpus import Document, Separator, documents
from unmask.text.lines import EncodingErrors

_CALLED = re.compile(r"([A-Za-z]{2,3}(?:_[A-Za-z]{2,4})?)=(.+)")


def source_names(named: Sequence[str]) -> list[str]:
    """Name the source that each thing named is a part of: as it says (`de_DE=FILE`), or by folder.

    A folder, a pattern and `hf:owner/name` are a source each. Of files, those in one folder are one
    source, as where a shell makes them of `en/*.txt fr/*.txt`; but where all files are in the same
    folder, each is one.
    """
    said, named = [called(name)[0] for name in named], [called(name)[1] for name in named]
    folders = [str(Path(name).parent) if Path(name).is_file() else None for name in named]
    several = len({folder for folder in folders if folder is not None}) > 1
    return [
        own or (name if folder is None or not several or folders.count(folder) == 1 else folder)
        for own, name, folder in zip(said, named, folders, strict=True)
    ]


def called(named: str) -> tuple[str | None, str]:
    """Return what a source is called (`de_DE=corpus/*.txt`), if it says so, and where it is.

    The name is that of a language. Those that have the same name are one source.
    """
    found = None if Path(named).exists() else _CALLED.fullmatch(named)
    return (None, named) if found is None else (found[1], found[2])


def named_documents(
    named: Sequence[str],
    *,
    document: Separator = "blank",
    text: str | None = None,
    encoding_errors: EncodingErrors = "strict",
) -> Iterator[Document]:
    """Read documents as `documents` does; of several sources, or called ones, each says its own."""

    def read(places: Sequence[str]) -> Iterator[Document]:
        return documents(places, document=document, text=text, encoding_errors=encoding_errors)

    names, places = source_names(named), [called(name)[1] for name in named]
    if len(set(names)) < 2 and not any(called(name)[0] for name in named):
        return read(places)
    each = [(name, read((place,))) for name, place in zip(names, places, strict=True)]
    return (replace(one, source=name) for name, found in each for one in found)


def smoothed(sizes: Sequence[int], exponent: float) -> list[float]:
    """Return the share of each source when it is read in proportion to share ** exponent.

    Args:
        sizes: of the sources, in any unit; one of size 0 gets nothing.
        exponent: 1: as they are; 0: all alike.

    Raises:
        ValueError: an exponent below 0 or above 1, or no source of any size.
    """
    if not 0 <= exponent <= 1:
        raise ValueError(f"sampling must be from 0 to 1, got {exponent}")
    total = sum(sizes)
    if not total > 0:
        raise ValueError("no source has any text")
    powers = [(size / total) ** exponent if size else 0.0 for size in sizes]
    return [power / math.fsum(powers) for power in powers]


def repeated(
    documents: Iterable[Document], times: Mapping[str | None, float]
) -> Iterator[Document]:
    """Yield each document as often as `times` says of its source, or once more or less.

    What is left over of a number is the chance of once more, drawn for each document, always the
    same. The first document of each source is given, however small its number.
    """
    draw, begun = np.random.default_rng(0), set[str | None]()
    for document in documents:
        number = times[document.source]
        n = int(number) + (draw.random() < number % 1)
        yield from [document] * (n if document.source in begun else max(n, 1))
        begun.add(document.source)
