"""The process of the worker: requests on standard input, answers on what was standard output.

Each is a line of JSON. Requests: {"id", "call", "arguments"} and {"id", "cancel": true}. Answers:
{"id", "value"}, of a stream several, then {"id", "done": true}; or {"id", "error", "field",
"is_bug"}. What the library prints goes to standard error, and what it warns of into the answer. The
process ends when its standard input does, whatever it is doing: its server is gone.
"""

import inspect
import json
import logging
import math
import os
import queue
import re
import sys
import threading
from collections.abc import Iterator, Mapping
from typing import Any, TextIO, cast

from unmask.output import error_reason, print_traceback
from unmask.web.worker.table import load_call


class Answerer:
    """Answers requests one after another; a thread of its own reads them, and cancels."""

    def __init__(self, requests: TextIO, answers: TextIO) -> None:
        self._requests, self._answers = requests, answers
        self._waiting = queue.Queue[Mapping[str, Any]]()
        self._cancelled: set[int] = set()
        self._warnings = WarningCollector()

    def run(self) -> None:
        """Answer for ever."""
        logging.getLogger("unmask").addHandler(self._warnings)
        threading.Thread(target=self._read_requests, daemon=True).start()
        while True:
            self._answer(self._waiting.get())

    def _read_requests(self) -> None:
        """Read requests until their pipe is closed, which ends the process at once."""
        for line in self._requests:
            request = json.loads(line)
            if request.get("cancel"):
                self._cancelled.add(request["id"])
            else:
                self._waiting.put(request)
        os._exit(0)

    def _answer(self, request: Mapping[str, Any]) -> None:
        key, arguments = request["id"], request["arguments"]
        self._warnings.lines.clear()
        try:
            for value in self._values(key, load_call(request["call"]), arguments):
                self._send({"id": key, "value": value})
            self._send({"id": key, "done": True})
        except Exception as error:
            self._send({"id": key, **describe_error(error, arguments)})
        self._cancelled.discard(key)

    def _values(self, key: int, call: Any, arguments: Mapping[str, Any]) -> Iterator[Any]:
        """Yield what a call answers, and last what it warned of."""
        if not inspect.isgeneratorfunction(call):
            value = call(arguments)
            yield {**value, "warnings": [*self._warnings.lines]} if self._warnings.lines else value
            return
        stream = call(arguments)
        for value in stream:
            if key in self._cancelled:
                stream.close()
                return
            yield value
        if self._warnings.lines:
            yield {"warnings": [*self._warnings.lines]}

    def _send(self, answer: Mapping[str, Any]) -> None:
        try:
            line = json.dumps(answer, allow_nan=False, separators=(",", ":"))
        except ValueError:  # a number that JSON lacks
            line = json.dumps(_without_odd_numbers(answer), separators=(",", ":"))
        self._answers.write(line + "\n")
        self._answers.flush()


def _without_odd_numbers(value: Any) -> Any:
    """Return plain data with null in place of numbers that are not finite."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        some = cast("Mapping[str, Any]", value)
        return {name: _without_odd_numbers(one) for name, one in some.items()}
    if isinstance(value, list | tuple):
        return [_without_odd_numbers(one) for one in cast("list[Any]", value)]
    return value


class WarningCollector(logging.Handler):
    """Keeps each warning of the library once."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a warning."""
        if (line := record.getMessage()) not in self.lines:
            self.lines.append(line)


def describe_error(error: Exception, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the line of an error, and the argument that it is about; a bug's traceback is printed.

    A line about an argument begins with its name.
    """
    line = error_reason(error)
    if line is None:
        print_traceback(type(error), error, error.__traceback__)
        name = type(error).__name__
        return {"error": f"internal error: {name}: {error}", "field": None, "is_bug": True}
    first = re.match(r"\w+", line)
    field = first[0] if first is not None and first[0] in arguments else None
    return {"error": line, "field": field, "is_bug": False}


def main() -> None:
    """Keep standard output for answers, and answer."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    with open(0, encoding="utf-8", closefd=False) as requests:
        Answerer(requests, answers).run()


if __name__ == "__main__":
    sys.exit(main())
