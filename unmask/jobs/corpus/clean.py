"""A corpus, cleaned into a folder of text that says what was removed and why.

text/00000.jsonl.gz   what is left: text, location, source
text/cleaning.json    how it was cleaned, and what was removed
text/unfinished/      until then: parts before duplicates are removed, with the keys of their units
"""

import gzip
import json
import shutil
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unmask.config import from_dict, to_dict
from unmask.files import (
    atomic_path,
    lock_run_folder,
    read_json_object,
    remove_partial_files,
    write_atomically,
)
from unmask.jobs.corpus.cleaned_chunks import (
    EXAMPLE_CHARACTERS,
    EXAMPLES,
    NOTHING_LEFT,
    Removed,
    iter_chunks,
    unpack_answer,
)
from unmask.text.cleaning.duplicates import DuplicateGroups, find_duplicates, split_units
from unmask.text.cleaning.rules import Cleaning
from unmask.text.documents import Document
from unmask.text.formats.json_lines import read_json_rows
from unmask.text.processes import map_in_order, worker_pool

PART_CHARACTERS = 2**25
"""A part is closed when so much text was read for it; it is not done again after that."""
CLEANING_FILE = "cleaning.json"
"""How a folder of text was cleaned; written last."""
_UNFINISHED = "unfinished"


@dataclass
class Size:
    """Documents, and their characters."""

    documents: int = 0
    characters: int = 0

    def add(self, document: Document) -> None:
        """Count a document."""
        self.documents += 1
        self.characters += len(document.text)


@dataclass
class CleaningReport:
    """What was read, kept and removed."""

    read: Size = field(default_factory=Size)
    kept: Size = field(default_factory=Size)
    removed: dict[str, Removed] = field(default_factory=dict)
    """By reason, in the order in which they came."""

    def add_removed(self, removed: Mapping[str, Removed]) -> None:
        """Add what was removed from a part."""
        for reason, one in removed.items():
            self.removed.setdefault(reason, Removed()).add(one)


@dataclass(frozen=True)
class _Finished:
    """What `CLEANING_FILE` says."""

    made_from: dict[str, Any]
    report: CleaningReport


def clean_corpus(
    documents: Iterable[Document],
    cleaning: Cleaning,
    folder: Path,
    *,
    made_from: Mapping[str, Any],
    n_workers: int = 1,
) -> CleaningReport:
    """Clean documents into a folder of text. The result does not depend on the workers.

    Interrupted and called again with the same, it reads over what was done and continues. A
    finished folder is not made again. In memory are at most 2 * `n_workers` chunks of about a
    megabyte of text, and 23 bytes for each unit (document or paragraph) that is compared.

    Args:
        documents: read once, in order.
        cleaning: what is done to them.
        folder: a new folder, or one in which this was begun or done.
        made_from: what the documents are made from (plain data), which says when they change.
        n_workers: processes.

    Raises:
        ValueError: the folder was made from something else, or is being written.
        OSError: the disk is full; the same call continues.
    """
    asked = json.loads(json.dumps({**made_from, "cleaning": to_dict(cleaning)}))
    folder.mkdir(parents=True, exist_ok=True)
    with lock_run_folder(folder):
        if (folder / CLEANING_FILE).is_file():
            found = from_dict(
                _Finished, read_json_object(folder / CLEANING_FILE), str(folder / CLEANING_FILE)
            )
            _check_same(folder, found.made_from, asked)
            shutil.rmtree(folder / _UNFINISHED, ignore_errors=True)
            return found.report
        remove_partial_files(folder)
        unfinished = folder / _UNFINISHED
        if (unfinished / CLEANING_FILE).is_file():
            _check_same(folder, read_json_object(unfinished / CLEANING_FILE), asked)
            remove_partial_files(unfinished)
        unfinished.mkdir(exist_ok=True)
        write_atomically(unfinished / CLEANING_FILE, json.dumps(asked))
        parts = _clean_parts(documents, cleaning, unfinished, n_workers)
        report = _write_kept(parts, cleaning, folder)
        told = json.dumps(asdict(_Finished(asked, report)), indent=1)
        write_atomically(folder / CLEANING_FILE, told + "\n")
        shutil.rmtree(unfinished)
    return report


def is_cleaned_folder(folder: Path) -> bool:
    """Return whether `clean_corpus` wrote a folder, or began to."""
    names = {path.name for path in folder.iterdir() if not path.name.startswith(".")}
    ours = names & {CLEANING_FILE, _UNFINISHED}
    others = names - ours - {"report.html"}
    return not names or (bool(ours) and all(name.endswith(".jsonl.gz") for name in others))


def read_cleaned(folder: Path) -> Iterator[Document]:
    """Yield the documents of a folder that `clean_corpus` made."""
    for file in sorted(folder.glob("*.jsonl.gz")):
        yield from _read_documents(file)


def _read_documents(file: Path) -> Iterator[Document]:
    for _, row in read_json_rows(file, "strict"):
        source = row.get("source")
        yield Document(
            str(row["text"]), str(row["location"]), None if source is None else str(source)
        )


def _check_same(folder: Path, found: Mapping[str, Any], asked: Mapping[str, Any]) -> None:
    for name in asked:
        if found.get(name) != asked[name]:
            what = "other files, or files that changed" if name == "files" else f"another {name}"
            raise ValueError(
                f"{folder.parent}: its text was cleaned with {what}; name another folder"
            )


@dataclass(frozen=True)
class _PartRecord:
    """What is in a part; written last, it closes the part."""

    read: Size
    kept: Size
    removed: dict[str, Removed]


@dataclass(frozen=True)
class _Part:
    """Documents after the rules, before duplicates are removed."""

    path: Path
    record: _PartRecord

    @property
    def number(self) -> str:
        """Its number, which is that of the file of what is kept."""
        return self.path.name.partition(".")[0]

    def keys_path(self, i: int) -> Path:
        """The file of the keys of a deduplication."""
        return self.path.with_name(f"{self.number}.keys-{i}")

    @property
    def paragraphs_path(self) -> Path:
        """The file of the numbers of paragraphs of each document."""
        return self.path.with_name(f"{self.number}.paragraphs")


def _clean_parts(
    documents: Iterable[Document], cleaning: Cleaning, unfinished: Path, n_workers: int
) -> list[_Part]:
    """Apply the rules, part by part; those that were closed are read over."""
    parts = list(_closed_parts(unfinished))
    source = iter(documents)
    n_done = sum(part.record.read.documents for part in parts)
    if sum(1 for _ in islice(source, n_done)) < n_done:
        raise ValueError(f"{unfinished.parent.parent}: there are fewer documents than before")
    words = json.dumps(to_dict(cleaning))
    target = "unmask.jobs.corpus.cleaned_chunks:make_cleaner"
    with worker_pool(target, words, n_workers) as begin:
        answers = map_in_order(
            iter_chunks(source),
            lambda chunk: begin([d.text.encode("utf-8", "surrogatepass") for d in chunk]),
            n_workers,
        )
        with closing(answers):
            while True:
                part = _write_part(answers, cleaning, unfinished / f"{len(parts):05}.jsonl.gz")
                if part is None:
                    return parts
                parts.append(part)


def _closed_parts(unfinished: Path) -> Iterator[_Part]:
    for record_path in sorted(unfinished.glob("[0-9]*.json")):
        record = from_dict(_PartRecord, read_json_object(record_path), str(record_path))
        yield _Part(record_path.with_suffix(".jsonl.gz"), record)


def _write_part(
    answers: Iterator[tuple[list[Document], list[bytes]]], cleaning: Cleaning, path: Path
) -> _Part | None:
    """Write the next part. None: there is no more text."""
    report, keys = CleaningReport(), [list[NDArray[np.uint64]]() for _ in cleaning.deduplications]
    paragraphs: list[int] = []
    with _text_file(path) as file:
        for chunk, answer in answers:
            cleaned = unpack_answer(cleaning, chunk, answer)
            for document in chunk:
                report.read.add(document)
            for document in cleaned.documents:
                _write_document(file, document)
                report.kept.add(document)
                paragraphs.append(document.text.count("\n") + 1)
            report.add_removed(cleaned.removed)
            for some, more in zip(keys, cleaned.keys, strict=True):
                some.append(more)
            if report.read.characters >= PART_CHARACTERS:
                break
    if not report.read.documents:
        path.unlink()
        return None
    part = _Part(path, _PartRecord(report.read, report.kept, report.removed))
    for i, some in enumerate(keys):
        write_atomically(part.keys_path(i), np.concatenate(some).astype("<u8").tobytes())
    write_atomically(part.paragraphs_path, np.array(paragraphs, "<i8").tobytes())
    write_atomically(path.with_name(f"{part.number}.json"), json.dumps(asdict(part.record)))
    return part


@contextmanager
def _text_file(path: Path) -> Generator[gzip.GzipFile]:
    """Open a compressed file that is whole or absent, and the same for the same text."""
    with (
        atomic_path(path) as beside,
        beside.open("wb") as raw,
        gzip.GzipFile("", "wb", compresslevel=1, fileobj=raw, mtime=0) as file,
    ):
        yield file


def _write_document(file: gzip.GzipFile, document: Document) -> None:
    row = {"text": document.text, "location": document.location}
    if document.source is not None:
        row["source"] = document.source
    file.write(json.dumps(row, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n")


def _find_duplicates(parts: Sequence[_Part], cleaning: Cleaning) -> list[DuplicateGroups]:
    counts = _read_parts([part.paragraphs_path for part in parts], "<i8", 1, 0)

    def read_keys(i: int, at: int) -> NDArray[np.uint64]:
        width = cleaning.deduplications[i].n_keys
        return _read_parts([part.keys_path(i) for part in parts], "<u8", width, at)

    return find_duplicates(counts, cleaning.deduplications, read_keys)


def _read_parts(paths: Sequence[Path], dtype: str, width: int, column: int) -> NDArray[Any]:
    counts = [path.stat().st_size // (np.dtype(dtype).itemsize * width) for path in paths]
    read, at = np.empty(sum(counts), dtype), 0
    for path, n in zip(paths, counts, strict=True):
        if n:
            read[at : at + n] = np.memmap(path, dtype, "r").reshape(-1, width)[:, column]
        at += n
    return read


def _write_kept(parts: Sequence[_Part], cleaning: Cleaning, folder: Path) -> CleaningReport:
    """Write what is left after duplicates are removed."""
    report = CleaningReport()
    duplicates = _Filter(_find_duplicates(parts, cleaning))
    for part in parts:
        report.read.documents += part.record.read.documents
        report.read.characters += part.record.read.characters
        report.add_removed(part.record.removed)
        with _text_file(folder / part.path.name) as file:
            for document in _read_documents(part.path):
                kept = duplicates.apply(document)
                if kept.text:
                    _write_document(file, kept)
                    report.kept.add(kept)
    report.add_removed(duplicates.removed)
    if not report.kept.documents:
        most = max(report.removed, key=lambda reason: report.removed[reason].characters)
        raise ValueError(f"nothing is left of the text after cleaning; most went by: {most}")
    return report


class _Filter:
    """Removes duplicates from the documents, which it is given in order."""

    def __init__(self, duplicates: Sequence[DuplicateGroups]) -> None:
        self.removed: dict[str, Removed] = {one.how.label: Removed() for one in duplicates}
        self._duplicates = duplicates
        self._is_removed = [one.is_removed for one in duplicates]
        self._position = {"document": 0, "paragraph": 0}
        self._shown = [one.first_removed(EXAMPLES) for one in duplicates]
        self._stayed: list[dict[int, str]] = [
            dict.fromkeys(one.values(), "") for one in self._shown
        ]

    def apply(self, document: Document) -> Document:
        """Return what is left of the next document."""
        text = document.text
        n = {"document": 1, "paragraph": text.count("\n") + 1}
        units = split_units(text, "paragraph")
        kept = [True] * len(units)
        for i, one in enumerate(self._duplicates):
            at = self._position[one.how.unit]
            gone = self._is_removed[i][at : at + n[one.how.unit]]
            self._note(i, document, at, n[one.how.unit])
            if one.how.unit == "document":
                kept = [] if gone[0] else kept
            elif kept:
                kept = [a and not b for a, b in zip(kept, gone.tolist(), strict=True)]
        for unit, count in n.items():
            self._position[unit] += count
        if all(kept) and kept:
            return document
        left = "\n".join(u for u, stays in zip(units, kept, strict=True) if stays) if kept else ""
        if kept and not left:
            self.removed.setdefault(NOTHING_LEFT, Removed()).add(Removed(documents=1))
        return Document(left, document.location, document.source)

    def _note(self, i: int, document: Document, at: int, n: int) -> None:
        """Count the units of a document that are removed, and keep a few with what stays."""
        one, gone = self._duplicates[i], self._is_removed[i][at : at + n]
        is_document = one.how.unit == "document"
        units = split_units(document.text, one.how.unit)
        for j, text in self._stayed[i].items():
            if at <= j < at + n and not text:
                self._stayed[i][j] = units[j - at][:EXAMPLE_CHARACTERS]
        for j in np.flatnonzero(gone).tolist():
            removed = Removed(
                documents=int(is_document), lines=int(not is_document), characters=len(units[j])
            )
            if at + j in self._shown[i]:
                removed.examples = [{
                    "location": document.location,
                    "text": units[j][:EXAMPLE_CHARACTERS],
                    "stays": self._stayed[i][self._shown[i][at + j]],
                }]  # fmt: skip
            self.removed[one.how.label].add(removed)
