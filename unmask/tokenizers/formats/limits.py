"""What a tokenizer's file may ask for: how much longer a text may become, and how much is believed.

A file that anyone wrote can hold rules that double a text, twenty times over; the `tokenizers`
library then asks for more memory than there is, and the process ends without a word. So what rules
can do is bounded before any text is read. Where the library fails on a file or a text in a way of
its own, that becomes an error that names the file.
"""

import base64
import binascii
import os
import tempfile
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

from tokenizers import Regex, normalizers

MAX_GROWTH = 100
"""A text may become so many times as long. The longest replacement of Unicode's NFKC has 18
characters for one."""
MAX_STEPS = 500
"""Steps of a normalizer, of what cuts words, or of a decoder."""
MAX_TEMPLATE_TOKENS = 100
"""Special tokens around a text."""
MAX_PREPENDED_CHARACTERS = 10_000
"""Characters that are put before a text, all together."""
_PROBE_TEXTS = ("", "a", "a b", " ", "A.1", "\n", "é中")


@contextmanager
def tokenizers_errors_as_value_error(
    location: str, *, hide_output: bool = False
) -> Generator[None]:
    """Turn whatever the `tokenizers` library raises into a ValueError of one line.

    Nothing but calls of that library belongs within. It raises nothing narrower than Exception;
    where its own code has a bug it raises `pyo3_runtime.PanicException`, which is none and cannot
    be imported.

    Args:
        location: the file, and what was done with it.
        hide_output: a file is read; what the library then prints of its own failure is not shown.

    Raises:
        ValueError: the library failed.
    """
    try:
        with _stderr_captured() if hide_output else nullcontext():
            yield
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__module__ != "pyo3_runtime":
            raise
        said = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(f"{location}: {said[:300]}") from error


@contextmanager
def _stderr_captured() -> Generator[None]:
    """Keep back what is printed on standard error; it is printed afterwards if nothing failed."""
    try:
        shown = os.dup(2)
    except OSError:  # there is none
        yield
        return
    with tempfile.TemporaryFile() as aside:
        os.dup2(aside.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(shown, 2)
            os.close(shown)
        aside.seek(0)
        if kept := aside.read():
            os.write(2, kept)


def check_pipeline_limits(path: object, state: Mapping[str, Any]) -> None:
    """Refuse a pipeline whose rules could make a text too long, or that has too many of them.

    Args:
        path: the file, for messages.
        state: tokenizer.json as plain data, of any content.

    Raises:
        ValueError: it does; the message names file and key.
    """
    for key, inner in _PIPELINE_PARTS.items():
        steps = _flatten_steps(state.get(key), inner)
        if len(steps) > MAX_STEPS:
            raise ValueError(
                f"{path}: {key} has {len(steps):,} steps, of which at most {MAX_STEPS} are read"
            )
        growth, before = _max_growth(f"{path}: {key}", steps), _prepended_characters(steps)
        if growth > MAX_GROWTH:
            raise ValueError(
                f"{path}: {key} can make a text {growth:,.0f} times as long; at most "
                f"{MAX_GROWTH} times is read"
            )
        if before > MAX_PREPENDED_CHARACTERS:
            raise ValueError(
                f"{path}: {key} puts {before:,} characters before each text; at most "
                f"{MAX_PREPENDED_CHARACTERS:,} are read"
            )
    around = _template_tokens(state.get("post_processor"))
    if around > MAX_TEMPLATE_TOKENS:
        raise ValueError(
            f"{path}: post_processor puts {around:,} special tokens around a text; at most "
            f"{MAX_TEMPLATE_TOKENS} are read"
        )


_PIPELINE_PARTS = {
    "normalizer": "normalizers",
    "pre_tokenizer": "pretokenizers",
    "decoder": "decoders",
}


def _flatten_steps(part: Any, steps_key: str) -> list[Mapping[str, Any]]:
    """List the steps of a part, in their order, sequences of them laid out."""
    found: list[Mapping[str, Any]] = []
    left = [part]
    while left and len(found) <= MAX_STEPS:
        step = left.pop()
        if not isinstance(step, Mapping):
            continue
        if isinstance(within := step.get(steps_key), list):
            left += reversed(within)
        else:
            found.append(step)
    return found


def _max_growth(location: str, steps: Sequence[Mapping[str, Any]]) -> float:
    """Bound how many times as long steps can make a text, one after the other.

    A rule that replaces a string makes longer what an earlier one wrote only if that has one of its
    characters; of a regular expression it is taken for granted.
    """
    reached: list[tuple[float, str | None]] = []  # factor so far, and what was written; None: any
    for step in steps:
        factor, needs, written = _step_growth(location, step)
        if factor <= 1:
            continue
        before = (f for f, text in reached if needs is None or text is None or {*needs} & {*text})
        reached.append((factor * max(before, default=1.0), written))
    return max((factor for factor, _ in reached), default=1.0)


def _step_growth(location: str, step: Mapping[str, Any]) -> tuple[float, str | None, str | None]:
    """Give a step's factor, the string that it looks for, and what it writes; None: anything."""
    kind = step.get("type")
    if kind == "ByteLevel":
        return 2.0, None, None
    if kind == "Precompiled":
        return _precompiled_growth(location, step.get("precompiled_charsmap")), None, None
    if kind != "Replace" or not isinstance(written := step.get("content"), str):
        return 1.0, None, None
    pattern = step.get("pattern")
    if isinstance(pattern, Mapping) and isinstance(text := pattern.get("String"), str):
        factor = len(written) / len(text) if text else 1.0 + len(written)
        return factor, text or None, written
    if isinstance(pattern, Mapping) and isinstance(rule := pattern.get("Regex"), str):
        return len(written) + float(_matches_empty(location, rule)), None, None
    return 1.0, None, None


def _matches_empty(location: str, rule: str) -> bool:
    """Return whether a regular expression finds places without characters in some text."""
    with tokenizers_errors_as_value_error(f"{location}: the regular expression {rule[:80]!r}"):
        mark = normalizers.Replace(Regex(rule), "\0")
        return any(
            len(found.replace("\0", "")) + found.count("\0") > len(probe)
            for probe in _PROBE_TEXTS
            if (found := mark.normalize_str(probe))
        )


def _precompiled_growth(location: str, charsmap: Any) -> float:
    """Give the length of the longest replacement of SentencePiece's compiled rules."""
    if not isinstance(charsmap, str | bytes):
        return 1.0
    try:
        data = charsmap if isinstance(charsmap, bytes) else base64.b64decode(charsmap)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"{location}: precompiled_charsmap is not base64: {error}") from error
    return charsmap_growth(data)


def charsmap_growth(charsmap: bytes) -> float:
    """Give the length of the longest replacement of SentencePiece's compiled rules.

    They are a table, whose size precedes it, then the replacements, each ended by a NUL.
    """
    size = int.from_bytes(charsmap[:4], "little")
    replacements = charsmap[4 + size :].split(b"\0")
    return float(max(len(text.decode("utf-8", "replace")) for text in replacements))


def _prepended_characters(steps: Sequence[Mapping[str, Any]]) -> int:
    written = [step.get("prepend") for step in steps if step.get("type") == "Prepend"]
    return sum(len(text) for text in written if isinstance(text, str))


def _template_tokens(processor: Any) -> int:
    """Count the special tokens that templates put around texts."""
    if isinstance(processor, list):
        return sum(map(_template_tokens, processor))
    if not isinstance(processor, Mapping):
        return 0
    known = processor.get("special_tokens")
    tokens = known.values() if isinstance(known, Mapping) else ()
    ids = [_length(token.get("ids")) for token in tokens if isinstance(token, Mapping)]
    longest = max(_length(processor.get("single")), _length(processor.get("pair")))
    return longest * max([*ids, 1]) + _template_tokens(processor.get("processors"))


def _length(x: Any) -> int:
    return len(x) if isinstance(x, list) else 0
