"""`preview_text`: the first documents of files as they are read, and how many there are."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unmask.config import from_dict
from unmask.text.documents import Document, DocumentSeparator, list_files, read_documents
from unmask.text.lines import EncodingErrors

SHOWN_CHARACTERS = 2000
"""Of a document."""
COUNTED_SECONDS = 3.0
"""Counting ends after so long; then the counts are of the beginning."""
_REPLACED = "\ufffd"


@dataclass(frozen=True, kw_only=True)
class _PreviewTextArguments:
    files: Sequence[str]
    document_separator: DocumentSeparator = "blank"
    text_column: str | None = None
    encoding_errors: EncodingErrors = "strict"
    n: int = 10
    """Documents that are shown."""

    def __post_init__(self) -> None:
        if not self.files:
            raise ValueError("files: name at least one")
        if not 1 <= self.n <= 100:
            raise ValueError(f"n must be from 1 to 100, got {self.n}")

    def documents(self) -> Iterator[Document]:
        """Read them with these options."""
        return read_documents(
            [*self.files],
            document_separator=self.document_separator,
            text_column=self.text_column,
            encoding_errors=self.encoding_errors,
        )


def preview_text(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the first documents, counts, and "problem": the line at which reading failed.

    "replaced" counts characters in place of bytes that are not UTF-8, with
    `encoding_errors="replace"`. Counts are of all files if "complete".
    """
    given = from_dict(_PreviewTextArguments, arguments)
    files = [{"name": path.name, "bytes": path.stat().st_size} for path in list_files(given.files)]
    counts = {"documents": 0, "characters": 0, "words": 0, "paragraphs": 0, "replaced": 0}
    shown, problem, complete = list[dict[str, Any]](), None, True
    end = time.monotonic() + COUNTED_SECONDS
    try:
        for document in given.documents():
            text = document.text
            counts["documents"] += 1
            counts["characters"] += len(text)
            counts["words"] += len(text.split())
            counts["paragraphs"] += text.count("\n") + 1
            counts["replaced"] += text.count(_REPLACED)
            if len(shown) < given.n:
                shown.append(_record(document))
            if time.monotonic() > end:
                complete = False
                break
    except ValueError as error:
        problem, complete = _without_folders(str(error), given.files), False
    return {
        "files": files, "documents": shown, "counts": counts, "complete": complete,
        "problem": problem,
    }  # fmt: skip


def _record(document: Document) -> dict[str, Any]:
    return {
        "text": document.text[:SHOWN_CHARACTERS],
        "characters": len(document.text),
        "cut": len(document.text) > SHOWN_CHARACTERS,
        "location": Path(document.location).name,
    }


def _without_folders(line: str, files: Sequence[str]) -> str:
    """Return a message with the names of files alone."""
    for file in files:
        line = line.replace(file, Path(file).name)
    return line
