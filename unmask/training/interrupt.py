"""Interruption by Ctrl-C (SIGINT), SIGTERM, or a closed terminal (SIGHUP).

All three have the same effect. During training, the current step is finished and saved
(`stop_after_step`). Other work, which resumes from its files, ends at once by KeyboardInterrupt
(`interrupt_on_signal`). A signal that is ignored at the start stays ignored: SIGHUP under nohup,
and SIGINT of what a script started with `&`, to which the terminal's Ctrl-C is not addressed.
SIGTERM stops these.
"""

import os
import signal
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the command line begins with this file: nothing heavy
    from unmask.training.device.distributed import World

_STOP_SIGNALS = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)
_STOPPING = b"\nstopping after this step, which is saved; Ctrl-C again stops at once\n"
_received_signals: list[int] = []
"""Signals that this process was sent, the last one last; there is but one of such a list."""


class StopRequest:
    """Whether a stop was requested."""

    def __init__(self) -> None:
        self._was_asked = False
        self._was_read = False

    def ask(self) -> bool:
        """Request a stop; return whether one was requested before."""
        before, self._was_asked = self._was_asked, True
        return before

    @property
    def is_requested(self) -> bool:
        """Whether a stop was requested: who reads that it was has to stop."""
        asked = self._was_asked  # once: a signal may come between two looks
        self._was_read = asked
        return asked

    @property
    def is_unread(self) -> bool:
        """Whether a stop was requested that nobody has read, as it came after the last step."""
        return self._was_asked and not self._was_read

    def is_requested_anywhere(self, world: "World") -> bool:
        """Whether a stop was requested of any process: all processes stop after the same step."""
        return any(world.all_gather_object(self.is_requested))


def stop_exit_status() -> int:
    """Return the customary exit status of a program that was stopped by a signal.

    128 plus the number of the signal: 130 after Ctrl-C, 143 after SIGTERM, 129 after SIGHUP.
    """
    return 128 + (_received_signals[-1] if _received_signals else signal.SIGINT)


def was_signaled() -> bool:
    """Return whether a signal has asked this process to stop."""
    return bool(_received_signals)


@contextmanager
def stop_after_step() -> Generator[StopRequest]:
    """Request a stop after the current step on a signal; a second Ctrl-C interrupts the step.

    ```python
    with stop_after_step() as stop:
        for report in train(run):
            log(report)
            if stop.is_requested_anywhere(run.world):
                save_checkpoint(run, folder)
                break
    ```
    A request that was not read by the end interrupts there: what would follow the steps is more
    than a step, such as the next run of a study.

    A second SIGTERM or SIGHUP has no effect, as closing a terminal or stopping a service often
    sends both. Python receives signals in the main thread only; in other threads, nothing changes.
    """
    stop = StopRequest()

    def ask(number: int, frame: FrameType | None) -> None:
        _received_signals.append(number)
        is_second = stop.ask()
        if is_second and number == signal.SIGINT:
            raise KeyboardInterrupt
        if not is_second and sys.stderr.isatty():
            with suppress(OSError):  # SIGHUP: the terminal was closed
                os.write(sys.stderr.fileno(), _STOPPING)  # the handler may be within a write

    with _signals_handled(ask, lambda now: now is not signal.SIG_IGN):
        yield stop
    if stop.is_unread:
        raise KeyboardInterrupt


@contextmanager
def interrupt_on_signal() -> Generator[None]:
    """Raise KeyboardInterrupt on SIGTERM and SIGHUP, as on Ctrl-C.

    A handler that the program has installed is kept. After the first signal, only Ctrl-C interrupts
    again.
    """
    asked = False

    def interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        _received_signals.append(number)
        if not asked or number == signal.SIGINT:
            asked = True
            raise KeyboardInterrupt

    usual = (signal.SIG_DFL, signal.default_int_handler)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # the outermost
        _received_signals.clear()
    with _signals_handled(interrupt, lambda now: now in usual):
        yield


@contextmanager
def _signals_handled(
    handler: Callable[[int, FrameType | None], None], is_ours: Callable[[Any], bool]
) -> Generator[None]:
    """Install handlers, except for signals that the program handles itself."""
    before: dict[int, Any] = {}
    try:
        for number in _STOP_SIGNALS:
            now = signal.getsignal(number)
            if now is None or not is_ours(now):  # None: set by another than Python
                continue
            try:
                before[number] = signal.signal(number, handler)
            except ValueError:  # not the main thread
                break
        yield
    finally:
        for number, was in before.items():
            signal.signal(number, was)
