"""Sentences with dependency trees, from CoNLL-U files."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from unmask.tasks.readers.tables import Table, read_table
from unmask.text.lines import EncodingErrors

ROOT = -1
"""Head of the word that has none."""
PUNCTUATION_RELATION, ROOT_RELATION = "punct", "root"


@dataclass(frozen=True)
class DependencyTree:
    """A sentence with the head and the relation of each word."""

    words: tuple[str, ...]
    heads: tuple[int, ...]
    """Index of the head of each word; `ROOT` for the root."""
    relations: tuple[str, ...]
    """With subtypes, as nmod:poss."""
    tags: tuple[str, ...] = ()
    """Universal part of speech of each word."""

    @property
    def scored(self) -> list[int]:
        """Words whose heads are scored: the root has none, and punctuation is customarily left out.

        Clark et al. 2019 (released code) and the evaluation of Stanford Dependencies do so.
        """
        return [
            i
            for i, (head, relation) in enumerate(zip(self.heads, self.relations, strict=True))
            if head != ROOT and relation.partition(":")[0] != PUNCTUATION_RELATION
        ]


def read_dependencies(
    path: str | Path, encoding_errors: EncodingErrors = "strict"
) -> list[DependencyTree]:
    """Read the sentences of a CoNLL-U file, optionally compressed, with their trees.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is empty, no .conllu file, or a sentence has no tree.
    """
    table = read_table(path, encoding_errors=encoding_errors)
    for column in ("form", "head", "deprel"):
        if not table.has_column(column):
            raise ValueError(
                f"{path}: dependency trees are read from .conllu files, whose columns are form, "
                f"head and deprel, got {', '.join(table.columns)}"
            )
    columns = [table.column(name) for name in ("form", "head", "deprel", "upos")]
    rows = cast("list[tuple[Sequence[str], ...]]", list(zip(*columns, strict=True)))
    return [_read_tree(row, table, i) for i, row in enumerate(rows)]


def _read_tree(row: tuple[Sequence[str], ...], table: Table, i: int) -> DependencyTree:
    words, heads, relations, tags = row
    location, n = table.location(i), len(words)
    if all(head == "_" for head in heads):
        raise ValueError(f"{location}: this sentence has no dependency tree: every head is _")
    numbers: list[int] = []
    for word, head in zip(words, heads, strict=True):
        if not head.isdecimal() or int(head) > n:
            raise ValueError(
                f"{location}: the head of {word!r} must be a word's number from 1 to {n}, or 0 for "
                f"the root, got {head!r}"
            )
        numbers.append(int(head) - 1)
    if any(head == own for own, head in enumerate(numbers)):
        raise ValueError(f"{location}: a word is its own head")
    return DependencyTree(tuple(words), tuple(numbers), tuple(relations), tuple(tags))
