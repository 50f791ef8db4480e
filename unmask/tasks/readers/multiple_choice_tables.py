"""Multiple-choice files -> contexts, questions, options and answers.

Data sets differ in format: options as one list or a column each, the answer as an index from 0 or
1, a letter or the text of the option.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, cast, get_args

from unmask.tasks.readers import columns as column_values
from unmask.tasks.readers.tables import Table
from unmask.tasks.task import TaskColumns
from unmask.text.formats.records import check_text, describe_value, format_names
from unmask.text.lines import EncodingErrors

ChoiceLabelFormat = Literal["names", "texts", "letters", "from 0", "from 1"]
"""Answer format: the option's name in the file (`{"label": ["A", "B"], "text": [...]}`), its text,
its letter (A is the first), or its index."""
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
"""Stems of columns with one option each, before a number or a letter: `choice1`, `answerA`."""
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
    """A context, a question, options, and the index of the correct one."""

    context: tuple[str, ...]
    """Texts before the question, in order: a passage, or the turns of a dialog."""
    question: str
    """Empty if there is none, as when an ending is chosen."""
    choices: tuple[str, ...]
    label: int | None
    """Index of the correct option, from 0. None: unknown."""
    location: str
    """File and line, for messages."""


@dataclass(frozen=True)
class _NamedChoices:
    texts: tuple[str, ...]
    names: tuple[str, ...] = ()


def find_columns(
    table: Table, texts: Sequence[str] = (), label: str | None = None, choices: Sequence[str] = ()
) -> TaskColumns:
    """Check the given columns and find the others by usual names.

    Args:
        table: the file.
        texts: columns read before the options, in order; the last of several is the question.
        label: the answer column.
        choices: one column of lists of options, or one column per option.

    Raises:
        ValueError: a column does not exist, or none is found; lists the columns.
    """
    columns = find_text_columns(table, texts, choices)
    for name in [label] if label else []:
        table.check_column(name)
    answer_column = label or column_values.find_column(
        table, ANSWER_COLUMNS, "answer", excluded=(*columns.texts, *columns.choices), option="label"
    )
    return TaskColumns(texts=columns.texts, label=answer_column, choices=columns.choices)


def find_text_columns(
    table: Table, texts: Sequence[str] = (), choices: Sequence[str] = ()
) -> TaskColumns:
    """Find the columns of a file without answers; `label` is empty.

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
    """List the names that are a stem with a number or a letter, in order."""
    numbered: list[tuple[int, str]] = []
    for name in names:
        match = _NUMBERED_COLUMN.fullmatch(name)
        if match and match["stem"].replace("_", "").replace(" ", "") == stem:
            suffix = match["which"]
            numbered.append((int(suffix) if suffix.isdigit() else ord(suffix), name))
    numbered.sort()
    # Numbers with gaps, or from 7, have another meaning.
    first = numbered[0][0] if numbered else 0
    is_contiguous = [n for n, _ in numbered] == list(range(first, first + len(numbered)))
    return [name for _, name in numbered] if is_contiguous and first in (0, 1, ord("a")) else []


def _has_nested_choices(table: Table, name: str | None) -> bool:
    """Return whether questions are {"stem": ..., "choices": [...]}, as in ARC."""
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
    columns_by_role = [
        next((by_name[name] for name in names if name in by_name), None)
        for names in (CONTEXT_COLUMNS, QUESTION_COLUMNS)
    ]
    texts = tuple(name for name in columns_by_role if name is not None)
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
    """Read texts, options and answers.

    Questions may differ in their number of options. With a column per option, empty fields at the
    end of a row are not options.

    Args:
        table: the file.
        columns: as found by `find_columns`.
        encoding_errors: treatment of NULs and lone surrogates.
        has_labels: read the answers too.
        label_format: answer format; that of the training file for a dev file. None: inferred, see
            `infer_label_format`.

    Raises:
        ValueError: a value is invalid, there is only one option, or the answer is none of the
            options; with file and line.
    """
    options = _read_choices(table, columns.choices, encoding_errors)
    answers: Sequence[int | None] = [None] * len(options)
    if has_labels:
        answers = _read_labels(table, columns.label, options, label_format)
    *before, last = (table.column(name) for name in columns.texts)
    question = question_column(columns.texts)
    examples: list[ChoiceExample] = []
    for i, row in enumerate(zip(*before, last, strict=True)):
        location = table.location(i)
        parts = [
            _parse_texts(value, name, location, encoding_errors)
            for value, name in zip(row, columns.texts, strict=True)
        ]
        question_text = " ".join(parts.pop()) if question else ""
        examples.append(
            ChoiceExample(
                context=tuple(text for part in parts for text in part),
                question=question_text,
                choices=options[i].texts,
                label=answers[i],
                location=location,
            )
        )
    return examples


def question_column(texts: Sequence[str]) -> str | None:
    """Return the question column: the last of several, unless they are sentences of a story.

    The question is encoded with each option, the columns before it are the context.
    """
    names = [name.lower() for name in texts]
    story = len(names) > 2 and any(_numbered_columns(names, stem) == names for stem in _STORY_STEMS)
    return None if len(texts) < 2 or story else texts[-1]


def _parse_texts(
    value: object, column: str, location: str, encoding_errors: EncodingErrors
) -> tuple[str, ...]:
    """Read a text, or a list of texts, such as the turns of a dialog."""
    if isinstance(value, dict) and "stem" in value:
        value = cast("dict[str, object]", value)["stem"]
    values = cast("list[object]", value) if isinstance(value, list) else [value]
    return tuple(check_text(text, location, column, encoding_errors) for text in values)


def _read_choices(
    table: Table, columns: Sequence[str], encoding_errors: EncodingErrors
) -> list[_NamedChoices]:
    rows = zip(*(table.column(name) for name in columns), strict=True)
    all_choices: list[_NamedChoices] = []
    for i, row in enumerate(rows):
        location = table.location(i)
        row_choices = (
            _choices_from_list(row[0], columns[0], location, encoding_errors)
            if len(row) == 1
            else _NamedChoices(_choices_from_columns(row, columns, location, encoding_errors))
        )
        _check_choices(row_choices, columns, location)
        all_choices.append(row_choices)
    return all_choices


def _check_choices(choices: _NamedChoices, columns: Sequence[str], location: str) -> None:
    if len(choices.texts) < _MIN_CHOICES:
        n = "1 option" if choices.texts else "no option"
        raise ValueError(
            f"{location}: only {n} in {format_names(columns)}; at least {_MIN_CHOICES} are needed"
        )
    for n, text in enumerate(choices.texts, 1):
        if not text.strip():
            raise ValueError(f"{location}: option {n} in {format_names(columns)} is empty")


def _choices_from_columns(
    row: Sequence[object], columns: Sequence[str], location: str, encoding_errors: EncodingErrors
) -> tuple[str, ...]:
    """Read options from a column each, up to the last that is not empty."""
    texts = [check_text(v, location, c, encoding_errors) for v, c in zip(row, columns, strict=True)]
    while texts and not texts[-1].strip():
        texts.pop()
    return tuple(texts)


def _choices_from_list(
    value: object, column: str, location: str, encoding_errors: EncodingErrors
) -> _NamedChoices:
    """Read options in one column.

    It contains texts; objects with "text" and "label" (ARC); an object with a list of each (data
    sets of the Hub); or any of these as "choices" of an object.
    """
    value = column_values.parse_list_text(value, column, location)
    fields = cast("dict[str, object]", value) if isinstance(value, dict) else {}
    if "choices" in fields:
        value = fields["choices"]
        fields = cast("dict[str, object]", value) if isinstance(value, dict) else {}
    texts, names = fields.get("text", value), fields.get("label", [])
    if not isinstance(texts, list) or not isinstance(names, list):
        raise ValueError(
            f"{location}: {column!r} must be a list of options, or an object with lists 'text' and "
            f"'label', got {describe_value(value)}; name columns with one option each one by one"
        )
    texts, names = cast("list[object]", texts), cast("list[object]", names)
    if texts and all(isinstance(item, dict) and "text" in item for item in texts):
        objects = cast("list[dict[str, object]]", texts)
        names = [item["label"] for item in objects if "label" in item]
        texts = [item["text"] for item in objects]
    if names and len(names) != len(texts):
        raise ValueError(f"{location}: {len(texts)} options in {column!r}, but {len(names)} labels")
    return _NamedChoices(
        tuple(check_text(item, location, column, encoding_errors) for item in texts),
        tuple(str(name).strip() for name in names),
    )


def infer_label_format(
    table: Table, columns: TaskColumns, encoding_errors: EncodingErrors = "strict"
) -> ChoiceLabelFormat:
    """Infer the answer format of a file: the one that fits every row.

    Raises:
        ValueError: none fits, with file and line; or several fit with different results, such as
            indices from 0 and from 1 if neither 0 nor the last index occurs.
    """
    options = _read_choices(table, columns.choices, encoding_errors)
    return _infer_label_format(table, columns.label, table.column(columns.label), options)


def _infer_label_format(
    table: Table, label: str, values: Sequence[object], choices: Sequence[_NamedChoices]
) -> ChoiceLabelFormat:
    indices = {
        how: [_choice_index(v, o, how) for v, o in zip(values, choices, strict=True)]
        for how in CHOICE_LABEL_FORMATS
    }
    fitting: list[ChoiceLabelFormat] = [
        how for how in CHOICE_LABEL_FORMATS if None not in indices[how]
    ]
    if not fitting:
        best = max(CHOICE_LABEL_FORMATS, key=lambda how: len(values) - indices[how].count(None))
        i = indices[best].index(None)
        raise ValueError(_no_such_choice(values[i], label, choices[i], table.location(i)))
    first: ChoiceLabelFormat = fitting[0]
    if first == "names" or all(indices[how] == indices[first] for how in fitting):
        return first
    raise ValueError(
        f"{table.path}: the answers in {label!r} fit several formats: "
        f"{', '.join(fitting)}; choose one by the option numbering"
    )


def _read_labels(
    table: Table,
    label: str,
    choices: Sequence[_NamedChoices],
    label_format: ChoiceLabelFormat | None,
) -> list[int | None]:
    values = table.column(label)
    format_ = label_format or _infer_label_format(table, label, values, choices)
    indices: list[int | None] = []
    for i, (value, row_choices) in enumerate(zip(values, choices, strict=True)):
        index = _choice_index(value, row_choices, format_)
        if index is None:
            raise ValueError(_no_such_choice(value, label, row_choices, table.location(i), format_))
        if format_ == "texts" and row_choices.texts.count(row_choices.texts[index]) > 1:
            raise ValueError(
                f"{table.location(i)}: the answer in column {label!r}, {describe_value(value)}, "
                f"equals several of the options: {format_names(row_choices.texts)}"
            )
        indices.append(index)
    return indices


def _no_such_choice(
    value: object,
    label: str,
    choices: _NamedChoices,
    location: str,
    label_format: ChoiceLabelFormat | None = None,
) -> str:
    if value is None or value == "":
        return f"{location}: no answer in column {label!r}"
    counted = f" counted {label_format}," if label_format in ("from 0", "from 1") else ""
    return (
        f"{location}: the answer in column {label!r}, {describe_value(value)},{counted} is none of "
        f"the {len(choices.texts)} options: {format_names(choices.names or choices.texts)}"
    )


def _choice_index(
    value: object, choices: _NamedChoices, label_format: ChoiceLabelFormat
) -> int | None:
    """Return the index of an answer's option, of equal options the first."""
    text = value.strip() if isinstance(value, str) else None
    if label_format == "names":
        names: tuple[str, ...] = choices.names
        name = str(value).strip()
        return names.index(name) if name in names else None
    if label_format == "texts":
        texts = [option.strip() for option in choices.texts]
        return texts.index(text) if text in texts else None
    if label_format == "letters":
        index = ord(text.upper()) - ord("A") if text and len(text) == 1 else -1
    else:
        index = _parse_integer(value) - (label_format == "from 1")
    return index if 0 <= index < len(choices.texts) else None


def _parse_integer(value: object) -> int:
    """Parse an integer, also from text or 1.0; -1 if it is none."""
    if isinstance(value, bool):
        return -1
    if isinstance(value, int):
        return value
    text = str(value).strip().removesuffix(".0")
    return int(text) if text.isdecimal() and text.isascii() and len(text) < 10 else -1
