"""Work on chunks of text by other processes, in order; the result does not depend on their number.

The processes are new interpreters that talk through pipes, neither forked nor spawned by
`multiprocessing`: a fork would copy the locks of other libraries' threads in whatever state they
are, and a spawn would run the user's script a second time where it lacks an `if __name__ ==
"__main__"`. A worker ends by itself when its pipe closes, so none is left over when the process
that started it is killed.
"""

import importlib
import logging
import os
import signal
import struct
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from queue import Queue
from typing import IO, TypeVar

Work = Callable[[Sequence[bytes]], list[bytes]]
"""What a worker does: parts of bytes in, parts out."""
Begin = Callable[[Sequence[bytes]], Callable[[], list[bytes]]]
"""Begins work on a chunk, and returns what waits for its answer."""
ChunkT = TypeVar("ChunkT")

_MAX_WORKER_LOSSES = 3
"""So many processes may be lost over one chunk of text; then something is wrong."""

_log = logging.getLogger(__name__)

_WORKER_SCRIPT = """\
import signal, sys
for name in ("SIGINT", "SIGTERM", "SIGHUP"):  # they are for the process that started this one
    signal.signal(getattr(signal, name), signal.SIG_IGN)
sys.path[:] = sys.argv[3:]
from unmask.text.processes import run_worker
run_worker(sys.argv[1], sys.argv[2])
"""


def map_in_order(
    chunks: Iterable[ChunkT], begin: Callable[[ChunkT], Callable[[], list[bytes]]], n_workers: int
) -> Generator[tuple[ChunkT, list[bytes]]]:
    """Yield each chunk with its answer, in order; at most 2 * `n_workers` are in memory."""
    pending = deque[tuple[ChunkT, Callable[[], list[bytes]]]]()
    for chunk in chunks:
        pending.append((chunk, begin(chunk)))
        if len(pending) == 2 * n_workers:
            first, answer = pending.popleft()
            yield first, answer()
    for chunk, answer in pending:
        yield chunk, answer()


def run_worker(target: str, argument: str) -> None:
    """Be a worker: answer chunks from standard input until it closes."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what anything else prints must not come between the answers
    work = _make_work(target, argument)
    with suppress(EOFError):
        while True:
            _send_parts(answers, work(_receive_parts(sys.stdin.buffer)))


def _make_work(target: str, argument: str) -> Work:
    module, _, name = target.partition(":")
    return getattr(importlib.import_module(module), name)(argument)


@contextmanager
def worker_pool(target: str, argument: str, n_workers: int) -> Generator[Begin]:
    """Give a function that begins work on a chunk, and gives one that waits for the answer.

    Args:
        target: `module:function`, of this package; the function makes the work of `argument`.
        argument: what the function is given.
        n_workers: number of processes; 1: this one does the work.

    Raises:
        ChildProcessError: processes end again and again before their work is done.
    """
    if n_workers == 1:
        work = _make_work(target, argument)
        yield lambda parts: partial(work, parts)
        return
    processes: list[subprocess.Popen[bytes]] = []
    idle = Queue[subprocess.Popen[bytes]]()

    def ask(parts: Sequence[bytes]) -> list[bytes]:
        process = idle.get()
        try:
            for n in range(_MAX_WORKER_LOSSES):
                try:
                    return _request(process, parts)
                except ChildProcessError:
                    if closing or n == _MAX_WORKER_LOSSES - 1:
                        raise
                    _log.warning("a working process was lost; another does its work")
                    process = _start_worker(target, argument)
                    processes.append(process)
            raise AssertionError
        finally:
            idle.put(process)

    def begin(parts: Sequence[bytes]) -> Callable[[], list[bytes]]:
        if idle.empty() and len(processes) < n_workers:  # a small corpus does not start all of them
            processes.append(_start_worker(target, argument))
            idle.put(processes[-1])
        return threads.submit(ask, parts).result

    closing: list[bool] = []
    threads = ThreadPoolExecutor(n_workers)  # a thread waits for its process's answer
    try:
        yield begin
    finally:
        closing.append(True)
        threads.shutdown(wait=False, cancel_futures=True)
        for process in processes:
            process.kill()
        threads.shutdown(wait=True)
        for process in processes:
            process.kill()  # one may have been started in between
            with suppress(BrokenPipeError), process:  # closes its pipes, waits for its end
                pass


def _start_worker(target: str, argument: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", _WORKER_SCRIPT, target, argument, *sys.path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"TOKENIZERS_PARALLELISM": "false"},  # a worker is one thread
    )


def _request(process: subprocess.Popen[bytes], parts: Sequence[bytes]) -> list[bytes]:
    assert process.stdin
    assert process.stdout
    try:
        _send_parts(process.stdin, parts)
        return _receive_parts(process.stdout)
    except (BrokenPipeError, EOFError) as error:
        status = process.wait()
        raise ChildProcessError(
            f"a working process ended with status {status} before its work was done"
            + (" (killed: was the memory enough?)" if status == -signal.SIGKILL else "")
        ) from error


def _send_parts(stream: IO[bytes], parts: Sequence[bytes]) -> None:
    """Write how many parts there are, how long each is, and the parts."""
    stream.write(struct.pack(f"<Q{len(parts)}Q", len(parts), *map(len, parts)))
    for part in parts:
        stream.write(part)
    stream.flush()


def _receive_parts(stream: IO[bytes]) -> list[bytes]:
    """Read what `_send_parts` wrote; EOFError where the stream has ended."""
    (n,) = struct.unpack("<Q", _read_exactly(stream, 8))
    return [
        _read_exactly(stream, size)
        for size in struct.unpack(f"<{n}Q", _read_exactly(stream, 8 * n))
    ]


def _read_exactly(stream: IO[bytes], n: int) -> bytes:
    data = stream.read(n)
    if len(data) < n:
        raise EOFError
    return data
