"""Columns of a table -> texts, words, labels and numbers; errors name file and line."""

import ast
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal, cast

from unmask.tasks.readers.conll import WORDS_COLUMN
from unmask.tasks.readers.tables import Table
from unmask.tasks.task import Label, TaskExample
from unmask.text.formats.records import check_text, describe_value, format_names
from unmask.text.lines import EncodingErrors

TEXT_COLUMNS = (
    "text",
    "sentence",
    "review",
    "question",
    "content",
    "document",
    "body",
    "message",
    "tweet",
)
TEXT_PAIR_COLUMNS = (
    ("sentence1", "sentence2"), ("premise", "hypothesis"), ("question1", "question2"),
    ("sentence_a", "sentence_b"), ("text1", "text2"), ("text_a", "text_b"),
    ("question", "sentence"), ("question", "passage"), ("query", "passage"), ("question", "answer"),
)  # fmt: skip
SENTENCE_COLUMNS = (WORDS_COLUMN, "tokens", "form")
LABEL_COLUMNS = (
    "label", "gold_label", "labels", "class", "category", "target", "sentiment", "intent", "topic",
    "stars", "rating",
)  # fmt: skip
NUMBER_COLUMNS = (
    "score", "relatedness", "relatedness_score", "similarity", "label", "rating", "stars", "target",
    "value",
)  # fmt: skip
TAG_COLUMNS = ("tags", "labels", "ner_tags", "pos_tags", "upos", "ner", "pos")

_BRACKETS = ("[]", "()", "{}")
_CALL = re.compile(r"[\w.]+\((?:[\[({].*)?\)", re.DOTALL)
"""set(), array(['a', 'b'], dtype=object)"""
_LIST_ITEM = re.compile(
    r"""('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d*)?)(?:\s*,\s*|\s+|\Z)"""
)
MAX_NUMBER = 1e30
"""Largest target of regression: float32 ends at 3e38."""


def check_columns(
    table: Table,
    texts: Sequence[str],
    label: str | None,
    allowed_counts: Sequence[int],
    task_kind: str,
) -> None:
    """Check the given columns; of text, none or as many as the kind of task reads.

    Raises:
        ValueError: a column does not exist, or there are too few or too many.
    """
    for name in (*texts, *([label] if label else ())):
        table.check_column(name)
    if texts and len(texts) not in allowed_counts:
        raise ValueError(
            f"{task_kind} reads {' or '.join(map(str, allowed_counts))} columns of text, "
            f"got {len(texts)}: {format_names(texts)}"
        )


def find_column(
    table: Table,
    usual_names: Sequence[str],
    purpose: str,
    *,
    excluded: Sequence[str] = (),
    option: Literal["text", "label"] = "text",
) -> str:
    """Find a column by its usual names.

    Args:
        table: the file.
        usual_names: candidate names, the most likely first.
        purpose: contents of the column, for messages.
        excluded: columns with other roles.
        option: the option that names it.

    Raises:
        ValueError: there is none; lists the columns.
    """
    by_name = {name.lower(): name for name in reversed(table.columns) if name not in excluded}
    for name in usual_names:
        if name in by_name:
            return by_name[name]
    raise ValueError(
        f"{table.path}: which column holds the {purpose}? None is called {purpose!r} or the like; "
        f"{table.column_hint(option)}"
    )


def find_column_pair(
    table: Table, usual_names: Sequence[tuple[str, str]]
) -> tuple[str, str] | None:
    """Find two columns by their usual names, if they exist."""
    by_name = {name.lower(): name for name in reversed(table.columns)}
    for first, second in usual_names:
        if first in by_name and second in by_name:
            return by_name[first], by_name[second]
    return None


def read_texts(
    table: Table, columns: Sequence[str], encoding_errors: EncodingErrors
) -> list[tuple[str, ...]]:
    """Read columns of text.

    Args:
        table: the file.
        columns: their names.
        encoding_errors: treatment of NULs and lone surrogates.

    Raises:
        ValueError: a value is no text, with file and line.
    """
    values = zip(*(table.column(name) for name in columns), strict=True)
    return [
        tuple(
            check_text(v, table.location(i), c, encoding_errors)
            for v, c in zip(row, columns, strict=True)
        )
        for i, row in enumerate(values)
    ]


def parse_list_text(value: object, column: str, location: str) -> object:
    """Return the list that a text is: of JSON, Python or NumPy, as pandas writes it into a cell.

    Other values, and texts without brackets around them, are returned.

    Raises:
        ValueError: a text in brackets or braces is no list of texts and numbers.
    """
    text = value.strip() if isinstance(value, str) else ""
    is_called = _CALL.fullmatch(text) is not None
    if text[:1] + text[-1:] not in _BRACKETS and not is_called:
        return value
    try:
        items = json.loads(text)
    except (ValueError, RecursionError):
        items = None if is_called else _read_literals(text[1:-1].strip())
    if isinstance(items, list):
        return cast("list[object]", items)
    if text[0] == "(":  # a label may be in parentheses
        return value
    raise ValueError(
        f"{location}: {column!r} must be a list of quoted texts, got {describe_value(value)}"
    )


def _read_literals(text: str) -> list[object] | None:
    """Read texts in quotes and numbers, parted by commas or white space; None: there is more."""
    items: list[object] = []
    position = 0
    while position < len(text):
        match = _LIST_ITEM.match(text, position)
        if match is None:
            return None
        try:
            items.append(ast.literal_eval(match[1]))
        except (ValueError, SyntaxError):  # a line break, an escape, leading zeros
            return None
        position = match.end()
    return items


def parse_words(
    value: object, column: str, location: str, encoding_errors: EncodingErrors
) -> tuple[str, ...]:
    """Read the words of a sentence."""
    value = parse_list_text(value, column, location)
    if not isinstance(value, list | tuple):
        raise ValueError(
            f"{location}: {column!r} must be a list of words, got {describe_value(value)}"
        )
    return tuple(
        check_text(word, location, column, encoding_errors) for word in cast("list[object]", value)
    )


def parse_tags(value: object, column: str, location: str, n_words: int) -> tuple[str, ...]:
    """Read the tags of a sentence of `n_words` words."""
    value = parse_list_text(value, column, location)
    if not isinstance(value, list | tuple):
        raise ValueError(
            f"{location}: {column!r} must be a list of tags, got {describe_value(value)}"
        )
    tags = tuple(parse_label(tag, column, location) for tag in cast("list[object]", value))
    if len(tags) != n_words:
        raise ValueError(f"{location}: {n_words} words, but {len(tags)} tags in {column!r}")
    return tags


def parse_label(value: object, column: str, location: str) -> str:
    """Parse a label as text; 1 and 1.0 are the same label."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, float) and not math.isfinite(value):  # missing values in tables
        raise ValueError(f"{location}: no label in column {column!r}, but {value}")
    if isinstance(value, int | float):
        return str(value)
    text = check_text(value, location, column, "strict").strip()
    if not text:
        raise ValueError(f"{location}: no label in column {column!r}")
    return text


def parse_number(value: object, column: str, location: str) -> float:
    """Read a number."""
    try:
        number = float(cast("str | float", value))
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if isinstance(value, bool) or not math.isfinite(number):
        raise ValueError(f"{location}: {column!r} must be a number, got {describe_value(value)}")
    if abs(number) > MAX_NUMBER:
        raise ValueError(
            f"{location}: {column!r} must be at most {MAX_NUMBER:g}, got {describe_value(value)}"
        )
    return number


def find_labels(examples: Sequence[TaskExample], location: object) -> tuple[str, ...]:
    """List the labels that occur, sorted by value if all are integers, else alphabetically.

    Raises:
        ValueError: there is but one.
    """
    labels = {t for item in examples for t in example_labels(item)}
    if len(labels) < 2:
        only = f"only one label, {next(iter(labels))!r}" if labels else "no label"
        raise ValueError(f"{location}: {only} in {len(examples)} rows; there is nothing to learn")
    if all(label.removeprefix("-").isdecimal() and label.isascii() for label in labels):
        return tuple(sorted(labels, key=lambda label: (int(label), label)))
    return tuple(sorted(labels))


def with_label_names(examples: Sequence[TaskExample], names: Sequence[str]) -> list[TaskExample]:
    """Replace labels that are indices 0, 1, ... into `names` by the names.

    That is if every label is an integer from 0 to below the number of names, and none is a name
    itself; other labels are unchanged.
    """
    labels = {label for item in examples for label in example_labels(item)}
    by_index = {str(index): name for index, name in enumerate(names)}
    if not labels <= set(by_index) or labels & set(names):
        return list(examples)
    return [replace(item, label=_label_name(item.label, by_index)) for item in examples]


def _label_name(class_number: Label | None, by_index: Mapping[str, str]) -> Label | None:
    if isinstance(class_number, tuple):
        return tuple(by_index[label] for label in class_number)
    return by_index[class_number] if isinstance(class_number, str) else class_number


def check_labels(examples: Sequence[TaskExample], labels: Sequence[str], column: str) -> None:
    """Check that all labels are known.

    Raises:
        ValueError: a label is unknown, with file and line.
    """
    allowed = set(labels)
    for item in examples:
        for label in example_labels(item):
            if label not in allowed:
                raise ValueError(
                    f"{item.location}: label {label!r} in column {column!r} must be one of "
                    f"{format_names(labels)}; the option labels sets them in fine-tuning"
                )


def example_labels(example: TaskExample) -> tuple[str, ...]:
    """List the labels of an item: one, or one for each word."""
    if isinstance(example.label, tuple):
        return example.label
    return (example.label,) if isinstance(example.label, str) else ()


def check_numbers_differ(examples: Sequence[TaskExample], location: object) -> None:
    """Check that numbers differ.

    Raises:
        ValueError: they do not.
    """
    numbers = {item.label for item in examples}
    if len(numbers) < 2:
        only = next(iter(numbers), None)
        raise ValueError(
            f"{location}: all {len(examples)} numbers are {only}; there is nothing to learn"
        )
