"""Which tokens make a row: units of text, cut or put together; and what is held out."""

from collections.abc import Iterable

import numpy as np
from jaxtyping import Int


def cut(
    starts: Int[np.ndarray, "n"], ends: Int[np.ndarray, "n"], length: int
) -> Int[np.ndarray, "rows 2"]:
    """Cut each (start, end) into consecutive pieces of `length` tokens; the last has the rest."""
    length = min(length, int((ends - starts).max(initial=1)))  # so that adding it never overflows
    n_pieces = -((starts - ends) // length)  # rounded up
    rows = np.empty((int(n_pieces.sum()), 2), np.int64)
    first = np.cumsum(n_pieces) - n_pieces
    rows[:, 0] = np.arange(len(rows))
    rows[:, 0] -= np.repeat(first, n_pieces)  # the number of a piece within its own unit
    rows[:, 0] *= length
    rows[:, 0] += np.repeat(starts, n_pieces)
    np.minimum(rows[:, 0] + length, np.repeat(ends, n_pieces), out=rows[:, 1])
    return rows


def filled(
    parts: Iterable[Int[np.ndarray, "_ 2"]], length: int, borders: Int[np.ndarray, "k"]
) -> Int[np.ndarray, "rows 2"]:
    """Put as many consecutive pieces into each row as have room in `length` places.

    What lies between two pieces of a row takes up room too, what lies between two rows is lost.

    Args:
        parts: (start, end) of pieces of at most `length` places, all in order; only one part, and
            a row, are in memory at once.
        length: places.
        borders: places that no row goes across, in order.
    """
    rows, begun = [np.empty((0, 2), np.int64)], np.empty((0, 2), np.int64)
    for part in parts:
        pieces = np.concatenate((begun, part))
        if len(pieces):
            firsts = _firsts(pieces, length, borders)
            rows.append(np.stack((pieces[firsts[:-1], 0], pieces[firsts[1:] - 1, 1]), 1))
            begun = pieces[firsts[-1] :]  # the last row may go on
    if len(begun):
        rows.append(np.array([[begun[0, 0], begun[-1, 1]]]))
    return np.concatenate(rows)


def _firsts(
    pieces: Int[np.ndarray, "n 2"], length: int, borders: Int[np.ndarray, "k"]
) -> Int[np.ndarray, "rows"]:
    """Return the first piece of each row, of one piece or more."""
    starts, ends = pieces[:, 0], pieces[:, 1]
    length = min(length, int(ends[-1] - starts[0]))  # so that adding it never overflows
    border = np.append(borders, ends[-1])[np.searchsorted(borders, starts, "right")]
    beyond = np.searchsorted(ends, np.minimum(starts + length, border), "right")
    firsts, first = list[int](), 0
    while first < len(pieces):
        firsts.append(first)
        first = beyond.item(first)
    return np.array(firsts)


def inside(
    places: Int[np.ndarray, "n"], spans: Int[np.ndarray, "m 2"]
) -> tuple[Int[np.ndarray, "k"], Int[np.ndarray, "k"]]:
    """Keep the places that are in a span; give them and their ends: the next place or span's end.

    Both are in ascending order, no two spans overlap, and each span's start is among the places.
    """
    if not len(spans):
        return places[:0], places[:0]
    span = np.searchsorted(spans[:, 0], places, "right") - 1
    kept = (span >= 0) & (places < spans[span, 1])
    starts, ends = places[kept], spans[span[kept], 1]
    np.minimum(ends[:-1], starts[1:], out=ends[:-1])
    return starts, ends


def held_out(
    documents: Int[np.ndarray, "n 2"], share: float, seed: int
) -> tuple[Int[np.ndarray, "k 2"], Int[np.ndarray, "m 2"]]:
    """Draw whole documents with about `share` of all tokens; give the others, and these.

    A document with more tokens than that is drawn only if all have more; then it is the shortest
    one.
    """
    sizes = documents[:, 1] - documents[:, 0]
    wanted = share * int(sizes.sum())
    small = np.flatnonzero(sizes <= wanted)
    if len(small):
        drawn = np.random.default_rng(seed).permutation(small)
        # At least one, not all; the last is the one that brings the sum nearest to what is wanted.
        sums = np.cumsum(sizes[drawn])[: len(documents) - 1]
        drawn = drawn[: int(np.argmin(np.abs(sums - wanted))) + 1]
    else:
        drawn = np.argmin(sizes)
    out = np.zeros(len(documents), bool)
    out[drawn] = True
    return documents[~out], documents[out]


def held_out_of_each(
    documents: Int[np.ndarray, "n 2"], source: Int[np.ndarray, "n"], share: float, seed: int
) -> tuple[Int[np.ndarray, "k 2"], Int[np.ndarray, "m 2"]]:
    """Do as `held_out` with each source of more than one document; give the others, and these."""
    out = np.zeros(len(documents), bool)
    for i in np.unique(source):
        own = documents[source == i]
        if len(own) > 1:
            out |= np.isin(documents[:, 0], held_out(own, share, seed)[1][:, 0])
    return documents[~out], documents[out]
