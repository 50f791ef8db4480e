"""What is on the disk at every instant of a job at which its process could be killed.

An audit hook is told of each file that is opened to be written, and of each renaming, removal and
new folder, before it happens. There the job's folder is copied as it lies on the disk: what the
process had not yet handed to the system is not in the copy, and nothing has cleaned up. That is
what a `kill -9` at this instant leaves.
"""

import os
import shutil
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

Tree = dict[str, bytes | None]
"""Files, and folders (None), by their paths."""

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
        str(p.relative_to(folder)): p.read_bytes() if p.is_file() else None
        for p in paths
        if not p.is_symlink()
    }


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


def instants(folder: Path, job: Callable[[], object]) -> list[tuple[str, Tree]]:
    """Run a job; give what its folder held at each instant, and what was next; those alike once."""
    found: list[tuple[str, Tree]] = []
    seen: set[int] = set()

    def tell(event: str, path: str) -> None:
        # A file that is opened within a removed folder is told by its name alone: all are taken.
        there = tree(folder) if folder.is_dir() else {}
        mark = hash(tuple(sorted(there.items())))
        if mark not in seen:
            seen.add(mark)
            found.append((f"before {event} {os.path.relpath(path, folder)}", there))

    with watched(tell):
        job()
    return found
