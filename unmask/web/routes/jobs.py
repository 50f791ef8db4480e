"""Jobs: queue, stop, go on, move, delete, and what they write."""

import itertools
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import FileResponse, Response
from pydantic import BaseModel, Field

from unmask.web.commands.arguments import command_arguments, parse_command, shown_command
from unmask.web.jobs.record import OUTPUT_FILE, JobRecord
from unmask.web.jobs.submit import queue_command, resume_arguments
from unmask.web.routes.shared import REPORT_POLICY, JsonObject, Workbench
from unmask.web.state import WorkbenchState

router = APIRouter(tags=["jobs"])
_MAX_OUTPUT_BYTES = 1 << 18
_MAX_FILES = 200
_SHOWN = {".html": "text/html; charset=utf-8", ".svg": "image/svg+xml"}
"""Files that a browser shows, without anything that they could reach; others are saved."""


class JobRequest(BaseModel):
    """A command and the values of its options."""

    command: str = Field(max_length=40)
    values: JsonObject = Field(default_factory=dict)


class JobPlace(BaseModel):
    """A place in the queue."""

    place: int = Field(ge=0, le=100_000)


def job_json(job: JobRecord) -> JsonObject:
    """Return a job for the page."""
    command_line = shown_command(job.arguments)
    return asdict(job) | {"command_line": command_line, "ending": job.ending}


@router.get("/jobs")
def list_jobs(state: Workbench) -> JsonObject:
    """List the jobs: those that run, those that wait in their order, then the rest."""
    limits = state.scheduler.limits
    return {
        "jobs": [job_json(one) for one in state.queue.jobs()],
        "limits": {"jobs": limits.jobs, "cores": limits.cores, "memory": limits.memory_bytes},
    }


@router.post("/jobs", status_code=201)
def add_job(request: JobRequest, state: Workbench) -> JsonObject:
    """Queue a command; its options are frozen from then on."""
    job = queue_command(state.workplace, state.queue, request.command, request.values)
    state.scheduler.look_now()
    return job_json(job)


@router.post("/command-line")
def show_command_line(request: JobRequest, state: Workbench) -> JsonObject:
    """Return the command line of a command with the values of its options."""
    return {"command_line": shown_command(command_arguments(request.command, request.values))}


@router.get("/jobs/{job}")
def show_job(job: str, state: Workbench) -> JsonObject:
    """Return how a job stands."""
    return job_json(state.queue.get(job))


@router.get("/jobs/{job}/values")
def show_values(job: str, state: Workbench) -> JsonObject:
    """Return the command of a job and the values of its form, to start it again with others."""
    command, values = parse_command(state.queue.get(job).arguments)
    return {"command": command, "values": values}


@router.get("/jobs/{job}/output")
def read_output(job: str, state: Workbench, after: int = 0) -> JsonObject:
    """Return what a job wrote after a byte, and the byte to go on from."""
    path = state.queue.path(job) / OUTPUT_FILE
    if not path.is_file():
        return {"text": "", "offset": 0}
    size = path.stat().st_size
    start = min(max(after, 0, size - _MAX_OUTPUT_BYTES if after <= 0 else 0), size)
    with path.open("rb") as file:
        file.seek(start)
        data = file.read(_MAX_OUTPUT_BYTES)
    return {"text": data.decode("utf-8", errors="replace"), "offset": start + len(data)}


@router.get("/jobs/{job}/files")
def list_written(job: str, state: Workbench) -> JsonObject:
    """List the files that a job wrote: an analysis, predictions, vectors, a converted model."""
    written = itertools.islice(_written(state, job), _MAX_FILES)
    return {"files": [{"name": name, "bytes": path.stat().st_size} for name, path in written]}


@router.get("/jobs/{job}/file")
def send_written(
    job: str, name: Annotated[str, Query(max_length=1000)], state: Workbench
) -> Response:
    """Send a file that a job wrote."""
    path = next((path for known, path in _written(state, job) if known == name), None)
    if path is None:
        raise FileNotFoundError(f"the job wrote no file {name[:60]!r}")
    kind = _SHOWN.get(path.suffix)
    if kind is None:
        return FileResponse(path, filename=path.name)
    return FileResponse(path, media_type=kind, headers={"content-security-policy": REPORT_POLICY})


def _written(state: WorkbenchState, job: str) -> Iterator[tuple[str, Path]]:
    """Iterate over the files at the place that a job writes to, with their names below it."""
    run = state.queue.get(job).run
    if run is None:
        return
    place = state.workplace.path_of(run)
    for path in [place] if place.is_file() else sorted(place.rglob("*")):
        if path.is_file() and path.resolve().is_relative_to(place.resolve()):
            yield path.relative_to(place).as_posix() if path != place else path.name, path


@router.post("/jobs/{job}/stop")
def stop_job(job: str, state: Workbench) -> JsonObject:
    """Ask a job to stop: it finishes its step and saves. Asked again: at once."""
    return job_json(state.queue.stop(job))


@router.post("/jobs/{job}/move")
def move_job(job: str, request: JobPlace, state: Workbench) -> JsonObject:
    """Move a waiting job to a place in the queue."""
    state.queue.move(job, request.place)
    return list_jobs(state)


@router.post("/jobs/{job}/resume", status_code=201)
def resume_job(job: str, state: Workbench) -> JsonObject:
    """Queue what a stopped or failed job did not finish."""
    record = state.queue.get(job)
    if not record.is_over:
        raise ValueError(f"the job has not ended ({record.state})")
    arguments = resume_arguments(state.workplace, record)
    resumed = state.queue.add(arguments, record.run)
    state.scheduler.look_now()
    return job_json(resumed)


@router.delete("/jobs/{job}")
def delete_job(job: str, state: Workbench) -> JsonObject:
    """Remove a job that does not run; the run stays."""
    state.queue.delete(job)
    return {"deleted": job}
