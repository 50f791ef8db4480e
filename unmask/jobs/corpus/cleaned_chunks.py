"""The cleaning of a chunk of documents, by a worker: what is kept, what is removed, keys."""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unmask.config import from_dict
from unmask.text.cleaning.duplicates import split_units
from unmask.text.cleaning.rule import Removal, apply_rules
from unmask.text.cleaning.rules import Cleaning
from unmask.text.documents import Document
from unmask.text.processes import Work

CHUNK_CHARACTERS = 2**20
"""A worker is given about so much text at once."""
_DOCUMENT_OVERHEAD = 256
EXAMPLES = 3
"""Examples of each reason that a report shows."""
EXAMPLE_CHARACTERS = 300
"""Characters of an example."""
NOTHING_LEFT = "nothing left"
"""The reason of documents all of whose lines were removed."""


@dataclass
class Removed:
    """What was removed for one reason."""

    documents: int = 0
    lines: int = 0
    changes: int = 0
    characters: int = 0
    """Of what was removed; of changes, none."""
    examples: list[dict[str, str]] = field(default_factory=list)
    """A few: location, text, and of duplicates the text that stayed."""

    def add(self, other: "Removed") -> None:
        """Add what came after it."""
        self.documents += other.documents
        self.lines += other.lines
        self.changes += other.changes
        self.characters += other.characters
        self.examples += other.examples[: EXAMPLES - len(self.examples)]


@dataclass(frozen=True)
class CleanedChunk:
    """A chunk after its worker."""

    documents: list[Document]
    """What is left."""
    removed: Mapping[str, Removed]
    keys: list[NDArray[np.uint64]]
    """Of each deduplication, the keys of the units of `documents`."""


def iter_chunks(documents: Iterable[Document]) -> Iterator[list[Document]]:
    """Yield documents in chunks."""
    chunk: list[Document] = []
    size = 0
    for document in documents:
        chunk.append(document)
        size += len(document.text) + _DOCUMENT_OVERHEAD
        if size >= CHUNK_CHARACTERS:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def make_cleaner(words: str) -> Work:
    """Return what cleans chunks, by a `Cleaning` in words of JSON; see `unpack_answer`."""
    cleaning = from_dict(Cleaning, json.loads(words))
    return lambda texts: _clean_chunk(cleaning, texts)


def _clean_chunk(cleaning: Cleaning, texts: Sequence[bytes]) -> list[bytes]:
    kept: list[tuple[int, str]] = []
    removed: defaultdict[str, Removed] = defaultdict(Removed)
    for i, text in enumerate(texts):
        before = text.decode("utf-8", "surrogatepass")
        cleaned = apply_rules(cleaning.all_rules, before)
        for removal in cleaned.removals:
            removed[removal.reason].add(_count(removal, i))
        if cleaned.text:
            kept.append((i, cleaned.text))
        elif not any(one.is_document for one in cleaned.removals):
            removed[NOTHING_LEFT].add(Removed(documents=1))
    keys = [
        one.keys([unit for _, text in kept for unit in split_units(text, one.unit)])
        for one in cleaning.deduplications
    ]
    facts = {
        "kept": [i for i, _ in kept],
        "removed": {reason: vars(one) for reason, one in removed.items()},
    }
    return [
        json.dumps(facts).encode(),
        *(one.astype("<u8").tobytes() for one in keys),
        *(text.encode("utf-8", "surrogatepass") for _, text in kept),
    ]


def _count(removal: Removal, number: int) -> Removed:
    is_document, is_change = removal.is_document, removal.is_change
    return Removed(
        documents=int(is_document),
        lines=int(not is_document and not is_change),
        changes=int(is_change),
        characters=0 if is_change else len(removal.text),
        examples=[{"location": str(number), "text": removal.text[:EXAMPLE_CHARACTERS]}],
    )


def unpack_answer(
    cleaning: Cleaning, chunk: Sequence[Document], answer: Sequence[bytes]
) -> CleanedChunk:
    """Return what a worker did to a chunk."""
    facts: dict[str, Any] = json.loads(answer[0])
    n = len(cleaning.deduplications)
    keys = [
        np.frombuffer(data, "<u8").astype(np.uint64).reshape(-1, one.n_keys)
        for one, data in zip(cleaning.deduplications, answer[1 : 1 + n], strict=True)
    ]
    removed = {reason: Removed(**one) for reason, one in facts["removed"].items()}
    for one in removed.values():
        for example in one.examples:
            example["location"] = chunk[int(example["location"])].location
    documents = [
        Document(text.decode("utf-8", "surrogatepass"), chunk[i].location, chunk[i].source)
        for i, text in zip(facts["kept"], answer[1 + n :], strict=True)
    ]
    return CleanedChunk(documents, removed, keys)
