"""Write a folder of shards: documents encoded by workers, each shard whole or absent."""

import errno
import fcntl
import hashlib
import os
import re
import shutil
import tempfile
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path

import numpy as np

from unmask.files import atomic_path, remove_partial_files, sha256, write_atomically
from unmask.shards.manifest import (
    FileRecord,
    ShardRecord,
    ShardsManifest,
    SourceSegment,
    check_shard,
    folder_sha256,
    manifest_to_json,
    read_manifest,
    shard_path,
    total_counts,
)
from unmask.shards.read import MANIFEST_FILE, TEXT_FOLDER, UNFINISHED_FILE, TokenShards
from unmask.shards.workers import encode_documents, id_type
from unmask.text.documents import Document
from unmask.tokenizers.encode import Tokenizer

_OTHER_FOLDER_ADVICE = "name another folder, or remove this one"
# What a file system answers that cannot lock a folder (some network ones): there, two writers are
# the user's to avoid.
_LOCK_UNSUPPORTED_ERRORS = frozenset(
    {errno.EBADF, errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EINVAL}
)


def write_shards(
    documents: Iterable[Document],
    tokenizer: Tokenizer,
    output_folder: Path,
    *,
    n_workers: int = 1,
    shard_tokens: int = 2**26,
    made_from: str = "",
) -> TokenShards:
    """Tokenize documents into a folder of shards, which is finished or says that it is not.

    What is written depends on the documents' texts, the tokenizer and `shard_tokens` alone.
    Interrupted and called again with the same, it reads over the documents of the shards that were
    closed, compares them, and continues after them. A finished folder is not made again if it was
    made from the same: then the documents are only read and compared.

    In memory are at most 2 * `n_workers` chunks of about a megabyte of text (more where a document
    is longer).

    Args:
        documents: read once, in order. One without any token is left out and counted.
        tokenizer: is saved with the tokens; it is the saved one, read back, that makes them.
        output_folder: a new or empty folder, or one in which this was begun or done before.
        n_workers: processes that tokenize; 1: this one.
        shard_tokens: a shard is closed when it has this many tokens or more.
        made_from: what the documents are made from, in words that change when they do (paths,
            sizes, times, options). A finished folder that was made from the same is then re-used
            without reading a document.

    Raises:
        ValueError: `output_folder` was made from other documents, with another tokenizer or size of
            shards, or is being written by another process; or no document has any token.
        FileExistsError: `output_folder` holds something else.
        OSError: the disk is full; what is finished stays finished, and the same call continues from
            there.
    """
    if n_workers < 1 or shard_tokens < 1:
        raise ValueError(
            f"workers and shard_tokens must be at least 1, got {n_workers} and {shard_tokens}"
        )
    output_folder.mkdir(parents=True, exist_ok=True)
    with _folder_lock(output_folder):
        asked = ShardsManifest(
            tokenizer_sha256=_saved_tokenizer_sha256(tokenizer),
            vocab_size=tokenizer.vocab_size,
            dtype=id_type(tokenizer.vocab_size),
            shard_tokens=shard_tokens,
            made_from=made_from,
        )
        if (output_folder / MANIFEST_FILE).exists():
            return _open_finished(documents, output_folder, asked)
        begun = _prepare_folder(tokenizer, output_folder, asked)
        source = _DocumentReader(documents)
        source.skip_finished(begun.shards, output_folder)
        manifest = _write_remaining(source, begun, output_folder, n_workers)
        write_atomically(output_folder / MANIFEST_FILE, manifest_to_json(manifest))
        (output_folder / UNFINISHED_FILE).unlink()
    return TokenShards.open(output_folder)


def remove_unfinished_marker(output_folder: Path) -> None:
    """Remove from a finished folder what says that it is unfinished: it was killed in between."""
    if (output_folder / MANIFEST_FILE).is_file():
        (output_folder / UNFINISHED_FILE).unlink(missing_ok=True)


class _DocumentReader:
    """The documents, read once: how many there were so far, and the digest of their texts."""

    source_name: str | None = None
    """The source of the last document that was added."""

    def __init__(self, documents: Iterable[Document]) -> None:
        self._names = deque[str | None]()
        self.texts = _encode_documents(documents, self._names)
        self.n_read = 0
        self._sha256 = hashlib.sha256()

    def add(self, text: bytes) -> None:
        """Count and hash a text, the first that was read and not yet added."""
        self.n_read += 1
        self.source_name = self._names.popleft()
        self._sha256.update(len(text).to_bytes(8, "little"))
        self._sha256.update(text)

    @property
    def digest(self) -> str:
        return self._sha256.hexdigest()

    def skip_finished(self, shards: Iterable[ShardRecord], output_folder: Path) -> None:
        """Read the documents that the shards were made from.

        Raises:
            ValueError: they were made from others.
        """
        for shard in shards:
            for _, text in islice(self.texts, shard.n_documents_read - self.n_read):
                self.add(text)
            if self.digest != shard.source_sha256:
                raise ValueError(
                    f"{output_folder} was made from other documents: they differ within the first "
                    f"{shard.n_documents_read}; {_OTHER_FOLDER_ADVICE}"
                )


def _encode_documents(
    documents: Iterable[Document], names: deque[str | None]
) -> Iterator[tuple[str, bytes]]:
    for document in documents:
        names.append(document.source)
        try:
            yield document.location, document.text.encode()
        except UnicodeEncodeError as error:
            half = ord(document.text[error.start])
            raise ValueError(
                f"{document.location}: character {error.start + 1} of the document is half of a "
                f"surrogate pair (U+{half:04X}), which is not text"
            ) from error


def _open_finished(
    documents: Iterable[Document], output_folder: Path, requested: ShardsManifest
) -> TokenShards:
    """Open a finished folder if it is what is asked for."""
    shards = TokenShards.open(output_folder, verify_contents=True)
    remove_unfinished_marker(output_folder)
    found = shards.manifest
    _check_same_request(found, requested, output_folder)
    if not requested.made_from or requested.made_from != found.made_from:
        source = _DocumentReader(documents)
        source.skip_finished(found.shards, output_folder)
        for _, text in source.texts:
            source.add(text)
        if source.digest != found.source_sha256:
            raise ValueError(
                f"{output_folder} was made from other documents: there are {source.n_read} now, "
                f"and there were {found.n_documents + found.n_skipped}; {_OTHER_FOLDER_ADVICE}"
            )
    return shards


def _prepare_folder(
    tokenizer: Tokenizer, output_folder: Path, requested: ShardsManifest
) -> ShardsManifest:
    """Make the folder ready for its next shard; say which are closed."""
    remove_partial_files(output_folder)
    begun = requested
    if (output_folder / UNFINISHED_FILE).exists():
        found = read_manifest(output_folder / UNFINISHED_FILE)
        if found.shards:
            _check_same_request(found, requested, output_folder)
            begun = replace(requested, shards=tuple(_intact_shards(output_folder, found.shards)))
    elif any(path.name != TEXT_FOLDER for path in output_folder.iterdir()):
        raise FileExistsError(
            f"{output_folder} is not empty and holds no prepared tokens; "
            "name a new or an empty folder"
        )
    write_atomically(output_folder / UNFINISHED_FILE, manifest_to_json(begun))
    for path in list(output_folder.iterdir()):
        if (name := re.fullmatch(r"(\d{5,})\.(tokens|marks|documents)", path.name)) and (
            int(name[1]) >= len(begun.shards)
        ):
            path.unlink()  # of a shard that was not closed
    if folder_sha256(output_folder / "tokenizer") != requested.tokenizer_sha256:
        if (output_folder / "tokenizer").exists():
            shutil.rmtree(output_folder / "tokenizer")
        with atomic_path(output_folder / "tokenizer") as folder:
            tokenizer.save(folder)
    return begun


def _intact_shards(output_folder: Path, shards: Iterable[ShardRecord]) -> Iterator[ShardRecord]:
    """Give the shards up to the first that is not as it was written."""
    for index, shard in enumerate(shards):
        try:
            check_shard(output_folder, index, shard, verify_contents=True)
        except (FileNotFoundError, ValueError):
            return
        yield shard


def _write_remaining(
    source: _DocumentReader, manifest_so_far: ShardsManifest, output_folder: Path, n_workers: int
) -> ShardsManifest:
    """Write the shards that are still to be written; give the manifest of all."""
    manifest = manifest_so_far
    tokens = encode_documents(
        source.texts, output_folder / "tokenizer", manifest_so_far.vocab_size, n_workers
    )
    with closing(tokens):
        kept = _skip_empty(tokens, source)
        for first in kept:
            shard = _write_shard(
                chain([first], kept), source, output_folder, len(manifest.shards), manifest_so_far
            )
            manifest = replace(manifest, shards=(*manifest.shards, shard))
            # The last one may have less. It is not recorded, so that what is closed does not depend
            # on where the source ended.
            if shard.n_tokens >= manifest_so_far.shard_tokens:
                write_atomically(output_folder / UNFINISHED_FILE, manifest_to_json(manifest))
    if not manifest.shards:
        raise ValueError(
            f"there is nothing to write to {output_folder}: "
            f"none of {source.n_read} documents has a token"
        )
    n_tokens, n_documents, n_bytes = total_counts(manifest.shards)
    return replace(
        manifest,
        n_tokens=n_tokens,
        n_documents=n_documents,
        n_bytes=n_bytes,
        n_skipped=source.n_read - n_documents,
        source_sha256=source.digest,
    )


_EncodedDocument = tuple[bytes, np.ndarray, np.ndarray]


def _skip_empty(
    documents: Iterable[_EncodedDocument], source: _DocumentReader
) -> Iterator[_EncodedDocument]:
    for document in documents:
        source.add(document[0])
        if len(document[1]):
            yield document


def _write_shard(
    documents: Iterator[_EncodedDocument],
    source: _DocumentReader,
    output_folder: Path,
    index: int,
    requested: ShardsManifest,
) -> ShardRecord:
    """Write documents until there are enough tokens for a shard, or no more documents."""
    kinds = ("tokens", "marks", "documents")
    a, b, c = (shard_path(output_folder, index, kind) for kind in kinds)
    with atomic_path(a) as tokens, atomic_path(b) as marks, atomic_path(c) as places:
        n_tokens = n_documents = n_bytes = 0
        parts: list[SourceSegment] = []
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
                _count_in_segment(parts, source.source_name, len(ids))
                places_to.write(n_tokens.to_bytes(8, "little"))
                if n_tokens >= requested.shard_tokens:
                    break
        files = {
            kind: FileRecord(path.stat().st_size, sha256(path))
            for kind, path in zip(kinds, (tokens, marks, places), strict=True)
        }
    return ShardRecord(
        **files,
        n_tokens=n_tokens,
        n_documents=n_documents,
        n_bytes=n_bytes,
        n_documents_read=source.n_read,
        source_sha256=source.digest,
        source_segments=tuple(parts),
    )


def _count_in_segment(segments: list[SourceSegment], source: str | None, n_tokens: int) -> None:
    """Count a document of a source, behind others of it or as the first."""
    if source is None:
        return
    if not segments or segments[-1].source != source:
        segments.append(SourceSegment(source, 0, 0))
    last = segments[-1]
    segments[-1] = SourceSegment(source, last.n_documents + 1, last.n_tokens + n_tokens)


@contextmanager
def _folder_lock(output_folder: Path) -> Generator[None]:
    """Keep other processes from writing to the folder. The lock ends with this process."""
    descriptor = os.open(output_folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(f"{output_folder} is being written by another process") from None
        except OSError as error:
            if error.errno not in _LOCK_UNSUPPORTED_ERRORS:
                raise
        yield
    finally:
        os.close(descriptor)


def _check_same_request(
    found: ShardsManifest, requested: ShardsManifest, output_folder: Path
) -> None:
    different = None
    if found.tokenizer_sha256 != requested.tokenizer_sha256:
        different = "with another tokenizer"
    elif found.shard_tokens != requested.shard_tokens:
        different = f"in shards of {found.shard_tokens} tokens, not {requested.shard_tokens}"
    if different:
        raise ValueError(f"{output_folder} was made {different}; {_OTHER_FOLDER_ADVICE}")


def _saved_tokenizer_sha256(tokenizer: Tokenizer) -> str:
    with tempfile.TemporaryDirectory() as folder:
        tokenizer.save(Path(folder))
        return folder_sha256(Path(folder))
