"""How good a model's answers are on labelled items, or on a labelled file."""

import math
from collections.abc import Sequence
from pathlib import Path

from unmask.checkpoints.huggingface.read import LoadedModel
from unmask.finetuning.formulations.build import formulate
from unmask.finetuning.formulations.formulation import TaskFormulation, TaskInput, ThresholdTuning
from unmask.finetuning.results.predict import (
    DEFAULT_BATCH_TOKENS,
    infer_task,
    infer_text_columns,
    mean_loss,
    predict_scores,
    select_columns,
)
from unmask.finetuning.results.task_metrics import compute_metrics
from unmask.heads.model import Model
from unmask.tasks.all_kinds import TASK_KINDS
from unmask.tasks.readers import tables
from unmask.tasks.task import Task, TaskExample
from unmask.text.lines import EncodingErrors


def score(
    formulation: TaskFormulation,
    model: Model,
    items: Sequence[TaskExample],
    task_inputs: Sequence[TaskInput],
    batch_tokens: int = DEFAULT_BATCH_TOKENS,
) -> dict[str, float]:
    """Compute all figures of a model's answers about items, and its loss.

    Raises:
        FloatingPointError: the model says numbers that are none.
    """
    said = predict_scores(formulation, model, task_inputs, batch_tokens)
    how_far = mean_loss(formulation, items, said.scores)
    if not math.isfinite(how_far):
        raise FloatingPointError(
            "what the model says is not finite: it has diverged; a lower rate may help"
        )
    answers = [formulation.prediction(item, s) for item, s in zip(items, said.scores, strict=True)]
    return compute_metrics(formulation.task, items, answers) | {"loss": how_far}


def tune_threshold(
    formulation: TaskFormulation,
    model: Model,
    items: Sequence[TaskExample],
    task_inputs: Sequence[TaskInput],
) -> TaskFormulation:
    """Settle what a finished model's answers to the dev file decide; of most tasks nothing."""
    if not isinstance(formulation, ThresholdTuning):
        return formulation
    return formulation.with_tuned_threshold(
        items, predict_scores(formulation, model, task_inputs).scores
    )


def score_file(
    loaded_model: LoadedModel,
    path: str | Path,
    *,
    task: Task | None = None,
    text: Sequence[str] = (),
    label: str | None = None,
    choices: Sequence[str] = (),
    columns: Sequence[str] = (),
    encoding_errors: EncodingErrors = "strict",
    batch_tokens: int = DEFAULT_BATCH_TOKENS,
) -> dict[str, float]:
    """Score a fine-tuned model on a labelled file.

    Args:
        loaded_model: a model with a head of labels, or an encoder-decoder that was fine-tuned.
        path: of the file.
        task: what `read_task` found in the model's folder. None: what its head says.
        text: columns of text. None named: those of the task, or customary ones.
        label: the column of labels. None: that of the task, or a customary one.
        choices: columns of options. None named: likewise.
        columns: names of all columns, for a file without a header.
        encoding_errors: what becomes of bytes that are no UTF-8.
        batch_tokens: tokens that go through the model at once.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file or a label in it is not what the model takes, with file and line.
    """
    if loaded_model.tokenizer is None:
        raise ValueError(f"{loaded_model.preset.name} has no tokenizer, which reading text needs")
    task = infer_task(loaded_model) if task is None else task
    items = read_items(
        task,
        path,
        text=text,
        label=label,
        choices=choices,
        columns=columns,
        encoding_errors=encoding_errors,
    )
    asked = formulate(infer_text_columns(task, items), loaded_model.preset, loaded_model.tokenizer)
    return score(asked, loaded_model.model, items, asked.build_inputs(items), batch_tokens)


def read_items(
    task: Task,
    path: str | Path,
    *,
    text: Sequence[str] = (),
    label: str | None = None,
    choices: Sequence[str] = (),
    columns: Sequence[str] = (),
    encoding_errors: EncodingErrors = "strict",
) -> list[TaskExample]:
    """Read a labelled file for a task; the arguments are those of `score_file`.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file or a label in it is not what the task takes, with file and line.
    """
    tagged = TASK_KINDS[task.task_kind].reader.word_per_line
    table = tables.read_table(
        path, header=tuple(columns), word_per_line=tagged, encoding_errors=encoding_errors
    )
    task = select_columns(task, table, text, choices)
    kind, own = TASK_KINDS[task.task_kind], task.columns
    files = kind.reader
    texts = own.texts if text or all(map(table.has_column, own.texts)) else ()
    if label is None and own.label in table.columns:
        label = own.label
    found = files.find_columns(table, texts, label, own.choices)
    items = files.read_examples(
        table, found, encoding_errors, has_labels=True, options=task.options
    )
    kind.check_examples(items, task.labels, found.label)
    if not items:
        raise ValueError(f"{path}: no sentence has a word")
    return items
