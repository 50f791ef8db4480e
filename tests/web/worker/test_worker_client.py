"""The worker: started on demand, cancelled, timed out, restarted, ended when idle or abandoned."""

import os
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from unmask.web.worker.client import Worker, WorkerError

CALLS = """
import os, sys, time, logging

def echo(arguments):
    print("noise on standard output")
    return arguments

def count(arguments):
    for i in range(arguments["n"]):
        time.sleep(arguments.get("seconds", 0))
        yield i

def mistake(arguments):
    raise ValueError("text must not be empty")

def missing(arguments):
    open(arguments["path"])

def bug(arguments):
    return {}["key"]

def die(arguments):
    os.kill(os.getpid(), 9)

def leave(arguments):
    os._exit(3)

def sleep(arguments):
    time.sleep(30)

def not_a_number(arguments):
    return {"loss": float("nan"), "deep": [float("inf"), 1.0]}

def warn(arguments):
    logging.getLogger("unmask.x").warning("one")
    logging.getLogger("unmask.x").warning("one")
    return {"value": 1}

def pid(arguments):
    return os.getpid()
"""
MAIN = """
import sys
from unmask.web.worker import table, __main__ as worker
table.CALLS = {name: f"x:{name}" for name in dir(__import__("some_calls"))}
def load(name):
    import some_calls
    return getattr(some_calls, name)
worker.load_call = load
worker.main()
"""


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    folder = tmp_path_factory.mktemp("calls")
    (folder / "some_calls.py").write_text(CALLS)
    (folder / "some_main.py").write_text(f"import sys; sys.path.insert(0, {str(folder)!r})\n{MAIN}")
    return (sys.executable, str(folder / "some_main.py"))


@pytest.fixture
def worker(command: tuple[str, ...], tmp_path: Path) -> Iterator[Worker]:
    worker = Worker(command=command, log=tmp_path / "log.txt", call_seconds=20)
    yield worker
    worker.close()


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{pid}/stat")
    return not status.is_file() or status.read_text().rpartition(")")[2].split()[0] != "Z"


def wait_until_dead(pid: int, seconds: float = 5) -> bool:
    end = time.monotonic() + seconds
    while is_alive(pid) and time.monotonic() < end:
        time.sleep(0.02)
    return not is_alive(pid)


def test_client_does_not_import_torch() -> None:
    code = "import sys, unmask.web.worker.client; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_calls_are_answered_whatever_is_printed(worker: Worker, tmp_path: Path) -> None:
    assert worker.pid is None  # nothing is started before a call
    text = "grüß\u2028 \N{GRINNING FACE}\n"
    assert worker.call("echo", {"text": text}) == {"text": text}
    assert worker.pid is not None
    assert "noise on standard output" in (tmp_path / "log.txt").read_text()


def test_mistakes_are_one_line_with_their_argument(worker: Worker, tmp_path: Path) -> None:
    with pytest.raises(WorkerError) as caught:
        worker.call("mistake", {"text": ""})
    error = caught.value
    assert (error.line, error.kind, error.field, error.status) == (
        "text must not be empty", "mistake", "text", 400,
    )  # fmt: skip
    with pytest.raises(WorkerError, match=r"^/no/such: no such file or directory$") as caught:
        worker.call("missing", {"path": "/no/such"})
    assert (caught.value.kind, caught.value.field) == ("mistake", None)


def test_bugs_leave_their_traceback_in_the_log(worker: Worker, tmp_path: Path) -> None:
    with pytest.raises(WorkerError, match=r"^internal error: KeyError: 'key'$") as caught:
        worker.call("bug", {})
    assert (caught.value.kind, caught.value.status) == ("bug", 500)
    log = (tmp_path / "log.txt").read_text()
    assert "Traceback" in log
    assert "some_calls.py" in log
    assert worker.call("echo", {}) == {}  # it goes on


def test_numbers_that_json_lacks_are_null(worker: Worker) -> None:
    assert worker.call("not_a_number", {}) == {"loss": None, "deep": [None, 1.0]}


def test_warnings_are_in_the_answer_once(worker: Worker) -> None:
    assert worker.call("warn", {}) == {"value": 1, "warnings": ["one"]}
    assert worker.call("echo", {}) == {}


def test_streams_are_cancelled_when_closed(worker: Worker) -> None:
    assert [*worker.stream("count", {"n": 3})] == [0, 1, 2]
    pid = worker.pid
    stream = worker.stream("count", {"n": 10_000, "seconds": 0.05})
    assert [next(stream), next(stream)] == [0, 1]
    assert worker.is_busy
    begin = time.monotonic()
    stream.close()
    assert time.monotonic() - begin < 2
    assert not worker.is_busy
    assert worker.call("pid", {}) == pid  # the same process


def test_a_stream_may_be_read_by_several_threads(worker: Worker) -> None:
    stream, seen = worker.stream("count", {"n": 4}), list[int]()
    for _ in range(4):
        thread = threading.Thread(target=lambda: seen.append(next(stream)))
        thread.start()
        thread.join()
    stream.close()
    assert seen == [0, 1, 2, 3]


def test_a_call_beyond_its_time_is_ended(worker: Worker) -> None:
    pid = worker.call("pid", {})
    with pytest.raises(WorkerError, match=r"^sleep: 0.5 seconds are over") as caught:
        worker.call("sleep", {}, seconds=0.5)
    assert (caught.value.kind, caught.value.status) == ("timeout", 503)
    assert wait_until_dead(pid)
    assert worker.call("pid", {}) != pid


@pytest.mark.parametrize(("call", "line"), [("die", "by SIGKILL"), ("leave", "with exit status 3")])
def test_a_crash_is_told_and_the_next_call_starts_anew(
    worker: Worker, call: str, line: str
) -> None:
    with pytest.raises(WorkerError, match=line) as caught:
        worker.call(call, {})
    assert caught.value.kind == "lost"
    assert worker.call("echo", {"a": 1}) == {"a": 1}


def test_a_process_that_died_between_calls_is_replaced(worker: Worker) -> None:
    pid = worker.call("pid", {})
    os.kill(pid, 9)
    assert wait_until_dead(pid)
    assert worker.call("pid", {}) != pid


def test_a_process_that_is_dying_is_replaced(worker: Worker) -> None:
    before = 0
    for _ in range(5):
        pid = worker.call("pid", {})
        assert pid != before
        os.kill(pid, 9)  # it can be sent to for some milliseconds
        before = pid
    assert [*worker.stream("count", {"n": 2})] == [0, 1]


def test_calls_of_many_threads_take_turns(worker: Worker) -> None:
    answers = list[dict[str, int]]()

    def ask(i: int) -> None:
        answers.append(worker.call("echo", {"i": i}))

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(one["i"] for one in answers) == [*range(8)]


def test_a_call_does_not_wait_forever_for_another(command: tuple[str, ...]) -> None:
    worker = Worker(command=command, busy_seconds=0.2)
    stream = worker.stream("count", {"n": 1000, "seconds": 0.05})
    next(stream)
    with pytest.raises(WorkerError, match="busy") as caught:
        worker.call("echo", {})
    assert (caught.value.kind, caught.value.status) == ("busy", 503)
    stream.close()
    assert worker.call("echo", {}) == {}
    worker.close()
    with pytest.raises(WorkerError, match="closed"):
        worker.call("echo", {})


def test_an_idle_process_ends(command: tuple[str, ...]) -> None:
    worker = Worker(command=command, idle_seconds=0.3)
    pid = worker.call("pid", {})
    assert worker.call("pid", {}) == pid
    assert wait_until_dead(pid)
    assert worker.pid is None
    assert worker.call("pid", {}) != pid
    worker.close()


def test_the_process_ends_with_its_server(command: tuple[str, ...]) -> None:
    """Even in the middle of a call, when the server is killed."""
    code = f"""
    import sys, threading, time
    from unmask.web.worker.client import Worker
    worker = Worker(command={command!r})
    print(worker.call("pid", {{}}), flush=True)
    threading.Thread(target=lambda: worker.call("sleep", {{}})).start()
    time.sleep(60)
    """
    server = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, text=True
    )
    assert server.stdout is not None
    pid = int(server.stdout.readline())
    time.sleep(0.2)
    assert is_alive(pid)
    server.kill()
    server.wait()
    server.stdout.close()
    assert wait_until_dead(pid)


def test_a_command_that_does_not_start_is_told() -> None:
    worker = Worker(command=("/no/such/program",))
    with pytest.raises(WorkerError, match="the worker does not start"):
        worker.call("echo", {})
    worker.close()
