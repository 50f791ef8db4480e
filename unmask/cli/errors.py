"""Errors as one line and an exit status."""

import logging
import traceback
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, cast

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
    text = usage_text(error)
    if type(error).__name__ == "NoSuchOption" and error.ctx is not None:
        unknown = error.option_name
        flags = {flag for parameter in error.ctx.command.params for flag in parameter.opts}
        for name in _NAMES_ELSEWHERE.get(unknown.lower().replace("_", "-"), ()):
            if name.split()[0] in flags:
                text = f"no such option: {unknown} (here it is {name})"
                break
    return f"{path}: {text}; see {path} --help"


_RATE = ("--learning-rate", "--set learning_rate=X")
_BATCH = ("--batch-size", "--set batch_tokens=N")
_LENGTH = ("--max-length", "--sequence-length")
_NAMES_ELSEWHERE = {
    "--train": ("--data",), "--train-file": ("--train", "--data"), "--train-data": ("--data",),
    "--train-data-file": ("--data",), "--dataset": ("--data", "--train"), "--corpus": ("--data",),
    "--validation-file": ("--dev",), "--eval": ("--dev",), "--valid": ("--dev",),
    "--data": ("--train", "--input"), "--file": ("--input", "--data"),
    "--output": ("--out",), "--output-dir": ("--out",), "--save": ("--out",),
    "--lr": _RATE, "--learning-rate": _RATE, "--batch": _BATCH, "--batch-size": _BATCH,
    "--per-device-train-batch-size": _BATCH, "--epochs": ("--steps",),
    "--num-train-epochs": ("--epochs", "--steps"), "--num-epochs": ("--epochs", "--steps"),
    "--max-steps": ("--steps",), "--iterations": ("--steps",),
    "--max-length": _LENGTH, "--max-seq-length": _LENGTH, "--block-size": _LENGTH,
    "--lora": ("--tune lora",), "--peft": ("--tune lora",), "--method": ("--tune",),
    "--fp16": ("--precision", "--set precision=bfloat16"),
    "--bf16": ("--precision bfloat16", "--set precision=bfloat16"),
    "--num-beams": ("--beams",), "--max-tokens": ("--max-new-tokens",),
    "--num-return-sequences": ("--samples",),
    "--init": ("--from",), "--checkpoint": ("--from",), "--pretrained": ("--from",),
    "--optimizer": ("--set optimizer=NAME",), "--dropout": ("--set dropout=X",),
    "--weight-decay": ("--set optimizer.weight_decay=X",),
    "--warmup": ("--set schedule.warmup=N",),
}  # fmt: skip
"""What options are called here that other libraries, or other commands, call so; the first that a
command has."""


@contextmanager
def show_warnings() -> Generator[None]:
    """Show each warning of the library once, in one line; those that count are added up."""
    seen: set[str] = set()
    counts: dict[tuple[Any, ...], int] = {}

    def new(record: logging.LogRecord) -> bool:
        if getattr(record, "is_count", False) and isinstance(record.args, tuple):
            n, *rest = cast("tuple[Any, ...]", record.args)
            counts[record.msg, *rest] = counts.get((record.msg, *rest), 0) + n
            return False
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
        for (message, *rest), n in counts.items():
            logger.warning(message, n, *rest)
        logger.removeHandler(handler)
        root.removeHandler(nothing)
