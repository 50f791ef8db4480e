"""Scores of a fine-tuned model by group of rows: a file each, or a value of a column each.

Zero-shot transfer is measured so: one model, tuned in one language, and the labeled rows of others
(Conneau et al. 2018, arXiv:1809.05053, section 4).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from unmask.checkpoints.huggingface.read import LoadedModel
from unmask.finetuning.results.predict import infer_task
from unmask.finetuning.results.predict_pictures import labeled_pictures
from unmask.finetuning.results.report import majority_baseline
from unmask.finetuning.results.score import (
    FileOptions,
    items_of_table,
    picture_columns,
    read_labeled_table,
    score,
    score_items,
)
from unmask.tasks.readers.split_table import split_table
from unmask.tasks.task import Task, TaskExample
from unmask.tokenizers.load import with_text_language


@dataclass(frozen=True, kw_only=True)
class GroupScore:
    """The scores of a group."""

    name: str
    n_rows: int
    metrics: Mapping[str, float]
    most_frequent: float | None
    """Main metric of the answer that most rows of the group have, given to all. None: an answer has
    no such metric, as a loss."""


def score_groups(
    loaded_model: LoadedModel,
    files: Mapping[str, str | Path],
    *,
    by: str | None = None,
    task: Task | None = None,
    options: FileOptions | None = None,
    in_languages: bool = False,
) -> list[GroupScore]:
    """Score a fine-tuned model on each of several files, or each value of a column.

    Args:
        loaded_model: as for `score_file`.
        files: labeled files by the name of their group.
        by: column whose values are groups, in place of the files' names; in order of appearance.
        task: as for `score_file`.
        options: how the rows of the files are read.
        in_languages: whether names of groups are languages of the texts, of models that have
            language embeddings.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a file does not fit the model; or there is no such column or language.
    """
    task = infer_task(loaded_model) if task is None else task
    options = options or FileOptions()
    if not loaded_model.preset.reads_texts:
        if by is not None:
            raise ValueError(
                f"by (--by) must be left out: {loaded_model.preset.name} reads pictures; name "
                "several sources of them"
            )
        return [_score_pictures(loaded_model, name, files[name], task, options) for name in files]
    return [
        score_group(_for_language(loaded_model, name, in_languages), name, items, task)
        for name, items in _read_groups(task, files, by, options).items()
    ]


def score_group(
    loaded_model: LoadedModel, name: str, items: Sequence[TaskExample], task: Task
) -> GroupScore:
    """Score a fine-tuned model on the items of a group, beside their most frequent answer."""
    return GroupScore(
        name=name,
        n_rows=len(items),
        metrics=score_items(loaded_model, items, task),
        most_frequent=majority_baseline(task, items, items),
    )


def _score_pictures(
    loaded_model: LoadedModel, name: str, path: str | Path, task: Task, options: FileOptions
) -> GroupScore:
    columns = picture_columns(options)
    with labeled_pictures(loaded_model, path, task, columns) as (formulation, items):
        return GroupScore(
            name=name,
            n_rows=len(items),
            metrics=score(formulation, loaded_model.model, items, formulation.build_inputs(items)),
            most_frequent=majority_baseline(task, items, items),
        )


def _for_language(loaded_model: LoadedModel, name: str, in_languages: bool) -> LoadedModel:
    """Return a model for texts of a language, if it has language embeddings."""
    tokenizer = loaded_model.tokenizer
    if not in_languages or tokenizer is None or not tokenizer.special_tokens.language_embeddings:
        return loaded_model
    try:
        return replace(loaded_model, tokenizer=with_text_language(tokenizer, name))
    except ValueError as error:
        raise ValueError(
            f"group {name}: {error}; --language LANGUAGE reads all groups as one language"
        ) from None


def _read_groups(
    task: Task, files: Mapping[str, str | Path], by: str | None, options: FileOptions
) -> dict[str, list[TaskExample]]:
    groups: dict[str, list[TaskExample]] = {}
    for name, path in files.items():
        table = read_labeled_table(task, path, options)
        for group, part in ({name: table} if by is None else split_table(table, by)).items():
            groups.setdefault(group, []).extend(items_of_table(task, part, options))
    return groups


def read_group(
    task: Task, path: str | Path, name: str, *, by: str | None, options: FileOptions
) -> list[TaskExample]:
    """Read the rows of one group: those with a value in a column, or a whole file without it.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file does not fit the task, or has no such rows.
    """
    table = read_labeled_table(task, path, options)
    if by is not None and table.has_column(by):
        parts = split_table(table, by)
        if name not in parts:
            raise ValueError(f"{path}: {by} must have rows of {name}, got {', '.join(parts)}")
        table = parts[name]
    return items_of_table(task, table, options)


def format_group_scores(scores: Sequence[GroupScore], metric: str) -> list[str]:
    """Format scores as the lines of a table, the main metric and its floor first."""
    others = [name for name in scores[0].metrics if name != metric]
    rows = [["group", "rows", metric, "most frequent", *others]]
    for one in scores:
        figures = [one.metrics[metric], one.most_frequent, *(one.metrics[n] for n in others)]
        rows.append(
            [one.name, f"{one.n_rows:,}", *("" if x is None else f"{x:.4f}" for x in figures)]
        )
    return align_columns(rows)


def align_columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Align the cells of a table: the first column left, the others right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            [
                row[0].ljust(widths[0]),
                *(cell.rjust(n) for cell, n in zip(row[1:], widths[1:], strict=True)),
            ]
        ).rstrip()
        for row in rows
    ]
