"""The cleaning of a corpus as steps of datatrove: on one machine, Slurm or Ray.

The same documents are kept and removed as by `unmask prepare`, if tasks read them in its order.
Three pipelines, with datatrove's own readers and writers between them:

    [JsonlReader(...), CleaningFilter(cleaning), DuplicateKeys(cleaning, "keys"), JsonlWriter("a")]
    [DuplicateSearch(cleaning, "keys")]                              # one task
    [JsonlReader("a"), DuplicateFilter("keys"), JsonlWriter("b")]

The first stays: by task, and within a task by the order in which it read. Folders may be remote
(`s3://...`), as fsspec reads them.
"""

from collections.abc import Generator, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

try:
    from datatrove.data import Document
    from datatrove.io import DataFolder, get_datafolder
    from datatrove.pipeline.base import PipelineStep
    from datatrove.pipeline.filters.base_filter import BaseFilter
except ModuleNotFoundError as error:
    raise ImportError("datatrove is not installed: pip install 'unmask[scale]'") from error

from unmask.text.cleaning.duplicates import find_duplicates, split_units
from unmask.text.cleaning.rule import apply_rules
from unmask.text.cleaning.rules import Cleaning
from unmask.text.lines import is_blank, iter_paragraphs

POSITION_KEY = "unmask_position"
"""Key of a document's metadata: the task that read it, and which of that task's documents it is."""
_BATCH = 256  # documents whose keys are computed at once


class CleaningFilter(BaseFilter):
    """The rules of a cleaning, in order. Documents of which nothing is left are dropped."""

    name = "Unmask: rules"

    def __init__(self, cleaning: Cleaning, exclusion_writer: Any = None) -> None:
        super().__init__(exclusion_writer)
        self.cleaning = cleaning

    def filter(self, doc: Document) -> bool | tuple[bool, str]:
        """Change a document's text to what is left of it."""
        cleaned = apply_rules(self.cleaning.all_rules, as_paragraphs(doc.text))
        if cleaned.text:
            doc.text = cleaned.text
            return True
        reasons = [one.reason for one in cleaned.removals if one.is_document]
        return False, reasons[-1] if reasons else "nothing left"


class _DeduplicationStep(PipelineStep):
    """A step that reads or writes keys in a folder."""

    type = "🫂 - DEDUPS"

    def __init__(self, cleaning: Cleaning, folder: str) -> None:
        super().__init__()
        self.cleaning = cleaning
        self.folder = get_datafolder(folder)


class DuplicateKeys(_DeduplicationStep):
    """Writes the keys of each task's documents, and notes in each document where they are."""

    name = "Unmask: keys of duplicates"

    def run(
        self, data: Iterable[Document] | None, rank: int = 0, world_size: int = 1
    ) -> Generator[Document]:
        """Pass documents on."""
        kinds = self.cleaning.deduplications
        keys = [[np.zeros((0, kind.n_keys), np.uint64)] for kind in kinds]
        counts: list[int] = []
        batch: list[Document] = []

        def add_batch() -> None:
            for some, kind in zip(keys, kinds, strict=True):
                units = [unit for one in batch for unit in split_units(one.text, kind.unit)]
                some.append(kind.keys(units))
            batch.clear()

        for document in data or ():
            document.text = as_paragraphs(document.text)
            document.metadata[POSITION_KEY] = [rank, len(counts)]
            counts.append(document.text.count("\n") + 1)
            batch.append(document)
            self.stat_update("documents")
            if len(batch) == _BATCH:
                full = list(batch)
                add_batch()
                yield from full
        full = list(batch)
        add_batch()
        yield from full
        for i, some in enumerate(keys):
            _write(self.folder, f"{rank:05}.keys-{i}", np.concatenate(some), "<u8")
        _write(self.folder, f"{rank:05}.paragraphs", np.array(counts, np.int64), "<i8")


class DuplicateSearch(_DeduplicationStep):
    """Finds the duplicates of all tasks, in one task."""

    name = "Unmask: search for duplicates"

    def run(
        self, data: Iterable[Document] | None = None, rank: int = 0, world_size: int = 1
    ) -> Generator[Document]:
        """Write for each task which of its documents and paragraphs go.

        Raises:
            ValueError: there are several tasks, or the folder has no keys.
        """
        if world_size != 1:
            raise ValueError(f"DuplicateSearch must be one task, got {world_size}")
        kinds = self.cleaning.deduplications
        names = sorted(n.partition(".")[0] for n in self.folder.list_files() if "paragraphs" in n)
        if not names:
            raise ValueError(f"{self.folder.path}: has no keys; run DuplicateKeys first")
        counts = [_read(self.folder, f"{name}.paragraphs", "<i8") for name in names]

        def read_keys(i: int, at: int) -> NDArray[np.uint64]:
            return np.concatenate([
                _read(self.folder, f"{name}.keys-{i}", "<u8").reshape(-1, kinds[i].n_keys)[:, at]
                for name in names
            ])  # fmt: skip

        n_documents, n_paragraphs = sum(map(len, counts)), int(sum(map(np.sum, counts)))
        gone = {"document": np.zeros(n_documents, bool), "paragraph": np.zeros(n_paragraphs, bool)}
        for found in find_duplicates(np.concatenate(counts), kinds, read_keys):
            gone[found.how.unit] |= found.is_removed
            self.stat_update(found.how.label, value=int(found.is_removed.sum()))
        document = paragraph = 0
        for name, some in zip(names, counts, strict=True):
            ends = document + len(some), paragraph + int(some.sum())
            _write(self.folder, f"{name}.gone-documents", gone["document"][document : ends[0]])
            _write(self.folder, f"{name}.gone-paragraphs", gone["paragraph"][paragraph : ends[1]])
            document, paragraph = ends
        yield from data or ()


class DuplicateFilter(BaseFilter):
    """Removes the duplicates that `DuplicateSearch` found."""

    name = "Unmask: duplicates"

    def __init__(self, folder: str, exclusion_writer: Any = None) -> None:
        super().__init__(exclusion_writer)
        self.folder = get_datafolder(folder)
        self._task: tuple[int, NDArray[Any], NDArray[Any], NDArray[Any]] | None = None

    def filter(self, doc: Document) -> bool | tuple[bool, str]:
        """Change a document's text to what is left of it.

        Raises:
            ValueError: the document does not say which it is.
        """
        if POSITION_KEY not in doc.metadata:
            raise ValueError(f"{doc.id}: has no {POSITION_KEY}; it did not pass DuplicateKeys")
        rank, number = map(int, doc.metadata.pop(POSITION_KEY))
        documents, paragraphs, firsts = self._read_task(rank)
        if documents[number]:
            return False, "duplicate document"
        lines = doc.text.split("\n")
        gone = paragraphs[firsts[number] : firsts[number + 1]]
        doc.text = "\n".join(one for one, is_gone in zip(lines, gone, strict=True) if not is_gone)
        return True if doc.text else (False, "nothing left")

    def _read_task(self, rank: int) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        if self._task is None or self._task[0] != rank:
            counts = _read(self.folder, f"{rank:05}.paragraphs", "<i8")
            self._task = (
                rank,
                _read(self.folder, f"{rank:05}.gone-documents", "?"),
                _read(self.folder, f"{rank:05}.gone-paragraphs", "?"),
                np.concatenate(([0], np.cumsum(counts))),
            )
        return self._task[1:]


def as_paragraphs(text: str) -> str:
    """Return a text as `unmask` reads a record: paragraphs, one a line, without blank lines."""
    return "\n".join(line for line in iter_paragraphs(text) if not is_blank(line))


def _write(folder: DataFolder, name: str, array: NDArray[Any], dtype: str = "?") -> None:
    with folder.open(name, "wb") as file:
        file.write(array.astype(dtype).tobytes())


def _read(folder: DataFolder, name: str, dtype: str) -> NDArray[Any]:
    with folder.open(name, "rb") as file:
        return np.frombuffer(file.read(), dtype)
