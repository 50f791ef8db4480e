"""What is on the disk at every instant of a job at which its process could be killed.

An audit hook is told of each file that is opened to be written, and of each renaming, removal and
new folder, before it happens. There the job's folder is copied as it lies on the disk: what the
process had not yet handed to the system is not in the copy, and nothing has cleaned up. That is
what a `kill -9` at this instant leaves.
"""

import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from trials import Trials

Job = Callable[[Path, Path, bool], object]
"""Folder of texts and models, folder of the run, and whether it resumes."""
Tree = dict[str, bytes | None]
"""Files, and folders (None), by their paths."""


class Content(bytes):
    """What is in a file, and when it was written, which prepared tokens know of their sources."""

    written: int = 0


_WRITES = os.O_WRONLY | os.O_RDWR
_EVENTS = ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate")
_watching: list[Callable[[str, str], None]] = []
_hooked: list[bool] = []


def _heard(event: str, arguments: tuple[object, ...]) -> None:
    if not _watching or event not in _EVENTS:
        return
    path = arguments[0]
    if not isinstance(path, str | bytes | os.PathLike):
        return  # a descriptor
    if event == "open" and not (isinstance(arguments[2], int) and arguments[2] & _WRITES):
        return
    _watching[-1](event, os.fspath(path) if not isinstance(path, bytes) else os.fsdecode(path))


@contextmanager
def watched(tell: Callable[[str, str], None]) -> Generator[None]:
    """Tell of each change of the disk that this process is about to make."""
    if not _hooked:
        sys.addaudithook(_heard)
        _hooked.append(True)
    _watching.append(tell)
    try:
        yield
    finally:
        _watching.pop()


def tree(folder: Path) -> Tree:
    """Read all that is in a folder."""
    paths = sorted(folder.rglob("*"))
    return {
        str(p.relative_to(folder)): _content(p) if p.is_file() else None
        for p in paths
        if not p.is_symlink()
    }


def _content(path: Path) -> Content:
    content = Content(path.read_bytes())
    content.written = path.stat().st_mtime_ns
    return content


def put(there: Tree, folder: Path) -> None:
    """Make a folder what it was."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, data in there.items():
        path = folder / name
        if data is None:
            path.mkdir(parents=True, exist_ok=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            if isinstance(data, Content):
                os.utime(path, ns=(data.written, data.written))


def instants(folder: Path, job: Callable[[], object]) -> list[tuple[str, Tree]]:
    """Run a job; give what its folder held at each instant, and what was next; those alike once."""
    found: list[tuple[str, Tree]] = []
    seen: set[int] = set()

    def tell(event: str, path: str) -> None:
        # A file opened within a removed folder is known by its name alone: all are taken.
        there = tree(folder) if folder.is_dir() else {}
        mark = hash(tuple(sorted(there.items())))
        if mark not in seen:
            seen.add(mark)
            found.append((f"before {event} {os.path.relpath(path, folder)}", there))

    with watched(tell):
        job()
    return found


TIMED = ("timing.jsonl", "progress.json", "manifest.json", "report.html", "trials.jsonl")
"""Files in which times stand, also within others: lengths and digests."""
_TIMES = (rb'"seconds": [0-9.e-]+|, [0-9]{19}\]', rb"\| [0-9,]+ \|$")
"""What else depends on the clock: a number by this name, when a text was written that lies in the
run, and the last column of a suite's table."""


def learned(out: Path) -> Tree:
    """Give what must be equal bit for bit; what is hidden is nothing that anyone reads."""
    there = tree(out)

    def last(path: Path) -> bool:
        home = next((p for p in path.parents if p.name == "checkpoints"), None)
        if home is None:
            return True
        saved = [name for name in there if Path(name).is_relative_to(home)]
        return path.is_relative_to(
            home / max(Path(n).relative_to(home).parts[:1] for n in saved)[0]
        )

    return {
        name: None if data is None else _untimed(name, data)
        for name, data in there.items()
        if not name.endswith(TIMED)
        and not any(p.startswith(".") for p in Path(name).parts)
        and last(Path(name))
    }


def _untimed(name: str, data: bytes) -> bytes:
    if name.endswith("unmask.json"):  # its cost is measured: seconds, memory and what follows
        facts = json.loads(data)
        if facts.pop("cost", None) is not None:
            data = json.dumps(facts, indent=2).encode()
    if name.endswith((".json", ".jsonl")):
        return re.sub(_TIMES[0], b"", data)
    table = name.endswith("README.md") and b"| benchmark |" in data
    return re.sub(_TIMES[1], b"|", data, flags=re.MULTILINE) if table else data


def check(
    job: Job, home: Path, out: Path, which: Callable[[list[str]], set[int]], trials: Trials
) -> None:
    """Run a job, then go on with it from what it would have left at some of its instants."""
    found = instants(out, lambda: job(home, out, False))
    whole = learned(out)
    assert any(data for data in whole.values())
    chosen = which([what for what, _ in found])
    for i, (what, there) in [*enumerate(found), (-1, ("a finished run", tree(out)))]:
        if i >= 0 and i not in chosen:
            continue
        put(there, out)
        job(home, out, True)
        again = learned(out)
        differ = [n for n in {**whole, **again} if whole.get(n, b"?") != again.get(n, b"?")]
        assert not differ, f"killed {what}: {sorted(differ)}"
        trials.count("kills")
