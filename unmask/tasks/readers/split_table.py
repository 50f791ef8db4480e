"""A table split by the values of a column: languages, data sets, or other groups of rows."""

from dataclasses import replace

from unmask.tasks.readers.tables import Table
from unmask.text.formats.records import format_names

MAX_GROUPS = 200
"""Most values of a column that are groups; more are those of a column of texts or numbers."""


def split_table(table: Table, by: str) -> dict[str, Table]:
    """Split a table by the values of a column, in order of appearance.

    Raises:
        ValueError: there is no such column, a row has no value, or the column has too many values.
    """
    rows_of: dict[str, list[int]] = {}
    for i, value in enumerate(table.column(by)):
        if value is None or not str(value).strip():
            raise ValueError(f"{table.location(i)}: {by} must have a value")
        rows_of.setdefault(str(value), []).append(i)
    if len(rows_of) > MAX_GROUPS:
        raise ValueError(
            f"{table.path}: {by} must have at most {MAX_GROUPS} values, got {len(rows_of):,} "
            f"({format_names([*rows_of][:3])}, ...)"
        )
    return {
        value: replace(table, rows=[table.rows[i] for i in rows]) for value, rows in rows_of.items()
    }
