"""Documents -> token ids on disk, memory-mapped: tokenized once, read at random by every epoch.

A folder of shards holds

    shards.json      what was made from what, with counts, sizes and checksums; written last: the
                     folder is finished if and only if it is there. Until then, unfinished.json
                     says the same of the shards closed so far
    tokenizer/       the tokenizer that made the ids
    00000.tokens     ids, one after another, little-endian uint16 or uint32
    00000.marks      a byte for each id, WORD_START | SENTENCE_START | PARAGRAPH_START: what begins
    00000.documents  little-endian int64: where in the shard each document starts, and its end

A document lies within one shard. A shard is closed by the document that brings it to
`shard_tokens` tokens.
"""

import operator
import threading
from bisect import bisect_right
from collections.abc import Iterator
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Literal, Protocol, SupportsIndex, runtime_checkable

import numpy as np
from jaxtyping import Int, UInt8

from unmask.batch import PARAGRAPH_START, SENTENCE_START, WORD_START, Tokens
from unmask.shards import rows
from unmask.shards.manifest import (
    ShardsManifest,
    check_counts,
    check_shard,
    check_tokenizer,
    find_damage,
    read_manifest,
    shard_path,
)
from unmask.tokenizers.encode import Tokenizer
from unmask.tokenizers.load import load_tokenizer

RowUnit = Literal["document", "paragraph", "sentence", "sentences"]
_UNIT_BITS = {
    "document": 0,
    "paragraph": PARAGRAPH_START,
    "sentence": SENTENCE_START,
    "sentences": SENTENCE_START,
}
MANIFEST_FILE, UNFINISHED_FILE = "shards.json", "unfinished.json"
TEXT_FOLDER = "text"
"""Of a prepared folder: the cleaned text that its tokens were made from."""
# At once. Each holds two file descriptors, and a process often may have no more than 1024.
_MAX_MAPPED_SHARDS = 128


@runtime_checkable
class MappedArray(Protocol):
    """An array on disk or elsewhere, of which parts are read."""

    def __getitem__(self, part: slice, /) -> np.ndarray:
        """Read a part."""
        ...


class TokenShards:
    """The tokens of a corpus on disk. A token's place is counted through all shards.

    Cheap to send to another process: it opens the folder anew there. After a fork the maps are
    shared.
    """

    folder: Path
    n_tokens: int
    n_documents: int
    n_bytes: int
    """Bytes of UTF-8 of all documents, for bits per byte."""
    n_skipped: int
    """Documents that had no token and were left out."""

    def __init__(self, folder: Path, manifest: ShardsManifest) -> None:
        self.folder = folder.absolute()
        self.manifest = manifest
        self.n_tokens, self.n_documents = manifest.n_tokens, manifest.n_documents
        self.n_bytes, self.n_skipped = manifest.n_bytes, manifest.n_skipped
        sizes = [shard.n_tokens for shard in manifest.shards]
        self._starts: list[int] = [0, *np.cumsum(sizes).tolist()]
        self._cached_arrays = lru_cache(_MAX_MAPPED_SHARDS)(self._map_arrays)

    def __repr__(self) -> str:
        return (
            f"TokenShards({str(self.folder)!r}: {self.n_tokens} tokens, {self.n_documents} "
            "documents)"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return TokenShards.open, (self.folder,)

    @property
    def location(self) -> str:
        """Where the folder is, for messages."""
        return str(self.folder)

    @property
    def is_remote(self) -> bool:
        """Whether reading takes long, so that it is asked for early (`read_ahead`)."""
        return False

    def reading_notes(self) -> list[str]:
        """Say what a user should know of how the folder is read."""
        return []

    def read_ahead(self, start: int, end: int, *, marks_alone: bool = False) -> None:
        """Fetch tokens, or what begins at them, that will be read soon, in the background."""

    def find_damage(self, stopped: threading.Event) -> str | None:
        """Compare all files with their checksums until `stopped`; return what is wrong."""
        return find_damage(self.folder, self.manifest, stopped)

    def check_unchanged(self) -> None:
        """Check that what was read is still what is there.

        Raises:
            ValueError: a file was replaced.
        """

    @classmethod
    def open(cls, folder: Path, *, verify_contents: bool = False) -> "TokenShards":
        """Open a finished folder; with `verify_contents`, read all of it and compare the checksums.

        Raises:
            FileNotFoundError: there is none, it is unfinished, or one of its files is missing.
            ValueError: a file is truncated or damaged, or of another version.
        """
        if not (folder / MANIFEST_FILE).exists():
            if (folder / UNFINISHED_FILE).exists():
                raise FileNotFoundError(
                    f"{folder} is unfinished: it was interrupted while its tokens were prepared; "
                    "prepare it again to go on"
                )
            raise FileNotFoundError(f"{folder} holds no prepared tokens: it has no {MANIFEST_FILE}")
        manifest = read_manifest(folder / MANIFEST_FILE)
        check_counts(manifest, folder / MANIFEST_FILE)
        for index, shard in enumerate(manifest.shards):
            check_shard(folder, index, shard, verify_contents=verify_contents)
        if verify_contents:
            check_tokenizer(folder, manifest)
        return cls(folder, manifest)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer that made the ids.

        Raises:
            ValueError: its files are not those that the tokens were made with.
        """
        check_tokenizer(self.folder, self.manifest)
        return load_tokenizer(self.folder / "tokenizer")

    @cached_property
    def document_spans(self) -> Int[np.ndarray, "n 2"]:
        """Where each document starts and ends. Kept in memory after the first use."""
        documents = np.empty((self.n_documents, 2), np.int64)
        n = 0
        for index, shard in enumerate(self.manifest.shards):
            path = shard_path(self.folder, index, "documents")
            offsets = np.fromfile(path, "<i8")
            ends = (int(offsets[0]), int(offsets[-1]))
            if ends != (0, shard.n_tokens) or not (np.diff(offsets) > 0).all():
                raise ValueError(
                    f"{path} is damaged: it does not cut {shard.n_tokens} tokens into documents"
                )
            offsets += self._starts[index]
            documents[n : n + shard.n_documents, 0] = offsets[:-1]
            documents[n : n + shard.n_documents, 1] = offsets[1:]
            n += shard.n_documents
        return documents

    @cached_property
    def sources_of_documents(self) -> tuple[tuple[str, ...], Int[np.ndarray, "n"]] | None:
        """The names of the sources, and which of them each document is of; None: not told."""
        parts = [part for shard in self.manifest.shards for part in shard.source_segments]
        if not all(shard.source_segments for shard in self.manifest.shards):
            return None
        numbers: dict[str, int] = {}
        of = [numbers.setdefault(part.source, len(numbers)) for part in parts]
        return tuple(numbers), np.repeat(of, [part.n_documents for part in parts])

    def read_tokens(self, start: SupportsIndex, end: SupportsIndex) -> Tokens:
        """Read the tokens from `start` up to `end` (without), as arrays of their own.

        Raises:
            ValueError: there are no such places, or an id there is beyond the vocabulary.
        """
        start, end = operator.index(start), operator.index(end)
        if not 0 <= start <= end <= self.n_tokens:
            raise ValueError(f"tokens {start} to {end} do not lie within 0 to {self.n_tokens}")
        ids, marks = np.empty(end - start, np.int64), np.empty(end - start, np.uint8)
        index, at = bisect_right(self._starts, start) - 1, start
        while at < end:
            base, stop = self._starts[index], min(end, self._starts[index + 1])
            tokens, begins = self._cached_arrays(index)
            ids[at - start : stop - start] = tokens[at - base : stop - base]
            self._check_ids(index, ids[at - start : stop - start])
            marks[at - start : stop - start] = begins[at - base : stop - base]
            index, at = index + 1, stop
        return Tokens(ids, marks)

    def read_marks(self, start: int, end: int) -> UInt8[np.ndarray, "n"]:
        """Read what begins at each token of one document.

        Raises:
            ValueError: there are no such places.
        """
        if not 0 <= start <= end <= self.n_tokens:
            raise ValueError(f"tokens {start} to {end} do not lie within 0 to {self.n_tokens}")
        index = bisect_right(self._starts, start) - 1
        base = self._starts[index]
        return self._cached_arrays(index)[1][start - base : end - base]

    def row_spans(
        self,
        row_length: int,
        row_unit: RowUnit = "document",
        within_spans: Int[np.ndarray, "n 2"] | None = None,
    ) -> Int[np.ndarray, "rows 2"]:
        """Cut the corpus into rows (start, end) of at most `row_length` tokens, in order.

        Each unit is a row; one that is longer than `row_length` is cut into consecutive rows, the
        last of which has what is left; of "sentences", each row has as many as fit. A row never
        crosses a document; every token is in exactly one row. The result has 16 bytes a row; while
        it is made, about five times that are in memory, and, unless the unit is the document, two
        bytes a token of the largest shard.

        Args:
            row_length: tokens.
            row_unit: a document, paragraph or sentence, or sentences of one document.
            within_spans: only these spans of tokens, in order, such as `split_held_out` gives;
                None: everything.

        Raises:
            ValueError: another unit, a length below 1, or spans that are not in order, overlap, or
                lie outside.
        """
        if row_unit not in _UNIT_BITS:
            raise ValueError(
                f"the unit of rows must be one of {list(_UNIT_BITS)}, got {row_unit!r}"
            )
        if row_length < 1:
            raise ValueError(f"the length of rows must be at least 1, got {row_length}")
        spans = self.document_spans if within_spans is None else self._check_spans(within_spans)
        places = borders = np.union1d(self.document_spans[:, 0], spans[:, 0])
        if _UNIT_BITS[row_unit]:
            places = np.concatenate(
                [np.empty(0, np.int64), *self._positions_with_bit(_UNIT_BITS[row_unit], borders)]
            )
        pieces = rows.split_spans(*rows.positions_in_spans(places, spans), row_length)
        return (
            rows.pack_pieces([pieces], row_length, borders) if row_unit == "sentences" else pieces
        )

    def sentence_spans(
        self, within_spans: Int[np.ndarray, "n 2"]
    ) -> Iterator[tuple[Int[np.ndarray, "m"], Int[np.ndarray, "m"]]]:
        """Give where sentences start and end, shard by shard.

        One starts with each span, even in the middle of one.

        Args:
            within_spans: only these spans of tokens, in order, each of one document.

        Raises:
            ValueError: spans that are not in order, overlap, or lie outside.
        """
        spans = self._check_spans(within_spans)
        marks = self._positions_with_bit(SENTENCE_START, spans[:, 0])
        for end, marked in zip(self._starts[1:], marks, strict=True):
            last = int(np.searchsorted(spans[:, 0], end))
            yield rows.positions_in_spans(marked, spans[:last])
            spans = spans[last:]

    def document_of(self, positions: Int[np.ndarray, "n"]) -> Int[np.ndarray, "n"]:
        """Return the number of the document that each token is of."""
        return np.searchsorted(self.document_spans[:, 0], positions, "right") - 1

    def split_held_out(
        self, fraction: float, seed: int = 0, *, by_source: bool = False
    ) -> tuple[Int[np.ndarray, "n 2"], Int[np.ndarray, "m 2"]]:
        """Split the corpus for training and evaluation: give the spans of each, for `row_spans`.

        Whole documents are drawn for evaluation until they have about `fraction` of the tokens: at
        least one, and not all. A document with more tokens than that is drawn only if all have
        more; then it is the shortest one. Where there is but one document, its end is held out
        instead, from the start of the sentence (if none, of the word) that is nearest.

        With `by_source`, that share is held out of each source by itself, and nothing of one that
        has a single document.

        Raises:
            ValueError: a share that is not at least 0 and below 1; a single token, which cannot be
                split.
        """
        if not 0 <= fraction < 1:
            raise ValueError(
                f"the share that is held out must be at least 0 and below 1, got {fraction}"
            )
        if fraction == 0:
            return self.document_spans, self.document_spans[:0]
        if by_source and self.sources_of_documents is not None:
            return rows.split_held_out_by_source(
                self.document_spans, self.sources_of_documents[1], fraction, seed
            )
        if self.n_documents > 1:
            return rows.split_held_out(self.document_spans, fraction, seed)
        if self.n_tokens == 1:
            raise ValueError(f"{self.folder} has a single token: nothing can be held out")
        cut = self._nearest_start(round((1 - fraction) * self.n_tokens))
        return np.array([[0, cut]]), np.array([[cut, self.n_tokens]])

    def mapped_arrays(self, index: int) -> tuple[np.ndarray, UInt8[np.ndarray, "t"]]:
        """Give the ids of a shard and what begins at each, as they lie on disk, memory-mapped.

        Raises:
            ValueError: an id is beyond the vocabulary.
        """
        mapped = self._cached_arrays(index)
        tokens, marks = mapped[0][:], mapped[1][:]
        self._check_ids(index, tokens)
        return tokens, marks

    def _check_ids(self, index: int, ids: np.ndarray) -> None:
        if len(ids) and (most := int(ids.max())) >= self.manifest.vocab_size:
            path = shard_path(self.folder, index, "tokens")
            raise ValueError(
                f"{path} is damaged: it has the id {most}, but there are {self.manifest.vocab_size}"
            )

    def _map_arrays(self, index: int) -> tuple[MappedArray, MappedArray]:
        shape = (self.manifest.shards[index].n_tokens,)
        dtype = np.dtype(self.manifest.dtype).newbyteorder("<")
        tokens = np.memmap(shard_path(self.folder, index, "tokens"), dtype, "r", shape=shape)
        marks = np.memmap(shard_path(self.folder, index, "marks"), np.uint8, "r", shape=shape)
        return np.asarray(tokens), np.asarray(marks)  # slices of a memmap itself are slow to make

    def _positions_with_bit(
        self, bit: int, positions: Int[np.ndarray, "n"]
    ) -> Iterator[Int[np.ndarray, "m"]]:
        """Give the places in each shard that have the mark, or are among `positions`."""
        for index, (start, end) in enumerate(zip(self._starts, self._starts[1:], strict=False)):
            marked = (self._cached_arrays(index)[1][:] & bit) != 0
            first, last = np.searchsorted(positions, (start, end))
            marked[positions[first:last] - start] = True
            yield np.flatnonzero(marked) + start

    def _check_spans(self, spans: Int[np.ndarray, "n 2"]) -> Int[np.ndarray, "m 2"]:
        edges = spans.ravel()
        if len(edges) and not (
            edges[0] >= 0 and edges[-1] <= self.n_tokens and (np.diff(edges) >= 0).all()
        ):
            raise ValueError(
                f"spans must be in order, not overlap, and lie within 0 to {self.n_tokens}"
            )
        return spans[spans[:, 0] < spans[:, 1]]

    def _nearest_start(self, target: int) -> int:
        """Find where the nearest sentence of the only document starts, or else the nearest word."""
        target = min(max(target, 1), self.n_tokens - 1)
        marks = self._cached_arrays(0)[1][:]
        for bit in (SENTENCE_START, WORD_START):
            places = np.flatnonzero((marks[1:] & bit) != 0) + 1
            if len(places):
                return int(places[np.argmin(np.abs(places - target))])
        return target
