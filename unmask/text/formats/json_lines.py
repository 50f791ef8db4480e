"""JSON Lines: one object a line."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import cast

from unmask.files import parse_json
from unmask.text.formats.long_json import LongLine, join_lines
from unmask.text.formats.records import (
    MAX_RECORD_CHARACTERS,
    TextInPieces,
    TextRecord,
    check_column,
    check_text,
    describe_value,
    format_error,
    read_whole_lines,
    too_long_record,
)
from unmask.text.lines import BlankLines, EncodingErrors, is_blank, read_decoded

_LONG_JSON_CHARACTERS = 2**22
_MAX_JSON_VALUES = 2**20  # values in a JSON object of more than that many characters
_JSON_STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"')


def _with_unique_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        twice = next(key for i, (key, _) in enumerate(pairs) if key in dict(pairs[:i]))
        raise ValueError(f"an object has the key {twice!r} twice")
    return fields


decode_record = json.JSONDecoder(object_pairs_hook=_with_unique_keys).decode
"""Decodes JSON that is data: of a key that comes twice, neither value may be dropped unnoticed."""


def read_jsonl(
    path: Path,
    column: str,
    encoding_errors: EncodingErrors = "strict",
    blank_lines: BlankLines | None = None,
) -> Iterator[TextRecord]:
    """Read one JSON object a line.

    With `blank_lines`, empty texts are yielded, too, and lines that are no record added to it.

    Raises:
        ValueError: a line is no JSON object, has no such column, or its text is no text.
    """
    for number, fields in read_json_rows(path, encoding_errors, blank_lines):
        text = _text_of(fields, f"{path}:{number}", column, encoding_errors)
        if text or blank_lines is not None:
            yield number, text


def read_jsonl_in_pieces(
    path: Path, column: str, encoding_errors: EncodingErrors = "strict"
) -> Iterator[TextInPieces]:
    """Read as `read_jsonl`, a long text in pieces.

    Raises:
        ValueError: see there; of a long text as late as its piece is read.
    """
    pieces = read_decoded(path, encoding_errors)
    lines = join_lines(pieces, lambda number: too_long_record(path, number), MAX_RECORD_CHARACTERS)
    for number, line in lines:
        where = f"{path}:{number}"
        if not isinstance(line, str):
            yield number, _long_text(LongLine(line), where, column, encoding_errors)
        elif not is_blank(line):
            yield number, [_text_of(_parse_object(line, where), where, column, encoding_errors)]


def _long_text(
    long: LongLine, where: str, column: str, encoding_errors: EncodingErrors
) -> Iterator[str]:
    """Yield the text of a long line; an error is that of reading all of it at once."""
    line, spans = long.without_long_strings()
    try:
        fields = _parse_object(line, where)
        value = fields.get(column)
        span = spans.get(value) if isinstance(value, str) else None
        pieces = [] if span is None else long.decoded(*span)
        if span is None:
            yield _text_of(fields, where, column, encoding_errors)
        for piece in pieces:
            yield check_text(piece, where, column, encoding_errors)
    except ValueError:
        _text_of(_parse_object(long.line.decode(), where), where, column, encoding_errors)
        raise


def _text_of(
    fields: dict[str, object], where: str, column: str, encoding_errors: EncodingErrors
) -> str:
    if column not in fields:
        check_column(where, column, list(fields))
    return check_text(fields[column], where, column, encoding_errors)


def read_json_rows(
    path: Path, encoding_errors: EncodingErrors, blank_lines: BlankLines | None = None
) -> Iterator[tuple[int, dict[str, object]]]:
    """Yield the objects of a file that holds one a line, and their lines; blank ones are skipped.

    Those are added to `blank_lines`.

    Raises:
        ValueError: a line is no JSON object, is nested too deeply, or has too many values.
    """
    blank_lines = blank_lines or BlankLines()
    for number, line in read_whole_lines(path, encoding_errors):
        if is_blank(line):
            blank_lines.add(number)
            continue
        yield number, _parse_object(line, f"{path}:{number}")


def _parse_object(line: str, where: str) -> dict[str, object]:
    record = _parse_json_line(line, where)
    if not isinstance(record, dict):
        raise ValueError(
            f"{where}: a line of .jsonl must be an object, got {describe_value(record)}"
        )
    return cast(dict[str, object], record)


def has_more_values(text: str, most: int) -> bool:
    """Return whether JSON has more than `most` values; each takes up to 80 times its length."""
    return _count_openings(text) > most and _count_openings(_JSON_STRING.sub("", text)) > most


def _count_openings(text: str) -> int:
    return sum(map(text.count, ",[{"))


def _parse_json_line(line: str, where: str) -> object:
    if len(line) > _LONG_JSON_CHARACTERS and has_more_values(line, _MAX_JSON_VALUES):
        raise ValueError(f"{where}: a JSON object of more than {_MAX_JSON_VALUES} values")
    try:
        return parse_json(line, decode_record)
    except json.JSONDecodeError as error:
        raise ValueError(
            f"{where}: malformed JSON: {error.msg} at character {error.colno} of the line; "
            ".jsonl holds one whole object a line"
        ) from error
    except ValueError as error:  # nested too deeply, or an integer of thousands of digits
        raise ValueError(f"{where}: malformed JSON: {format_error(error)}") from error
