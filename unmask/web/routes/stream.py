"""One stream of events for each open page: what runs log, and how jobs stand.

The id of an event tells, for each run that is watched, the byte of its logs up to which it was
sent; a browser sends it back as `Last-Event-ID` when the connection broke, and goes on from there.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Header, Query
from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool

from unmask.training.log import LOG_FILE, TIMING_FILE
from unmask.web.routes.jobs import job_json
from unmask.web.routes.shared import JsonObject, Workbench
from unmask.web.state import WorkbenchState

router = APIRouter(tags=["stream"])
_SECONDS_BETWEEN_LOOKS, _SECONDS_BETWEEN_SIGNS = 0.5, 15.0
_MAX_RUNS = 60
_MAX_BYTES = 1 << 20
"""Of a log, in one event."""
_FILES = (LOG_FILE, TIMING_FILE)


@dataclass
class _Watched:
    """A file that grows, and how far it was sent."""

    run: str
    name: str
    path: Path
    offset: int

    def take_lines(self) -> dict[str, object] | None:
        """Return the whole lines that were added; None: none were."""
        try:
            size = self.path.stat().st_size
            restarted = size < self.offset  # cut by a run that goes on from a checkpoint
            start = 0 if restarted else self.offset
            with self.path.open("rb") as file:
                file.seek(start)
                data = file.read(_MAX_BYTES)
        except OSError:  # not there yet, or no more
            return None
        data = data[: data.rfind(b"\n") + 1]
        if not data and not restarted:
            return None
        self.offset = start + len(data)
        return {
            "run": self.run,
            "file": self.name,
            "restarted": restarted,
            "offset": self.offset,
            "lines": [line for line in data.decode("utf-8", "replace").split("\n") if line],
        }


@dataclass(eq=False)
class _Page:
    """What one page is told."""

    state: WorkbenchState
    watched: Sequence[_Watched]
    jobs: list[JsonObject] | None = None
    runs: dict[str, str] = field(default_factory=dict[str, str])

    def events(self) -> list[str]:
        """Return what is new."""
        found = [
            self._event("log", lines)
            for one in self.watched
            if (lines := one.take_lines()) is not None
        ]
        jobs = [job_json(one) for one in self.state.queue.jobs()]
        if jobs != self.jobs:
            self.jobs = jobs
            found.append(self._event("jobs", {"jobs": jobs}))
        for run in dict.fromkeys(one.run for one in self.watched):
            how = self._state_of(run)
            if self.runs.get(run) != how:
                self.runs[run] = how
                found.append(self._event("state", {"run": run, "state": how}))
        return found

    def _state_of(self, run: str) -> str:
        try:
            return self.state.runs.get(run).state
        except (OSError, ValueError):  # its folder is not there yet, or no more
            return ""

    def _event(self, name: str, data: object) -> str:
        place = ".".join(str(one.offset) for one in self.watched)
        return f"id: {place}\nevent: {name}\ndata: {json.dumps(data)}\n\n"


@router.get("/stream", response_class=StreamingResponse)
async def stream(
    state: Workbench,
    run: Annotated[list[str], Query(max_length=_MAX_RUNS)] = [],  # noqa: B006
    after: str = "",
    last_event_id: Annotated[str, Header()] = "",
) -> StreamingResponse:
    """Send what the named runs log from now on, or from `after`, and how jobs stand.

    `after` and `Last-Event-ID`: bytes of each run's log and timing that are known, joined by dots.
    """
    offsets = _offsets(last_event_id or after, 2 * len(run))
    watched = [
        _Watched(one, name, state.workplace.path_of(one) / name, offsets.pop(0))
        for one in run
        for name in _FILES
    ]
    page = _Page(state, watched)
    state.streams.add(page)
    return StreamingResponse(_send(page), media_type="text/event-stream")


def _offsets(place: str, n: int) -> list[int]:
    """Read the bytes that a page knows; what is not such a list counts as nothing known."""
    parts = place.split(".") if place else []
    known = [int(one) if one.isdecimal() and len(one) < 19 else 0 for one in parts]
    return known if len(known) == n else [0] * n


async def _send(page: _Page) -> AsyncGenerator[str]:
    """Send events until the page is closed or the server ends."""
    waited = _SECONDS_BETWEEN_SIGNS
    try:
        while not page.state.is_ending():
            events = await run_in_threadpool(page.events)
            for event in events:
                yield event
            if not events and waited >= _SECONDS_BETWEEN_SIGNS:
                yield ": still here\n\n"
            waited = 0.0 if events or waited >= _SECONDS_BETWEEN_SIGNS else waited
            await asyncio.sleep(_SECONDS_BETWEEN_LOOKS)
            waited += _SECONDS_BETWEEN_LOOKS
    finally:
        page.state.streams.remove(page)
