"""Pictures of Parquet files as the datasets library writes them: a struct of bytes and path."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from unmask.images.records import (
    MAX_ENCODED_BYTES,
    FoundColumns,
    ImageColumns,
    ImageRecord,
    find_columns,
)
from unmask.text.class_names import class_names, replace_class_numbers
from unmask.text.formats.decompress import require_module
from unmask.text.formats.parquet import arrow_errors, read_batches, rows_per_batch
from unmask.text.formats.records import describe_value

_BUFFER_BYTES = 2**20


def read_parquet_images(path: Path, columns: ImageColumns) -> Iterator[ImageRecord]:
    """Yield a record for each row, which holds its picture's bytes; a few rows are read at a time.

    A column of pictures is a struct with `bytes` (and `path`, which names the picture in messages),
    or is binary. Class numbers are replaced by the class names of the file's metadata
    (huggingface.co/docs/datasets/about_dataset_features).

    Args:
        path: the file.
        columns: which columns are what; by default the first one of pictures.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is damaged, or has no such columns.
        ImportError: pyarrow is not installed.
    """
    require_module("pyarrow", "reading .parquet")
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file")
    from pyarrow import parquet

    with path.open("rb") as data:
        with arrow_errors(path):
            file = parquet.ParquetFile(data, pre_buffer=False, buffer_size=_BUFFER_BYTES)
            schema = file.schema_arrow
        found, is_struct = _image_columns(path, schema, columns)
        names = class_names(schema.metadata, path)
        with arrow_errors(path):
            image = f"{found.image}.bytes" if is_struct else found.image
            n_rows = rows_per_batch(file, path, image)
        read = {found.image, *found.captions, *columns.where}
        read |= set() if found.label is None else {found.label}
        number = 0
        for batch in read_batches(path, file, sorted(read), n_rows):
            for i in range(batch.num_rows):
                number += 1
                with arrow_errors(path):
                    row = {name: batch.column(name)[i].as_py() for name in batch.schema.names}
                where = f"{path}:{number}"
                for column, classes in names.items():
                    if column in row:
                        row[column] = replace_class_numbers(row[column], classes, column, where)
                if all(str(row[key]) == value for key, value in columns.where.items()):
                    yield _record(row, found, columns.where, where)


def _image_columns(path: Path, schema: Any, columns: ImageColumns) -> tuple[FoundColumns, bool]:
    """Find the columns that are read, and whether that of the pictures is a struct."""
    from pyarrow import types

    def is_struct(name: str) -> bool:
        kind = schema.field(name).type
        return types.is_struct(kind) and kind.get_field_index("bytes") >= 0

    def is_binary(name: str) -> bool:
        kind = schema.field(name).type
        return any(fits(kind) for fits in (types.is_binary, types.is_large_binary))

    if len(set(schema.names)) < len(schema.names):
        find_columns(schema.names, columns, path)  # raises
    image = columns.image or next((name for name in schema.names if is_struct(name)), None)
    image = image or next((name for name in schema.names if is_binary(name)), None)
    if image is None:
        raise ValueError(
            f"{path}: no column of pictures: a struct with 'bytes', or binary; got {schema.names}"
        )
    named = ImageColumns(
        image=image, label=columns.label, captions=columns.captions, where=columns.where
    )
    found = find_columns(schema.names, named, path)
    if not is_struct(image) and not is_binary(image):
        raise ValueError(
            f"{path}: column {image!r} must be a struct with 'bytes', or binary, got "
            f"{schema.field(image).type}"
        )
    return found, is_struct(image)


def _record(
    row: Mapping[str, Any], found: FoundColumns, where: Mapping[str, str], location: str
) -> ImageRecord:
    image = row[found.image]
    data, name = (image.get("bytes"), image.get("path")) if isinstance(image, dict) else (image, "")
    label, captions = found.parse(row, location)
    return ImageRecord(
        location=f"{location}: {name}" if name else location,
        name=name or location.rpartition(":")[2],
        load=_holding(data, location),
        label=label,
        captions=captions,
        columns=dict(where),
    )


def _holding(data: object, location: str) -> Callable[[], bytes]:
    """Return a function that returns the bytes of a picture, or says why there are none."""

    def load() -> bytes:
        if not isinstance(data, bytes):
            raise ValueError(
                f"{location}: no bytes of a picture, got {describe_value(data)}; files elsewhere "
                "that a row names by path are not read"
            )
        if len(data) > MAX_ENCODED_BYTES:
            raise ValueError(
                f"{location}: has {len(data):,} bytes, of which at most {MAX_ENCODED_BYTES:,} are "
                "read"
            )
        return data

    return load
