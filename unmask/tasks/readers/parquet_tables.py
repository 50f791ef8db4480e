"""Parquet files -> rows of a table, whatever types the columns have."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

from unmask.tasks.readers.class_names import class_names, replace_class_numbers
from unmask.text.parquet import ExpansionBudget, arrow_errors, read_batches, seekable_parquet
from unmask.text.records import TableRow

_ROWS, _NESTED_ROWS = 2**12, 2**5  # that are decoded together
_MAX_BYTES = 2**28  # bytes of strings that any Parquet file may hold, however small


def read_parquet_table(path: Path) -> tuple[tuple[str, ...], list[TableRow]]:
    """Read all columns of a Parquet file; numbers that have class names are read as these.

    Raises:
        ValueError: the file is damaged, or expands to more than text does.
        ImportError: pyarrow is not installed.
    """
    with seekable_parquet(path) as source:
        schema, columns = _read_columns(path, source)
    for name, classes in class_names(schema.metadata, path).items():
        for at in (i for i, column in enumerate(schema.names) if column == name):
            columns[at] = [
                replace_class_numbers(value, classes, name, f"{path}:{i}")
                for i, value in enumerate(columns[at], 1)
            ]
    return tuple(schema.names), list(enumerate(zip(*columns, strict=True), 1))


def _read_columns(path: Path, source: Path | BinaryIO) -> tuple[Any, list[list[object]]]:
    """Read the schema and the values of each column."""
    from pyarrow import parquet

    with arrow_errors(path):
        opened = parquet.ParquetFile(source)
        schema = opened.schema_arrow
        names = tuple(schema.names)
        strings = _string_columns(opened)
        # Strings stay as they are stored, each once, until it is known how much they are; for
        # those in lists and tables Arrow cannot do so, and few rows are read at a time.
        stored = parquet.ParquetFile(source, read_dictionary=[n for n in names if n in strings])
    nested = [name for name in names if any(s.startswith(f"{name}.") for s in strings)]
    if len(set(names)) < len(names) or _are_ambiguous(names):  # cannot be read by their names
        nested = list(names)
    columns: list[list[object]] = [[] for _ in names]
    budget = ExpansionBudget(path, _MAX_BYTES)
    for file, some, n_rows in (
        (stored, [name for name in names if name not in nested], _ROWS),
        (opened, nested, _NESTED_ROWS),
    ):
        if not some:
            continue
        places = [i for i, name in enumerate(names) if name in some]
        every = len(some) == len(names)
        for batch in read_batches(path, file, None if every else some, n_rows):
            for i, values in zip(places, batch.columns, strict=True):
                with arrow_errors(path):
                    size = expanded_string_bytes(values)
                budget.spend(size)
                with arrow_errors(path):
                    columns[i] += _plain(values).to_pylist()
    return schema, columns


def _are_ambiguous(names: Sequence[str]) -> bool:
    """Return whether a name is also the path of a column in another one: "a.b" beside "a"."""
    known = set(names)
    return any(name[: dot.start()] in known for name in names for dot in re.finditer(r"\.", name))


def _plain(values: Any) -> Any:
    """Return an array whose strings are in it, not in a dictionary beside it."""
    from pyarrow import types

    return values.dictionary_decode() if types.is_dictionary(values.type) else values


def _string_columns(parquet_file: Any) -> list[str]:
    """List the columns of strings as Parquet calls them, those in others by their ways: "a.b"."""
    columns = [parquet_file.schema.column(i) for i in range(len(parquet_file.schema))]
    return [one.path for one in columns if one.physical_type == "BYTE_ARRAY"]


def expanded_string_bytes(values: Any) -> int:
    """Return how many bytes the strings of an Arrow array are, each as often as it is there."""
    import pyarrow
    from pyarrow import compute, types

    kind = values.type
    if types.is_dictionary(kind):
        sizes = compute.call_function("binary_length", [values.dictionary])
        return compute.call_function("sum", [sizes.take(values.indices)]).as_py() or 0
    if types.is_struct(kind):
        return sum(expanded_string_bytes(values.field(i)) for i in range(kind.num_fields))
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return 8 * len(values) + expanded_string_bytes(values.flatten())
    if types.is_map(kind):
        return expanded_string_bytes(values.keys) + expanded_string_bytes(values.items)
    assert isinstance(values, pyarrow.Array)
    return int(values.nbytes) + 8 * len(values)
