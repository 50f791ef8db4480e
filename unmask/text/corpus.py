"""Documents, one by one, within bounded memory: from text, JSONL, CSV, TSV, Parquet, or the Hub.

A document is paragraphs, one a line. Nothing is cleaned here: only lines without text are dropped,
and line ends made equal. What separates documents depends on what they are stored in:

- `.txt`: blank lines (empty, or nothing but white space), unless `document` says otherwise. So a
  chapter is a document where chapters are set apart by a blank line; and in WikiText's files, which
  set every heading apart, a heading is one too. Every line is a paragraph: text that is
  hard-wrapped at 70 characters has paragraphs of 70 characters.
- `.jsonl` (one object a line), `.csv`, `.tsv` (with a header), `.parquet`, `hf:owner/name`: a
  record is a document, whatever `document` says, and its text is in one column. Records without
  text are passed over.

Each of the files may be compressed (`.txt.gz`, `.jsonl.zst`, `.csv.xz`). A document of more than
`longest` characters comes as several, cut between paragraphs, else at white space, so that no
input, however strange, fills the memory. Only a record must be held whole, and has a limit of its
own (`records.LONGEST`).
"""

import glob
import itertools
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from unmask.text import hub, records
from unmask.text.compressed import COMPRESSIONS, compression, require
from unmask.text.lines import EncodingErrors, Line, blank, cut, lines, paragraphs

LONGEST = 2**22
"""Characters of the longest document, about a long novel."""

Separator = Literal["blank", "line", "file"]
"""What a document of plain text is: what stands between blank lines, a line, or a file."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Document:
    """A text and where it begins."""

    text: str
    """Paragraphs, one a line, with no blank lines."""
    where: str
    """File and line (row, where a format has no lines) at which it begins: `novels.txt.xz:1042`."""
    source: str | None = None
    """Which of several sources it is of (see `unmask.text.mix`)."""


def documents(
    sources: str | Path | Sequence[str | Path],
    *,
    document: Separator = "blank",
    text: str | None = None,
    encoding_errors: EncodingErrors = "strict",
    longest: int = LONGEST,
) -> Iterator[Document]:
    """Yield the documents of all sources in the order given, those of a folder sorted by file name.

    The sources are looked up at once, before the first document is asked for. Files of a folder or
    pattern whose kind is not known are named in a warning of the log; hidden ones are passed over.

    Args:
        sources: files; folders, with all that they hold; patterns (`corpus/**/*.txt`);
            `hf:owner/name`, with `:config` and `:split` behind it if wanted.
        document: what a document of plain text is.
        text: the column that holds the text of a record, `text` by default.
        encoding_errors: with "replace", bytes that are not UTF-8, NULs and lone surrogates become
            U+FFFD.
        longest: characters beyond which a document comes as several.

    Raises:
        FileNotFoundError: a file is missing, a pattern or folder has no file of a known kind.
        ValueError: a file is not what its name says, or a source has no text at all.
        ImportError: what a file needs is not installed.
    """
    if longest < 1:
        raise ValueError(f"longest must be at least 1 character, got {longest}")
    _check("document", document, ("blank", "line", "file"))
    _check("encoding_errors", encoding_errors, ("strict", "replace"))
    found = _found(sources)
    how = _How(document=document, column=text or "text", errors=encoding_errors, longest=longest)
    return _documents(found, how)


def rows(
    path: str | Path,
    *,
    text: str | None = None,
    encoding_errors: EncodingErrors = "strict",
    longest: int = records.LONGEST,
) -> Iterator[Document]:
    """Yield a document for each line of plain text and each record; of a blank one it is empty.

    Args:
        path: a source of `documents`.
        text: as there.
        encoding_errors: as there.
        longest: characters of a line.

    Raises:
        FileNotFoundError: as of `documents`.
        ValueError: as there, or a line is longer.
    """
    how = _How(document="line", column=text or "text", errors=encoding_errors, longest=longest)
    ((source, found),) = _found(path)
    any_text = False
    for one in _each_row(source, found, how):
        any_text = any_text or bool(one.text)
        yield one
    if not any_text:
        raise ValueError(f"{source}: no text in it")


def files(sources: str | Path | Sequence[str | Path]) -> list[Path]:
    """List the files that `documents` reads, in its order; of `hf:owner/name` there is none.

    Raises:
        FileNotFoundError: a file is missing, a pattern or folder has no file of a known kind.
        ValueError: nothing is named.
    """
    return [file for _, found in _found(sources) for file in found]


def _found(sources: str | Path | Sequence[str | Path]) -> list[tuple[str, list[Path]]]:
    named = [sources] if isinstance(sources, str | Path) else list(sources)
    if not named:
        raise ValueError(
            "no text was named: give at least one file, folder, pattern or hf:owner/name"
        )
    return [(str(source), _find(str(source))) for source in named]


def _check(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"{name} must be one of {list(allowed)}, got {value!r}")


@dataclass(frozen=True, kw_only=True)
class _How:
    document: Separator
    column: str
    errors: EncodingErrors
    longest: int


def _each_row(source: str, found: list[Path], how: _How) -> Iterator[Document]:
    if source.startswith(_HUB):
        stream = hub.stream(source.removeprefix(_HUB), how.column, how.errors)
        yield from (_row(source, number, [text], how) for number, text in stream)
    for file in found:
        kind = _kind(file)
        if kind is None or kind == ".txt":
            for number, text, goes_on in lines(file, how.longest, how.errors):
                if goes_on:
                    raise ValueError(_too_long(file, number, how))
                yield _row(file, number, [text], how)
        else:
            for number, text in _RECORDS[kind](file, how.column, how.errors, blanks=True):
                yield _row(file, number, [p for p in paragraphs(text) if not blank(p)], how)


def _too_long(name: object, number: int, how: _How) -> str:
    return f"{name}:{number}: a line of more than {how.longest:,} characters"


def _row(name: object, number: int, held: list[str], how: _How) -> Document:
    text = "\n".join(held)
    if len(text) > how.longest:
        raise ValueError(_too_long(name, number, how))
    return Document("" if blank(text) else text, f"{name}:{number}")


def _documents(found: list[tuple[str, list[Path]]], how: _How) -> Iterator[Document]:
    for source, files in found:
        if source.startswith(_HUB):
            read = _of_records(
                source, hub.stream(source.removeprefix(_HUB), how.column, how.errors), how
            )
        else:
            read = itertools.chain.from_iterable(_read(file, how) for file in files)
        first = next(read, None)
        if first is None:
            raise ValueError(f"{source}: no text in it")
        yield first
        yield from read


# Where the files are

_HUB = "hf:"

_Reader = Callable[..., Iterator[records.Record]]
_RECORDS: dict[str, _Reader] = {
    ".jsonl": records.jsonl,
    ".csv": records.csv,
    ".tsv": records.tsv,
    ".parquet": records.parquet,
}
_KNOWN = f".txt, {', '.join(_RECORDS)}, each also with {', '.join(COMPRESSIONS)} behind it"


def _kind(path: Path) -> str | None:
    """Return the ending that says what a file holds, without that of its compression."""
    inner = path.with_suffix("") if compression(path) else path
    ending = inner.suffix.lower()
    return ending if ending == ".txt" or ending in _RECORDS else None


def _find(source: str) -> list[Path]:
    """Find the files of a source, and check that what they need is installed."""
    if not source:
        raise ValueError("a source has no name: give a file, folder, pattern or hf:owner/name")
    if source.startswith(_HUB):
        hub.parts(source.removeprefix(_HUB))
        require("datasets", "reading hf:")
        return []
    path = Path(source)
    if path.is_dir():
        files = _known(source, _inside(path))
    elif path.exists():
        if _kind(path) is None:
            raise ValueError(f"{source}: an unknown ending; known are {_KNOWN}")
        files = [path]
    elif glob.has_magic(source):
        files = _matches(source)
        if not files:
            raise FileNotFoundError(f"{source}: no file matches this pattern")
        files = _known(source, files)
    else:
        raise FileNotFoundError(f"{source}: no such file or folder")
    if any(_kind(file) == ".parquet" for file in files):
        require("pyarrow", "reading .parquet")
    if any(compression(file) == ".zst" for file in files):
        require("zstandard", "reading .zst")
    return files


def _known(source: str, files: list[Path]) -> list[Path]:
    """Keep the files of a known kind and name the others."""
    known = [file for file in files if _kind(file) is not None]
    others = records.listed(str(file) for file in files if _kind(file) is None)
    if not known:
        raise FileNotFoundError(
            f"{source}: no file of a known kind in it ({_KNOWN}); found: {others}"
        )
    if len(known) < len(files):
        _log.warning("%s: files with unknown endings are not read: %s", source, others)
    return known


def _matches(pattern: str) -> list[Path]:
    found: set[Path] = set()  # `**` finds a folder and then what it holds
    for path in map(Path, glob.glob(pattern, recursive=True)):
        found.update(_inside(path) if path.is_dir() else [path])
    return sorted(found)


def _inside(folder: Path) -> list[Path]:
    """List all files of a folder but hidden ones, sorted. Links are followed, circles are not."""
    files: list[Path] = []
    seen: set[str] = set()
    for place, folders, names in os.walk(folder, onerror=_refuse, followlinks=True):
        real = os.path.realpath(place)
        if real in seen:
            folders.clear()
            continue
        seen.add(real)
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        files += [Path(place, name) for name in names if not name.startswith(".")]
    return sorted(files)


def _refuse(error: OSError) -> None:
    raise error


# What is in them


def _read(file: Path, how: _How) -> Iterator[Document]:
    kind = _kind(file)
    if kind is None or kind == ".txt":
        return _joined(file, lines(file, how.longest, how.errors), how.document, how.longest)
    return _of_records(file, _RECORDS[kind](file, how.column, how.errors), how)


def _of_records(name: object, found: Iterator[records.Record], how: _How) -> Iterator[Document]:
    for number, text in found:
        yield from _joined(name, _record_lines(number, text, how.longest), "file", how.longest)


def _record_lines(number: int, text: str, longest: int) -> Iterator[Line]:
    for paragraph in paragraphs(text):
        if len(paragraph) > longest:
            *heads, paragraph = cut(paragraph, longest)
            for head in heads:
                yield number, head, True
        yield number, paragraph, False


def _joined(
    name: object, parts: Iterable[Line], document: Separator, longest: int
) -> Iterator[Document]:
    """Join lines into documents of at most `longest` characters."""
    held: list[str] = []
    begin = size = 0
    for number, text, ends in _ends(parts, document):
        if held and text and size + len(text) > longest:
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


def _ends(parts: Iterable[Line], document: Separator) -> Iterator[tuple[int, str, bool]]:
    """Empty what is blank, and say after which line a document ends.

    One ends after each part of a line too long to be held, since no line end is between the parts.
    """
    empty = True  # the line so far
    for number, text, goes_on in parts:
        here = blank(text)
        empty = empty and here
        separates = document == "line" or (document == "blank" and empty and not goes_on)
        yield number, "" if here else text, goes_on or separates
        empty = empty or not goes_on
