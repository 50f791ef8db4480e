"""Requests drawn from the API's own description: none is answered by a bug."""

from collections.abc import Iterator
from typing import Any

import hypothesis
import pytest

from tests.web.served import Served, workbench

schemathesis = pytest.importorskip("schemathesis", reason="schemathesis is not installed")

ENDLESS = ("/api/stream",)
STARTS_PYTHON = ("/api/call/{name}", "/api/call-stream/{name}", "/api/exports")
"""Each call imports torch in the worker: drawn less often."""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with workbench(tmp_path_factory.mktemp("root"), "--max-upload", "0.001") as one:
        yield one


@pytest.fixture(scope="module")
def operations(served: Served) -> dict[str, list[Any]]:
    url = f"http://127.0.0.1:{served.port}/api/openapi.json"
    schema = schemathesis.openapi.from_url(url, headers=headers_of(served))
    found: dict[str, list[Any]] = {}
    for one in schema.exclude(tag="calls").get_all_operations():  # "/api/call/{name}" draws them
        found.setdefault(one.ok().path, []).append(one.ok())
    return found


def headers_of(served: Served) -> dict[str, str]:
    return {"authorization": f"Bearer {served.secret}", "x-unmask": "1"}


def draw_requests(operation: Any, served: Served, n: int) -> None:
    @hypothesis.settings(
        max_examples=n, deadline=None, derandomize=True, database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )  # fmt: skip
    @hypothesis.given(case=operation.as_strategy())
    def ask(case: Any) -> None:
        response = case.call(headers=headers_of(served), timeout=120)
        assert response.status_code < 500, f"{case.method} {case.path}: {response.text}"
        if response.status_code >= 400 and case.method != "HEAD":
            assert "\n" not in response.json()["error"]

    ask()


@pytest.mark.thorough
def test_no_request_is_answered_by_a_bug(served: Served, operations: dict[str, list[Any]]) -> None:
    others = [path for path in operations if path not in (*ENDLESS, *STARTS_PYTHON)]
    assert len(others) > 15
    for path in others:
        for operation in operations[path]:
            draw_requests(operation, served, n=20)
    assert served.process.poll() is None


@pytest.mark.thorough
def test_no_call_is_answered_by_a_bug(served: Served, operations: dict[str, list[Any]]) -> None:
    for path in STARTS_PYTHON:
        for operation in operations[path]:
            draw_requests(operation, served, n=8)
