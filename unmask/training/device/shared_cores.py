"""Threads that wait for each other asleep while other programs want their cores."""

import atexit
import os
import threading
import time
from collections import deque
from contextlib import suppress
from pathlib import Path

import torch

LOOK_SECONDS = 0.25
"""Between two looks at what this process waited for."""
CROWDED_SHARE = 0.1
"""Seconds in a second, summed over its threads, that a process on a crowded machine has to wait for
a core, at least."""
FREE_SHARE = 0.03
"""The same on a free machine, at most, on average over `FREE_LOOKS`: what runs for a moment once a
second, as on every machine, is up to 0.04 in single looks."""
FREE_LOOKS = 8
"""Looks, together, that show a free machine, before threads spin again."""
MAX_SLEEPERS = 16
"""Threads that may be made so that others sleep."""


def share_cores() -> bool:
    """Let the compute threads of this process share the cores; return whether that is in force.

    OpenMP's threads wait for each other at the end of each operation, some hundred times in a
    training step, and spin meanwhile. Where each has a core of its own that is the fastest way.
    Where another program runs on one of the cores it is the slowest: a thread waits there for its
    turn, and the others use up theirs by waiting for it: two threads beside a busy program compute
    a tenth of what one thread would (benchmarks/neighbor.py).

    While the threads of this process wait for cores they sleep instead, after a few microseconds,
    so that cores become free for the thread that all wait for. **What is computed stays the same
    to the bit**: the number of threads, on which sums depend, is the same.

    Call it when the number of threads is set; more calls change nothing. It needs Linux; with
    another OpenMP than GCC's, which is that of PyTorch's packages from PyPI, it has no effect.
    """
    n_sleepers = _count_sleepers(torch.get_num_threads())
    if not 2 <= n_sleepers <= MAX_SLEEPERS or read_waited_seconds() is None:
        return False
    with _LOCK:
        if all(thread.name != _WATCHER for thread in threading.enumerate()):
            _Watcher(n_sleepers).start()
    return True


_LOCK = threading.Lock()
_WATCHER = "unmask-shared-cores"
"""Name of the thread that looks; a process has one."""


def _count_sleepers(n_threads: int) -> int:
    """Count the threads of a second team with which there are more threads than cores; 0: none.

    GCC's OpenMP lets waiting threads spin 300,000 times, but 1,000 times if it has more threads
    than cores (libgomp, `gomp_throttled_spin_count_var`).
    """
    if n_threads < 2 or not hasattr(os, "sched_getaffinity"):
        return 0
    return max(2, len(os.sched_getaffinity(0)) - n_threads + 2)


def read_waited_seconds() -> float | None:
    """Return how long the threads of this process have waited for a core so far, in all.

    None: the system does not say (Linux does).
    """
    waited, is_known = 0, False
    with suppress(OSError):
        for folder in Path("/proc/self/task").iterdir():
            with suppress(OSError):  # the thread has ended
                waited += int((folder / "schedstat").read_text().split()[1])
                is_known = True
    return waited / 1e9 if is_known else None


class SleepingThreads:
    """A team of OpenMP threads with nothing to do, because of which those of others sleep."""

    def __init__(self, n_threads: int) -> None:
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._hold, args=(n_threads,), daemon=True)
        self._thread.start()

    def _hold(self, n_threads: int) -> None:
        usual = torch.get_num_threads()  # each thread has its own; that of new ones is common
        torch.set_num_threads(n_threads)
        torch.ones(1 << 16).add_(1)  # makes the team
        torch.set_num_threads(usual)
        self._is_over.wait()

    def end(self) -> None:
        """End the threads."""
        self._is_over.set()
        self._thread.join()


class Crowding:
    """What is known of a machine from how long a process has to wait for its cores."""

    def __init__(self, waited: float, ran: float, now: float) -> None:
        """Judge by what was before.

        Args:
            waited: seconds that the process has waited for cores so far.
            ran: seconds that it had them.
            now: seconds of a clock.
        """
        self.is_crowded = waited > CROWDED_SHARE * (waited + ran)
        self._looks = deque([(waited, now)], maxlen=FREE_LOOKS + 1)

    def look(self, waited: float, now: float) -> None:
        """Judge by what was since the last look, or, on a crowded machine, since some looks."""
        self._looks.append((waited, now))
        if not self.is_crowded:
            self.is_crowded = self._share_since(-2) > CROWDED_SHARE
            if self.is_crowded:
                self._looks = deque([(waited, now)], maxlen=FREE_LOOKS + 1)
        elif len(self._looks) > FREE_LOOKS:
            self.is_crowded = self._share_since(0) > FREE_SHARE

    def _share_since(self, look: int) -> float:
        (before, start), (waited, now) = self._looks[look], self._looks[-1]
        return (waited - before) / max(now - start, 1e-9)


class _Watcher(threading.Thread):
    """Makes threads sleep while the machine is crowded, as long as the process lives."""

    def __init__(self, n_sleepers: int) -> None:
        super().__init__(name=_WATCHER, daemon=True)
        self._n_sleepers = n_sleepers
        self._is_over = threading.Event()
        atexit.register(self.end)  # Python ends a thread within torch by ending the process

    def end(self) -> None:
        """End the thread, and those that it made."""
        self._is_over.set()
        self.join()

    def run(self) -> None:
        """Look from time to time."""
        waited, clock = read_waited_seconds() or 0.0, time.perf_counter
        crowding = Crowding(waited, time.process_time(), clock())
        sleepers: SleepingThreads | None = None
        while not self._is_over.is_set():
            if crowding.is_crowded and sleepers is None:
                sleepers = SleepingThreads(self._n_sleepers)
            elif not crowding.is_crowded and sleepers is not None:
                sleepers.end()
                sleepers = None
            self._is_over.wait(LOOK_SECONDS)
            crowding.look(read_waited_seconds() or 0.0, clock())
        if sleepers is not None:
            sleepers.end()
