"""Errors in optional outputs, such as reports: they must not end the training."""

import logging
from collections.abc import Generator
from contextlib import contextmanager

_log = logging.getLogger(__name__)


@contextmanager
def best_effort(left_out: str) -> Generator[None]:
    """Turn any exception of an optional output into a warning of one line.

    A plot must not cost hours of training. This is the only place that catches every exception.

    Args:
        left_out: name of the output, for the warning.
    """
    try:
        yield
    except Exception as error:
        why = " ".join(f"{type(error).__name__}: {error}".split())
        _log.warning("%s: left out, the run goes on: %s", left_out, why)
