"""Metrics of a model on labeled items, or on a labeled file."""

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from unmask.checkpoints.huggingface.read import LoadedModel
from unmask.finetuning.formulations.build import formulate
from unmask.finetuning.formulations.conversations.rows import fitting_items, score_metrics
from unmask.finetuning.formulations.formulation import (
    ItemScores,
    TaskFormulation,
    TaskInput,
    ThresholdTuning,
)
from unmask.finetuning.results.predict import (
    DEFAULT_BATCH_TOKENS,
    PredictedScores,
    infer_task,
    infer_text_columns,
    inputs_with_warnings,
    mean_loss,
    predict_scores,
    select_columns,
)
from unmask.finetuning.results.predict_pictures import labeled_pictures
from unmask.finetuning.results.task_metrics import compute_metrics
from unmask.heads.model import Model
from unmask.images.records import ImageColumns
from unmask.tasks.all_kinds import TASK_KINDS
from unmask.tasks.readers import tables
from unmask.tasks.readers.columns import with_label_names
from unmask.tasks.task import Task, TaskExample
from unmask.text.lines import EncodingErrors

_log = logging.getLogger(__name__)


def score(
    formulation: TaskFormulation,
    model: Model,
    items: Sequence[TaskExample],
    task_inputs: Sequence[TaskInput],
    batch_tokens: int = DEFAULT_BATCH_TOKENS,
) -> dict[str, float]:
    """Compute all metrics of a model on labeled items, and its loss.

    Raises:
        FloatingPointError: a score is not finite.
    """
    predictions = predict_scores(formulation, model, task_inputs, batch_tokens)
    return score_predictions(formulation, items, predictions)


def score_predictions(
    formulation: TaskFormulation, items: Sequence[TaskExample], predictions: PredictedScores
) -> dict[str, float]:
    """Compute all metrics of what a model said of labeled items, and its loss.

    Raises:
        FloatingPointError: a score is not finite.
    """
    how_far = mean_loss(formulation, items, predictions.scores)
    if not math.isfinite(how_far):
        raise FloatingPointError(
            "what the model says is not finite: it has diverged; a lower rate may help"
        )
    answers = [
        formulation.prediction(item, s) for item, s in zip(items, predictions.scores, strict=True)
    ]
    more = _losses_of_tasks(formulation, items, predictions.scores)
    more |= score_metrics(formulation, items, predictions.scores)
    return compute_metrics(formulation.task, items, answers) | more | {"loss": how_far}


def _losses_of_tasks(
    formulation: TaskFormulation, items: Sequence[TaskExample], scores: Sequence[ItemScores]
) -> dict[str, float]:
    """Return the mean loss of each task of a mixture as "sst2.loss"; of a single task none."""
    rows: dict[str, list[int]] = {}
    for i, item in enumerate(items):
        if item.component:
            rows.setdefault(item.component, []).append(i)
    return {
        f"{name}.loss": mean_loss(formulation, [items[i] for i in own], [scores[i] for i in own])
        for name, own in rows.items()
    }


def tune_threshold(
    formulation: TaskFormulation, items: Sequence[TaskExample], predictions: PredictedScores
) -> TaskFormulation:
    """Tune the threshold of a formulation on the dev scores; most tasks have none."""
    if not isinstance(formulation, ThresholdTuning):
        return formulation
    return formulation.with_tuned_threshold(items, predictions.scores)


@dataclass(frozen=True, kw_only=True)
class FileOptions:
    """How the rows of a labeled file are read. Columns that are not named are found by name."""

    text: Sequence[str] = ()
    """Columns of text. Empty: those of the task, or customary names."""
    label: str | None = None
    """Column of labels. None: that of the task, or a customary name."""
    choices: Sequence[str] = ()
    """Columns of answer choices. Empty: those of the task, or customary names."""
    columns: Sequence[str] = ()
    """Names of all columns, of a file without a header."""
    encoding_errors: EncodingErrors = "strict"
    """Handling of bytes that are not valid UTF-8."""


def score_file(
    loaded_model: LoadedModel,
    path: str | Path,
    options: FileOptions = FileOptions(),
    *,
    task: Task | None = None,
    batch_tokens: int = DEFAULT_BATCH_TOKENS,
) -> dict[str, float]:
    """Score a fine-tuned model on a labeled file.

    Args:
        loaded_model: a model with a classification head, or a fine-tuned encoder-decoder.
        path: the file.
        options: how its rows are read.
        task: the task, as `read_task` reads it from the model's folder. None: inferred from the
            head.
        batch_tokens: tokens in one forward pass.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file or a label in it does not fit the model, with file and line.
    """
    if not loaded_model.preset.reads_texts:
        own = infer_task(loaded_model) if task is None else task
        columns = picture_columns(options)
        with labeled_pictures(loaded_model, path, own, columns) as (formulation, items):
            inputs = formulation.build_inputs(items)
            return score(formulation, loaded_model.model, items, inputs, batch_tokens)
    task = infer_task(loaded_model) if task is None else task
    return score_items(loaded_model, read_items(task, path, options), task, batch_tokens)


def picture_columns(options: FileOptions) -> ImageColumns:
    """Return the columns of a table of pictures: that of text names the pictures."""
    return ImageColumns(image=next(iter(options.text), None), label=options.label)


def score_items(
    loaded_model: LoadedModel,
    items: Sequence[TaskExample],
    task: Task,
    batch_tokens: int = DEFAULT_BATCH_TOKENS,
) -> dict[str, float]:
    """Score a fine-tuned model on labeled items.

    Raises:
        ValueError: the model has no tokenizer.
    """
    formulation = formulate_items(loaded_model, items, task)
    path = items[0].location.rpartition(":")[0] if items else ""
    kept = without_left_out(formulation, items, path)
    if not kept:
        raise ValueError(f"{path}: no row is left to score")
    inputs = inputs_with_warnings(formulation, kept, loaded_model.tokenizer)
    return score(formulation, loaded_model.model, kept, inputs, batch_tokens)


def formulate_items(
    loaded_model: LoadedModel, items: Sequence[TaskExample], task: Task
) -> TaskFormulation:
    """Return how a model is asked about labeled items.

    Raises:
        ValueError: the model has no tokenizer.
    """
    if loaded_model.tokenizer is None:
        raise ValueError(f"{loaded_model.preset.name} has no tokenizer, which reading text needs")
    task = infer_text_columns(task, items)
    return formulate(task, loaded_model.preset, loaded_model.tokenizer)


def without_left_out(
    formulation: TaskFormulation, items: Sequence[TaskExample], name: str
) -> Sequence[TaskExample]:
    """Leave out the items that have no input, with a warning that counts them."""
    kept, reasons = fitting_items(formulation, items)
    if reasons:
        _log.warning(f"{name}: left out of {len(items):,} rows: {'; '.join(reasons)}")
    return kept


def read_items(
    task: Task, path: str | Path, options: FileOptions = FileOptions()
) -> list[TaskExample]:
    """Read a labeled file for a task; class numbers in place of labels are indices into them.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file or a label in it does not fit the task, with file and line.
    """
    return items_of_table(task, read_labeled_table(task, path, options), options)


def read_labeled_table(task: Task, path: str | Path, options: FileOptions) -> tables.Table:
    """Read a labeled file for a task.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is empty or damaged.
    """
    return tables.read_table(
        path,
        header=tuple(options.columns),
        word_per_line=TASK_KINDS[task.task_kind].reader.word_per_line,
        encoding_errors=options.encoding_errors,
    )


def items_of_table(task: Task, table: tables.Table, options: FileOptions) -> list[TaskExample]:
    """Return the items of a labeled table, as `read_items` does.

    Raises:
        ValueError: the table or a label in it does not fit the task, with file and line.
    """
    errors = options.encoding_errors
    task = select_columns(task, table, options.text, options.choices)
    kind, task_columns = TASK_KINDS[task.task_kind], task.columns  # a pair's, where two are named
    reader = kind.reader
    texts = (
        task_columns.texts if options.text or all(map(table.has_column, task_columns.texts)) else ()
    )
    label = options.label
    if label is None and task_columns.label in table.columns:
        label = task_columns.label
    columns = reader.find_columns(table, texts, label, task_columns.choices)
    items = reader.read_examples(table, columns, errors, has_labels=True, options=task.options)
    items = with_label_names(items, task.labels)
    kind.check_examples(items, task.labels, columns.label)
    if not items:
        raise ValueError(f"{table.path}: no sentence has a word")
    return items
