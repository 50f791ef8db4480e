"""Uploaded files: streamed to disk, capped in size, listed, deleted."""

import hashlib
import re
import secrets
import unicodedata
from pathlib import Path

from fastapi import APIRouter, Request
from fastapi.responses import FileResponse
from starlette.concurrency import run_in_threadpool

from unmask.web.routes.shared import JsonObject, Workbench
from unmask.web.state import WorkbenchState

router = APIRouter(tags=["files"])
_MAX_NAME = 120
_MADE = re.compile(r"(-(utf8|complete|predicted)(-\d+)?)+\.(csv|xlsx)$")
"""End of the name of a file that was made of another."""
_FORBIDDEN = re.compile(r"[\x00-\x1f\x7f/\\:*?\"<>|\[\]=]")


def file_name(name: str) -> str:
    """Return the name under which an uploaded file is kept.

    Raises:
        ValueError: no file can have it.
    """
    name = unicodedata.normalize("NFC", name.replace("\\", "/").rpartition("/")[2]).strip()
    name = _FORBIDDEN.sub("_", name).lstrip(".")
    if not name or len(name.encode()) > _MAX_NAME:
        raise ValueError(f"name: a file must have a name of 1 to {_MAX_NAME} bytes")
    return name


@router.get("/files")
def list_files(state: Workbench) -> JsonObject:
    """List the uploaded files, newest first; "made_from": the upload that one was made of."""
    found: list[JsonObject] = []
    for path in state.workplace.files_folder.iterdir():
        try:
            if path.is_file() and not path.name.startswith("."):
                facts = path.stat()
                found.append(_facts(state, path, facts.st_size, facts.st_mtime))
        except OSError:  # removed meanwhile
            continue
    stems = {
        one["name"].rpartition(".")[0]: one["name"]
        for one in found
        if not _MADE.search(one["name"])
    }
    for one in found:
        if _MADE.search(one["name"]):
            one["made_from"] = stems.get(_MADE.sub("", one["name"]))
    found.sort(key=lambda one: -one["modified"])
    return {"files": found, "max_bytes": state.uploads.file_bytes}


@router.put(
    "/files/{name}",
    status_code=201,
    openapi_extra={
        "requestBody": {
            "content": {"application/octet-stream": {"schema": {"type": "string"}}},
            "required": True,
        }
    },
)
async def upload_file(name: str, request: Request, state: Workbench) -> JsonObject:
    """Keep a file; one of the same name and content is kept once, another gets a number."""
    name, limits = file_name(name), state.uploads
    if _MADE.search(name):  # what was made of a file is deleted with it, what a person sent is not
        name = f"{Path(name).stem}_{Path(name).suffix}"
    folder = state.workplace.files_folder
    declared = request.headers.get("content-length", "")
    n_declared = int(declared) if declared.isdecimal() else 0
    limits.check_size(n_declared)
    limits.check_room(folder, n_declared)
    part = folder / f".{secrets.token_hex(8)}.part"
    digest, size = hashlib.sha256(), 0
    try:
        with part.open("wb") as file:
            async for chunk in request.stream():
                size += len(chunk)
                limits.check_size(size)
                digest.update(chunk)
                await run_in_threadpool(file.write, chunk)
        return await run_in_threadpool(_keep, state, part, name, digest.hexdigest())
    finally:
        part.unlink(missing_ok=True)


def _keep(state: WorkbenchState, part: Path, name: str, digest: str) -> JsonObject:
    """Give an uploaded file its name."""
    if part.stat().st_size == 0:
        raise ValueError(f"{name}: the file is empty")
    state.uploads.check_archive(part)
    stem, dot, suffix = name.partition(".")
    for number in range(1, state.uploads.files + 2):
        path = part.with_name(name if number == 1 else f"{stem}-{number}{dot}{suffix}")
        if path.is_file() and _digest(path) == digest:
            break
        if not path.exists():
            part.rename(path)
            break
    else:
        raise FileExistsError(f"{name}: too many files of this name")
    return _facts(state, path, path.stat().st_size, path.stat().st_mtime)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _facts(state: WorkbenchState, path: Path, size: int, modified: float) -> JsonObject:
    """Return a file for the page: `path` is what commands are given."""
    place = path.relative_to(state.workplace.root).as_posix()
    return {"name": path.name, "path": place, "bytes": size, "modified": modified}


@router.get("/files/{name}", response_class=FileResponse)
def download_file(name: str, state: Workbench) -> FileResponse:
    """Send an uploaded file, or one that was made of it, to be saved."""
    path = _find(state, name)
    return FileResponse(path, media_type="application/octet-stream", filename=path.name)


@router.delete("/files/{name}")
def delete_file(name: str, state: Workbench) -> JsonObject:
    """Delete an uploaded file, and what was made of it."""
    path = _find(state, name)
    for one in list_files(state)["files"]:
        if one.get("made_from") == path.name:
            (path.parent / one["name"]).unlink(missing_ok=True)
    path.unlink()
    return {"deleted": name}


def _find(state: WorkbenchState, name: str) -> Path:
    """Return the path of an uploaded file.

    Raises:
        FileNotFoundError: there is none of this name.
    """
    path = state.workplace.files_folder / file_name(name)
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {name[:60]!r}")
    return path
