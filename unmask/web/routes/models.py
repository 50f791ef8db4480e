"""What the worker does with models: fill, generate, predict, embed, hide, plan, read, export."""

import json
from collections.abc import AsyncGenerator, Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request
from fastapi.responses import StreamingResponse
from starlette.concurrency import iterate_in_threadpool, run_in_threadpool

from unmask.web.commands.arguments import FieldError
from unmask.web.jobs.submit import leads_out
from unmask.web.routes.shared import JsonObject, Workbench
from unmask.web.state import WorkbenchState
from unmask.web.worker.client import WorkerError
from unmask.web.worker.table import CALLS
from unmask.web.workplace import Workplace

router = APIRouter(tags=["models"])
_PATH_ARGUMENTS = frozenset(("model", "files", "file", "data", "tokenizer", "init_from"))
_NEW_PATH = "target"
"""Of what a call writes."""
CallName = Annotated[str, Path(max_length=40)]


@router.post("/call/{name}")
async def call(name: CallName, arguments: JsonObject, state: Workbench) -> Any:
    """Let the worker do something with a model or a file; see `unmask.web.worker.table`."""
    given = checked_arguments(name, arguments, state.workplace)
    return await run_in_threadpool(state.worker_of(name).call, name, given)


@router.post("/call-stream/{name}", response_class=StreamingResponse)
async def call_stream(
    name: CallName, arguments: JsonObject, request: Request, state: Workbench
) -> StreamingResponse:
    """As `call`, for what comes piece by piece: lines of JSON. Closing the request cancels it."""
    given = checked_arguments(name, arguments, state.workplace)
    lines = _lines(state, name, given, request)
    return StreamingResponse(lines, media_type="application/x-ndjson")


async def _lines(
    state: WorkbenchState, name: str, arguments: Mapping[str, Any], request: Request
) -> AsyncGenerator[str]:
    values = state.worker_of(name).stream(name, arguments)
    try:
        async for value in iterate_in_threadpool(values):
            if await request.is_disconnected() or state.is_ending():
                break
            yield json.dumps(value) + "\n"
    except WorkerError as error:
        line = state.workplace.without_root(error.line)
        yield json.dumps({"error": line, "field": error.field}) + "\n"
    finally:
        await run_in_threadpool(values.close)


def checked_arguments(name: str, arguments: JsonObject, workplace: Workplace) -> JsonObject:
    """Return the arguments of a call with paths in place of names below the folder of the runs.

    Raises:
        FileNotFoundError: there is no such call.
        FieldError: a name leads out of the folder.
    """
    if name not in CALLS:
        raise FileNotFoundError(f"there is no call {name!r}")
    return {key: _with_path(workplace, key, value) for key, value in arguments.items()}


def _with_path(workplace: Workplace, key: str, value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _with_path(workplace, name, one) for name, one in value.items()}
    if key not in _PATH_ARGUMENTS and key != _NEW_PATH:
        return value
    if isinstance(value, list):
        return [_with_path(workplace, key, one) for one in value]
    if not isinstance(value, str):
        return value
    if leads_out(workplace.root, value):
        raise FieldError(key, f"{key}: {value[:100]!r} is not below the folder of the runs")
    path = workplace.root / value
    return str(path) if value and (key == _NEW_PATH or path.exists()) else value
