"""Questions whose answers are in a text: SQuAD's nested files -> rows, and answers in both forms.

The form is that of Rajpurkar et al. 2016, arXiv:1606.05250, with "is_impossible" from version 2
(Rajpurkar et al. 2018, arXiv:1806.03822).
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, cast

from unmask.text.lines import EncodingErrors
from unmask.text.records import check_text, describe_value, format_names

SQUAD_COLUMNS = ("id", "title", "context", "question", "answers", "is_impossible")

Fields = Mapping[str, object]


def is_squad_format(data: Sequence[object]) -> bool:
    """Return whether a file's "data" are articles of paragraphs, as SQuAD's are."""
    return bool(data) and isinstance(data[0], dict) and "paragraphs" in data[0]


def read_questions(data: Sequence[object], path: Path) -> Iterator[tuple[str, tuple[object, ...]]]:
    """Yield of each question where it is, and the values of `SQUAD_COLUMNS`; None: it has none.

    Raises:
        ValueError: something is not what it should be, with the way to it through the file.
    """
    seen: set[str] = set()
    for i, article in enumerate(data):
        at = f"{path}: data[{i}]"
        fields = _require_object(article, at)
        title = _optional(fields, "title", str, at)
        for j, paragraph in enumerate(_require_list(fields, "paragraphs", at)):
            here = f"{at}.paragraphs[{j}]"
            held = _require_object(paragraph, here)
            context = _require_text(held, "context", here)
            for k, asked in enumerate(_require_list(held, "qas", here)):
                row = _read_question(asked, title, context, f"{here}.qas[{k}]", path)
                number = row[1][0]
                if number in seen:
                    raise ValueError(f"{path}: two questions have the id {number!r}")
                if isinstance(number, str):
                    seen.add(number)
                yield row


def _read_question(
    record: object, title: object, context: str, at: str, path: Path
) -> tuple[str, tuple[object, ...]]:
    fields = _require_object(record, at)
    question, number = _require_text(fields, "question", at), _question_id(fields, at)
    answers = fields.get("answers")
    if answers is not None:
        _require_list(fields, "answers", at)
        for n, answer in enumerate(cast("list[object]", answers)):
            _parse_answer(answer, f"{at}.answers[{n}]", "replace")
    impossible = _optional(fields, "is_impossible", bool, at)
    place = at.removeprefix(f"{path}: ") if number is None else f"question {number!r}"
    return place, (number, title, context, question, answers, impossible)


def parse_answers(
    value: object, where: str, encoding_errors: EncodingErrors = "strict"
) -> list[tuple[str, int]]:
    """Read the answers to a question: each with the character at which it begins; [] if none.

    Args:
        value: SQuAD's list of {"text", "answer_start"}, or {"text": [...], "answer_start": [...]},
            as data sets of the Hub have it.
        where: file and line, for messages.
        encoding_errors: what becomes of NULs and lone surrogates.

    Raises:
        ValueError: it is neither.
    """
    if isinstance(value, dict):
        return _parse_answer_lists(cast("dict[str, object]", value), where, encoding_errors)
    if not isinstance(value, list | tuple):
        given = "there is none" if value is None else f"got {describe_value(value)}"
        raise ValueError(
            f"{where}: answers must be a list of objects with 'text' and 'answer_start', or one "
            f"object with a list of each; {given}"
        )
    listed = enumerate(cast("Sequence[object]", value))
    return [
        _parse_answer(answer, f"{where}: answers[{n}]", encoding_errors) for n, answer in listed
    ]


def _parse_answer_lists(
    fields: Fields, where: str, encoding_errors: EncodingErrors
) -> list[tuple[str, int]]:
    at = f"{where}: answers"
    texts, starts = (_require_list(fields, key, at) for key in ("text", "answer_start"))
    if len(texts) != len(starts):
        raise ValueError(f"{at}: {len(texts)} texts, but {len(starts)} in 'answer_start'")
    pairs = enumerate(zip(texts, starts, strict=True))
    return [
        _parse_answer({"text": text, "answer_start": start}, f"{at}[{n}]", encoding_errors)
        for n, (text, start) in pairs
    ]


def _parse_answer(answer: object, at: str, encoding_errors: EncodingErrors) -> tuple[str, int]:
    fields = _require_object(answer, at)
    start = _require_key(fields, "answer_start", at)
    if isinstance(start, bool) or not isinstance(start, int) or start < 0:
        raise ValueError(
            f"{at}.answer_start must be the number of a character, from 0, got "
            f"{describe_value(start)}"
        )
    return check_text(_require_text(fields, "text", at), at, "text", encoding_errors), start


def _require_object(value: object, at: str) -> Fields:
    if not isinstance(value, dict):
        raise ValueError(f"{at} must be an object, got {describe_value(value)}")
    return cast("dict[str, object]", value)


def _require_key(fields: Fields, key: str, at: str) -> object:
    if key not in fields:
        raise ValueError(f"{at} lacks {key!r} (it has {format_names(fields)})")
    return fields[key]


def _require_list(fields: Fields, key: str, at: str) -> list[object]:
    value = _require_key(fields, key, at)
    if not isinstance(value, list):
        raise ValueError(f"{at}.{key} must be a list, got {describe_value(value)}")
    return cast("list[object]", value)


def _require_text(fields: Fields, key: str, at: str) -> str:
    value = _require_key(fields, key, at)
    if not isinstance(value, str):
        raise ValueError(f"{at}.{key} must be text, got {describe_value(value)}")
    return value


def _optional(
    fields: Fields, key: Literal["title", "is_impossible"], expected_type: type, at: str
) -> object:
    value = fields.get(key)
    if value is not None and not isinstance(value, expected_type):
        wanted = "text" if expected_type is str else "true or false"
        raise ValueError(f"{at}.{key} must be {wanted}, got {describe_value(value)}")
    return value


def _question_id(fields: Fields, at: str) -> str | None:
    """Read the name of a question, which some files write as a number."""
    value = fields.get("id")
    if value is not None and (isinstance(value, bool) or not isinstance(value, str | int)):
        raise ValueError(f"{at}.id must be text, got {describe_value(value)}")
    return None if value is None else str(value)
