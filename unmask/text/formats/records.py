"""Records of text in any format: their limits, what a text may hold, and words for messages."""

import re
import reprlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from unmask.text.lines import REPLACE_HINT, EncodingErrors, read_lines, replace_nul

MAX_RECORD_CHARACTERS = 2**27
"""Characters that a record may have: unlike a line of plain text it is understood only whole."""

TextRecord = tuple[int, str]
"""The line at which a record begins (its row, where there are no lines), from 1, and its text."""

TextInPieces = tuple[int, Iterable[str]]
"""The same with the text in pieces, which are read before the next record."""

TableRow = tuple[int | str, tuple[object, ...]]
"""A row of a table: the line at which it begins (in Parquet its number), from 1, or its location in
words; and its fields, which are lists where a row is a sentence."""

_SURROGATE = re.compile("[\ud800-\udfff]")
_SHORT_REPR = reprlib.Repr()
_SHORT_REPR.maxstring = _SHORT_REPR.maxother = 60


def check_text(value: object, where: str, column: str, encoding_errors: EncodingErrors) -> str:
    """Check that the value of a column is text; nothing (null) is empty text.

    Raises:
        ValueError: it is something else, or holds NULs or lone surrogates and `encoding_errors` is
            "strict".
    """
    if value is None:
        return ""
    if not isinstance(value, str):
        raise ValueError(f"{where}: {column!r} must be text, got {describe_value(value)}")
    if "\0" in value:
        value = replace_nul(value, where, encoding_errors)
    if not value.isascii():
        value = _without_surrogates(value, where, encoding_errors)
    return value


def _without_surrogates(text: str, where: str, encoding_errors: EncodingErrors) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        if encoding_errors == "replace":
            return _SURROGATE.sub("\ufffd", text)
        found = f"\\u{ord(text[error.start]):04x}"
        raise ValueError(
            f"{where}: a lone surrogate ({found}), which is no character {REPLACE_HINT}"
        ) from error
    return text


def read_whole_lines(path: Path, encoding_errors: EncodingErrors) -> Iterator[TextRecord]:
    """Yield the lines of a file of which each is understood only whole, numbered from 1.

    Raises:
        ValueError: one has more than `MAX_RECORD_CHARACTERS` characters, or as of `read_lines`.
    """
    for number, line, goes_on in read_lines(path, MAX_RECORD_CHARACTERS, encoding_errors):
        if goes_on:
            raise too_long_record(path, number)
        yield number, line


def too_long_record(path: Path, number: int) -> ValueError:
    """Return what is raised of a record that is too long."""
    return ValueError(
        f"{path}:{number}: a record of more than {MAX_RECORD_CHARACTERS} characters; "
        "cut it into several, or write it as .txt"
    )


def check_column(where: object, column: str, columns: Sequence[str]) -> None:
    """Check that there is exactly one column of this name.

    Raises:
        ValueError: there is none, or there are several.
    """
    if column not in columns:
        raise ValueError(
            f"{where}: no column {column!r}, only {format_names(columns)}; rename the one that "
            "holds the text, or name it (--text of pretrain, prepare and evaluate)"
        )
    if columns.count(column) > 1:
        raise ValueError(f"{where}: several columns {column!r} ({format_names(columns)})")


def format_names(names: Iterable[str]) -> str:
    """Write names for a message, the first twenty of them."""
    shown = [_SHORT_REPR.repr(name) for name in names]
    more = f" and {len(shown) - 20} more" if len(shown) > 20 else ""
    return ", ".join(shown[:20]) + more or "none"


def describe_value(value: object) -> str:
    """Write a value and its type for a message, in few words however large it is."""
    return f"{type(value).__name__} {_SHORT_REPR.repr(value)}"


def format_error(error: Exception) -> str:
    """Write another library's error for a message of one line."""
    text = " ".join(str(error).split())
    return text if len(text) <= 300 else f"{text[:297]}..."
