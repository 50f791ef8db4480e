"""Exports: a model written for other programs, to be downloaded as one archive."""

import re
import shutil
import zipfile
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import FileResponse
from pydantic import BaseModel, Field

from unmask.files import atomic_path
from unmask.web.routes.models import checked_arguments
from unmask.web.routes.shared import JsonObject, Workbench
from unmask.web.state import WorkbenchState

router = APIRouter(tags=["exports"])
_NAME = re.compile(r"[\w][\w. -]{0,150}")


class ExportRequest(BaseModel):
    """What is written, and how."""

    model: str = Field(max_length=1000)
    format: str = Field(max_length=40)
    int8: bool = False
    dtype: str = Field(default="float32", max_length=20)


@router.post("/exports", status_code=201)
def write_export(request: ExportRequest, state: Workbench) -> JsonObject:
    """Write a model in a format of other programs; an earlier one of the same name is replaced."""
    base = re.sub(r"[^\w.-]+", "-", request.model.rpartition("/")[2]).strip(".-") or "model"
    name = f"{base}-{request.format}{'-int8' if request.int8 else ''}"[:120]
    folder = _folder(state, name)
    part = folder.with_name(f".{name}.part")
    shutil.rmtree(part, ignore_errors=True)
    given = checked_arguments("export", request.model_dump(), state.workplace)
    try:
        told = state.slow_worker.call("export", given | {"target": str(part / name)})
        shutil.rmtree(folder, ignore_errors=True)
        (part / name).rename(folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return told | {"name": name, "path": folder.relative_to(state.workplace.root).as_posix()}


@router.get("/exports/download", response_class=FileResponse)
def download_export(name: Annotated[str, Query(max_length=200)], state: Workbench) -> FileResponse:
    """Send an export as a zip archive."""
    folder = _folder(state, name)
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no export {name!r}")
    archive = folder.with_name(f"{folder.name}.zip")
    if not archive.is_file() or archive.stat().st_mtime < folder.stat().st_mtime:
        _pack(folder, archive)
    return FileResponse(archive, media_type="application/zip", filename=archive.name)


def _pack(folder: Path, archive: Path) -> None:
    """Write a folder as an archive; weights do not become smaller and are stored as they are."""
    with (
        atomic_path(archive) as beside,
        zipfile.ZipFile(beside, "w", zipfile.ZIP_STORED, allowZip64=True) as packed,
    ):
        for path in sorted(folder.rglob("*")):
            if path.is_file() and not path.is_symlink():
                packed.write(path, f"{folder.name}/{path.relative_to(folder).as_posix()}")


def _folder(state: WorkbenchState, name: str) -> Path:
    """Return the folder of an export.

    Raises:
        ValueError: it is no name of one.
    """
    if not _NAME.fullmatch(name) or name.endswith(".zip"):
        raise ValueError(f"name: {name[:60]!r} is no name of an export")
    exports = state.workplace.files_folder.parent / "exports"
    exports.mkdir(exist_ok=True)
    return exports / name
