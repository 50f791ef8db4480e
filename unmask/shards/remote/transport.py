"""Files below a URL, read through fsspec; a connection that breaks is tried again."""

import base64
import logging
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from unmask.shards.remote.location import SCHEMES, RemoteLocation, Secrets
from unmask.text.formats.decompress import require_module

_log = logging.getLogger(__name__)
ResultT = TypeVar("ResultT")

_VERSION_KEYS = (
    "ETag", "etag", "Content-MD5", "md5Hash", "LastModified", "Last-Modified", "last_modified",
    "updated", "mtime", "created",
)  # fmt: skip
"""What file systems say of a file that differs when its contents do, the surest first."""
_FOREIGN_ERRORS = (
    ("aiohttp", "ClientError"),
    ("botocore.exceptions", "BotoCoreError"),
    ("gcsfs.retry", "HttpError"),
    ("azure.core.exceptions", "AzureError"),
)
"""Errors of connections that are no OSError."""
_FINAL_STATUSES = frozenset({400, 401, 403, 405, 406, 410, 414, 416, 501})
"""Answers of a server that are the same the next time."""
_MISSING_STATUS = 404
_READ_SECONDS = 60.0
"""Seconds without a byte after which a connection counts as broken."""


class BrokenConnectionError(ConnectionError):
    """A connection that stayed broken; the checkpoint of a run remains."""


@dataclass(frozen=True)
class FileVersion:
    """What tells a file from what it is after a change."""

    size: int
    tag: str
    """ETag, time of the last change, or what else the storage says. "": it says nothing."""


class RemoteFolder:
    """Files below a URL."""

    def __init__(self, location: RemoteLocation, waits: tuple[float, ...]) -> None:
        self.location = location
        self._waits = waits
        self._opened: Any = None

    def version(self, name: str) -> FileVersion:
        """Ask for the size and the version of a file.

        Raises:
            FileNotFoundError: there is no such file.
            BrokenConnectionError: the connection stays broken.
            ValueError: the storage does not say how large the file is.
        """
        path = self.location.request_url(name)
        facts = self._with_retries(name, lambda: self._file_system.info(path))
        size = facts.get("size")
        if type(size) is not int:
            raise ValueError(
                f"{self.location.join(name)}: the server does not say how large it is; one that "
                "answers HEAD with Content-Length does"
            )
        return FileVersion(size, next((str(facts[k]) for k in _VERSION_KEYS if facts.get(k)), ""))

    def read(self, name: str, start: int, end: int) -> bytes:
        """Read the bytes of a file from `start` up to `end` (without).

        Raises:
            FileNotFoundError: there is no such file.
            BrokenConnectionError: the connection stays broken.
            ValueError: the server does not answer ranges.
        """
        path, n = self.location.request_url(name), end - start

        def ask() -> bytes:
            data = self._file_system.cat_file(path, start=start, end=end)
            if len(data) < n:
                raise ConnectionError(f"{len(data):,} of {n:,} bytes came")
            return data

        data = self._with_retries(name, ask)
        if len(data) > n:
            raise ValueError(
                f"{self.location.join(name)}: the server does not answer ranges of bytes: it sent "
                f"{len(data):,} instead of {n:,}"
            )
        return data

    def read_whole(self, name: str, max_bytes: int) -> bytes:
        """Read a file.

        Raises:
            FileNotFoundError: there is no such file.
            BrokenConnectionError: the connection stays broken.
            ValueError: it has more than `max_bytes`.
        """
        size = self.version(name).size
        if size > max_bytes:
            raise ValueError(
                f"{self.location.join(name)}: has {size:,} bytes, of which at most {max_bytes:,} "
                "are read"
            )
        return self.read(name, 0, size) if size else b""

    @property
    def _file_system(self) -> Any:
        """The file system of fsspec, made at the first use in each process."""
        if self._opened is None:
            self._opened = _open_file_system(self.location)
        return self._opened

    def _with_retries(self, name: str, attempt: Callable[[], ResultT]) -> ResultT:
        """Do what asks the storage, again after growing waits where the connection breaks."""
        url, scrub = self.location.join(name), self.location.secrets.scrub
        errors, waits = _connection_errors(), [*self._waits, None]
        for wait in waits:
            try:
                return attempt()
            except errors as raised:
                # fsspec says of whatever keeps it from HTTP's headers that there is no file.
                error = raised.__cause__ if isinstance(raised.__cause__, errors) else raised
                reason = scrub(str(error)) or type(error).__name__
                if isinstance(error, FileNotFoundError) or _status(error) == _MISSING_STATUS:
                    raise FileNotFoundError(f"{url} is missing") from None
                if isinstance(error, PermissionError) or _status(error) in _FINAL_STATUSES:
                    raise ValueError(f"{url}: the server refuses it: {reason}") from None
                if wait is None:
                    raise BrokenConnectionError(
                        f"{url}: the connection broke {len(waits)} times within "
                        f"{sum(self._waits):g} seconds of waiting ({reason}); checkpoints are "
                        "kept: go on with --resume"
                    ) from None
            _log.warning("a connection to %s broke; it is tried again", self.location.url)
            time.sleep(wait)
        raise AssertionError


def _open_file_system(location: RemoteLocation) -> Any:
    """Return the file system of fsspec for a URL.

    Raises:
        ImportError: what reads such URLs is not installed.
    """
    scheme = location.scheme
    require_module("fsspec", "data at a URL", extra="remote")
    if SCHEMES[scheme] in ("fsspec", "aiohttp"):
        require_module(SCHEMES[scheme], f"{scheme}://", extra="remote")
    elif _is_missing(SCHEMES[scheme]):
        raise ImportError(f"{scheme}:// needs {SCHEMES[scheme]}: pip install {SCHEMES[scheme]}")
    import fsspec

    options: dict[str, Any] = {"skip_instance_cache": True, "use_listings_cache": False}
    if scheme in ("http", "https"):
        import aiohttp

        options["client_kwargs"] = {
            "timeout": aiohttp.ClientTimeout(
                total=None, sock_connect=_READ_SECONDS, sock_read=_READ_SECONDS
            )
        }
        if location.secrets.user or location.secrets.password:
            options["headers"] = {"Authorization": _basic(location.secrets)}
        if location.secrets.query:
            options["encoded"] = True
    return fsspec.filesystem(scheme, **options)


def _basic(secrets: Secrets) -> str:
    """Return the header of a user and a password (RFC 7617)."""
    pair = f"{secrets.user}:{secrets.password}".encode()
    return f"Basic {base64.b64encode(pair).decode()}"


def _is_missing(module: str) -> bool:
    from importlib.util import find_spec

    return find_spec(module) is None


def _connection_errors() -> tuple[type[BaseException], ...]:
    """Return what broken connections raise, of the libraries that are in use."""
    found: list[type[BaseException]] = [OSError]
    for module, name in _FOREIGN_ERRORS:
        if module in sys.modules:
            found.append(vars(sys.modules[module])[name])
    return tuple(found)


def _status(error: BaseException) -> int | None:
    """Return the status with which a server answered; None: it did not."""
    status = getattr(error, "status", None)  # of aiohttp.ClientResponseError
    return status if type(status) is int else None
