"""Documents, one by one, within bounded memory: from text, JSONL, CSV, TSV, Parquet, or the Hub.

A document is paragraphs, one a line. Nothing is cleaned here: only lines without text are dropped,
and line ends made equal. What separates documents depends on what they are stored in:

- `.txt`: blank lines (empty, or nothing but white space), unless `document` says otherwise. So a
  chapter is a document where chapters are set apart by a blank line; and in WikiText's files, which
  set every heading apart, a heading is one too. Every line is a paragraph: text that is
  hard-wrapped at 70 characters has paragraphs of 70 characters.
- a file that is named by itself and ends in a language (`train.de`) is read as `.txt`.
- `.jsonl` (one object a line), `.csv`, `.tsv` (with a header), `.parquet`, `hf:owner/name`: a
  record is a document, whatever `document` says, and its text is in one column. Records without
  text are passed over.

Each of the files may be compressed (`.txt.gz`, `.jsonl.zst`, `.csv.xz`). A document of more than
`longest` characters comes as several, cut between paragraphs, else at white space, so that no
input, however strange, fills the memory. Only a record must be held whole, and has a limit of its
own (`records.MAX_RECORD_CHARACTERS`).
"""

import glob
import itertools
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from unmask.bundled.demo import bundled_texts
from unmask.text.formats import hub, records
from unmask.text.formats.decompress import COMPRESSIONS, compression_suffix, require_module
from unmask.text.formats.delimited import read_delimited_column
from unmask.text.formats.json_lines import read_jsonl, read_jsonl_in_pieces
from unmask.text.formats.parquet import read_parquet, read_parquet_in_pieces
from unmask.text.languages import LANGUAGE_ENDINGS
from unmask.text.lines import (
    BlankLines,
    EncodingErrors,
    LinePart,
    is_blank,
    iter_paragraphs,
    read_lines,
    split_lines,
    with_newlines,
)

MAX_DOCUMENT_CHARACTERS = 2**22
"""Characters of the longest document, about a long novel."""

DocumentSeparator = Literal["blank", "line", "file"]
"""What a document of plain text is: what is between blank lines, a line, or a file."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Document:
    """A text and where it begins."""

    text: str
    """Paragraphs, one a line, with no blank lines."""
    location: str
    """File and line (row, where a format has no lines) at which it begins: `novels.txt.xz:1042`."""
    source: str | None = None
    """Which of several sources it is of (see `unmask.text.mixtures`)."""


def read_documents(
    sources: str | Path | Sequence[str | Path],
    *,
    document_separator: DocumentSeparator = "blank",
    text_column: str | None = None,
    encoding_errors: EncodingErrors = "strict",
    max_characters: int = MAX_DOCUMENT_CHARACTERS,
) -> Iterator[Document]:
    """Yield the documents of all sources in the order given, those of a folder sorted by file name.

    The sources are looked up at once, before the first document is asked for. Files of a folder or
    pattern whose kind is not known are named in a warning of the log; hidden ones are passed over.

    Args:
        sources: files; folders, with all that they hold; patterns (`corpus/**/*.txt`);
            `hf:owner/name`, with `:config` and `:split` behind it if wanted.
        document_separator: what a document of plain text is.
        text_column: the column that holds the text of a record, `text_column` by default.
        encoding_errors: with "replace", bytes that are not UTF-8, NULs and lone surrogates become
            U+FFFD.
        max_characters: characters beyond which a document comes as several.

    Raises:
        FileNotFoundError: a file is missing, a pattern or folder has no file of a known kind.
        ValueError: a file is not what its name says, or a source has no text at all.
        ImportError: what a file needs is not installed.
    """
    if max_characters < 1:
        raise ValueError(f"max_characters must be at least 1 character, got {max_characters}")
    _check_allowed("document_separator", document_separator, ("blank", "line", "file"))
    _check_allowed("encoding_errors", encoding_errors, ("strict", "replace"))
    found = _resolve_sources(sources)
    how = _ReadOptions(
        document_separator=document_separator,
        text_column=text_column or "text",
        encoding_errors=encoding_errors,
        max_characters=max_characters,
    )
    return _iter_documents(found, how)


def read_rows(
    source: str | Path,
    *,
    text_column: str | None = None,
    encoding_errors: EncodingErrors = "strict",
    max_characters: int = records.MAX_RECORD_CHARACTERS,
) -> Iterator[Document]:
    """Yield a document for each line of plain text and each record; of a blank one it is empty.

    Args:
        source: a source of `read_documents`.
        text_column: as there.
        encoding_errors: as there.
        max_characters: characters of a line.

    Raises:
        FileNotFoundError: as of `read_documents`.
        ValueError: as there, or a line is longer.
    """
    options = _ReadOptions(
        document_separator="line",
        text_column=text_column or "text",
        encoding_errors=encoding_errors,
        max_characters=max_characters,
    )
    ((name, files),) = _resolve_sources(source)
    any_text = False
    for document in _iter_lines(name, files, options):
        any_text = any_text or bool(document.text)
        yield document
    if not any_text:
        raise ValueError(f"{name}: no text in it")


def list_files(sources: str | Path | Sequence[str | Path]) -> list[Path]:
    """List the files that `read_documents` reads, in its order; of `hf:owner/name` there is none.

    Raises:
        FileNotFoundError: a file is missing, a pattern or folder has no file of a known kind.
        ValueError: nothing is named.
    """
    return [file for _, found in _resolve_sources(sources) for file in found]


def _resolve_sources(sources: str | Path | Sequence[str | Path]) -> list[tuple[str, list[Path]]]:
    named = [sources] if isinstance(sources, str | Path) else list(sources)
    if not named:
        raise ValueError(
            "no text was named: give at least one file, folder, pattern or hf:owner/name"
        )
    return [(str(source), _find_files(str(source))) for source in named]


def _check_allowed(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"{name} must be one of {list(allowed)}, got {value!r}")


_RecordReader = Callable[..., Iterator[records.TextRecord]]
_PieceReader = Callable[..., Iterator[records.TextInPieces]]


@dataclass(frozen=True, kw_only=True)
class _ReadOptions:
    document_separator: DocumentSeparator
    text_column: str
    encoding_errors: EncodingErrors
    max_characters: int


def _iter_lines(source: str, files: list[Path], options: _ReadOptions) -> Iterator[Document]:
    if source.startswith(_HUB_PREFIX):
        name = source.removeprefix(_HUB_PREFIX)
        yield from _iter_records(source, partial(hub.stream_records, name), options)
    for file in files:
        suffix = _content_suffix(file)
        if suffix is None or suffix == ".txt":
            read = read_lines(file, options.max_characters, options.encoding_errors)
            for number, text, continues in read:
                if continues:
                    raise ValueError(_too_long_line(file, number, options))
                yield _line_document(file, number, [text], options)
        else:
            yield from _iter_records(file, partial(_RECORD_READERS[suffix], file), options)


def _iter_records(name: object, read: _RecordReader, options: _ReadOptions) -> Iterator[Document]:
    """Yield a document for each record, and tell of lines that are none."""
    number, blank_lines = 0, BlankLines()
    for number, text in read(options.text_column, options.encoding_errors, blank_lines):
        held = [p for p in iter_paragraphs(text) if not is_blank(p)]
        yield _line_document(name, number, held, options)
    if skipped := blank_lines.describe(number):
        _log.warning("%s: blank lines, which are no records, are skipped: %s", name, skipped)


def _too_long_line(name: object, number: int, options: _ReadOptions) -> str:
    return f"{name}:{number}: a line of more than {options.max_characters:,} characters"


def _line_document(
    name: object, number: int, paragraphs: list[str], options: _ReadOptions
) -> Document:
    text = "\n".join(paragraphs)
    if len(text) > options.max_characters:
        raise ValueError(_too_long_line(name, number, options))
    return Document("" if is_blank(text) else text, f"{name}:{number}")


def _iter_documents(
    files_by_source: list[tuple[str, list[Path]]], options: _ReadOptions
) -> Iterator[Document]:
    for source, files in files_by_source:
        if source.startswith(_HUB_PREFIX):
            read = _documents_of_records(
                source,
                _in_pieces(hub.stream_records)(
                    source.removeprefix(_HUB_PREFIX), options.text_column, options.encoding_errors
                ),
                options,
            )
        else:
            read = itertools.chain.from_iterable(_read_file(file, options) for file in files)
        first = next(read, None)
        if first is None:
            raise ValueError(f"{source}: no text in it")
        yield first
        yield from read


# Where the files are

_HUB_PREFIX = "hf:"


def _in_pieces(read: _RecordReader) -> _PieceReader:
    """Return a reader of texts that are each one piece."""

    def read_pieces(*how: Any) -> Iterator[records.TextInPieces]:
        return ((number, [text]) for number, text in read(*how))

    return read_pieces


_RECORD_READERS: dict[str, _RecordReader] = {
    ".jsonl": read_jsonl,
    ".csv": read_delimited_column,
    ".tsv": read_delimited_column,
    ".parquet": read_parquet,
}
_PIECE_READERS: dict[str, _PieceReader] = {
    ".jsonl": read_jsonl_in_pieces,
    ".csv": _in_pieces(read_delimited_column),
    ".tsv": _in_pieces(read_delimited_column),
    ".parquet": read_parquet_in_pieces,
}
_KNOWN_SUFFIXES = (
    f".txt, {', '.join(_RECORD_READERS)}, each also with {', '.join(COMPRESSIONS)} behind it"
)


def _content_suffix(path: Path, *, in_folder: bool = False) -> str | None:
    """Return the ending that says what a file holds, without that of its compression.

    In a folder, files that end in a language may be anything (`.so`, `.cs`).
    """
    inner = path.with_suffix("") if compression_suffix(path) else path
    ending = inner.suffix.lower()
    if not in_folder and ending[1:] in LANGUAGE_ENDINGS:
        return ".txt"
    return ending if ending == ".txt" or ending in _RECORD_READERS else None


def _find_files(source: str) -> list[Path]:
    """Find the files of a source, and check that what they need is installed."""
    if not source:
        raise ValueError("a source has no name: give a file, folder, pattern or hf:owner/name")
    if source.startswith(_HUB_PREFIX):
        hub.split_hub_name(source.removeprefix(_HUB_PREFIX))
        require_module("datasets", "reading hf:")
        return []
    path = Path(bundled_texts(source))
    if path.is_dir():
        files = _keep_known(source, files_in_folder(path))
    elif path.exists():
        if _content_suffix(path) is None:
            raise ValueError(f"{source}: an unknown ending; known are {_KNOWN_SUFFIXES}")
        files = [path]
    elif glob.has_magic(source):
        files = _files_matching(source)
        if not files:
            raise FileNotFoundError(f"{source}: no file matches this pattern")
        files = _keep_known(source, files)
    else:
        raise FileNotFoundError(f"{source}: no such file or folder")
    if any(_content_suffix(file) == ".parquet" for file in files):
        require_module("pyarrow", "reading .parquet")
    if any(compression_suffix(file) == ".zst" for file in files):
        require_module("zstandard", "reading .zst")
    return files


def _keep_known(source: str, files: list[Path]) -> list[Path]:
    """Keep the files of a known kind and name the others."""
    known = [file for file in files if _content_suffix(file, in_folder=True) is not None]
    known_files = set(known)
    others = records.format_names(str(file) for file in files if file not in known_files)
    if not known:
        raise FileNotFoundError(
            f"{source}: no file of a known kind in it ({_KNOWN_SUFFIXES}); found: {others}"
        )
    if len(known) < len(files):
        _log.warning("%s: files with unknown endings are not read: %s", source, others)
    return known


def _files_matching(pattern: str) -> list[Path]:
    found: set[Path] = set()  # `**` finds a folder and then what it holds
    for path in map(Path, glob.glob(pattern, recursive=True)):
        found.update(files_in_folder(path) if path.is_dir() else [path])
    return sorted(found)


def files_in_folder(folder: Path) -> list[Path]:
    """List all files of a folder but hidden ones, sorted. Links are followed, circles are not."""
    files: list[Path] = []
    seen: set[str] = set()
    for place, folders, names in os.walk(folder, onerror=_raise, followlinks=True):
        real = os.path.realpath(place)
        if real in seen:
            folders.clear()
            continue
        seen.add(real)
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        files += [Path(place, name) for name in names if not name.startswith(".")]
    return sorted(files)


def _raise(error: OSError) -> None:
    raise error


# What is in them


def _read_file(file: Path, options: _ReadOptions) -> Iterator[Document]:
    kind = _content_suffix(file)
    if kind is None or kind == ".txt":
        return _join_lines(
            file,
            read_lines(file, options.max_characters, options.encoding_errors),
            options.document_separator,
            options.max_characters,
        )
    read = _PIECE_READERS[kind](file, options.text_column, options.encoding_errors)
    return _documents_of_records(file, read, options)


def _documents_of_records(
    name: object, texts: Iterator[records.TextInPieces], options: _ReadOptions
) -> Iterator[Document]:
    for number, pieces in texts:
        yield from _join_lines(
            name,
            _record_lines(number, pieces, options.max_characters),
            "file",
            options.max_characters,
        )


def _record_lines(number: int, pieces: Iterable[str], max_characters: int) -> Iterator[LinePart]:
    for _, text, continues in split_lines(with_newlines(pieces), max_characters):
        yield number, text, continues


def _join_lines(
    name: object,
    parts: Iterable[LinePart],
    document_separator: DocumentSeparator,
    max_characters: int,
) -> Iterator[Document]:
    """Join lines into documents of at most `max_characters` characters."""
    held: list[str] = []
    begin = size = 0
    for number, text, ends in _mark_document_ends(parts, document_separator):
        if held and text and size + len(text) > max_characters:
            yield Document("\n".join(held), f"{name}:{begin}")
            held, size = [], 0
        if text:
            begin = begin if held else number
            held.append(text)
            size += len(text) + 1
        if ends and held:
            yield Document("\n".join(held), f"{name}:{begin}")
            held, size = [], 0
    if held:
        yield Document("\n".join(held), f"{name}:{begin}")


def _mark_document_ends(
    parts: Iterable[LinePart], document_separator: DocumentSeparator
) -> Iterator[tuple[int, str, bool]]:
    """Empty what is blank, and say after which line a document ends.

    One ends after each part of a line too long to be held, since no line end is between the parts.
    """
    empty = True  # the line so far
    for number, text, goes_on in parts:
        here = is_blank(text)
        empty = empty and here
        separates = document_separator == "line" or (
            document_separator == "blank" and empty and not goes_on
        )
        yield number, "" if here else text, goes_on or separates
        empty = empty or not goes_on
