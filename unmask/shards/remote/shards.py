"""A prepared folder at a URL: opened, compared with its manifest, read through a cache."""

import hashlib
import shutil
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from unmask.files import MAX_FILE_BYTES, atomic_path, lock_run_folder, sha256, write_atomically
from unmask.shards.manifest import (
    FileRecord,
    ShardsManifest,
    check_counts,
    folder_sha256,
    parse_manifest,
    shard_path,
)
from unmask.shards.read import MANIFEST_FILE, UNFINISHED_FILE, MappedArray, TokenShards
from unmask.shards.remote.access import RemoteAccess
from unmask.shards.remote.block_cache import BlockCache
from unmask.shards.remote.fetch import N_THREADS, BlockFetcher, RemoteFile, check_versions
from unmask.shards.remote.location import RemoteLocation
from unmask.shards.remote.transport import RemoteFolder

ResultT = TypeVar("ResultT")

_TOKENIZER_FILES = (
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
    "config.json", "vocab.txt", "vocab.json", "merges.txt", "spiece.model", "tokenizer.model",
    "words.txt", "subwords.txt",
)  # fmt: skip
"""Files that a tokenizer may have: a server of HTTP lists none. The manifest's digest is of the
names and contents of all, so that one that is missed is noticed."""


@dataclass(frozen=True)
class RemoteArray:
    """A file as an array, of which parts are read."""

    fetcher: BlockFetcher
    file: RemoteFile
    dtype: np.dtype
    length: int

    def __getitem__(self, part: slice, /) -> np.ndarray:
        """Read a part."""
        start, end, _ = part.indices(self.length)
        data = self.fetcher.read(self.file, *self._bytes(start, max(start, end)))
        return np.frombuffer(data, self.dtype)

    def read_ahead(self, start: int, end: int) -> None:
        """Fetch a part in the background."""
        self.fetcher.read_ahead(self.file, *self._bytes(start, end))

    def _bytes(self, start: int, end: int) -> tuple[int, int]:
        size = self.dtype.itemsize
        return start * size, end * size


class RemoteTokenShards(TokenShards):
    """The tokens of a corpus at a URL.

    On this machine are the manifest, the tokenizer and where documents start (`folder`), and the
    blocks that were read (`BlockCache`). What is read is what `TokenShards` would read of the same
    files.
    """

    def __init__(
        self,
        folder: Path,
        manifest: ShardsManifest,
        files: tuple[dict[str, RemoteFile], ...],
        remote_location: RemoteLocation,
        access: RemoteAccess,
    ) -> None:
        super().__init__(folder, manifest)
        self._files, self._remote_location, self._access = files, remote_location, access
        remote = RemoteFolder(remote_location, access.waits)
        cache = BlockCache(_blocks_folder(access), access.cache_bytes)
        self._fetcher = BlockFetcher(remote, cache)

    def __repr__(self) -> str:
        return (
            f"RemoteTokenShards({self.location!r}: {self.n_tokens} tokens, {self.n_documents} "
            "documents)"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        if self._remote_location.scheme == "memory":
            raise ValueError(f"{self.location}: is in the memory of one process: take --workers 0")
        parts = (self.folder, self.manifest, self._files, self._remote_location, self._access)
        return RemoteTokenShards, parts

    @property
    def location(self) -> str:
        """The URL, without what is secret in it."""
        return self._remote_location.url

    @property
    def is_remote(self) -> bool:
        """Yes."""
        return True

    def reading_notes(self) -> list[str]:
        """Say where the cache is, and whether it is too small."""
        sizes = (f.version.size for files in self._files for f in files.values())
        size, limit = sum(sizes) / 1e9, self._access.cache_bytes / 1e9
        notes = [f"{self.location}: {size:,.2f} GB, kept in {self._access.folder}"]
        if size > limit:
            notes[0] += (
                f", at most {limit:,.2f} GB: what has no room is fetched in every epoch; "
                "--data-cache-size makes room"
            )
        return notes

    def read_ahead(self, start: int, end: int, *, marks_alone: bool = False) -> None:
        """Fetch tokens, or what begins at them, that will be read soon, in the background."""
        index = bisect_right(self._starts, start) - 1
        while start < end:
            base, stop = self._starts[index], min(end, self._starts[index + 1])
            for array in self._arrays(index)[marks_alone:]:
                array.read_ahead(start - base, stop - base)
            index, start = index + 1, stop

    def find_damage(self, stopped: threading.Event) -> str | None:
        """Nothing: not all is on this machine; see `check_unchanged`."""
        return None

    def check_unchanged(self) -> None:
        """Check that the files that were read have not changed since the folder was opened.

        Files of which all was read are compared with their checksums, once.

        Raises:
            ValueError: one has changed, or is not as it was written.
        """
        check_versions(self._fetcher)
        read = {file.name for file in self._fetcher.read_files()}
        for shard, files in zip(self.manifest.shards, self._files, strict=True):
            for kind, record in shard.files.items():
                if files[kind].name in read:
                    self._compare_checksum(files[kind], record)

    def _compare_checksum(self, file: RemoteFile, record: FileRecord) -> None:
        cache = self._fetcher.cache
        if cache.is_verified(file.key):
            return
        found = self._fetcher.digest_if_complete(file)
        if found not in (None, record.sha256):
            raise ValueError(
                f"{self._remote_location.join(file.name)} is damaged: its SHA-256 is {found}, "
                f"expected {record.sha256}; upload the folder again"
            )
        if found is not None:
            cache.mark_verified(file.key)

    def _map_arrays(self, index: int) -> tuple[MappedArray, MappedArray]:
        return self._arrays(index)

    def _arrays(self, index: int) -> tuple[RemoteArray, RemoteArray]:
        files, n = self._files[index], self.manifest.shards[index].n_tokens
        dtype = np.dtype(self.manifest.dtype).newbyteorder("<")
        return (
            RemoteArray(self._fetcher, files["tokens"], dtype, n),
            RemoteArray(self._fetcher, files["marks"], np.dtype(np.uint8), n),
        )


def open_remote(source: str, access: RemoteAccess | None = None) -> RemoteTokenShards:
    """Open a prepared folder at a URL.

    The sizes of all files are compared with the manifest; tokenizer and starts of documents are
    fetched and compared with their checksums.

    Args:
        source: the URL, such as `s3://bucket/prepared`.
        access: how it is read.

    Raises:
        FileNotFoundError: there is none, it is unfinished, or one of its files is missing.
        ValueError: the URL is none that is read, or a file is another one than the manifest says.
        ImportError: what reads such URLs is not installed.
        BrokenConnectionError: the connection stays broken.
    """
    access = RemoteAccess() if access is None else access
    location = access.location(source)
    remote = RemoteFolder(location, access.waits)
    text = _read_manifest(remote)
    manifest = parse_manifest(text, location.join(MANIFEST_FILE))
    check_counts(manifest, location.join(MANIFEST_FILE))
    key = hashlib.sha256(location.url.encode() + b"\n" + text).hexdigest()[:32]
    folder = access.folder / "folders" / key
    files = _remote_files(remote, manifest, key)
    folder.mkdir(parents=True, exist_ok=True)
    with lock_run_folder(folder, wait=True):  # of several processes one fetches
        _fetch_tokenizer(remote, folder, manifest)
        _in_threads(
            partial(_fetch_documents, remote, folder),
            [(index, shard.documents) for index, shard in enumerate(manifest.shards)],
        )
        write_atomically(folder / MANIFEST_FILE, text)
    return RemoteTokenShards(folder, manifest, files, location, access)


def _read_manifest(remote: RemoteFolder) -> bytes:
    try:
        return remote.read_whole(MANIFEST_FILE, MAX_FILE_BYTES)
    except FileNotFoundError:
        url = remote.location.url
        if _exists(remote, UNFINISHED_FILE):
            raise FileNotFoundError(
                f"{url} is unfinished: what was uploaded was interrupted while its tokens were "
                "prepared; finish it and upload it again"
            ) from None
        raise FileNotFoundError(
            f"{url} holds no prepared tokens: it has no {MANIFEST_FILE}"
        ) from None


def _exists(remote: RemoteFolder, name: str) -> bool:
    try:
        remote.version(name)
    except FileNotFoundError:
        return False
    return True


def _remote_files(
    remote: RemoteFolder, manifest: ShardsManifest, key: str
) -> tuple[dict[str, RemoteFile], ...]:
    """Ask for the sizes and versions of all files, and compare the sizes.

    Raises:
        FileNotFoundError: one is missing.
        ValueError: one has another size.
    """
    wanted = [
        (shard_path(Path(), index, kind).name, record)
        for index, shard in enumerate(manifest.shards)
        for kind, record in shard.files.items()
    ]
    files: list[RemoteFile] = []
    versions = _in_threads(remote.version, [(name,) for name, _ in wanted])
    for (name, record), version in zip(wanted, versions, strict=True):
        if version.size != record.size:
            raise ValueError(
                f"{remote.location.join(name)} is truncated or damaged: it has {version.size} "
                f"bytes, expected {record.size}"
            )
        digest = hashlib.sha256(f"{key}\n{name}\n{version.tag}".encode()).hexdigest()[:32]
        files.append(RemoteFile(name, version, digest))
    kinds = ("tokens", "marks", "documents")
    return tuple(
        dict(zip(kinds, files[i : i + len(kinds)], strict=True))
        for i in range(0, len(files), len(kinds))
    )


def _fetch_documents(remote: RemoteFolder, folder: Path, index: int, record: FileRecord) -> None:
    """Fetch where the documents of a shard start, unless it is there."""
    path = shard_path(folder, index, "documents")
    if path.is_file() and path.stat().st_size == record.size and sha256(path) == record.sha256:
        return
    data = remote.read_whole(path.name, MAX_FILE_BYTES)
    if (found := hashlib.sha256(data).hexdigest()) != record.sha256:
        raise ValueError(
            f"{remote.location.join(path.name)} is damaged: its SHA-256 is {found}, expected "
            f"{record.sha256}"
        )
    write_atomically(path, data)


def _fetch_tokenizer(remote: RemoteFolder, folder: Path, manifest: ShardsManifest) -> None:
    """Fetch the files of the tokenizer, unless they are there.

    Raises:
        ValueError: they are not those that the tokens were made with.
    """
    own, expected = folder / "tokenizer", manifest.tokenizer_sha256
    if own.is_dir():
        if folder_sha256(own) == expected:
            return
        shutil.rmtree(own)
    with atomic_path(own) as beside:
        beside.mkdir()
        for name in _TOKENIZER_FILES:
            if _exists(remote, f"tokenizer/{name}"):
                data = remote.read_whole(f"tokenizer/{name}", MAX_FILE_BYTES)
                (beside / name).write_bytes(data)
        if (found := folder_sha256(beside)) != expected:
            raise ValueError(
                f"{remote.location.join('tokenizer')} is not the tokenizer that made the tokens: "
                f"the SHA-256 of its files is {found}, expected {expected}"
            )


def _in_threads(
    function: Callable[..., ResultT], arguments: Sequence[Iterable[Any]]
) -> list[ResultT]:
    """Call a function with each of some arguments, several at once."""
    if not arguments:
        return []
    with ThreadPoolExecutor(min(N_THREADS, len(arguments))) as threads:
        return list(threads.map(lambda given: function(*given), arguments))


def _blocks_folder(access: RemoteAccess) -> Path:
    return access.folder / "blocks"
