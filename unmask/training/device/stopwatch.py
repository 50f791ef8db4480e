"""Time that has passed, whatever the clock does."""

import time


class Stopwatch:
    """A clock of seconds since it was made, which never goes backwards.

    A machine that is suspended, moved or set right may read an earlier time than before: such a
    step counts as none.
    """

    def __init__(self) -> None:
        self._seconds = 0.0
        self._last = time.perf_counter()

    @property
    def seconds(self) -> float:
        """Seconds that have passed, at least those of the reading before."""
        now = time.perf_counter()
        self._seconds += max(now - self._last, 0.0)
        self._last = now
        return self._seconds
