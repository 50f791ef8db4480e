"""What the routes share: folder, queue, runs, the worker, access and limits."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from types import TracebackType

from unmask.web.jobs.queue import JobQueue, run_states
from unmask.web.jobs.scheduler import JobLimits, JobScheduler
from unmask.web.options import ServeOptions
from unmask.web.runs.edit import purge_trash
from unmask.web.runs.index import RunIndex
from unmask.web.security.access import Access
from unmask.web.security.guard import KnownHosts
from unmask.web.security.limits import StreamLimit, UploadLimits
from unmask.web.worker.client import Worker
from unmask.web.worker.table import SLOW_CALLS
from unmask.web.workplace import Workplace

_GIB = 1 << 30


@dataclass(kw_only=True)
class WorkbenchState:
    """An open workbench."""

    workplace: Workplace
    queue: JobQueue
    scheduler: JobScheduler
    runs: RunIndex
    worker: Worker
    slow_worker: Worker
    """For calls that may take minutes, so that the others do not wait for them."""
    access: Access
    hosts: KnownHosts
    uploads: UploadLimits
    streams: StreamLimit = field(default_factory=StreamLimit)
    is_ending: Callable[[], bool] = bool
    """Whether the server was asked to end: open streams then do."""
    _first_look: Thread | None = field(default=None, repr=False)

    @classmethod
    def open(cls, options: ServeOptions, port: int, *, is_public: bool) -> "WorkbenchState":
        """Open the folder of the runs.

        Raises:
            ValueError: a limit is not possible.
            OSError: the folder cannot be made.
        """
        limits = JobLimits.of_machine(options.jobs, options.cores, options.memory)
        root = Path(options.root)
        root.mkdir(parents=True, exist_ok=True)
        workplace = Workplace(root.resolve())
        queue = JobQueue(workplace.jobs_folder)
        log = workplace.jobs_folder.parent / "worker.log"
        return cls(
            workplace=workplace,
            queue=queue,
            scheduler=JobScheduler(queue, limits),
            runs=RunIndex(workplace, lambda: run_states(queue.jobs())),
            worker=Worker(log=log),
            slow_worker=Worker(log=log),
            access=Access.of_folder(workplace.jobs_folder.parent, options.password),
            hosts=KnownHosts(port, is_public),
            uploads=UploadLimits(file_bytes=int(options.max_upload * _GIB)),
        )

    def worker_of(self, call: str) -> Worker:
        """Return the worker that answers a call."""
        return self.slow_worker if call in SLOW_CALLS else self.worker

    @property
    def is_public(self) -> bool:
        """Whether other machines are served."""
        return self.hosts.is_public

    def __enter__(self) -> "WorkbenchState":
        purge_trash(self.workplace)
        self.scheduler.start()
        self._first_look = Thread(target=self._read_runs, name="unmask-first-look", daemon=True)
        self._first_look.start()
        return self

    def _read_runs(self) -> None:
        """Read all runs before they are asked for: what that imports takes half a second."""
        with suppress(OSError, ValueError):  # told where a page asks for them
            self.runs.list()

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.scheduler.close()
        self.worker.close()
        self.slow_worker.close()
        if self._first_look is not None:
            self._first_look.join()
