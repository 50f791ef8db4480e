"""Which task a table may be for: from its columns, their names and values."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, cast

from unmask.tasks.all_kinds import TASK_KINDS
from unmask.tasks.kind_names import TaskKindName
from unmask.tasks.readers import columns as usual
from unmask.tasks.readers.tables import Table
from unmask.tasks.task import TaskColumns

MAX_CLASSES = 100
"""Distinct values of a column up to which these may be classes."""
_LABEL_NAMES = (
    "kategoria", "etykieta", "klasa", "kategorie", "klasse", "catégorie", "classe", "étiquette",
    "categoría", "clase", "etiqueta", "categoria", "etichetta", "štítek", "třída", "kategória",
    "категория", "метка", "класс",
)  # fmt: skip
"""What columns of labels are called in other languages than English."""
_DATE = re.compile(r"\d{1,4}([-./])\d{1,2}\1\d{1,4}([ T].*)?")
MIN_SENTENCES = 3
"""Of a plain text file that is taken for one of tagged words."""
_LABEL_SIGNS = (",", ";", "|")
_BY_COLUMNS: tuple[tuple[TaskKindName, str], ...] = (
    ("prefer", "pairs of responses, a chosen and a rejected one"),
    ("answer", "questions about a passage, with answers in it"),
    ("choose", "options to choose from"),
    ("instruct", "conversations, or prompts with responses"),
    ("tag", "words with a tag each"),
)
"""Kinds that are told by their columns alone, the most particular first."""

ColumnKind = Literal["empty", "text", "number", "category", "list"]


@dataclass(frozen=True, kw_only=True)
class ColumnFacts:
    """What the values of a column are like."""

    name: str
    kind: ColumnKind
    distinct: int
    missing: int
    mean_characters: float
    example: str


@dataclass(frozen=True, kw_only=True)
class GuessedTask:
    """A task, and why."""

    task: TaskKindName | None
    reason: str
    text: tuple[str, ...] = ()
    label: str | None = None
    choices: tuple[str, ...] = ()
    is_usual: bool = False
    """Whether the task's reader finds these columns without being told."""


def column_facts(table: Table) -> dict[str, ColumnFacts]:
    """Describe each column of a table; of columns of one name, the first."""
    found: dict[str, ColumnFacts] = {}
    for i, name in enumerate(table.columns):
        values = [fields[i] for _, fields in table.rows]
        given = [one for one in values if not is_missing(one)]
        texts = [one if isinstance(one, str) else str(one) for one in given]
        distinct = len(set(texts))
        mean = sum(map(len, texts)) / len(texts) if texts else 0.0
        found.setdefault(
            name,
            ColumnFacts(
                name=name,
                kind=_column_kind(given, distinct, mean),
                distinct=distinct,
                missing=len(values) - len(given),
                mean_characters=round(mean, 1),
                example=texts[0][:80] if texts else "",
            ),
        )
    return found


def is_missing(value: object) -> bool:
    """Return whether a cell has no value, or blanks alone."""
    return value is None or (isinstance(value, str) and not value.strip())


def _column_kind(values: Sequence[object], distinct: int, mean: float) -> ColumnKind:
    if not values:
        return "empty"
    if any(isinstance(one, list | tuple | dict) for one in values):
        return "list"
    few = distinct <= MAX_CLASSES and 2 * distinct <= len(values)
    if all(_number(one) is not None for one in values):
        return "category" if few and all(_is_whole(one) for one in values) else "number"
    return "category" if few and mean <= 60 else "text"


def _number(value: object) -> float | None:
    try:
        return float(value) if isinstance(value, int | float | str) else None
    except ValueError:
        return None


def _is_whole(value: object) -> bool:
    number = _number(value)
    return number is not None and number.is_integer()


def guess_task(
    table: Table,
    facts: Mapping[str, ColumnFacts],
    given_texts: Sequence[str] = (),
    given_label: str | None = None,
    given_choices: Sequence[str] = (),
) -> GuessedTask:
    """Guess what may be learned of a table: by the columns that each kind of task looks for.

    Columns that are given lead: a kind of task that would read others is not guessed.
    """
    for task, what in _BY_COLUMNS:
        if given_choices and task != "choose":
            continue
        columns = _found(table, task)
        if given_choices and columns is None:
            columns = _options_that_are_told(facts, given_texts, given_label, given_choices)
        if columns is not None and _reads(columns, given_texts, given_label):
            if task == "tag" and not _has_lists(facts, columns):
                continue  # a column "words" of texts
            names = ", ".join([*columns.texts, *columns.choices])
            label = columns.label if columns.label in facts else None
            return GuessedTask(
                task=task, reason=f"{what}: {names}", text=columns.texts, label=label,
                choices=columns.choices, is_usual=not given_choices,
            )  # fmt: skip
    label = given_label if given_label in facts else _label_column(facts, given_texts)
    pair = usual.find_column_pair(table, usual.TEXT_PAIR_COLUMNS)
    usual_texts = pair if pair is not None and label not in pair else _text_columns(facts, label)
    texts = tuple(one for one in given_texts if one in facts) or usual_texts
    if not texts:
        return GuessedTask(task=None, reason="no column holds texts")
    if label is None:
        written = _found(table, "generate")
        if written is not None and written.label in facts:
            return GuessedTask(
                task="generate", text=written.texts, label=written.label,
                reason=f"a text in {written.texts[0]!r}, and another to be written of it in "
                f"{written.label!r}",
            )  # fmt: skip
        if len(texts) == 1 and (two := _parallel_columns(facts)) is not None:
            return GuessedTask(
                task="generate", text=two[:1], label=two[1],
                reason=f"two texts in each row, and {two[1]!r} is to be written of {two[0]!r}; "
                "for the other direction, change what the columns hold",
            )  # fmt: skip
        where = " and ".join(map(repr, texts))
        reason = f"texts in {where}, and no column of labels: text for pretraining"
        return GuessedTask(task=None, reason=reason, text=texts)
    return _of_label(table, facts[label], texts)


def _of_label(table: Table, label: ColumnFacts, texts: tuple[str, ...]) -> GuessedTask:
    """Guess the task of texts with a column of labels."""
    name, where = label.name, " and ".join(map(repr, texts))
    if label.kind == "number":
        return GuessedTask(
            task="regress", text=texts, label=name, reason=f"{where} with numbers in {name!r}"
        )
    sign = _separator(table, label)
    if label.kind == "list" or sign is not None:
        how = "lists" if sign is None else f"values separated by {sign!r}"
        reason = f"{where} with any number of labels: {how} in {name!r}"
        return GuessedTask(task="multilabel", text=texts, label=name, reason=reason)
    task: TaskKindName = "classify" if len(texts) == 1 else "pairs"
    reason = f"{where} with {label.distinct:,} different labels in {name!r}"
    return GuessedTask(task=task, text=texts, label=name, reason=reason)


def _options_that_are_told(
    facts: Mapping[str, ColumnFacts],
    texts: Sequence[str],
    label: str | None,
    choices: Sequence[str],
) -> TaskColumns:
    """Return the columns of multiple choice of which the user says what they hold."""
    left = {name: one for name, one in facts.items() if name not in choices}
    label = label if label in left else _label_column(left, texts)
    return TaskColumns(
        texts=tuple(texts) or _text_columns(left, label), label=label or "", choices=tuple(choices)
    )


def _parallel_columns(facts: Mapping[str, ColumnFacts]) -> tuple[str, str] | None:
    """Return the two columns of a table of texts in two languages, or the like."""
    texts = [one.name for one in facts.values() if one.kind == "text" and one.distinct > 1]
    return (texts[0], texts[1]) if len(texts) == len(facts) == 2 else None


def looks_tagged(table: Table) -> bool:
    """Return whether a file that was read with a word on each line has tagged words.

    Its words have no blanks within, its sentences some words, and its last column few tags.
    """
    if len(table) < MIN_SENTENCES or _found(table, "tag") is None:
        return False
    tags = Counter(tag for tag in _of_lists(table, table.columns[-1]))
    return tags.total() >= 2 * len(table) and 2 <= len(tags) <= MAX_CLASSES


def _of_lists(table: Table, name: str) -> Iterator[object]:
    for value in table.column(name):
        yield from cast("Sequence[object]", value) if isinstance(value, list | tuple) else ()


def _found(table: Table, task: TaskKindName) -> TaskColumns | None:
    """Return the columns that a kind of task finds by usual names; None: it finds none."""
    try:
        return TASK_KINDS[task].reader.find_columns(table, (), None, ())
    except ValueError:
        return None


def _has_lists(facts: Mapping[str, ColumnFacts], columns: TaskColumns) -> bool:
    return all(facts[name].kind == "list" for name in columns.texts if name in facts)


def _reads(columns: TaskColumns, texts: Sequence[str], label: str | None) -> bool:
    """Return whether a task reads the columns that are given."""
    return set(texts) <= {*columns.texts, *columns.choices} and label in (None, columns.label)


def _label_column(facts: Mapping[str, ColumnFacts], texts: Sequence[str]) -> str | None:
    """Return the column of labels: by a usual name, or the last of few values."""
    by_name = {name.lower(): name for name in reversed([*facts]) if name not in texts}
    names = (*usual.LABEL_COLUMNS, *usual.NUMBER_COLUMNS, *usual.TAG_COLUMNS, *_LABEL_NAMES)
    for name in names:
        if name in by_name and facts[by_name[name]].kind not in ("text", "empty"):
            return by_name[name]
    some = [facts[name] for name in by_name.values()]
    some = [one for one in some if not _DATE.fullmatch(one.example)]
    few = [one.name for one in reversed(some) if one.kind == "category" and one.distinct > 1]
    return few[-1] if few else None


def _text_columns(facts: Mapping[str, ColumnFacts], label: str | None) -> tuple[str, ...]:
    """Return the column of texts: by a usual name, or that of the longest texts."""
    by_name = {name.lower(): name for name in reversed([*facts]) if name != label}
    for name in usual.TEXT_COLUMNS:
        if name in by_name:
            return (by_name[name],)
    texts = [one for one in facts.values() if one.kind == "text" and one.name != label]
    return (max(texts, key=lambda one: one.mean_characters).name,) if texts else ()


def task_options(
    kind: TaskKindName, table: Table, facts: Mapping[str, ColumnFacts], label: str | None
) -> dict[str, str]:
    """Return the options of a task that a table asks for: what stands between labels."""
    if kind != "multilabel" or label is None or label not in facts:
        return {}
    sign = _separator(table, facts[label])
    return {} if sign in (None, _LABEL_SIGNS[0]) else {"separator": str(sign)}


def _separator(table: Table, label: ColumnFacts) -> str | None:
    """Return the sign between labels: one that makes fewer labels of many values."""
    values = [str(one) for one in table.column(label.name) if not is_missing(one)]
    for sign in _LABEL_SIGNS:
        parts = Counter(part.strip() for value in values for part in value.split(sign))
        if sum(sign in value for value in values) * 5 >= len(values) and len(parts) < len(
            set(values)
        ):
            return sign
    return None
