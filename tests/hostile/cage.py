"""A cage: readers run on hostile files in processes of their own, whose time and memory are told.

One process imports the readers, once; each file is read by a fork of it, so that what kills or
hangs the reader, or fills the memory, ends a fork and is an outcome like others. A fork may map
`MAPPED` bytes more than it begins with: beyond that the system refuses, so that no file can harm
the machine that tests it. What a file may take is decided by the test, from `Outcome.megabytes`.
"""

import json
import os
import resource
import select
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

HERE = Path(__file__).parent
MAPPED = 3 * 2**30
Kind = Literal["read", "refused", "raised", "killed", "hung"]


@dataclass(frozen=True)
class Outcome:
    """What came of a file."""

    kind: Kind
    """`refused`: with the errors that are for it; `raised`: with others, which are bugs."""
    message: str = ""
    """Of the error; what was read, otherwise."""
    seconds: float = 0
    """Of processors, which do not depend on what else a machine does."""
    megabytes: float = 0
    """Resident memory at its most, beyond that of the process before."""


class Cage:
    """The process that imports the readers; close it."""

    def __init__(self) -> None:
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join((str(HERE), str(HERE.parents[1])))
        }
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def read(self, reader: str, path: Path, seconds: float = 30) -> Outcome:
        """Read a file by a reader of `readers`, for at most so many seconds."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([reader, str(path), seconds]) + "\n")
        self._process.stdin.flush()
        return Outcome(**json.loads(self._process.stdout.readline()))

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


def _status(name: str) -> int:
    """Return a number of bytes that the system tells of this process."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return 1024 * int(next(line for line in lines if line.startswith(name)).split()[1])


def _read(reader: str, path: str) -> Outcome:
    from readers import BY_READER

    start = time.process_time()
    try:
        kind, message = "read", type(BY_READER[reader][1](Path(path))).__name__
    except (ValueError, OSError) as error:
        kind, message = "refused", str(error)
    except BaseException as error:
        kind, message = "raised", f"{type(error).__name__}: {error!s:.500}"
    return Outcome(kind, message, time.process_time() - start)


def _fork(reader: str, path: str, seconds: float) -> Outcome:
    before, (receive, send) = _status("VmRSS"), os.pipe()
    if (child := os.fork()) == 0:
        os.close(receive)
        most = _status("VmSize") + MAPPED
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        os.write(send, json.dumps(asdict(_read(reader, path))).encode())
        os._exit(0)
    os.close(send)
    ready, _, _ = select.select([receive], [], [], seconds)
    if not ready:
        os.kill(child, signal.SIGKILL)
    data = b""
    while part := os.read(receive, 2**16):
        data += part
    os.close(receive)
    _, status, used = os.wait4(child, 0)
    megabytes = max(0.0, (used.ru_maxrss * 1024 - before) / 2**20)
    if not ready:
        return Outcome("hung", "", seconds, megabytes)
    if not data:
        return Outcome("killed", f"status {os.waitstatus_to_exitcode(status)}", 0, megabytes)
    return Outcome(**(json.loads(data) | {"megabytes": megabytes}))


def _serve() -> None:
    """Answer what comes at standard input; what the readers print goes to the other stream."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    import readers

    assert readers.BY_READER  # imported before the first fork

    for line in sys.stdin:
        print(json.dumps(asdict(_fork(*json.loads(line)))), file=answers, flush=True)


if __name__ == "__main__":
    _serve()
