"""Several sources of very different size: which text is of which, and how often each is read.

Lample and Conneau 2019, arXiv:1901.07291, section 3.1: of languages with shares p of the text, each
is read with a share in proportion to p ** exponent.
"""

import itertools
import logging
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from unmask.text.documents import Document, DocumentSeparator, read_documents, read_rows
from unmask.text.lines import EncodingErrors

_LANGUAGE = r"[A-Za-z]{2,3}(?:_[A-Za-z]{2,4})?"
_LANGUAGE_PREFIX = re.compile(rf"({_LANGUAGE})=(.+)")
_TRANSLATION_PAIR = re.compile(rf"({_LANGUAGE})=(.+?)\+({_LANGUAGE})=(.+)")
_PAIR_NAME = re.compile(rf"({_LANGUAGE})\+({_LANGUAGE})")
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class NamedSource:
    """A source, and the languages that it says its text is in."""

    languages: tuple[str, ...]
    """None, one, or of translation pairs two."""
    places: tuple[str, ...]
    """Where the text is: of translation pairs two places, which are read line by line."""

    @property
    def name(self) -> str | None:
        """What it is called: "de", "de+en". None: it does not say."""
        return "+".join(self.languages) or None


def parse_source(source: str) -> NamedSource:
    """Parse `corpus/*.txt`, `de_DE=corpus/*.txt` or, of translation pairs, `de=FILE+en=FILE`.

    Sources with the same name are one source.
    """
    if not Path(source).exists():
        if pair := _TRANSLATION_PAIR.fullmatch(source):
            return NamedSource((pair[1], pair[3]), (pair[2], pair[4]))
        if one := _LANGUAGE_PREFIX.fullmatch(source):
            return NamedSource((one[1],), (one[2],))
    return NamedSource((), (source,))


def source_places(sources: Sequence[str]) -> list[str]:
    """List the files, folders and patterns that sources name, without languages."""
    return [place for source in sources for place in parse_source(source).places]


def source_languages(sources: Sequence[str]) -> list[str | None]:
    """List the languages that sources say, both of translation pairs; None where one is missing."""
    return [name for source in sources for name in parse_source(source).languages or (None,)]


def pair_languages(source_name: str) -> tuple[str, str] | None:
    """Return the languages of a source of translation pairs, by its name. None: it has none."""
    found = _PAIR_NAME.fullmatch(source_name)
    return None if found is None else (found[1], found[2])


def source_names(sources: Sequence[str]) -> list[str]:
    """Name the source that each thing named is a part of: as it says (`de_DE=FILE`), or by folder.

    That of translation pairs has the name of both languages, "de+en".

    A folder, a pattern and `hf:owner/name` are a source each. Of files, those in one folder are one
    source, as where a shell makes them of `en/*.txt fr/*.txt`; but where all files are in the same
    folder, each is one.
    """
    parsed = [parse_source(source) for source in sources]
    places = [one.places[0] for one in parsed]
    folders = [str(Path(name).parent) if Path(name).is_file() else None for name in places]
    several = len({folder for folder in folders if folder is not None}) > 1
    return [
        one.name
        or _not_a_pair(
            name if folder is None or not several or folders.count(folder) == 1 else folder
        )
        for one, name, folder in zip(parsed, places, folders, strict=True)
    ]


def _not_a_pair(place: str) -> str:
    """Name a place so that it is not taken for the languages of translation pairs."""
    return place if pair_languages(place) is None else f"./{place}"


def read_documents_by_source(
    sources: Sequence[str],
    *,
    document_separator: DocumentSeparator = "blank",
    text_column: str | None = None,
    encoding_errors: EncodingErrors = "strict",
) -> Iterator[Document]:
    """Read documents as `documents` does; of several sources, or called ones, each says its own.

    Of translation pairs (`de=FILE+en=FILE`), each line and its translation are a document of two
    paragraphs.

    Raises:
        ValueError: as of `read_documents`; or one side of pairs has more lines than the other.
    """
    read = partial(
        read_documents,
        document_separator=document_separator,
        text_column=text_column,
        encoding_errors=encoding_errors,
    )
    names, parsed = source_names(sources), [parse_source(source) for source in sources]
    if len(set(names)) < 2 and not any(one.languages for one in parsed):
        return read(source_places(sources))
    each = [
        (name, read(one.places))
        if len(one.places) == 1
        else (name, _read_pairs(one, text_column, encoding_errors))
        for name, one in zip(names, parsed, strict=True)
    ]
    return (replace(one, source=name) for name, found in each for one in found)


def _read_pairs(
    source: NamedSource, text_column: str | None, encoding_errors: EncodingErrors
) -> Iterator[Document]:
    """Yield a document of two paragraphs for each line and its translation.

    Raises:
        ValueError: one side has more lines than the other.
    """
    sides = [
        read_rows(place, text_column=text_column, encoding_errors=encoding_errors)
        for place in source.places
    ]
    n_pairs = n_blank = 0
    for pair in itertools.zip_longest(*sides):
        if None in pair:
            rest = [n_pairs + (x is not None) + sum(1 for _ in side)
                    for x, side in zip(pair, sides, strict=True)]  # fmt: skip
            raise ValueError(
                f"{source.places[0]} has {rest[0]:,} lines and {source.places[1]} {rest[1]:,}: "
                "translation pairs are read line by line, so both must have as many"
            )
        n_pairs += 1
        texts = [" ".join(one.text.split("\n")) for one in pair]
        if not all(texts):
            n_blank += 1
            continue
        yield Document("\n".join(texts), "+".join(one.location for one in pair))
    if n_blank:
        _log.warning(
            "%s: %d of %d translation pairs have a blank side and are left out",
            "+".join(source.places), n_blank, n_pairs,
        )  # fmt: skip


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


def check_source_weights(weights: Mapping[str, float]) -> None:
    """Check that weights are above 0 and finite.

    Raises:
        ValueError: one is not.
    """
    for name, weight in weights.items():
        if not 0 < weight < math.inf:
            raise ValueError(f"source_weights: {name} must be above 0, got {weight}")


def weighted_shares(names: Sequence[str], weights: Mapping[str, float]) -> list[float]:
    """Return the share of each source: its weight divided by the sum of all.

    A weight is of the source that is called so (`de`, `corpus/wiki`), or whose name ends so
    (`wiki` of `corpus/wiki`, `corpus/wiki.txt` and `hf:owner/wiki`).

    Raises:
        ValueError: a weight is of no source or could be of several, or a source has none.
    """
    found = dict[str, float]()
    for given, weight in weights.items():
        own = [name for name in names if name == given] or [
            name for name in names if given in (Path(name).name, Path(name).stem)
        ]
        if len(own) != 1:
            what = "is no source" if not own else f"may be {' or '.join(own)}"
            raise ValueError(f"source_weights: {given} {what}; the sources are {', '.join(names)}")
        if own[0] in found:
            raise ValueError(f"source_weights: {own[0]} has two weights")
        found[own[0]] = weight
    if lacking := [name for name in names if name not in found]:
        raise ValueError(
            f"source_weights: {', '.join(lacking)} has no weight; give each source one"
        )
    total = math.fsum(found.values())
    return [found[name] / total for name in names]


def source_weights(given: Mapping[str, int | float] | Iterable[str]) -> dict[str, float]:
    """Return weights by name, of a mapping or of NAME=WEIGHT.

    Raises:
        ValueError: one is not of this form.
    """
    if isinstance(given, Mapping):
        return {name: float(weight) for name, weight in given.items()}
    return _parse_weights(given)


def _parse_weights(assignments: Iterable[str]) -> dict[str, float]:
    weights = dict[str, float]()
    for assignment in assignments:
        name, equals, weight = assignment.rpartition("=")
        try:
            number = float(weight)
        except ValueError:
            equals = ""
            number = 0.0
        if not equals or not name:
            raise ValueError(
                f"--source-weight must be NAME=WEIGHT, such as wiki=0.7, got {assignment!r}"
            )
        if name in weights:
            raise ValueError(f"--source-weight: {name} is given twice")
        weights[name] = number
    return weights


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
