"""Two runs into one folder: the second is refused in one line, and changes nothing."""

import shutil
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from faults import kinds, line_of
from kills import instants, put, tree, watched
from tiny_jobs import JOBS, ready
from trials import Trials

HOLD = """
import sys
from pathlib import Path
from unmask.files import lock_run_folder
with lock_run_folder(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""
LOCKED = [
    name
    for name in JOBS
    if name.startswith(("pretrain", "tune", "prefer")) or name in ("glove", "fasttext", "lsa")
]


@contextmanager
def held(folder: Path) -> Generator[None]:
    """Let another process train in a folder."""
    command = [sys.executable, "-c", HOLD, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        yield
        process.communicate()


@pytest.mark.parametrize("name", kinds(LOCKED))
@pytest.mark.filterwarnings("ignore")
def test_second_run_in_a_folder_is_refused_and_changes_nothing(
    name: str, home: Path, tmp_path: Path, trials: Trials
) -> None:
    job, out = ready(name, home), tmp_path / "run"
    states = [there for _, there in instants(out, lambda: job(home, out, False))]
    begun = next((t for t in states if any("checkpoints/step" in name for name in t)), {})
    for there, again in (({}, False), ({}, True), (begun, True)):
        put(there, out)
        with held(out):
            with pytest.raises(ValueError, match="another process is training") as error:
                job(home, out, again)
            assert line_of(error.value)[1] == 2
            left = {n: data for n, data in tree(out).items() if n != ".lock"}
            assert left == {n: data for n, data in there.items() if n != ".lock"}
        trials.count("data and workers")


@pytest.mark.parametrize("name", kinds(LOCKED))
@pytest.mark.filterwarnings("ignore")
def test_run_that_began_and_ended_before_the_lock_was_taken_is_kept(
    name: str, home: Path, tmp_path: Path, trials: Trials
) -> None:
    job, out = ready(name, home), tmp_path / "run"
    job(home, out, False)
    other = {path: data for path, data in tree(out).items() if path != ".lock"}
    shutil.rmtree(out)
    waiting = [other]

    def tell(event: str, path: str) -> None:
        if waiting and event == "open" and Path(path) == out / ".lock":
            put(waiting.pop(), out)

    with watched(tell), suppress(ValueError):  # the same run, asked for again, may give its result
        job(home, out, False)
    assert not waiting
    assert {n: data for n, data in tree(out).items() if n != ".lock"} == other
    trials.count("data and workers")
