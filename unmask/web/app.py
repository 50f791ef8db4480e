"""The application: routes, errors in one line, the page and what it is made of."""

import errno
import mimetypes
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse, Response
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

import unmask
from unmask.web.commands.arguments import FieldError
from unmask.web.routes import every_router
from unmask.web.routes.call_schemas import call_paths
from unmask.web.routes.shared import Workbench
from unmask.web.security.guard import RequestGuard, cookie_header
from unmask.web.security.limits import TooMuchError
from unmask.web.state import WorkbenchState
from unmask.web.worker.client import WorkerError

_ASSETS = Path(str(files("unmask.web") / "assets"))
_PALETTE = Path(str(files("unmask.reports") / "assets" / "palette.css"))
_CACHED = {"cache-control": "no-cache"}
"""The browser asks whether a file has changed."""
_MEDIA_TYPES = {".js": "text/javascript", ".css": "text/css", ".html": "text/html"}


def make_app(state: WorkbenchState) -> RequestGuard:
    """Return the application behind its guard."""
    app = FastAPI(
        title="Unmask workbench",
        version=unmask.__version__,
        description="What the page uses. A program sends the secret of the printed address as "
        "`Authorization: Bearer SECRET`, and with writes `X-Unmask: 1`. Models answer at "
        "`/api/call/NAME`.",
        docs_url=None, redoc_url=None, openapi_url="/api/openapi.json",
        responses={status: {"description": "One line"} for status in (400, 404, 409)},
    )  # fmt: skip
    for error_type, handler in _ERROR_HANDLERS.items():
        app.add_exception_handler(error_type, handler)
    app.state.workbench = state
    for router in every_router():
        app.include_router(router, prefix="/api")
    app.get("/", include_in_schema=False)(_index)
    app.get("/assets/{name:path}", include_in_schema=False)(_asset)
    app.post("/login", include_in_schema=False)(_sign_in)
    describe = app.openapi

    def describe_with_calls() -> dict[str, Any]:
        described = describe()
        described["paths"] |= call_paths()
        return described

    app.openapi = describe_with_calls
    return RequestGuard(app, access=state.access, hosts=state.hosts)


class _SignIn(BaseModel):
    """What the page that asks for the password sends."""

    password: str = Field(max_length=1000)


def _sign_in(given: _SignIn, state: Workbench) -> Response:
    """Give the cookie to who knows the password."""
    if not state.access.is_password(given.password):
        return error_answer(401, "this is not the password")
    return JSONResponse({}, headers={"set-cookie": cookie_header(state.access, state.hosts)})


def _index() -> Response:
    return _asset("index.html")


def _asset(name: str) -> Response:
    """Send one of the page's files."""
    path = _PALETTE if name == _PALETTE.name else (_ASSETS / name).resolve()
    if not (path == _PALETTE or path.is_relative_to(_ASSETS.resolve())) or not path.is_file():
        raise HTTPException(404, "there is no such file")
    kind = _MEDIA_TYPES.get(path.suffix) or mimetypes.guess_type(path.name)[0]
    return FileResponse(path, media_type=kind, headers=_CACHED)


def error_answer(
    status: int, line: str, field: str | None = None, headers: Mapping[str, str] | None = None
) -> JSONResponse:
    """Return an error as one line, with the field that it is about."""
    content = {"error": " ".join(line.split()), "field": field}
    return JSONResponse(content, status, headers=dict(headers or {}))


def _invalid_field(_: Request, error: Exception) -> Response:
    return error_answer(400, str(error), getattr(error, "field", None))


def _too_much(_: Request, error: Exception) -> Response:
    return error_answer(getattr(error, "status", 413), str(error))


def _invalid(_: Request, error: Exception) -> Response:
    return error_answer(400, str(error))


def _failed_file(_: Request, error: Exception) -> Response:
    statuses = {FileNotFoundError: 404, NotADirectoryError: 404, FileExistsError: 409}
    status = next((s for kind, s in statuses.items() if isinstance(error, kind)), None)
    number = error.errno if isinstance(error, OSError) else None
    if number in (errno.ENOSPC, errno.EDQUOT):
        return error_answer(507, f"the disk is full: {error}")
    if status is None and isinstance(error, PermissionError):
        status = 403
    return error_answer(400 if status is None else status, _without_folder(error))


def _without_folder(error: Exception) -> str:
    """Return the line of an error of a file, with the file's name alone."""
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{Path(str(error.filename)).name}: {error.strerror}"
    return str(error)


def _failed_worker(request: Request, error: Exception) -> Response:
    assert isinstance(error, WorkerError)
    line = request.app.state.workbench.workplace.without_root(error.line)
    return error_answer(error.status, line, error.field)


def _invalid_request(_: Request, error: Exception) -> Response:
    found: Any = error.errors()[0] if isinstance(error, RequestValidationError) else {}
    place = ".".join(str(part) for part in found.get("loc", ()) if part not in ("body", "query"))
    return error_answer(400, f"{place or 'request'}: {found.get('msg', error)}", place or None)


def _http_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return error_answer(error.status_code, str(error.detail), headers=error.headers)


_ERROR_HANDLERS = {
    FieldError: _invalid_field,
    TooMuchError: _too_much,
    ValueError: _invalid,
    OSError: _failed_file,
    WorkerError: _failed_worker,
    RequestValidationError: _invalid_request,
    HTTPException: _http_error,
}
