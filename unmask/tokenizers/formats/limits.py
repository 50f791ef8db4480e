"""Limits on tokenizer files: growth of texts, number of steps, sizes.

An untrusted file can have rules that double a text twenty times; the `tokenizers` library then
exhausts the memory, and the process is killed without a message. So the effect of rules is bounded
before any text is encoded. Failures of the library become errors that name the file.
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
"""Maximum growth factor of a text. The longest replacement of Unicode's NFKC has 18 characters for
one."""
MAX_STEPS = 500
"""Maximum steps of a normalizer, pre-tokenizer or decoder."""
MAX_TEMPLATE_TOKENS = 100
"""Maximum special tokens around a text."""
MAX_PREPENDED_CHARACTERS = 10_000
"""Maximum characters prepended to a text, in total."""
_PROBE_TEXTS = ("", "a", "a b", " ", "A.1", "\n", "é中")


@contextmanager
def tokenizers_errors_as_value_error(
    location: str, *, hide_output: bool = False
) -> Generator[None]:
    """Convert errors of the `tokenizers` library to a ValueError of one line.

    Only for calls of that library. It raises plain Exception, or, for its own bugs,
    `pyo3_runtime.PanicException`, which is no Exception and cannot be imported.

    Args:
        location: the file and the operation.
        hide_output: suppress what the library prints when it fails.

    Raises:
        ValueError: the library failed.
    """
    try:
        with _stderr_captured() if hide_output else nullcontext():
            yield
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__module__ != "pyo3_runtime":
            raise
        message = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(f"{location}: {message[:300]}") from error


@contextmanager
def _stderr_captured() -> Generator[None]:
    """Capture standard error; it is printed afterwards if nothing failed."""
    try:
        stderr_copy = os.dup(2)
    except OSError:  # there is no standard error
        yield
        return
    with tempfile.TemporaryFile() as aside:
        os.dup2(aside.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(stderr_copy, 2)
            os.close(stderr_copy)
        aside.seek(0)
        if output := aside.read():
            os.write(2, output)


def check_pipeline_limits(path: object, state: Mapping[str, Any]) -> None:
    """Reject a pipeline with too many rules, or with rules that could make a text too long.

    Args:
        path: the file, for messages.
        state: tokenizer.json as unchecked plain data.

    Raises:
        ValueError: a limit is exceeded; the message names file and key.
    """
    for key, inner in _PIPELINE_PARTS.items():
        steps = _flatten_steps(state.get(key), inner)
        if len(steps) > MAX_STEPS:
            raise ValueError(
                f"{path}: {key} must have at most {MAX_STEPS} steps, got {len(steps):,}"
            )
        growth, before = _max_growth(f"{path}: {key}", steps), _prepended_characters(steps)
        if growth > MAX_GROWTH:
            raise ValueError(
                f"{path}: {key} can make a text {growth:,.0f} times as long; at most "
                f"{MAX_GROWTH} times is allowed"
            )
        if before > MAX_PREPENDED_CHARACTERS:
            raise ValueError(
                f"{path}: {key} prepends {before:,} characters to each text; at most "
                f"{MAX_PREPENDED_CHARACTERS:,} are allowed"
            )
    around = _template_tokens(state.get("post_processor"))
    if around > MAX_TEMPLATE_TOKENS:
        raise ValueError(
            f"{path}: post_processor adds {around:,} special tokens to a text; at most "
            f"{MAX_TEMPLATE_TOKENS} are allowed"
        )


_PIPELINE_PARTS = {
    "normalizer": "normalizers",
    "pre_tokenizer": "pretokenizers",
    "decoder": "decoders",
}


def _flatten_steps(part: Any, steps_key: str) -> list[Mapping[str, Any]]:
    """List the steps of a component in order, with sequences flattened."""
    flat: list[Mapping[str, Any]] = []
    stack = [part]
    while stack and len(flat) <= MAX_STEPS:
        step = stack.pop()
        if not isinstance(step, Mapping):
            continue
        if isinstance(within := step.get(steps_key), list):
            stack += reversed(within)
        else:
            flat.append(step)
    return flat


def _max_growth(location: str, steps: Sequence[Mapping[str, Any]]) -> float:
    """Return an upper bound of the growth factor of a text by consecutive steps.

    A rule that replaces a string can lengthen the output of an earlier one only if that has one of
    its characters; a regular expression is assumed to match.
    """
    reached: list[tuple[float, str | None]] = []  # factor so far, and the text written; None: any
    for step in steps:
        factor, pattern, written = _step_growth(location, step)
        if factor <= 1:
            continue
        before = (
            f for f, text in reached if pattern is None or text is None or {*pattern} & {*text}
        )
        reached.append((factor * max(before, default=1.0), written))
    return max((factor for factor, _ in reached), default=1.0)


def _step_growth(location: str, step: Mapping[str, Any]) -> tuple[float, str | None, str | None]:
    """Return a step's growth factor, its pattern, and its output; None: any text."""
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
    """Return whether a regular expression matches the empty string in some text."""
    with tokenizers_errors_as_value_error(f"{location}: the regular expression {rule[:80]!r}"):
        mark = normalizers.Replace(Regex(rule), "\0")
        return any(
            len(result.replace("\0", "")) + result.count("\0") > len(probe)
            for probe in _PROBE_TEXTS
            if (result := mark.normalize_str(probe))
        )


def _precompiled_growth(location: str, charsmap: Any) -> float:
    """Return the length of the longest replacement in base64-encoded compiled rules."""
    if not isinstance(charsmap, str | bytes):
        return 1.0
    try:
        data = charsmap if isinstance(charsmap, bytes) else base64.b64decode(charsmap)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"{location}: precompiled_charsmap is not base64: {error}") from error
    try:
        return charsmap_growth(data)
    except ValueError as error:
        raise ValueError(f"{location}: {error}") from None


def charsmap_growth(charsmap: bytes) -> float:
    """Return the length of the longest replacement in SentencePiece's compiled rules.

    They are a table with its size before it, then replacements that end with a NUL.

    Raises:
        ValueError: the table is larger than what is there, or not of whole numbers, on which the
            library ends the process.
    """
    size = int.from_bytes(charsmap[:4], "little")
    if charsmap and (size > len(charsmap) - 4 or size % 4):
        raise ValueError(
            f"precompiled_charsmap declares a table of {size:,} bytes, of {len(charsmap):,} in all"
        )
    replacements = charsmap[4 + size :].split(b"\0")
    return float(max(len(text.decode("utf-8", "replace")) for text in replacements))


def _prepended_characters(steps: Sequence[Mapping[str, Any]]) -> int:
    written = [step.get("prepend") for step in steps if step.get("type") == "Prepend"]
    return sum(len(text) for text in written if isinstance(text, str))


def _template_tokens(processor: Any) -> int:
    """Count the special tokens that templates add to texts."""
    if isinstance(processor, list):
        return sum(map(_template_tokens, processor))
    if not isinstance(processor, Mapping):
        return 0
    special_tokens = processor.get("special_tokens")
    tokens = special_tokens.values() if isinstance(special_tokens, Mapping) else ()
    ids = [_length(token.get("ids")) for token in tokens if isinstance(token, Mapping)]
    longest = max(_length(processor.get("single")), _length(processor.get("pair")))
    return longest * max([*ids, 1]) + _template_tokens(processor.get("processors"))


def _length(x: Any) -> int:
    return len(x) if isinstance(x, list) else 0
