"""JSON files -> rows of a table: lists of objects, JSON lines, or SQuAD's articles."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import cast

from unmask.files import parse_json
from unmask.tasks.readers import squad
from unmask.text.formats import records
from unmask.text.formats.json_lines import decode_record, has_more_values, read_json_rows
from unmask.text.formats.records import TableRow, describe_value, format_error, format_names
from unmask.text.lines import BlankLines, EncodingErrors, is_blank, read_decoded

_MAX_JSON_VALUES = 2**23  # values in a .json file
_MAX_EXPANSION, _EXPANSION_ALLOWANCE = 16, 2**20
"""Maximum fields of a table made of records: this multiple of those in the file, plus an
allowance."""


def read_jsonl_table(
    path: Path, encoding_errors: EncodingErrors, blank_lines: BlankLines
) -> tuple[tuple[str, ...], list[TableRow]]:
    """Read JSON lines as rows, and add the blank lines to `blank_lines`.

    Raises:
        ValueError: a line is no JSON object, or objects have too few keys in common.
    """
    return _rows_of_records(path, list(read_json_rows(path, encoding_errors, blank_lines)))


def _rows_of_records(
    path: Path, records: Sequence[tuple[int | str, dict[str, object]]]
) -> tuple[tuple[str, ...], list[TableRow]]:
    """Make rows of records: all keys are columns, missing values are None.

    Raises:
        ValueError: records share so few keys that the table would be mostly empty.
    """
    keys: dict[str, None] = {}
    for _, fields in records:
        keys |= dict.fromkeys(fields)
    n_values = sum(len(fields) for _, fields in records)
    if len(keys) * len(records) > _MAX_EXPANSION * n_values + _EXPANSION_ALLOWANCE:
        raise ValueError(
            f"{path}: {len(records):,} rows have {len(keys):,} different keys, each only some "
            f"of them ({format_names(keys)}): keys are names of columns, which all rows have"
        )
    return tuple(keys), [(n, tuple(fields.get(k) for k in keys)) for n, fields in records]


def read_json_table(
    path: Path, encoding_errors: EncodingErrors
) -> tuple[tuple[str, ...], list[TableRow]]:
    """Read a list of objects, alone or as "data" of an object, or SQuAD's articles, as rows.

    Raises:
        ValueError: the file is none of these, is too large, or objects share too few keys.
    """
    data = _parse_json(path, _read_whole(path, encoding_errors))
    location = ""
    if isinstance(data, dict):
        fields = cast("dict[str, object]", data)
        if "data" not in fields:
            raise ValueError(
                f"{path}: a .json file must be a list of objects, or an object with such a list as "
                f"'data'; got an object with {format_names(fields)}"
            )
        data, location = fields["data"], "data"
    if not isinstance(data, list):
        raise ValueError(
            f"{path}: {location or 'the file'} must be a list of objects, "
            f"got {describe_value(data)}"
        )
    records_read = cast("list[object]", data)
    if squad.is_squad_format(records_read):
        return squad.SQUAD_COLUMNS, list(squad.read_questions(records_read, path))
    return _rows_of_objects(records_read, location, path)


def _rows_of_objects(
    records_read: Sequence[object], location: str, path: Path
) -> tuple[tuple[str, ...], list[TableRow]]:
    for i, record in enumerate(records_read):
        if not isinstance(record, dict):
            raise ValueError(
                f"{path}: {location}[{i}] must be an object, got {describe_value(record)}"
            )
    objects = cast("Sequence[dict[str, object]]", records_read)
    return _rows_of_records(
        path, [(f"{location}[{i}]", record) for i, record in enumerate(objects)]
    )


def _read_whole(path: Path, encoding_errors: EncodingErrors) -> str:
    """Read a file that must be parsed as a whole, if it fits into memory."""
    parts: list[str] = []
    size = 0
    for text in read_decoded(path, encoding_errors):
        parts.append(text)
        size += len(text)
        if size > records.MAX_RECORD_CHARACTERS:
            raise ValueError(
                f"{path}: a .json file of more than {records.MAX_RECORD_CHARACTERS:,} characters; "
                "write it as .jsonl"
            )
    text = "".join(parts)
    if has_more_values(text, _MAX_JSON_VALUES):
        raise ValueError(
            f"{path}: more than {_MAX_JSON_VALUES:,} values in .json; write it as .jsonl"
        )
    return text


def _parse_json(path: Path, text: str) -> object:
    if is_blank(text):
        raise ValueError(f"{path}: the file is empty")
    try:
        return parse_json(text, decode_record)
    except json.JSONDecodeError as error:
        reason = f"{error.msg} at character {error.colno} of the line"
        if error.msg == "Extra data":
            reason += "; a file of one object a line is named .jsonl"
        elif error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated"):
            reason += "; the file ends too early"
        raise ValueError(f"{path}:{error.lineno}: malformed JSON: {reason}") from None
    except ValueError as error:  # nested too deeply, or an integer of thousands of digits
        raise ValueError(f"{path}: malformed JSON: {format_error(error)}") from None
