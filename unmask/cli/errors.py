"""Errors as one line and an exit status."""

import logging
import traceback
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from unmask.jobs.options.shell.from_dataclass import UsageError, usage_text
from unmask.output import WarningFormatter, error_reason
from unmask.training.interrupt import stop_exit_status, was_signaled


def error_line(error: BaseException, *, is_training: bool) -> tuple[str, int] | None:
    """Return the line that reports an error, and the exit status; None for a bug.

    In training, non-finite numbers are a failed run; in a loaded model, an invalid file.
    """
    if isinstance(error, UsageError):
        return _usage_error_line(error), 2
    if isinstance(error, KeyboardInterrupt):
        return f"unmask: {str(error) or 'interrupted'}", stop_exit_status()
    if isinstance(error, ChildProcessError) or (
        is_training and isinstance(error, FloatingPointError)
    ):
        return f"unmask: {error}", 1
    reason = error_reason(error)
    if was_signaled() and _arose_in_an_import(error):
        return "unmask: interrupted", stop_exit_status()
    out_of_memory = isinstance(error, MemoryError | RuntimeError)
    return None if reason is None else (f"unmask: {reason}", 1 if out_of_memory else 2)


def _arose_in_an_import(error: BaseException) -> bool:
    """Say whether a module was being imported: some take an interruption for something else."""
    frames = traceback.extract_tb(error.__traceback__)
    return any(frame.filename.startswith("<frozen importlib") for frame in frames)


def _usage_error_line(error: Any) -> str:
    """Return the line that reports a usage error."""
    path = "unmask" if error.ctx is None else error.ctx.command_path
    return f"{path}: {usage_text(error)}; see {path} --help"


@contextmanager
def show_warnings() -> Generator[None]:
    """Show each warning of the library once, in one line."""
    seen: set[str] = set()

    def new(record: logging.LogRecord) -> bool:
        text = record.getMessage()
        return not (text in seen or seen.add(text))

    handler, logger = logging.StreamHandler(), logging.getLogger("unmask")
    handler.setFormatter(WarningFormatter())
    handler.addFilter(new)
    logger.addHandler(handler)
    nothing, root = logging.NullHandler(), logging.getLogger()
    root.addHandler(nothing)  # else a library's `logging.info` gives it one that shows all again
    try:
        yield
    finally:
        logger.removeHandler(handler)
        root.removeHandler(nothing)
