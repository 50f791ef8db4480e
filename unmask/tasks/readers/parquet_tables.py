"""Parquet files -> rows of a table, for columns of any type."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

from unmask.text.class_names import class_names, replace_class_numbers
from unmask.text.formats.parquet import (
    ExpansionBudget,
    arrow_errors,
    read_batches,
    seekable_parquet,
)
from unmask.text.formats.records import TableRow

_ROWS, _NESTED_ROWS = 2**12, 2**5  # decoded per batch
_MAX_BYTES = 2**28  # bytes of strings that a Parquet file of any size may hold


def read_parquet_table(path: Path) -> tuple[tuple[str, ...], list[TableRow]]:
    """Read all columns of a Parquet file; class numbers are replaced by class names.

    Raises:
        ValueError: the file is damaged, or expands more than text does.
        ImportError: pyarrow is not installed.
    """
    with seekable_parquet(path) as source:
        schema, columns = _read_columns(path, source)
    for name, classes in class_names(schema.metadata, path).items():
        for row in (i for i, column in enumerate(schema.names) if column == name):
            columns[row] = [
                replace_class_numbers(value, classes, name, f"{path}:{i}")
                for i, value in enumerate(columns[row], 1)
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
        # Strings stay dictionary-encoded until their size is known. Arrow cannot do so within lists
        # and structs, so that few of these rows are read at a time.
        stored = parquet.ParquetFile(source, read_dictionary=[n for n in names if n in strings])
    nested = [name for name in names if any(s.startswith(f"{name}.") for s in strings)]
    if len(set(names)) < len(names) or _are_ambiguous(names):  # cannot be selected by name
        nested = list(names)
    columns: list[list[object]] = [[] for _ in names]
    budget = ExpansionBudget(path, _MAX_BYTES)
    for file, some, n_rows in (
        (stored, [name for name in names if name not in nested], _ROWS),
        (opened, nested, _NESTED_ROWS),
    ):
        if not some:
            continue
        indices = [i for i, name in enumerate(names) if name in some]
        reads_all = len(some) == len(names)
        for batch in read_batches(path, file, None if reads_all else some, n_rows):
            for i, values in zip(indices, batch.columns, strict=True):
                with arrow_errors(path):
                    size = expanded_string_bytes(values)
                budget.spend(size)
                with arrow_errors(path):
                    columns[i] += _plain(values).to_pylist()
    return schema, columns


def _are_ambiguous(names: Sequence[str]) -> bool:
    """Return whether a name is also the path of a nested column: "a.b" besides "a"."""
    all_names = set(names)
    return any(
        name[: dot.start()] in all_names for name in names for dot in re.finditer(r"\.", name)
    )


def _plain(values: Any) -> Any:
    """Return an array without dictionary encoding."""
    from pyarrow import types

    return values.dictionary_decode() if types.is_dictionary(values.type) else values


def _string_columns(parquet_file: Any) -> list[str]:
    """List the string columns by their Parquet paths, nested ones as "a.b"."""
    columns = [parquet_file.schema.column(i) for i in range(len(parquet_file.schema))]
    return [column.path for column in columns if column.physical_type == "BYTE_ARRAY"]


def expanded_string_bytes(values: Any) -> int:
    """Return the size in bytes of the strings of an Arrow array after decoding."""
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
