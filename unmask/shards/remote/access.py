"""How remote data is read: the cache, its size, how often a broken connection is tried again."""

import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from unmask.options import JobOptions, flag
from unmask.shards.remote.location import RemoteLocation, Secrets, parse_location

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY_UNITS = {"ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?i?)b?", re.IGNORECASE)
MIN_CACHE_BYTES = 16 * 10**6
"""Below that, blocks of a step push each other out."""
MAX_RETRIES = 16


@dataclass(frozen=True, kw_only=True)
class RemoteOptions(JobOptions):
    """How data is read that is named by a URL."""

    data_cache: str | Path | None = field(
        default=None,
        metadata=flag(metavar="FOLDER", shown_default="unmask/remote in the user's cache"),
    )
    """Cache folder of data that is named by a URL; several processes and runs may share it."""
    data_cache_size: str = field(default="8GB", metadata=flag(metavar="SIZE"))
    """Size limit of the cache, in bytes or with a unit: MB, GB, TB, MiB, GiB or TiB; at least
    16MB. What was not read for the longest time is removed."""
    data_retries: int = field(default=6, metadata=flag(metavar="N"))
    """Number of times that a broken connection is tried again, 0 to 16, after 0.5 seconds, then
    twice as long each time, at most 60."""

    def access(self, secrets: Mapping[str, Secrets] | None = None) -> "RemoteAccess":
        """Return the same as values.

        Raises:
            ValueError: one is out of range.
        """
        folder = default_cache_folder() if self.data_cache is None else Path(self.data_cache)
        return RemoteAccess(
            folder=folder,
            cache_bytes=parse_size(self.data_cache_size),
            retries=self.data_retries,
            secrets=secrets or {},
        )


@dataclass(frozen=True, kw_only=True)
class RemoteAccess:
    """How remote data is read."""

    folder: Path = field(default_factory=lambda: default_cache_folder())
    """Of the cache."""
    cache_bytes: int = 8 * 10**9
    retries: int = 6
    secrets: Mapping[str, Secrets] = field(default_factory=dict[str, Secrets], repr=False)
    """By URL."""

    def __post_init__(self) -> None:
        if self.cache_bytes < MIN_CACHE_BYTES:
            raise ValueError(f"data_cache_size must be at least 16MB, got {self.cache_bytes:,} B")
        if not 0 <= self.retries <= MAX_RETRIES:
            raise ValueError(f"data_retries must be from 0 to {MAX_RETRIES}, got {self.retries}")

    @property
    def waits(self) -> tuple[float, ...]:
        """Seconds before each further attempt."""
        return tuple(min(0.5 * 2**i, 60.0) for i in range(self.retries))

    def location(self, source: str) -> RemoteLocation:
        """Parse the URL of a folder, with the secrets that were given with it.

        Raises:
            ValueError: as `parse_location`.
        """
        location = parse_location(source)
        return RemoteLocation(location.url, self.secrets.get(location.url, location.secrets))


def default_cache_folder() -> Path:
    """Return the folder of the cache, below that of the user."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "unmask" / "remote"


def parse_size(text: str) -> int:
    """Parse a number of bytes: "8GB" is 8 * 10^9, "8GiB" 8 * 2^30.

    Raises:
        ValueError: it is none.
    """
    match = _SIZE.fullmatch(text.strip())
    factor = None if match is None else (_UNITS | _BINARY_UNITS).get(match[2].lower())
    if match is None or factor is None or not math.isfinite(float(match[1])):
        raise ValueError(f"data_cache_size must be a size such as 500MB or 8GiB, got {text!r}")
    return int(float(match[1]) * factor)
