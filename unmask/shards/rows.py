"""Which tokens make a row: units of text, cut or put together; and what is held out."""

from collections.abc import Iterable

import numpy as np
from jaxtyping import Int


def split_spans(
    starts: Int[np.ndarray, "n"], ends: Int[np.ndarray, "n"], row_length: int
) -> Int[np.ndarray, "rows 2"]:
    """Cut each (start, end) into consecutive rows of `row_length` tokens; the last has the rest."""
    row_length = min(
        row_length, int((ends - starts).max(initial=1))
    )  # so that adding it never overflows
    n_pieces = -((starts - ends) // row_length)  # rounded up
    rows = np.empty((int(n_pieces.sum()), 2), np.int64)
    first = np.cumsum(n_pieces) - n_pieces
    rows[:, 0] = np.arange(len(rows))
    rows[:, 0] -= np.repeat(first, n_pieces)  # the number of a piece within its own unit
    rows[:, 0] *= row_length
    rows[:, 0] += np.repeat(starts, n_pieces)
    np.minimum(rows[:, 0] + row_length, np.repeat(ends, n_pieces), out=rows[:, 1])
    return rows


def pack_pieces(
    parts: Iterable[Int[np.ndarray, "_ 2"]], row_length: int, boundaries: Int[np.ndarray, "k"]
) -> Int[np.ndarray, "rows 2"]:
    """Put as many consecutive pieces into each row as have room in `row_length` places.

    What lies between two pieces of a row takes up room too, what lies between two rows is lost.

    Args:
        parts: (start, end) of pieces of at most `row_length` places, all in order; only one part,
            and a row, are in memory at once.
        row_length: places.
        boundaries: places that no row goes across, in order.
    """
    rows, begun = [np.empty((0, 2), np.int64)], np.empty((0, 2), np.int64)
    for part in parts:
        pieces = np.concatenate((begun, part))
        if len(pieces):
            firsts = _first_pieces(pieces, row_length, boundaries)
            rows.append(np.stack((pieces[firsts[:-1], 0], pieces[firsts[1:] - 1, 1]), 1))
            begun = pieces[firsts[-1] :]  # the last row may continue
    if len(begun):
        rows.append(np.array([[begun[0, 0], begun[-1, 1]]]))
    return np.concatenate(rows)


def _first_pieces(
    pieces: Int[np.ndarray, "n 2"], row_length: int, boundaries: Int[np.ndarray, "k"]
) -> Int[np.ndarray, "rows"]:
    """Return the first piece of each row, of one piece or more."""
    starts, ends = pieces[:, 0], pieces[:, 1]
    row_length = min(row_length, int(ends[-1] - starts[0]))  # so that adding it never overflows
    border = np.append(boundaries, ends[-1])[np.searchsorted(boundaries, starts, "right")]
    beyond = np.searchsorted(ends, np.minimum(starts + row_length, border), "right")
    firsts, first = list[int](), 0
    while first < len(pieces):
        firsts.append(first)
        first = beyond.item(first)
    return np.array(firsts)


def positions_in_spans(
    positions: Int[np.ndarray, "n"], spans: Int[np.ndarray, "m 2"]
) -> tuple[Int[np.ndarray, "k"], Int[np.ndarray, "k"]]:
    """Keep the places that are in a span; give them and their ends: the next place or span's end.

    Both are in ascending order, no two spans overlap, and each span's start is among the places.
    """
    if not len(spans):
        return positions[:0], positions[:0]
    span = np.searchsorted(spans[:, 0], positions, "right") - 1
    kept = (span >= 0) & (positions < spans[span, 1])
    starts, ends = positions[kept], spans[span[kept], 1]
    np.minimum(ends[:-1], starts[1:], out=ends[:-1])
    return starts, ends


def split_held_out(
    document_spans: Int[np.ndarray, "n 2"], fraction: float, seed: int
) -> tuple[Int[np.ndarray, "k 2"], Int[np.ndarray, "m 2"]]:
    """Draw whole documents with about `fraction` of all tokens; give the others, and these.

    A document with more tokens than that is drawn only if all have more; then it is the shortest
    one.
    """
    sizes = document_spans[:, 1] - document_spans[:, 0]
    wanted = fraction * int(sizes.sum())
    small = np.flatnonzero(sizes <= wanted)
    if len(small):
        drawn = np.random.default_rng(seed).permutation(small)
        # At least one, not all; the last is the one that brings the sum nearest to what is wanted.
        sums = np.cumsum(sizes[drawn])[: len(document_spans) - 1]
        drawn = drawn[: int(np.argmin(np.abs(sums - wanted))) + 1]
    else:
        drawn = np.argmin(sizes)
    out = np.zeros(len(document_spans), bool)
    out[drawn] = True
    return document_spans[~out], document_spans[out]


def split_held_out_by_source(
    document_spans: Int[np.ndarray, "n 2"],
    source_of_document: Int[np.ndarray, "n"],
    fraction: float,
    seed: int,
) -> tuple[Int[np.ndarray, "k 2"], Int[np.ndarray, "m 2"]]:
    """Do as `held_out` with each source of more than one document; give the others, and these."""
    out = np.zeros(len(document_spans), bool)
    for i in np.unique(source_of_document):
        own = document_spans[source_of_document == i]
        if len(own) > 1:
            out |= np.isin(document_spans[:, 0], split_held_out(own, fraction, seed)[1][:, 0])
    return document_spans[~out], document_spans[out]
