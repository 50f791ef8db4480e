"""What did not come from our own page is refused before any route sees it."""

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.responses import PlainTextResponse

from unmask.web.security.access import Access
from unmask.web.security.guard import KnownHosts, RequestGuard

SECRET = "s" * 43
HOST = "127.0.0.1:8642"


def ask(
    method: str = "GET",
    path: str = "/api/runs",
    *,
    is_public: bool = False,
    password: str | None = None,
    **headers: str,
) -> Any:
    reached: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        reached.append(scope["path"])
        await PlainTextResponse("reached")(scope, receive, send)

    guard = RequestGuard(
        app, access=Access(SECRET, password), hosts=KnownHosts(8642, is_public=is_public)
    )
    given = {"host": HOST} | {k.replace("_", "-"): v for k, v in headers.items()}
    raw = {name: value.encode("latin-1") for name, value in given.items()}

    async def send_it() -> Any:
        transport = httpx.ASGITransport(app=guard)
        async with httpx.AsyncClient(transport=transport, base_url=f"http://{HOST}") as client:
            return await client.request(method, path, headers=raw)

    response = asyncio.run(send_it())
    assert (response.status_code == 200) == bool(reached)
    return response


def test_cookie_and_bearer_are_let_through():
    assert ask(cookie=f"unmask-8642={SECRET}").text == "reached"
    assert ask(authorization=f"Bearer {SECRET}").text == "reached"
    assert ask(host="localhost:8642", cookie=f"a=b; unmask-8642={SECRET}").text == "reached"
    assert ask(host="[::1]:8642", cookie=f"unmask-8642={SECRET}").text == "reached"


@pytest.mark.parametrize(
    "cookie",
    ["", "unmask-8642=", f"unmask-8643={SECRET}", f"unmask-8642={SECRET[:-1]}",
     f"unmask-8642={SECRET}x", 'unmask-8642="', "unmask-8642=\xe4", "\x00"],
)  # fmt: skip
def test_without_the_secret_nothing_is_told(cookie: str):
    assert ask(cookie=cookie).status_code == 401
    assert ask(path="/", cookie=cookie).status_code == 401
    assert ask(path="/assets/main.js", cookie=cookie).status_code == 401


@pytest.mark.parametrize(
    "host",
    ["evil.example:8642", "127.0.0.1:8643", "127.0.0.1", "", "evil.example", "127.0.0.1:8642/x",
     "127.0.0.1:8642@evil.example", "user@127.0.0.1:8642", "127.0.0.1.evil.example:8642",
     "192.168.1.5:8642", "127.0.0.1:99999", "[::1", "localhost:8642:8642"],
)  # fmt: skip
def test_foreign_hosts_are_refused_even_with_the_cookie(host: str):
    response = ask(host=host, cookie=f"unmask-8642={SECRET}")
    assert response.status_code == 421
    assert "\n" not in response.json()["error"]


@pytest.mark.parametrize(
    "headers",
    [{"origin": "http://evil.example"}, {"origin": "null"}, {"origin": f"https://{HOST}"},
     {"origin": "http://127.0.0.1:8643"}, {"sec_fetch_site": "cross-site"},
     {"sec_fetch_site": "same-site"}],
)  # fmt: skip
def test_other_sites_are_refused_even_with_the_cookie(headers: dict[str, str]):
    for method in ("GET", "POST"):
        found = ask(method, cookie=f"unmask-8642={SECRET}", x_unmask="1", **headers)
        assert found.status_code == 403


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_writes_need_the_header(method: str):
    assert ask(method, cookie=f"unmask-8642={SECRET}").status_code == 403
    assert ask(method, cookie=f"unmask-8642={SECRET}", x_unmask="1").text == "reached"


def test_the_secret_in_the_address_becomes_a_strict_cookie():
    response = ask(
        path=f"/?secret={SECRET}", sec_fetch_site="cross-site", sec_fetch_mode="navigate"
    )
    assert response.status_code == 303
    assert response.headers["location"] == "/"
    cookie = response.headers["set-cookie"]
    assert cookie.startswith(f"unmask-8642={SECRET};")
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    wrong = ask(path="/?secret=wrong")
    assert wrong.status_code == 401
    assert "set-cookie" not in wrong.headers


def test_policy_headers_are_on_every_answer():
    for response in (ask(), ask(cookie=f"unmask-8642={SECRET}"), ask(host="evil.example")):
        policy = response.headers["content-security-policy"]
        assert policy.startswith("default-src 'self'")
        assert "unsafe" not in policy
        assert response.headers["x-content-type-options"] == "nosniff"
        assert response.headers["x-frame-options"] == "DENY"
        assert "access-control-allow-origin" not in response.headers


def test_with_a_password_the_page_asks_for_it():
    response = ask(path="/", password="correct horse", is_public=True, host="192.168.1.5:8642")
    assert response.status_code == 303
    assert response.headers["location"] == "/assets/login.html"
    assert ask(path="/api/runs", password="correct horse").status_code == 401
    assert ask(path="/", is_public=True, host="evil.example:8642").status_code == 421


def test_the_secret_is_kept_and_read_by_its_owner_alone(tmp_path: Path):
    first = Access.of_folder(tmp_path, None)
    assert Access.of_folder(tmp_path, None).secret == first.secret
    assert len(first.secret) >= 43
    assert (tmp_path / "secret").stat().st_mode & 0o077 == 0
    (tmp_path / "secret").write_text("short\n")
    assert len(Access.of_folder(tmp_path, None).secret) >= 43


def test_a_wrong_password_makes_the_next_one_wait():
    access = Access(SECRET, "correct horse")
    assert not access.is_password("wrong")
    with pytest.raises(PermissionError, match="wait a second"):
        access.is_password("correct horse")
    assert not Access(SECRET).is_password("")
