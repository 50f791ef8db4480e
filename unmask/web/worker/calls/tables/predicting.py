"""`predict_file`: what a fine-tuned model says of each row of a table, as a table."""

import csv
import io
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from unmask.config import from_dict
from unmask.files import atomic_path, write_atomically
from unmask.finetuning.results.predict import select_columns
from unmask.tasks.readers.tables import Table, read_table
from unmask.tasks.task import Task
from unmask.web.worker.calls.tables.guessed_task import is_missing
from unmask.web.worker.calls.tables.spreadsheets import write_spreadsheet
from unmask.web.worker.open_models import open_models

MAX_ROWS = 200_000
ROWS_AT_ONCE = 64
SHOWN_ROWS = 10
MAX_LABEL_COLUMNS = 50
"""Labels up to which each has a column of its probabilities."""
_TASKS = frozenset(("classify", "pairs", "multilabel", "regress", "cloze"))


@dataclass(frozen=True, kw_only=True)
class _PredictFileArguments:
    model: str
    file: str
    text: Sequence[str] = ()
    """Columns of texts. Empty: those of the training file, or usual names."""


def predict_file(arguments: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield {"done", "of"} while rows are labeled; at last what was written, and of what.

    The file's columns are kept; "predicted", "probability" and one column for each label are
    added. It is written beside the file as .xlsx and as .csv (UTF-8 with a mark, which Excel
    needs). Rows without a text get no answer. Where the file has the labels of training,
    "compared" rows have one, and "agree" of them are predicted so.

    Raises:
        ValueError: the model does not label texts, or the table has not its columns.
    """
    given = from_dict(_PredictFileArguments, arguments)
    pipeline = open_models().pipeline(given.model, None)
    task = pipeline.required_task()
    if task.task_kind not in _TASKS or not pipeline.preset.reads_texts:
        raise ValueError(f"{given.model}: files are for models that label texts ({task.task_kind})")
    table = read_table(given.file)
    if len(table) > MAX_ROWS:
        raise ValueError(
            f"at most {MAX_ROWS:,} rows, got {len(table):,}; `unmask predict` has none"
        )
    names = select_columns(task, table, given.text).columns.texts
    rows = [*zip(*(table.column(name) for name in names), strict=True)]
    full = [i for i, row in enumerate(rows) if not any(map(is_missing, row))]
    if not full:
        raise ValueError(f"no row has a text in {' and '.join(map(repr, names))}")
    records: dict[int, Any] = {}
    for start in range(0, len(full), ROWS_AT_ONCE):
        yield {"done": start, "of": len(full)}
        some = full[start : start + ROWS_AT_ONCE]
        texts = [tuple(map(str, rows[i])) for i in some]
        inputs = [one[0] if len(one) == 1 else one for one in texts]
        records |= zip(some, pipeline.predict(inputs), strict=True)
    yield {"done": len(full), "of": len(full)} | _written(task, table, records)


def _written(task: Task, table: Table, records: Mapping[int, Any]) -> dict[str, Any]:
    """Write the table with its answers."""
    labels = task.labels if len(task.labels) <= MAX_LABEL_COLUMNS else ()
    answers = [_answer(records.get(i), labels) for i in range(len(table))]
    names = ["predicted", *(["probability"] if task.labels else []), *labels]
    columns = [*table.columns, *(_free_name(one, table.columns) for one in names)]
    shown = [
        [*map(_cell, fields), *answer[: len(names)]]
        for (_, fields), answer in zip(table.rows, answers, strict=True)
    ]
    counts = Counter(str(answers[i][0]) for i in records) if task.labels else Counter[str]()
    return {
        "files": _write(table.path, [columns, *shown]),
        "columns": columns[: len(table.columns) + 2],
        "rows": [row[: len(table.columns) + 2] for row in shown[:SHOWN_ROWS]],
        "n_answers": min(len(names), 2),
        "n_rows": len(table),
        "skipped": len(table) - len(records),
        "counts": counts.most_common(MAX_LABEL_COLUMNS),
        **_agreement(task, table, answers, records),
    }


def _answer(record: Any, labels: Sequence[str]) -> list[object]:
    """Return the cells that are added to a row."""
    if record is None:
        return [""] * (2 + len(labels))
    if not isinstance(record, Mapping):
        return [round(float(record), 4)]
    found = cast("Mapping[str, Any]", record)
    shares: Any = found.get("probabilities") or {}
    parts = [_share(shares.get(one)) for one in labels] if isinstance(shares, Mapping) else []
    if "labels" in found:
        chosen = [str(one) for one in found["labels"]]
        least = min((float(shares[one]) for one in chosen if one in shares), default=None)
        return [", ".join(chosen), _share(least), *parts]
    return [str(found["label"]), _share(found.get("probability")), *parts]


def _share(value: Any) -> object:
    return "" if value is None else round(float(value), 4)


def _cell(value: object) -> object:
    if isinstance(value, list | tuple):
        return ", ".join(map(str, cast("Sequence[object]", value)))
    return "" if value is None else value


def _free_name(name: str, taken: Sequence[str]) -> str:
    return name if name not in taken else f"{name} (predicted)"


def uncomputed(value: object) -> object:
    """Return a cell of CSV that no spreadsheet computes: a text that begins as a formula is text.

    Labels are a stranger's, who made the model; `-3` stays what it is.
    """
    if not isinstance(value, str) or not value.startswith(("=", "+", "-", "@", "\t", "\r")):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value


def _write(source: Path, rows: Sequence[Sequence[object]]) -> list[dict[str, Any]]:
    stem = source.with_name(f"{source.stem.removesuffix('-utf8')}-predicted")
    sheet, plain = stem.with_suffix(".xlsx"), stem.with_suffix(".csv")
    with atomic_path(sheet) as beside:
        write_spreadsheet(beside, rows)
    written = io.StringIO()
    csv.writer(written, lineterminator="\r\n").writerows(map(uncomputed, row) for row in rows)
    write_atomically(plain, written.getvalue().encode("utf-8-sig"))
    return [{"name": one.name, "bytes": one.stat().st_size} for one in (sheet, plain)]


def _agreement(
    task: Task, table: Table, answers: Sequence[Sequence[object]], records: Mapping[int, Any]
) -> dict[str, Any]:
    """Return how many rows have a label of training, and how many are predicted so."""
    label = task.columns.label
    if not task.labels or task.task_kind == "multilabel" or label not in table.columns:
        return {"compared": 0, "agree": 0}
    true = table.column(label)
    known = [i for i in records if str(true[i]) in task.labels]
    return {
        "compared": len(known),
        "agree": sum(str(true[i]) == answers[i][0] for i in known),
    }
