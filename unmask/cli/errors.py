"""Errors as one line and an exit status."""

import errno
import logging
import os
import re
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import typer

from unmask.output import WarningFormatter
from unmask.training.interrupt import stop_exit_status

# Its module differs between versions of typer, but this class always derives from it.
UsageError = cast("type[Exception]", typer.BadParameter.__base__)


_USER_ERRNOS = frozenset(
    (
        errno.EACCES,
        errno.EEXIST,
        errno.EFBIG,
        errno.EISDIR,
        errno.ELOOP,
        errno.EMFILE,
        errno.ENAMETOOLONG,
        errno.ENOENT,
        errno.ENOSPC,
        errno.ENOTDIR,
        errno.ENOTEMPTY,
        errno.EPERM,
        errno.EROFS,
        getattr(errno, "EDQUOT", errno.ENOSPC),
    )
)
"""Errors of the operating system that a user can resolve."""


def error_line(error: BaseException, *, is_training: bool) -> tuple[str, int] | None:
    """Return the line that reports an error, and the exit status; None for a bug.

    In training, non-finite numbers are a failed run; in a loaded model, an invalid file.
    """
    if isinstance(error, UsageError):
        return _usage_error_line(error), 2
    if isinstance(error, KeyboardInterrupt):
        return f"unmask: {str(error) or 'interrupted'}", stop_exit_status()
    if isinstance(error, MemoryError | RuntimeError):
        line = _out_of_memory_line(error)
        return None if line is None else (f"unmask: {line}", 1)
    if isinstance(error, ChildProcessError) or (
        is_training and isinstance(error, FloatingPointError)
    ):
        return f"unmask: {error}", 1
    if isinstance(error, OSError) and error.errno is not None:
        if error.errno not in _USER_ERRNOS:
            return None
        # For a failed renaming, the target: the source is a temporary file.
        name = error.filename if error.filename2 is None else error.filename2
        location = "" if name is None else f"{_user_path(os.fsdecode(name))}: "
        reason = error.strerror or os.strerror(error.errno)
        return f"unmask: {location}{reason[:1].lower()}{reason[1:]}", 2
    return f"unmask: {error}", 2


_ALLOCATION_SIZE = re.compile(r"(?:tried|unable) to allocate ([\d.]+) ?([a-z]+)", re.IGNORECASE)


def _out_of_memory_line(error: Exception) -> str | None:
    """Return the line that reports a lack of memory; None for any other error.

    NumPy and Python raise MemoryError; torch a RuntimeError, for the processor and for a GPU.
    """
    text = str(error)
    refused = ("can't allocate memory", "out of memory")
    if not isinstance(error, MemoryError) and not any(one in text.lower() for one in refused):
        return None
    match = _ALLOCATION_SIZE.search(text)
    size = "" if match is None else f" {match[1].rstrip('.')} {match[2]}"
    if size.endswith("bytes"):
        size = f" {int(size.split()[0]) / 1e9:,.1f} GB"
    detail = f": cannot allocate{size}" if size else ""
    return f"out of memory{detail}; use shorter texts, smaller batches or a smaller model"


def _user_path(path: str) -> str:
    """Return a path; for a temporary file, its folder."""
    while any(p.startswith(".") and p.endswith(".part") for p in Path(path).parts):
        path = os.path.dirname(path)
    return path or "."


def _usage_error_line(error: Any) -> str:
    """Return the line that reports a usage error."""
    text = str(error.format_message()).rstrip(".").replace(": Value error, ", ": ")
    path = "unmask" if error.ctx is None else error.ctx.command_path
    return f"{path}: {text[:1].lower()}{text[1:]}; see {path} --help"


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
