"""The state of a run, read from its folder alone.

A job that trains holds a lock on RUN/.lock (`unmask.files.lock_run_folder`), which ends with its
process whatever kills it; so runs that were started in a terminal are seen as well.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from unmask.files import LOCK_FILE, lock_holder

RunState = Literal["running", "queued", "finished", "stopped", "crashed"]
RUN_STATES: tuple[RunState, ...] = ("running", "queued", "finished", "stopped", "crashed")
RUNNING_CELLS_FOLDER = ".running"
"""Of a study: a folder for each cell, locked by the process that makes it."""
_MAX_CELL_DEPTH = 3


def is_running(folder: Path) -> bool:
    """Return whether a process is training in a run folder, or makes a cell of a study in it."""
    if lock_holder(folder) is not None:
        return True
    return any(lock_holder(place) is not None for place in _cell_places(folder, _MAX_CELL_DEPTH))


def state_of(folder: Path, *, is_finished: bool, job_state: RunState | None = None) -> RunState:
    """Return the state of a run.

    Args:
        folder: the run folder.
        is_finished: whether its files say that it is finished.
        job_state: what is known of the last job in this folder: "queued" or "crashed".
    """
    if is_running(folder):
        return "running"
    if job_state == "queued" or (job_state == "crashed" and not is_finished):
        return job_state
    return "finished" if is_finished else "stopped"


def _cell_places(folder: Path, depth: int) -> Iterator[Path]:
    """Iterate over the locked places of a study's cells."""
    start = folder / RUNNING_CELLS_FOLDER if depth == _MAX_CELL_DEPTH else folder
    try:
        with os.scandir(start) as entries:
            inside = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:  # no study, or it was removed meanwhile
        return
    for name in inside:
        if (start / name / LOCK_FILE).is_file():
            yield start / name
        if depth > 1:
            yield from _cell_places(start / name, depth - 1)
