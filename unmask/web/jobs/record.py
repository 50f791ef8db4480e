"""A job on disk: what was asked, how it ended, what it wrote.

A job is a folder of ROOT/.unmask/jobs: `job.json` is written when it is queued and frozen from then
on; `started` when it is started; `exit.json` by the job itself when it ends; `output.txt` is what
it would have written to a terminal. While it runs it holds a lock on `.lock`, so that nothing but
the folder is needed to know how it stands, whoever started it and whatever became of the server.
"""

import json
import secrets
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from unmask.files import lock_holder, read_json_object, write_atomically

JobState = Literal["waiting", "starting", "running", "stopping", "done", "stopped", "failed"]
"""How a job stands; failed: it ended with an error, or was killed."""

JOB_FILE, EXIT_FILE, OUTPUT_FILE = "job.json", "exit.json", "output.txt"
STARTED_FILE, STOP_FILE = "started", "stop"
_STARTING_SECONDS = 20.0
_STOPPED = frozenset((128 + 1, 128 + 2, 128 + 15))
_LAST_BYTES, _LAST_LINES = 8192, 12


@dataclass(frozen=True, kw_only=True)
class JobRecord:
    """What was asked of a job, and how it stands."""

    id: str
    arguments: tuple[str, ...]
    """Words of the command line after `unmask`."""
    run: str | None
    """Id of the folder that the job writes."""
    created: float
    """Time at which it was queued, in seconds since 1970."""
    state: JobState
    status: int | None = None
    """Exit status."""
    pid: int | None = None
    last_lines: tuple[str, ...] = ()
    """What it said last, where it failed."""

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return self.state in ("done", "stopped", "failed")

    @property
    def ending(self) -> str:
        """How it failed, in a sentence; empty where it did not fail."""
        if self.state != "failed":
            return ""
        if self.status is None:
            return "It was killed, or this machine was switched off"
        if self.status > 128:
            number = self.status - 128
            memory = "; perhaps memory ran out" if number == signal.SIGKILL else ""
            return f"It was killed by signal {number} ({signal.strsignal(number)}){memory}"
        return "It was refused" if self.status == 2 else "It ended with an error"


def new_job(jobs: Path, arguments: Sequence[str], run: str | None) -> JobRecord:
    """Write the folder of a job, which waits from then on."""
    created = time.time()
    name = f"{int(created * 1000):014d}-{secrets.token_hex(3)}"
    folder = jobs / name
    folder.mkdir(parents=True)
    facts = {"arguments": list(arguments), "run": run, "created": created}
    write_atomically(folder / JOB_FILE, json.dumps(facts, ensure_ascii=False, indent=1) + "\n")
    return read_job(folder)


def read_job(folder: Path) -> JobRecord:
    """Read how a job stands.

    Raises:
        OSError: there is no such job.
        ValueError: its record is damaged.
    """
    facts = read_json_object(folder / JOB_FILE)
    arguments, run, created = facts.get("arguments"), facts.get("run"), facts.get("created")
    if not isinstance(arguments, list) or not isinstance(created, int | float):
        raise ValueError(f"{folder / JOB_FILE} is damaged: arguments and created must be there")
    state, status, pid = _state(folder)
    return JobRecord(
        id=folder.name, arguments=tuple(str(word) for word in arguments), created=float(created),
        run=run if isinstance(run, str) else None, state=state, status=status, pid=pid,
        last_lines=last_lines(folder / OUTPUT_FILE) if state == "failed" else (),
    )  # fmt: skip


def _state(folder: Path) -> tuple[JobState, int | None, int | None]:
    """Return the state of a job, its exit status, and its process."""
    if not (folder / STARTED_FILE).is_file():
        return ("stopped" if (folder / STOP_FILE).is_file() else "waiting"), None, None
    pid = lock_holder(folder)
    if pid is not None:
        return ("stopping" if (folder / STOP_FILE).is_file() else "running"), None, pid
    if (folder / EXIT_FILE).is_file():
        status = read_json_object(folder / EXIT_FILE).get("status")
        if status == 0:
            return "done", 0, None
        return ("stopped" if status in _STOPPED else "failed"), status, None
    age = time.time() - (folder / STARTED_FILE).stat().st_mtime
    return ("starting" if 0 <= age < _STARTING_SECONDS else "failed"), None, None


def last_lines(path: Path) -> tuple[str, ...]:
    """Return the last lines of an output; of a line that was overwritten, what stands last."""
    if not path.is_file():
        return ()
    with path.open("rb") as file:
        file.seek(max(path.stat().st_size - _LAST_BYTES, 0))
        text = file.read().decode("utf-8", errors="replace")
    lines = [line.rstrip("\r").rpartition("\r")[2].rstrip() for line in text.split("\n")]
    return tuple(line for line in lines if line)[-_LAST_LINES:]
