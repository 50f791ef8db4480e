"""Pictures of every kind of source, one record at a time: names first, bytes when asked.

- A folder, or a .zip archive: each picture is a record. The first folder of its name is its label,
  as in torchvision's `ImageFolder`, unless a table `metadata.csv` (.tsv, .jsonl) lies there.
- A table (.csv, .tsv, .jsonl, also compressed) of file names, labels and captions, relative to its
  folder or to a .zip there. Several rows of a picture are one record with several captions.
- Parquet with pictures as bytes, IDX files, .npz archives, and a single picture.
- `demo:emoji`: the bundled pictures.
"""

import glob
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path, PurePosixPath

from unmask.bundled.demo import bundled_pictures
from unmask.images.formats.arrays import is_idx_name, read_idx, read_npz
from unmask.images.formats.parquet import read_parquet_images
from unmask.images.formats.picture_files import (
    FolderFiles,
    PictureFiles,
    ZipFiles,
    is_picture_name,
    labeled_by_folder,
    loader_of,
    picture_names,
)
from unmask.images.formats.tables import (
    TABLE_SUFFIXES,
    is_metadata_name,
    is_table_name,
    read_image_table,
    read_table_in_archive,
)
from unmask.images.records import (
    PICTURE_SUFFIXES,
    ImageColumns,
    ImageRecord,
    check_no_columns,
)
from unmask.text.documents import files_in_folder
from unmask.text.formats.records import format_names


def read_images(
    sources: str | Path | Sequence[str | Path],
    columns: ImageColumns | None = None,
    *,
    pictures: str | Path | None = None,
) -> Iterator[ImageRecord]:
    """Yield the pictures of all sources in the order given, those of a folder sorted by name.

    The sources are looked up at once, before the first record is asked for.

    Args:
        sources: folders, archives, tables, arrays, pictures; patterns (`train-*.parquet`).
        columns: columns of tables, which are found by usual names if not given.
        pictures: folder or .zip archive of the pictures that tables name.

    Raises:
        FileNotFoundError: a file is missing, or a folder, archive or pattern has no picture.
        ValueError: a source is of no known kind, or not what its name says.
        ImportError: what a file needs is not installed.
    """
    named = [sources] if isinstance(sources, str | Path) else list(sources)
    if not named:
        raise ValueError("no pictures were named: give at least one folder, archive or table")
    wanted = columns or ImageColumns()
    files = None if pictures is None else _open_files(Path(pictures))
    paths = [path for source in named for path in _expand(str(source))]
    return chain.from_iterable([_read_source(path, wanted, files) for path in paths])


def _expand(source: str) -> list[Path]:
    """Return the files that a pattern matches, or the one that is named."""
    source = bundled_pictures(source)
    path = Path(source)
    if not source:
        raise ValueError("a source has no name: give a folder, archive, table or picture")
    if path.exists():
        return [path]
    if glob.has_magic(source):
        found = sorted(map(Path, glob.glob(source, recursive=True)))
        if found:
            return [one for one in found if one.is_file()] or found
        raise FileNotFoundError(f"{source}: no file matches this pattern")
    raise FileNotFoundError(f"{source}: no such file or folder")


def _open_files(path: Path) -> PictureFiles:
    """Open the folder or the archive in which a table's pictures are."""
    if path.is_dir():
        return FolderFiles(path)
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such folder or .zip archive")
    return ZipFiles(path)


def _read_source(
    path: Path, columns: ImageColumns, files: PictureFiles | None
) -> Iterator[ImageRecord]:
    if path.is_dir():
        return _read_folder(path, columns)
    if is_table_name(path.name):
        return read_image_table(path, columns, files)
    suffix = path.suffix.lower()
    if suffix == ".zip":
        return _read_archive(path, columns)
    if suffix == ".parquet":
        return read_parquet_images(path, columns)
    if suffix == ".npz":
        return read_npz(path, columns)
    if is_idx_name(path.name):
        return read_idx(path, columns)
    if is_picture_name(path.name):
        return _read_picture(path, columns)
    raise ValueError(
        f"{path}: an unknown ending; known are those of pictures ({', '.join(PICTURE_SUFFIXES)}), "
        f"of tables ({', '.join(TABLE_SUFFIXES)}), .zip, .parquet, .npz and -images-idx3-ubyte"
    )


def _read_picture(path: Path, columns: ImageColumns) -> Iterator[ImageRecord]:
    check_no_columns(columns, path)
    files = FolderFiles(path.parent)
    load = loader_of(files, path.name)
    return iter([ImageRecord(location=str(path), name=path.name, load=load)])


def _read_folder(path: Path, columns: ImageColumns) -> Iterator[ImageRecord]:
    files = FolderFiles(path)
    tables = [name for name in files.names() if is_metadata_name(name) and "/" not in name]
    if tables:
        return read_image_table(path / _only_table(path, tables), columns, files)
    found = files_in_folder(path)
    parquet = [file for file in found if file.suffix.lower() == ".parquet"]
    if parquet and not any(is_picture_name(file.name) for file in found):
        return chain.from_iterable(read_parquet_images(file, columns) for file in parquet)
    check_no_columns(columns, path)
    return labeled_by_folder(files, picture_names(files, path), skip_wrapper=False)


def _read_archive(path: Path, columns: ImageColumns) -> Iterator[ImageRecord]:
    files = ZipFiles(path)
    names = files.names()
    tables = [name for name in names if is_metadata_name(name)]
    tables = tables or [name for name in names if is_table_name(name)]
    if tables:
        return read_table_in_archive(files, _only_table(path, tables), columns)
    check_no_columns(columns, path)
    return labeled_by_folder(files, picture_names(files, path), skip_wrapper=True)


def _only_table(path: Path, tables: Sequence[str]) -> str:
    """Return the table of a folder or archive.

    Raises:
        ValueError: there are several.
    """
    if len(tables) > 1:
        shown = format_names(PurePosixPath(name).as_posix() for name in tables)
        raise ValueError(f"{path}: several tables say what its pictures are: {shown}")
    return tables[0]
