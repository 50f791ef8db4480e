"""Being asked to stop: by Ctrl-C, by SIGTERM, by the terminal that is closed (SIGHUP).

All three mean the same. In the middle of steps, the step is finished and saved
(`stop_after_step`); in all other work, which goes on from its files, it ends at once by
KeyboardInterrupt (`interrupt_on_signal`). A signal that is ignored when the work begins, as SIGHUP
is under nohup, stays ignored.
"""

import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the command line begins with this file: nothing heavy
    from unmask.training.device.distributed import World

_STOP_SIGNALS = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)
_received_signals: list[int] = []
"""Signals that this process was sent, the last one last; there is but one of such a list."""


class StopRequest:
    """Whether someone has asked the run to stop."""

    def __init__(self) -> None:
        self.is_requested = False

    def is_requested_anywhere(self, world: "World") -> bool:
        """Whether any process of the run was asked: all of them stop after the same step."""
        return any(world.all_gather_object(self.is_requested))


def stop_exit_status() -> int:
    """Return the exit status that is customary for a program that was asked to stop.

    128 and the number of the signal: 130 after Ctrl-C, 143 after SIGTERM, 129 after SIGHUP.
    """
    return 128 + (_received_signals[-1] if _received_signals else signal.SIGINT)


@contextmanager
def stop_after_step() -> Generator[StopRequest]:
    """Let a signal ask for an end after the current step; a second Ctrl-C breaks it off.

    ```python
    with stopping() as stop:
        for report in train(run):
            log(report)
            if stop.agreed(run.world):
                save(run, folder)
                break
    ```
    A second SIGTERM or SIGHUP does nothing: whoever closes a terminal or stops a service often
    sends both. Signals can only be received in the main thread; elsewhere nothing is changed.
    """
    stop = StopRequest()

    def ask(number: int, frame: FrameType | None) -> None:
        _received_signals.append(number)
        if stop.is_requested and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.is_requested = True

    with _signals_handled(ask, lambda now: now is not signal.SIG_IGN):
        yield stop


@contextmanager
def interrupt_on_signal() -> Generator[None]:
    """Let SIGTERM and SIGHUP end the work by KeyboardInterrupt, as Ctrl-C does.

    Where the program handles a signal in a way of its own, that is left to it. After the first one,
    only Ctrl-C interrupts once more: the work that is being ended says how it goes on.
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
    """Handle the signals, but for those whose handling is not ours to change."""
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
