"""The worker seen from the server: started when it is needed, restarted when it died.

The protocol is described in `unmask.web.worker.__main__`. Nothing here imports torch.
"""

import json
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

IDLE_SECONDS = 600.0
CALL_SECONDS = 300.0
BUSY_SECONDS = 60.0
"""How long a call waits for the one before it."""
DYING_SECONDS = 0.25
"""A process that dies so soon after a call was sent was dying before: another one is asked."""
CANCEL_SECONDS = 5.0
"""How long a cancelled stream has to end; then its process is ended."""

WorkerErrorKind = Literal["mistake", "bug", "timeout", "lost", "busy"]


class WorkerError(Exception):
    """Why a call has no answer, in one line."""

    def __init__(self, line: str, kind: WorkerErrorKind, field: str | None = None) -> None:
        super().__init__(line)
        self.line = line
        self.kind: WorkerErrorKind = kind
        """mistake: of the arguments. bug: of the program. timeout, lost: the process was ended, or
        died; the next call starts another. busy: an earlier call has not ended."""
        self.field = field
        """The argument that is wrong, where that is known."""

    @property
    def status(self) -> int:
        """The status of HTTP that says the same."""
        return {"mistake": 400, "bug": 500, "timeout": 503, "lost": 503, "busy": 503}[self.kind]


@dataclass
class _Process:
    """A process of the worker, and what it has answered."""

    popen: subprocess.Popen[str]
    answers: queue.Queue[dict[str, Any] | None] = field(
        default_factory=queue.Queue[dict[str, Any] | None]
    )
    """None: it has closed its pipe."""
    reader: threading.Thread | None = None

    def start_reading(self) -> None:
        """Keep each answer, in a thread, until there are no more."""
        self.reader = threading.Thread(target=self._read_answers, daemon=True)
        self.reader.start()

    @property
    def is_alive(self) -> bool:
        """Whether it runs, and its pipe is open; a process that dies closes it first."""
        is_read = self.reader is not None and self.reader.is_alive()
        return is_read and self.popen.poll() is None

    def send(self, request: Mapping[str, Any]) -> None:
        """Send a request; a process that died is found when its answer is waited for."""
        assert self.popen.stdin is not None
        with suppress(OSError, ValueError):
            self.popen.stdin.write(json.dumps(request) + "\n")
            self.popen.stdin.flush()

    def _read_answers(self) -> None:
        assert self.popen.stdout is not None
        with suppress(ValueError):  # a line cut short by the end of the process
            for line in self.popen.stdout:
                self.answers.put(json.loads(line))
        self.answers.put(None)

    def end(self) -> None:
        """End it: by closing its pipe, which it cannot overlook."""
        assert self.popen.stdin is not None
        with suppress(OSError):
            self.popen.stdin.close()
        try:
            self.popen.wait(2)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            self.popen.wait()
        assert self.reader is not None
        assert self.popen.stdout is not None
        self.reader.join()
        self.popen.stdout.close()


@dataclass(kw_only=True)
class Worker:
    """A process that answers calls, one at a time, for any number of threads.

    `Worker().call("fill", {"model": "unmask-mini-en", "text": "A [MASK]."})`
    """

    idle_seconds: int | float = IDLE_SECONDS
    """The process ends so long after its last answer."""
    call_seconds: int | float = CALL_SECONDS
    """A call that has not answered after so long is ended, with the process."""
    busy_seconds: int | float = BUSY_SECONDS
    """A call waits so long for an earlier one."""
    log: Path | None = None
    """File of what the process prints. None: the standard error of this one."""
    command: tuple[str, ...] = (sys.executable, "-m", "unmask.web.worker")
    _turn: threading.Lock = field(default_factory=threading.Lock)
    """Held during a call, also between the values of a stream."""
    _process: _Process | None = None
    _timer: threading.Timer | None = None
    _n_calls: int = 0
    _is_closed: bool = False

    @property
    def pid(self) -> int | None:
        """The process, where there is one."""
        process = self._process
        return process.popen.pid if process is not None and process.is_alive else None

    @property
    def is_busy(self) -> bool:
        """Whether a call is being answered."""
        return self._turn.locked()

    def call(
        self, name: str, arguments: Mapping[str, Any], *, seconds: int | float | None = None
    ) -> Any:
        """Return the answer of a call; of a stream its last value.

        Raises:
            WorkerError: there is none.
        """
        values = [*self.stream(name, arguments, seconds=seconds)]
        return values[-1] if values else None

    def stream(
        self, name: str, arguments: Mapping[str, Any], *, seconds: int | float | None = None
    ) -> Generator[Any]:
        """Yield the answers of a call as they come; to close the generator cancels the call.

        Args:
            name: of the call; see `unmask.web.worker.table`.
            arguments: plain data.
            seconds: how long it may take. None: `call_seconds`.

        Raises:
            WorkerError: something went wrong, at the first value or later.
        """
        limit = self.call_seconds if seconds is None else seconds
        with self._my_turn():
            self._n_calls += 1
            key, deadline = self._n_calls, time.monotonic() + limit
            told = f"{name}: {limit:g} seconds"
            request = {"id": key, "call": name, "arguments": dict(arguments)}
            process, answer = self._first_answer(request, deadline, told)
            has_ended = False
            try:
                while True:
                    has_ended = "value" not in answer
                    if "error" in answer:
                        kind = "bug" if answer["is_bug"] else "mistake"
                        raise WorkerError(answer["error"], kind, answer["field"])
                    if has_ended:
                        return
                    yield answer["value"]
                    answer = self._next_answer(process, key, deadline, told)
            finally:
                if not has_ended and self._process is process:
                    self._cancel(process, key)

    def close(self) -> None:
        """End the process, and whatever it is answering; no call is answered afterwards."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._end_process()

    @contextmanager
    def _my_turn(self) -> Generator[None]:
        """Wait for the call before; afterwards count idle time from here."""
        if not self._turn.acquire(timeout=self.busy_seconds):
            raise WorkerError(
                f"the worker is busy with an earlier call for more than {self.busy_seconds:g} "
                "seconds; try again",
                "busy",
            )
        try:
            if self._timer is not None:
                self._timer.cancel()
            yield
        finally:
            if not self._is_closed:
                self._timer = threading.Timer(self.idle_seconds, self._end_if_idle)
                self._timer.daemon = True
                self._timer.start()
            self._turn.release()

    def _first_answer(
        self, request: Mapping[str, Any], deadline: float, limit: str
    ) -> tuple[_Process, dict[str, Any]]:
        """Send a request and wait for its first answer; where the process was dying, of another."""
        sent = time.monotonic()
        process = self._running_process()
        process.send(request)
        try:
            return process, self._next_answer(process, request["id"], deadline, limit)
        except WorkerError as error:
            if error.kind != "lost" or time.monotonic() - sent > DYING_SECONDS:
                raise
        process = self._running_process()
        process.send(request)
        return process, self._next_answer(process, request["id"], deadline, limit)

    def _running_process(self) -> _Process:
        """Return the process; start it where there is none."""
        if self._is_closed:
            raise WorkerError("the worker is closed", "lost")
        if self._process is not None and self._process.is_alive:
            return self._process
        self._end_process()
        log = None if self.log is None else self.log.open("ab")
        try:
            popen = subprocess.Popen(
                self.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                encoding="utf-8",
                start_new_session=True,  # Ctrl-C is the server's to handle
            )
        except OSError as error:
            raise WorkerError(f"the worker does not start: {error}", "lost") from None
        finally:
            if log is not None:
                log.close()
        self._process = process = _Process(popen)
        process.start_reading()
        return process

    def _next_answer(
        self, process: _Process, key: int, deadline: float, limit: str
    ) -> dict[str, Any]:
        """Wait for the next answer to a call."""
        while True:
            try:
                answer = process.answers.get(timeout=max(deadline - time.monotonic(), 0.001))
            except queue.Empty:
                self._end_process()
                raise WorkerError(f"{limit} are over, and the call was ended", "timeout") from None
            if answer is None:
                self._end_process()
                raise WorkerError(_death(process.popen.returncode), "lost")
            if answer["id"] == key:
                return answer

    def _cancel(self, process: _Process, key: int) -> None:
        """Cancel a stream, and read the rest of it; the process is ended if it goes on."""
        process.send({"id": key, "cancel": True})
        deadline = time.monotonic() + CANCEL_SECONDS
        with suppress(WorkerError):
            while "value" in self._next_answer(process, key, deadline, ""):
                pass

    def _end_if_idle(self) -> None:
        if self._turn.acquire(blocking=False):
            try:
                self._end_process()
            finally:
                self._turn.release()

    def _end_process(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.end()


def _death(status: int | None) -> str:
    """Say how a process died."""
    if status is not None and status < 0:
        name = signal.Signals(-status).name
        memory = ", perhaps for want of memory" if name == "SIGKILL" else ""
        return f"the worker was ended by {name}{memory}; the next call starts another"
    return f"the worker ended with exit status {status}; the next call starts another"
