"""A disk that is full at any write: one line, nothing half-written; with room it ends as ever."""

import errno
import os
import shutil
import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from faults import assert_as_undisturbed, kinds, line_of, makes, spread
from kills import Job, Tree, tree, watched
from tiny_jobs import JOBS, ready
from trials import Trials

MOST = 8
"""Of the files of a job that are tried."""


@contextmanager
def full_from(n: int, out: Path) -> Generator[list[str]]:
    """Refuse each new file and folder from the n-th on; give what was made or refused."""
    seen: list[str] = []

    def tell(event: str, path: str) -> None:
        if makes(event, path, out):
            seen.append(path)
            if len(seen) > n:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    with watched(tell):
        yield seen


@contextmanager
def no_file_beyond(size: int) -> Generator[None]:
    """Let no file grow beyond a size: what a write finds on a disk that is full."""
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def ends_in_one_line(job: Callable[[], object], what: str) -> None:
    """Run a job; it ends well, or names the disk in one line."""
    try:
        job()
    except Exception as error:
        line, status = line_of(error)
        assert status == 2, (what, line)
        assert "no space left" in line.lower() or "too large" in line.lower(), (what, line)


def _again(job: Job, home: Path, out: Path, whole: Tree, what: str) -> None:
    """With room, a job ends as one for which there always was."""
    job(home, out, True)
    assert_as_undisturbed(out, whole, what)
    shutil.rmtree(out)


@pytest.mark.parametrize("name", kinds(JOBS))
@pytest.mark.filterwarnings("ignore")
def test_job_ends_alike_after_a_disk_was_full_at_any_new_file(
    name: str, home: Path, undisturbed: Callable[[str], Tree], tmp_path: Path, trials: Trials
) -> None:
    job, whole, out = ready(name, home), undisturbed(name), tmp_path / "run"
    with full_from(10**6, out) as made:
        job(home, out, False)
    shutil.rmtree(out)
    for n in spread(len(made), MOST):
        with full_from(n, out):
            ends_in_one_line(lambda: job(home, out, False), f"full at {made[n]}")
        out.mkdir(exist_ok=True)
        _again(job, home, out, whole, f"full at {made[n]}")
        trials.count("full disk")


@pytest.mark.parametrize("name", kinds(JOBS))
@pytest.mark.filterwarnings("ignore")
def test_job_ends_alike_after_any_write_did_not_fit(
    name: str, home: Path, undisturbed: Callable[[str], Tree], tmp_path: Path, trials: Trials
) -> None:
    job, whole, out = ready(name, home), undisturbed(name), tmp_path / "run"
    job(home, out, False)
    lengths = sorted({len(data) for data in tree(out).values() if data and len(data) > 1000})
    shutil.rmtree(out)
    for size in (lengths[i] for i in spread(len(lengths), MOST // 2)):
        with no_file_beyond(size - 1):
            ends_in_one_line(lambda: job(home, out, False), f"a file of {size} bytes")
        out.mkdir(exist_ok=True)
        _again(job, home, out, whole, f"a file of {size} bytes")
        trials.count("full disk")
