"""The queue: which job is next, stopping, going on, deleting."""

import json
import os
import shutil
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from threading import RLock

from unmask.files import read_json, write_atomically
from unmask.web.jobs.record import EXIT_FILE, STOP_FILE, JobRecord, new_job, read_job
from unmask.web.runs.state import RunState

_ORDER_FILE = "order.json"


class JobQueue:
    """The jobs of a folder, and the order of those that wait."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = RLock()
        folder.mkdir(parents=True, exist_ok=True)

    def add(self, arguments: Sequence[str], run: str | None) -> JobRecord:
        """Queue a command line.

        Raises:
            FileExistsError: a job that is not over writes the same folder.
        """
        with self._lock:
            if run is not None and any(one.run == run and not one.is_over for one in self.jobs()):
                raise FileExistsError(f"{run}: a job that waits or runs writes this folder")
            job = new_job(self.folder, arguments, run)
            self._save_order([*self._order(), job.id])
            return job

    def jobs(self) -> list[JobRecord]:
        """Return all jobs: those that run, those that wait in their order, the rest newest first.

        A job whose record is damaged or was removed meanwhile is left out.
        """
        found: list[JobRecord] = []
        for folder in sorted(self.folder.iterdir(), reverse=True):
            if folder.is_dir():
                with suppress(OSError, ValueError):
                    found.append(read_job(folder))
        place = {name: i for i, name in enumerate(self._order())}
        waiting = [one for one in reversed(found) if one.state == "waiting"]
        waiting.sort(key=lambda one: place.get(one.id, len(place)))
        active = [one for one in found if not one.is_over and one.state != "waiting"]
        return [*active, *waiting, *(one for one in found if one.is_over)]

    def get(self, job_id: str) -> JobRecord:
        """Return a job.

        Raises:
            FileNotFoundError: there is no such job.
        """
        return read_job(self.path(job_id))

    def path(self, job_id: str) -> Path:
        """Return the folder of a job.

        Raises:
            FileNotFoundError: there is no such job.
        """
        is_name = all(c.isascii() and (c.isalnum() or c == "-") for c in job_id)
        if not 0 < len(job_id) < 100 or not is_name or not (self.folder / job_id).is_dir():
            raise FileNotFoundError(f"there is no job {job_id[:60]!r}")
        return self.folder / job_id

    def stop(self, job_id: str) -> JobRecord:
        """Ask a job to stop: it finishes its step and saves; one that waits is taken out.

        A job that was asked before is interrupted at once.

        Raises:
            FileNotFoundError: there is no such job.
            ValueError: it has ended.
        """
        with self._lock:
            job = self.get(job_id)
            if job.is_over:
                raise ValueError(f"the job has ended already ({job.state})")
            (self.path(job_id) / STOP_FILE).touch()
            if job.pid is not None:
                with suppress(ProcessLookupError):
                    os.kill(job.pid, signal.SIGINT)
            return self.get(job_id)

    def move(self, job_id: str, place: int) -> None:
        """Move a waiting job to a place among those that wait, 0 the next to start.

        Raises:
            FileNotFoundError: there is no such job.
            ValueError: it does not wait.
        """
        with self._lock:
            if self.get(job_id).state != "waiting":
                raise ValueError("only jobs that wait can be moved")
            order = [one.id for one in self.jobs() if one.state == "waiting" and one.id != job_id]
            order.insert(max(place, 0), job_id)
            self._save_order(order)

    def delete(self, job_id: str) -> None:
        """Remove a job that does not run; the folder that it wrote stays.

        Raises:
            FileNotFoundError: there is no such job.
            ValueError: it runs.
        """
        with self._lock:
            job = self.get(job_id)
            if not job.is_over and job.state != "waiting":
                raise ValueError("a job that runs cannot be deleted; stop it first")
            shutil.rmtree(self.path(job_id))

    def end_unstarted(self, job_id: str, line: str) -> None:
        """Write down that a job could not be started."""
        (self.path(job_id) / "output.txt").write_text(line + "\n", "utf-8")
        self.end_killed(job_id, 1)

    def end_killed(self, job_id: str, status: int) -> None:
        """Write down the exit status of a job that could not; of a removed job, nothing."""
        with suppress(FileNotFoundError):
            path = self.path(job_id) / EXIT_FILE
            if not path.is_file():
                write_atomically(path, json.dumps({"status": status, "ended": time.time()}))

    def _order(self) -> list[str]:
        with suppress(OSError, ValueError):
            found = read_json(self.folder / _ORDER_FILE)
            if isinstance(found, list):
                return [str(one) for one in found]
        return []

    def _save_order(self, order: Sequence[str]) -> None:
        known = [one for one in order if (self.folder / one).is_dir()]
        write_atomically(self.folder / _ORDER_FILE, json.dumps(known))


def run_states(jobs: Sequence[JobRecord]) -> dict[str, RunState]:
    """Return what the jobs tell of their runs: which are queued, and whose last job failed."""
    states: dict[str, RunState] = {}
    for job in sorted(jobs, key=lambda one: one.created):
        if job.run is None:
            continue
        states.pop(job.run, None)
        if job.state in ("waiting", "starting"):
            states[job.run] = "queued"
        elif job.state == "failed":
            states[job.run] = "crashed"
    return states
