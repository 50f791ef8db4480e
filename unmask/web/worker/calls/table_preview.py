"""`preview_table`, `preview_pictures`: labeled files as they are read."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

from unmask.config import from_dict
from unmask.images.decode import decode_images
from unmask.images.drawing import thumbnail, to_png_text
from unmask.images.records import ImageRecord
from unmask.images.sources import read_images
from unmask.output import error_reason
from unmask.tasks.all_kinds import TASK_KINDS
from unmask.tasks.kind_names import TaskKindName
from unmask.tasks.readers.tables import Table, read_table
from unmask.tasks.task import TaskColumns, TaskExample, split_dev
from unmask.text.lines import EncodingErrors
from unmask.web.worker.calls.tables.guessed_task import (
    ColumnFacts,
    GuessedTask,
    column_facts,
    guess_task,
    is_missing,
    looks_tagged,
    task_options,
)

_PLAIN = re.compile(r"\.(txt|tsv)(\.\w+)?$", re.IGNORECASE)
SHOWN_ROWS = 20
SHOWN_CHARACTERS = 500
"""Of a value."""
SHOWN_LABELS = 50
LONG_CHARACTERS = 2500
"""A text of so many characters has about 512 tokens, which most models read at most."""
_OF_TEXTS = frozenset(("classify", "pairs", "regress", "multilabel", "generate", "cloze"))
"""Tasks with columns of texts and one of labels, which are guessed alike."""
_OF_OWN_TEXTS = frozenset(("generate", "instruct", "answer", "prefer"))
"""Tasks with answers that are texts of their own, or the first of several."""
MAX_NUMBERS, N_STEPS = 12, 10
"""Different numbers that are counted one by one; steps in which more are counted."""
SHOWN_PICTURES = 6
"""Of a label, and labels of which pictures are shown."""
PICTURE_EDGE = 72
"""Pixels of the longer edge of a picture that is shown."""
RARE = 5
"""Rows of a class below which it is hardly learned."""


@dataclass(frozen=True, kw_only=True)
class _PreviewTableArguments:
    file: str
    columns: Sequence[str] = ()
    """Names of all columns, of a file without a header."""
    task: TaskKindName | None = None
    """Task in place of the guessed one."""
    text: Sequence[str] = ()
    label: str | None = None
    choices: Sequence[str] = ()
    learned: Literal["alone", "with dev"] | None = None
    """Whether a model is to learn from the file, with a dev file or without. None: it is read."""
    encoding_errors: EncodingErrors = "strict"


def preview_table(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return columns, rows, the task that fits with its reason, label counts and warnings.

    "problem" is the line with which the task's reader refuses the file, or fine-tuning its labels;
    null: neither does. "n_held_out" rows are set aside where there is no dev file; "n_incomplete"
    lack a text or the label.
    """
    given = from_dict(_PreviewTableArguments, arguments)
    table = _read_table(given)
    facts = column_facts(table)
    guess = guess_task(table, facts, given.text, given.label, given.choices)
    kind = given.task or guess.task
    answer: dict[str, Any] = {
        "file": Path(given.file).name,
        "columns": [vars(one) for one in facts.values()],
        "n_rows": len(table),
        "rows": [[_shown(value) for value in fields] for _, fields in table.rows[:SHOWN_ROWS]],
        "task": kind,
        "reason": guess.reason if kind == guess.task else "chosen",
        "text": [*(given.text or guess.text)],
        "label": given.label or guess.label,
        "choices": [*(given.choices or guess.choices)],
        "problem": None,
        "labels": [],
        "n_incomplete": _count_incomplete(
            table, kind, [*(given.text or guess.text)], given.label or guess.label
        ),
        "table_warnings": _table_warnings(table, facts),
    }
    if kind is None:
        return answer
    answer["n_incomplete"] = _count_incomplete(table, kind, answer["text"], answer["label"])
    try:
        columns, examples = _read(given, table, kind, guess, facts)
        n_held_out = _check_learned(given, kind, examples)
    except ValueError as error:
        return answer | {"problem": _without_folder(error_reason(error) or "", given.file)}
    labels = _label_counts(examples)
    is_single = TASK_KINDS[kind].is_single_label
    return answer | {
        "text": list(columns.texts),
        "label": columns.label if columns.label in facts else None,
        "choices": list(columns.choices),
        "options": task_options(kind, table, facts, columns.label),
        "labels": _shown_counts(kind, labels),
        "n_labels": len(labels),
        "n_examples": len(examples),
        "n_held_out": n_held_out,
        "table_warnings": answer["table_warnings"]
        + _example_warnings(examples, labels, is_single=is_single),
    }


def _read_table(given: _PreviewTableArguments) -> Table:
    """Read a file; a plain one that seems to have a word with its tag on each line, as that."""
    header, errors = tuple(given.columns), given.encoding_errors
    if given.task is None and not header and _PLAIN.search(given.file):
        try:
            tagged = read_table(given.file, word_per_line=True, encoding_errors=errors)
            if looks_tagged(tagged):
                return tagged
        except ValueError:  # its lines are not words with tags
            pass
    words = given.task == "tag"
    return read_table(given.file, header=header, word_per_line=words, encoding_errors=errors)


def _read(
    given: _PreviewTableArguments,
    table: Table,
    kind: TaskKindName,
    guess: GuessedTask,
    facts: Mapping[str, ColumnFacts],
) -> tuple[TaskColumns, list[TaskExample]]:
    """Read the file as a task does, with the columns that are given, or else guessed."""
    reader, text, label = TASK_KINDS[kind].reader, tuple(given.text), given.label
    options = task_options(kind, table, facts, label or guess.label)
    if kind in _OF_TEXTS and not guess.is_usual:
        text, label = text or guess.text, label or guess.label
    choices = tuple(given.choices) if kind == "choose" else ()
    columns = reader.find_columns(table, text, label, choices)
    examples = reader.read_examples(
        table, columns, given.encoding_errors, has_labels=True, options=options
    )
    return columns, examples


def _count_incomplete(
    table: Table, kind: TaskKindName | None, texts: Sequence[str], label: str | None
) -> int:
    """Return how many rows lack a text or the label, of tasks that need both."""
    names = [*texts, *([] if label is None else [label])]
    if kind not in _OF_TEXTS or not {*names} <= {*table.columns}:
        return 0
    rows = zip(*(table.column(name) for name in names), strict=True)
    return sum(any(map(is_missing, row)) for row in rows)


def _check_learned(
    given: _PreviewTableArguments, kind: TaskKindName, examples: Sequence[TaskExample]
) -> int:
    """Check that a model can learn from the examples; return how many are set aside.

    Raises:
        ValueError: it cannot, as fine-tuning says it.
    """
    if given.learned is None:
        return 0
    TASK_KINDS[kind].find_labels(examples, given.file)
    return 0 if given.learned == "with dev" else len(split_dev(examples, location=given.file)[1])


@dataclass(frozen=True, kw_only=True)
class _PreviewPicturesArguments:
    file: str
    learned: Literal["alone", "with dev"] = "alone"
    """With a dev file, or without."""


def preview_pictures(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return how many pictures of each label a file has, and some of them, small.

    "problem" is the line with which a picture is refused; null: those that are shown are read.
    """
    given = from_dict(_PreviewPicturesArguments, arguments)
    file = given.file
    labels, some = Counter[str](), dict[str, list[ImageRecord]]()
    n_unlabeled = 0
    for record in read_images(file):
        if record.label is None:
            n_unlabeled += 1
            continue
        labels[record.label] += 1
        shown = some.setdefault(record.label, [])
        if len(shown) < SHOWN_PICTURES:
            shown.append(record)
    warnings = [f"{n_unlabeled:,} pictures have no label"] if n_unlabeled else []
    answer = {
        "file": Path(file).name,
        "task": "pictures",
        "labels": labels.most_common(SHOWN_LABELS),
        "n_labels": len(labels),
        "n_examples": labels.total(),
        "table_warnings": warnings + _class_warnings(labels, labels.total()),
        "pictures": [],
        "problem": None,
    }
    items = [TaskExample(texts=(), label=label) for label in labels.elements()]
    first = [one for label, _ in labels.most_common(SHOWN_PICTURES) for one in some[label]]
    try:
        pictures = [
            {
                "name": one.name,
                "label": one.label,
                "png": to_png_text(thumbnail(pixels, PICTURE_EDGE)),
            }
            for one, pixels in decode_images(first)
        ]
        dev = [] if given.learned == "with dev" else split_dev(items, location=file)[1]
    except (ValueError, OSError) as error:
        return answer | {"problem": _without_folder(error_reason(error) or "", file)}
    return answer | {"pictures": pictures, "n_held_out": len(dev)}


def _shown_counts(kind: TaskKindName, labels: Counter[str]) -> list[tuple[str, int]]:
    """Return the counts of labels, the most frequent first; of numbers and positions in order.

    Answers that are texts of their own are not counted.
    """
    if kind in _OF_OWN_TEXTS:
        return []
    if kind == "choose":
        return [(f"option {int(one) + 1}", n) for one, n in sorted(labels.items())]
    if kind == "regress":
        return _number_counts({float(one): n for one, n in labels.items()})
    return labels.most_common(SHOWN_LABELS)


def _number_counts(numbers: Mapping[float, int]) -> list[tuple[str, int]]:
    """Count numbers in their order: each, if they are few, or else those within equal steps."""
    if len(numbers) <= MAX_NUMBERS:
        return [(f"{one:g}", numbers[one]) for one in sorted(numbers)]
    low, high = min(numbers), max(numbers)
    step = (high - low) / N_STEPS
    counts = Counter[int]()
    for one, n in numbers.items():
        counts[min(int((one - low) / step), N_STEPS - 1)] += n
    edges = [low + step * i for i in range(N_STEPS + 1)]
    return [(f"{edges[i]:.3g} to {edges[i + 1]:.3g}", counts[i]) for i in range(N_STEPS)]


def _label_counts(examples: Sequence[TaskExample]) -> Counter[str]:
    counts = Counter[str]()
    for example in examples:
        label = example.label
        if isinstance(label, tuple):
            counts.update(label)
        elif label is not None:
            counts[str(label)] += 1
    return counts


def _table_warnings(table: Table, facts: Mapping[str, ColumnFacts]) -> list[str]:
    found: list[str] = []
    for one in facts.values():
        if one.kind == "empty":
            found.append(f"column {one.name!r} is empty")
        elif one.distinct == 1 and len(table) > 1:
            found.append(f"column {one.name!r} has the same value in every row")
        elif one.missing:
            found.append(f"column {one.name!r} has no value in {one.missing:,} rows")
    rows = Counter(repr(fields) for _, fields in table.rows)
    if repeated := sum(rows.values()) - len(rows):
        found.append("1 row is repeated" if repeated == 1 else f"{repeated:,} rows are repeated")
    return found


def _example_warnings(
    examples: Sequence[TaskExample], labels: Counter[str], *, is_single: bool
) -> list[str]:
    found: list[str] = []
    n = len(examples)
    if long := sum(sum(map(len, one.texts)) > LONG_CHARACTERS for one in examples):
        found.append(
            f"{long:,} of {n:,} texts have more than {LONG_CHARACTERS:,} characters: what is "
            "beyond the model's length is cut"
        )
    if empty := sum(not any(map(str.strip, one.texts)) for one in examples):
        found.append(f"{empty:,} {'row has' if empty == 1 else 'rows have'} an empty text")
    same: dict[tuple[str, ...], set[Any]] = {}
    for one in examples:
        same.setdefault(one.texts, set()).add(one.label)
    if is_single:
        if differ := sum(len(some) > 1 for some in same.values()):
            found.append(f"{differ:,} texts occur with several labels")
        found += _class_warnings(labels, n)
    return found


def _class_warnings(labels: Counter[str], n: int) -> list[str]:
    if len(labels) < 2:
        return ["there is but one label, and nothing to learn"]
    found: list[str] = []
    once = sum(count == 1 for count in labels.values())
    rare = sum(1 < count < RARE for count in labels.values())
    if once:
        found.append(f"{once:,} of {len(labels):,} labels have a single row")
    if rare:
        found.append(f"{rare:,} of {len(labels):,} labels have fewer than {RARE} rows")
    (most, count), *_ = labels.most_common(1)
    if count > 0.9 * n:
        found.append(f"{count / n:.0%} of the rows have the label {most!r}")
    return found


def _shown(value: object) -> Any:
    """Return a value as the page shows it: cut where it is long, plain in any case."""
    if isinstance(value, str):
        return value if len(value) <= SHOWN_CHARACTERS else f"{value[:SHOWN_CHARACTERS]}..."
    if isinstance(value, list | tuple):
        return [_shown(one) for one in cast("Sequence[object]", value)[:100]]
    if isinstance(value, dict):
        some = cast("dict[object, object]", value)
        return {str(name): _shown(one) for name, one in some.items()}
    return value if value is None or isinstance(value, bool | int | float) else str(value)


def _without_folder(line: str, file: str) -> str:
    return line.replace(file, Path(file).name)
