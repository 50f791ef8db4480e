"""Jobs: their state is in their folders, whoever started them and whatever became of the server."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from unmask.web.jobs.queue import JobQueue, run_states
from unmask.web.jobs.record import OUTPUT_FILE, STARTED_FILE, last_lines
from unmask.web.jobs.scheduler import JobLimits, JobScheduler

GIB = 1 << 30


@pytest.fixture
def queue(tmp_path: Path) -> JobQueue:
    return JobQueue(tmp_path / ".unmask" / "jobs")


def wait_for(check, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < end
        time.sleep(0.05)


def scheduler_of(queue: JobQueue, jobs: int = 1) -> JobScheduler:
    limits = JobLimits(jobs=jobs, cores=2, memory_bytes=64 * GIB)
    return JobScheduler(queue, limits)


def test_order_moving_and_taking_out(queue: JobQueue):
    first, second, third = (queue.add(["models"], f"run-{i}") for i in range(3))
    assert [one.id for one in queue.jobs()] == [first.id, second.id, third.id]
    queue.move(third.id, 0)
    assert [one.id for one in queue.jobs()] == [third.id, first.id, second.id]
    assert JobQueue(queue.folder).jobs() == queue.jobs()
    assert queue.stop(first.id).state == "stopped"
    assert [one.state for one in queue.jobs()] == ["waiting", "waiting", "stopped"]
    with pytest.raises(ValueError, match="has ended already"):
        queue.stop(first.id)
    with pytest.raises(ValueError, match="only jobs that wait"):
        queue.move(first.id, 0)
    queue.delete(first.id)
    with pytest.raises(FileNotFoundError, match="no job"):
        queue.get(first.id)
    assert run_states(queue.jobs()) == {"run-1": "queued", "run-2": "queued"}


@pytest.mark.parametrize("name", ["", "..", "../jobs", "/etc", "a/b", ".", "x" * 300, "no-such"])
def test_names_that_are_no_job(queue: JobQueue, name: str):
    with pytest.raises(FileNotFoundError, match="there is no job"):
        queue.get(name)


def test_two_jobs_do_not_write_the_same_run(queue: JobQueue):
    queue.add(["models"], "mine")
    with pytest.raises(FileExistsError, match="mine: a job that waits or runs"):
        queue.add(["models"], "mine")


def test_damaged_records_and_order_are_passed_over(queue: JobQueue):
    kept, lost = queue.add(["models"], None), queue.add(["show", "bert-mini"], None)
    (queue.folder / lost.id / "job.json").write_text("{")
    (queue.folder / "order.json").write_text("[")
    assert [one.id for one in queue.jobs()] == [kept.id]


def test_a_job_runs_the_command_line_and_says_how_it_ended(queue: JobQueue):
    good = queue.add(["models", "--json"], None)
    bad = queue.add(["show", "no-such-model"], "shown")
    scheduler = scheduler_of(queue, jobs=2)
    scheduler.start()
    wait_for(lambda: all(one.is_over for one in queue.jobs()))
    scheduler.close()
    done, failed = queue.get(good.id), queue.get(bad.id)
    assert (done.state, done.status, done.last_lines) == ("done", 0, ())
    assert json.loads((queue.path(good.id) / OUTPUT_FILE).read_text())
    assert (failed.state, failed.status) == ("failed", 2)
    assert "no-such-model" in failed.last_lines[-1]
    assert run_states(queue.jobs()) == {"shown": "crashed"}


def start_sleeping_job(queue: JobQueue) -> str:
    """Start a job that waits for input that never comes."""
    job = queue.add(["fill", "unmask-mini-en", "--input", "pipe.txt"], None)
    pipe = queue.folder.parent.parent / "pipe.txt"
    if not pipe.exists():
        os.mkfifo(pipe)
    scheduler_of(queue).start_what_fits()
    wait_for(lambda: queue.get(job.id).state == "running")
    return job.id


def test_a_killed_job_is_seen_as_failed_at_once(queue: JobQueue):
    job = start_sleeping_job(queue)
    pid = queue.get(job).pid
    assert pid is not None
    seen = subprocess.run(
        [sys.executable, "-c", "import sys; from pathlib import Path; "
         "from unmask.web.jobs.queue import JobQueue; "
         "print(JobQueue(Path(sys.argv[1])).jobs()[0].state)", str(queue.folder)],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert seen == "running\n"
    with pytest.raises(ValueError, match="stop it first"):
        queue.delete(job)
    os.kill(pid, signal.SIGKILL)
    os.utime(queue.path(job) / STARTED_FILE, (1, 1))
    wait_for(lambda: queue.get(job).state == "failed")
    assert queue.get(job).status is None
    assert queue.get(job).ending == "It was killed, or this machine was switched off"


def test_the_signal_that_ended_a_job_is_known(queue: JobQueue):
    queue.add(["fill", "unmask-mini-en", "--input", "pipe.txt"], None)
    os.mkfifo(queue.folder.parent.parent / "pipe.txt")
    scheduler = scheduler_of(queue)
    scheduler.start_what_fits()
    wait_for(lambda: queue.jobs()[0].state == "running")
    (job,) = queue.jobs()
    assert job.pid is not None
    os.kill(job.pid, signal.SIGKILL)
    wait_for(lambda: scheduler.start_what_fits() or queue.get(job.id).is_over)
    ended = queue.get(job.id)
    assert (ended.state, ended.status) == ("failed", 137)
    assert ended.ending == "It was killed by signal 9 (Killed); perhaps memory ran out"


@pytest.mark.parametrize("inherited", [signal.default_int_handler, signal.SIG_IGN])
def test_stopping_a_running_job(queue: JobQueue, inherited):
    before = signal.signal(signal.SIGINT, inherited)  # a service may ignore it
    try:
        job = start_sleeping_job(queue)
    finally:
        signal.signal(signal.SIGINT, before)
    assert queue.stop(job).state in ("stopping", "stopped")
    wait_for(lambda: queue.get(job).is_over)
    assert queue.get(job).state == "stopped"


def test_no_more_jobs_than_allowed_start(queue: JobQueue):
    start_sleeping_job(queue)
    waiting = queue.add(["models"], None)
    scheduler_of(queue).start_what_fits()
    assert queue.get(waiting.id).state == "waiting"
    tight = JobScheduler(queue, JobLimits(jobs=2, cores=2, memory_bytes=1))
    tight.start_what_fits()
    assert queue.get(waiting.id).state == "waiting"
    for one in queue.jobs():
        if one.pid is not None:
            os.kill(one.pid, signal.SIGKILL)


def test_last_lines_of_an_output_with_progress(tmp_path: Path):
    path = tmp_path / "output.txt"
    path.write_bytes(b"first\n 1/9 loss 3\r 2/9 loss 2\n\xff broken\n\nlast")
    assert last_lines(path) == ("first", " 2/9 loss 2", "\ufffd broken", "last")
    assert last_lines(tmp_path / "none") == ()


def test_limits_of_this_machine():
    limits = JobLimits.of_machine(1, None, None)
    assert limits.jobs == 1
    assert limits.threads == limits.cores >= 1
    for jobs, cores, memory, line in (
        (0, None, None, "jobs must be"), (99, 1, None, "jobs must be"),
        (1, 0, None, "cores must be"), (1, 10_000, None, "cores must be"),
        (1, None, 0.0, "memory must be"), (1, None, float("nan"), "memory must be"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=line):
            JobLimits.of_machine(jobs, cores, memory)
