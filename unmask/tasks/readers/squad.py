"""SQuAD's nested files -> rows, and answers in both of their formats.

The format is that of Rajpurkar et al. 2016, arXiv:1606.05250, with "is_impossible" from version 2
(Rajpurkar et al. 2018, arXiv:1806.03822).
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, cast

from unmask.text.formats.records import check_text, describe_value, format_names
from unmask.text.lines import EncodingErrors

SQUAD_COLUMNS = ("id", "title", "context", "question", "answers", "is_impossible")

Fields = Mapping[str, object]


def is_squad_format(data: Sequence[object]) -> bool:
    """Return whether a file's "data" is a list of articles with paragraphs, as in SQuAD."""
    return bool(data) and isinstance(data[0], dict) and "paragraphs" in data[0]


def read_questions(data: Sequence[object], path: Path) -> Iterator[tuple[str, tuple[object, ...]]]:
    """Yield the location of each question and its values of `SQUAD_COLUMNS`, None if missing.

    Raises:
        ValueError: a value is invalid, with its path in the file.
    """
    ids: set[str] = set()
    for i, article in enumerate(data):
        location = f"{path}: data[{i}]"
        fields = _require_object(article, location)
        title = _optional(fields, "title", str, location)
        for j, paragraph in enumerate(_require_list(fields, "paragraphs", location)):
            place = f"{location}.paragraphs[{j}]"
            contents = _require_object(paragraph, place)
            context = _require_text(contents, "context", place)
            for k, record in enumerate(_require_list(contents, "qas", place)):
                row = _read_question(record, title, context, f"{place}.qas[{k}]", path)
                identifier = row[1][0]
                if identifier in ids:
                    raise ValueError(f"{path}: two questions have the id {identifier!r}")
                if isinstance(identifier, str):
                    ids.add(identifier)
                yield row


def _read_question(
    record: object, title: object, context: str, location: str, path: Path
) -> tuple[str, tuple[object, ...]]:
    fields = _require_object(record, location)
    question, identifier = (
        _require_text(fields, "question", location),
        _question_id(fields, location),
    )
    answers = fields.get("answers")
    if answers is not None:
        _require_list(fields, "answers", location)
        for n, answer in enumerate(cast("list[object]", answers)):
            _parse_answer(answer, f"{location}.answers[{n}]", "replace")
    impossible = _optional(fields, "is_impossible", bool, location)
    name = location.removeprefix(f"{path}: ") if identifier is None else f"question {identifier!r}"
    return name, (identifier, title, context, question, answers, impossible)


def parse_answers(
    value: object, location: str, encoding_errors: EncodingErrors = "strict"
) -> list[tuple[str, int]]:
    """Read the answers to a question as (text, start character); [] if there are none.

    Args:
        value: SQuAD's list of {"text", "answer_start"}, or {"text": [...], "answer_start": [...]},
            as in data sets of the Hub.
        location: file and line, for messages.
        encoding_errors: treatment of NULs and lone surrogates.

    Raises:
        ValueError: it is neither.
    """
    if isinstance(value, dict):
        return _parse_answer_lists(cast("dict[str, object]", value), location, encoding_errors)
    if not isinstance(value, list | tuple):
        received = "there is none" if value is None else f"got {describe_value(value)}"
        raise ValueError(
            f"{location}: answers must be a list of objects with 'text' and 'answer_start', or one "
            f"object with a list of each; {received}"
        )
    listed = enumerate(cast("Sequence[object]", value))
    return [
        _parse_answer(answer, f"{location}: answers[{n}]", encoding_errors) for n, answer in listed
    ]


def _parse_answer_lists(
    fields: Fields, location: str, encoding_errors: EncodingErrors
) -> list[tuple[str, int]]:
    prefix = f"{location}: answers"
    texts, starts = (_require_list(fields, key, prefix) for key in ("text", "answer_start"))
    if len(texts) != len(starts):
        raise ValueError(f"{prefix}: {len(texts)} texts, but {len(starts)} in 'answer_start'")
    pairs = enumerate(zip(texts, starts, strict=True))
    return [
        _parse_answer({"text": text, "answer_start": start}, f"{prefix}[{n}]", encoding_errors)
        for n, (text, start) in pairs
    ]


def _parse_answer(
    answer: object, location: str, encoding_errors: EncodingErrors
) -> tuple[str, int]:
    fields = _require_object(answer, location)
    start = _require_key(fields, "answer_start", location)
    if isinstance(start, bool) or not isinstance(start, int) or start < 0:
        raise ValueError(
            f"{location}.answer_start must be a character index, from 0, got "
            f"{describe_value(start)}"
        )
    return check_text(
        _require_text(fields, "text", location), location, "text", encoding_errors
    ), start


def _require_object(value: object, location: str) -> Fields:
    if not isinstance(value, dict):
        raise ValueError(f"{location} must be an object, got {describe_value(value)}")
    return cast("dict[str, object]", value)


def _require_key(fields: Fields, key: str, location: str) -> object:
    if key not in fields:
        raise ValueError(f"{location} lacks {key!r} (it has {format_names(fields)})")
    return fields[key]


def _require_list(fields: Fields, key: str, location: str) -> list[object]:
    value = _require_key(fields, key, location)
    if not isinstance(value, list):
        raise ValueError(f"{location}.{key} must be a list, got {describe_value(value)}")
    return cast("list[object]", value)


def _require_text(fields: Fields, key: str, location: str) -> str:
    value = _require_key(fields, key, location)
    if not isinstance(value, str):
        raise ValueError(f"{location}.{key} must be text, got {describe_value(value)}")
    return value


def _optional(
    fields: Fields, key: Literal["title", "is_impossible"], expected_type: type, location: str
) -> object:
    value = fields.get(key)
    if value is not None and not isinstance(value, expected_type):
        expected = "text" if expected_type is str else "true or false"
        raise ValueError(f"{location}.{key} must be {expected}, got {describe_value(value)}")
    return value


def _question_id(fields: Fields, location: str) -> str | None:
    """Read the id of a question, which is a number in some files."""
    value = fields.get("id")
    if value is not None and (isinstance(value, bool) or not isinstance(value, str | int)):
        raise ValueError(f"{location}.id must be text, got {describe_value(value)}")
    return None if value is None else str(value)
