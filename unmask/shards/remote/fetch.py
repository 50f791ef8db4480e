"""Bytes of remote files, block by block: from the cache, or fetched by threads and put into it."""

import hashlib
import itertools
import logging
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass

from unmask.shards.remote.block_cache import BlockCache
from unmask.shards.remote.transport import BrokenConnectionError, FileVersion, RemoteFolder

_log = logging.getLogger(__name__)
BLOCK_BYTES = 2**18
"""Bytes of a block: 50 requests a second of each of `N_THREADS` are 200 MB a second; smaller ones
would wait longer, of larger ones a row needs a smaller part."""
N_THREADS = 16
CHECK_SECONDS = 60.0
"""Seconds after which a file of which blocks are still fetched is compared with what it was."""
IDLE_SECONDS = 10.0
"""Seconds after which a thread that has nothing to fetch ends."""
_SCAN_BLOCKS = 4 * N_THREADS
"""Blocks that are asked for ahead of the one that is read, where all of a file is."""


@dataclass(frozen=True)
class RemoteFile:
    """A file as it was when the folder was opened."""

    name: str
    version: FileVersion
    key: str
    """Of its blocks in the cache: another for each version of each file."""


class BlockFetcher:
    """Reads parts of files; what is asked for ahead is fetched in the background.

    Safe to use from several threads. Another process has one of its own, and the same cache.
    """

    def __init__(self, remote: RemoteFolder, cache: BlockCache) -> None:
        self.remote, self.cache = remote, cache
        self._lock = threading.Lock()
        self._pending: dict[tuple[str, int], Future[bytes]] = {}
        self._checked: dict[str, float] = {}
        self._jobs = queue.PriorityQueue[tuple[int, int, Callable[[], None]]]()
        self._n_jobs = itertools.count()
        self._n_threads = 0
        self._read_files: dict[str, RemoteFile] = {}

    def read(self, file: RemoteFile, start: int, end: int) -> bytes:
        """Read the bytes of a file from `start` up to `end` (without).

        Raises:
            ValueError: the file has changed since the folder was opened.
            BrokenConnectionError: the connection stays broken.
        """
        self._read_files[file.name] = file
        first, last = start // BLOCK_BYTES, -(-end // BLOCK_BYTES)
        parts: list[bytes] = []
        for number in range(first, last):
            if (number - first) % _SCAN_BLOCKS == 0 and last - first > 1:
                for ahead in range(number, min(number + 2 * _SCAN_BLOCKS, last)):
                    self._request(file, ahead)
            base = number * BLOCK_BYTES
            begin, stop = max(start - base, 0), min(end - base, BLOCK_BYTES)
            part = self.cache.read(file.key, number, begin, stop)
            if part is None:
                part = self._fetched(file, number)[begin:stop]
            parts.append(part)
        return b"".join(parts)

    def read_ahead(self, file: RemoteFile, start: int, end: int) -> None:
        """Have the blocks of some bytes fetched in the background, unless they are there."""
        self._read_files[file.name] = file
        for number in range(start // BLOCK_BYTES, -(-end // BLOCK_BYTES)):
            self._request(file, number)

    def read_files(self) -> list[RemoteFile]:
        """Return the files of which something was read, here or ahead of another process."""
        return list(self._read_files.values())

    def digest_if_complete(self, file: RemoteFile) -> str | None:
        """Compute the SHA-256 of a file if all of its blocks are in the cache, else None."""
        size, digest = file.version.size, hashlib.sha256()
        numbers = range(-(-size // BLOCK_BYTES))
        if not all(self.cache.has(file.key, number) for number in numbers):
            return None
        for number in numbers:
            base = number * BLOCK_BYTES
            data = self.cache.read(file.key, number, 0, min(BLOCK_BYTES, size - base))
            if data is None:
                return None
            digest.update(data)
        return digest.hexdigest()

    def check_version(self, file: RemoteFile) -> None:
        """Compare a file with what it was when the folder was opened.

        Raises:
            ValueError: it has changed.
            BrokenConnectionError: the connection stays broken.
        """
        now = self.remote.version(file.name)
        if now != file.version:
            url, before = self.remote.location.join(file.name), file.version
            raise ValueError(
                f"{url} was changed while it was read: it had {before.size:,} bytes, version "
                f"{before.tag or 'unknown'}, and has {now.size:,}, version {now.tag or 'unknown'}; "
                "prepared folders must stay as they are: name a new one"
            )

    def _fetched(self, file: RemoteFile, number: int) -> bytes:
        future = self._request(file, number, always=True)
        assert future is not None
        return future.result()

    def _request(
        self, file: RemoteFile, number: int, *, always: bool = False
    ) -> "Future[bytes] | None":
        """Have a block fetched, if it is not in the cache or `always`; return what it will be."""
        which = (file.key, number)
        with self._lock:
            future = self._pending.get(which)
            if future is not None and not (always and not future.running()):
                return future
            if future is None:
                if not always and self.cache.has(*which):
                    return None
                future = self._pending[which] = Future[bytes]()
            if self._n_threads < N_THREADS:
                self._n_threads += 1
                threading.Thread(target=self._work, daemon=True).start()
            asked = future
            # What is waited for comes before what is asked for ahead, a second time if need be.
            self._jobs.put(
                (not always, next(self._n_jobs), lambda: self._fetch_into(asked, file, number))
            )
        return future

    def _work(self) -> None:
        """Fetch what is asked for, until nothing was for a while."""
        while True:
            try:
                fetch = self._jobs.get(timeout=IDLE_SECONDS)[-1]
            except queue.Empty:
                with self._lock:
                    if self._jobs.empty():
                        self._n_threads -= 1
                        return
            else:
                fetch()

    def _fetch_into(self, future: "Future[bytes]", file: RemoteFile, number: int) -> None:
        """Fetch a block, and then forget that it was asked for: it is in the cache."""
        with self._lock:
            if future.running() or future.done():
                return
            future.set_running_or_notify_cancel()
        try:
            future.set_result(self._fetch(file, number))
        except (ValueError, OSError, ImportError) as error:
            future.set_exception(error)  # raised where the block is read, if it is
        finally:
            with self._lock:
                del self._pending[(file.key, number)]
            if not future.done():  # a bug, which this thread reports
                future.set_exception(RuntimeError(f"{file.name}: a block was not fetched"))

    def _fetch(self, file: RemoteFile, number: int) -> bytes:
        base = number * BLOCK_BYTES
        data = self.remote.read(file.name, base, min(base + BLOCK_BYTES, file.version.size))
        now = time.monotonic()
        if now - self._checked.setdefault(file.name, now) >= CHECK_SECONDS:
            self._checked[file.name] = now
            self.check_version(file)
        try:
            self.cache.write(file.key, number, data)
        except OSError as error:
            _log.warning(
                "%s: blocks of remote data cannot be written (%s); they are fetched each time",
                self.cache.folder, error.strerror,
            )  # fmt: skip
        return data


def check_versions(fetcher: BlockFetcher) -> None:
    """Compare the files that were read with what they were when the folder was opened.

    Where the connection is broken, nothing is known, and nothing raised.

    Raises:
        ValueError: one has changed.
    """
    for file in fetcher.read_files():
        with suppress(BrokenConnectionError):
            fetcher.check_version(file)
