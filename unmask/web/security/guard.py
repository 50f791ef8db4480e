"""Checks before any route: Host, Origin, the cookie, and a header on writes.

A page of another site can make a browser send requests to this machine. It cannot name our host in
them (DNS rebinding: the attacker's name, resolved to 127.0.0.1, stays in `Host`), has another
`Origin`, does not get a `SameSite=Strict` cookie sent along, and cannot set a header of its own
without asking first, which is never granted.
"""

import ipaddress
import json
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs, urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from unmask.web.security.access import Access

CONTENT_POLICY = (
    "default-src 'self'; img-src 'self' data: blob:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; object-src 'none'"
)
"""Of the pages themselves: nothing from another host, no script or style within the HTML."""
_HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "x-frame-options": "DENY",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
_READING = frozenset(("GET", "HEAD"))
_SIGN_IN_FILES = ("login.html", "login.js", "style.css", "palette.css")
_OPEN_PATHS = frozenset(("/login", *(f"/assets/{name}" for name in _SIGN_IN_FILES)))
"""What the page that asks for the password needs."""


@dataclass(frozen=True)
class KnownHosts:
    """The names under which a server may be asked for."""

    port: int
    is_public: bool

    def has(self, host: str) -> bool:
        """Return whether a `Host` header is one of ours.

        A public server is reached by numbers or by the name of the machine: a number cannot be
        rebound to another machine, and a foreign name is not ours.
        """
        try:
            parts = urlsplit(f"//{host}")
            name, port = parts.hostname or "", parts.port or 80
        except ValueError:
            return False
        if port != self.port or parts.username is not None or parts.path:
            return False
        if name in ("localhost", "127.0.0.1", "::1"):
            return True
        return self.is_public and (_is_number(name) or name == socket.gethostname().lower())


def _is_number(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


class RequestGuard:
    """ASGI layer that refuses what did not come from our own page, and adds policy headers."""

    def __init__(self, app: ASGIApp, *, access: Access, hosts: KnownHosts) -> None:
        self._app, self._access, self._hosts = app, access, hosts
        self._cookie = _cookie_name(hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or answer it here."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return  # no web sockets: the server closes them
        headers = {
            name.decode("latin-1").lower(): value.decode("latin-1")
            for name, value in scope["headers"]
        }
        refused = self._refusal(scope, headers)
        if refused is not None:
            await _answer(send, *refused)
            return
        if scope["path"] == "/" and (given := _secret_in(scope)):
            await self._take_secret(given, send)
            return
        if scope["path"] not in _OPEN_PATHS and not self._is_known(headers):
            await self._ask_for_secret(scope, send)
            return
        await self._app(scope, receive, _with_headers(send))

    def _refusal(self, scope: Scope, headers: Mapping[str, str]) -> tuple[int, str] | None:
        """Return why a request is not from our own page."""
        host = headers.get("host", "")
        if not self._hosts.has(host):
            return 421, f"unknown host {host[:100]!r}; open the address that unmask serve printed"
        if headers.get("origin", f"http://{host}") != f"http://{host}":
            return 403, "requests from other sites are refused"
        is_navigation = scope["path"] == "/" and headers.get("sec-fetch-mode") == "navigate"
        is_own = headers.get("sec-fetch-site", "none") in ("same-origin", "none")
        if not is_own and not (is_navigation and scope["method"] in _READING):
            return 403, "requests from other sites are refused"
        if scope["method"] not in _READING and "x-unmask" not in headers:
            return 403, "requests that write need the header X-Unmask"
        return None

    def _is_known(self, headers: Mapping[str, str]) -> bool:
        """Return whether a request has the cookie, or the secret as a program sends it."""
        kind, _, given = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer" and self._access.is_secret(given.strip()):
            return True
        try:
            morsel = SimpleCookie(headers.get("cookie", "")).get(self._cookie)
        except CookieError:
            return False
        return morsel is not None and self._access.is_secret(morsel.value)

    async def _take_secret(self, given: str, send: Send) -> None:
        """Turn the secret in the address into a cookie, and go to the address without it."""
        if not self._access.is_secret(given):
            await _answer(send, 401, "the secret in this address is not, or no longer, right")
            return
        headers = {"location": "/", "set-cookie": cookie_header(self._access, self._hosts)}
        await _answer(send, 303, "", headers)

    async def _ask_for_secret(self, scope: Scope, send: Send) -> None:
        if self._access.password is not None and scope["path"] == "/":
            await _answer(send, 303, "", {"location": "/assets/login.html"})
            return
        line = "not signed in; open the address that unmask serve printed, with its secret"
        await _answer(send, 401, line, is_page=not scope["path"].startswith("/api"))


def _cookie_name(hosts: KnownHosts) -> str:
    return f"unmask-{hosts.port}"  # browsers do not tell ports apart


def cookie_header(access: Access, hosts: KnownHosts) -> str:
    """Return the header that sets the cookie; no script can read it, no other site send it."""
    return f"{_cookie_name(hosts)}={access.secret}; Path=/; HttpOnly; SameSite=Strict"


def _secret_in(scope: Scope) -> str:
    query = parse_qs(scope["query_string"].decode("latin-1"))
    return query.get("secret", [""])[0]


def _with_headers(send: Send) -> Send:
    """Add the policy headers to what a route answers; a route's own are kept."""

    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            given = {name.lower() for name, _ in message["headers"]}
            more = {"content-security-policy": CONTENT_POLICY, "cache-control": "no-store"}
            message["headers"] = [
                *message["headers"],
                *(
                    (name.encode(), value.encode())
                    for name, value in (_HEADERS | more).items()
                    if name.encode() not in given
                ),
            ]
        await send(message)

    return send_with_headers


async def _answer(
    send: Send,
    status: int,
    line: str,
    headers: Mapping[str, str] | None = None,
    *,
    is_page: bool = False,
) -> None:
    """Answer a request here, in one line."""
    body = line if is_page else json.dumps({"error": line, "field": None})
    kind = "text/plain; charset=utf-8" if is_page else "application/json"
    own: dict[str, Any] = {"content-type": kind, "content-length": str(len(body.encode()))}
    start: Message = {
        "type": "http.response.start",
        "status": status,
        "headers": [(k.encode(), v.encode()) for k, v in (own | dict(headers or {})).items()],
    }
    send = _with_headers(send)
    await send(start)
    await send({"type": "http.response.body", "body": body.encode()})
