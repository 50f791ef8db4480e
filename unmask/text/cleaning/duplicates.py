"""Documents or paragraphs that were there before: exactly, or nearly, by MinHash.

Each unit of text gets one or more *keys*, 64-bit numbers; units that share one are duplicates of
each other, and so are the duplicates of duplicates. The first of them stays.
"""

import hashlib
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import pairwise
from typing import Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from unmask.text.cleaning.word_hashes import fold_windows, hash_normalized_words, mix

Unit = Literal["document", "paragraph"]
"""What is compared, and removed if it was there before."""
PARAGRAPH_MIN_WORDS = 10
"""Words that a paragraph must have to be a duplicate: "Yes." may be said twice."""
NO_KEY = 0
"""The key of a unit that is never a duplicate."""
_PARTITION_UNITS = 2**20
"""Units whose keys are sorted together, about."""


@runtime_checkable
class Deduplication(Protocol):
    """What makes two units duplicates."""

    @property
    def unit(self) -> Unit:
        """What is compared."""
        ...

    @property
    def n_keys(self) -> int:
        """Keys of a unit."""
        ...

    @property
    def label(self) -> str:
        """What the duplicates are called: "the same paragraph"."""
        ...

    def keys(self, units: Sequence[str]) -> NDArray[np.uint64]:
        """Return the keys of units, [n, n_keys]; `NO_KEY` of those that are never duplicates."""
        ...


@dataclass(frozen=True)
class ExactDuplicates:
    """The same text, apart from white space and composed characters (NFC)."""

    unit: Unit = "document"
    """What is compared: document or paragraph."""
    min_words: int | None = None
    """Words of the shortest unit that is compared. None: 0 for documents, 10 for paragraphs."""

    def __post_init__(self) -> None:
        _check_unit(self.unit, self.min_words)

    @property
    def n_keys(self) -> int:
        """Keys of a unit: a hash of its text."""
        return 1

    @property
    def label(self) -> str:
        """What the duplicates are called."""
        return f"the same {self.unit}"

    def keys(self, units: Sequence[str]) -> NDArray[np.uint64]:
        """Return a hash of each unit, [n, 1]."""
        least = _min_words(self.unit, self.min_words)
        result = np.zeros((len(units), 1), np.uint64)
        for i, unit in enumerate(units):
            words = unit.split()
            if len(words) >= least:
                result[i] = _hash_text(unicodedata.normalize("NFC", " ".join(words)))
        return result


@dataclass(frozen=True)
class NearDuplicates:
    """Nearly the same text: most sequences of five words in common, by MinHash.

    Broder 1997, doi:10.1109/SEQUEN.1997.666900, with the bands of Penedo et al. 2024,
    arXiv:2406.17557, section 3.4: 14 bands of 8 minima. Two texts whose sets of 5-grams have a
    Jaccard similarity of s share a band with the probability 1 - (1 - s^8)^14: 0.06 at s = 0.5,
    0.56 at 0.7, 0.77 at 0.75, 0.92 at 0.8, 1.00 at 0.9.
    """

    unit: Unit = "document"
    """What is compared: document or paragraph."""
    min_words: int | None = None
    """Words of the shortest unit that is compared. None: 0 for documents, 10 for paragraphs."""
    ngram: int = 5
    """Words of a sequence."""
    bands: int = 14
    """Bands: more find more, and more that are less similar."""
    rows: int = 8
    """Minima of a band, all of which must be the same: more find less."""

    def __post_init__(self) -> None:
        _check_unit(self.unit, self.min_words)
        for name in ("ngram", "bands", "rows"):
            if not 1 <= getattr(self, name) <= 1000:
                raise ValueError(f"{name} must be 1 to 1,000, got {getattr(self, name)}")

    @property
    def n_keys(self) -> int:
        """Keys of a unit: its bands."""
        return self.bands

    @property
    def label(self) -> str:
        """What the duplicates are called."""
        return f"nearly the same {self.unit}"

    def keys(self, units: Sequence[str]) -> NDArray[np.uint64]:
        """Return a number for each band of each unit, [n, bands]."""
        result = np.zeros((len(units), self.bands), np.uint64)
        words, counts = hash_normalized_words(units)
        least = max(1, _min_words(self.unit, self.min_words))
        which = np.flatnonzero(counts >= least)
        if not len(which):
            return result
        begins = (np.cumsum(counts) - counts)[which]
        grams, firsts = _shingles(words, begins, counts[which], self.ngram)
        minima = _minima(grams.astype(np.uint32), firsts, self.bands * self.rows)
        for band in range(self.bands):
            rows = minima[band * self.rows : (band + 1) * self.rows].T.astype(np.uint64).ravel()
            folded = fold_windows(rows, np.arange(len(which)) * self.rows, self.rows)
            result[which, band] = np.maximum(folded, np.uint64(1))
        return result


DEDUPLICATIONS: Mapping[str, type[ExactDuplicates | NearDuplicates]] = {
    "exact": ExactDuplicates,
    "near": NearDuplicates,
}
"""Kinds of duplicates by their names."""


def _check_unit(unit: str, min_words: int | None) -> None:
    if unit not in ("document", "paragraph"):
        raise ValueError(f"unit must be document or paragraph, got {unit!r}")
    if min_words is not None and min_words < 0:
        raise ValueError(f"min_words must not be negative, got {min_words}")


def _min_words(unit: Unit, given: int | None) -> int:
    if given is not None:
        return given
    return PARAGRAPH_MIN_WORDS if unit == "paragraph" else 0


def _hash_text(text: str) -> int:
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return max(1, int.from_bytes(digest, "little"))


def _shingles(
    words: NDArray[np.uint64], begins: NDArray[np.int64], counts: NDArray[np.int64], n: int
) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Return a number for each n-gram of each unit, and where those of each unit begin.

    A unit of fewer words has one n-gram, filled up with zeros.
    """
    padded = np.concatenate((words, np.zeros(n, np.uint64)))
    n_grams = np.maximum(counts - n + 1, 1)
    firsts = np.cumsum(n_grams) - n_grams
    within = np.arange(int(n_grams.sum())) - np.repeat(firsts, n_grams)
    positions = np.repeat(begins, n_grams) + within
    grams = fold_windows(padded, positions, n)
    for i in np.flatnonzero(counts < n).tolist():
        short = np.zeros(n, np.uint64)
        short[: counts[i]] = words[begins[i] : begins[i] + counts[i]]
        grams[firsts[i]] = fold_windows(short, np.zeros(1, np.int64), n)[0]
    return grams, firsts


def _minima(grams: NDArray[np.uint32], firsts: NDArray[np.int64], n: int) -> NDArray[np.uint32]:
    """Return the smallest n-gram of each unit by each of n permutations, [n, units]."""
    factors, terms = _permutations(n)
    result = np.empty((n, len(firsts)), np.uint32)
    permuted = np.empty_like(grams)
    for i in range(n):
        np.multiply(grams, factors[i], out=permuted)
        np.add(permuted, terms[i], out=permuted)
        np.minimum.reduceat(permuted, firsts, out=result[i])
    return result


@cache
def _permutations(n: int) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """Return the factors (odd) and terms of n permutations of the 32-bit numbers."""
    numbers = mix(np.arange(1, 2 * n + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15))
    small = numbers.astype(np.uint32)
    return small[:n] | np.uint32(1), small[n:]


@dataclass(frozen=True)
class RepeatedUnits:
    """The units that are like others, in order, and the first of each one's group."""

    units: NDArray[np.int64]
    firsts: NDArray[np.int64]

    def first_of(self, units: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the first of the duplicates of each unit; one without any is its own first."""
        if not len(self.units):
            return units
        at = np.minimum(np.searchsorted(self.units, units), len(self.units) - 1)
        return np.where(self.units[at] == units, self.firsts[at], units)


def find_repeated(n_keys: int, read_keys: Callable[[int], NDArray[np.uint64]]) -> RepeatedUnits:
    """Find the units that share a key, or are linked by others that do.

    Memory: about 23 bytes for each unit, and 75 for each that is repeated.

    Args:
        n_keys: keys of a unit.
        read_keys: returns one key of all units, [n], by its index; at most one is held at a time.
    """
    groups = RepeatedUnits(np.zeros(0, np.int64), np.zeros(0, np.int64))
    for i in range(n_keys):
        links = list(_links(read_keys(i)))
        groups = _merge(groups, *(np.concatenate(ends) for ends in zip(*links, strict=True)))
    return groups


def _links(keys: NDArray[np.uint64]) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Yield pairs of units with the same key, a range of keys at a time: sorting takes memory."""
    n_ranges = len(keys) // _PARTITION_UNITS + 1
    bounds = [i * 2**64 // n_ranges for i in range(n_ranges)]
    for low, high in pairwise([*bounds, 2**64]):
        within = (keys >= np.uint64(max(low, NO_KEY + 1))) & (keys <= np.uint64(high - 1))
        units = np.flatnonzero(within)
        some = keys[units]
        order = np.argsort(some, kind="stable")
        same = np.flatnonzero(some[order[1:]] == some[order[:-1]])
        yield units[order[same]], units[order[same + 1]]


def _merge(
    groups: RepeatedUnits, left: NDArray[np.int64], right: NDArray[np.int64]
) -> RepeatedUnits:
    """Merge groups whose units are linked."""
    a, b = groups.first_of(left), groups.first_of(right)
    linked = a != b
    if not linked.any():
        return groups
    ends = np.unique(np.concatenate((a[linked], b[linked])))
    shape = (len(ends), len(ends))
    edges = (np.searchsorted(ends, a[linked]), np.searchsorted(ends, b[linked]))
    graph = coo_array((np.ones(len(edges[0]), np.int8), edges), shape=shape)
    _, components = connected_components(graph, directed=False)
    firsts = np.full(components.max() + 1, ends[-1])
    np.minimum.at(firsts, components, ends)
    renamed = RepeatedUnits(ends, firsts[components])
    units = np.union1d(groups.units, ends)
    return RepeatedUnits(units, renamed.first_of(groups.first_of(units)))


@dataclass(frozen=True)
class DuplicateGroups:
    """The duplicates of one kind."""

    how: Deduplication
    n_units: int
    """Units that were compared."""
    repeated: RepeatedUnits

    @property
    def removed(self) -> NDArray[np.int64]:
        """The units that are not the first of their group, in order."""
        return self.repeated.units[self.repeated.units != self.repeated.firsts]

    @property
    def is_removed(self) -> NDArray[np.bool_]:
        """Whether a unit is not the first of its group, [n]."""
        result = np.zeros(self.n_units, bool)
        result[self.removed] = True
        return result

    def first_removed(self, n: int) -> dict[int, int]:
        """Return the first n units that are removed, and what stays of each."""
        some = self.removed[:n]
        return dict(zip(some.tolist(), self.repeated.first_of(some).tolist(), strict=True))


def find_duplicates(
    n_paragraphs: NDArray[np.int64],
    deduplications: Sequence[Deduplication],
    read_keys: Callable[[int, int], NDArray[np.uint64]],
) -> list[DuplicateGroups]:
    """Find duplicates of several kinds; what one kind removed is none of another's.

    Args:
        n_paragraphs: paragraphs of each document.
        deduplications: the kinds, those of documents first.
        read_keys: returns, of a kind by its index, one of its keys of all units, which may be
            changed.
    """
    gone = {
        "document": np.zeros(len(n_paragraphs), bool),
        "paragraph": np.zeros(int(n_paragraphs.sum()), bool),
    }
    result: list[DuplicateGroups] = []
    for i, how in enumerate(deduplications):
        if how.unit == "paragraph":
            gone["paragraph"] |= np.repeat(gone["document"], n_paragraphs)
        left = partial(_keys_of_those_left, gone[how.unit], partial(read_keys, i))
        found = DuplicateGroups(how, len(gone[how.unit]), find_repeated(how.n_keys, left))
        gone[how.unit][found.removed] = True
        result.append(found)
    return result


def _keys_of_those_left(
    gone: NDArray[np.bool_], read_keys: Callable[[int], NDArray[np.uint64]], at: int
) -> NDArray[np.uint64]:
    keys = read_keys(at)
    keys[gone] = NO_KEY
    return keys


def split_units(text: str, unit: Unit) -> list[str]:
    """Split a document into its units."""
    return [text] if unit == "document" else text.split("\n")
