"""Runs: list, one of them, its numbers, stop, go on, delete, tags."""

import hashlib
import json
import os
import signal
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import FileResponse, Response
from pydantic import BaseModel, Field

from unmask.files import lock_holder, read_json
from unmask.training.log import TIMING_FILE
from unmask.web.jobs.submit import resume_run_arguments
from unmask.web.routes.jobs import job_json
from unmask.web.routes.shared import REPORT_POLICY, JsonObject, Workbench
from unmask.web.runs.axes import Axis
from unmask.web.runs.compare import compare_runs, compare_series, compared_stamp
from unmask.web.runs.edit import delete_run, rename_run, restore_run, tag_run
from unmask.web.runs.index import RunFilter
from unmask.web.runs.series import LogPart, downsample, read_series, series_logs

router = APIRouter(tags=["runs"])
RunId = Annotated[str, Query(max_length=1000)]
_SMALL_POINTS = 80
_MAX_POINTS = 4000
_MAX_RUNS = 60
_MAX_TEXT_BYTES = 1 << 18
_READ_JSON = {
    "samples": "samples.json",
    "results": "results.json",
    "baselines": "baselines.json",
    "measures": "measures.json",
}


class NewName(BaseModel):
    """A new name of a run."""

    name: str = Field(max_length=200)


class NewTags(BaseModel):
    """The tags of a run."""

    tags: list[str] = Field(max_length=50)


class TrashItem(BaseModel):
    """What was deleted."""

    item: str = Field(max_length=300)


class ResumeRequest(BaseModel):
    """How long a run goes on."""

    steps: int | None = Field(default=None, ge=1, le=10**9)


@router.get("/runs")
def list_runs(
    request: Request,
    state: Workbench,
    text: str = "",
    kind: str = "",
    run_state: Annotated[str, Query(alias="state")] = "",
    tag: str = "",
    parent: str | None = None,
) -> Response:
    """List the runs: those that run first, then the newest. Not changed: status 304."""
    wanted = RunFilter(text=text, kind=kind, state=run_state, tag=tag, parent=parent)
    body = json.dumps({"runs": [asdict(one) for one in state.runs.list(wanted)]})
    return _tagged(request, body.encode())


def _tagged(request: Request, body: bytes) -> Response:
    """Answer with a tag; what the page has already is not sent again."""
    tag = _tag_of(body)
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers={"etag": tag})
    return Response(body, media_type="application/json", headers={"etag": tag})


def _tag_of(data: bytes) -> str:
    return f'"{hashlib.sha256(data).hexdigest()[:32]}"'


@router.get("/run")
def show_run(run: RunId, state: Workbench) -> JsonObject:
    """Return a run with its record, samples, results and card, and the names of its metrics."""
    from unmask.web.runs.headline import metric_words  # numpy, which takes time to import

    summary, path = state.runs.get(run), state.workplace.existing(run)
    jobs = [one for one in state.queue.jobs() if one.run == run]
    files = {name: _json_of(path / file) for name, file in _READ_JSON.items()}
    return {
        "run": asdict(summary),
        "record": state.workplace.shown(_json_of(path / "unmask.json")),
        "card": _text_of(path / "README.md"),
        "jobs": [job_json(one) for one in jobs],
        **files,
        "metrics": metric_words(files["results"]),
    }


def _json_of(path: Path) -> Any:
    """Read a file of JSON; None where it is not there, or damaged, which the summary notes."""
    try:
        return read_json(path)
    except (OSError, ValueError):
        return None


def _text_of(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_MAX_TEXT_BYTES).decode("utf-8", errors="replace")
    except OSError:
        return ""


@router.get("/run/series")
def show_series(
    run: RunId,
    state: Workbench,
    points: Annotated[int, Query(ge=10, le=_MAX_POINTS)] = 2000,
) -> JsonObject:
    """Return the numbers of a run's logs, for each seed, and of its timing."""
    found = state.runs.found(run)
    logs = series_logs(found)
    return {
        "logs": {seed: read_series(path).to_dict(points) for seed, path in logs.items()},
        "timing": {
            seed: read_series(path).to_dict(points)
            for seed, path in series_logs(found, TIMING_FILE).items()
        },
    }


@router.get("/run/curve")
def show_curve(run: RunId, state: Workbench) -> JsonObject:
    """Return the small curve of a run: its training loss, of the first seed."""
    logs = series_logs(state.runs.found(run))
    if not logs:
        return {"label": "", "steps": [], "values": []}
    training = read_series(next(iter(logs.values()))).training
    values = training.columns.get("loss", [None] * len(training.steps))
    steps, values = downsample(training.steps, values, _SMALL_POINTS)
    return {"label": "loss", "steps": steps, "values": values}


@router.get("/run/report")
def show_report(run: RunId, state: Workbench) -> Response:
    """Return the HTML report of a run."""
    path = state.workplace.existing(run) / "report.html"
    if not path.is_file() or path.is_symlink():
        raise FileNotFoundError(f"{run}: has no report yet")
    headers = {"content-security-policy": REPORT_POLICY, "x-frame-options": "SAMEORIGIN"}
    return FileResponse(path, media_type="text/html; charset=utf-8", headers=headers)


@router.get("/run/plot")
def show_plot(run: RunId, state: Workbench) -> Response:
    """Return the plot of a study, SVG."""
    path = state.workplace.existing(run) / "plot.svg"
    if not path.is_file() or path.is_symlink():
        raise FileNotFoundError(f"{run}: has no plot yet")
    headers = {"content-security-policy": REPORT_POLICY}
    return FileResponse(path, media_type="image/svg+xml", headers=headers)


@router.post("/run/stop")
def stop_run(run: RunId, state: Workbench) -> JsonObject:
    """Ask the process that trains in a run's folder to stop: it finishes its step and saves."""
    job = next((one for one in state.queue.jobs() if one.run == run and not one.is_over), None)
    if job is not None:
        return {"job": job_json(state.queue.stop(job.id))}
    pid = lock_holder(state.workplace.existing(run))
    if pid is None:
        raise ValueError(f"{run}: is not running")
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)  # SIGINT is ignored by what a script started with `&`
    return {"job": None}


@router.post("/run/resume", status_code=201)
def resume_run(run: RunId, request: ResumeRequest, state: Workbench) -> JsonObject:
    """Queue what a run did not finish, or more steps of it."""
    summary = state.runs.get(run)
    if summary.state in ("running", "queued"):
        raise ValueError(f"{run}: is {summary.state} already")
    arguments = resume_run_arguments(state.queue.jobs(), summary.kind, run, request.steps)
    job = state.queue.add(arguments, run)
    state.scheduler.look_now()
    return job_json(job)


@router.post("/run/rename")
def rename(run: RunId, request: NewName, state: Workbench) -> JsonObject:
    """Give a run another name."""
    return {"run": rename_run(state.workplace, run, request.name)}


@router.post("/run/tags")
def set_tags(run: RunId, request: NewTags, state: Workbench) -> JsonObject:
    """Set the tags of a run."""
    return {"tags": list(tag_run(state.workplace, run, request.tags))}


@router.delete("/run")
def delete(run: RunId, state: Workbench) -> JsonObject:
    """Move a run to the trash, from where it can be had back for a week."""
    return {"item": delete_run(state.workplace, run).id}


@router.post("/trash/restore")
def restore(request: TrashItem, state: Workbench) -> JsonObject:
    """Take a run back from the trash."""
    return {"run": restore_run(state.workplace, request.item)}


@router.get("/compare")
def compare(state: Workbench, run: Annotated[list[str], Query(max_length=_MAX_RUNS)]) -> JsonObject:
    """Return the options in which runs differ, and what they reached."""
    return asdict(compare_runs(state.workplace, state.runs, run))


@router.get("/compare/curves")
def compare_curves(
    request: Request,
    state: Workbench,
    run: Annotated[list[str], Query(max_length=_MAX_RUNS)],
    column: Annotated[str, Query(max_length=200)] = "loss",
    part: LogPart = "training",
    points: Annotated[int, Query(ge=10, le=_MAX_POINTS)] = 2000,
    axis: Axis = "step",
) -> Response:
    """Return a column of the logs of several runs, one curve for each seed, along an axis."""
    stamp = compared_stamp(state.runs, run).encode()
    if request.headers.get("if-none-match") == (tag := _tag_of(stamp)):
        return Response(status_code=304, headers={"etag": tag})
    curves = compare_series(state.runs, run, column, part, points, axis)
    body = json.dumps({"curves": [one.to_dict() for one in curves]})
    return Response(body, media_type="application/json", headers={"etag": tag})
