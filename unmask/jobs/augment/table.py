"""The tables that are read and written: rows as plain data."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unmask.files import write_atomically
from unmask.inference.pipeline import Pipeline
from unmask.output import ProgressLine
from unmask.tasks.readers.tables import Table
from unmask.text.formats.records import format_names
from unmask.text.lines import EncodingErrors

SUFFIX = ".jsonl"


@dataclass(frozen=True, kw_only=True)
class TrainingTable:
    """A table to augment, the columns that were named, and the model."""

    table: Table
    pipeline: Pipeline
    text: tuple[str, ...]
    """Columns of text; empty: found."""
    label: str | None
    """Column of targets; None: that of the model's task."""
    seed: int
    encoding_errors: EncodingErrors
    progress: ProgressLine

    def row(self, i: int) -> dict[str, Any]:
        """Return a row by the names of its columns."""
        return dict(zip(self.table.columns, self.table.rows[i][1], strict=True))

    def show_progress(self, done: int) -> None:
        """Show how many rows are done."""
        rate = self.progress.rate(done)
        self.progress.show(
            lambda: f"{self.table.path}: {done:,} of {len(self.table):,} rows{rate}",
            last=done == len(self.table),
        )


def check_new_table(path: Path, source: Table) -> None:
    """Check, before long work, that rows can be written to a file.

    Raises:
        FileNotFoundError: its folder does not exist.
        ValueError: its name has another suffix, it exists, or two columns have one name.
    """
    if path.suffix != SUFFIX:
        raise ValueError(f"{path}: the name of the new table must end in {SUFFIX}")
    if path.exists():
        raise ValueError(f"{path}: exists already; name a new file")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{path}: there is no folder {path.parent}")
    twice = sorted({name for name in source.columns if source.columns.count(name) > 1})
    if twice:
        raise ValueError(f"{source.path}: two columns are named {format_names(twice)}")


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]], source: Table) -> int:
    """Write rows as lines of JSON, whole or not at all, and return their number.

    Raises:
        ValueError: a value is no plain data, such as a date.
    """
    lines: list[str] = []
    for row in rows:
        try:
            lines.append(json.dumps(row, ensure_ascii=False, allow_nan=False))
        except (TypeError, ValueError) as error:
            raise ValueError(f"{source.path}: a value cannot be written as JSON: {error}") from None
    write_atomically(path, "".join(f"{line}\n" for line in lines))
    return len(lines)
