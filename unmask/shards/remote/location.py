"""URLs of prepared folders: what is allowed, and the secrets apart from what may be printed."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

SCHEMES: Mapping[str, str] = {
    "s3": "s3fs",
    "gs": "gcsfs",
    "gcs": "gcsfs",
    "az": "adlfs",
    "abfs": "adlfs",
    "abfss": "adlfs",
    "http": "aiohttp",
    "https": "aiohttp",
    "memory": "fsspec",
}
"""Schemes that are read, each with the package that fsspec needs for it."""
_WITH_SECRETS = ("http", "https")
"""Schemes whose URLs may have a user, a password and a signature."""


@dataclass(frozen=True, kw_only=True)
class Secrets:
    """What a URL has that must not be printed or recorded."""

    user: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    query: str = field(default="", repr=False)
    """What follows the question mark, a signature for instance."""

    def scrub(self, text: str) -> str:
        """Return a text, such as the message of a library, in one line and without them."""
        for secret in (self.password, self.query, self.user):
            text = text.replace(secret, "***") if secret else text
        return " ".join(re.sub(r"(://)[^/@\s]*@|\?[^\s'\")]+", r"\1", text).split())


@dataclass(frozen=True)
class RemoteLocation:
    """A folder by its URL, without secrets; these are beside it."""

    url: str
    secrets: Secrets = field(default_factory=Secrets, repr=False, compare=False)

    @property
    def scheme(self) -> str:
        """What stands before `://`."""
        return self.url.partition("://")[0]

    def join(self, name: str) -> str:
        """Return the URL of a file below the folder, as it may be printed."""
        return f"{self.url}/{name}"

    def request_url(self, name: str) -> str:
        """Return the URL that is asked for: with the signature, if there is one."""
        query = self.secrets.query
        return f"{self.join(name)}?{query}" if query else self.join(name)


def is_remote(source: str) -> bool:
    """Return whether a source of data is a URL."""
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", source) is not None and not Path(source).exists()


def parse_location(source: str) -> RemoteLocation:
    """Parse the URL of a folder.

    Raises:
        ValueError: its scheme is not one of `SCHEMES`, it names no folder, or has secrets where
            these are taken from the environment; none of them is in the message.
    """
    parts = urlsplit(source)
    scheme, host = parts.scheme.lower(), parts.netloc.rpartition("@")[2]
    url = f"{scheme}://{host}{parts.path.rstrip('/')}"
    if scheme not in SCHEMES:
        raise ValueError(f"{url}: the scheme of a URL must be one of {', '.join(SCHEMES)}")
    if not host:
        raise ValueError(f"{url}: names no folder; a URL is like s3://bucket/prepared")
    has_secrets = bool(parts.username or parts.password or parts.query)
    if has_secrets and scheme not in _WITH_SECRETS:
        raise ValueError(
            f"{url}: only http and https have a user, a password or a query in the URL; "
            f"{SCHEMES[scheme]} finds credentials in the environment and its files"
        )
    secrets = Secrets(
        user=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
        query=parts.query,
    )
    return RemoteLocation(url, secrets)


def separate_secrets(sources: Iterable[str]) -> tuple[tuple[str, ...], dict[str, Secrets]]:
    """Return sources without secrets, and the secrets of each URL that had some.

    Raises:
        ValueError: as `parse_location`.
    """
    clean, secrets = list[str](), dict[str, Secrets]()
    for source in sources:
        if not is_remote(source):
            clean.append(source)
            continue
        location = parse_location(source)
        clean.append(location.url)
        if location.secrets != Secrets():
            secrets[location.url] = location.secrets
    return tuple(clean), secrets
