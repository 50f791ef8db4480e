"""Documents as one text that has another order in each epoch, and the rows of each epoch.

A place is counted from the beginning of its epoch, and says of which epoch it is: an epoch has
`EPOCH_PLACES`. So whoever reads rows by their places, as worker processes do, needs nothing else.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from jaxtyping import Int

from unmask.batch import Tokens
from unmask.shards.concatenated import ConcatenatedDocuments
from unmask.shards.read import TokenShards

EPOCH_PLACES = 2**44
"""Places of an epoch: more than any text has, and 2**19 epochs before 64 bits are used up."""
_DOCUMENT_STREAM = 4
"""Stream of random numbers apart from those of batches (`unmask.batching.plan`)."""


@dataclass(frozen=True, kw_only=True, eq=False)
class DocumentGroup:
    """Documents that are shuffled among each other."""

    spans: Int[np.ndarray, "n 2"]
    """The first and the last token (exclusive) of each."""
    tokens_per_epoch: int
    """Tokens that an epoch reads: all of them, fewer, or all several times."""

    def epoch_spans(self, epoch: int, seed: int, number: int) -> Int[np.ndarray, "k 2"]:
        """List the documents of an epoch, in their order.

        They are read in rounds, each of all documents in an order of its own, so that none is read
        again before all others have been; an epoch continues where the last one ended.

        Args:
            epoch: from 0.
            seed: of the run.
            number: of the group.
        """
        sizes = self.spans[:, 1] - self.spans[:, 0]
        total, found = int(sizes.sum()), [self.spans[:0]]
        begin, end = epoch * self.tokens_per_epoch, (epoch + 1) * self.tokens_per_epoch
        for turn in range(begin // total, -(-end // total)):
            sequence = np.random.SeedSequence(seed, spawn_key=(_DOCUMENT_STREAM, number, turn))
            order = np.random.default_rng(sequence).permutation(len(sizes))
            starts = turn * total + np.cumsum(sizes[order]) - sizes[order]
            first, last = np.searchsorted(starts, (begin, end))
            found.append(self.spans[order[first:last]])
        return np.concatenate(found)


@dataclass(frozen=True, kw_only=True, eq=False)
class ReshuffledDocuments:
    """Documents, in each epoch in another order, a function of the seed and the epoch.

    Groups, which are sources, follow each other in each epoch as they do here. In memory are the
    orders of two epochs, 40 bytes a document.
    """

    shards: TokenShards
    groups: tuple[DocumentGroup, ...]
    separator_ids: tuple[int, ...]
    seed: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "_cached_epoch", lru_cache(2)(self._join))

    def __reduce__(self) -> tuple[Any, ...]:
        return _make, (self.shards, self.groups, self.separator_ids, self.seed)

    def epoch(self, number: int) -> ConcatenatedDocuments:
        """Return the text of an epoch, places counted from its beginning."""
        cached: Any = vars(self)["_cached_epoch"]
        return cached(number)

    def read_tokens(self, start: int, end: int) -> Tokens:
        """Read from one place of an epoch up to another of it (without).

        Raises:
            ValueError: there are no such places.
        """
        epoch, place = divmod(start, EPOCH_PLACES)
        return self.epoch(epoch).read_tokens(place, place + end - start)

    def read_ahead(self, start: int, end: int) -> None:
        """Fetch what lies between two places in the background, where it is on remote storage."""
        epoch, place = divmod(start, EPOCH_PLACES)
        self.epoch(epoch).read_ahead(place, place + end - start)

    def _join(self, epoch: int) -> ConcatenatedDocuments:
        spans = [
            group.epoch_spans(epoch, self.seed, number) for number, group in enumerate(self.groups)
        ]
        return ConcatenatedDocuments(self.shards, np.concatenate(spans), self.separator_ids)


def _make(
    shards: TokenShards,
    groups: tuple[DocumentGroup, ...],
    separator_ids: tuple[int, ...],
    seed: int,
) -> ReshuffledDocuments:
    return ReshuffledDocuments(shards=shards, groups=groups, separator_ids=separator_ids, seed=seed)


@dataclass(frozen=True, kw_only=True, eq=False)
class ReshuffledRows:
    """The rows of each epoch of reshuffled documents."""

    documents: ReshuffledDocuments
    row_length: int
    stride: int | None
    """Places from one row to the next, as of streams; None: rows of full sentences."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "_cached_rows", lru_cache(2)(self._cut))

    def __reduce__(self) -> tuple[Any, ...]:
        return _make_rows, (self.documents, self.row_length, self.stride)

    def row_spans(self, epoch: int) -> Int[np.ndarray, "rows 2"]:
        """Cut the text of an epoch into rows (start, end)."""
        cached: Any = vars(self)["_cached_rows"]
        return cached(epoch)

    def _cut(self, epoch: int) -> Int[np.ndarray, "rows 2"]:
        text = self.documents.epoch(epoch)
        if self.stride is None:
            rows = text.sentence_rows(self.row_length)
        else:
            rows = text.fixed_length_rows(self.row_length, self.stride)
        return rows + epoch * EPOCH_PLACES

    def document_of_row(
        self, epoch: int, row_spans: Int[np.ndarray, "rows 2"]
    ) -> Int[np.ndarray, "rows"]:
        """Return the number, in the order of the epoch, of the document each row begins in."""
        places = row_spans[:, 0] - epoch * EPOCH_PLACES
        return np.searchsorted(self.documents.epoch(epoch).starts, places, "right") - 1

    def source_of_row(
        self, epoch: int, row_spans: Int[np.ndarray, "rows 2"]
    ) -> Int[np.ndarray, "rows"]:
        """Return the number of the source of each row, where shards tell sources apart."""
        sources = self.documents.shards.sources_of_documents
        assert sources is not None
        places = row_spans[:, 0] - epoch * EPOCH_PLACES
        return sources[1][self.documents.epoch(epoch).document_of(places)]


def _make_rows(
    documents: ReshuffledDocuments, row_length: int, stride: int | None
) -> ReshuffledRows:
    return ReshuffledRows(documents=documents, row_length=row_length, stride=stride)
