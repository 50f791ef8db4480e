"""Starting what waits, when cores and memory are free."""

import logging
import os
import signal
import sys
import threading
from dataclasses import dataclass

from unmask.machine_memory import available_bytes
from unmask.web.jobs.memory import resident_bytes
from unmask.web.jobs.queue import JobQueue
from unmask.web.jobs.record import OUTPUT_FILE, STARTED_FILE, JobRecord

_logger = logging.getLogger(__name__)
_SECONDS_BETWEEN_LOOKS = 0.5
_GIB = 1 << 30
_RESERVE_BYTES = 1 * _GIB
"""Memory that stays free for everything else."""


@dataclass(frozen=True, kw_only=True)
class JobLimits:
    """How much jobs may take together."""

    jobs: int
    """Number that runs at once."""
    cores: int
    memory_bytes: int

    @classmethod
    def of_machine(cls, jobs: int, cores: int | None, memory: float | None) -> "JobLimits":
        """Derive the limits of this machine.

        Raises:
            ValueError: a limit is not possible.
        """
        here = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        all_cores = here or 1
        cores = all_cores if cores is None else cores
        if not 1 <= cores <= all_cores:
            raise ValueError(f"cores must be from 1 to {all_cores}, those of this machine: {cores}")
        if not 1 <= jobs <= cores:
            raise ValueError(f"jobs must be from 1 to {cores}, the number of cores: {jobs}")
        if memory is not None and not memory > 0:
            raise ValueError(f"memory must be positive, in GiB: {memory}")
        known = available_bytes()
        free = (known - _RESERVE_BYTES) if known is not None else (1 << 62)
        return cls(
            jobs=jobs,
            cores=cores,
            memory_bytes=max(free, _GIB) if memory is None else int(memory * _GIB),
        )

    @property
    def threads(self) -> int:
        """Number of threads of each job."""
        return max(self.cores // self.jobs, 1)


class JobScheduler:
    """A thread that starts waiting jobs; those that run need neither it nor the server."""

    def __init__(self, queue: JobQueue, limits: JobLimits) -> None:
        self.limits = limits
        self._queue = queue
        self._children: dict[int, str] = {}
        self._stop = threading.Event()
        self._look = threading.Event()
        self._thread = threading.Thread(target=self._work, name="jobs", daemon=True)

    def start(self) -> None:
        """Begin to start jobs."""
        self._thread.start()

    def close(self) -> None:
        """Start no more jobs; those that run go on."""
        self._stop.set()
        self._look.set()
        if self._thread.is_alive():
            self._thread.join(5)

    def look_now(self) -> None:
        """Look at the queue without waiting."""
        self._look.set()

    def _work(self) -> None:
        while not self._stop.is_set():
            try:
                self.start_what_fits()
            except OSError as error:  # a full disk: try again
                _logger.warning("jobs cannot be started now: %s", error)
            self._look.wait(_SECONDS_BETWEEN_LOOKS)
            self._look.clear()

    def start_what_fits(self) -> None:
        """Start the jobs that are next, as far as there is room."""
        for pid, job_id in [*self._children.items()]:
            self._reap(pid, job_id)
        jobs = self._queue.jobs()
        active = [one for one in jobs if not one.is_over and one.state != "waiting"]
        for job in jobs:
            if job.state == "waiting" and self._has_room(active):
                self._start(job)
                active.append(job)

    def _has_room(self, active: list[JobRecord]) -> bool:
        if not active:
            return True
        if len(active) >= self.limits.jobs:
            return False
        if any(one.state != "running" for one in active):  # its memory is not known yet
            return False
        taken = sum(resident_bytes(one.pid) for one in active if one.pid is not None)
        # A job like those that run must fit.
        return taken * (len(active) + 1) / len(active) <= self.limits.memory_bytes

    def _start(self, job: JobRecord) -> None:
        """Start a process without a handle: it is not this one's to wait for."""
        folder = self._queue.path(job.id)
        (folder / STARTED_FILE).touch()
        environment = os.environ | {
            "OMP_NUM_THREADS": str(self.limits.threads),
            "PYTHONUNBUFFERED": "1",
        }
        output = str(folder / OUTPUT_FILE)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        try:
            pid = os.posix_spawn(
                sys.executable,
                [sys.executable, "-m", "unmask.cli.job", str(folder)],
                environment,
                file_actions=[
                    (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_OPEN, 1, output, flags, 0o600),
                    (os.POSIX_SPAWN_DUP2, 1, 2),
                ],
                setsigdef=[signal.SIGINT],  # by it jobs are stopped; a service may ignore it
            )
        except OSError as error:
            self._queue.end_unstarted(job.id, f"the job could not be started: {error}")
            return
        self._children[pid] = job.id

    def _reap(self, pid: int, job_id: str) -> None:
        """Forget a process that has ended; by which signal, it could not write itself."""
        try:
            ended, status = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            ended, status = pid, 0
        if ended:
            del self._children[pid]
            if os.WIFSIGNALED(status):
                self._queue.end_killed(job_id, 128 + os.WTERMSIG(status))
