"""What only a report shows: it may fail, and the training goes on."""

import logging
from collections.abc import Generator
from contextlib import contextmanager

_log = logging.getLogger(__name__)


@contextmanager
def best_effort(left_out: str) -> Generator[None]:
    """Let what only a report needs fail: a warning says so in a line, and the work goes on.

    Nothing of that kind may stand between a training and its model: hours would be lost for a
    picture. So this is the one place where any exception whatever is caught.

    Args:
        left_out: is left out, in the words of the warning.
    """
    try:
        yield
    except Exception as error:
        why = " ".join(f"{type(error).__name__}: {error}".split())
        _log.warning("%s: left out, the run goes on: %s", left_out, why)
