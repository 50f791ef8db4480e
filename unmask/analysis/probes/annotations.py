"""Sentences with labels or trees to probe for, from CoNLL-U files and files of tags."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast, get_args

import numpy as np

from unmask.analysis.dependencies import DependencyTree, read_dependencies
from unmask.analysis.probes.spans.targets import (
    TARGETS_COLUMN,
    SentenceTargets,
    marks_spans,
    read_targets,
    tagged_spans,
)
from unmask.analysis.probes.structural import ROOT, tree_distances
from unmask.tasks.readers.conll import WORDS_COLUMN
from unmask.tasks.readers.tables import Table, read_table
from unmask.text.lines import EncodingErrors

ProbeTask = Literal["tags", "relations", "labels", "spans", "distances", "depths"]
"""Parts of speech; relations of a word and its head; labels of a file of tags; labels of spans, or
of pairs of spans; structural probes of distances in a tree, and of depths."""
TREE_TASKS: tuple[ProbeTask, ...] = ("relations", "distances", "depths")
"""Tasks that need dependency trees."""
CONLLU_TASKS: tuple[ProbeTask, ...] = ("tags", *TREE_TASKS)
"""Tasks of CoNLL-U files, in the order of the report."""
TAG_FILE_TASKS: tuple[ProbeTask, ...] = ("labels", "spans")
"""Tasks of files of tags; `spans` only if the tags mark spans with types."""
SPAN_FILE_TASKS: tuple[ProbeTask, ...] = ("spans",)
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
    spans: tuple[SentenceTargets, ...] = ()
    """Empty: no task needs them."""

    def __len__(self) -> int:
        return len(self.words)

    def select(self, indices: Sequence[int] | range) -> "AnnotatedSentences":
        """Return some of the sentences."""
        return AnnotatedSentences(
            words=tuple(self.words[i] for i in indices),
            labels=tuple(self.labels[i] for i in indices) if self.labels else (),
            trees=tuple(self.trees[i] for i in indices) if self.trees else (),
            spans=tuple(self.spans[i] for i in indices) if self.spans else (),
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
    """Read a CoNLL-U file, a file of one word per line whose last column is a label, or of spans.

    Args:
        path: .conllu; .conll, .txt or .tsv; .jsonl (see `read_targets`); optionally compressed.
        tasks: what is read. Empty: all that the file has.
        label_column: number of the column of labels of a file of tags, from 2. None: the last.
        encoding_errors: treatment of invalid UTF-8 and NULs.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is empty or of another kind, a task is not of its kind, or a sentence has not
            what a task needs.
    """
    table = read_table(path, word_per_line=True, encoding_errors=encoding_errors)
    kind, allowed = _kind(table)
    for task in tasks:
        if task not in allowed:
            raise ValueError(f"{path}: tasks of {kind} are {', '.join(allowed)}, got {task!r}")
    if label_column is not None and allowed != TAG_FILE_TASKS:
        raise ValueError(f"{path}: label_column is of files of tags, not of {kind}")
    if allowed == TAG_FILE_TASKS:
        return _read_tags(table, tasks, label_column)
    chosen: tuple[ProbeTask, ...] = tuple(task for task in allowed if not tasks or task in tasks)
    if allowed == SPAN_FILE_TASKS:
        words, spans = read_targets(table)
        return AnnotatedFile(sentences=AnnotatedSentences(words=words, spans=spans), tasks=chosen)
    return _read_conllu(table, chosen, encoding_errors)


def check_tasks(tasks: Sequence[str]) -> None:
    """Check the words of tasks.

    Raises:
        ValueError: one is no task.
    """
    for task in tasks:
        if task not in get_args(ProbeTask):
            raise ValueError(f"tasks must be of {', '.join(get_args(ProbeTask))}, got {task!r}")


def _kind(table: Table) -> tuple[str, tuple[ProbeTask, ...]]:
    """Return what a file is, in words, and the tasks that such files can have."""
    if table.has_column("form"):
        return "a CoNLL-U file", CONLLU_TASKS
    if table.has_column(TARGETS_COLUMN):
        return "a file of spans", SPAN_FILE_TASKS
    return "a file of tags", TAG_FILE_TASKS


def _read_conllu(
    table: Table, tasks: tuple[ProbeTask, ...], encoding_errors: EncodingErrors
) -> AnnotatedFile:
    words, tags = (_lists(table, name) for name in ("form", "upos"))
    if "tags" in tasks:
        for i, row in enumerate(tags):
            if "_" in row:
                raise ValueError(
                    f"{table.location(i)}: the word {words[i][row.index('_')]!r} has no part of "
                    "speech"
                )
    needs_trees = any(task in TREE_TASKS for task in tasks)
    sentences = AnnotatedSentences(
        words=words,
        labels=tags if "tags" in tasks else (),
        trees=_read_trees(table, table.path, encoding_errors) if needs_trees else (),
    )
    return AnnotatedFile(sentences=sentences, tasks=tasks)


def _read_trees(
    table: Table, path: Path, encoding_errors: EncodingErrors
) -> tuple[DependencyTree, ...]:
    trees = tuple(read_dependencies(path, encoding_errors))
    for i, tree in enumerate(trees):
        if tree.heads.count(ROOT) != 1 or not np.isfinite(tree_distances(tree.heads)).all():
            raise ValueError(f"{table.location(i)}: the heads of this sentence make no tree")
    return trees


def _read_tags(table: Table, tasks: Sequence[ProbeTask], label_column: int | None) -> AnnotatedFile:
    if len(table.columns) < 2 or table.columns[0] != WORDS_COLUMN:
        raise ValueError(
            f"{table.path}: labels are read from .conllu files, from files of one word and its "
            f"labels per line (.conll, .txt), or of text and {TARGETS_COLUMN} (.jsonl), got the "
            f"columns {', '.join(table.columns)}"
        )
    n = len(table.columns)
    column = n if label_column is None else label_column
    if not 2 <= column <= n:
        raise ValueError(f"{table.path}: label_column must be from 2 to {n}, got {column}")
    words, labels = _lists(table, WORDS_COLUMN), _lists(table, table.columns[column - 1])
    known = sorted({label for row in labels for label in row})
    chosen: tuple[ProbeTask, ...] = tuple(task for task in TAG_FILE_TASKS if task in tasks)
    if not tasks:
        chosen = TAG_FILE_TASKS if marks_spans(known) else ("labels",)
    return AnnotatedFile(
        sentences=AnnotatedSentences(
            words=words,
            labels=labels if "labels" in chosen else (),
            spans=tagged_spans(table, labels) if "spans" in chosen else (),
        ),
        tasks=chosen,
    )


def _lists(table: Table, name: str) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(cast("Sequence[str]", row)) for row in table.column(name))
