"""Sentences with labels or trees to probe for, from CoNLL-U files and files of tags."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast, get_args

import numpy as np

from unmask.analysis.dependencies import DependencyTree, read_dependencies
from unmask.analysis.probes.structural import ROOT, tree_distances
from unmask.tasks.readers.conll import WORDS_COLUMN
from unmask.tasks.readers.tables import Table, read_table
from unmask.text.lines import EncodingErrors

ProbeTask = Literal["tags", "relations", "labels", "distances", "depths"]
"""Parts of speech; relations of a word and its head; labels of a file of tags; structural probes of
distances in a tree, and of depths."""
TREE_TASKS: tuple[ProbeTask, ...] = ("relations", "distances", "depths")
"""Tasks that need dependency trees."""
CONLLU_TASKS: tuple[ProbeTask, ...] = ("tags", *TREE_TASKS)
"""Tasks of CoNLL-U files, in the order of the report."""
TAG_FILE_TASKS: tuple[ProbeTask, ...] = ("labels",)
_STOP_EVERY = 5
"""Of the sentences to fit, one in so many stops the training instead."""


@dataclass(frozen=True, kw_only=True)
class AnnotatedSentences:
    """Sentences of words, with what the tasks need."""

    words: tuple[tuple[str, ...], ...]
    labels: tuple[tuple[str, ...], ...] = ()
    """Of each word: its part of speech, or its label in a file of tags. Empty: no task needs it."""
    trees: tuple[DependencyTree, ...] = ()
    """Empty: no task needs them."""

    def __len__(self) -> int:
        return len(self.words)

    def select(self, indices: Sequence[int] | range) -> "AnnotatedSentences":
        """Return some of the sentences."""
        return AnnotatedSentences(
            words=tuple(self.words[i] for i in indices),
            labels=tuple(self.labels[i] for i in indices) if self.labels else (),
            trees=tuple(self.trees[i] for i in indices) if self.trees else (),
        )

    def split_to_stop(self) -> tuple["AnnotatedSentences", "AnnotatedSentences"]:
        """Return the sentences that fit probes, and those that stop the training: every fifth.

        Raises:
            ValueError: there is one sentence only.
        """
        if len(self) < 2:
            raise ValueError("one sentence cannot both fit probes and stop their training")
        stop = list(range(_STOP_EVERY - 1, len(self), _STOP_EVERY)) or [len(self) - 1]
        return self.select([i for i in range(len(self)) if i not in set(stop)]), self.select(stop)


@dataclass(frozen=True, kw_only=True)
class AnnotatedFile:
    """A file of annotated sentences, and the tasks that it is read for."""

    sentences: AnnotatedSentences
    tasks: tuple[ProbeTask, ...]


def read_annotated(
    path: Path,
    tasks: Sequence[ProbeTask] = (),
    *,
    label_column: int | None = None,
    encoding_errors: EncodingErrors = "strict",
) -> AnnotatedFile:
    """Read a CoNLL-U file, or a file of one word per line whose last column is a label.

    Args:
        path: .conllu; .conll, .txt or .tsv; optionally compressed.
        tasks: what is read. Empty: all that a file of its kind can have.
        label_column: number of the column of labels of a file of tags, from 2. None: the last.
        encoding_errors: treatment of invalid UTF-8 and NULs.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is empty or of another kind, a task is not of its kind, or a sentence has not
            what a task needs.
    """
    table = read_table(path, word_per_line=True, encoding_errors=encoding_errors)
    is_conllu = table.has_column("form")
    allowed = CONLLU_TASKS if is_conllu else TAG_FILE_TASKS
    for task in tasks:
        if task not in allowed:
            kind = "a CoNLL-U file" if is_conllu else "a file of tags"
            raise ValueError(f"{path}: tasks of {kind} are {', '.join(allowed)}, got {task!r}")
    chosen: tuple[ProbeTask, ...] = tuple(task for task in allowed if not tasks or task in tasks)
    if not is_conllu:
        return AnnotatedFile(sentences=_read_tags(table, label_column), tasks=chosen)
    if label_column is not None:
        raise ValueError(f"{path}: label_column is of files of tags, not of CoNLL-U files")
    words, tags = (_lists(table, name) for name in ("form", "upos"))
    if "tags" in chosen:
        for i, row in enumerate(tags):
            if "_" in row:
                raise ValueError(
                    f"{table.location(i)}: the word {words[i][row.index('_')]!r} has no part of "
                    "speech"
                )
    needs_trees = any(task in TREE_TASKS for task in chosen)
    sentences = AnnotatedSentences(
        words=words,
        labels=tags if "tags" in chosen else (),
        trees=_read_trees(table, path, encoding_errors) if needs_trees else (),
    )
    return AnnotatedFile(sentences=sentences, tasks=chosen)


def check_tasks(tasks: Sequence[str]) -> None:
    """Check the words of tasks.

    Raises:
        ValueError: one is no task.
    """
    for task in tasks:
        if task not in get_args(ProbeTask):
            raise ValueError(f"tasks must be of {', '.join(get_args(ProbeTask))}, got {task!r}")


def _read_trees(
    table: Table, path: Path, encoding_errors: EncodingErrors
) -> tuple[DependencyTree, ...]:
    trees = tuple(read_dependencies(path, encoding_errors))
    for i, tree in enumerate(trees):
        if tree.heads.count(ROOT) != 1 or not np.isfinite(tree_distances(tree.heads)).all():
            raise ValueError(f"{table.location(i)}: the heads of this sentence make no tree")
    return trees


def _read_tags(table: Table, label_column: int | None) -> AnnotatedSentences:
    if len(table.columns) < 2 or table.columns[0] != WORDS_COLUMN:
        raise ValueError(
            f"{table.path}: labels are read from .conllu files, or from files of one word and its "
            f"labels per line (.conll, .txt), got the columns {', '.join(table.columns)}"
        )
    n = len(table.columns)
    column = n if label_column is None else label_column
    if not 2 <= column <= n:
        raise ValueError(f"{table.path}: label_column must be from 2 to {n}, got {column}")
    return AnnotatedSentences(
        words=_lists(table, WORDS_COLUMN), labels=_lists(table, table.columns[column - 1])
    )


def _lists(table: Table, name: str) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(cast("Sequence[str]", row)) for row in table.column(name))
