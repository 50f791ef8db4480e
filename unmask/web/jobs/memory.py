"""Memory of processes, as Linux tells it."""

from pathlib import Path

_KIB = 1024


def resident_bytes(pid: int) -> int:
    """Return the memory of a process and those that it started; 0: not known."""
    total = _resident_bytes(Path(f"/proc/{pid}/status"))
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii").split()
    except OSError:
        return total
    return total + sum(resident_bytes(int(child)) for child in children)


def _resident_bytes(status: Path) -> int:
    try:
        lines = status.read_text("ascii", errors="replace").splitlines()
    except OSError:
        return 0
    found = (line.split() for line in lines if line.startswith("VmRSS:"))
    return next((int(words[1]) * _KIB for words in found), 0)
