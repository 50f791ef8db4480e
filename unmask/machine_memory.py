"""Memory of this machine, and of the control group that limits this process, as Linux tells it."""

import math
from collections.abc import Iterator
from pathlib import Path

_KIB = 1024


def total_bytes(root: Path = Path("/")) -> int | None:
    """Return the memory that processes may take here together; None: not known here."""
    if (total := _of_machine("MemTotal", root)) is None:
        return None
    return int(min(total, *(limit for limit, _ in _control_groups(root)), math.inf))


def available_bytes(root: Path = Path("/")) -> int | None:
    """Return the memory that can be taken without swapping; None: not known here."""
    if (available := _of_machine("MemAvailable", root)) is None:
        return None
    groups = (max(limit - used, 0) for limit, used in _control_groups(root))
    return int(min(available, *groups, math.inf))


def _of_machine(name: str, root: Path) -> int | None:
    try:
        lines = (root / "proc/meminfo").read_text("ascii").splitlines()
    except OSError:
        return None
    numbers = (line.split() for line in lines if line.startswith(f"{name}:"))
    return next((int(words[1]) * _KIB for words in numbers), None)


def _control_groups(root: Path) -> Iterator[tuple[int, int]]:
    """Yield the limit and the use of this process's groups that have a limit, of both versions.

    Files that were read and can be dropped are not used memory.
    """
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers not in ("", "memory"):
            continue
        top = root / "sys/fs/cgroup" / controllers
        names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        names = names if controllers else ("memory.max", "memory.current", "inactive_file")
        folder = top / path.strip("/")
        for group in (folder, *folder.parents):
            if group.is_relative_to(top) and (found := _limit_and_use(group, *names)):
                yield found


def _limit_and_use(group: Path, limit: str, use: str, files: str) -> tuple[int, int] | None:
    try:
        most, used = int((group / limit).read_text()), int((group / use).read_text())
        statistics = (group / "memory.stat").read_text().split()
        return most, used - int(statistics[statistics.index(files) + 1])
    except (OSError, ValueError):  # no group here, or "max": no limit
        return None
