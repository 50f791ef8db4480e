"""Documents one after the other as one text, parted by a special token: rows of full sentences."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Int

from unmask.batch import SENTENCE_START, Tokens
from unmask.shards import rows
from unmask.shards.read import TokenShards
from unmask.tokenizers.spec import SpecialTokenIds

TOKENS_AT_ONCE = 2**22
"""Tokens whose marks are in memory while the sentences of unordered documents are looked for."""


def document_separator_ids(special_ids: SpecialTokenIds) -> tuple[int, ...]:
    """Return what parts documents that are read as one text: the token that ends a text, once.

    Nothing where each document has it at its end already
    (`unmask.shards.workers.append_end_tokens`), and in a vocabulary with sentinels: T5's documents
    follow each other bare (`reduce_concat_tokens` in the released code).
    """
    if (
        special_ids.end is None
        or special_ids.end not in special_ids.suffix
        or special_ids.sentinels
    ):
        return ()
    return (special_ids.end,)


@dataclass(frozen=True, eq=False)
class ConcatenatedDocuments:
    """Documents as one text, with `separator_ids` between them.

    A position is counted through all of it.

    FULL-SENTENCES of Liu et al. 2019, arXiv:1907.11692, section 4.2.
    Deviates: in the data of the released code each sentence ends with a separator, each document
    with one more; here those between documents are all.
    """

    shards: TokenShards
    document_spans: Int[np.ndarray, "n 2"]
    """The first and the last token (exclusive) of each document or part of one, in order."""
    separator_ids: tuple[int, ...]

    @cached_property
    def starts(self) -> Int[np.ndarray, "n"]:
        """The place at which each document starts."""
        sizes = self.document_spans[:, 1] - self.document_spans[:, 0]
        return np.cumsum(sizes + len(self.separator_ids)) - sizes - len(self.separator_ids)

    @cached_property
    def n_tokens(self) -> int:
        """Tokens of all documents and between them."""
        if not len(self.document_spans):
            return 0
        return int(self.starts[-1] + self.document_spans[-1, 1] - self.document_spans[-1, 0])

    def read_tokens(self, start: int, end: int) -> Tokens:
        """Read from one place up to another (without).

        Raises:
            ValueError: there are no such places.
        """
        if not 0 <= start <= end <= self.n_tokens:
            raise ValueError(f"places {start} to {end} do not lie within 0 to {self.n_tokens}")
        between = Tokens(
            np.array(self.separator_ids, np.int64), np.zeros(len(self.separator_ids), np.uint8)
        )
        parts = [between[:0]]
        for base, a, b in self._documents_between(start, end):
            begin, stop, n = max(start - base, 0), end - base, b - a
            parts.append(self.shards.read_tokens(a + min(begin, n), a + min(stop, n)))
            parts.append(between[max(begin - n, 0) : max(stop - n, 0)])
        return Tokens(
            np.concatenate([part.ids for part in parts]),
            np.concatenate([part.boundaries for part in parts]),
        )

    def read_ahead(self, start: int, end: int) -> None:
        """Fetch what lies between two places in the background, where it is on remote storage."""
        for base, a, b in self._documents_between(start, end):
            self.shards.read_ahead(a + max(start - base, 0), min(a + end - base, b))

    def _documents_between(self, start: int, end: int) -> Iterator[tuple[int, int, int]]:
        """Yield where each document is read, and its first and last token (exclusive)."""
        first = int(np.searchsorted(self.starts, start, "right")) - 1
        last = int(np.searchsorted(self.starts, end))
        for base, (a, b) in zip(
            self.starts[first:last].tolist(), self.document_spans[first:last].tolist(), strict=True
        ):
            yield base, a, b

    def sentence_rows(self, row_length: int) -> Int[np.ndarray, "rows 2"]:
        """Cut the text into rows (start, end) of at most `row_length` places, in order.

        A row has as many full sentences as fit, of one document or several of one source; a
        sentence that is longer is cut first. No row begins or ends between documents; every token
        is in exactly one row. The result has 16 bytes a row; while it is made, the sentences of a
        shard are in memory.

        Raises:
            ValueError: a length below 1.
        """
        if row_length < 1:
            raise ValueError(f"the length of rows must be at least 1, got {row_length}")
        return rows.pack_pieces(
            self._sentence_spans(row_length), row_length, self._source_boundaries()
        )

    def fixed_length_rows(
        self, row_length: int, stride: int | None = None
    ) -> Int[np.ndarray, "rows 2"]:
        """Cut the text into rows (start, end) of exactly `row_length` places, one behind the other.

        Or each `stride` behind the one before, so that they overlap. What is left at the end, fewer
        places than a row, is in no other.

        Raises:
            ValueError: a length below 1, or a step that is below 1 or longer.
        """
        stride = row_length if stride is None else stride
        if not 1 <= stride <= row_length:
            raise ValueError(
                f"the length of rows must be at least 1, and a step at most that, got {row_length} "
                f"and {stride}"
            )
        starts = np.arange(max(0, (self.n_tokens - row_length) // stride + 1)) * stride
        return np.stack((starts, starts + row_length), 1)

    def document_of(self, positions: Int[np.ndarray, "n"]) -> Int[np.ndarray, "n"]:
        """Return the number, in the shards, of the document that each place is in or behind."""
        own = np.searchsorted(self.starts, positions, "right") - 1
        return self.shards.document_of(self.document_spans[own, 0])

    def _sentence_spans(self, row_length: int) -> Iterator[Int[np.ndarray, "m 2"]]:
        """Give the places of all sentences, the long ones cut, shard by shard.

        Where the documents are in an order of their own, some million tokens at a time.
        """
        if (np.diff(self.document_spans[:, 0]) <= 0).any():
            for starts, ends in self._unordered_sentences():
                yield rows.split_spans(starts, ends, row_length)
            return
        for starts, ends in self.shards.sentence_spans(self.document_spans):
            own = np.searchsorted(self.document_spans[:, 0], starts, "right") - 1
            shift = self.starts[own] - self.document_spans[own, 0]
            yield rows.split_spans(starts + shift, ends + shift, row_length)

    def _unordered_sentences(
        self,
    ) -> Iterator[tuple[Int[np.ndarray, "m"], Int[np.ndarray, "m"]]]:
        """Give the places at which sentences start and end, of documents in any order."""
        sizes = self.document_spans[:, 1] - self.document_spans[:, 0]
        cuts = np.searchsorted(
            self.starts, np.arange(0, self.n_tokens + TOKENS_AT_ONCE, TOKENS_AT_ONCE)
        )
        for first, last in zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True):
            if first == last:
                continue
            spans, n = self.document_spans[first:last], sizes[first:last]
            for a, b in spans.tolist() if self.shards.is_remote else ():
                self.shards.read_ahead(a, b, marks_alone=True)
            marks = np.concatenate([self.shards.read_marks(a, b) for a, b in spans.tolist()])
            begins = np.cumsum(n) - n
            marks[begins] |= SENTENCE_START
            found = np.flatnonzero(marks & SENTENCE_START)
            shift = np.repeat(
                self.starts[first:last] - begins,
                np.diff([*np.searchsorted(found, begins), len(found)]),
            )
            ends = np.append(found[1:], len(marks))
            yield found + shift, ends + shift

    def _source_boundaries(self) -> Int[np.ndarray, "k"]:
        """Return the places at which another source begins, where the shards tell sources apart."""
        if self.shards.sources_of_documents is None or not len(self.document_spans):
            return self.starts[:0]
        of = self.shards.sources_of_documents[1][self.document_of(self.starts)]
        return self.starts[1:][of[1:] != of[:-1]]
