"""What a folder of shards says of itself, and whether its files are as it says."""

import hashlib
import json
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from unmask.config import from_dict, to_dict
from unmask.files import parse_json, parser_errors_as_value_error, read_bytes, sha256
from unmask.saved_format import FORMAT, check_format

_READ_BYTES = 2**23
"""Bytes that are read at once; other threads continue while they are hashed."""


@dataclass(frozen=True)
class FileRecord:
    """A file as it was written."""

    size: int
    sha256: str


@dataclass(frozen=True)
class SourceSegment:
    """Documents of a shard, one after another, that are of the same source."""

    source: str
    n_documents: int
    n_tokens: int


@dataclass(frozen=True, kw_only=True)
class ShardRecord:
    """What is in a shard, and what it was made from."""

    tokens: FileRecord
    marks: FileRecord
    documents: FileRecord
    n_tokens: int
    n_documents: int
    n_bytes: int
    """Bytes of UTF-8 of its documents."""
    n_documents_read: int
    """Documents read from the source up to its last one, from the very first on, empty ones too."""
    source_sha256: str
    """SHA-256 of the texts of all those."""
    source_segments: tuple[SourceSegment, ...] = ()
    """Its documents by source, in order; none where there was but one, or it was not told."""

    @property
    def files(self) -> dict[str, FileRecord]:
        """Its files, by the endings of their names."""
        return {"tokens": self.tokens, "marks": self.marks, "documents": self.documents}


@dataclass(frozen=True, kw_only=True)
class ShardsManifest:
    """What `shards.json` says."""

    format: int = FORMAT
    tokenizer_sha256: str
    """SHA-256 of the files of the tokenizer."""
    vocab_size: int
    dtype: Literal["uint16", "uint32"]
    shard_tokens: int
    n_tokens: int = 0
    n_documents: int = 0
    n_bytes: int = 0
    n_skipped: int = 0
    """Documents without any token."""
    source_sha256: str = ""
    """SHA-256 of the texts of all documents."""
    made_from: str = ""
    """What the documents were made from, in the caller's words."""
    shards: tuple[ShardRecord, ...] = ()


def total_counts(shards: Iterable[ShardRecord]) -> tuple[int, int, int]:
    """Sum the tokens, documents and bytes."""
    counts = [(shard.n_tokens, shard.n_documents, shard.n_bytes) for shard in shards]
    tokens, documents, size = (sum(column) for column in zip(*counts, strict=True))
    return tokens, documents, size


def shard_path(folder: Path, index: int, kind: str) -> Path:
    """Name a file of a shard."""
    return folder / f"{index:05d}.{kind}"


def manifest_to_json(manifest: ShardsManifest) -> str:
    """Write a manifest as JSON."""
    return json.dumps(to_dict(manifest), indent=1) + "\n"


def read_manifest(path: Path) -> ShardsManifest:
    """Read a manifest.

    Raises:
        ValueError: it is not one, is of another version, or disagrees with itself.
    """
    return parse_manifest(read_bytes(path), path)


def parse_manifest(text: bytes, path: Path | str) -> ShardsManifest:
    """Parse a manifest.

    Args:
        text: JSON.
        path: where it is, for messages.

    Raises:
        ValueError: it is not one, is of another version, or disagrees with itself.
    """
    with parser_errors_as_value_error(f"{path} is damaged: it is not JSON"):
        data = parse_json(text)
    if isinstance(data, dict):
        data = check_format(data, Path(path))
    manifest = from_dict(ShardsManifest, data, str(path))
    width = np.dtype(manifest.dtype).itemsize
    n_read = 0
    for index, shard in enumerate(manifest.shards):
        sizes = (shard.tokens.size, shard.marks.size, shard.documents.size)
        right = (width * shard.n_tokens, shard.n_tokens, 8 * (shard.n_documents + 1))
        if (
            sizes != right
            or shard.n_documents < 1
            or shard.n_documents_read < n_read + shard.n_documents
        ):
            raise ValueError(f"{path} is damaged: the sizes and counts of shard {index} disagree")
        if shard.source_segments and (
            sum(part.n_documents for part in shard.source_segments) != shard.n_documents
            or sum(part.n_tokens for part in shard.source_segments) != shard.n_tokens
        ):
            raise ValueError(f"{path} is damaged: the parts of shard {index} are not all of it")
        n_read = shard.n_documents_read
    return manifest


def check_counts(manifest: ShardsManifest, path: Path | str) -> None:
    """Check that a finished folder's counts are the sums of its shards'.

    Raises:
        ValueError: they are not.
    """
    counts = (manifest.n_tokens, manifest.n_documents, manifest.n_bytes)
    if not manifest.shards or counts != total_counts(manifest.shards):
        raise ValueError(f"{path} is damaged: its counts are not the sums of its shards'")


def check_shard(folder: Path, index: int, shard: ShardRecord, *, verify_contents: bool) -> None:
    """Compare the sizes of a shard's files with what was written.

    With `verify_contents` also their contents.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a file is another one.
    """
    for kind, file in shard.files.items():
        path = shard_path(folder, index, kind)
        if not path.exists():
            raise FileNotFoundError(f"{path} is missing")
        if (size := path.stat().st_size) != file.size:
            raise ValueError(
                f"{path} is truncated or damaged: it has {size} bytes, expected {file.size}"
            )
        if verify_contents and (found := sha256(path)) != file.sha256:
            raise ValueError(f"{path} is damaged: its SHA-256 is {found}, expected {file.sha256}")


def check_tokenizer(folder: Path, manifest: ShardsManifest) -> None:
    """Compare the tokenizer in the folder with the one that made the tokens.

    Raises:
        ValueError: it is another one.
    """
    path = folder / "tokenizer"
    if (found := folder_sha256(path)) != manifest.tokenizer_sha256:
        raise ValueError(
            f"{path} is not the tokenizer that made the tokens: the SHA-256 of its files is "
            f"{found}, expected {manifest.tokenizer_sha256}"
        )


def folder_sha256(folder: Path) -> str:
    """Hash the names and contents of a folder's files, but for hidden ones.

    Raises:
        ValueError: something in it is no file.
    """
    digest = hashlib.sha256()
    for path in sorted(folder.glob("[!.]*")):
        if not path.is_file():  # a pipe would never end
            raise ValueError(f"{path}: must be a file, got a folder or a device")
        digest.update(f"{sha256(path)} {path.name}\n".encode())
    return digest.hexdigest()


def find_damage(folder: Path, manifest: ShardsManifest, stopped: threading.Event) -> str | None:
    """Compare the files of all shards with their checksums; return what is wrong with one.

    Returns at once when `stopped`.
    """
    for index, shard in enumerate(manifest.shards):
        for kind, file in shard.files.items():
            path = shard_path(folder, index, kind)
            digest = hashlib.sha256()
            try:
                with path.open("rb") as data:
                    while (piece := data.read(_READ_BYTES)) and not stopped.is_set():
                        digest.update(piece)
            except OSError as error:
                return f"{path}: cannot be read: {error.strerror}"
            if stopped.is_set():
                return None
            if digest.hexdigest() != file.sha256:
                return (
                    f"{path}: damaged: it is not as it was written (its SHA-256 is "
                    f"{digest.hexdigest()}, expected {file.sha256}); nothing that was learned "
                    f"of it is saved; remove {folder} and prepare the text again"
                )
    return None
