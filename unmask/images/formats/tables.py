"""Tables of pictures: rows with file names, labels and captions; rows of one picture are one."""

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from unmask.images.formats.picture_files import FolderFiles, PictureFiles, ZipFiles, loader_of
from unmask.images.records import FoundColumns, ImageColumns, ImageRecord, find_columns
from unmask.text.formats.decompress import COMPRESSIONS, compression_suffix
from unmask.text.formats.delimited import read_delimited
from unmask.text.formats.json_lines import read_json_rows
from unmask.text.formats.records import describe_value

TABLE_SUFFIXES = (".csv", ".tsv", ".jsonl", ".ndjson")
"""Endings of tables, each also with that of a compression behind it."""
METADATA_STEM = "metadata"
"""Of the table that may lie among the pictures of a folder (huggingface.co/docs/datasets/
image_load), as `metadata.csv`."""

_Rows = Iterator[tuple[int, dict[str, object]]]
_MAX_OTHER_COLUMNS = 64


@dataclass(kw_only=True)
class _Picture:
    """What the rows of one picture say, so far."""

    line: int
    label: str | None
    captions: list[str] = field(default_factory=list[str])
    columns: dict[str, str] = field(default_factory=dict[str, str])


def read_image_table(
    path: Path, columns: ImageColumns, files: PictureFiles | None = None
) -> Iterator[ImageRecord]:
    """Yield a record for each picture that a table names, in the order of their first rows.

    The table is read at once: its texts are in memory, pictures are not.

    Args:
        path: .csv, .tsv or .jsonl, also compressed.
        columns: which columns are what.
        files: where the pictures are. None: in the folder of the table, or in the one .zip there
            that has the first of them.

    Raises:
        FileNotFoundError: there is no such table, or the first picture is nowhere.
        ValueError: a row is not as it should be, or two rows give a picture different labels.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file")
    pictures = _group_rows(path, columns)
    if files is None:
        files = _find_files(path, next(iter(pictures)))
    return records_of_pictures(pictures, files)


def read_table_in_archive(
    files: ZipFiles, member: str, columns: ImageColumns
) -> Iterator[ImageRecord]:
    """Yield a record for each picture that a table within an archive names.

    Names are relative to the table.

    Raises:
        ValueError: as of `read_image_table`; the archive and the member are named.
    """
    name, folder = PurePosixPath(member).name, PurePosixPath(member).parent
    with tempfile.TemporaryDirectory() as place:
        copy = Path(place, name)
        copy.write_bytes(files.read(member))
        try:
            pictures = _group_rows(copy, columns)
        except ValueError as error:
            raise ValueError(str(error).replace(str(copy), files.location(member))) from None
    within = {str(folder / name): picture for name, picture in pictures.items()}
    return records_of_pictures(within, files)


def records_of_pictures(
    pictures: Mapping[str, _Picture], files: PictureFiles
) -> Iterator[ImageRecord]:
    """Yield a record for each picture; whether its file exists is found when it is read."""
    for name, picture in pictures.items():
        yield ImageRecord(
            location=files.location(name),
            name=name,
            load=loader_of(files, name),
            label=picture.label,
            captions=tuple(picture.captions),
            columns=picture.columns,
        )


def is_table_name(name: str) -> bool:
    """Return whether a file's name ends as a table's."""
    return _table_suffix(Path(name)) in TABLE_SUFFIXES


def is_metadata_name(name: str) -> bool:
    """Return whether a file is the table of the pictures beside it, by its name."""
    return is_table_name(name) and PurePosixPath(name).name.split(".")[0] == METADATA_STEM


def _table_suffix(path: Path) -> str:
    inner = path if compression_suffix(path) is None else path.with_suffix("")
    return inner.suffix.lower()


def _group_rows(path: Path, columns: ImageColumns) -> dict[str, _Picture]:
    names, rows = _read_rows(path)
    pictures: dict[str, _Picture] = {}
    found = None if names is None else find_columns(names, columns, path)
    for line, fields in rows:
        where = f"{path}:{line}"
        if found is None:  # of JSON lines, the first row names the columns
            found = find_columns(list(fields), columns, where)
        if all(_as_text(fields.get(key)) == value for key, value in columns.where.items()):
            _add_row(pictures, fields, found, line, path)
    if not pictures:
        wanted = " and ".join(f"{key} = {value!r}" for key, value in columns.where.items())
        kept = f" with {wanted}" if wanted else ""
        raise ValueError(f"{path}: no row{kept} names a picture")
    return pictures


def _read_rows(path: Path) -> tuple[tuple[str, ...] | None, _Rows]:
    suffix = _table_suffix(path)
    if suffix in (".jsonl", ".ndjson"):
        return None, read_json_rows(path, "strict")
    if suffix not in TABLE_SUFFIXES:
        raise ValueError(
            f"{path}: the name of a table of pictures must end in {', '.join(TABLE_SUFFIXES)}, "
            f"optionally followed by {' or '.join(COMPRESSIONS)}"
        )
    file = read_delimited(path)
    names = file.columns
    return names, ((line, dict(zip(names, fields, strict=True))) for line, fields in file.rows)


def _add_row(
    pictures: dict[str, _Picture],
    fields: Mapping[str, object],
    found: FoundColumns,
    line: int,
    path: Path,
) -> None:
    """Add a row to its picture.

    Raises:
        ValueError: it names no picture, or gives it another label than a row before.
    """
    where, name = f"{path}:{line}", fields.get(found.image)
    if not isinstance(name, str) or not name.strip():
        raise ValueError(
            f"{where}: {found.image!r} must be the name of a picture, got {describe_value(name)}"
        )
    label, captions = found.parse(fields, where)
    others = _other_columns(fields, found)
    picture = pictures.get(name)
    if picture is None:
        pictures[name] = _Picture(line=line, label=label, captions=list(captions), columns=others)
        return
    if picture.label != label:
        raise ValueError(
            f"{where}: {name!r} has the label {label!r}, and {picture.label!r} at line "
            f"{picture.line}: a picture has one label"
        )
    picture.captions += captions
    for key in [key for key, value in picture.columns.items() if others.get(key) != value]:
        del picture.columns[key]


def _other_columns(fields: Mapping[str, object], found: FoundColumns) -> dict[str, str]:
    read = {found.image, found.label, *found.captions}
    others = {key: _as_text(value) for key, value in fields.items() if key not in read}
    return {key: text for key, text in [*others.items()][:_MAX_OTHER_COLUMNS] if text is not None}


def _as_text(value: object) -> str | None:
    """Return a value as a table of text would hold it; None of what is no single value."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, str | int | float) else None


def _find_files(table: Path, name: str) -> PictureFiles:
    """Find where the pictures of a table are: in its folder, or in a .zip there.

    Raises:
        FileNotFoundError: the first one is nowhere.
        ValueError: it is in several archives.
    """
    folder = FolderFiles(table.parent)
    if name in folder:
        return folder
    archives = [ZipFiles(path) for path in sorted(table.parent.glob("*.zip"))]
    having = [archive for archive in archives if name in archive]
    if len(having) > 1:
        raise ValueError(
            f"{table}: {name!r} is in {having[0].path.name} and {having[1].path.name}; say which "
            "(pictures)"
        )
    if not having:
        raise FileNotFoundError(
            f"{table}: no picture {name!r} in {table.parent} or in a .zip there; say where the "
            "pictures are (pictures), a folder or a .zip"
        )
    return having[0]
