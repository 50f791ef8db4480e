"""Documents one after the other as one text, parted by a special token: rows of full sentences."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Int

from unmask.batch import Tokens
from unmask.tokens import rows
from unmask.tokens.shards import Shards
from unmask.tokens.vocabulary import Special


def separator(special: Special) -> tuple[int, ...]:
    """Return what parts documents that are read as one text: the token that ends a text, once.

    Nothing where each document has it at its end already (`unmask.tokens.workers.ended`), and in a
    vocabulary with sentinels: T5's documents follow each other bare (`reduce_concat_tokens` in the
    released code).
    """
    if special.end is None or special.end not in special.after or special.sentinels:
        return ()
    return (special.end,)


@dataclass(frozen=True, eq=False)
class Joined:
    """Documents as one text with `between` between them; a place is counted through all of it.

    FULL-SENTENCES of Liu et al. 2019, arXiv:1907.11692, section 4.2.
    Deviates: in the data of the released code each sentence ends with a separator, each document
    with one more; here those between documents are all.
    """

    shards: Shards
    documents: Int[np.ndarray, "n 2"]
    """The first and the last token (exclusive) of each document or part of one, in order."""
    between: tuple[int, ...]

    @cached_property
    def starts(self) -> Int[np.ndarray, "n"]:
        """The place at which each document starts."""
        sizes = self.documents[:, 1] - self.documents[:, 0]
        return np.cumsum(sizes + len(self.between)) - sizes - len(self.between)

    @cached_property
    def n_places(self) -> int:
        """Tokens of all documents and between them."""
        if not len(self.documents):
            return 0
        return int(self.starts[-1] + self.documents[-1, 1] - self.documents[-1, 0])

    def text(self, start: int, end: int) -> Tokens:
        """Read from one place up to another (without).

        Raises:
            ValueError: there are no such places.
        """
        if not 0 <= start <= end <= self.n_places:
            raise ValueError(f"places {start} to {end} do not lie within 0 to {self.n_places}")
        between = Tokens(np.array(self.between, np.int64), np.zeros(len(self.between), np.uint8))
        first = int(np.searchsorted(self.starts, start, "right")) - 1
        last = int(np.searchsorted(self.starts, end))
        parts = [between[:0]]
        for base, (a, b) in zip(
            self.starts[first:last].tolist(), self.documents[first:last].tolist(), strict=True
        ):
            begin, stop, n = max(start - base, 0), end - base, b - a
            parts.append(self.shards.text(a + min(begin, n), a + min(stop, n)))
            parts.append(between[max(begin - n, 0) : max(stop - n, 0)])
        return Tokens(
            np.concatenate([part.ids for part in parts]),
            np.concatenate([part.marks for part in parts]),
        )

    def rows(self, length: int) -> Int[np.ndarray, "rows 2"]:
        """Cut the text into rows (start, end) of at most `length` places, in order.

        A row has as many full sentences as fit, of one document or several of one source; a
        sentence that is longer is cut first. No row begins or ends between documents; every token
        is in exactly one row. The result has 16 bytes a row; while it is made, the sentences of a
        shard are in memory.

        Raises:
            ValueError: a length below 1.
        """
        if length < 1:
            raise ValueError(f"the length of rows must be at least 1, got {length}")
        return rows.filled(self._pieces(length), length, self._borders())

    def pieces(self, length: int, step: int | None = None) -> Int[np.ndarray, "rows 2"]:
        """Cut the text into rows (start, end) of exactly `length` places, one behind the other.

        Or each `step` behind the one before, so that they overlap. What is left at the end, fewer
        places than a row, is in no other.

        Raises:
            ValueError: a length below 1, or a step that is below 1 or longer.
        """
        step = length if step is None else step
        if not 1 <= step <= length:
            raise ValueError(
                f"the length of rows must be at least 1, and a step at most that, got {length} "
                f"and {step}"
            )
        starts = np.arange(max(0, (self.n_places - length) // step + 1)) * step
        return np.stack((starts, starts + length), 1)

    def document_of(self, places: Int[np.ndarray, "n"]) -> Int[np.ndarray, "n"]:
        """Return the number, in the shards, of the document that each place is in or behind."""
        own = np.searchsorted(self.starts, places, "right") - 1
        return self.shards.document_of(self.documents[own, 0])

    def _pieces(self, length: int) -> Iterator[Int[np.ndarray, "m 2"]]:
        """Give the places of all sentences, the long ones cut, shard by shard."""
        for starts, ends in self.shards.sentences(self.documents):
            own = np.searchsorted(self.documents[:, 0], starts, "right") - 1
            shift = self.starts[own] - self.documents[own, 0]
            yield rows.cut(starts + shift, ends + shift, length)

    def _borders(self) -> Int[np.ndarray, "k"]:
        """Return the places at which another source begins, where the shards tell sources apart."""
        if self.shards.sources is None or not len(self.documents):
            return self.starts[:0]
        of = self.shards.sources[1][self.document_of(self.starts)]
        return self.starts[1:][of[1:] != of[:-1]]
