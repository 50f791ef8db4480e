"""Questions whose answers stand in a text: SQuAD's nested files -> rows, and answers in both forms.

The form is that of Rajpurkar et al. 2016, arXiv:1606.05250, with "is_impossible" from version 2
(Rajpurkar et al. 2018, arXiv:1806.03822).
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, cast

from unmask.text.lines import EncodingErrors
from unmask.text.records import as_text, listed, named

COLUMNS = ("id", "title", "context", "question", "answers", "is_impossible")

Fields = Mapping[str, object]


def is_nested(data: Sequence[object]) -> bool:
    """Say whether a file's "data" are articles of paragraphs, as SQuAD's are."""
    return bool(data) and isinstance(data[0], dict) and "paragraphs" in data[0]


def questions(data: Sequence[object], path: Path) -> Iterator[tuple[str, tuple[object, ...]]]:
    """Yield of each question where it stands, and the values of `COLUMNS`; None: it has none.

    Raises:
        ValueError: something is not what it should be, with the way to it through the file.
    """
    seen: set[str] = set()
    for i, article in enumerate(data):
        at = f"{path}: data[{i}]"
        fields = _object(article, at)
        title = _optional(fields, "title", str, at)
        for j, paragraph in enumerate(_list(fields, "paragraphs", at)):
            here = f"{at}.paragraphs[{j}]"
            held = _object(paragraph, here)
            context = _text(held, "context", here)
            for k, asked in enumerate(_list(held, "qas", here)):
                row = _question(asked, title, context, f"{here}.qas[{k}]", path)
                number = row[1][0]
                if number in seen:
                    raise ValueError(f"{path}: two questions have the id {number!r}")
                if isinstance(number, str):
                    seen.add(number)
                yield row


def _question(
    asked: object, title: object, context: str, at: str, path: Path
) -> tuple[str, tuple[object, ...]]:
    fields = _object(asked, at)
    question, number = _text(fields, "question", at), _id(fields, at)
    answers = fields.get("answers")
    if answers is not None:
        _list(fields, "answers", at)
        for n, answer in enumerate(cast("list[object]", answers)):
            _answer(answer, f"{at}.answers[{n}]", "replace")
    impossible = _optional(fields, "is_impossible", bool, at)
    place = at.removeprefix(f"{path}: ") if number is None else f"question {number!r}"
    return place, (number, title, context, question, answers, impossible)


def answers_of(
    value: object, where: str, errors: EncodingErrors = "strict"
) -> list[tuple[str, int]]:
    """Read the answers to a question: each with the character at which it begins; [] if none.

    Args:
        value: SQuAD's list of {"text", "answer_start"}, or {"text": [...], "answer_start": [...]},
            as data sets of the Hub have it.
        where: file and line, for messages.
        errors: what becomes of NULs and lone surrogates.

    Raises:
        ValueError: it is neither.
    """
    if isinstance(value, dict):
        return _flattened(cast("dict[str, object]", value), where, errors)
    if not isinstance(value, list | tuple):
        given = "there is none" if value is None else f"got {named(value)}"
        raise ValueError(
            f"{where}: answers must be a list of objects with 'text' and 'answer_start', or one "
            f"object with a list of each; {given}"
        )
    listed = enumerate(cast("Sequence[object]", value))
    return [_answer(answer, f"{where}: answers[{n}]", errors) for n, answer in listed]


def _flattened(fields: Fields, where: str, errors: EncodingErrors) -> list[tuple[str, int]]:
    at = f"{where}: answers"
    texts, starts = (_list(fields, key, at) for key in ("text", "answer_start"))
    if len(texts) != len(starts):
        raise ValueError(f"{at}: {len(texts)} texts, but {len(starts)} in 'answer_start'")
    pairs = enumerate(zip(texts, starts, strict=True))
    return [
        _answer({"text": text, "answer_start": start}, f"{at}[{n}]", errors)
        for n, (text, start) in pairs
    ]


def _answer(answer: object, at: str, errors: EncodingErrors) -> tuple[str, int]:
    fields = _object(answer, at)
    start = _found(fields, "answer_start", at)
    if isinstance(start, bool) or not isinstance(start, int) or start < 0:
        raise ValueError(
            f"{at}.answer_start must be the number of a character, from 0, got {named(start)}"
        )
    return as_text(_text(fields, "text", at), at, "text", errors), start


def _object(value: object, at: str) -> Fields:
    if not isinstance(value, dict):
        raise ValueError(f"{at} must be an object, got {named(value)}")
    return cast("dict[str, object]", value)


def _found(fields: Fields, key: str, at: str) -> object:
    if key not in fields:
        raise ValueError(f"{at} lacks {key!r} (it has {listed(fields)})")
    return fields[key]


def _list(fields: Fields, key: str, at: str) -> list[object]:
    value = _found(fields, key, at)
    if not isinstance(value, list):
        raise ValueError(f"{at}.{key} must be a list, got {named(value)}")
    return cast("list[object]", value)


def _text(fields: Fields, key: str, at: str) -> str:
    value = _found(fields, key, at)
    if not isinstance(value, str):
        raise ValueError(f"{at}.{key} must be text, got {named(value)}")
    return value


def _optional(
    fields: Fields, key: Literal["title", "is_impossible"], kind: type, at: str
) -> object:
    value = fields.get(key)
    if value is not None and not isinstance(value, kind):
        wanted = "text" if kind is str else "true or false"
        raise ValueError(f"{at}.{key} must be {wanted}, got {named(value)}")
    return value


def _id(fields: Fields, at: str) -> str | None:
    """Read the name of a question, which some files write as a number."""
    value = fields.get("id")
    if value is not None and (isinstance(value, bool) or not isinstance(value, str | int)):
        raise ValueError(f"{at}.id must be text, got {named(value)}")
    return None if value is None else str(value)
