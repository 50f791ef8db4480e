"""One byte of any file of the newest checkpoint: it is named, and the one before it goes on."""

import logging
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from faults import assert_as_undisturbed, kinds
from kills import Job, Tree, instants, put
from tiny_jobs import JOBS, ready
from trials import Trials


def _flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


DAMAGE: dict[str, Callable[[bytes], bytes | None]] = {
    "cut by a byte": lambda data: data[:-1],
    "first byte": lambda data: _flipped(data, 0),
    "middle byte": lambda data: _flipped(data, len(data) // 2),
    "last byte": lambda data: _flipped(data, len(data) - 1),
    "longer by a byte": lambda data: data + b"\0",
    "emptied": lambda _: b"",
    "gone": lambda _: None,
}
THOROUGHLY = ("pretrain bert", "glove", "tune lora")
TRAINED = ("pretrain", "tune", "prefer", "glove", "fasttext")
CHECKPOINTED = [name for name in JOBS if name.startswith(TRAINED)]


def checkpoints(there: Tree) -> dict[str, list[str]]:
    """List the files of each checkpoint of the first run in a folder that has two."""
    found: dict[str, dict[str, list[str]]] = {}
    for name in (n for n, data in there.items() if data is not None):
        before, mark, after = name.partition("checkpoints/step-")
        if mark and "/" in after:
            step, _, _ = after.partition("/")
            found.setdefault(before, {}).setdefault(step, []).append(name)
    return next((dict(sorted(steps.items())) for steps in found.values() if len(steps) > 1), {})


def stopped(job: Job, home: Path, out: Path) -> Tree:
    """Give what a job has on the disk as soon as it has two checkpoints."""
    found = [there for what, there in instants(out, lambda: job(home, out, False))
             if checkpoints(there) and ".final" not in what]  # fmt: skip
    assert found
    return found[0]


@pytest.mark.parametrize("name", kinds(CHECKPOINTED, ()))
@pytest.mark.filterwarnings("ignore")
def test_damaged_file_of_the_newest_checkpoint_is_named_and_the_one_before_goes_on(
    name: str, home: Path, undisturbed: Callable[[str], Tree], tmp_path: Path, trials: Trials,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    job, whole, out = ready(name, home), undisturbed(name), tmp_path / "run"
    there = stopped(job, home, out)
    step, files = list(checkpoints(there).items())[-1]
    assert len(files) >= 3
    for file in files:
        for how, damage in DAMAGE.items():
            if name not in THOROUGHLY and how != "middle byte":
                continue  # the same reader
            put(there, out)
            data = damage(bytes(there[file] or b""))
            if data == (there[file] or b"").rstrip(b"\n"):
                continue  # the same JSON
            (out / file).unlink() if data is None else (out / file).write_bytes(data)
            caplog.clear()
            with caplog.at_level(logging.WARNING):
                job(home, out, True)
            lines = [r.getMessage() for r in caplog.records if "damaged" in r.getMessage()]
            named = [line for line in lines if step in line and "not used" in line]
            assert len(named) == 1, (file, how, lines)
            assert Path(file).name in named[0] or Path(file).name == "manifest.json", named
            assert_as_undisturbed(out, whole, f"{file}: {how}")
            trials.count("checkpoints")
    shutil.rmtree(out)
