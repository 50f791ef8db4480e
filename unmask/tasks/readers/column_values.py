"""Columns of a table -> texts, words, labels and numbers, each with its place if it is none."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal, cast

from unmask.tasks.readers.conll import WORDS
from unmask.tasks.readers.tables import Table
from unmask.tasks.task import Item, Truth
from unmask.text.lines import EncodingErrors
from unmask.text.records import as_text, listed, named

ONE_TEXT = (
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
TWO_TEXTS = (
    ("sentence1", "sentence2"), ("premise", "hypothesis"), ("question1", "question2"),
    ("sentence_a", "sentence_b"), ("text1", "text2"), ("text_a", "text_b"),
    ("question", "sentence"), ("question", "passage"), ("query", "passage"), ("question", "answer"),
)  # fmt: skip
SENTENCES = (WORDS, "tokens", "form")
CLASSES = (
    "label", "gold_label", "labels", "class", "category", "target", "sentiment", "intent", "topic",
    "stars", "rating",
)  # fmt: skip
NUMBERS = (
    "score", "relatedness", "relatedness_score", "similarity", "label", "rating", "stars", "target",
    "value",
)  # fmt: skip
TAGS = ("tags", "labels", "ner_tags", "pos_tags", "upos", "ner", "pos")

LARGEST = 1e30
"""Of the numbers that can be learned: float32 ends at 3e38."""


def check(
    table: Table, texts: Sequence[str], label: str | None, counts: Sequence[int], kind: str
) -> None:
    """Check the columns that were named; of text, none or as many as a kind of task reads.

    Raises:
        ValueError: a column does not exist, or there are too few or too many.
    """
    for name in (*texts, *([label] if label else ())):
        table.check(name)
    if texts and len(texts) not in counts:
        raise ValueError(
            f"{kind} reads {' or '.join(map(str, counts))} columns of text, "
            f"got {len(texts)}: {listed(texts)}"
        )


def find_one(
    table: Table,
    customary: Sequence[str],
    what: str,
    *,
    but: Sequence[str] = (),
    option: Literal["text", "label"] = "text",
) -> str:
    """Find a column by its customary names.

    Args:
        table: the file.
        customary: names, the likeliest first.
        what: the column holds, for messages.
        but: columns that are something else.
        option: by which it can be named.

    Raises:
        ValueError: there is none, with the columns that there are.
    """
    by_name = {name.lower(): name for name in reversed(table.columns) if name not in but}
    for name in customary:
        if name in by_name:
            return by_name[name]
    raise ValueError(
        f"{table.path}: which column holds the {what}? None is called {what!r} or the like; "
        f"{table.named_by(option)}"
    )


def find_two(table: Table, customary: Sequence[tuple[str, str]]) -> tuple[str, str] | None:
    """Find two columns by their customary names, if they are there."""
    by_name = {name.lower(): name for name in reversed(table.columns)}
    for one, other in customary:
        if one in by_name and other in by_name:
            return by_name[one], by_name[other]
    return None


def texts(table: Table, columns: Sequence[str], errors: EncodingErrors) -> list[tuple[str, ...]]:
    """Read columns of text.

    Args:
        table: the file.
        columns: by name.
        errors: what becomes of NULs and lone surrogates.

    Raises:
        ValueError: a value is no text, with file and line.
    """
    values = zip(*(table.column(name) for name in columns), strict=True)
    return [
        tuple(as_text(v, table.where(i), c, errors) for v, c in zip(row, columns, strict=True))
        for i, row in enumerate(values)
    ]


def words(value: object, column: str, where: str, errors: EncodingErrors) -> tuple[str, ...]:
    """Read the words of a sentence."""
    if not isinstance(value, list | tuple):
        raise ValueError(f"{where}: {column!r} must be a list of words, got {named(value)}")
    return tuple(as_text(word, where, column, errors) for word in cast("list[object]", value))


def tags(value: object, column: str, where: str, n: int) -> tuple[str, ...]:
    """Read the tags of a sentence of `n` words."""
    if not isinstance(value, list | tuple):
        raise ValueError(f"{where}: {column!r} must be a list of tags, got {named(value)}")
    tags = tuple(label(tag, column, where) for tag in cast("list[object]", value))
    if len(tags) != n:
        raise ValueError(f"{where}: {n} words, but {len(tags)} tags in {column!r}")
    return tags


def label(value: object, column: str, where: str) -> str:
    """Write a label as text; a whole number is the same label whether a file writes 1 or 1.0."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, float) and not math.isfinite(value):  # as tables write what is missing
        raise ValueError(f"{where}: no label in column {column!r}, but {value}")
    if isinstance(value, int | float):
        return str(value)
    text = as_text(value, where, column, "strict").strip()
    if not text:
        raise ValueError(f"{where}: no label in column {column!r}")
    return text


def number(value: object, column: str, where: str) -> float:
    """Read a number."""
    try:
        number = float(cast("str | float", value))
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if isinstance(value, bool) or not math.isfinite(number):
        raise ValueError(f"{where}: {column!r} must be a number, got {named(value)}")
    if abs(number) > LARGEST:
        raise ValueError(f"{where}: {column!r} must be at most {LARGEST:g}, got {named(value)}")
    return number


def labels_of(found: Sequence[Item], where: object) -> tuple[str, ...]:
    """List the labels that occur: by value where all are whole numbers, else by the alphabet.

    Raises:
        ValueError: there is but one.
    """
    labels = {t for item in found for t in labels_in(item)}
    if len(labels) < 2:
        only = f"only one label, {next(iter(labels))!r}" if labels else "no label"
        raise ValueError(f"{where}: {only} in {len(found)} rows; there is nothing to learn")
    if all(label.removeprefix("-").isdecimal() and label.isascii() for label in labels):
        return tuple(sorted(labels, key=lambda label: (int(label), label)))
    return tuple(sorted(labels))


def with_names(found: Sequence[Item], names: Sequence[str]) -> list[Item]:
    """Read the labels of a file as names where they are the places of these: 0, 1 and so on.

    That is so if every label of the file is a whole number from 0 to below the number of names, and
    none is a name itself; labels of any other file stay what they are.
    """
    labels = {label for item in found for label in labels_in(item)}
    by_place = {str(place): name for place, name in enumerate(names)}
    if not labels <= set(by_place) or labels & set(names):
        return list(found)
    return [replace(item, truth=_named(item.truth, by_place)) for item in found]


def _named(truth: Truth | None, by_place: Mapping[str, str]) -> Truth | None:
    if isinstance(truth, tuple):
        return tuple(by_place[label] for label in truth)
    return by_place[truth] if isinstance(truth, str) else truth


def check_labels(found: Sequence[Item], labels: Sequence[str], column: str) -> None:
    """Check that all labels are known.

    Raises:
        ValueError: one is not; it is named, with file and line.
    """
    known = set(labels)
    for item in found:
        for label in labels_in(item):
            if label not in known:
                raise ValueError(
                    f"{item.where}: label {label!r} in column {column!r} is none of those that are "
                    f"known: {listed(labels)}; the option labels names them in fine-tuning"
                )


def labels_in(item: Item) -> tuple[str, ...]:
    """List the labels of an item: one, or one for each word."""
    if isinstance(item.truth, tuple):
        return item.truth
    return (item.truth,) if isinstance(item.truth, str) else ()


def check_varies(found: Sequence[Item], where: object) -> None:
    """Check that numbers differ.

    Raises:
        ValueError: they do not.
    """
    numbers = {item.truth for item in found}
    if len(numbers) < 2:
        only = next(iter(numbers), None)
        raise ValueError(
            f"{where}: the number is {only} in all {len(found)} rows; there is nothing to learn"
        )  # fmt: skip
