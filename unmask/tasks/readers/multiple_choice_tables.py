"""Files of questions with options to choose from -> contexts, questions, options and answers.

Data sets write the same thing in many ways: the options as one list or as a column each, the answer
as a number from 0 or from 1, as a letter or as the text of the option.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, cast, get_args

from unmask.tasks.readers import columns as column_values
from unmask.tasks.readers.tables import Table
from unmask.tasks.task import TaskColumns
from unmask.text.lines import EncodingErrors
from unmask.text.records import check_text, describe_value, format_names

ChoiceLabelFormat = Literal["names", "texts", "letters", "from 0", "from 1"]
"""What an answer says: the option's name in the file (`{"label": ["A", "B"], "text": [...]}`), its
text, its letter (A is the first), or its number."""
CHOICE_LABEL_FORMATS: tuple[ChoiceLabelFormat, ...] = get_args(ChoiceLabelFormat)

CONTEXT_COLUMNS = (
    "context", "passage", "article", "dialogue", "dialog", "premise", "ctx", "story", "paragraph",
    "sent1", "startphrase", "document", "text", "sentence",
)  # fmt: skip
QUESTION_COLUMNS = (
    "question", "query", "question_stem", "stem", "goal", "ask", "sent2", "prompt", "problem",
)  # fmt: skip
CHOICE_LIST_COLUMNS = (
    "choices",
    "choice",
    "options",
    "endings",
    "candidates",
    "alternatives",
    "answers",
)
CHOICE_COLUMN_STEMS = (
    "choice", "option", "ending", "answer", "sol", "solution", "alternative", "candidate",
    "sentencequiz", "randomfifthsentencequiz", "",
)  # fmt: skip
"""What columns with one option each are called, before a number or a letter: `choice1`,
`answerA`."""
ANSWER_COLUMNS = (
    "label", "answer", "gold", "answerkey", "answer_key", "correct", "correct_answer", "target",
    "correct_option", "correct_answer_id", "answer_index", "answer_idx", "gold_label",
    "answerrightending", "answer_right_ending",
)  # fmt: skip

_NUMBERED_COLUMN = re.compile(r"(?P<stem>.*?)[_ ]?(?P<which>[0-9]+|[a-z])")
_STORY_STEMS = ("inputsentence", "sentence")
_MIN_CHOICES = 2  # options


@dataclass(frozen=True, kw_only=True)
class ChoiceExample:
    """Some options, of which one is right."""

    context: tuple[str, ...]
    """What is read before the question, in order: a passage, or the turns of a dialog."""
    question: str
    """Empty if there is none, as where an ending is chosen."""
    choices: tuple[str, ...]
    label: int | None
    """Which of the options is right, from 0. None: not known."""
    location: str
    """File and line, for messages."""


@dataclass(frozen=True)
class _NamedChoices:
    texts: tuple[str, ...]
    names: tuple[str, ...] = ()


def find_columns(
    table: Table, texts: Sequence[str] = (), label: str | None = None, choices: Sequence[str] = ()
) -> TaskColumns:
    """Check the columns that were named, and find those that were not by customary names.

    Args:
        table: the file.
        texts: what is read before the options, in order; the last of several is the question.
        label: the answer.
        choices: one column with lists of options, or several with an option each.

    Raises:
        ValueError: a named column does not exist, or nothing is found, with the columns that there
            are.
    """
    read = find_text_columns(table, texts, choices)
    for name in [label] if label else []:
        table.check_column(name)
    found = label or column_values.find_column(
        table, ANSWER_COLUMNS, "answer", excluded=(*read.texts, *read.choices), option="label"
    )
    return TaskColumns(texts=read.texts, label=found, choices=read.choices)


def find_text_columns(
    table: Table, texts: Sequence[str] = (), choices: Sequence[str] = ()
) -> TaskColumns:
    """Find the columns of a file whose answers are not known; `label` is then empty.

    Raises:
        ValueError: as for `find_columns`.
    """
    for name in (*texts, *choices):
        table.check_column(name)
    options = tuple(choices) or _find_choice_columns(table, texts)
    return TaskColumns(
        texts=tuple(texts) or _find_text_columns(table, options), label="", choices=options
    )


def _find_choice_columns(table: Table, texts: Sequence[str]) -> tuple[str, ...]:
    by_name = {name.lower(): name for name in reversed(table.columns) if name not in texts}
    for name in CHOICE_LIST_COLUMNS:
        if name in by_name:
            return (by_name[name],)
    for stem in CHOICE_COLUMN_STEMS:
        if len(members := _numbered_columns(by_name, stem)) >= _MIN_CHOICES:
            return tuple(by_name[name] for name in members)
    nested = next(
        (name for name in QUESTION_COLUMNS if _has_nested_choices(table, by_name.get(name))), None
    )
    if nested is not None:
        return (by_name[nested],)
    raise ValueError(
        f"{table.path}: which columns hold the options? There is neither a list called 'choices' "
        f"or the like nor 'choice1', 'choice2' and so on; name them "
        f"(columns: {format_names(table.columns)})"
    )


def _numbered_columns(names: Iterable[str], stem: str) -> list[str]:
    """List the names that are a stem with a number or a letter after it, in order."""
    found: list[tuple[int, str]] = []
    for name in names:
        match = _NUMBERED_COLUMN.fullmatch(name)
        if match and match["stem"].replace("_", "").replace(" ", "") == stem:
            which = match["which"]
            found.append((int(which) if which.isdigit() else ord(which), name))
    found.sort()
    # A gap, or a beginning at 7, is another kind of name.
    first = found[0][0] if found else 0
    whole = [n for n, _ in found] == list(range(first, first + len(found)))
    return [name for _, name in found] if whole and first in (0, 1, ord("a")) else []


def _has_nested_choices(table: Table, name: str | None) -> bool:
    """Return whether questions hold their options: {"stem": ..., "choices": [...]}, as ARC's do."""
    if name is None or not len(table):
        return False
    first = table.column(name)[0]
    return isinstance(first, dict) and "stem" in first and "choices" in first


def _find_text_columns(table: Table, choices: Sequence[str]) -> tuple[str, ...]:
    by_name = {
        name.lower(): name
        for name in reversed(table.columns)
        if name not in choices or _has_nested_choices(table, name)
    }
    for stem in _STORY_STEMS:
        if len(story := _numbered_columns(by_name, stem)) > 2:
            return tuple(by_name[name] for name in story)
    found = [
        next((by_name[name] for name in names if name in by_name), None)
        for names in (CONTEXT_COLUMNS, QUESTION_COLUMNS)
    ]
    texts = tuple(name for name in found if name is not None)
    if not texts:
        raise ValueError(
            f"{table.path}: which columns hold what is read before the options? None is called "
            f"'context', 'question' or the like; name them (columns: {format_names(table.columns)})"
        )
    return texts


def read_choice_examples(
    table: Table,
    columns: TaskColumns,
    encoding_errors: EncodingErrors = "strict",
    *,
    has_labels: bool = True,
    label_format: ChoiceLabelFormat | None = None,
) -> list[ChoiceExample]:
    """Read what is chosen from, and what is right.

    Questions may have unequal numbers of options. Empty fields at the end of a row whose options
    have a column each are no options.

    Args:
        table: the file.
        columns: as found by `find_columns`.
        encoding_errors: what becomes of NULs and lone surrogates.
        has_labels: read the answers too.
        label_format: what answers say; of a dev file what those of the training file do. None: what
            fits all rows, see `infer_label_format`.

    Raises:
        ValueError: a value is invalid, there is only one option, or the answer is
            none of the options; with file and line.
    """
    options = _read_choices(table, columns.choices, encoding_errors)
    truths: Sequence[int | None] = [None] * len(options)
    if has_labels:
        truths = _read_labels(table, columns.label, options, label_format)
    *before, last = (table.column(name) for name in columns.texts)
    question = question_column(columns.texts)
    found: list[ChoiceExample] = []
    for i, row in enumerate(zip(*before, last, strict=True)):
        where = table.location(i)
        parts = [
            _parse_texts(value, name, where, encoding_errors)
            for value, name in zip(row, columns.texts, strict=True)
        ]
        own = " ".join(parts.pop()) if question else ""
        found.append(
            ChoiceExample(
                context=tuple(text for part in parts for text in part),
                question=own,
                choices=options[i].texts,
                label=truths[i],
                location=where,
            )
        )
    return found


def question_column(texts: Sequence[str]) -> str | None:
    """Name the column of the question: the last of several, unless they number a story's sentences.

    It is read with each option, and what comes before it alone.
    """
    names = [name.lower() for name in texts]
    story = len(names) > 2 and any(_numbered_columns(names, stem) == names for stem in _STORY_STEMS)
    return None if len(texts) < 2 or story else texts[-1]


def _parse_texts(
    value: object, column: str, where: str, encoding_errors: EncodingErrors
) -> tuple[str, ...]:
    """Read a text, or several that are a list, as the turns of a dialog."""
    if isinstance(value, dict) and "stem" in value:
        value = cast("dict[str, object]", value)["stem"]
    values = cast("list[object]", value) if isinstance(value, list) else [value]
    return tuple(check_text(one, where, column, encoding_errors) for one in values)


def _read_choices(
    table: Table, columns: Sequence[str], encoding_errors: EncodingErrors
) -> list[_NamedChoices]:
    rows = zip(*(table.column(name) for name in columns), strict=True)
    found: list[_NamedChoices] = []
    for i, row in enumerate(rows):
        where = table.location(i)
        one = (
            _choices_from_list(row[0], columns[0], where, encoding_errors)
            if len(row) == 1
            else _NamedChoices(_choices_from_columns(row, columns, where, encoding_errors))
        )
        _check_choices(one, columns, where)
        found.append(one)
    return found


def _check_choices(choices: _NamedChoices, columns: Sequence[str], where: str) -> None:
    if len(choices.texts) < _MIN_CHOICES:
        n = "1 option" if choices.texts else "no option"
        raise ValueError(
            f"{where}: only {n} in {format_names(columns)}; there must be {_MIN_CHOICES} at least"
        )
    for n, text in enumerate(choices.texts, 1):
        if not text.strip():
            raise ValueError(f"{where}: option {n} in {format_names(columns)} is empty")


def _choices_from_columns(
    row: Sequence[object], columns: Sequence[str], where: str, encoding_errors: EncodingErrors
) -> tuple[str, ...]:
    """Read options of a column each, up to the last that is not empty."""
    texts = [check_text(v, where, c, encoding_errors) for v, c in zip(row, columns, strict=True)]
    while texts and not texts[-1].strip():
        texts.pop()
    return tuple(texts)


def _choices_from_list(
    value: object, column: str, where: str, encoding_errors: EncodingErrors
) -> _NamedChoices:
    """Read options in one column.

    It holds texts; objects with "text" and "label", as ARC has them; an object with a list of each,
    as data sets of the Hub have them; or any of these as "choices" of an object.
    """
    fields = cast("dict[str, object]", value) if isinstance(value, dict) else {}
    if "choices" in fields:
        value = fields["choices"]
        fields = cast("dict[str, object]", value) if isinstance(value, dict) else {}
    texts, names = fields.get("text", value), fields.get("label", [])
    if not isinstance(texts, list) or not isinstance(names, list):
        raise ValueError(
            f"{where}: {column!r} must be a list of options, or an object with lists 'text' and "
            f"'label', got {describe_value(value)}; options of a column each are named one by one"
        )
    texts, names = cast("list[object]", texts), cast("list[object]", names)
    if texts and all(isinstance(one, dict) and "text" in one for one in texts):
        objects = cast("list[dict[str, object]]", texts)
        names = [one["label"] for one in objects if "label" in one]
        texts = [one["text"] for one in objects]
    if names and len(names) != len(texts):
        raise ValueError(f"{where}: {len(texts)} options in {column!r}, but {len(names)} labels")
    return _NamedChoices(
        tuple(check_text(one, where, column, encoding_errors) for one in texts),
        tuple(str(name).strip() for name in names),
    )


def infer_label_format(
    table: Table, columns: TaskColumns, encoding_errors: EncodingErrors = "strict"
) -> ChoiceLabelFormat:
    """Say what the answers of a file are: what fits every row.

    Raises:
        ValueError: nothing does, with file and line; or several do that differ, as do numbers from
            0 and from 1 in a file so short that neither 0 nor the last number occurs.
    """
    options = _read_choices(table, columns.choices, encoding_errors)
    return _infer_label_format(table, columns.label, table.column(columns.label), options)


def _infer_label_format(
    table: Table, label: str, values: Sequence[object], choices: Sequence[_NamedChoices]
) -> ChoiceLabelFormat:
    read = {
        how: [_choice_index(v, o, how) for v, o in zip(values, choices, strict=True)]
        for how in CHOICE_LABEL_FORMATS
    }
    fitting: list[ChoiceLabelFormat] = [
        how for how in CHOICE_LABEL_FORMATS if None not in read[how]
    ]
    if not fitting:
        best = max(CHOICE_LABEL_FORMATS, key=lambda how: len(values) - read[how].count(None))
        i = read[best].index(None)
        raise ValueError(_no_such_choice(values[i], label, choices[i], table.location(i)))
    first: ChoiceLabelFormat = fitting[0]
    if first == "names" or all(read[how] == read[first] for how in fitting):
        return first
    raise ValueError(
        f"{table.path}: the answers in {label!r} fit several ways of saying which option is right: "
        f"{', '.join(fitting)}; say which by the option numbering"
    )


def _read_labels(
    table: Table,
    label: str,
    choices: Sequence[_NamedChoices],
    label_format: ChoiceLabelFormat | None,
) -> list[int | None]:
    values = table.column(label)
    how = label_format or _infer_label_format(table, label, values, choices)
    found: list[int | None] = []
    for i, (value, given) in enumerate(zip(values, choices, strict=True)):
        place = _choice_index(value, given, how)
        if place is None:
            raise ValueError(_no_such_choice(value, label, given, table.location(i), how))
        if how == "texts" and given.texts.count(given.texts[place]) > 1:
            raise ValueError(
                f"{table.location(i)}: the answer in column {label!r}, {describe_value(value)}, "
                "is several of "
                f"the options: {format_names(given.texts)}"
            )
        found.append(place)
    return found


def _no_such_choice(
    value: object,
    label: str,
    choices: _NamedChoices,
    where: str,
    label_format: ChoiceLabelFormat | None = None,
) -> str:
    if value is None or value == "":
        return f"{where}: no answer in column {label!r}"
    counted = f" counted {label_format}," if label_format in ("from 0", "from 1") else ""
    return (
        f"{where}: the answer in column {label!r}, {describe_value(value)},{counted} is none of "
        f"the {len(choices.texts)} options: {format_names(choices.names or choices.texts)}"
    )


def _choice_index(
    value: object, choices: _NamedChoices, label_format: ChoiceLabelFormat
) -> int | None:
    """Return which option an answer says, read in one way; of equal options the first."""
    text = value.strip() if isinstance(value, str) else None
    if label_format == "names":
        known: tuple[str, ...] = choices.names
        name = str(value).strip()
        return known.index(name) if name in known else None
    if label_format == "texts":
        texts = [option.strip() for option in choices.texts]
        return texts.index(text) if text in texts else None
    if label_format == "letters":
        at = ord(text.upper()) - ord("A") if text and len(text) == 1 else -1
    else:
        at = _parse_integer(value) - (label_format == "from 1")
    return at if 0 <= at < len(choices.texts) else None


def _parse_integer(value: object) -> int:
    """Read a whole number, also written as text or as 1.0; -1 if it is none."""
    if isinstance(value, bool):
        return -1
    if isinstance(value, int):
        return value
    text = str(value).strip().removesuffix(".0")
    return int(text) if text.isdecimal() and text.isascii() and len(text) < 10 else -1
