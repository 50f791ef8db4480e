"""Documents -> token ids on disk, memory-mapped: tokenized once, read at random by every epoch.

A folder of shards holds

    shards.json      what was made from what, with counts, sizes and checksums; written last: the
                     folder is finished if and only if it is there. Until then, unfinished.json
                     says the same of the shards closed so far
    tokenizer/       the tokenizer that made the ids
    00000.tokens     ids, one after another, little-endian uint16 or uint32
    00000.marks      a byte for each id, WORD | SENTENCE | PARAGRAPH: what begins there
    00000.documents  little-endian int64: where in the shard each document starts, and its end

A document lies within one shard. A shard is closed by the document that brings it to
`shard_tokens` tokens.
"""

import errno
import fcntl
import hashlib
import operator
import os
import re
import shutil
import tempfile
from bisect import bisect_right
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import cached_property, lru_cache
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal, SupportsIndex

import numpy as np
from jaxtyping import Int, UInt8

from unmask.batch import PARAGRAPH, SENTENCE, WORD, Tokens
from unmask.files import sha256, sweep, whole, write_whole
from unmask.text.corpus import Document
from unmask.tokens import rows
from unmask.tokens.manifest import (
    File,
    Manifest,
    Part,
    Shard,
    as_json,
    check_shard,
    check_tokenizer,
    hash_of,
    path_of,
    read_manifest,
    totals,
)
from unmask.tokens.tokenizer import Tokenizer
from unmask.tokens.workers import encoded, id_type

Unit = Literal["document", "paragraph", "sentence", "sentences"]
_BITS = {"document": 0, "paragraph": PARAGRAPH, "sentence": SENTENCE, "sentences": SENTENCE}
_ELSEWHERE = "name another folder, or remove this one"
_FINISHED, _UNFINISHED = "shards.json", "unfinished.json"
# What a file system answers that cannot lock a folder (some network ones): there, two writers are
# the user's to avoid.
_NO_LOCKS = frozenset({errno.EBADF, errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EINVAL})
# At once. Each holds two file descriptors, and a process often may have no more than 1024.
_MAPPED_SHARDS = 128


class Shards:
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

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.folder = folder.absolute()
        self.manifest = manifest
        self.n_tokens, self.n_documents = manifest.n_tokens, manifest.n_documents
        self.n_bytes, self.n_skipped = manifest.n_bytes, manifest.n_skipped
        sizes = [shard.n_tokens for shard in manifest.shards]
        self._starts: list[int] = [0, *np.cumsum(sizes).tolist()]
        self._arrays = lru_cache(_MAPPED_SHARDS)(self._map)

    def __repr__(self) -> str:
        return f"Shards({str(self.folder)!r}: {self.n_tokens} tokens, {self.n_documents} documents)"

    def __reduce__(self) -> tuple[Any, ...]:
        return Shards.open, (self.folder,)

    @classmethod
    def open(cls, folder: Path, *, verify: bool = False) -> "Shards":
        """Open a finished folder; with `verify`, read all of it and compare the checksums.

        Raises:
            FileNotFoundError: there is none, it is unfinished, or one of its files is missing.
            ValueError: a file is truncated or damaged, or of another version.
        """
        if not (folder / _FINISHED).exists():
            if (folder / _UNFINISHED).exists():
                raise FileNotFoundError(
                    f"{folder} is unfinished: it was interrupted while its tokens were prepared; "
                    "prepare it again to go on"
                )
            raise FileNotFoundError(f"{folder} holds no prepared tokens: it has no {_FINISHED}")
        manifest = read_manifest(folder / _FINISHED)
        counts = (manifest.n_tokens, manifest.n_documents, manifest.n_bytes)
        if not manifest.shards or counts != totals(manifest.shards):
            raise ValueError(
                f"{folder / _FINISHED} is damaged: its counts are not the sums of its shards'"
            )
        for index, shard in enumerate(manifest.shards):
            check_shard(folder, index, shard, verify=verify)
        if verify:
            check_tokenizer(folder, manifest)
        return cls(folder, manifest)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer that made the ids.

        Raises:
            ValueError: its files are not those that the tokens were made with.
        """
        check_tokenizer(self.folder, self.manifest)
        return Tokenizer.load(self.folder / "tokenizer")

    @cached_property
    def documents(self) -> Int[np.ndarray, "n 2"]:
        """Where each document starts and ends. Kept in memory after the first use."""
        documents = np.empty((self.n_documents, 2), np.int64)
        n = 0
        for index, shard in enumerate(self.manifest.shards):
            path = path_of(self.folder, index, "documents")
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
    def sources(self) -> tuple[tuple[str, ...], Int[np.ndarray, "n"]] | None:
        """The names of the sources, and which of them each document is of; None: not told."""
        parts = [part for shard in self.manifest.shards for part in shard.parts]
        if not all(shard.parts for shard in self.manifest.shards):
            return None
        numbers: dict[str, int] = {}
        of = [numbers.setdefault(part.source, len(numbers)) for part in parts]
        return tuple(numbers), np.repeat(of, [part.n_documents for part in parts])

    def text(self, start: SupportsIndex, end: SupportsIndex) -> Tokens:
        """Read the tokens from `start` up to `end` (without), as arrays of their own.

        Raises:
            ValueError: there are no such places.
        """
        start, end = operator.index(start), operator.index(end)
        if not 0 <= start <= end <= self.n_tokens:
            raise ValueError(f"tokens {start} to {end} do not lie within 0 to {self.n_tokens}")
        ids, marks = np.empty(end - start, np.int64), np.empty(end - start, np.uint8)
        index, at = bisect_right(self._starts, start) - 1, start
        while at < end:
            base, stop = self._starts[index], min(end, self._starts[index + 1])
            tokens, begins = self._arrays(index)
            ids[at - start : stop - start] = tokens[at - base : stop - base]
            marks[at - start : stop - start] = begins[at - base : stop - base]
            index, at = index + 1, stop
        return Tokens(ids, marks)

    def rows(
        self, length: int, unit: Unit = "document", within: Int[np.ndarray, "n 2"] | None = None
    ) -> Int[np.ndarray, "rows 2"]:
        """Cut the corpus into rows (start, end) of at most `length` tokens, in order.

        Each unit is a row; one that is longer than `length` is cut into consecutive rows, the last
        of which has what is left; of "sentences", each row has as many as fit. A row never crosses
        a document; every token is in exactly one row. The result has 16 bytes a row; while it is
        made, about five times that are in memory, and, unless the unit is the document, two bytes a
        token of the largest shard.

        Args:
            length: tokens.
            unit: a document, paragraph or sentence, or sentences of one document.
            within: only these spans of tokens, in order, such as `held_out` gives; None:
                everything.

        Raises:
            ValueError: another unit, a length below 1, or spans that are not in order, overlap, or
                lie outside.
        """
        if unit not in _BITS:
            raise ValueError(f"the unit of rows must be one of {list(_BITS)}, got {unit!r}")
        if length < 1:
            raise ValueError(f"the length of rows must be at least 1, got {length}")
        spans = self.documents if within is None else self._checked(within)
        places = borders = np.union1d(self.documents[:, 0], spans[:, 0])
        if _BITS[unit]:
            places = np.concatenate([np.empty(0, np.int64), *self._marked(_BITS[unit], borders)])
        pieces = rows.cut(*rows.inside(places, spans), length)
        return rows.filled([pieces], length, borders) if unit == "sentences" else pieces

    def sentences(
        self, within: Int[np.ndarray, "n 2"]
    ) -> Iterator[tuple[Int[np.ndarray, "m"], Int[np.ndarray, "m"]]]:
        """Give where sentences start and end, shard by shard.

        One starts with each span, even in the middle of one.

        Args:
            within: only these spans of tokens, in order, each of one document.

        Raises:
            ValueError: spans that are not in order, overlap, or lie outside.
        """
        spans = self._checked(within)
        marks = self._marked(SENTENCE, spans[:, 0])
        for end, marked in zip(self._starts[1:], marks, strict=True):
            last = int(np.searchsorted(spans[:, 0], end))
            yield rows.inside(marked, spans[:last])
            spans = spans[last:]

    def document_of(self, places: Int[np.ndarray, "n"]) -> Int[np.ndarray, "n"]:
        """Return the number of the document that each token is of."""
        return np.searchsorted(self.documents[:, 0], places, "right") - 1

    def held_out(
        self, share: float, seed: int = 0, *, of_each: bool = False
    ) -> tuple[Int[np.ndarray, "n 2"], Int[np.ndarray, "m 2"]]:
        """Split the corpus for training and evaluation: give the spans of each, for `rows`.

        Whole documents are drawn for evaluation until they have about `share` of the tokens: at
        least one, and not all. A document with more tokens than that is drawn only if all have
        more; then it is the shortest one. Where there is but one document, its end is held out
        instead, from the start of the sentence (if none, of the word) that is nearest.

        With `of_each`, that share is held out of each source by itself, and nothing of one that has
        a single document.

        Raises:
            ValueError: a share that is not at least 0 and below 1; a single token, which cannot be
                split.
        """
        if not 0 <= share < 1:
            raise ValueError(
                f"the share that is held out must be at least 0 and below 1, got {share}"
            )
        if share == 0:
            return self.documents, self.documents[:0]
        if of_each and self.sources is not None:
            return rows.held_out_of_each(self.documents, self.sources[1], share, seed)
        if self.n_documents > 1:
            return rows.held_out(self.documents, share, seed)
        if self.n_tokens == 1:
            raise ValueError(f"{self.folder} has a single token: nothing can be held out")
        cut = self._near(round((1 - share) * self.n_tokens))
        return np.array([[0, cut]]), np.array([[cut, self.n_tokens]])

    def mapped(self, index: int) -> tuple[np.ndarray, UInt8[np.ndarray, "t"]]:
        """Give the ids of a shard and what begins at each, as they lie on disk, memory-mapped."""
        return self._arrays(index)

    def _map(self, index: int) -> tuple[np.ndarray, UInt8[np.ndarray, "t"]]:
        shape = (self.manifest.shards[index].n_tokens,)
        dtype = np.dtype(self.manifest.dtype).newbyteorder("<")
        tokens = np.memmap(path_of(self.folder, index, "tokens"), dtype, "r", shape=shape)
        marks = np.memmap(path_of(self.folder, index, "marks"), np.uint8, "r", shape=shape)
        return np.asarray(tokens), np.asarray(marks)  # slices of a memmap itself are slow to make

    def _marked(self, bit: int, places: Int[np.ndarray, "n"]) -> Iterator[Int[np.ndarray, "m"]]:
        """Give the places in each shard that have the mark, or are among `places`."""
        for index, (start, end) in enumerate(zip(self._starts, self._starts[1:], strict=False)):
            marked = (self._arrays(index)[1] & bit) != 0
            first, last = np.searchsorted(places, (start, end))
            marked[places[first:last] - start] = True
            yield np.flatnonzero(marked) + start

    def _checked(self, spans: Int[np.ndarray, "n 2"]) -> Int[np.ndarray, "m 2"]:
        edges = spans.ravel()
        if len(edges) and not (
            edges[0] >= 0 and edges[-1] <= self.n_tokens and (np.diff(edges) >= 0).all()
        ):
            raise ValueError(
                f"spans must be in order, not overlap, and lie within 0 to {self.n_tokens}"
            )
        return spans[spans[:, 0] < spans[:, 1]]

    def _near(self, target: int) -> int:
        """Find where the nearest sentence of the only document starts, or else the nearest word."""
        target = min(max(target, 1), self.n_tokens - 1)
        marks = self._arrays(0)[1]
        for bit in (SENTENCE, WORD):
            places = np.flatnonzero((marks[1:] & bit) != 0) + 1
            if len(places):
                return int(places[np.argmin(np.abs(places - target))])
        return target


def write(
    documents: Iterable[Document],
    tokenizer: Tokenizer,
    out: Path,
    *,
    workers: int = 1,
    shard_tokens: int = 2**26,
    made_from: str = "",
) -> Shards:
    """Tokenize documents into a folder of shards, which is finished or says that it is not.

    What is written depends on the documents' texts, the tokenizer and `shard_tokens` alone.
    Interrupted and called again with the same, it reads over the documents of the shards that were
    closed, compares them, and goes on after them. A finished folder is not made again if it was
    made from the same: then the documents are only read and compared.

    In memory are at most 2 * `workers` chunks of about a megabyte of text (more where a document is
    longer).

    Args:
        documents: read once, in order. One without any token is left out and counted.
        tokenizer: is saved with the tokens; it is the saved one, read back, that makes them.
        out: a new or empty folder, or one in which this was begun or done before.
        workers: processes that tokenize; 1: this one.
        shard_tokens: a shard is closed when it has this many tokens or more.
        made_from: what the documents are made from, in words that change when they do (paths,
            sizes, times, options). A finished folder that was made from the same is then re-used
            without reading a document.

    Raises:
        ValueError: `out` was made from other documents, with another tokenizer or size of shards,
            or is being written by another process; or no document has any token.
        FileExistsError: `out` holds something else.
        OSError: the disk is full; what is finished stays finished, and the same call goes on from
            there.
    """
    if workers < 1 or shard_tokens < 1:
        raise ValueError(
            f"workers and shard_tokens must be at least 1, got {workers} and {shard_tokens}"
        )
    out.mkdir(parents=True, exist_ok=True)
    with _alone(out):
        asked = Manifest(
            tokenizer=_saved_hash(tokenizer),
            vocab_size=tokenizer.size,
            dtype=id_type(tokenizer.size),
            shard_tokens=shard_tokens,
            made_from=made_from,
        )
        if (out / _FINISHED).exists():
            return _reuse(documents, out, asked)
        begun = _begin(tokenizer, out, asked)
        source = _Source(documents)
        source.pass_over(begun.shards, out)
        manifest = _write_shards(source, begun, out, workers)
        write_whole(out / _FINISHED, as_json(manifest))
        (out / _UNFINISHED).unlink()
    return Shards.open(out)


def tidy(out: Path) -> None:
    """Remove from a finished folder what says that it is unfinished: it was killed in between."""
    if (out / _FINISHED).is_file():
        (out / _UNFINISHED).unlink(missing_ok=True)


class _Source:
    """The documents, read once: how many there were so far, and the digest of their texts."""

    name: str | None = None
    """The source of the last document that was added."""

    def __init__(self, documents: Iterable[Document]) -> None:
        self._names = deque[str | None]()
        self.texts = _utf8(documents, self._names)
        self.n = 0
        self._sha256 = hashlib.sha256()

    def add(self, text: bytes) -> None:
        """Count and hash a text, the first that was read and not yet added."""
        self.n += 1
        self.name = self._names.popleft()
        self._sha256.update(len(text).to_bytes(8, "little"))
        self._sha256.update(text)

    @property
    def digest(self) -> str:
        return self._sha256.hexdigest()

    def pass_over(self, shards: Iterable[Shard], out: Path) -> None:
        """Read the documents that the shards were made from.

        Raises:
            ValueError: they were made from others.
        """
        for shard in shards:
            for _, text in islice(self.texts, shard.n_read - self.n):
                self.add(text)
            if self.digest != shard.source:
                raise ValueError(
                    f"{out} was made from other documents: they differ within the first "
                    f"{shard.n_read}; {_ELSEWHERE}"
                )


def _utf8(documents: Iterable[Document], names: deque[str | None]) -> Iterator[tuple[str, bytes]]:
    for document in documents:
        names.append(document.source)
        try:
            yield document.where, document.text.encode()
        except UnicodeEncodeError as error:
            half = ord(document.text[error.start])
            raise ValueError(
                f"{document.where}: character {error.start + 1} of the document is half of a "
                f"surrogate pair (U+{half:04X}), which is not text"
            ) from error


def _reuse(documents: Iterable[Document], out: Path, asked: Manifest) -> Shards:
    """Open a finished folder if it is what is asked for."""
    shards = Shards.open(out, verify=True)
    tidy(out)
    found = shards.manifest
    _compare(found, asked, out)
    if not asked.made_from or asked.made_from != found.made_from:
        source = _Source(documents)
        source.pass_over(found.shards, out)
        for _, text in source.texts:
            source.add(text)
        if source.digest != found.source:
            raise ValueError(
                f"{out} was made from other documents: there are {source.n} now, and there were "
                f"{found.n_documents + found.n_skipped}; {_ELSEWHERE}"
            )
    return shards


def _begin(tokenizer: Tokenizer, out: Path, asked: Manifest) -> Manifest:
    """Make the folder ready for its next shard; say which are closed."""
    sweep(out)
    begun = asked
    if (out / _UNFINISHED).exists():
        found = read_manifest(out / _UNFINISHED)
        if found.shards:
            _compare(found, asked, out)
            begun = replace(asked, shards=tuple(_closed(out, found.shards)))
    elif any(out.iterdir()):
        raise FileExistsError(
            f"{out} is not empty and holds no prepared tokens; name a new or an empty folder"
        )
    write_whole(out / _UNFINISHED, as_json(begun))
    for path in list(out.iterdir()):
        if (name := re.fullmatch(r"(\d{5,})\.(tokens|marks|documents)", path.name)) and (
            int(name[1]) >= len(begun.shards)
        ):
            path.unlink()  # of a shard that was not closed
    if hash_of(out / "tokenizer") != asked.tokenizer:
        if (out / "tokenizer").exists():
            shutil.rmtree(out / "tokenizer")
        with whole(out / "tokenizer") as folder:
            tokenizer.save(folder)
    return begun


def _closed(out: Path, shards: Iterable[Shard]) -> Iterator[Shard]:
    """Give the shards up to the first that is not as it was written."""
    for index, shard in enumerate(shards):
        try:
            check_shard(out, index, shard, verify=True)
        except (FileNotFoundError, ValueError):
            return
        yield shard


def _write_shards(source: _Source, begun: Manifest, out: Path, workers: int) -> Manifest:
    """Write the shards that are still to be written; give the manifest of all."""
    manifest = begun
    tokens = encoded(source.texts, out / "tokenizer", begun.vocab_size, workers)
    with closing(tokens):
        kept = _with_tokens(tokens, source)
        for first in kept:
            shard = _write_shard(chain([first], kept), source, out, len(manifest.shards), begun)
            manifest = replace(manifest, shards=(*manifest.shards, shard))
            # The last one may have less. It is not recorded, so that what is closed does not depend
            # on where the source ended.
            if shard.n_tokens >= begun.shard_tokens:
                write_whole(out / _UNFINISHED, as_json(manifest))
    if not manifest.shards:
        raise ValueError(
            f"there is nothing to write to {out}: none of {source.n} documents has a token"
        )
    n_tokens, n_documents, n_bytes = totals(manifest.shards)
    return replace(
        manifest,
        n_tokens=n_tokens,
        n_documents=n_documents,
        n_bytes=n_bytes,
        n_skipped=source.n - n_documents,
        source=source.digest,
    )


_Encoded = tuple[bytes, np.ndarray, np.ndarray]


def _with_tokens(documents: Iterable[_Encoded], source: _Source) -> Iterator[_Encoded]:
    for document in documents:
        source.add(document[0])
        if len(document[1]):
            yield document


def _write_shard(
    documents: Iterator[_Encoded], source: _Source, out: Path, index: int, asked: Manifest
) -> Shard:
    """Write documents until there are enough tokens for a shard, or no more documents."""
    kinds = ("tokens", "marks", "documents")
    a, b, c = (path_of(out, index, kind) for kind in kinds)
    with whole(a) as tokens, whole(b) as marks, whole(c) as places:
        n_tokens = n_documents = n_bytes = 0
        parts: list[Part] = []
        with (
            tokens.open("wb") as ids_to,
            marks.open("wb") as marks_to,
            places.open("wb") as places_to,
        ):
            places_to.write(n_tokens.to_bytes(8, "little"))
            for text, ids, begins in documents:
                ids_to.write(ids.data)
                marks_to.write(begins.data)
                n_tokens, n_documents = n_tokens + len(ids), n_documents + 1
                n_bytes += len(text)
                _add_part(parts, source.name, len(ids))
                places_to.write(n_tokens.to_bytes(8, "little"))
                if n_tokens >= asked.shard_tokens:
                    break
        files = {
            kind: File(path.stat().st_size, sha256(path))
            for kind, path in zip(kinds, (tokens, marks, places), strict=True)
        }
    return Shard(
        **files,
        n_tokens=n_tokens,
        n_documents=n_documents,
        n_bytes=n_bytes,
        n_read=source.n,
        source=source.digest,
        parts=tuple(parts),
    )


def _add_part(parts: list[Part], source: str | None, n_tokens: int) -> None:
    """Count a document of a source, behind others of it or as the first."""
    if source is None:
        return
    if not parts or parts[-1].source != source:
        parts.append(Part(source, 0, 0))
    last = parts[-1]
    parts[-1] = Part(source, last.n_documents + 1, last.n_tokens + n_tokens)


@contextmanager
def _alone(out: Path) -> Generator[None]:
    """Keep other processes from writing to the folder. The lock ends with this process."""
    descriptor = os.open(out, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(f"{out} is being written by another process") from None
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
        yield
    finally:
        os.close(descriptor)


def _compare(found: Manifest, asked: Manifest, out: Path) -> None:
    different = None
    if found.tokenizer != asked.tokenizer:
        different = "with another tokenizer"
    elif found.shard_tokens != asked.shard_tokens:
        different = f"in shards of {found.shard_tokens} tokens, not {asked.shard_tokens}"
    if different:
        raise ValueError(f"{out} was made {different}; {_ELSEWHERE}")


def _saved_hash(tokenizer: Tokenizer) -> str:
    with tempfile.TemporaryDirectory() as folder:
        tokenizer.save(Path(folder))
        return hash_of(Path(folder))
